package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/schedules"
)

// lockedBuffer takes a process's output while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, is func() bool, more ...fmt.Stringer) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("in a minute there was no %s\n%s", what, more)
}

// Two daemons start after five days in which nobody ran the schedule: one of them
// makes up for rate, once, and both end at SIGTERM.
func TestTwoDaemonsMakeUpForFiveDaysOnce(t *testing.T) {
	flags, e := database(t)
	s := store.New(e.Conn(), e.Database())
	before := time.Now().Add(-5 * 24 * time.Hour)
	run, err := jobs.Start(t.Context(), s, store.ScheduleJob("rate"), []string{"rate"}, "test", before)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.End(t.Context(), map[string]string{"slot": before.UTC().Format(time.RFC3339)}, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	minute := time.Now().Add(-30 * time.Minute).UTC().Minute() // no slot comes while the test runs
	if err := os.WriteFile(file, fmt.Appendf(nil, "jobs: [{name: rate, cron: '%d * * * *', args: [rate, --now, '2026-11-10T00:00:00Z'], jitter: 1s}]\n", minute), 0o600); err != nil {
		t.Fatal(err)
	}
	type daemon struct {
		cmd *exec.Cmd
		out lockedBuffer
	}
	var daemons [2]daemon
	for i := range daemons {
		d := &daemons[i]
		d.cmd = exec.Command(os.Args[0], append(flags, "schedule", "run", "--file", file, "--listen", "127.0.0.1:0")...)
		d.cmd.Env = append(os.Environ(), envProgram+"=1")
		d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
		if err := d.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.cmd.Process.Kill() }()
	}
	count := func(query string) (n uint64) {
		if err := e.Conn().QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "run that made up for rate", func() bool {
		return count("SELECT count() FROM job_runs WHERE job = 'schedule rate' AND counts['missed'] != '' AND counts['exit'] = '0'") > 0
	}, &daemons[0].out, &daemons[1].out)
	if n := count("SELECT toUInt64(uniqExact(run_id)) FROM job_runs WHERE job = 'rate'"); n != 1 {
		t.Errorf("rate ran %d times\n%s\n%s", n, &daemons[0].out, &daemons[1].out)
	}
	if n := count("SELECT toUInt64(max(toUInt32OrZero(counts['missed']))) FROM job_runs WHERE job = 'schedule rate'"); n < 118 || n > 120 {
		t.Errorf("%d slots are said to be missed", n)
	}
	if n := count("SELECT count() FROM period_commits"); n != 96 {
		t.Errorf("%d periods are committed, want 96", n)
	}
	turns := 0
	for i := range daemons {
		d := &daemons[i]
		var address []string
		eventually(t, "address", func() bool {
			address = regexp.MustCompile(`listen=(127\.0\.0\.1:\d+)`).FindStringSubmatch(d.out.String())
			return address != nil
		}, &d.out)
		response, err := http.Get("http://" + address[1] + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		var h schedules.Health
		if err != nil || json.Unmarshal(text, &h) != nil || response.StatusCode != http.StatusOK || !h.Alive {
			t.Errorf("%d %s %v", response.StatusCode, text, err)
		}
		if h.Turn {
			turns++
		}
	}
	if turns != 1 {
		t.Errorf("%d daemons run the schedule", turns)
	}
	for i := range daemons {
		d := &daemons[i]
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("daemon %d: %v\n%s", i, err, d.out.String())
		}
	}
	if n := count("SELECT count() FROM (SELECT holder FROM leases WHERE name = 'schedule' GROUP BY holder HAVING argMax(state, beat_at) = 'claimed')"); n != 0 {
		t.Error("the turn was not given back")
	}
}

func TestScheduleCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", time.Now().UnixNano()))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if out := must(t, "schedule", "default"); !strings.Contains(out, "jobs:") {
		t.Errorf("default: %s", out)
	}
	var slots []schedules.Slot
	if err := json.Unmarshal([]byte(must(t, "schedule", "next", "-n", "3", "--from", "2026-12-04T05:50:00Z", "-o", "json")), &slots); err != nil || len(slots) != 3 || slots[2].Job != "close" {
		t.Errorf("next: %+v %v", slots, err)
	}
	out := filepath.Join(dir, "units")
	must(t, "schedule", "render", "systemd", "--out", out)
	must(t, "schedule", "render", "systemd", "--out", out, "--check")
	unit := filepath.Join(out, "ratebatch-rate.timer")
	if err := os.WriteFile(unit, []byte("[Timer]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := cli(t, "schedule", "render", "systemd", "--out", out, "--check")
	if code != 2 || !strings.Contains(stderr, "ratebatch-rate.timer differs") {
		t.Errorf("--check of a changed unit: exit %d %s", code, stderr)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a job with a flag that is none":    {[]string{"schedule", "next", "--file", write("jobs: [{name: a, cron: '0 0 * * *', args: [rate, --perod, 1h]}]")}, "--perod"},
		"a job with a command that is none": {[]string{"schedule", "run", "--file", write("jobs: [{name: a, cron: '0 0 * * *', args: [rat]}]")}, "rat"},
		"a job that is a group of commands": {[]string{"schedule", "next", "--file", write("jobs: [{name: a, cron: '0 0 * * *', args: [plan]}]")}, "plan"},
		"a file that is not there":          {[]string{"schedule", "next", "--file", "/none.yaml"}, "/none.yaml"},
		"a target that is none":             {[]string{"schedule", "render", "windows"}, "windows"},
		"a check without a folder":          {[]string{"schedule", "render", "systemd", "--check"}, "--out"},
		"a listener that is taken":          {[]string{"schedule", "run", "--listen", "256.0.0.1:1"}, "--listen"},
	} {
		if code, _, stderr := cli(t, tt.args...); code != 2 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d %s", name, code, stderr)
		}
	}
}

func TestMonthsByTheirDistance(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	moment := time.Date(2027, 1, 1, 2, 30, 0, 0, time.UTC) // still December in New York
	for _, tt := range []struct{ zone, text, want string }{
		{"UTC", "current", "2027-01"}, {"UTC", "last", "2026-12"}, {"UTC", "2025-02", "2025-02"},
		{"America/New_York", "current", "2026-12"}, {"America/New_York", "last", "2026-11"},
	} {
		zone := time.UTC
		if tt.zone != "UTC" {
			zone = newYork
		}
		if got, err := monthOf(ratebatch.NewCalendar(zone), tt.text, moment); err != nil || got.String() != tt.want {
			t.Errorf("%s in %s: %s %v, want %s", tt.text, tt.zone, got, err, tt.want)
		}
	}
	if err := checkMonth("yesterday"); err == nil {
		t.Error("yesterday is taken for a month")
	}
}

// The server is away when the daemon starts: that is an error to try again after,
// and a run log that was never reached is one as well.
func TestScheduleStateWithoutAServer(t *testing.T) {
	p := &program{now: time.Now, log: slog.New(slog.DiscardHandler), engine: engine.Options{URL: "http://127.0.0.1:1", Database: "ratebatch"}}
	x := &scheduleState{p: p}
	turn, err := x.Turn(t.Context())
	if turn || ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
		t.Errorf("turn %v, %v", turn, err)
	}
	if err := x.Note(t.Context(), &schedules.Record{Job: "rate"}); err == nil {
		t.Error("a run was noted nowhere")
	}
	x.close(t.Context())
}
