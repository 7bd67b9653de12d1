package rate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// terms are the versions that the periods of a run are rated by.
type terms struct {
	plans   []store.Version
	metrics []store.Version
	sets    map[string]*metric.Set // by digest
}

// withPlan cuts the windows to the periods for which a rate plan is in force;
// without one a period waits and says so, and is never rated as free.
func withPlan(windows []store.DueWindow, waiting []Waiting, plans []store.Version, period time.Duration) ([]store.DueWindow, []Waiting) {
	var out []store.DueWindow
	lacking := 0
	for _, w := range windows {
		lacks := false
		for _, span := range store.PeriodSpans(plans, w.First, w.Until, period) {
			if span.Version == nil {
				lacks = true
				continue
			}
			if n := len(out); n > 0 && out[n-1].Scope == w.Scope && out[n-1].Until.Equal(span.Begin) {
				out[n-1].Until = span.End
				continue
			}
			out = append(out, store.DueWindow{Scope: w.Scope, First: span.Begin, Until: span.End, Again: w.Again})
		}
		if lacks {
			lacking++
		}
	}
	if lacking > 0 {
		waiting = append(waiting, Waiting{Scopes: lacking, Reason: "no rate plan is in force for some periods; apply one with 'ratebatch plan apply --from …'"})
	}
	return out, waiting
}

func (j *Job) readTerms(ctx context.Context) (terms, error) {
	var t terms
	var err error
	if t.plans, err = j.Store.Versions(ctx, store.PlanVersions); err != nil {
		return t, err
	}
	if len(t.plans) == 0 {
		return t, &ratebatch.ConfigError{Err: errors.New("no rate plan was applied"), Hint: "write one and run 'ratebatch plan apply FILE'"}
	}
	of, err := j.readMetrics(ctx)
	t.metrics, t.sets = of.metrics, of.sets
	return t, err
}

// readMetrics reads the metric sets.
func (j *Job) readMetrics(ctx context.Context) (terms, error) {
	var t terms
	var err error
	if t.metrics, err = j.Store.Versions(ctx, store.MetricVersions); err != nil {
		return t, err
	}
	if len(t.metrics) == 0 {
		// Without a metric set of the operator's the built-in one counts.
		t.metrics = []store.Version{{Body: string(metric.Default()), ValidTo: store.OpenEnd}}
	}
	t.sets = map[string]*metric.Set{}
	for i := range t.metrics {
		v := &t.metrics[i]
		set, err := metric.Parse(fmt.Sprintf("metric set %d", v.Version), []byte(v.Body))
		if err != nil {
			return t, err
		}
		v.Digest = set.Digest()
		t.sets[v.Digest] = set
	}
	return t, nil
}

// checkMetrics has the server resolve every table and column that the metric
// sets name, so that a mistake is said before anything is written.
func (j *Job) checkMetrics(ctx context.Context, t terms) error {
	var errs []error
	for _, set := range t.sets {
		for _, m := range set.Metrics {
			text, err := m.UsageSQL(metric.UsageOptions{Period: j.Options.Period, Attributes: true})
			if err != nil {
				return err
			}
			if err := j.Store.CheckUsage(ctx, m.Name, text); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// edges are the begins of periods in (from, to) at which another metric set takes
// over.
func (t terms) edges(from, to time.Time, period time.Duration) []time.Time {
	var out []time.Time
	for _, span := range store.PeriodSpans(t.metrics, from, to, period)[1:] {
		out = append(out, span.Begin)
	}
	return out
}
