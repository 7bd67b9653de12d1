package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// ResetMonth is what a reset would forget of one month.
type ResetMonth struct {
	Month   time.Time
	Periods uint64
	Scopes  uint64
	First   time.Time // begin of the first of them
}

// ResetPeriods says what a reset to a time would forget; no scopes means all.
func (s *Store) ResetPeriods(ctx context.Context, scopes []string, to time.Time) ([]ResetMonth, error) {
	return Collect(ctx, s, "reset_periods", Params{"scopes": append([]string{}, scopes...), "to": to}, func(rows driver.Rows) (ResetMonth, error) {
		var m ResetMonth
		err := rows.Scan(&m.Month, &m.Periods, &m.Scopes, &m.First)
		m.Month, m.First = m.Month.UTC(), m.First.UTC()
		return m, err
	})
}

// ResetSplit is one period that a reset to a time would cut in two; its scope
// is empty when there is none.
func (s *Store) ResetSplit(ctx context.Context, scopes []string, to time.Time) (string, ratebatch.Period, error) {
	var scope string
	list, err := Collect(ctx, s, "reset_split", Params{"scopes": append([]string{}, scopes...), "to": to}, func(rows driver.Rows) (ratebatch.Period, error) {
		var p ratebatch.Period
		err := rows.Scan(&scope, &p.Begin, &p.End)
		return p, err
	})
	if err != nil || len(list) == 0 {
		return "", ratebatch.Period{}, err
	}
	return scope, list[0], nil
}

// InsertResets forgets the scopes' periods from a time on.
func (s *Store) InsertResets(ctx context.Context, run uuid.UUID, scopes []string, to time.Time, reason, author, queryID string) error {
	params := Params{"run_id": run, "scopes": append([]string{}, scopes...), "to": to, "reason": reason, "author": author}
	if err := s.conn.Exec(WithQueryID(WithParams(ctx, params), queryID), SQL("insert_resets")); err != nil {
		return fmt.Errorf("insert_resets: %w", describe(err))
	}
	return nil
}
