package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// The other steps compare sums and figures, which ClickHouse made itself. This
// one prices lines again, one by one, with the exact evaluator in Go, from the
// usage they stand for and by the plan and metrics that their commits name: a
// price that ClickHouse folded, multiplied or rounded wrongly shows here. It is
// a spot check, since a pass is fast for not doing this; every run draws other
// lines. Of a line of tiers, whose price depends on the month before it, the whole
// period is priced again (tiers.go).

// terms prices lines by the versions they were rated by.
type terms struct {
	plans, sets map[string]string // digest -> text
	evaluators  map[[2]string]*hashmap.Evaluator
	parsed      map[string]*metric.Set
}

func (j *Job) terms(ctx context.Context) (*terms, error) {
	t := &terms{plans: map[string]string{}, sets: map[string]string{}, evaluators: map[[2]string]*hashmap.Evaluator{}, parsed: map[string]*metric.Set{}}
	plans, err := j.Store.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	for _, v := range plans {
		t.plans[v.Digest] = v.Body
	}
	sets, err := j.Store.Versions(ctx, store.MetricVersions)
	if err != nil {
		return nil, err
	}
	for _, body := range append(bodies(sets), string(metric.Default())) {
		set, err := metric.Parse("metric set", []byte(body))
		if err != nil {
			return nil, err
		}
		t.parsed[set.Digest()] = set
	}
	return t, nil
}

func bodies(versions []store.Version) []string {
	var out []string
	for _, v := range versions {
		out = append(out, v.Body)
	}
	return out
}

// evaluator gives what prices a line, and its metric; false if the version it
// was rated by is not stored.
func (t *terms) evaluator(l *store.DrawnLine) (*hashmap.Evaluator, *metric.Metric, bool, error) {
	set, ok := t.parsed[l.Metrics]
	if !ok {
		return nil, nil, false, nil
	}
	m, ok := set.Get(l.Metric)
	if !ok {
		return nil, nil, false, nil
	}
	key := [2]string{l.Plan, l.Metrics}
	if e := t.evaluators[key]; e != nil {
		return e, m, true, nil
	}
	text, ok := t.plans[l.Plan]
	if !ok {
		return nil, nil, false, nil
	}
	parsed, err := plan.Parse("rate plan "+l.Plan, []byte(text))
	if err != nil {
		return nil, nil, false, err
	}
	units := map[string]string{}
	for _, m := range set.Metrics {
		units[m.Name] = m.Unit
	}
	e, err := hashmap.Compile(parsed, hashmap.Options{Units: units})
	t.evaluators[key] = e
	return e, m, err == nil, err
}

// reprice prices some lines again and compares price and bucket.
func (j *Job) reprice(ctx context.Context, r *Report, w store.ExportWindow) error {
	const step, what = "usage → prices", "lines drawn, and those of the same price again"
	if j.Reprice == 0 {
		return nil
	}
	seed := j.Seed
	if seed == 0 {
		seed = uint64(w.AsOf.UnixMicro())
	}
	lines, err := j.Store.DrawLines(ctx, w, seed, j.Reprice)
	if err != nil {
		return err
	}
	t, err := j.terms(ctx)
	if err != nil {
		return err
	}
	var drawn, same, unknown uint64
	var tiered []*store.DrawnLine
	note := ""
	for i := range lines {
		l := &lines[i]
		e, m, ok, err := t.evaluator(l)
		if err != nil {
			return err
		}
		if !ok {
			unknown++
			continue
		}
		if e.HasTiers(l.Metric) {
			tiered = append(tiered, l)
			continue
		}
		drawn++
		now := e.Price(&hashmap.Point{Metric: l.Metric, Scope: l.Scope, Unit: l.Unit, Qty: l.Qty, Attributes: m.WithImplied(l.Attributes, l.Scope, l.Begin), Begin: l.Begin})
		if now.Price.Equal(l.Price) && string(now.Bucket) == l.Bucket {
			same++
		} else if note == "" {
			id := exporter.IDOf(&l.FoundLine)
			note = fmt.Sprintf("%s of scope %s at %s was rated %s %s and is %s %s: 'ratebatch explain %s --scope %q --month %s' (drawn with seed %d)", l.Metric, l.Scope, l.Begin.Format(time.RFC3339),
				l.Price, bucketName(l.Bucket), now.Price, bucketName(string(now.Bucket)), id, l.Scope, r.Month, seed)
		}
	}
	if drawn > 0 {
		compare(r, step, what, drawn, same, note)
	}
	if err := j.tiers(ctx, r, w, t, tiered, seed); err != nil {
		return err
	}
	if unknown > 0 {
		r.unknown(step, fmt.Sprintf("%d more lines drawn", unknown), "the plan or metrics they were rated by are not stored")
	}
	return nil
}

func bucketName(bucket string) string {
	if bucket == "" {
		return "priced"
	}
	return bucket
}
