package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// MetricPeriod is what a scope used of a metric in a period, and its price.
type MetricPeriod struct {
	Scope, Metric string
	Begin         time.Time
	Qty, Price    decimal.Decimal
}

// MetricPeriods lists them for periods that begin in [from, to).
func (s *Store) MetricPeriods(ctx context.Context, from, to time.Time) ([]MetricPeriod, error) {
	return Collect(ctx, s, "compare_lines", Params{"from": from, "to": to}, func(rows driver.Rows) (MetricPeriod, error) {
		var x MetricPeriod
		err := rows.Scan(&x.Scope, &x.Metric, &x.Begin, &x.Qty, &x.Price)
		return x, err
	})
}
