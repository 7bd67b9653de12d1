package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// processPeak is the largest resident memory, in KiB, that a living process has
// had so far.
func processPeak(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kib := peakMemory.FindSubmatch(status)
	if kib == nil {
		return 0, errors.New("the system does not tell the peak memory of a process")
	}
	return strconv.ParseInt(string(kib[1]), 10, 64)
}

// processCPU is how long a living process has used the processors so far, to
// the kernel's hundredth of a second.
func processCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name may hold anything but ends at the last bracket; utime and stime are
	// the 12th and 13th fields behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("the system does not tell what a process used of the processors")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100), err
}

// enginePID is the process of the engine over a folder.
func enginePID(dataDir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "engine", "endpoint.json"))
	if err != nil {
		return 0, err
	}
	var endpoint struct{ PID int }
	if err := json.Unmarshal(text, &endpoint); err != nil || endpoint.PID == 0 {
		return 0, errors.Join(errors.New("the engine's endpoint file names no pid"), err)
	}
	return endpoint.PID, nil
}

// enginePeak is the largest resident memory, in MiB, that the engine over a
// folder has had so far.
func enginePeak(dataDir string) (float64, error) {
	pid, err := enginePID(dataDir)
	if err != nil {
		return 0, err
	}
	kib, err := processPeak(pid)
	return float64(kib) / 1024, err
}

// resetEnginePeak makes the engine's peak begin anew, so that writing a bench's
// usage does not count for the job that is measured after it.
func resetEnginePeak(dataDir string) error {
	pid, err := enginePID(dataDir)
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // proc(5): resets VmHWM
}

// childRun is a run of this program as a process of its own.
type childRun struct {
	stdout []byte
	cpu    time.Duration
	peak   int64 // memory, in KiB
}

// runSelf runs this program again. The kernel's peak of a child counts its
// parent's memory at the fork, so the process is asked itself, while it lives.
func runSelf(ctx context.Context, stderr io.Writer, args ...string) (childRun, error) {
	self, err := os.Executable()
	if err != nil {
		return childRun{}, err
	}
	c := exec.CommandContext(ctx, self, args...)
	var stdout bytes.Buffer
	c.Stdout, c.Stderr = &stdout, stderr
	if err := c.Start(); err != nil {
		return childRun{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var run childRun
	for waiting := true; waiting; {
		select {
		case err = <-ended:
			waiting = false
		case <-time.After(20 * time.Millisecond):
			if peak, err := processPeak(c.Process.Pid); err == nil { // else it has just ended
				run.peak = max(run.peak, peak)
			}
		}
	}
	if err != nil {
		return childRun{}, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	run.stdout, run.cpu = stdout.Bytes(), c.ProcessState.UserTime()+c.ProcessState.SystemTime()
	return run, nil
}

// ratedItself is what one rate in a process of its own did and needed.
type ratedItself struct {
	rate.Result
	jobPeak, enginePeak float64 // MiB
}

// keepRawAsOperatorsDo gives raw samples the retention that they have by default.
// An engine that has just started compares the tiers with the raw samples for as
// long as these are kept: two days and not, as in other benches, for ever.
func keepRawAsOperatorsDo(ctx context.Context, s *store.Store) error {
	keep := store.Retention{Raw: store.DefaultRetention.Raw, FiveMin: demoRetention, Hourly: demoRetention}
	_, err := s.Migrate(ctx, store.MigrateOptions{Retention: keep, SetRetention: true})
	return err
}

// rateItself runs rate over a bench's database as operators do, two days after
// usage is complete, whatever the date is: the long series reaches months beyond
// the day that its sizes were chosen on.
func rateItself(ctx context.Context, p *program, dir string, until time.Time) (out ratedItself, err error) {
	data := filepath.Join(dir, "data")
	if err := resetEnginePeak(data); err != nil {
		return out, err
	}
	run, err := runSelf(ctx, p.stderr, "--data", data, "--database", "bench", "rate", "--first-period", "usage", "--output", "json", "--now", until.Add(48*time.Hour).Format(time.RFC3339))
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(run.stdout, &out.Result); err != nil {
		return out, fmt.Errorf("what rate printed: %w", err)
	}
	out.jobPeak = float64(run.peak) / 1024
	out.enginePeak, err = enginePeak(data)
	return out, err
}
