package rate_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

var otherMetrics = strings.Replace(trafficMetrics, "unit: GB", "unit: GiB", 1)

const flatPlan = `
currency: EUR
services: [{name: traffic, mappings: [{cost: "1", type: flat}]}]
`

// commitsThatCount are the rated periods as "scope day hour total", in order.
func commitsThatCount(t testing.TB, s *store.Store) string {
	t.Helper()
	var text string
	if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(groupArray(concat(scope, formatDateTime(begin, ' %d %H:%i ', 'UTC'), toString(total))), '\n')
		FROM (SELECT * FROM current_commits WHERE kind = 'rated' ORDER BY scope, begin)`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func completeUntil(t testing.TB, s *store.Store, until time.Time) {
	t.Helper()
	exec(t, s, "TRUNCATE TABLE watermarks")
	if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": "one", "complete_until": until, "source": "operator", "note": ""}); err != nil {
		t.Fatal(err)
	}
}

// applyMetrics puts a metric set in force from a moment on.
func applyMetrics(t testing.TB, s *store.Store, body string, from time.Time) {
	t.Helper()
	if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: uuid.NewString(), Body: body, ValidFrom: from}); err != nil {
		t.Fatal(err)
	}
}

// A period is rated as a whole, by what is in force at its begin, wherever in it
// another metric set or plan takes over; a run at each hour and one that catches
// up come to the same.
func TestAChangeWithinAPeriodCountsFromTheNextOneOn(t *testing.T) {
	const half = "2026-11-01T01:30:00Z"
	s := withTraffic(t)
	hours := func(scope string, from, to int, total string) (out []string) {
		for h := from; h < to; h++ {
			out = append(out, fmt.Sprintf("%s 01 %02d:00 %s", scope, h, total))
		}
		return out
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, *store.Store)
		period time.Duration
		want   []string
	}{
		"metrics": {func(t *testing.T, s *store.Store) { applyMetrics(t, s, otherMetrics, at(half)) }, time.Hour,
			append(hours("alpha", 0, 6, "1"), append(hours("beta", 0, 3, "0"), hours("beta", 3, 6, "1")...)...)},
		"metrics twice within a period": {func(t *testing.T, s *store.Store) {
			applyMetrics(t, s, otherMetrics, at("2026-11-01T01:10:00Z"))
			applyMetrics(t, s, trafficMetrics, at("2026-11-01T01:50:00Z"))
		}, time.Hour, append(hours("alpha", 0, 6, "1"), append(hours("beta", 0, 3, "0"), hours("beta", 3, 6, "1")...)...)},
		"a dearer plan": {func(t *testing.T, s *store.Store) {
			applyPlan(t, s, strings.Replace(flatPlan, `"1"`, `"2"`, 1), at(half))
		}, time.Hour, append(append(hours("alpha", 0, 2, "1"), hours("alpha", 2, 6, "2")...), append(hours("beta", 0, 3, "0"), hours("beta", 3, 6, "2")...)...)},
		"the first plan": {func(t *testing.T, s *store.Store) {
			exec(t, s, "TRUNCATE TABLE rate_plans")
			applyPlan(t, s, flatPlan, at(half))
		}, time.Hour, append(hours("alpha", 2, 6, "1"), append(hours("beta", 2, 3, "0"), hours("beta", 3, 6, "1")...)...)},
		"a gap between plans": {func(t *testing.T, s *store.Store) {
			exec(t, s, "TRUNCATE TABLE rate_plans")
			for _, v := range []store.Version{{ValidFrom: time.Unix(0, 0), ValidTo: at(half)}, {ValidFrom: at("2026-11-01T03:30:00Z"), ValidTo: store.OpenEnd}} {
				v.Digest, v.Body, v.Currency = uuid.NewString(), flatPlan, "EUR"
				if _, err := s.AddVersion(t.Context(), store.PlanVersions, v); err != nil {
					t.Fatal(err)
				}
			}
		}, time.Hour, append(append(hours("alpha", 0, 2, "1"), hours("alpha", 4, 6, "1")...), append(hours("beta", 0, 2, "0"), hours("beta", 4, 6, "1")...)...)},
		"metrics, by days": {func(t *testing.T, s *store.Store) { applyMetrics(t, s, otherMetrics, at("2026-11-01T10:00:00Z")) }, 24 * time.Hour,
			[]string{"alpha 01 00:00 6", "alpha 02 00:00 0", "beta 01 00:00 3", "beta 02 00:00 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, catchUp := range []bool{true, false} {
				anew(t, s, flatPlan)
				applyMetrics(t, s, trafficMetrics, time.Unix(0, 0))
				for n := range 6 {
					flows := []flow{{hour(n), "one", "alpha", "a", "z", qty("1")}}
					if n >= 3 {
						flows = append(flows, flow{hour(n), "one", "beta", "b", "z", qty("1")})
					}
					sendTraffic(t, s, flows)
				}
				tt.change(t, s)
				step, end := tt.period, at("2026-11-01T06:00:00Z")
				if step > time.Hour {
					end = at("2026-11-03T00:00:00Z")
				}
				at := hour(0).Add(step)
				if catchUp {
					at = end
				}
				var rated uint64
				for ; !at.After(end); at = at.Add(step) {
					completeUntil(t, s, at)
					o := options("2027-01-01T00:00:00Z")
					o.Period, o.Now = tt.period, at.Add(2*step+time.Second)
					result, err := run(t.Context(), s, o)
					if err != nil {
						t.Fatal(err)
					}
					rated += result.Periods
				}
				got := commitsThatCount(t, s)
				if diff := cmp.Diff(strings.Join(tt.want, "\n"), got); diff != "" {
					t.Errorf("catching up %t: commits (-want +got):\n%s", catchUp, diff)
				}
				if rated != uint64(len(tt.want)) {
					t.Errorf("catching up %t: %d periods were rated, want %d", catchUp, rated, len(tt.want))
				}
			}
		})
	}
}

// Usage before the first period is counted with the metrics of each period's begin.
func TestBeforeFirstCountsWholePeriods(t *testing.T) {
	s := withTraffic(t)
	anew(t, s, flatPlan)
	for n := range 30 {
		sendTraffic(t, s, []flow{{hour(n), "one", "alpha", "a", "z", qty("1")}})
	}
	applyMetrics(t, s, otherMetrics, at("2026-11-01T10:00:00Z"))
	o := options("2026-11-03T00:00:00Z")
	o.Period, o.First = 24*time.Hour, rate.FirstPeriod{Kind: "date", Date: at("2026-11-02T00:00:00Z")}
	job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	got, err := job.BeforeFirst(t.Context(), at("2026-11-01T00:00:00Z"), at("2026-12-01T00:00:00Z"))
	if err != nil || len(got) != 1 || got[0].Periods != 1 || got[0].Rows != 1 {
		t.Errorf("before the first period: %+v (%v), want one row of one period", got, err)
	}
}

// Commits between the periods, which an earlier build made, make up for no hole,
// and the doctor names them until the periods that they lie in are rated again.
func TestCommitsOffTheGridHideNoHole(t *testing.T) {
	s := withTraffic(t)
	anew(t, s, flatPlan)
	for n := range 6 {
		sendTraffic(t, s, []flow{{hour(n), "one", "alpha", "a", "z", qty("1")}})
	}
	completeUntil(t, s, hour(6))
	if _, err := run(t.Context(), s, options("2026-11-01T08:00:01Z")); err != nil {
		t.Fatal(err)
	}
	whole := commitsThatCount(t, s)
	if off, err := s.OffGridCommits(t.Context()); err != nil || len(off) > 0 {
		t.Fatalf("off the grid: %+v (%v), want none", off, err)
	}
	exec(t, s, "ALTER TABLE period_commits DELETE WHERE begin >= '2026-11-01 02:00:00' SETTINGS mutations_sync = 2")
	exec(t, s, `INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, committed_at) SELECT 'alpha', toDateTime('2026-11-01 01:30:00', 'UTC') + 3600 * number,
		toDateTime('2026-11-01 02:30:00', 'UTC') + 3600 * number, 1, 'rated', generateUUIDv4(), 'EUR', now64(6) - 1 FROM numbers(5)`)
	off, err := s.OffGridCommits(t.Context())
	if err != nil || len(off) != 1 || off[0].Scope != "alpha" || off[0].Periods < 4 || !off[0].Last.Equal(hour(5)) {
		t.Errorf("off the grid: %+v (%v), want alpha's up to 05:00", off, err)
	}
	result, err := run(t.Context(), s, options("2026-11-01T08:00:01Z"))
	if err != nil || result.Periods != 4 {
		t.Fatalf("rated %d periods (%v), want the four that the commits between them hid", result.Periods, err)
	}
	exec(t, s, "INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, committed_at) SELECT 'alpha', '2026-11-01 05:45:00', '2026-11-01 06:45:00', 1, 'rated', generateUUIDv4(), 'EUR', now64(6) + 1")
	// The next hour is due as it ends, and no period is due that nobody rates.
	sendTraffic(t, s, []flow{{hour(6), "one", "alpha", "a", "z", qty("1")}})
	completeUntil(t, s, hour(7))
	for _, want := range []uint64{1, 0} {
		if result, err = run(t.Context(), s, options("2026-11-01T09:00:01Z")); err != nil || result.Periods != want {
			t.Errorf("rated %d periods (%v), want %d", result.Periods, err, want)
		}
	}
	if off, err = s.OffGridCommits(t.Context()); err != nil || len(off) != 1 || off[0].Periods != 1 || !off[0].First.Equal(hour(5)) {
		t.Errorf("off the grid: %+v (%v), want the one within 05:00", off, err)
	}
	if _, err := again(t.Context(), s, options("2026-11-01T09:00:01Z"), "alpha", hour(0), hour(7)); err != nil {
		t.Fatal(err)
	}
	exec(t, s, "ALTER TABLE period_commits UPDATE committed_at = now64(6) - 10 WHERE toMinute(begin) != 0 SETTINGS mutations_sync = 2")
	if off, err = s.OffGridCommits(t.Context()); err != nil || len(off) > 0 {
		t.Errorf("off the grid after a reprocess: %+v (%v), want none", off, err)
	}
	exec(t, s, "ALTER TABLE period_commits DELETE WHERE toMinute(begin) != 0 SETTINGS mutations_sync = 2")
	if diff := cmp.Diff(whole+"\nalpha 01 06:00 1", commitsThatCount(t, s)); diff != "" {
		t.Errorf("commits (-want +got):\n%s", diff)
	}
}

// Periods that a changed carry-in cannot be settled for, for their usage is lost or
// expired, keep nothing else from being done and are named at the end.
func TestWhatIsWrongWithCarriesComesAfterEverythingElse(t *testing.T) {
	const graduated = `
currency: EUR
services:
  - name: traffic
    tiers: [{id: t, steps: [{up_to: "3", cost: "1"}, {cost: "0.5"}]}]
`
	s := addTraffic(t, storetest.Open(t)) // it changes a tier's TTL
	prepare := func(t *testing.T) {
		t.Helper()
		anew(t, s, graduated)
		for n := range 4 {
			sendTraffic(t, s, []flow{{hour(n), "one", "alpha", "a", "z", qty("0.5")}, {hour(n), "one", "alpha", "b", "z", qty("0.5")}})
		}
		if _, err := run(t.Context(), s, options("2026-11-01T05:00:01Z")); err != nil {
			t.Fatal(err)
		}
		// The first hour is due again, and has used more.
		sendTraffic(t, s, []flow{{hour(0), "one", "alpha", "c", "z", qty("2.5")}})
		exec(t, s, "INSERT INTO period_commits (scope, begin, end, revision, kind, run_id) SELECT 'alpha', '2026-11-01 00:00:00', '2026-11-01 01:00:00', 2, 'reset', generateUUIDv4()")
	}
	t.Run("usage lost", func(t *testing.T) {
		prepare(t)
		exec(t, s, "DELETE FROM traffic WHERE id = 'b' AND at = '2026-11-01 01:00:00'")
		before := looks(t, s)
		result, err := run(t.Context(), s, options("2026-11-01T05:00:01Z"))
		if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "scope alpha: 2026-11-01T01:00:00Z/2026-11-01T02:00:00Z: what was used before it") {
			t.Errorf("error %v (exit %d), want exit %d that names the period", err, ratebatch.ExitCode(err), ratebatch.ExitHalted)
		}
		// The third hour begins in another tier, as the second does; the last does so before and now.
		if !result.Ended || result.Lost != 1 || result.Carried != 1 || looks(t, s) != before {
			t.Errorf("ended %t, %d periods lost, %d carried, %d looks, want all but the one that lost usage settled and no look", result.Ended, result.Lost, result.Carried, looks(t, s)-before)
		}
		want := "alpha 01 00:00 3.25\nalpha 01 01:00 1\nalpha 01 02:00 0.5\nalpha 01 03:00 0.5"
		if diff := cmp.Diff(want, commitsThatCount(t, s)); diff != "" {
			t.Errorf("commits (-want +got):\n%s", diff)
		}
		if result, err = run(t.Context(), s, options("2026-11-01T05:00:01Z")); ratebatch.ExitCode(err) != ratebatch.ExitHalted || result.Periods != 0 || result.Lost != 1 {
			t.Errorf("the next run rated %d periods, %d lost, %v, want the same period named", result.Periods, result.Lost, err)
		}
		// What the hint says mends it.
		sendTraffic(t, s, []flow{{hour(1), "one", "alpha", "b", "z", qty("0.5")}})
		if _, err = again(t.Context(), s, options("2026-11-01T05:00:01Z"), "alpha", hour(1), hour(2)); err != nil {
			t.Fatal(err)
		}
		if got, want := commitsThatCount(t, s), strings.Replace(want, "01:00 1", "01:00 0.5", 1); got != want {
			t.Errorf("commits after the reprocess:\n%s\nwant\n%s", got, want)
		}
	})
	// keepFor has the set read a tier that keeps its rows for no longer.
	keepFor := func(t *testing.T, hours int) {
		t.Helper()
		applyMetrics(t, s, trafficMetrics+"  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n", time.Unix(0, 0))
		exec(t, s, fmt.Sprintf("ALTER TABLE instance_metrics_hourly MODIFY TTL bucket + toIntervalSecond(%d)", hours*3600))
	}
	t.Run("what is due elsewhere is expired", func(t *testing.T) {
		prepare(t)
		keepFor(t, 26)
		sendTraffic(t, s, []flow{{at("2026-10-30T20:00:00Z"), "one", "beta", "b", "z", qty("1")}})
		o := options("2026-11-01T05:00:01Z")
		o.First = rate.FirstPeriod{Kind: "usage"}
		result, err := run(t.Context(), s, o)
		if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "8 periods are due") {
			t.Errorf("error %v (exit %d), want exit %d for the 8 expired periods", err, ratebatch.ExitCode(err), ratebatch.ExitHalted)
		}
		if !result.Ended || result.Carried != 2 {
			t.Errorf("ended %t, %d carried, want the two changed periods rated again", result.Ended, result.Carried)
		}
		if got, want := commitsThatCount(t, s), "alpha 01 00:00 3.25\nalpha 01 01:00 0.5\nalpha 01 02:00 0.5\nalpha 01 03:00 0.5"; !strings.HasPrefix(got, want) {
			t.Errorf("commits\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("the carries are expired themselves", func(t *testing.T) {
		exec(t, s, "ALTER TABLE instance_metrics_hourly REMOVE TTL")
		prepare(t)
		o := options("2026-11-01T05:00:01Z")
		if _, err := run(t.Context(), s, o); err != nil {
			t.Fatal(err)
		}
		// As if that run had died before it came to the carries.
		exec(t, s, "TRUNCATE TABLE carry_looks")
		exec(t, s, "ALTER TABLE period_commits DELETE WHERE revision > 1 AND begin > '2026-11-01 00:00:00' SETTINGS mutations_sync = 2")
		keepFor(t, 4)
		result, err := run(t.Context(), s, o)
		if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "1 periods are due") || !result.Ended || result.Carried != 1 {
			t.Errorf("error %v (exit %d), ended %t, %d carried, want the one that is kept rated and exit %d for the other", err, ratebatch.ExitCode(err), result.Ended, result.Carried, ratebatch.ExitHalted)
		}
		if got, want := commitsThatCount(t, s), "alpha 01 00:00 3.25\nalpha 01 01:00 1\nalpha 01 02:00 0.5\nalpha 01 03:00 0.5"; got != want {
			t.Errorf("commits\n%s\nwant\n%s", got, want)
		}
	})
}
