package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// tierMetrics are seven metrics of one table.
func tierMetrics() []byte {
	var b strings.Builder
	b.WriteString("metrics:\n")
	for i := range 7 {
		fmt.Fprintf(&b, "  m%d:\n    unit: h\n    table: instance_metrics\n    quantity: time\n    factor: %d\n    groupby: [user_id, flavor_name, vcpus, image_id]\n    metadata: [instance_name]\n", i+1, i+1)
	}
	return []byte(b.String())
}

// tierPlan prices seven metrics by flavor, or the first of them by tiers whose
// edges every scope crosses.
func tierPlan(tiers bool) []byte {
	var b strings.Builder
	b.WriteString("currency: EUR\nservices:\n")
	for i := range 7 {
		fmt.Fprintf(&b, "  - name: m%d\n", i+1)
		if tiers && i == 0 {
			b.WriteString("    tiers: [{free: \"100\", steps: [{up_to: \"300\", cost: \"0.05\"}, {up_to: \"1000.5\", cost: \"0.04\"}, {cost: \"0.03\"}]}]\n")
			continue
		}
		b.WriteString("    fields:\n      - name: flavor_name\n        mappings:\n")
		for f := range 20 {
			fmt.Fprintf(&b, "          - {value: flavor-%02d, cost: \"0.%02d\"}\n", f*2, f+1)
		}
	}
	return []byte(b.String())
}

// benchTiers measures what tiers on one of seven metrics cost: the pass beside a
// plain copy of the same usage, and a steady hour on top of a month beside the
// same hour without tiers.
func benchTiers(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	var steady [2][]time.Duration
	for i, tiers := range []bool{false, true} {
		err = benchDatabase(ctx, p, filepath.Join(dir, fmt.Sprint(i)), func(e *engine.Engine, s *store.Store) error {
			if err := bench.HourlyUsage(ctx, e.Conn(), size.scopes, size.instances, size.tierHours, 40); err != nil {
				return err
			}
			end := bench.UsageBegin.Add(time.Duration(size.tierHours) * time.Hour)
			if err := completeUntil(ctx, s, end); err != nil {
				return err
			}
			if tiers {
				m, err := measurePlan(ctx, p, s, size, tierPlan(true), tierMetrics(), time.Unix(0, 0), false)
				if err != nil {
					return err
				}
				// What came before each period is worked out by a statement of its own,
				// once; it is part of the pass.
				passes := make([]time.Duration, len(m.Rating))
				for i, d := range m.Rating {
					passes[i] = d + m.Carries
				}
				median, spread := bench.Median(passes)
				figures = append(figures, bench.Figure{Name: "tiers_vs_copy", Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(passes, m.Copy), Limit: 1.6, Runs: len(passes), Spread: spread})
			} else if err := addVersions(ctx, s, tierPlan(false), tierMetrics(), time.Unix(0, 0)); err != nil {
				return err
			}
			var err error
			steady[i], err = steadyHours(ctx, p, s, end, size.runs)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	median, spread := bench.Median(steady[1])
	return append(figures, bench.Figure{Name: "tiers_steady_hour", Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(steady[1], steady[0]), Limit: 2, Runs: size.runs, Spread: spread}), nil
}

// steadyHours rates all but the last hours, then each of them in a run of its
// own, as cron does.
func steadyHours(ctx context.Context, p *program, s *store.Store, end time.Time, runs int) ([]time.Duration, error) {
	job := &rate.Job{Store: s, Log: p.log, Options: benchOptions(end)}
	var out []time.Duration
	for hour := range runs + 2 { // the first is the month before, the second is not steady yet
		until := end.Add(time.Duration(hour-runs-1) * time.Hour)
		if err := completeUntil(ctx, s, until); err != nil {
			return nil, err
		}
		started := time.Now()
		result, err := p.runRate(ctx, job, jobOptions{})
		if err != nil {
			return nil, err
		}
		if result.Periods == 0 {
			return nil, fmt.Errorf("nothing was rated up to %s", until.Format(time.RFC3339))
		}
		if hour > 1 {
			out = append(out, time.Since(started))
		}
	}
	return out, nil
}
