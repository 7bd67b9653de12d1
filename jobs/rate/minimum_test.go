package rate_test

import (
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// leastOfFive prices a unit at 1 and has a minimum of 5 a month.
const leastOfFive = "currency: EUR\nservices: [{name: traffic, mappings: [{type: flat, cost: 1}]}]\ncharges: [{kind: minimum, amount: 5}]\n"

// closeMonth freezes a month as it is rated.
func closeMonth(t *testing.T, s *store.Store, begin string) {
	t.Helper()
	month := ratebatch.Calendar{}.Named(at(begin))
	if err := s.FreezeMonth(t.Context(), month, 1, "", "test"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutMonthClose(t.Context(), month, store.MonthChange{Closed: 1, Kind: "close"}, nil); err != nil {
		t.Fatal(err)
	}
}

// minimums is what minimums come to, month by month.
func minimums(t *testing.T, s *store.Store) (text string) {
	t.Helper()
	if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(groupArray(concat(month, ' ', toString(price))), ', ') FROM (
		SELECT formatDateTime(begin, '%Y-%m', 'UTC') AS month, sum(price) AS price FROM rated WHERE metric = 'minimum' GROUP BY month ORDER BY month)`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// A project that is gone has periods until its month is closed, and then to the end
// of the month of its last period. What it pays does not depend on when that is: a
// month without usage has no minimum.
func TestAMonthWithoutUsageHasNoMinimum(t *testing.T) {
	s := withTraffic(t)
	completeUntil(t, s, at("2027-04-01T00:00:00Z"))
	for name, steps := range map[string][][2]string{ // rate until then, and close this month
		"closed on the third":                {{"2027-01-03T00:00:01Z", "2026-12-01T00:00:00Z"}, {"2027-02-03T00:00:01Z", "2027-01-01T00:00:00Z"}, {"2027-03-05T00:00:01Z", ""}},
		"closed as soon as it is over":       {{"2027-01-01T02:00:01Z", "2026-12-01T00:00:00Z"}, {"2027-03-05T00:00:01Z", ""}},
		"closed a month later":               {{"2027-02-03T00:00:01Z", "2026-12-01T00:00:00Z"}, {"2027-03-05T00:00:01Z", ""}},
		"closed on the third, two at a time": {{"2027-02-03T00:00:01Z", "2026-12-01T00:00:00Z"}, {"2027-03-03T00:00:01Z", "2027-01-01T00:00:00Z"}, {"2027-03-05T00:00:01Z", ""}},
		"never closed":                       {{"2027-03-05T00:00:01Z", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			forget(t, s)
			exec(t, s, "TRUNCATE TABLE month_commits")
			applyPlan(t, s, leastOfFive, time.Unix(0, 0))
			sendTraffic(t, s, []flow{{at("2026-12-10T00:00:00Z"), "one", "gone", "a", "", decimal.New(2, 0)}})
			for _, step := range steps {
				if _, err := run(t.Context(), s, options(step[0])); err != nil {
					t.Fatal(err)
				}
				if step[1] != "" {
					closeMonth(t, s, step[1])
				}
			}
			if got, want := minimums(t, s), "2026-12 3"; got != want {
				t.Errorf("minimums: %s, want %s", got, want)
			}
		})
	}
}

// Usage that arrives in a month that had none brings its minimum, also where it costs
// nothing; and a run after it finds nothing more to do.
func TestLateUsageBringsAMonthsMinimum(t *testing.T) {
	s := withTraffic(t)
	completeUntil(t, s, at("2027-04-01T00:00:00Z"))
	applyPlan(t, s, leastOfFive, time.Unix(0, 0))
	sendTraffic(t, s, []flow{{at("2026-12-10T00:00:00Z"), "one", "s0", "a", "", decimal.New(2, 0)}})
	o := options("2027-02-03T00:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	late := at("2027-01-20T00:00:00Z")
	sendTraffic(t, s, []flow{{late, "one", "s0", "a", "", decimal.Zero}})
	result, err := again(t.Context(), s, o, "s0", late, late.Add(time.Hour))
	if err != nil || result.Carried != 1 {
		t.Errorf("%d periods were rated again for it, %v; want the month's last", result.Carried, err)
	}
	if got, want := minimums(t, s), "2026-12 3, 2027-01 5"; got != want {
		t.Errorf("minimums: %s, want %s", got, want)
	}
	if result, err = run(t.Context(), s, o); err != nil || result.Periods != 0 {
		t.Errorf("the next run rated %d periods, %v; want none", result.Periods, err)
	}
	if n := idleRevisions(t, s); n > 0 {
		t.Errorf("%d revisions changed nothing", n)
	}
}
