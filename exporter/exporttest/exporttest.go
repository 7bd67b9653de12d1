// Package exporttest puts rated lines and commits into a database for the
// tests of exports, without the job that rates.
package exporttest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Line is one row of rated_lines; empty fields get plain values.
type Line struct {
	Region, Scope    string
	Begin            time.Time
	Metric, Resource string
	Attributes       map[string]string
	Unit             string
	Qty, Price       string
	Rule, Bucket     string
	Part             uint16
}

// Hour is the n-th hour of month, such as 2026-03.
func Hour(month string, n int) time.Time {
	t, err := time.Parse("2006-01", month)
	if err != nil {
		panic(err)
	}
	return t.Add(time.Duration(n) * time.Hour)
}

// Insert writes the lines of one attempt. Without Commit they do not count.
func Insert(tb testing.TB, s *store.Store, run uuid.UUID, revision uint32, lines ...Line) {
	tb.Helper()
	rows := make([]store.Line, len(lines))
	for i, l := range lines {
		l = l.complete()
		rows[i] = store.Line{Region: l.Region, Scope: l.Scope, Begin: l.Begin, Metric: l.Metric, Resource: l.Resource, Attributes: l.Attributes, Unit: l.Unit,
			Qty: decimal.RequireFromString(l.Qty), Price: decimal.RequireFromString(l.Price), Rule: l.Rule, Bucket: l.Bucket, Part: l.Part, Revision: revision}
	}
	if err := s.InsertGoLines(tb.Context(), store.Pass{ID: run, Period: time.Hour}, rows, uuid.NewString()); err != nil {
		tb.Fatal(err)
	}
}

func (l Line) complete() Line {
	fill := func(s *string, with string) {
		if *s == "" {
			*s = with
		}
	}
	fill(&l.Region, "RegionOne")
	fill(&l.Metric, "instance")
	fill(&l.Resource, "vm-1")
	fill(&l.Unit, "instance")
	fill(&l.Qty, "1")
	fill(&l.Price, "0")
	if l.Attributes == nil {
		l.Attributes = map[string]string{}
	}
	return l
}

// Commit commits the hours [from, to) of a scope for an attempt, with what the
// attempt's lines amount to; hours without lines are committed too.
func Commit(tb testing.TB, s *store.Store, run uuid.UUID, revision uint32, scope string, from, to time.Time) {
	tb.Helper()
	CommitAs(tb, s, run, revision, scope, "EUR", "rated", from, to)
}

// CommitAs is Commit with a currency and a kind.
func CommitAs(tb testing.TB, s *store.Store, run uuid.UUID, revision uint32, scope, currency, kind string, from, to time.Time) {
	tb.Helper()
	ctx := store.WithParams(tb.Context(), store.Params{"run_id": run, "revision": revision, "scope": scope, "currency": currency, "kind": kind, "from": from, "to": to})
	err := s.Conn().Exec(ctx, `
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint, lines, line_digest, total)
SELECT {scope:String}, h.begin, h.begin + 3600, {revision:UInt32}, {kind:String}, {run_id:UUID}, 'plan-1', 'metrics-1', {currency:String},
       l.lines, 0, l.lines, l.digest, l.total
FROM (SELECT arrayJoin(arrayMap(i -> {from:DateTime('UTC')} + i * 3600, range(toUInt32(intDiv({to:DateTime('UTC')} - {from:DateTime('UTC')}, 3600))))) AS begin) AS h
LEFT JOIN (SELECT begin, count() AS lines, sum(cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket)) AS digest, sum(toDecimal256(price, 18)) AS total
           FROM rated_lines WHERE run_id = {run_id:UUID} AND scope = {scope:String} GROUP BY begin) AS l ON l.begin = h.begin`)
	if err != nil {
		tb.Fatal(err)
	}
}

// Close freezes a month's current commits, as the job close does, whether it is
// the month's turn or not.
func Close(tb testing.TB, s *store.Store, month string, number uint32) {
	tb.Helper()
	CloseMonth(tb, s, ratebatch.Calendar{}.Named(Hour(month, 0)), number)
}

// CloseMonth is Close for a month of any time zone.
func CloseMonth(tb testing.TB, s *store.Store, month ratebatch.Month, number uint32) {
	tb.Helper()
	if err := s.FreezeMonth(tb.Context(), month, number, "", ""); err != nil {
		tb.Fatal(err)
	}
	if err := s.PutMonthClose(tb.Context(), month, store.MonthChange{Closed: number, Kind: "close"}, nil); err != nil {
		tb.Fatal(err)
	}
}

// Reopen makes a month open again, whatever was closed after it.
func Reopen(tb testing.TB, s *store.Store, month ratebatch.Month, number uint32) {
	tb.Helper()
	if err := s.PutMonthClose(tb.Context(), month, store.MonthChange{Closed: number, Kind: "reopen"}, nil); err != nil {
		tb.Fatal(err)
	}
}
