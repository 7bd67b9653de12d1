package rate_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// looks counts the looks at what commits changed behind them.
func looks(t testing.TB, s *store.Store) (n uint64) {
	t.Helper()
	if err := s.Conn().QueryRow(t.Context(), "SELECT count() FROM carry_looks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A correction of a closed month that is cut between its commits and the look at
// what they changed is found half done by the runs that nobody asked for one, and
// is still there for the correction that goes on with it.
func TestACutCorrectionOfAClosedMonthIsGoneOnWith(t *testing.T) {
	s := withTraffic(t)
	o, _ := fourHours(t, s)
	month := ratebatch.Calendar{}.Named(at("2026-11-01T00:00:00Z"))
	closeMonth(t, s, "2026-11-01T00:00:00Z")
	_, goOn, job := cutCorrection(t, s, o)
	unsettled := func(want int) {
		t.Helper()
		if got, err := job.Unsettled(t.Context(), month); err != nil || got != want {
			t.Errorf("%d periods are unsettled, %v; want %d", got, err, want)
		}
	}
	unsettled(2)
	before := looks(t, s) // ten minutes after one that is noted, what came before it is not looked at again
	for range 2 {         // hours go by
		result, err := run(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		if result.Carried != 0 {
			t.Errorf("%d periods of a closed month were rated again, and nobody asked for it", result.Carried)
		}
	}
	unsettled(2)
	if after := looks(t, s); after != before {
		t.Errorf("%d looks were noted over what they left", after-before)
	}

	result, err := goOn()
	if err != nil {
		t.Fatal(err)
	}
	if result.Carried != 2 {
		t.Errorf("%d periods were rated again, want 2", result.Carried)
	}
	unsettled(0)
	var is string
	if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(arraySort(groupArray(toString(total))), ' ') FROM (
		SELECT argMax(total, rank) AS total FROM period_commits GROUP BY scope, begin HAVING total > 0)`).Scan(&is); err != nil {
		t.Fatal(err)
	}
	// 9 of the first hour at 2, 1 at 2 and 3 at 1 of the second, then 4 at 1 each.
	if want := "18 4 4 5"; strings.Join(slices.Sorted(slices.Values(strings.Fields(is))), " ") != want {
		t.Errorf("the hours come to %s, want %s", is, want)
	}
}

// Where the month is closed no close waits for what a correction could not rate: it
// is told once, and looks go on.
func TestACorrectionThatMeetsLostUsageIsToldOnce(t *testing.T) {
	s := withTraffic(t)
	applyPlan(t, s, "currency: EUR\nservices: [{name: traffic, mappings: [{type: flat, cost: 1}]}]\ncharges: [{kind: cap, amount: 100}]\n", time.Unix(0, 0))
	early, last := at("2026-11-20T00:00:00Z"), at("2026-11-30T23:00:00Z")
	sendTraffic(t, s, []flow{{early, "one", "s0", "a", "", decimal.New(120, 0)}, {last, "one", "s0", "a", "", decimal.New(9, 0)}, {last, "one", "s0", "b", "", decimal.New(1, 0)}})
	o := options("2026-12-01T06:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	closeMonth(t, s, "2026-11-01T00:00:00Z")
	exec(t, s, "DELETE FROM traffic WHERE id = 'b'")
	sendTraffic(t, s, []flow{{early, "one", "s0", "late", "", decimal.New(20, 0)}})
	before := looks(t, s)
	_, err := again(t.Context(), s, o, "s0", early, early.Add(time.Hour))
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "fewer usage rows than were committed") {
		t.Errorf("the correction: %v, want the period that lost usage", err)
	}
	if after := looks(t, s); after != before+1 {
		t.Errorf("%d looks were noted, want 1: every later one would go back as far", after-before)
	}
}

// A month's last period that lost usage cannot be rated again, and its cap is wrong
// once the month comes to more: every run says so, hours later too, and the month is
// not settled until its usage is back.
func TestACapThatLostItsUsageKeepsTheMonthUnsettled(t *testing.T) {
	s := withTraffic(t)
	applyPlan(t, s, "currency: EUR\nservices: [{name: traffic, mappings: [{type: flat, cost: 1}]}]\ncharges: [{kind: cap, amount: 100}]\n", time.Unix(0, 0))
	early, last := at("2026-11-20T00:00:00Z"), at("2026-11-30T23:00:00Z")
	lost := flow{last, "one", "s0", "b", "", decimal.New(1, 0)}
	sendTraffic(t, s, []flow{{early, "one", "s0", "a", "", decimal.New(120, 0)}, {last, "one", "s0", "a", "", decimal.New(9, 0)}, lost})
	o := options("2026-12-01T06:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	before := looks(t, s)
	exec(t, s, "DELETE FROM traffic WHERE id = 'b'")
	sendTraffic(t, s, []flow{{early, "one", "s0", "late", "", decimal.New(20, 0)}})
	halted := func(what string, err error) {
		t.Helper()
		if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "fewer usage rows than were committed") {
			t.Errorf("%s: %v (exit %d), want exit %d for the period that lost usage", what, err, ratebatch.ExitCode(err), ratebatch.ExitHalted)
		}
	}
	_, err := again(t.Context(), s, o, "s0", early, early.Add(time.Hour))
	halted("the correction", err)
	if after := looks(t, s); after != before {
		t.Errorf("%d looks were noted over the period that lost usage", after-before)
	}
	// Hours go by: a look goes back by ten minutes.
	exec(t, s, "ALTER TABLE period_commits UPDATE committed_at = committed_at - INTERVAL 20 MINUTE, usage_read_at = usage_read_at - INTERVAL 20 MINUTE WHERE 1 SETTINGS mutations_sync = 2")
	var looked time.Time
	if err := s.Conn().QueryRow(t.Context(), "SELECT max(looked_at) - INTERVAL 20 MINUTE FROM carry_looks").Scan(&looked); err != nil {
		t.Fatal(err)
	}
	exec(t, s, "TRUNCATE TABLE carry_looks")
	if err := s.NoteCarryLook(t.Context(), looked, 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, hour := range []string{"the next hour", "the hour after"} {
		_, err := run(t.Context(), s, o)
		halted(hour, err)
	}
	job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	unsettled := func(want int) {
		t.Helper()
		month := ratebatch.Calendar{}.Named(at("2026-11-01T00:00:00Z"))
		if got, err := job.Unsettled(t.Context(), month); err != nil || got != want {
			t.Errorf("%d periods are unsettled, %v; want %d: a close would freeze 120 for a cap of 100", got, err, want)
		}
	}
	unsettled(1)
	sendTraffic(t, s, []flow{lost})
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	unsettled(0)
	var total string
	if err := s.Conn().QueryRow(t.Context(), "SELECT toString(sum(price)) FROM rated").Scan(&total); err != nil {
		t.Fatal(err)
	}
	if total != "100" {
		t.Errorf("the month comes to %s, want its cap of 100", total)
	}
}

// A month's cap is about one currency, also where one pass rates the whole month
// and its plans are in two.
func TestACapCountsItsOwnCurrency(t *testing.T) {
	s := withTraffic(t)
	const middle = "2026-11-15T00:00:00Z"
	applyPlan(t, s, "services: [{name: traffic, mappings: [{type: flat, cost: 1}]}]\n", time.Unix(0, 0))
	applyPlan(t, s, "currency: EUR\nservices: [{name: traffic, mappings: [{type: flat, cost: 1}]}]\ncharges: [{kind: cap, amount: 100}]\n", at(middle))
	sendTraffic(t, s, []flow{
		{at("2026-11-02T00:00:00Z"), "one", "s0", "a", "", decimal.New(90, 0)},
		{at("2026-11-20T00:00:00Z"), "one", "s0", "a", "", decimal.New(60, 0)},
		{at("2026-11-02T00:00:00Z"), "one", "s1", "a", "", decimal.New(90, 0)},
		{at("2026-11-20T00:00:00Z"), "one", "s1", "a", "", decimal.New(160, 0)},
	})
	if _, err := run(t.Context(), s, options("2026-12-01T06:00:01Z")); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(groupArray(text), ', ') FROM (
		SELECT concat(scope, ' ', toString(currency), ' ', toString(sum(total))) AS text FROM period_commits GROUP BY scope, currency ORDER BY scope, currency)`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "s0  90, s0 EUR 60, s1  90, s1 EUR 100"; got != want {
		t.Errorf("the month comes to %s, want %s", got, want)
	}
}
