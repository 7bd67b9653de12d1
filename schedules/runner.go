package schedules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Exec runs jobs as child processes, each in a process group of its own, so that
// Ctrl-C for the daemon does not reach them and the end of one reaches all that
// it started. The embedded engine has a session of its own and is not among them.
type Exec struct {
	Command []string // ratebatch and its shared flags; the job's arguments follow
	Env     []string // nil: the daemon's
	Stdout  io.Writer
	Stderr  io.Writer
}

// Run starts the command and waits for it. When ctx ends, the group gets SIGTERM
// and a minute later SIGKILL.
func (e *Exec) Run(ctx context.Context, j *Job) (int, error) {
	args := append(append([]string(nil), e.Command[1:]...), j.Args...)
	c := exec.CommandContext(ctx, e.Command[0], args...)
	c.Env, c.Stdout, c.Stderr = e.Env, e.Stdout, e.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = killAfter
	err := c.Run()
	if c.Process != nil {
		// What the command left behind goes with it.
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // ESRCH: nothing
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		code := -1
		if c.ProcessState != nil {
			code = c.ProcessState.ExitCode()
		}
		return code, fmt.Errorf("ended after %s: %w", j.Timeout, context.Cause(ctx))
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	case err != nil:
		return -1, err
	}
	return 0, nil
}
