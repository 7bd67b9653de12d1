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

// Pass names one attempt: its run_id and the window of periods it rates.
type Pass struct {
	ID       uuid.UUID
	From, To time.Time
	Period   time.Duration
}

func (p Pass) params() Params {
	return Params{"run_id": p.ID, "from": p.From, "to": p.To, "period": int64(p.Period / time.Second)}
}

// bind is the context of one of the pass's statements: its parameters, and a
// query id by which it can be killed.
func (p Pass) bind(ctx context.Context, queryID string, more Params) context.Context {
	params := p.params()
	for name, value := range more {
		params[name] = value
	}
	return WithQueryID(WithParams(ctx, params), queryID)
}

// PassSummary says how much an attempt has to rate.
type PassSummary struct {
	Periods, Scopes, UsageRows uint64
	Repeated                   uint64 // periods whose usage rows are not distinct
	LowestRevision             uint32
	HighestRevision            uint32
	Lost                       uint64 // periods with fewer usage rows than were committed; they are left alone
	Threads                    uint8  // that lines are written by: the engine's processors, at most 8, for each holds a block
}

// InsertPassPeriods writes down the due periods of the pass and the usage found
// for each; usage is a SELECT by package metric.
func (s *Store) InsertPassPeriods(ctx context.Context, p Pass, windows []DueWindow, closed []time.Time, metricsDigest, usage, queryID string) error {
	text := strings.ReplaceAll(withScopes(SQL("insert_pass_periods"), windows), "/* USAGE */", usage)
	if err := s.conn.Exec(p.bind(ctx, queryID, Params{"closed": dates(closed), "metrics_digest": metricsDigest}), text); err != nil {
		return fmt.Errorf("insert_pass_periods: %w", describe(err))
	}
	return nil
}

// PassSummary reads what InsertPassPeriods found.
func (s *Store) PassSummary(ctx context.Context, p Pass) (PassSummary, error) {
	var x PassSummary
	err := s.Row(ctx, "pass_summary", Params{"run_id": p.ID}, &x.Periods, &x.Scopes, &x.UsageRows, &x.Repeated, &x.LowestRevision, &x.HighestRevision, &x.Lost, &x.Threads)
	return x, err
}

// InsertLines runs the pass's one INSERT … SELECT; body is the SELECT. Lines are
// sorted and written by as many threads at once: by one, which is the engine's
// default, this takes half as long again on two processors.
func (s *Store) InsertLines(ctx context.Context, p Pass, body string, threads uint8, queryID string) error {
	ctx = Settings(ctx, map[string]any{"max_insert_threads": threads})
	text := "INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)\n" + body
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), text); err != nil {
		return fmt.Errorf("insert rated_lines: %w", describe(err))
	}
	return nil
}

// QueryPass runs a SELECT with the pass's parameters; the caller closes the rows.
func (s *Store) QueryPass(ctx context.Context, p Pass, text, queryID string) (driver.Rows, error) {
	rows, err := s.conn.Query(p.bind(ctx, queryID, nil), text)
	if err != nil {
		return nil, describe(err)
	}
	return rows, nil
}

// InsertPassLines reads the attempt's lines back and sums them per period.
func (s *Store) InsertPassLines(ctx context.Context, p Pass, queryID string) error {
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), SQL("insert_pass_lines")); err != nil {
		return fmt.Errorf("insert_pass_lines: %w", describe(err))
	}
	return nil
}

// Difference is a scope with lines that do not equal the usage they came from.
type Difference struct {
	Scope   string
	Begin   time.Time // of the first period that differs
	Text    string
	Periods uint64 // of the scope in the attempt
}

// PassDifferences lists the scopes that the attempt must not commit; an empty
// list means that its lines equal their source.
func (s *Store) PassDifferences(ctx context.Context, p Pass) ([]Difference, error) {
	return Collect(ctx, s, "pass_differences", Params{"run_id": p.ID}, func(rows driver.Rows) (Difference, error) {
		var d Difference
		err := rows.Scan(&d.Scope, &d.Begin, &d.Text, &d.Periods)
		d.Begin = d.Begin.UTC()
		return d, err
	})
}

// NoteDifferences notes those scopes as failures of the attempt; InsertCommits
// leaves them out.
func (s *Store) NoteDifferences(ctx context.Context, p Pass, queryID string) error {
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), SQL("note_differences")); err != nil {
		return fmt.Errorf("note_differences: %w", describe(err))
	}
	return nil
}

// CommitTerms say by what the periods of a pass were rated.
type CommitTerms struct {
	Boundaries    []time.Time // instants between plan versions
	PlanDigests   []string    // one more than Boundaries
	Currencies    []string    // likewise
	MetricsDigest string
	Reason        string
	Author        string
	Asked         bool // for by a person: periods of closed months too
}

// InsertCommits makes the attempt's lines count, period by period.
func (s *Store) InsertCommits(ctx context.Context, p Pass, t CommitTerms, queryID string) error {
	ctx = p.bind(ctx, queryID, Params{
		"boundaries": t.Boundaries, "plan_digests": t.PlanDigests, "currencies": t.Currencies,
		"metrics_digest": t.MetricsDigest, "reason": t.Reason, "author": t.Author, "asked": t.Asked,
	})
	if err := s.conn.Exec(ctx, SQL("insert_commits")); err != nil {
		return fmt.Errorf("insert_commits: %w", describe(err))
	}
	return nil
}

// Committed is what of an attempt counts, per currency.
type Committed struct {
	Currency                    string
	Periods, Lines              uint64
	Scopes                      []string
	Total                       decimal.Decimal
	Unpriced, Rejected, Skipped uint64
}

// Committed reads back what of the attempt counts now.
func (s *Store) Committed(ctx context.Context, p Pass) ([]Committed, error) {
	return Collect(ctx, s, "committed", Params{"run_id": p.ID, "from": p.From, "to": p.To}, func(rows driver.Rows) (Committed, error) {
		var c Committed
		err := rows.Scan(&c.Currency, &c.Periods, &c.Scopes, &c.Lines, &c.Total, &c.Unpriced, &c.Rejected, &c.Skipped)
		return c, err
	})
}

// Overtaken is a period of an attempt that another attempt committed first, by
// other usage or other rules.
type Overtaken struct {
	Scope      string
	Begin, End time.Time
	Committed  time.Time
}

// Overtaken lists them, at most ten thousand.
func (s *Store) Overtaken(ctx context.Context, p Pass, t CommitTerms) ([]Overtaken, error) {
	params := Params{"run_id": p.ID, "from": p.From, "to": p.To, "metrics_digest": t.MetricsDigest, "boundaries": t.Boundaries, "plan_digests": t.PlanDigests}
	return Collect(ctx, s, "overtaken", params, func(rows driver.Rows) (Overtaken, error) {
		var o Overtaken
		err := rows.Scan(&o.Scope, &o.Begin, &o.End, &o.Committed)
		o.Begin, o.End, o.Committed = o.Begin.UTC(), o.End.UTC(), o.Committed.UTC()
		return o, err
	})
}

// ScopePeriod is a period of a scope.
type ScopePeriod struct {
	Scope      string
	Begin, End time.Time
}

// LostPeriods lists the periods of an attempt that have fewer usage rows than were
// committed.
func (s *Store) LostPeriods(ctx context.Context, p Pass) ([]ScopePeriod, error) {
	return Collect(ctx, s, "lost_periods", Params{"run_id": p.ID}, func(rows driver.Rows) (ScopePeriod, error) {
		var x ScopePeriod
		err := rows.Scan(&x.Scope, &x.Begin, &x.End)
		x.Begin, x.End = x.Begin.UTC(), x.End.UTC()
		return x, err
	})
}

// IsVoid says whether someone has voided the attempt.
func (s *Store) IsVoid(ctx context.Context, id uuid.UUID) (bool, error) {
	var void bool
	err := s.Row(ctx, "is_void", Params{"run_id": id}, &void)
	return void, err
}

// VoidAttempt says that an attempt's lines and commits count for nothing.
func (s *Store) VoidAttempt(ctx context.Context, id uuid.UUID, reason string) error {
	return s.Exec(ctx, "void_attempt", Params{"run_id": id, "reason": reason, "priced": false})
}

// PriceOnly voids an attempt that has written nothing yet: what it writes only
// says what something would cost, and it never has commits.
func (s *Store) PriceOnly(ctx context.Context, id uuid.UUID, reason string) error {
	return s.Exec(ctx, "void_attempt", Params{"run_id": id, "reason": reason, "priced": true})
}
