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

// ResetScopes are the scopes of a reset: those named, or all but some.
type ResetScopes struct {
	Only, But []string
}

func (x ResetScopes) params(to time.Time) Params {
	return Params{"scopes": append([]string{}, x.Only...), "but": append([]string{}, x.But...), "to": to}
}

// ResetPeriods says what a reset to a time would forget.
func (s *Store) ResetPeriods(ctx context.Context, scopes ResetScopes, to time.Time) ([]ResetMonth, error) {
	return Collect(ctx, s, "reset_periods", scopes.params(to), func(rows driver.Rows) (ResetMonth, error) {
		var m ResetMonth
		err := rows.Scan(&m.Month, &m.Periods, &m.Scopes, &m.First)
		m.Month, m.First = m.Month.UTC(), m.First.UTC()
		return m, err
	})
}

// ResetSplit is one period that a reset to a time would cut in two; its scope
// is empty when there is none.
func (s *Store) ResetSplit(ctx context.Context, scopes ResetScopes, to time.Time) (string, ratebatch.Period, error) {
	var scope string
	list, err := Collect(ctx, s, "reset_split", scopes.params(to), func(rows driver.Rows) (ratebatch.Period, error) {
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
func (s *Store) InsertResets(ctx context.Context, run uuid.UUID, scopes ResetScopes, to time.Time, reason, author, queryID string) error {
	params := scopes.params(to)
	params["run_id"], params["reason"], params["author"] = run, reason, author
	if err := s.conn.Exec(WithQueryID(WithParams(ctx, params), queryID), SQL("insert_resets")); err != nil {
		return fmt.Errorf("insert_resets: %w", describe(err))
	}
	return nil
}
