package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// benchRules measures large plans: 100,000 mapping values of which every
// instance uses one of its own, and 10,000 scopes with ten rules of their own
// each. (The quick size has a hundredth of both.) The usage is at most two
// days of it, about what rate puts into one pass: one pass is measured, and its memory.
func benchRules(ctx context.Context, p *program, dir string, size benchSize) ([]bench.Figure, error) {
	values, scopes := 100_000, 10_000
	if size.hours < 48 {
		values, scopes = 1000, 100
	}
	hours := min(size.hours, 48)
	instances := size.scopes * size.instances
	var figures []bench.Figure
	for _, x := range []struct {
		name                       string
		scopes, instances, flavors int
		plan                       []byte
	}{
		{"rate_100k_values_vs_copy", size.scopes, size.instances, values, valuesPlan(values)},
		{"rate_10k_scopes_vs_copy", scopes, max(1, instances/scopes), 40, scopesPlan(scopes)},
	} {
		inside := filepath.Join(dir, x.name)
		err := benchDatabase(ctx, p, inside, func(e *engine.Engine, s *store.Store) error {
			if err := bench.HourlyUsage(ctx, e.Conn(), x.scopes, x.instances, hours, x.flavors); err != nil {
				return err
			}
			until := bench.UsageBegin.Add(time.Duration(hours) * time.Hour)
			if err := completeUntil(ctx, s, until); err != nil {
				return err
			}
			m, err := measurePlan(ctx, p, s, size, x.plan, benchMetrics("1"), time.Unix(0, 0), false)
			if err != nil {
				return err
			}
			median, spread := bench.Median(m.Rating)
			// Twice the limit of rate_vs_copy.
			figures = append(figures, bench.Figure{Name: x.name, Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(m.Rating, m.Copy), Limit: 2.6, Runs: len(m.Rating), Spread: spread})
			peak, err := enginePeak(filepath.Join(inside, "data"))
			if err != nil {
				return err
			}
			figures = append(figures, bench.Figure{Name: strings.TrimSuffix(x.name, "_vs_copy") + "_engine_peak", Value: peak, Unit: "MiB", Limit: 2048, Runs: 1})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return figures, nil
}

func valuesPlan(values int) []byte {
	var b strings.Builder
	b.WriteString("currency: EUR\nservices:\n  - name: instance\n    fields:\n      - name: flavor_name\n        mappings:\n")
	for i := range values {
		fmt.Fprintf(&b, "          - {value: flavor-%02d, type: flat, cost: \"0.%05d\"}\n", i, i%99_999+1)
	}
	return []byte(b.String())
}

func scopesPlan(scopes int) []byte {
	var b strings.Builder
	b.WriteString("currency: EUR\nservices:\n  - name: instance\n    mappings:\n      - {type: flat, cost: \"0.01\"}\n    fields:\n      - name: flavor_name\n        mappings:\n")
	for s := range scopes {
		for f := range 10 {
			fmt.Fprintf(&b, "          - {value: flavor-%02d, scope: project-%05d, type: flat, cost: \"0.%05d\"}\n", f*4, s, (s*10+f)%99_999+1)
		}
	}
	return []byte(b.String())
}
