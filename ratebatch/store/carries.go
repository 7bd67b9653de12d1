package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Carries is what InsertPassCarries needs to know of one metric with tiers.
type Carries struct {
	Metric    string
	Zone      string    // time zone that months begin in
	MonthFrom time.Time // begin of the month that the pass's window begins in
	Rows      string    // SELECT of scope, begin, region, qty, t_ and account_ of the rows with a tariff
	Edges     string    // expression over tariff: Array(Int128)
	Volume    string    // condition over tariff
}

// InsertPassCarries works out what each account had before each period of the
// attempt, and what the period adds.
func (s *Store) InsertPassCarries(ctx context.Context, p Pass, c Carries, queryID string) error {
	text := strings.NewReplacer("/* TIERED */", c.Rows, "/* EDGES */", c.Edges, "/* VOLUME */", c.Volume).Replace(SQL("insert_pass_carries"))
	if err := s.conn.Exec(p.bind(ctx, queryID, Params{"metric": c.Metric, "month_from": c.MonthFrom, "zone": c.Zone}), text); err != nil {
		return fmt.Errorf("insert_pass_carries: %w", describe(err))
	}
	return nil
}

// PassCrossings counts the accounts that cross an edge in a period of the attempt.
func (s *Store) PassCrossings(ctx context.Context, p Pass, metric string) (uint64, error) {
	var n uint64
	err := s.Row(ctx, "pass_crossings", Params{"run_id": p.ID, "metric": metric}, &n)
	return n, err
}

// Adjustment is an account of volume tiers that enters another tier.
type Adjustment struct {
	Region, Scope string
	Begin         time.Time
	Account       string
	Tariff        int // number in the pass, from 1
	First, Last   int // tiers, from 1
	CarryIn       decimal.Decimal
	Revision      uint32
}

// PassAdjustments lists them for a metric of the attempt.
func (s *Store) PassAdjustments(ctx context.Context, p Pass, c Carries) ([]Adjustment, error) {
	text := strings.ReplaceAll(SQL("pass_adjustments"), "/* VOLUME */", c.Volume)
	var out []Adjustment
	err := s.each(WithParams(ctx, Params{"run_id": p.ID, "metric": c.Metric}), "pass_adjustments", text, func(rows driver.Rows) error {
		var a Adjustment
		var tariff uint32
		var first, last uint16
		err := rows.Scan(&a.Region, &a.Scope, &a.Begin, &a.Account, &tariff, &first, &last, &a.CarryIn, &a.Revision)
		a.Begin, a.Tariff, a.First, a.Last = a.Begin.UTC(), int(tariff), int(first), int(last)
		out = append(out, a)
		return err
	})
	return out, err
}

// DiscountRule is a discount as a pass applies it. Of those that apply to a
// metric of a scope the one listed first counts.
type DiscountRule struct {
	From, To      time.Time
	Metric, Scope string // empty: every one
	ID            string
	Rate          decimal.Decimal // unit price of a unit of money: -0.1 for 10 %
	Currency      string
}

// InsertDiscountLines adds the attempt's lines of discounts.
func (s *Store) InsertDiscountLines(ctx context.Context, p Pass, rules []DiscountRule, queryID string) error {
	rows := make([]string, len(rules))
	for i, r := range rules {
		rows[i] = fmt.Sprintf("(%d,%d,%s,%s,%s,%s,%s)", r.From.Unix(), min(r.To.Unix(), OpenEnd.Unix()), sqltext.String(r.Metric), sqltext.String(r.Scope), sqltext.String(r.ID),
			sqltext.String(r.Rate.String()), sqltext.String(r.Currency))
	}
	constant := "SELECT CAST(" + sqltext.String("["+strings.Join(rows, ",")+"]") + ", 'Array(Tuple(UInt32, UInt32, String, String, String, String, String))')"
	text := strings.ReplaceAll(SQL("insert_discount_lines"), "/* DISCOUNTS */", constant)
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), text); err != nil {
		return fmt.Errorf("insert_discount_lines: %w", describe(err))
	}
	return nil
}

// ChargeRule is the minimum or the cap of a scope; the general one has no scope.
type ChargeRule struct {
	ID, Scope string
	Amount    decimal.Decimal
}

// MonthCharges are the minimums and caps that hold for a month, by the plan in
// force in its last period.
type MonthCharges struct {
	MonthFrom, Last time.Time // begins of the month and of its last period
	Currency        string
	Boundaries      []time.Time // instants between the attempt's plans
	Currencies      []string    // of these plans: one more than Boundaries
	Minimums, Caps  []ChargeRule
	Priced          bool     // whether scopes are priced at all
	Others          []string // scopes of which the contrary holds
}

// InsertCharges works out what a month came to, for the scopes with usage in it whose
// last period of it the attempt rates, and adds the lines of its minimum and cap.
func (s *Store) InsertCharges(ctx context.Context, p Pass, m MonthCharges, charged, lines string) error {
	params := Params{"month_from": m.MonthFrom, "last": m.Last, "currency": m.Currency, "boundaries": m.Boundaries, "currencies": m.Currencies, "priced": m.Priced, "others": m.Others}
	if err := s.conn.Exec(p.bind(ctx, charged, params), SQL("insert_pass_charges")); err != nil {
		return fmt.Errorf("insert_pass_charges: %w", describe(err))
	}
	for _, list := range []struct {
		name  string
		rules []ChargeRule
	}{{"minimum", m.Minimums}, {"cap", m.Caps}} {
		ids, scopes, amounts := []string{}, []string{}, []string{}
		for _, r := range list.rules {
			ids, scopes, amounts = append(ids, r.ID), append(scopes, r.Scope), append(amounts, r.Amount.String())
		}
		params[list.name+"_ids"], params[list.name+"_scopes"], params[list.name+"_amounts"] = ids, scopes, amounts
	}
	if err := s.conn.Exec(p.bind(ctx, lines, params), SQL("insert_charge_lines")); err != nil {
		return fmt.Errorf("insert_charge_lines: %w", describe(err))
	}
	return nil
}

// InsertPassLinesTiers is InsertPassLines for an attempt with lines that are not
// one for each usage row.
func (s *Store) InsertPassLinesTiers(ctx context.Context, p Pass, queryID string) error {
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), SQL("insert_pass_lines_tiers")); err != nil {
		return fmt.Errorf("insert_pass_lines_tiers: %w", describe(err))
	}
	return nil
}

// CarryState is a current commit with what it says of tiered prices.
type CarryState struct {
	Scope         string
	Month         time.Time // as a date
	Begin, End    time.Time
	PlanDigest    string
	Currency      string
	CarryIn, Used map[string]decimal.Decimal // by account
	Total         decimal.Decimal
	UsageRows     uint64
}

// CarrySince says from when on commits have to be looked at, and the server's
// time.
func (s *Store) CarrySince(ctx context.Context) (since, now time.Time, err error) {
	err = s.Row(ctx, "carry_since", nil, &since, &now)
	return since.UTC(), now.UTC(), err
}

// CarryStates hands over, by scope and begin, the commits of the months of
// scopes in which what a period rests on may have changed since.
func (s *Store) CarryStates(ctx context.Context, since time.Time, zone string, visit func(CarryState)) error {
	return s.each(WithParams(ctx, Params{"since": since, "zone": zone}), "carry_state", SQL("carry_state"), func(rows driver.Rows) error {
		var c CarryState
		err := rows.Scan(&c.Scope, &c.Month, &c.Begin, &c.End, &c.PlanDigest, &c.Currency, &c.CarryIn, &c.Used, &c.Total, &c.UsageRows)
		c.Month, c.Begin, c.End = c.Month.UTC(), c.Begin.UTC(), c.End.UTC()
		if err == nil {
			visit(c)
		}
		return err
	})
}

// NoteCarryLook stores that changed carry-ins were looked for.
func (s *Store) NoteCarryLook(ctx context.Context, at time.Time, scopes, changed uint64) error {
	return s.Exec(ctx, "insert_carry_look", Params{"looked_at": at, "scopes": scopes, "changed": changed})
}

// AccountState is what a commit stored of one account.
type AccountState struct {
	Account        string
	Before, InThis decimal.Decimal
}

// CommitCarries lists what the commit of a period stored of each account.
func (s *Store) CommitCarries(ctx context.Context, scope string, begin time.Time, run uuid.UUID) ([]AccountState, error) {
	return Collect(ctx, s, "commit_carries", Params{"scope": scope, "begin": begin, "run_id": run}, func(rows driver.Rows) (AccountState, error) {
		var a AccountState
		err := rows.Scan(&a.Account, &a.Before, &a.InThis)
		return a, err
	})
}
