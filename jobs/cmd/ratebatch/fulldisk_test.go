package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/schedules"
)

// smallDisk is a folder on a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// ballast fills the disk to the last byte.
func ballast(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 4
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// heldRunner counts runs and holds them until they are let go.
type heldRunner struct {
	runs atomic.Int32
	let  chan struct{}
}

func (r *heldRunner) Run(ctx context.Context, _ *schedules.Job) (int, error) {
	r.runs.Add(1)
	select {
	case <-r.let:
		return 0, nil
	case <-ctx.Done():
		return 130, ctx.Err()
	}
}

// The disk of the run log is full when the daemon starts, and again when a run
// ends: the daemon lives on and says so, a run is not lost, none comes twice, and
// with space again the run log goes on.
func TestAFullDiskForTheRunLog(t *testing.T) {
	dir := smallDisk(t, "128m")
	o := engine.Options{DataDir: filepath.Join(dir, "data"), Database: "ratebatch", Log: slog.New(slog.DiscardHandler)}
	must(t, "--data", o.DataDir, "migrate")
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	before := time.Now().Add(-3 * time.Hour)
	run, err := jobs.Start(t.Context(), store.New(e.Conn(), e.Database()), store.ScheduleJob("rate"), []string{"rate"}, "test", before)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.End(t.Context(), map[string]string{"slot": before.UTC().Format(time.RFC3339)}, nil); err != nil {
		t.Fatal(err)
	}
	// Once an hour, and not within the next half of one.
	file, err := schedules.Parse("test", fmt.Appendf(nil, "jobs: [{name: rate, cron: '%d * * * *', args: [rate]}]\n", time.Now().Add(-30*time.Minute).UTC().Minute()))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{now: time.Now, log: slog.New(slog.DiscardHandler), engine: o}
	state := &scheduleState{p: p}
	runner := &heldRunner{let: make(chan struct{})}
	d := &schedules.Daemon{File: file, Runner: runner, State: state, Log: p.log, Now: p.now, Tick: 200 * time.Millisecond, Jitter: func(time.Duration) time.Duration { return 0 }}

	stone := filepath.Join(dir, "ballast")
	ballast(t, stone)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	eventually(t, "error of the state", func() bool { return d.Health().Errors > 0 })
	if h := d.Health(); !h.Alive || h.Turn || runner.runs.Load() != 0 {
		t.Errorf("with a full disk at start: %+v, %d runs", h, runner.runs.Load())
	}
	if err := os.Remove(stone); err != nil {
		t.Fatal(err)
	}
	eventually(t, "run with space again", func() bool { return runner.runs.Load() == 1 })

	ballast(t, stone)
	errorsBefore := d.Health().Errors
	runner.let <- struct{}{}
	eventually(t, "run that ended well", func() bool { return d.Health().Jobs[0].Done == 1 })
	eventually(t, "error of the run log", func() bool { return d.Health().Errors > errorsBefore })
	if h := d.Health(); !h.Alive || h.Jobs[0].Running {
		t.Errorf("with a full disk at a run's end: %+v", h)
	}
	if err := os.Remove(stone); err != nil {
		t.Fatal(err)
	}
	eventually(t, "turn with space again", func() bool { return d.Health().Turn })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	state.close(t.Context())
	if n := runner.runs.Load(); n != 1 {
		t.Errorf("the job ran %d times", n)
	}
}
