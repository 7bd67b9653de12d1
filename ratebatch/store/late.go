package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// NoteLost notes the periods of an attempt that have fewer usage rows than were
// committed.
func (s *Store) NoteLost(ctx context.Context, p Pass) error {
	return s.Exec(ctx, "note_lost", Params{"run_id": p.ID, "from": p.From, "to": p.To})
}

// LateLook is a search for usage that arrived behind its commit.
type LateLook struct {
	Since, Now time.Time
	Commits    uint64 // made since the last look
	Tables     []UsageTable
	Period     time.Duration
	Filter     string      // a condition on scope; empty: all scopes
	Days       []time.Time // outside of which no tier row was refreshed since; nil: any day
}

// LateSince says from when on tier rows have to be looked at. Since is in 1970
// or before when nothing was ever committed.
func (s *Store) LateSince(ctx context.Context) (LateLook, error) {
	var l LateLook
	err := s.Row(ctx, "late_since", nil, &l.Since, &l.Now, &l.Commits)
	return l, err
}

func (l LateLook) candidates() string {
	text := strings.ReplaceAll(SQL("late_candidates"), "/* ROWS */", refreshedRows(l.Tables, l.Days))
	if l.Filter != "" {
		text = "SELECT * FROM (" + text + ") WHERE " + l.Filter
	}
	return text
}

func (l LateLook) params() Params {
	return Params{"since": l.Since, "period": int64(l.Period / time.Second), "days": dates(l.Days)}
}

const (
	maxRefreshedDays = 400 // how many days a look names; of more it asks every day
	fewDays          = 3   // not worth a statement to ask which of them hold such rows
)

// FindDays has a look ask only the days in which something was written since.
// Where many were, as after a merge or a month that came at once, it asks first in
// which of them a row was refreshed: a look asks twice what is left.
func (s *Store) FindDays(ctx context.Context, l *LateLook) error {
	tables := tierNames(l.Tables)
	var whole bool
	var days []time.Time
	if err := s.Row(ctx, "refreshed_days", Params{"tables": tables, "since": l.Since}, &whole, &days); err != nil {
		return err
	}
	if l.Days = nil; whole && len(days) <= maxRefreshedDays {
		l.Days = append([]time.Time{}, days...)
	}
	if l.Days != nil && len(l.Days) <= fewDays || len(tables) == 0 {
		return nil
	}
	text := strings.ReplaceAll(SQL("refreshed_rows"), "/* ROWS */", refreshedRows(l.Tables, l.Days))
	days = []time.Time{}
	err := s.each(WithParams(ctx, l.params()), "refreshed_rows", text, func(rows driver.Rows) error {
		var day time.Time
		err := rows.Scan(&day)
		days = append(days, day)
		return err
	})
	if err == nil && len(days) <= maxRefreshedDays {
		l.Days = days
	}
	return err
}

// LateDays counts, per day, the committed periods whose usage may have changed,
// and in all those of another length, which are not compared.
func (s *Store) LateDays(ctx context.Context, l LateLook) (days []DueDay, others uint64, err error) {
	if len(tierNames(l.Tables)) == 0 {
		return nil, 0, nil
	}
	text := strings.ReplaceAll(SQL("late_days"), "/* CANDIDATES */", l.candidates())
	err = s.each(WithParams(ctx, l.params()), "late_days", text, func(rows driver.Rows) error {
		var d DueDay
		var n uint64
		err := rows.Scan(&d.Day, &d.Periods, &n)
		d.Day = d.Day.UTC()
		if others += n; d.Periods > 0 {
			days = append(days, d)
		}
		return err
	})
	return days, others, err
}

// InsertLatePeriods writes down the look's candidates that begin in the pass's
// window, with the usage found for each now.
func (s *Store) InsertLatePeriods(ctx context.Context, p Pass, l LateLook, metricsDigest, usage, queryID string) error {
	scopes := "SELECT scope, begin AS first, begin + {period:UInt32} AS until, committed + 1 AS again FROM (" + l.candidates() + ") WHERE comparable"
	text := strings.ReplaceAll(strings.ReplaceAll(SQL("insert_pass_periods"), "/* SCOPES */", scopes), "/* USAGE */", usage)
	if err := s.conn.Exec(p.bind(ctx, queryID, Params{"closed": []string{}, "metrics_digest": metricsDigest, "since": l.Since, "days": dates(l.Days)}), text); err != nil {
		return fmt.Errorf("insert_pass_periods of a look: %w", describe(err))
	}
	return nil
}

// LateFinding is a committed period whose usage is not what was committed.
type LateFinding struct {
	Scope          string          `json:"scope"`
	Begin          time.Time       `json:"begin"`
	End            time.Time       `json:"end"`
	Kind           string          `json:"kind"` // late or lost
	Revision       uint32          `json:"revision"`
	CommittedRows  uint64          `json:"committed_rows"`
	FoundRows      uint64          `json:"found_rows"`
	Currency       string          `json:"currency"`
	CommittedTotal decimal.Decimal `json:"committed_total"`
	FoundTotal     decimal.Decimal `json:"found_total"` // by the plan that the period was rated with
	PlanTotal      decimal.Decimal `json:"plan_total"`  // by the plan in force now
	Action         string          `json:"action"`      // hold, reprocess or ignore
	FoundAt        time.Time       `json:"found_at,omitzero"`

	CommittedFingerprint, FoundFingerprint uint64 `json:"-"`
	PlanDigest                             string `json:"-"` // that the period was rated with
}

// Difference is what the late usage is worth, by the plan that the period was
// rated with.
func (f LateFinding) Difference() decimal.Decimal { return f.FoundTotal.Sub(f.CommittedTotal) }

// ByPlan is what rating the period again would change beside it, because
// another plan is in force for it now.
func (f LateFinding) ByPlan() decimal.Decimal { return f.PlanTotal.Sub(f.FoundTotal) }

// LateFound lists the periods of a look whose usage changed, and those with a
// finding whose usage is as committed again; FoundTotal is still as committed.
func (s *Store) LateFound(ctx context.Context, p Pass, metricsDigest string) ([]LateFinding, error) {
	return Collect(ctx, s, "late_found", Params{"run_id": p.ID, "from": p.From, "to": p.To, "metrics_digest": metricsDigest}, func(rows driver.Rows) (LateFinding, error) {
		f := LateFinding{Kind: "late"}
		err := rows.Scan(&f.Scope, &f.Begin, &f.End, &f.Revision, &f.CommittedRows, &f.CommittedFingerprint, &f.FoundRows, &f.FoundFingerprint, &f.Currency, &f.CommittedTotal, &f.PlanDigest)
		f.Begin, f.End, f.FoundTotal, f.PlanTotal = f.Begin.UTC(), f.End.UTC(), f.CommittedTotal, f.CommittedTotal
		if f.FoundRows < f.CommittedRows {
			f.Kind = "lost"
		}
		return f, err
	})
}

// LatePrices says what the periods of an attempt that prices only would cost.
func (s *Store) LatePrices(ctx context.Context, p Pass) (map[string]map[time.Time]decimal.Decimal, error) {
	out := map[string]map[time.Time]decimal.Decimal{}
	rows, err := s.Rows(ctx, "late_prices", Params{"run_id": p.ID})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var scope string
		var begin time.Time
		var total decimal.Decimal
		if err := rows.Scan(&scope, &begin, &total); err != nil {
			return nil, err
		}
		if out[scope] == nil {
			out[scope] = map[time.Time]decimal.Decimal{}
		}
		out[scope][begin.UTC()] = total
	}
	return out, describe(rows.Err())
}

// NoteLate stores findings. The token makes a repetition within one look
// harmless.
func (s *Store) NoteLate(ctx context.Context, look uuid.UUID, findings []LateFinding) error {
	if len(findings) == 0 {
		return nil
	}
	ctx = Settings(ctx, map[string]any{"insert_deduplication_token": "late:" + look.String(), "async_insert": 0})
	batch, err := s.conn.PrepareBatch(ctx, "INSERT INTO late_usage (scope, begin, end, kind, revision, committed_rows, committed_fingerprint, found_rows, found_fingerprint, currency, committed_total, found_total, plan_total, action, run_id)")
	if err != nil {
		return fmt.Errorf("insert late usage: %w", describe(err))
	}
	for _, f := range findings {
		err := batch.Append(f.Scope, f.Begin, f.End, f.Kind, f.Revision, f.CommittedRows, f.CommittedFingerprint, f.FoundRows, f.FoundFingerprint, f.Currency, f.CommittedTotal, f.FoundTotal, f.PlanTotal, f.Action, look)
		if err != nil {
			return fmt.Errorf("insert late usage: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert late usage: %w", describe(err))
	}
	return nil
}

// NoteLook stores that late usage was looked for.
func (s *Store) NoteLook(ctx context.Context, l LateLook, candidates, late, lost uint64) error {
	return s.Exec(ctx, "insert_late_look", Params{"looked_at": l.Now, "candidates": candidates, "late": late, "lost": lost})
}

// LateOpen lists the findings that still stand.
func (s *Store) LateOpen(ctx context.Context) ([]LateFinding, error) {
	return Collect(ctx, s, "late_open", nil, func(rows driver.Rows) (LateFinding, error) {
		var f LateFinding
		err := rows.Scan(&f.Scope, &f.Begin, &f.End, &f.Kind, &f.Revision, &f.CommittedRows, &f.FoundRows, &f.Currency, &f.CommittedTotal, &f.FoundTotal, &f.PlanTotal, &f.Action, &f.FoundAt)
		f.Begin, f.End = f.Begin.UTC(), f.End.UTC()
		return f, err
	})
}
