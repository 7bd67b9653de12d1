package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/fixtures/fault"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/reprocess"
	"github.com/ratebatch/ratebatch/jobs/reset"
	"github.com/ratebatch/ratebatch/jobs/retention"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// envFaults set to all breaks every statement in every way, which takes half an
// hour. Otherwise each statement of rate, and every sixth of the other jobs, that writes is broken in one way, in turn, those
// that write lines and commits in the middle as well, and one in 24 that only
// read: being dead there is being dead before the next one that writes.
const envFaults = "RATEBATCH_TEST_FAULTS"

// faultMetrics keeps passes short: two metrics, one of them priced in Go.
const faultMetrics = `metrics:
  instance:
    unit: instance
    table: instance_metrics
    quantity: time
    groupby: [flavor_name]
  vcpu:
    unit: vcpu
    table: instance_metrics
    quantity: time
    value: vcpus
    groupby: [flavor_name]
`

// The vcpu's price has 84 decimal places before it is rounded: too many for SQL.
const faultPlan = `
currency: EUR
services:
  - name: instance
    mappings:
      - {cost: "%s", type: flat}
  - name: vcpu
    mappings:
      - {cost: "0.0300000000000000000000000001", type: flat}
    thresholds:
      - {level: "0", cost: "1.0000000000000000000000000001", type: rate}
    fields:
      - name: flavor_name
        mappings:
          - {value: m1, cost: "1.0000000000000000000000000003", type: rate}
`

// faultJob is a job that has to end the same however it is broken.
type faultJob struct {
	name    string
	prepare func(b *billed)                                             // on an empty database
	run     func(ctx context.Context, p *program, s *store.Store) error // broken at first, then whole
	exports bool                                                        // compare the exported files too
	plan    string                                                      // empty: faultPlan
}

func faultOptions(late string) rate.Options {
	policy, err := rate.ParseLatePolicy(late)
	if err != nil {
		panic(err)
	}
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	return rate.Options{Now: now, Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "usage"}, Late: policy, Author: "test", RetryAfter: time.Millisecond}
}

func rateOnce(late string) func(context.Context, *program, *store.Store) error {
	return func(ctx context.Context, p *program, s *store.Store) error {
		_, err := p.runRate(ctx, &rate.Job{Store: s, Log: p.log, Options: faultOptions(late)}, jobOptions{})
		return err
	}
}

func wholeMonths() (november, december time.Time) {
	return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
}

var faultJobs = []faultJob{
	{name: "rate", prepare: func(*billed) {}, run: rateOnce("hold"), exports: true},
	// Cuts at edges, adjustments, discounts, a minimum and a cap (shardPlan).
	{name: "rate with tiers", plan: shardPlan, prepare: func(*billed) {}, run: rateOnce("hold"), exports: true},
	// An hour in the middle of a month with tiers has other usage: what follows is rated again.
	{name: "carry-in changed", plan: shardPlan, prepare: func(b *billed) {
		b.rateWhole("hold")
		b.usage("beta", "2026-11-30 21:00:00", 1, "3600", "2099-01-01 00:00:00")
		b.usage("gamma", "2026-11-30 21:00:00", 2, "3600", "2026-11-28 00:00:00")
	}, run: rateOnce("reprocess"), exports: true},
	{name: "late usage", prepare: func(b *billed) {
		b.rateWhole("hold")
		b.usage("alpha", "2026-11-30 23:00:00", 2, "1800", "2099-01-01 00:00:00")
		b.usage("gamma", "2026-11-30 23:00:00", 2, "1800", "2026-11-28 00:00:00")
	}, run: rateOnce("reprocess"), exports: true},
	{name: "reprocess", prepare: func(b *billed) {
		b.rateWhole("hold")
		b.apply("2.00")
		job := (&program{log: b.log()}).reprocessJob(b.s, faultOptions("hold"))
		if _, err := job.Add(b.Context(), reprocess.Request{All: true, From: time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC), Reason: "price", Author: "test"}); err != nil {
			b.Fatal(err)
		}
	}, run: func(ctx context.Context, p *program, s *store.Store) error {
		return p.runSchedules(ctx, p.reprocessJob(s, faultOptions("hold")), jobOptions{})
	}, exports: true},
	{name: "reset", prepare: func(b *billed) { b.rateWhole("hold") }, run: func(ctx context.Context, p *program, s *store.Store) error {
		o := reset.Options{All: true, To: time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC), Period: time.Hour, Reason: "test", Author: "test", Now: faultOptions("").Now}
		return p.reset(ctx, &reset.Job{Store: s, Log: p.log, Options: o}, jobOptions{}, true, false)
	}},
	{name: "close", prepare: func(b *billed) { b.rateWhole("hold") }, run: func(ctx context.Context, p *program, s *store.Store) error {
		november, _ := wholeMonths()
		err := p.close(ctx, p.closingJob(s, faultOptions("hold")), jobOptions{}, ratebatch.Calendar{}.Named(november), "test", false)
		if err != nil && strings.Contains(err.Error(), "is closed already") {
			return nil // it was closed before the answer was lost
		}
		return err
	}},
	{name: "retention", prepare: func(b *billed) {
		b.rateWhole("hold")
		b.apply("2.00")
		b.must("reset", "--all", "--to", "2026-11-30", "--reason", "x", "--yes")
		b.rateWhole("hold")
		b.sql(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, qty, price) SELECT generateUUIDv7(), 'alpha', '2026-11-30 21:00:00', '2026-11-30 22:00:00', 'instance', 'x', 1, 99`)
	}, run: func(ctx context.Context, p *program, s *store.Store) error {
		o := retention.Options{Dead: time.Hour, Superseded: time.Hour, Runs: 24 * time.Hour, Unexported: true, Now: time.Now().Add(48 * time.Hour)}
		return p.retention(ctx, &retention.Job{Store: s, Log: p.log, Options: o}, jobOptions{}, false)
	}, exports: true},
}

func (b *billed) log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (b *billed) apply(cost string) {
	b.Helper()
	b.applyText(strings.Replace(faultPlan, "%s", cost, 1))
}

func (b *billed) applyText(body string) {
	b.Helper()
	v := planVersions()
	digest, currency, _, err := v.read("plan.yaml", []byte(body))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.s.AddVersion(b.Context(), v.kind, store.Version{Digest: digest, Body: body, Currency: currency, ValidFrom: time.Unix(0, 0)}); err != nil {
		b.Fatal(err)
	}
}

func (b *billed) rateWhole(late string) {
	b.Helper()
	if err := rateOnce(late)(b.Context(), b.program(), b.s); err != nil {
		b.Fatal(err)
	}
}

func (b *billed) program() *program {
	return &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, now: time.Now, log: b.log(), output: "json"}
}

// begin empties the database and prepares it for a job.
func (b *billed) begin(j faultJob) {
	b.Helper()
	b.empty("watermarks") // it is set from outside
	b.usage("alpha", "2026-11-30 20:00:00", 6, "3600", "2026-11-28 00:00:00")
	b.usage("beta", "2026-11-30 20:00:00", 6, "1800", "2026-11-28 00:00:00")
	v := metricVersions()
	digest, _, _, err := v.read("metrics.yaml", []byte(faultMetrics))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.s.AddVersion(b.Context(), v.kind, store.Version{Digest: digest, Body: faultMetrics, ValidFrom: time.Unix(0, 0)}); err != nil {
		b.Fatal(err)
	}
	if j.plan == "" {
		b.apply("1.00")
	} else {
		b.applyText(j.plan)
	}
	j.prepare(b)
}

// outcome is all that readers see: the lines that count, the months, and the
// findings; without anything that names a run or a time.
func (b *billed) outcome() string {
	b.Helper()
	return b.text(`SELECT arrayStringConcat(arraySort(groupArray(line)), '\n') FROM (
		SELECT concat(scope, ' ', toString(begin), ' ', metric, ' ', resource, ' ', toString(attributes), ' ', toString(qty), ' ', toString(price), ' ', rule, ' ', bucket, ' ', toString(part), ' ', toString(revision)) AS line FROM rated
		UNION ALL SELECT concat('commit ', scope, ' ', toString(begin), ' ', toString(kind), ' ', toString(revision), ' ', toString(lines), ' ', toString(line_digest), ' ', toString(total)) FROM current_commits
		UNION ALL SELECT concat('frozen ', m.scope, ' ', toString(m.begin), ' ', toString(m.total)) FROM month_commits AS m WHERE m.kind = 'commit' AND (m.month, m.closed) IN (SELECT month, closed FROM closed_months)
		UNION ALL SELECT concat('schedule ', toString(state)) FROM (SELECT argMax(state, changed_at) AS state FROM reprocess_schedules GROUP BY id))`)
}

// exported are the sums of the data files of both months.
func (b *billed) exported() string {
	b.Helper()
	dir := b.TempDir()
	target, err := bucketfile.New(dir)
	if err != nil {
		b.Fatal(err)
	}
	november, december := wholeMonths()
	for _, month := range []time.Time{november, december} {
		if _, err := exporter.Run(b.Context(), exporter.Input{Store: b.s, Bucket: target, Dataset: "lines", Month: month, Partial: true, Now: faultOptions("").Now, Workers: 1}); err != nil {
			b.Fatal(err)
		}
	}
	var sums []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".parquet") {
			return err
		}
		body, err := os.ReadFile(path)
		sum := sha256.Sum256(body)
		name, _ := filepath.Rel(dir, path)
		sums = append(sums, name+" "+hex.EncodeToString(sum[:]))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	slices.Sort(sums)
	return strings.Join(sums, "\n")
}

// Whatever breaks and wherever, after the next run everything readers see is
// what a run without trouble gives, to the last exported byte.
func TestEveryStatementMayBreak(t *testing.T) {
	free := places(t)
	var points atomic.Int64
	t.Cleanup(func() { t.Logf("%d fault points covered", points.Load()) }) // the jobs end after this function
	for _, j := range faultJobs {
		t.Run(j.name, func(t *testing.T) {
			t.Parallel()
			place := <-free
			defer func() { free <- place }()
			b := &billed{T: t, e: place.e, s: place.s, flags: place.flags}
			b.begin(j)
			prepared := b.keep(enginetest.Options(t))
			whole := fault.New(b.e.Conn(), 0, "")
			if err := j.run(t.Context(), b.program(), store.New(whole, b.e.Database())); err != nil {
				t.Fatal(err)
			}
			want, wantFiles := b.outcome(), ""
			if j.exports {
				wantFiles = b.exported()
			}
			n := 0
			for i, text := range whole.Statements() {
				all := os.Getenv(envFaults) == "all"
				if !all && !sampled(j, i, text) {
					continue // so that make test ends within a quarter of an hour
				}
				modes := faultModes(i, text, all)
				for _, mode := range modes {
					n++
					files := wantFiles
					if !fault.Writes(text) {
						files = "" // the lines are compared all the same
					}
					b.breaks(j, prepared, i+1, mode, text, want, files)
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			points.Add(int64(n))
			t.Logf("%s: %d statements, %d fault points", j.name, len(whole.Statements()), n)
		})
	}
}

// sampled says whether a run that does not break every statement breaks this one:
// of rate all, of plans with tiers what only they have, of the others, and of what takes
// longest, every sixth.
func sampled(j faultJob, i int, text string) bool {
	switch {
	case j.name == "rate":
		return true
	case j.plan != "":
		return (j.name == "rate with tiers" || i%6 == 0) && slices.ContainsFunc([]string{"INSERT INTO pass_carries", "INSERT INTO carry_looks"}, func(word string) bool { return strings.Contains(text, word) })
	default:
		return i%6 == 0
	}
}

// faultModes are the ways to break the ith statement of a job.
func faultModes(i int, text string, all bool) []fault.Mode {
	if !fault.Writes(text) {
		if all || i%24 == 0 {
			return fault.Reading
		}
		return nil
	}
	modes := fault.Writing
	if !all {
		modes = modes[i%len(modes) : i%len(modes)+1]
	}
	for _, into := range []string{"INSERT INTO period_commits", "INSERT INTO rated_lines", "INSERT INTO month_commits"} {
		if fault.Selects(text) && strings.Contains(text, into) {
			modes = append(slices.Clone(modes), fault.Partial...)
		}
	}
	return modes
}

func (b *billed) breaks(j faultJob, prepared kept, at int, mode fault.Mode, text, want, wantFiles string) {
	b.Helper()
	b.restore(prepared)
	broken := fault.New(b.e.Conn(), at, mode)
	errBroken := j.run(b.Context(), b.program(), store.New(broken, b.e.Database()))
	where := fmt.Sprintf("%s: statement %d %s (%.60s): %v", j.name, at, mode, fault.Words(text), errBroken)
	if !broken.Struck() {
		b.Logf("%s: the statement did not come by", where)
	}
	if code := ratebatch.ExitCode(errBroken); errBroken != nil && code != ratebatch.ExitTryAgain && code != ratebatch.ExitUnexpected {
		b.Errorf("%s: exit %d", where, code)
	}
	// The dead hold no lease: their process is gone (TestRateKilledBeforeItsCommits).
	b.sql("TRUNCATE TABLE leases")
	if err := j.run(b.Context(), b.program(), b.s); err != nil {
		b.Errorf("%s: the next run: %v", where, err)
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(b.outcome(), "\n")); diff != "" {
		b.Errorf("%s: (-clean +after the next run):\n%.3000s", where, diff)
	}
	if wantFiles != "" {
		if diff := cmp.Diff(wantFiles, b.exported()); diff != "" {
			b.Errorf("%s: exported files (-clean +after the next run):\n%s", where, diff)
		}
	}
}
