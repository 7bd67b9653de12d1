package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// metricsIn reads all metrics of a folder.
func metricsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// wantSeries checks that the metrics of a folder have a series, with its value.
func wantSeries(t *testing.T, dir, series string) {
	t.Helper()
	if all := metricsIn(t, dir); !strings.Contains("\n"+all, "\n"+series+"\n") {
		var similar []string
		for line := range strings.SplitSeq(all, "\n") {
			if name, _, _ := strings.Cut(series, "{"); strings.HasPrefix(line, strings.Fields(name)[0]) {
				similar = append(similar, line)
			}
		}
		t.Errorf("the metrics lack %s: %q", series, similar)
	}
}

// at runs a command at a moment and gives its exit code.
func (b *billed) at(moment time.Time, args ...string) int {
	b.Helper()
	var stdout, stderr bytes.Buffer
	p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: func() time.Time { return moment }}
	code := p.run(b.Context(), append(slices.Clone(b.flags), args...))
	if strings.Contains(stderr.String(), "WRN metrics") {
		b.Errorf("%v: %s", args, &stderr)
	}
	return code
}

// What ingest had trouble with is measured for a day from the tables, whether it
// follows or runs every five minutes.
func TestLostAndRejectedRecordsAreMeasured(t *testing.T) {
	withoutVariables(t)
	b := newBilled(t)
	dir, moment := t.TempDir(), time.Now()
	measure := func(moment time.Time) {
		t.Helper()
		if code := b.at(moment, "--metrics-dir", dir, "retention"); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	measure(moment)
	wantSeries(t, dir, "ratebatch_ingest_lost_records 0")
	wantSeries(t, dir, "ratebatch_ingest_rejected_records 0")
	loss := store.Loss{Source: "c/g", Topic: "port", Cause: "expired", FromOffset: 3, ToOffset: 10, RunID: uuid.New(), FoundAt: moment}
	unknown := loss
	unknown.Partition, unknown.ToOffset = 1, -1
	for _, l := range []store.Loss{loss, unknown} {
		if err := b.s.AddLoss(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.s.InsertRejected(t.Context(), []store.Rejected{{Topic: "port", Offset: 1, Reason: "x"}, {Topic: "port", Offset: 2, Reason: "x"}}, "t"); err != nil {
		t.Fatal(err)
	}
	measure(moment.Add(23 * time.Hour))
	wantSeries(t, dir, "ratebatch_ingest_lost_records 8")
	wantSeries(t, dir, "ratebatch_ingest_rejected_records 2")
	measure(moment.Add(25 * time.Hour))
	wantSeries(t, dir, "ratebatch_ingest_lost_records 0")
	wantSeries(t, dir, "ratebatch_ingest_rejected_records 0")
}

// A month that is closed and was not exported since is told, where anything is
// exported; by either way to deliver.
func TestAClosedMonthThatIsNotExportedIsTold(t *testing.T) {
	for _, delivery := range []string{"overwrite", "append"} {
		t.Run(delivery, func(t *testing.T) {
			withoutVariables(t)
			b := newBilled(t)
			dir, metrics := t.TempDir(), t.TempDir()
			export := []string{"export", "--month", "2026-11", "--partial", "--to", dir, "--delivery", delivery}
			check := func(after time.Duration) string {
				t.Helper()
				_, _, stderr := cli(t, append(slices.Clone(b.flags), "status", "--check", "--now", time.Now().Add(after).UTC().Format(time.RFC3339))...)
				return stderr
			}
			measure := func() {
				t.Helper()
				b.at(time.Now(), "--metrics-dir", metrics, "retention")
			}
			b.rate()
			b.must("close", "--month", "2026-11", "--now", at)
			measure()
			wantSeries(t, metrics, "ratebatch_closed_months_unexported 0") // nothing is ever exported here
			b.must("reopen", "--month", "2026-11", "--reason", "x")
			b.must(export...)
			measure()
			wantSeries(t, metrics, "ratebatch_closed_months_unexported 0")
			b.must("close", "--month", "2026-11", "--now", at)
			measure()
			wantSeries(t, metrics, "ratebatch_closed_months_unexported 1")
			const told = "month 2026-11 was closed "
			if says := check(23 * time.Hour); strings.Contains(says, told) {
				t.Errorf("within a day: %s", says)
			}
			if says := check(25 * time.Hour); !strings.Contains(says, told) || !strings.Contains(says, "ratebatch export --month 2026-11") {
				t.Errorf("after a day: %s", says)
			}
			if says := b.must("status"); !strings.Contains(says, "warning: "+told) {
				t.Errorf("status: %s", says)
			}
			b.must(export...)
			measure()
			wantSeries(t, metrics, "ratebatch_closed_months_unexported 0")
			if says := check(25 * time.Hour); strings.Contains(says, told) {
				t.Errorf("exported: %s", says)
			}
		})
	}
}

// Where months are closed, one that is left open is told.
func TestAMonthThatIsLeftOpenIsTold(t *testing.T) {
	withoutVariables(t)
	b := newBilled(t)
	b.rate()
	metrics := t.TempDir()
	january := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	check := func(after time.Duration, more ...string) string {
		t.Helper()
		_, _, stderr := cli(t, append(append(slices.Clone(b.flags), "status", "--check", "--now", january.Add(after).Format(time.RFC3339)), more...)...)
		return stderr
	}
	const told = "month 2026-1"
	if says := check(20 * 24 * time.Hour); strings.Contains(says, told) {
		t.Errorf("where no month is ever closed: %s", says)
	}
	b.at(january.Add(time.Hour), "--metrics-dir", metrics, "retention", "--unexported")
	if all := metricsIn(t, metrics); strings.Contains(all, "month_open_seconds") {
		t.Errorf("where no month is ever closed: %s", all)
	}
	b.must("close", "--month", "2026-11", "--now", at)
	if says := check(5 * 24 * time.Hour); strings.Contains(says, told) {
		t.Errorf("on the sixth: %s", says)
	}
	if says := check(5*24*time.Hour+time.Second, "--close-within", "360h"); strings.Contains(says, told) {
		t.Errorf("a month that may be open for 15 days is told after five: %s", says)
	}
	if says := check(5*24*time.Hour + time.Second); !strings.Contains(says, "month 2026-12 ended 2027-01-01T00:00:00Z and is not closed: run 'ratebatch close --month 2026-12'") {
		t.Errorf("a second later: %s", says)
	}
	b.at(january.Add(time.Hour), "--metrics-dir", metrics, "retention")
	wantSeries(t, metrics, "ratebatch_month_open_seconds 3600")
	b.at(january.Add(-time.Hour), "--metrics-dir", metrics, "retention")
	wantSeries(t, metrics, "ratebatch_month_open_seconds 0")
}

// Each shard is measured by itself: one that ends well leaves what another says. A
// number of shards that is no more leaves nothing.
func TestShardsAreMeasuredApart(t *testing.T) {
	withoutVariables(t)
	b := newBilled(t)
	dir := t.TempDir()
	shard := func(shard string, want int) {
		t.Helper()
		if code, _, stderr := cli(t, append(slices.Clone(b.flags), "--metrics-dir", dir, "rate", "--now", at, "--first-period", "usage", "--shard", shard)...); code != want || strings.Contains(stderr, "WRN metrics") {
			t.Errorf("shard %s: exit %d, want %d\n%s", shard, code, want, stderr)
		}
	}
	b.sql("INSERT INTO schema_migrations (version, name, digest) VALUES (999, '999_x', 'x')")
	shard("0/2", 20)
	b.sql("DELETE FROM schema_migrations WHERE version = 999")
	shard("1/2", 0)
	wantSeries(t, dir, `ratebatch_command_last_exit_code{command="rate 0/2"} 20`)
	wantSeries(t, dir, `ratebatch_command_last_exit_code{command="rate 1/2"} 0`)
	shard("2/2", 2) // the others stay
	wantSeries(t, dir, `ratebatch_command_last_exit_code{command="rate"} 2`)
	wantSeries(t, dir, `ratebatch_command_last_exit_code{command="rate 0/2"} 20`)
	shard("0/3", 0)
	if all := metricsIn(t, dir); strings.Contains(all, `command="rate 1/2"`) || strings.Contains(all, `command="rate"`) {
		t.Errorf("what runs no more is there: %s", all)
	}
	shard("", 0)
	wantSeries(t, dir, `ratebatch_command_last_exit_code{command="rate"} 0`)
	if all := metricsIn(t, dir); strings.Contains(all, `command="rate 0/3"`) {
		t.Errorf("what runs no more is there: %s", all)
	}
}

// Whoever looks at a job that stopped leaves what it said; mistakes in a crontab
// count, and those at a terminal do not.
func TestLookingAtAJobLeavesItsMetrics(t *testing.T) {
	withoutVariables(t)
	b := newBilled(t)
	dir := t.TempDir()
	run := func(args ...string) int {
		t.Helper()
		code, _, _ := cli(t, append(append(slices.Clone(b.flags), "--metrics-dir", dir), args...)...)
		return code
	}
	if code := run("close", "--month", "2026-11", "--now", at); code != 75 {
		t.Errorf("close of what is not rated: exit %d", code)
	}
	stopped := `ratebatch_command_last_exit_code{command="close"} 75`
	for _, look := range [][]string{{"close", "--list"}, {"close", "--month", "2026-11", "--now", at, "--dry-run"}, {"close", "--help"}, {"close", "--list", "--mistyped"}} {
		run(look...)
		wantSeries(t, dir, stopped)
	}
	if all := metricsIn(t, dir); strings.Count(all, "command_last_exit_code{") != 1 {
		t.Errorf("other commands are measured: %s", all)
	}
	for _, look := range [][]string{{"rate", "--dry-run", "--now", at}, {"status"}, {"export", "--month", "2026-11", "--to", t.TempDir(), "--dry-run", "--partial"}, {"export", "schema"}, {"retention", "--dry-run"}, {"reprocess", "list"}} {
		if run(look...); strings.Count(metricsIn(t, dir), "command_last_exit_code{") != 1 {
			t.Errorf("%v is measured: %s", look, metricsIn(t, dir))
		}
	}
	// At a terminal, of which the other end does.
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Logf("no terminal: %v", err)
	} else {
		defer terminal.Close()
		p := &program{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: terminal, now: time.Now}
		if code := p.run(t.Context(), append(slices.Clone(b.flags), "--metrics-dir", dir, "close", "--month", "2026-13")); code != 2 {
			t.Errorf("exit %d", code)
		}
		wantSeries(t, dir, stopped)
	}
	for _, mistake := range [][]string{{"close", "--month", "2026-13"}, {"rate", "--mistyped"}, {"rate", "stray"}} {
		if code := run(mistake...); code != 2 {
			t.Errorf("%v: exit %d", mistake, code)
		}
		wantSeries(t, dir, `ratebatch_command_last_exit_code{command="`+mistake[0]+`"} 2`)
	}
}

// A scope that is disabled is not rated on, so it is not behind.
func TestADisabledScopeIsNotBehind(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var g gauges
	g.scopes([]store.ScopeStatus{{Scope: "a", RatedUntil: now.Add(-time.Hour)}, {Scope: "b", RatedUntil: now.AddDate(0, -1, 0)}, {Scope: "c", RatedUntil: now.Add(-2 * time.Hour)}},
		map[string]store.ScopeState{"b": {Scope: "b"}, "c": {Scope: "c", Active: true}}, now)
	registry, dir := prometheus.NewRegistry(), t.TempDir()
	registry.MustRegister(g)
	if err := prometheus.WriteToTextfile(filepath.Join(dir, "state.prom"), registry); err != nil {
		t.Fatal(err)
	}
	wantSeries(t, dir, `ratebatch_rated_lag_seconds{share="1"} 7200`)
	wantSeries(t, dir, `ratebatch_rated_lag_seconds{share="0.5"} 7200`)
	wantSeries(t, dir, "ratebatch_scopes 3")
}
