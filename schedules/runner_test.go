package schedules

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(script string, seconds int) (*Exec, *Job) {
	return &Exec{Command: []string{"/bin/sh", "-c"}}, &Job{Name: "test", Args: []string{script}, Timeout: time.Duration(seconds) * time.Second}
}

func TestExitCodesComeThrough(t *testing.T) {
	for _, code := range []int{0, 3, 20, 75} {
		e, j := shell("exit "+strconv.Itoa(code), 10)
		if got, err := e.Run(t.Context(), j); got != code || err != nil {
			t.Errorf("exit %d: %d %v", code, got, err)
		}
	}
	e, j := shell("kill -9 $$", 10)
	if got, err := e.Run(t.Context(), j); got != -1 || err == nil {
		t.Errorf("killed: %d %v", got, err)
	}
	if got, err := (&Exec{Command: []string{"/nowhere/ratebatch"}}).Run(t.Context(), j); got != -1 || err == nil {
		t.Errorf("no such command: %d %v", got, err)
	}
}

// A command that hangs, and what it started, gets SIGTERM and may clean up.
func TestTheTimeoutEndsAWholeCommand(t *testing.T) {
	dir := t.TempDir()
	e, j := shell(`cd `+dir+`; sleep 100 & echo $! > child; trap 'echo cleaned > cleaned; exit 130' TERM; echo ready > ready; wait`, 60)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				cancel()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	code, err := e.Run(ctx, j)
	if code != 130 || err == nil {
		t.Errorf("%d %v", code, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Error("the command could not clean up")
	}
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if syscall.Kill(pid, 0) != nil || zombie(pid) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("what the command started (%d) lives on", pid)
}

// zombie says whether the process has ended and only its parent has not looked:
// in a container without an init that reaps orphans it stays so.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(b), ") Z ")
}
