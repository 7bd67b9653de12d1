package rate

import (
	"context"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// BeforeFirst lists the usage in [from, to) that lies before its scope's first
// period. Nobody is billed for it; it has this name and size so that it is not
// missing without a word. Usually there is none: then two narrow reads are all
// it costs.
func (j *Job) BeforeFirst(ctx context.Context, from, to time.Time) ([]store.BeforeFirst, error) {
	t, err := j.readMetrics(ctx)
	if err != nil {
		return nil, err
	}
	_, since, err := j.monthsInForce(ctx)
	if err != nil {
		return nil, err
	}
	everything := beginning
	tables := t.tables(time.Hour)
	usages, err := j.Store.ScopeUsages(ctx, tables, everything)
	if err != nil {
		return nil, err
	}
	open := usages
	if since.After(everything) {
		if open, err = j.Store.ScopeUsages(ctx, tables, since); err != nil {
			return nil, err
		}
	}
	commits, err := j.Store.CommitScopes(ctx, everything)
	if err != nil {
		return nil, err
	}
	first := firstPeriods(open, commits, since, j.Options)
	var windows []store.DueWindow
	begins := map[string]time.Time{}
	for scope, begin := range earliest(usages) {
		until, ok := first[scope]
		if !ok {
			until = since // all of its usage lies in closed months
		}
		w := store.DueWindow{Scope: scope, First: ratebatch.Later(ratebatch.PeriodAt(begin, j.Options.Period).Begin, from), Until: ratebatch.Earlier(until, to)}
		if w.First.Before(w.Until) {
			windows = append(windows, w)
			begins[scope] = until
		}
	}
	var out []store.BeforeFirst
	if len(windows) == 0 {
		return out, nil
	}
	oldest, newest := windows[0].First, windows[0].Until
	for _, w := range windows {
		oldest, newest = ratebatch.Earlier(oldest, w.First), ratebatch.Later(newest, w.Until)
	}
	for _, span := range store.PeriodSpans(t.metrics, oldest, newest, j.Options.Period) {
		if span.Version == nil {
			continue
		}
		usage, err := usageOfAll(t.sets[span.Version.Digest], metric.UsageOptions{Period: j.Options.Period, Attributes: true})
		if err != nil {
			return nil, err
		}
		found, err := j.Store.BeforeFirst(ctx, windows, usage, j.Options.Period, span.Begin, span.End)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			x.First = begins[x.Scope]
			out = append(out, x)
		}
	}
	return out, nil
}

// earliest is the first usage of each scope, in whatever region.
func earliest(usages []store.ScopeUsage) map[string]time.Time {
	out := map[string]time.Time{}
	for _, u := range usages {
		if t, ok := out[u.Scope]; !ok || u.FirstUsage.Before(t) {
			out[u.Scope] = u.FirstUsage
		}
	}
	return out
}

// firstPeriods says where the first period of each scope with open usage
// begins, or began when it was rated.
func firstPeriods(open []store.ScopeUsage, commits []store.CommitScope, since time.Time, o Options) map[string]time.Time {
	out := map[string]time.Time{}
	for scope, usage := range earliest(open) {
		out[scope] = ratebatch.Later(o.First.begin(usage, o), since)
	}
	for _, c := range commits {
		// A date is the first period of a scope that was rated before it, too: what
		// has no commit until then is due for nobody, and is told.
		if first, ok := out[c.Scope]; !ok || c.First.Before(first) && o.First.Kind != "date" {
			out[c.Scope] = c.First
		}
	}
	return out
}
