package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// benchState measures what it costs to know what is due, to print the status
// and to read a month through its commits: 10,000 scopes, at full size over 720
// periods, 7.2 million commits and 14.4 million lines.
func benchState(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	e, err := engine.Open(ctx, engine.Options{DataDir: dir, Database: "bench", Create: true, Log: p.log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := store.New(e.Conn(), e.Database())
	keep := store.Retention{Raw: demoRetention, FiveMin: demoRetention, Hourly: demoRetention}
	if _, err := s.Migrate(ctx, store.MigrateOptions{Retention: keep}); err != nil {
		return nil, err
	}
	scopes := size.scopes * 20
	if err := fillState(ctx, s, scopes, size.hours); err != nil {
		return nil, err
	}
	if err := addVersion(ctx, s, planVersions(), benchPlan(func(i int) string { return fmt.Sprintf("0.%02d", i+1) }), time.Unix(0, 0)); err != nil {
		return nil, err
	}
	o := benchOptions(bench.UsageBegin.Add(time.Duration(size.hours) * time.Hour))
	job := &rate.Job{Store: s, Log: p.log, Options: o}
	measure := func(name string, limit float64, do func() error) error {
		var times []time.Duration
		for range size.runs {
			started := time.Now()
			if err := do(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			times = append(times, time.Since(started))
		}
		median, spread := bench.Median(times)
		figures = append(figures, bench.Figure{Name: name, Value: median.Seconds(), Unit: "s", Limit: limit, Runs: size.runs, Spread: spread})
		return nil
	}
	plan := func() error {
		x, err := job.Plan(ctx)
		if err == nil && x.Periods != 0 {
			err = fmt.Errorf("%d periods are due of a state that is complete", x.Periods)
		}
		return err
	}
	if err := measure("due", 2, plan); err != nil {
		return nil, err
	}
	if _, err := p.runRate(ctx, job, jobOptions{}); err != nil { // it leaves the hint that months are complete
		return nil, err
	}
	if err := measure("due_with_hint", 2, plan); err != nil {
		return nil, err
	}
	if err := measure("status", 2, func() error { _, err := readStatus(ctx, p, s, o); return err }); err != nil {
		return nil, err
	}
	limit := 0.0
	if size.hours >= 720 {
		limit = 3
	}
	some, err := benchReading(ctx, s, size.runs, limit)
	return append(figures, some...), err
}

// benchReading compares a month's total through its commits with the plain sum
// over the lines, run by run.
//
// The ratio is promised for the full size: of half a million lines the plain sum
// takes ten milliseconds, and what reading through commits costs before the first
// line, its text and the list of months, is more than that.
func benchReading(ctx context.Context, s *store.Store, runs int, limit float64) ([]bench.Figure, error) {
	var plain, rated []time.Duration
	for range runs {
		var sums [2]string
		for i, table := range []string{"rated_lines", "rated"} {
			started := time.Now()
			if err := s.Conn().QueryRow(ctx, "SELECT toString(sum(price)) FROM "+table).Scan(&sums[i]); err != nil {
				return nil, err
			}
			if took := time.Since(started); i == 0 {
				plain = append(plain, took)
			} else {
				rated = append(rated, took)
			}
		}
		if sums[0] != sums[1] {
			return nil, fmt.Errorf("the lines sum to %s, those that count to %s", sums[0], sums[1])
		}
	}
	median, spread := bench.Median(rated)
	return []bench.Figure{{Name: "rated_vs_lines", Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(rated, plain), Limit: limit, Runs: runs, Spread: spread}}, nil
}

// fillState writes one commit a scope and hour, two lines each, and an hour of
// usage per scope, from which on its periods count.
func fillState(ctx context.Context, s *store.Store, scopes, hours int) error {
	ctx = store.WithParams(ctx, store.Params{"scopes": scopes, "hours": hours, "begin": bench.UsageBegin})
	for _, text := range []string{`
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint, usage_read_at, lines, line_digest, total)
SELECT concat('project-', leftPad(toString(intDiv(number, {hours:UInt32})), 5, '0')) AS scope, {begin:DateTime('UTC')} + 3600 * (number % {hours:UInt32}) AS begin, begin + 3600, 1, 'rated',
       reinterpret(toUInt128(intDiv(number % {hours:UInt32}, 96) + 1), 'UUID') AS run_id, 'p', 'm', 'EUR', 2, number, now64(6), 2, number, 1
FROM numbers({scopes:UInt64} * {hours:UInt64})`, `
INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, part, revision)
SELECT reinterpret(toUInt128(intDiv(intDiv(number, 2) % {hours:UInt32}, 96) + 1), 'UUID'), 'RegionOne', concat('project-', leftPad(toString(intDiv(number, 2 * {hours:UInt32})), 5, '0')),
       {begin:DateTime('UTC')} + 3600 * (intDiv(number, 2) % {hours:UInt32}) AS begin, begin + 3600, 'instance', toString(number % 2), map('flavor_name', 'm1'), 'instance', 1, toDecimal128(0.5, 18), 'r', 0, 1
FROM numbers(2 * {scopes:UInt64} * {hours:UInt64})`, `
INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, samples, covered_seconds, refreshed_at)
SELECT {begin:DateTime('UTC')}, 'RegionOne', reinterpret(sipHash128(number), 'UUID'), concat('project-', leftPad(toString(number), 5, '0')), 'm1', 60, 3600, {begin:DateTime('UTC')}
FROM numbers({scopes:UInt64})`,
	} {
		if err := s.Conn().Exec(ctx, text); err != nil {
			return err
		}
	}
	return completeUntil(ctx, s, bench.UsageBegin.Add(time.Duration(hours)*time.Hour))
}
