package web

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Sum is what a project's usage of one metric amounts to in a window.
type Sum struct {
	Scope, Metric, Currency string
	Qty, Price              decimal.Decimal
}

// Store is the store, once its tables are those of this version.
func (s *Server) Store(ctx context.Context) (*store.Store, error) { return s.ready(ctx) }

// Sums adds up a window, each day compared with its commits, buckets included:
// CloudKitty has frames of what no rule priced.
func (s *Server) Sums(ctx context.Context, st *store.Store, from, to time.Time) ([]Sum, error) {
	b, err := readBilling(ctx, st)
	if err != nil {
		return nil, err
	}
	list, err := s.costs.read(ctx, st, b.Calendar, from, to)
	if err != nil {
		return nil, err
	}
	type key struct{ scope, metric, currency string }
	at := map[key]int{}
	var out []Sum
	for _, d := range list {
		for _, x := range d.cells {
			k := key{x.Scope, x.Metric, x.Currency}
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, Sum{Scope: x.Scope, Metric: x.Metric, Currency: x.Currency})
			}
			out[i].Qty, out[i].Price = out[i].Qty.Add(x.Qty), out[i].Price.Add(x.Price)
		}
	}
	return out, nil
}

// Windows cuts a window into parts that can be read at once, with the lines that
// are shown of each.
func Windows(ctx context.Context, st *store.Store, from, to time.Time) ([]store.CostWindow, error) {
	b, err := readBilling(ctx, st)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, st)
	if err != nil {
		return nil, err
	}
	var out []store.CostWindow
	for _, p := range parts(b.Calendar, closed, from, to) {
		out = append(out, costWindow(b.Calendar, closed, p.Begin, p.End))
	}
	return out, nil
}

// Agree compares the lines of windows with their commits, those of all scopes if
// scope is empty. Whoever reads lines and not kept sums asks it each time.
func Agree(ctx context.Context, st *store.Store, windows []store.CostWindow, scope string) error {
	for _, w := range windows {
		if err := agrees(ctx, st, w, scope); err != nil {
			return err
		}
	}
	return nil
}

// Currencies are the currencies that lines of windows are priced in, of the
// scopes that of names.
func Currencies(ctx context.Context, st *store.Store, windows []store.CostWindow, of func(scope string) bool) ([]string, error) {
	found := map[string]bool{}
	for _, w := range windows {
		commits, err := st.CostCommits(ctx, w)
		if err != nil {
			return nil, err
		}
		for _, x := range commits {
			if x.Lines > 0 && of(x.Scope) {
				found[x.Currency] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Month is the billing month at a moment, and the length of a period.
func Month(ctx context.Context, st *store.Store, at time.Time) (ratebatch.Month, time.Duration, error) {
	b, err := readBilling(ctx, st)
	return b.Calendar.MonthAt(at), b.Period, err
}

// Zone is the name of the billing time zone.
func Zone(ctx context.Context, st *store.Store) (string, error) {
	b, err := readBilling(ctx, st)
	return b.Calendar.Zone().String(), err
}

// PublicError is what may be said of an error to someone, and the status to say
// it with.
func PublicError(ctx context.Context, err error, id Identity) (status int, message string) {
	e := asAPIError(ctx, err).to(id)
	if e.hint != "" {
		return e.status, e.message + ": " + e.hint
	}
	return e.status, e.message
}
