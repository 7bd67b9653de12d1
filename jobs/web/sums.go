package web

import (
	"context"
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
	list, err := s.costs.read(ctx, st, b.calendar, from, to)
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

// Windows cuts a window into parts of one month each, with the lines that are
// shown of it.
func Windows(ctx context.Context, st *store.Store, from, to time.Time) ([]store.CostWindow, error) {
	b, err := readBilling(ctx, st)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, st)
	if err != nil {
		return nil, err
	}
	if len(closed) == 0 {
		return []store.CostWindow{costWindow(b.calendar, closed, from, to)}, nil
	}
	var out []store.CostWindow
	for _, m := range months(b.calendar, from, to) {
		out = append(out, costWindow(b.calendar, closed, m.Begin, m.End))
	}
	return out, nil
}

// Month is the billing month at a moment, and the length of a period.
func Month(ctx context.Context, st *store.Store, at time.Time) (ratebatch.Month, time.Duration, error) {
	b, err := readBilling(ctx, st)
	return b.calendar.MonthAt(at), b.period, err
}

// PublicError is what may be said of an error, and the status to say it with.
func PublicError(ctx context.Context, err error) (status int, message string) {
	e := asAPIError(ctx, err)
	if e.hint != "" {
		return e.status, e.message + ": " + e.hint
	}
	return e.status, e.message
}
