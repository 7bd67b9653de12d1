package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// benchCatchup has one rate, in a process of its own, catch up with a month of
// 5,000 instances in 10,000 scopes (full size): 7.2 million commits and 25
// million lines. Half of the scopes have usage in their first hour only; all
// their periods are committed.
func benchCatchup(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	scopes := size.scopes * 20
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		if err := bench.HourlyUsage(ctx, e.Conn(), scopes/2, 1, size.hours, 40); err != nil {
			return err
		}
		if err := idleScopes(ctx, s, scopes/2, scopes); err != nil {
			return err
		}
		if err := keepRawAsOperatorsDo(ctx, s); err != nil {
			return err
		}
		until := bench.UsageBegin.Add(time.Duration(size.hours) * time.Hour)
		if err := completeUntil(ctx, s, until); err != nil {
			return err
		}
		if err := addVersions(ctx, s, catchupPlan(), catchupMetrics(), time.Unix(0, 0)); err != nil {
			return err
		}
		result, err := rateItself(ctx, p, dir, until)
		if err != nil {
			return err
		}
		if want := uint64(scopes * size.hours); result.Periods != want {
			return fmt.Errorf("%d periods were committed, want %d", result.Periods, want)
		}
		p.log.DebugContext(ctx, "catch-up", "periods", result.Periods, "lines", result.Lines, "seconds", result.Seconds)
		figures = []bench.Figure{
			{Name: "catchup_lines_per_second", Value: float64(result.Lines) / result.Seconds, Unit: "lines/s", Runs: 1},
			{Name: "catchup_commits_per_second", Value: float64(result.Periods) / result.Seconds, Unit: "commits/s", Runs: 1},
			{Name: "catchup_job_peak", Value: result.jobPeak, Unit: "MiB", Limit: 300, Runs: 1},
			{Name: "catchup_engine_peak", Value: result.enginePeak, Unit: "MiB", Limit: 3072, Runs: 1},
		}
		return nil
	})
	return figures, err
}

// idleScopes gives the scopes from first to last one instance that is gone
// after the first hour.
func idleScopes(ctx context.Context, s *store.Store, first, last int) error {
	return s.Conn().Exec(store.WithParams(ctx, store.Params{"first": first, "count": last - first, "begin": bench.UsageBegin}), `
INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, samples, covered_seconds, refreshed_at)
SELECT {begin:DateTime('UTC')}, 'RegionOne', reinterpret(sipHash128(number, 'idle'), 'UUID'), concat('project-', leftPad(toString({first:UInt64} + number), 5, '0')), 'flavor-00', 60, 3600, {begin:DateTime('UTC')}
FROM numbers({count:UInt64})`)
}

// catchupMetrics are seven metrics of an instance.
func catchupMetrics() []byte {
	var b strings.Builder
	b.WriteString("metrics:\n")
	for i := range 7 {
		fmt.Fprintf(&b, "  metric%d: {unit: instance, table: instance_metrics, quantity: time, factor: %d, groupby: [flavor_name]}\n", i, i+1)
	}
	return []byte(b.String())
}

func catchupPlan() []byte {
	var b strings.Builder
	b.WriteString("currency: EUR\nservices:\n")
	for i := range 7 {
		fmt.Fprintf(&b, "  - name: metric%d\n    mappings:\n      - {type: rate, cost: \"0.0%d\"}\n", i, i+1)
	}
	return []byte(b.String())
}
