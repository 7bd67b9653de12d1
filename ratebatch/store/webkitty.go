package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// KittyFilter says which lines CloudKitty's API asks for.
type KittyFilter struct {
	CostWindow
	Scope        string   // empty: any
	Zone         string   // whose days, weeks, months and years are meant
	Keys, Values []string // pairs; several of one key are an OR
}

func (f KittyFilter) params() Params {
	p := f.CostWindow.params()
	p["scope"], p["zone"], p["filter_keys"], p["filter_values"] = f.Scope, f.Zone, append([]string{}, f.Keys...), append([]string{}, f.Values...)
	return p
}

// KittySum is a row of CloudKitty's summary.
type KittySum struct {
	Labels      []string // values of the groups
	First, Last time.Time
	Qty, Price  decimal.Decimal
}

// KittySummary sums up lines by attributes; type, project_id, id, time and the
// names of parts of the year are attributes too.
func (s *Store) KittySummary(ctx context.Context, f KittyFilter, groups []string) ([]KittySum, error) {
	p := f.params()
	p["groups"] = append([]string{}, groups...)
	return Collect(ctx, s, "web_kitty_summary", p, func(rows driver.Rows) (KittySum, error) {
		var x KittySum
		err := rows.Scan(&x.Labels, &x.First, &x.Last, &x.Qty, &x.Price)
		x.First, x.Last = x.First.UTC(), x.Last.UTC()
		return x, err
	})
}

// KittyFrame is a rated line as a data point.
type KittyFrame struct {
	Begin, End              time.Time
	Scope, Metric, Resource string
	Attributes              map[string]string
	Unit                    string
	Qty, Price              decimal.Decimal
}

// KittyFrames lists lines by period, and how many there are.
func (s *Store) KittyFrames(ctx context.Context, f KittyFilter, limit, offset int) ([]KittyFrame, uint64, error) {
	p := f.params()
	p["limit"], p["skip"] = limit, offset
	var total uint64
	list, err := Collect(ctx, s, "web_kitty_frames", p, func(rows driver.Rows) (KittyFrame, error) {
		var x KittyFrame
		err := rows.Scan(&x.Begin, &x.End, &x.Scope, &x.Metric, &x.Resource, &x.Attributes, &x.Unit, &x.Qty, &x.Price, &total)
		x.Begin, x.End = x.Begin.UTC(), x.End.UTC()
		return x, err
	})
	return list, total, err
}
