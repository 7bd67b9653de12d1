package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs/retention"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func TestRetentionRemovesOnlyWhatCountsNoMore(t *testing.T) {
	b := newBilled(t)
	b.fails(ratebatch.ExitConfig, "a slow run is taken for a dead one", "retention", "--dead-after", "1m")
	b.rate()
	b.plan("2.00", "--from", "2026-11-30", "--force", "--reason", "price was wrong")
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T02:00:00Z", "--reason", "price", "--now", at)
	b.owe("alpha 12, beta 3")
	// An attempt that died after its lines.
	b.sql(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, qty, price) SELECT generateUUIDv7(), 'alpha', '2026-11-30 21:00:00', '2026-11-30 22:00:00', 'instance', 'x', 1, 99`)
	soon, later := time.Now().Add(30*time.Minute).Format(time.RFC3339), time.Now().AddDate(0, 0, 60).Format(time.RFC3339)
	b.must("retention", "--now", soon)
	if got := b.text("SELECT toString(countIf(price = 99)) FROM rated_lines"); got != "1" {
		t.Errorf("an attempt of half an hour's age was taken for dead")
	}
	// Superseded revisions stay until an export shows the new ones.
	if out := b.must("retention", "--now", later); !strings.Contains(out, "6 superseded revisions stay") {
		t.Errorf("retention: %s", out)
	}
	if got := b.text("SELECT toString((countIf(price = 99), countIf(revision = 1 AND scope = 'alpha') > 0)) FROM rated_lines"); got != "(0,1)" {
		t.Errorf("dead lines and superseded ones: %s, want none and some", got)
	}
	b.owe("alpha 12, beta 3")
	for _, month := range []string{"2026-11-01", "2026-12-01"} {
		b.sql("INSERT INTO exports (delivery, dataset, location, month) VALUES ('d', 'lines', 'l', '" + month + "')")
	}
	b.must("retention", "--now", later)
	if got := b.text("SELECT toString((countIf(revision = 1 AND scope = 'alpha'), (SELECT countIf(revision = 1 AND scope = 'alpha') FROM period_commits))) FROM rated_lines"); got != "(0,0)" {
		t.Errorf("superseded lines and commits: %s, want none", got)
	}
	b.owe("alpha 12, beta 3")
	if r := b.rate(); r.Periods != 0 {
		t.Errorf("%d periods are due after retention", r.Periods)
	}
	// Lines that count go only with their month closed and exported since.
	b.fails(ratebatch.ExitHalted, "2026-11 is not closed", "retention", "--lines-after", "24h", "--now", later)
	b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
	b.fails(ratebatch.ExitHalted, "2026-11 was not exported since it was closed", "retention", "--lines-after", "24h", "--now", later)
	b.owe("alpha 12, beta 3")
	b.sql("INSERT INTO exports (delivery, dataset, location, month) VALUES ('after the close', 'lines', 'l', '2026-11-01')")
	// A correction is told from the lines that were billed, until a later month has billed it.
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z", "--reason", "again", "--now", at)
	refuses := func(why string) {
		b.Helper()
		b.fails(ratebatch.ExitHalted, "2026-11 was rated again since it was closed, and "+why, "retention", "--lines-after", "24h", "--now", later)
	}
	refuses("no later month was closed since")
	if out := b.fails(ratebatch.ExitHalted, "lines old enough to go were kept", "retention", "--lines-after", "24h", "--now", later); !strings.Contains(out, "superseded revisions") || !strings.Contains(out, "refused: lines of 2026-11 ") {
		t.Errorf("what went beside a refusal is not printed:\n%s", out)
	}
	b.sql("INSERT INTO month_commits (month, closed, kind, begin, until) VALUES ('2027-01-01', 1, 'close', '2027-01-01 00:00:00', '2027-02-01 00:00:00')")
	refuses("2026-12, which bills the correction, is not closed")
	b.sql("INSERT INTO month_commits (month, closed, kind, begin, until) VALUES ('2026-12-01', 1, 'close', '2026-12-01 00:00:00', '2027-01-01 00:00:00')")
	refuses("2026-12, which may bill the correction, was not exported since it was closed (lines at l)")
	b.sql("INSERT INTO exports (delivery, dataset, location, month) VALUES ('took it', 'lines', 'l', '2026-12-01'), ('after it', 'lines', 'l', '2027-01-01')")
	if out := b.must("retention", "--lines-after", "24h", "--now", later, "--dry-run"); !strings.Contains(out, "lines of 2026-11 ") || strings.Contains(out, "refused") {
		t.Errorf("dry run:\n%s", out)
	}
	server := startServeAt(t, clockOf(t, at), append(b.flags[:len(b.flags):len(b.flags)], "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	kitty := &served{url: server.kitty}
	var answer struct {
		Previous *struct{ Begin time.Time }
		Totals   []struct{ Price, Previous *string }
	}
	server.get(t, "/api/v1/costs?month=2026-11", &answer) // it keeps the sums
	server.get(t, "/api/v1/costs?month=2026-12", &answer)
	if answer.Previous == nil {
		t.Error("the costs of December are not beside those of November, which are there")
	}
	november := func() string {
		return b.text("SELECT toString(countIf(begin < '2026-12-01 00:00:00')) FROM rated_lines")
	}
	before := november()
	// Old enough is November alone.
	age := time.Now().AddDate(0, 0, 60).Sub(time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC)).Round(time.Hour).String()
	// A run of rate may be a correction: the lines wait for its end, everything else does not.
	held := store.Params{"name": "rate", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitTryAgain, "another run holds the lease", "retention", "--lines-after", age, "--now", later)
	held["state"] = "released"
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	if got := november(); got != before {
		t.Errorf("%s lines beside a run of rate, want all %s", got, before)
	}
	b.must("retention", "--lines-after", age, "--now", later)
	if got := november(); got != "0" {
		t.Errorf("%s lines of the closed and exported month are left", got)
	}
	// A month without lines has no figures, also those that were kept; the one after it has, with nothing beside them.
	for _, x := range []struct {
		at   *served
		path string
	}{{server, "/api/v1/costs?month=2026-11"}, {server, "/api/v1/lines?month=2026-11&project=alpha"}, {kitty, "/v2/summary?groupby=type&begin=2026-11-01&end=2026-12-01"}, {kitty, "/v2/dataframes?begin=2026-11-01&end=2026-12-01"}} {
		if status, _, body := x.at.ask(t, http.MethodGet, x.path, ""); status != http.StatusNotFound || !strings.Contains(string(body), "the lines of month 2026-11 were removed") {
			t.Errorf("%s of a month whose lines were removed: %d %s", x.path, status, body)
		}
	}
	// December is open again, as it really was: its close above froze nothing.
	b.sql("ALTER TABLE month_commits DELETE WHERE month = '2026-12-01' SETTINGS mutations_sync = 2")
	answer.Previous, answer.Totals = nil, nil
	server.get(t, "/api/v1/costs?month=2026-12", &answer)
	if answer.Previous != nil || len(answer.Totals) != 1 || answer.Totals[0].Price == nil || answer.Totals[0].Previous != nil {
		t.Errorf("costs of the month after it: %+v, want December's and nothing beside them", answer)
	}
	b.fails(ratebatch.ExitHalted, "2026-11 is closed and its lines were removed", "backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z", "--reason", "too late", "--now", at)
	// Nor could it be closed again; what was closed after it does not even matter.
	b.fails(ratebatch.ExitHalted, "2026-11 cannot be opened: its lines were removed", "reopen", "--month", "2026-11", "--reason", "too late")
	b.must("retention", "--now", time.Now().AddDate(3, 0, 0).Format(time.RFC3339))
	if got := b.text("SELECT toString(uniqExact(run_id) - uniqExact(job)) FROM job_runs WHERE state = 'done'"); got != "0" && got != "1" {
		t.Errorf("%s old job runs are left beside each job's last", got)
	}
}

// A month that was corrected or opened between retention's plan and its run keeps its
// lines: the correction is told from them, and an open month is read by them.
func TestRetentionLooksAgainBeforeItRemovesAMonth(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(b *billed)
		refused   string
	}{
		"corrected": {func(b *billed) {
			b.plan("2.00", "--from", "2026-11-30", "--force", "--reason", "price was wrong")
			b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z", "--reason", "price", "--now", at)
		}, "2026-11 was rated again since it was closed"},
		"opened": {func(b *billed) { b.must("reopen", "--month", "2026-11", "--reason", "x") }, "2026-11 is not closed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBilled(t)
			b.rate()
			b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
			b.sql("INSERT INTO exports (delivery, dataset, location, month) VALUES ('d', 'lines', 'l', '2026-11-01')")
			job := &retention.Job{Store: b.s, Log: b.log(), Options: retention.Options{Dead: 24 * time.Hour, Superseded: retention.DefaultSuperseded, Runs: retention.DefaultRuns, Lines: time.Hour, Now: time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC)}}
			plan, err := job.Plan(t.Context())
			if err != nil || !slices.Equal(plan.Months, []string{"2026-11"}) {
				t.Fatalf("the plan removes %v (%v), want November's lines", plan.Months, err)
			}
			tt.meanwhile(b)
			lines := func() string {
				return b.text("SELECT toString(countIf(begin < '2026-12-01 00:00:00')) FROM rated_lines")
			}
			before := lines()
			err = job.Run(t.Context(), plan, uuid.New())
			if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(strings.Join(plan.Refused, "; "), tt.refused) || len(plan.Months) > 0 {
				t.Errorf("removed %v, refused %q (%v), want %q refused", plan.Months, plan.Refused, err, tt.refused)
			}
			if got := lines(); got != before || got == "0" {
				t.Errorf("%s lines of November are left, want all %s", got, before)
			}
		})
	}
}
