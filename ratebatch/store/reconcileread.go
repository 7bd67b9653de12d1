package store

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// SampleCount is how many distinct samples of a kind end in a window, in one
// place: raw, 5min, hourly, ingested (the counts that outlive raw samples) or
// late.
type SampleCount struct {
	Kind, Place string
	Samples     uint64
}

// ReconcileSamples counts distinct samples by kind and place.
func (s *Store) ReconcileSamples(ctx context.Context, from, to time.Time) ([]SampleCount, error) {
	return Collect(ctx, s, "reconcile_samples", Params{"from": from, "to": to}, func(rows driver.Rows) (SampleCount, error) {
		var c SampleCount
		err := rows.Scan(&c.Kind, &c.Place, &c.Samples)
		return c, err
	})
}

// ReconcileBytes gives the received and sent bytes of a window per place.
func (s *Store) ReconcileBytes(ctx context.Context, from, to time.Time) (map[string][2]*big.Int, error) {
	out := map[string][2]*big.Int{}
	_, err := Collect(ctx, s, "reconcile_bytes", Params{"from": from, "to": to}, func(rows driver.Rows) (struct{}, error) {
		var place string
		var rx, tx big.Int
		err := rows.Scan(&place, &rx, &tx)
		out[place] = [2]*big.Int{&rx, &tx}
		return struct{}{}, err
	})
	return out, err
}

// UsageTally is usage as it is now beside what was committed of it.
type UsageTally struct {
	Rows, InCommits, WithoutCommit, Committed uint64
	Quantity                                  decimal.Decimal // of usage in commits
	Changed, Lost, Periods                    uint64
}

// ReconcileUsage compares usage, given as a SELECT by package metric, with the
// commits of a window.
func (s *Store) ReconcileUsage(ctx context.Context, w ExportWindow, usage string) (UsageTally, error) {
	var t UsageTally
	rows, err := s.conn.Query(WithParams(ctx, w.params()), strings.ReplaceAll(SQL("reconcile_usage"), "/* USAGE */", usage))
	if err != nil {
		return t, fmt.Errorf("reconcile_usage: %w", describe(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&t.Rows, &t.InCommits, &t.WithoutCommit, &t.Committed, &t.Quantity, &t.Changed, &t.Lost, &t.Periods); err != nil {
			return t, fmt.Errorf("reconcile_usage: %w", err)
		}
	}
	return t, describe(rows.Err())
}

// LineTally is the commits of a window beside the lines that count.
type LineTally struct {
	Periods                    uint64
	UsageRows, UsageRowsLines  uint64
	Lines, LinesRead           uint64
	Total, TotalRead, Quantity decimal.Decimal
	Differ                     uint64 // periods
	Unpriced, Rejected         uint64
	Skipped                    uint64
	FirstScope                 string // of the first period that differs
	FirstBegin                 time.Time
}

// ReconcileLines compares every commit of a window with its lines.
func (s *Store) ReconcileLines(ctx context.Context, w ExportWindow) (LineTally, error) {
	var t LineTally
	var first []any
	err := s.Row(ctx, "reconcile_lines", w.params(), &t.Periods, &t.UsageRows, &t.UsageRowsLines, &t.Lines, &t.LinesRead, &t.Total, &t.TotalRead, &t.Quantity,
		&t.Differ, &t.Unpriced, &t.Rejected, &t.Skipped, &first)
	if err == nil && t.Differ > 0 && len(first) == 2 {
		t.FirstScope, _ = first[0].(string)
		t.FirstBegin, _ = first[1].(time.Time)
	}
	return t, err
}

// Delivered is the newest delivery of a month's lines at a place.
type Delivered struct {
	Location, Delivery string
	Commits            uint64
	Digest             string
	Rows               uint64
	At                 time.Time
}

// ReconcileExports lists where a month's lines were delivered to.
func (s *Store) ReconcileExports(ctx context.Context, month time.Time) ([]Delivered, error) {
	return Collect(ctx, s, "reconcile_exports", Params{"month": month.UTC().Format(time.DateOnly)}, func(rows driver.Rows) (Delivered, error) {
		var d Delivered
		err := rows.Scan(&d.Location, &d.Delivery, &d.Commits, &d.Digest, &d.Rows, &d.At)
		return d, err
	})
}
