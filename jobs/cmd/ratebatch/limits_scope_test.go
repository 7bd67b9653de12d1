package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a job and the engine may have in memory at most, in MiB, however many
// resources one scope has.
const (
	jobMemory    = 300
	engineMemory = 3 << 10
)

// bigScope is one scope of many instances.
type bigScope struct {
	*billed
	data   string
	engine int // its process
	size   int // instances
}

func newBigScope(t *testing.T, size int) *bigScope {
	t.Helper()
	b := &bigScope{size: size}
	if size < 1_000_000 {
		b.billed = newBilled(t)
		b.sql("TRUNCATE TABLE instance_metrics_hourly")
		b.sql("TRUNCATE TABLE rate_plans")
	} else {
		b.billed = newSoakSide(t).billed // an engine of its own, whose memory is nobody else's
	}
	b.data = b.flags[1]
	var err error
	if b.engine, err = enginePID(b.data); err != nil {
		t.Fatal(err)
	}
	// 17:00 is one pass, the three hours after it are another.
	b.sql(fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds)
		SELECT toDateTime('2026-03-01 17:00:00', 'UTC') + 3600 * intDiv(number, %d), 'one', reinterpret(sipHash128(number %% %[1]d), 'UUID'), 'large', if(number %% 3 = 0, 'm2', 'm1'), 1 + number %% 4, 'vm', 60, 60, 3600 FROM numbers(4 * %[1]d)`, size))
	b.must("metrics", "apply", b.file("metrics.yaml", "metrics:\n  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n    groupby: [flavor_name]\n"))
	b.must("plan", "apply", b.file("plan.yaml", "currency: EUR\nservices:\n  - name: instance\n    fields:\n      - name: flavor_name\n        mappings:\n          - {value: m1, cost: \"0.01\", type: flat}\n          - {value: m2, cost: \"0.02\", type: flat}\n"))
	b.must("watermark", "--region", "one", "--until", "2026-03-01T22:00:00Z")
	return b
}

// step measures one piece of work of a process, in which the peaks of both stay
// below their limits.
func (b *bigScope) step(name string, job func() (peak int64)) {
	b.Helper()
	// The kernel begins to count anew (proc(5), clear_refs).
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.engine), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	peak := job()
	took := time.Since(begin)
	engine, err := enginePeak(b.data)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%s: %.1f s, job %d MiB, engine %.0f MiB", name, took.Seconds(), peak, engine)
	if peak > jobMemory {
		b.Errorf("%s: the job took %d MiB, at most %d were expected", name, peak, jobMemory)
	}
	if engine > engineMemory {
		b.Errorf("%s: the engine took %.0f MiB, at most %d were expected", name, engine, engineMemory)
	}
}

func (b *bigScope) command(name string, args ...string) {
	b.Helper()
	b.step(name, func() int64 {
		_, peak := measureRun(b.T, append(append([]string{}, b.flags...), args...)...)
		return peak
	})
}

// serve starts serve as a process.
func (b *bigScope) serve() (s *served, process *os.Process) {
	b.Helper()
	s = &served{log: &syncBuffer{}}
	cmd := exec.CommandContext(b.Context(), os.Args[0], append(append([]string{}, b.flags...), "serve", "--listen", "127.0.0.1:0", "--rate-limit", "100000", "--rate-burst", "100000", "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), envProgram+"=1")
	cmd.Stderr = s.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its exit code is another test's matter
	})
	eventually(b.T, "addresses", func() bool {
		at, kitty := servedAt.FindStringSubmatch(s.log.String()), kittyAt.FindStringSubmatch(s.log.String())
		if at == nil || kitty == nil {
			return false
		}
		s.url, s.kitty = at[1], kitty[1]
		return true
	}, s.log)
	return s, cmd.Process
}

// pages walks through the lines of the first hour and counts the different ones.
func (b *bigScope) pages(s *served) (lines, pages int, slowest time.Duration) {
	b.Helper()
	path, last := "/api/v1/lines?project=large&limit=500&begin=2026-03-01T17:00:00Z&end=2026-03-01T18:00:00Z", ""
	for next := ""; ; {
		begin := time.Now()
		status, _, body := s.ask(b.T, http.MethodGet, path+next, "")
		slowest = max(slowest, time.Since(begin))
		var page struct {
			Lines []struct{ Resource string }
			Next  *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK {
			b.Fatalf("page %d: %d %.300s %v", pages, status, body, err)
		}
		pages++
		for _, l := range page.Lines {
			if l.Resource <= last {
				b.Fatalf("page %d: %s comes after %s", pages, l.Resource, last)
			}
			last = l.Resource
			lines++
		}
		if page.Next == nil {
			return lines, pages, slowest
		}
		next = "&cursor=" + url.QueryEscape(*page.Next)
	}
}

// A scope of a million instances is rated, exported and looked at in the memory
// of a small one, in one hour and in three at once: a hundredth of it in make test,
// all of it with RATEBATCH_TEST_FAULTS=all.
func TestAScopeOfManyResources(t *testing.T) {
	size := 10_000
	if os.Getenv(envFaults) == "all" {
		size = 1_000_000
	}
	b := newBigScope(t, size)
	b.command("rate of one hour", "rate", "--now", "2026-03-01T19:30:00Z", "--first-period", "usage")
	if got := b.text("SELECT toString(count()) FROM rated WHERE bucket = ''"); got != fmt.Sprint(size) {
		t.Fatalf("%s lines are priced, want %d", got, size)
	}
	b.command("rate of three hours", "rate", "--now", "2026-03-01T23:30:00Z", "--first-period", "usage")
	// A third of them cost two cents an hour.
	want := 4*size + (4*size+2)/3
	if got := b.text("SELECT concat(toString(count()), ' ', toString(toDecimal64(sum(price) * 100, 0))) FROM rated WHERE bucket = ''"); got != fmt.Sprintf("%d %d", 4*size, want) {
		t.Fatalf("lines and cents are %s, want %d and %d", got, 4*size, want)
	}
	files := t.TempDir()
	b.command("export", "export", "--month", "2026-03", "--to", files, "--partition", "scope", "--partial", "--first-period", "usage")
	b.command("export verify", "export", "verify", files)
	b.command("status", "status", "--now", "2026-03-01T23:30:00Z", "--first-period", "usage")
	b.command("reprocess of one hour", "backfill", "--all", "--from", "2026-03-01T17:00:00Z", "--to", "2026-03-01T18:00:00Z", "--reason", "x", "--now", "2026-03-01T23:30:00Z", "--first-period", "usage")
	s, process := b.serve()
	served := func(name string, ask func()) {
		b.step(name, func() int64 {
			ask()
			kib, err := processPeak(process.Pid)
			if err != nil {
				b.Fatal(err)
			}
			return kib >> 10
		})
	}
	get := func(base, path string, holds string) func() {
		return func() {
			b.Helper()
			at := *s
			at.url = base
			status, _, body := at.ask(t, http.MethodGet, path, "")
			if status != http.StatusOK || !strings.Contains(string(body), holds) {
				b.Errorf("GET %s: %d %.500s, want %s in it", path, status, body, holds)
			}
		}
	}
	total := fmt.Sprintf("%d.%02d", want/100, want%100)
	served("GET costs", get(s.url, "/api/v1/costs?month=2026-03", total))
	served("GET rating/status", get(s.url, "/api/v1/rating/status", `"large"`))
	served("GET search", get(s.url, "/api/v1/search?q=vm", `"instances"`))
	served("GET CloudKitty's summary", get(s.kitty, "/v2/summary?groupby=project_id&begin=2026-03-01T00:00:00&end=2026-04-01T00:00:00", total))
	served("GET CloudKitty's dataframes", get(s.kitty, "/v2/dataframes?limit=100&offset=1000&begin=2026-03-01T00:00:00&end=2026-04-01T00:00:00", fmt.Sprintf(`"total":%d`, 4*size)))
	served("lines by pages", func() {
		lines, pages, slowest := b.pages(s)
		if lines != size {
			t.Errorf("%d lines on %d pages, want %d", lines, pages, size)
		}
		t.Logf("%d pages, the slowest in %d ms", pages, slowest.Milliseconds())
	})
	for _, format := range []string{"csv", "parquet"} {
		served("download as "+format, func() {
			response, err := http.Get(s.url + "/api/v1/costs/download?project=large&format=" + format + "&month=2026-03")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			n, err := io.Copy(io.Discard, response.Body)
			if err != nil || response.StatusCode != http.StatusOK || n < int64(size) {
				t.Errorf("%d bytes, %s, %v", n, response.Status, err)
			}
		})
	}
}
