package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// TieredLines lists all lines that count of a metric in one period of a scope,
// its adjustments too; of the window the moment and the close count.
func (s *Store) TieredLines(ctx context.Context, w ExportWindow, scope string, begin time.Time, metric string) ([]FoundLine, error) {
	p := w.params()
	delete(p, "from")
	delete(p, "to")
	p["scope"], p["begin"], p["metric"] = scope, begin, metric
	return Collect(ctx, s, "tiered_lines", p, func(rows driver.Rows) (FoundLine, error) {
		var l FoundLine
		err := rows.Scan(&l.Region, &l.Scope, &l.Begin, &l.End, &l.Metric, &l.Resource, &l.Attributes, &l.Unit, &l.Qty, &l.Price, &l.Rule, &l.Bucket, &l.Part, &l.Revision, &l.RunID)
		l.Begin, l.End = l.Begin.UTC(), l.End.UTC()
		return l, err
	})
}

// Account names an account of tiered prices to AccountLines.
type Account struct {
	Scope, Metric string
	Per, Value    string    // scope, resource or an attribute's name, and which of them
	Before        time.Time // begin of the period it is looked at before
	OutOfRange    string    // reason of lines that were counted and could not be priced
}

// AccountUse is what the lines of one period before it drew.
type AccountUse struct {
	Begin         time.Time
	Plan, Metrics string          // digests
	Named         bool            // the lines say that they are the account's; else it follows from scope and begin
	Used          decimal.Decimal // sum of the quantities above 0
}

// AccountLines adds up the lines of an account in the month before a period; the
// window begins with the month.
func (s *Store) AccountLines(ctx context.Context, w ExportWindow, a Account) ([]AccountUse, error) {
	p := w.params()
	delete(p, "to")
	p["scope"], p["metric"], p["begin"], p["per"], p["value"], p["out_of_range"] = a.Scope, a.Metric, a.Before, a.Per, a.Value, a.OutOfRange
	return Collect(ctx, s, "account_lines", p, func(rows driver.Rows) (AccountUse, error) {
		var u AccountUse
		err := rows.Scan(&u.Begin, &u.Plan, &u.Metrics, &u.Named, &u.Used)
		u.Begin = u.Begin.UTC()
		return u, err
	})
}
