package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// DeadAttempts counts the attempts that began before a time and committed
// nothing, and their lines.
func (s *Store) DeadAttempts(ctx context.Context, before time.Time) (attempts, lines uint64, err error) {
	err = s.Row(ctx, "dead_attempts", Params{"before": before.Truncate(time.Second)}, &attempts, &lines)
	return attempts, lines, err
}

// VoidDeadAttempts voids them.
func (s *Store) VoidDeadAttempts(ctx context.Context, before time.Time, reason string) error {
	return s.Exec(ctx, "void_dead_attempts", Params{"before": before.Truncate(time.Second), "reason": reason})
}

// VoidLines are lines that a void attempt left.
type VoidLines struct {
	RunID uuid.UUID
	Lines uint64
}

// VoidLines lists the void attempts that still have lines.
func (s *Store) VoidLines(ctx context.Context) ([]VoidLines, error) {
	return Collect(ctx, s, "void_lines", nil, func(rows driver.Rows) (VoidLines, error) {
		var v VoidLines
		err := rows.Scan(&v.RunID, &v.Lines)
		return v, err
	})
}

// DeleteVoidLines removes the lines of void attempts.
func (s *Store) DeleteVoidLines(ctx context.Context, attempts []uuid.UUID) error {
	if err := s.forgetPlainMonths(ctx); err != nil {
		return err
	}
	return s.Exec(ctx, "delete_void_lines", Params{"run_ids": attempts})
}

// Superseded is what counts no more because a rated commit took its place.
type Superseded struct {
	Commits   uint64 `json:"commits"`
	Removable uint64 `json:"removable"`
	Lines     uint64 `json:"lines"` // of the removable ones
}

// Superseded counts commits that were superseded before a time. With exported
// only those may go whose month was exported since.
func (s *Store) Superseded(ctx context.Context, before time.Time, exported bool) (Superseded, error) {
	var x Superseded
	err := s.Row(ctx, "superseded", Params{"before": before, "exported": exported}, &x.Commits, &x.Removable, &x.Lines)
	return x, err
}

// DeleteSuperseded removes them: it lists them first, then removes their
// lines, then the commits, so that a cut leaves no commit with a part of its lines
// that counts.
func (s *Store) DeleteSuperseded(ctx context.Context, run uuid.UUID, before time.Time, exported bool) error {
	if err := s.forgetPlainMonths(ctx); err != nil {
		return err
	}
	params := Params{"run_id": run, "before": before, "exported": exported}
	if err := s.Exec(ctx, "insert_retention_keys", params); err != nil {
		return err
	}
	for _, name := range []string{"delete_superseded_lines", "delete_superseded_commits"} {
		if err := s.Exec(ctx, name, Params{"run_id": run}); err != nil {
			return err
		}
	}
	return nil
}

// OldJobRuns counts rows of the run log that are older than a time and not
// needed for status.
func (s *Store) OldJobRuns(ctx context.Context, before time.Time) (uint64, error) {
	var n uint64
	err := s.Row(ctx, "old_job_runs", Params{"before": before}, &n)
	return n, err
}

// DeleteJobRuns removes them.
func (s *Store) DeleteJobRuns(ctx context.Context, before time.Time) error {
	return s.Exec(ctx, "delete_job_runs", Params{"before": before})
}

// LineMonth is a month that has rated lines.
type LineMonth struct {
	Month    time.Time
	Lines    uint64
	Closed   bool
	ClosedAt time.Time
	// The first and the last commit in it since it was closed, 1970 if there is
	// none: what they differ by from the close is a later month's to bill.
	RatedFirst, RatedLast time.Time
}

// LineMonths lists the months that have rated lines.
func (s *Store) LineMonths(ctx context.Context) ([]LineMonth, error) {
	return Collect(ctx, s, "line_months", nil, func(rows driver.Rows) (LineMonth, error) {
		var m LineMonth
		err := rows.Scan(&m.Month, &m.Lines, &m.Closed, &m.ClosedAt, &m.RatedFirst, &m.RatedLast)
		m.Month, m.ClosedAt, m.RatedFirst, m.RatedLast = m.Month.UTC(), m.ClosedAt.UTC(), m.RatedFirst.UTC(), m.RatedLast.UTC()
		return m, err
	})
}

// MonthDelivery is the newest delivery of a month's dataset at a place.
type MonthDelivery struct {
	Location, Dataset string
	Month             time.Time
	AsOf              time.Time // whose commits and closes it shows
}

// MonthDeliveries lists the newest delivery of each dataset and month at each
// place, by places, then datasets, then months.
func (s *Store) MonthDeliveries(ctx context.Context) ([]MonthDelivery, error) {
	return Collect(ctx, s, "month_deliveries", nil, func(rows driver.Rows) (MonthDelivery, error) {
		var d MonthDelivery
		err := rows.Scan(&d.Location, &d.Dataset, &d.Month, &d.AsOf)
		d.Month, d.AsOf = d.Month.UTC(), d.AsOf.UTC()
		return d, err
	})
}

// DropLineMonth removes the rated lines of a month.
func (s *Store) DropLineMonth(ctx context.Context, month ratebatch.Month) error {
	if err := s.forgetPlainMonths(ctx); err != nil {
		return err
	}
	return s.Exec(ctx, "drop_line_month", Params{"from": month.From, "to": month.To})
}

// forgetPlainMonths takes back every hint of plain_months. It comes before rows
// are removed: a hint is believed while the numbers of rows are what they were,
// which holds only as long as rows are but added.
func (s *Store) forgetPlainMonths(ctx context.Context) error {
	return s.Exec(ctx, "forget_plain_months", nil)
}
