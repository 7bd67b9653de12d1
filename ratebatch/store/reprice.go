package store

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// DrawnLine is a line that counts, with what it was rated by.
type DrawnLine struct {
	FoundLine
	Plan, Metrics string // digests
}

// DrawLines draws up to n lines of a window that count. The same seed draws the
// same ones.
func (s *Store) DrawLines(ctx context.Context, w ExportWindow, seed, n uint64) ([]DrawnLine, error) {
	p := w.params()
	p["seed"], p["n"] = seed, n
	return Collect(ctx, s, "reprice_lines", p, func(rows driver.Rows) (DrawnLine, error) {
		var l DrawnLine
		err := rows.Scan(&l.Region, &l.Scope, &l.Begin, &l.End, &l.Metric, &l.Resource, &l.Attributes, &l.Unit, &l.Qty, &l.Price, &l.Rule, &l.Bucket, &l.Part, &l.Revision, &l.RunID,
			&l.Plan, &l.Metrics)
		l.Begin, l.End = l.Begin.UTC(), l.End.UTC()
		return l, err
	})
}
