package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// Amount is how many samples end in a window and what bytes lie in it: received
// and sent of ports, read and written of disks, none of instances.
type Amount struct {
	Samples int64
	X, Y    string // whole numbers
}

// SampleTally is what arrived of a kind in a window beside what the tiers hold.
type SampleTally struct {
	Kind              string
	Arrived, Hourly   Amount // in the hours that can be checked
	Arrived5, FiveMin Amount // in those of them that the 5-minute tier still keeps
	FiveHours         uint64 // of those, hours with samples
	CountedHours      uint64 // hours whose raw samples are gone: their count stands in
	Unknown           int64  // samples in the hourly tier that nothing is left to compare with
	Expired           int64  // samples of hours that the hourly tier no longer keeps
	Late              int64  // samples that came too late and were not taken up
}

// ReconcileSamples compares the tiers with what arrived, by kind.
func (s *Store) ReconcileSamples(ctx context.Context, from, to time.Time) ([]SampleTally, error) {
	var now time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return nil, err
	}
	// Whole hours: a month may begin within one where billing is in another zone.
	from, to = from.UTC().Truncate(time.Hour), to.UTC().Add(time.Hour-1).Truncate(time.Hour)
	if open := now.UTC().Truncate(time.Hour); to.After(open) {
		to = open // tiers hold no hour that has not ended
	}
	params := Params{"from": from, "to": to}
	for name, tables := range map[string][]string{
		"raw_from":    {"port_samples", "instance_samples", "disk_samples"},
		"five_from":   {"port_volume_5min", "instance_metrics_5min", "disk_metrics_5min"},
		"hourly_from": {"port_volume_hourly", "instance_metrics_hourly", "disk_metrics_hourly"},
	} {
		first := time.Unix(0, 0).UTC()
		for _, table := range tables {
			kept, err := s.kept(ctx, table)
			if err != nil {
				return nil, err
			}
			if at := kept.FirstWholeHour(now); at.After(first) {
				first = at
			}
		}
		params[name] = first
	}
	return Collect(ctx, s, "reconcile_samples", params, func(rows driver.Rows) (SampleTally, error) {
		var t SampleTally
		err := rows.Scan(&t.Kind, &t.Arrived.Samples, &t.Arrived.X, &t.Arrived.Y, &t.Hourly.Samples, &t.Hourly.X, &t.Hourly.Y,
			&t.Arrived5.Samples, &t.Arrived5.X, &t.Arrived5.Y, &t.FiveMin.Samples, &t.FiveMin.X, &t.FiveMin.Y,
			&t.FiveHours, &t.CountedHours, &t.Unknown, &t.Expired, &t.Late)
		return t, err
	})
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
