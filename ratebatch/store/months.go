package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// MonthChange is one close or reopen of a month, in one currency.
type MonthChange struct {
	Month      time.Time       `json:"month"`
	Closed     uint32          `json:"closed"` // how often it was closed
	Kind       string          `json:"kind"`   // close or reopen
	Periods    uint64          `json:"periods"`
	Lines      uint64          `json:"lines"`
	LineDigest uint64          `json:"line_digest"`
	Total      decimal.Decimal `json:"total"`
	Currency   string          `json:"currency"`
	Reason     string          `json:"reason"`
	Author     string          `json:"author"`
	At         time.Time       `json:"at"`
}

// MonthCloses lists every close and reopen, oldest first.
func (s *Store) MonthCloses(ctx context.Context) ([]MonthChange, error) {
	return Collect(ctx, s, "month_closes", nil, func(rows driver.Rows) (MonthChange, error) {
		var m MonthChange
		err := rows.Scan(&m.Month, &m.Closed, &m.Kind, &m.Periods, &m.Lines, &m.LineDigest, &m.Total, &m.Currency, &m.Reason, &m.Author, &m.At)
		m.Month, m.At = m.Month.UTC(), m.At.UTC()
		return m, err
	})
}

// AnyCommit says whether a period in [from, to) had a commit at a moment.
func (s *Store) AnyCommit(ctx context.Context, from, to, asOf time.Time) (bool, error) {
	var there bool
	err := s.Row(ctx, "any_commit", Params{"from": from, "to": to, "as_of": asOf}, &there)
	return there, err
}

// FirstCommit is where the first period begins that was ever committed, 1970
// if there is none.
func (s *Store) FirstCommit(ctx context.Context) (time.Time, error) {
	var first time.Time
	err := s.Row(ctx, "first_commit", nil, &first)
	return first.UTC(), err
}

// MonthTotal is what commits of a month amount to in one currency. Two are the
// same commits when they are equal.
type MonthTotal struct {
	Currency   string          `json:"currency"`
	Periods    uint64          `json:"periods"`
	Lines      uint64          `json:"lines"`
	LineDigest uint64          `json:"line_digest"`
	Total      decimal.Decimal `json:"total"`
	Keys       uint64          `json:"-"` // hash of which commits they are
	Distinct   uint64          `json:"-"`
}

// Equal says whether both are the same commits, each once.
func (t MonthTotal) Equal(u MonthTotal) bool {
	return t.Total.Equal(u.Total) && t.Currency == u.Currency && t.Periods == u.Periods && t.Lines == u.Lines && t.LineDigest == u.LineDigest && t.Keys == u.Keys && t.Distinct == u.Distinct
}

func scanMonthTotal(rows driver.Rows) (MonthTotal, error) {
	var t MonthTotal
	err := rows.Scan(&t.Currency, &t.Periods, &t.Lines, &t.LineDigest, &t.Total, &t.Keys, &t.Distinct)
	return t, err
}

func monthParams(month ratebatch.Month) Params {
	return Params{"month": month.Date.Format(time.DateOnly), "from": month.From, "to": month.To}
}

// CurrentTotals sums the current commits of a month.
func (s *Store) CurrentTotals(ctx context.Context, month ratebatch.Month) ([]MonthTotal, error) {
	return Collect(ctx, s, "current_totals", monthParams(month), scanMonthTotal)
}

// FrozenTotals sums the commits that one close of a month froze.
func (s *Store) FrozenTotals(ctx context.Context, month ratebatch.Month, closed uint32) ([]MonthTotal, error) {
	return Collect(ctx, s, "frozen_totals", Params{"month": month.Date.Format(time.DateOnly), "closed": closed}, scanMonthTotal)
}

// CommitsUnderWay counts the statements that are writing commits on this server.
func (s *Store) CommitsUnderWay(ctx context.Context) (uint64, error) {
	var n uint64
	err := s.Row(ctx, "commits_under_way", nil, &n)
	return n, err
}

// AnyLine says whether a window holds a rated line.
func (s *Store) AnyLine(ctx context.Context, from, to time.Time) (bool, error) {
	var there bool
	err := s.Row(ctx, "any_line", Params{"from": from, "to": to}, &there)
	return there, err
}

// LinesGone says whether the lines that a close of a month froze are there no more:
// what was billed is known by its totals alone then. closed is the number of the
// close that counts.
func (s *Store) LinesGone(ctx context.Context, month ratebatch.Month, closed uint32) (bool, error) {
	there, err := s.AnyLine(ctx, month.From, month.To)
	if err != nil || there {
		return false, err
	}
	frozen, err := s.FrozenTotals(ctx, month, closed)
	return slices.ContainsFunc(frozen, func(t MonthTotal) bool { return t.Lines > 0 }), err
}

// LinesRemoved says whether lines that are gone may have been removed by 'ratebatch
// retention --lines-after', which leaves those of a month that was not exported
// since that close: they were lost.
func (s *Store) LinesRemoved(ctx context.Context, month ratebatch.Month, closed uint32) (bool, error) {
	gone, err := s.LinesGone(ctx, month, closed)
	if err != nil || !gone {
		return false, err
	}
	var delivered bool
	err = s.Row(ctx, "lines_delivered", Params{"month": month.Date.Format(time.DateOnly), "closed": closed}, &delivered)
	return delivered, err
}

// LineTotals sums the lines of a month's current commits, from the lines.
func (s *Store) LineTotals(ctx context.Context, month ratebatch.Month) (MonthTotal, error) {
	var t MonthTotal
	err := s.Row(ctx, "line_totals", monthParams(month), &t.Lines, &t.LineDigest, &t.Total)
	return t, err
}

// FreezeMonth writes down the month's current commits under a close's number;
// they count once the close does.
func (s *Store) FreezeMonth(ctx context.Context, month ratebatch.Month, closed uint32, reason, author string) error {
	params := monthParams(month)
	params["closed"], params["reason"], params["author"] = closed, reason, author
	return s.Exec(ctx, "freeze_month", params)
}

// PutMonthClose makes a close or a reopen count.
func (s *Store) PutMonthClose(ctx context.Context, month ratebatch.Month, m MonthChange, totals []MonthTotal) error {
	var currencies, sums []string
	var periods, lines, digests []uint64
	if len(totals) == 0 {
		totals = []MonthTotal{{}}
	}
	for _, t := range totals {
		currencies, sums = append(currencies, t.Currency), append(sums, t.Total.String())
		periods, lines, digests = append(periods, t.Periods), append(lines, t.Lines), append(digests, t.LineDigest)
	}
	return s.Exec(ctx, "insert_month_close", Params{"month": month.Date.Format(time.DateOnly), "first": month.From, "until": month.To, "closed": m.Closed, "kind": m.Kind, "currencies": currencies,
		"periods": numbers(periods), "lines": numbers(lines), "line_digests": numbers(digests), "totals": sums, "reason": m.Reason, "author": m.Author})
}

// numbers is the text of an Array(UInt64) parameter.
type numbers []uint64

// String writes the array literal.
func (n numbers) String() string {
	parts := make([]string, len(n))
	for i, x := range n {
		parts[i] = strconv.FormatUint(x, 10)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// DueScope is a scope with periods that are not rated.
type DueScope struct {
	Scope     string
	Periods   uint64
	First     time.Time
	Conflicts uint64 // of the periods, those whose commits disagree
}

// DueScopes lists the scopes with unrated periods in their windows, at most a
// thousand.
func (s *Store) DueScopes(ctx context.Context, windows []DueWindow, period time.Duration, from, to time.Time) ([]DueScope, error) {
	var out []DueScope
	if len(windows) == 0 {
		return nil, nil
	}
	ctx = WithParams(ctx, Params{"period": int64(period / time.Second), "from": from, "to": to})
	err := s.each(ctx, "due_scopes", withScopes(SQL("due_scopes"), windows), func(rows driver.Rows) error {
		var d DueScope
		err := rows.Scan(&d.Scope, &d.Periods, &d.First, &d.Conflicts)
		d.First = d.First.UTC()
		out = append(out, d)
		return err
	})
	return out, err
}

// InsertDisabled settles the unrated periods of disabled scopes in the windows.
func (s *Store) InsertDisabled(ctx context.Context, run uuid.UUID, windows []DueWindow, period time.Duration, from, to time.Time, reason, author string) error {
	if len(windows) == 0 {
		return nil
	}
	ctx = WithParams(ctx, Params{"run_id": run, "period": int64(period / time.Second), "from": from, "to": to, "reason": reason, "author": author})
	if err := s.conn.Exec(ctx, withScopes(SQL("insert_disabled"), windows)); err != nil {
		return fmt.Errorf("insert_disabled: %w", describe(err))
	}
	return nil
}

// Correction is what rating again changed in a closed month.
type Correction struct {
	Month    time.Time       `json:"month"`
	Scope    string          `json:"scope"`
	Currency string          `json:"currency"`
	Current  decimal.Decimal `json:"current"`
	Frozen   decimal.Decimal `json:"frozen"`
}

// Corrections lists the scopes whose closed months are not what they were.
func (s *Store) Corrections(ctx context.Context) ([]Correction, error) {
	return Collect(ctx, s, "corrections", nil, func(rows driver.Rows) (Correction, error) {
		var c Correction
		err := rows.Scan(&c.Month, &c.Scope, &c.Currency, &c.Current, &c.Frozen)
		c.Month = c.Month.UTC()
		return c, err
	})
}
