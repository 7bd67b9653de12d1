package rate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// again rates one stretch of a scope again.
func again(ctx context.Context, s *store.Store, o rate.Options, scope string, from, to time.Time) (rate.Result, error) {
	job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	r, err := jobs.Start(ctx, s, "reprocess", nil, "test", o.Now)
	if err != nil {
		return rate.Result{}, err
	}
	since, err := s.Now(ctx)
	if err != nil {
		return rate.Result{}, err
	}
	p, _, err := job.PlanAgain(ctx, rate.Again{Scopes: []string{scope}, From: from, To: to, Since: since, Reason: "usage arrived"})
	if err != nil {
		return rate.Result{}, err
	}
	return job.Run(ctx, p, r)
}

// idleRevisions counts the revisions that a changed carry-in made although
// their lines are those of the revision before.
func idleRevisions(t testing.TB, s *store.Store) uint64 {
	t.Helper()
	var n uint64
	if err := s.Conn().QueryRow(t.Context(), `SELECT count() FROM (SELECT scope, begin, revision, any(line_digest) AS d, any(reason) AS why FROM period_commits WHERE kind = 'rated' GROUP BY scope, begin, revision) AS a
		INNER JOIN (SELECT scope, begin, revision, any(line_digest) AS d FROM period_commits WHERE kind = 'rated' GROUP BY scope, begin, revision) AS b
		ON a.scope = b.scope AND a.begin = b.begin AND a.revision = b.revision + 1
		WHERE a.d = b.d AND a.why = 'what was used before it in the month changed'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Hour by hour, in one go, with usage that arrives late, resets and reprocesses
// in any order: the lines that count at the end are the same, and no period was
// rated again whose lines did not change.
func TestPropertyOrderDoesNotMatter(t *testing.T) {
	s := withTraffic(t)
	if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": "two", "complete_until": at("2027-01-01T00:00:00Z"), "source": "operator", "note": ""}); err != nil {
		t.Fatal(err)
	}
	storetest.Checks(t, 5)
	carried := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		text, edges := drawTiers(rt)
		if rapid.Bool().Draw(rt, "charges") {
			text += fmt.Sprintf("discounts:\n  - {percent: 12.5}\n  - {percent: 3, metric: traffic, scope: s1}\ncharges:\n  - {kind: minimum, amount: %d}\n  - {kind: cap, amount: 100, scope: s0}\n", rapid.SampledFrom([]int{0, 5, 100}).Draw(rt, "least"))
		}
		const hours = 4 // a case rates each of them by itself, which takes most of the time
		start := at("2026-11-30T18:00:00Z")
		flows := drawFlows(rt, start, edges, 2, hours, 4)
		o := options("2026-12-01T02:00:01Z")
		o.First = rate.FirstPeriod{Kind: "date", Date: at("2026-11-30T00:00:00Z")}
		must := func(r rate.Result, err error) {
			rt.Helper()
			if err != nil {
				rt.Fatalf("%v\n%s", err, text)
			}
			carried += r.Carried
		}
		forget(t, s)
		applyPlan(t, s, text, time.Unix(0, 0))
		sendTraffic(t, s, flows)
		must(run(t.Context(), s, o))
		want := ratedLines(t, s)

		forget(t, s)
		applyPlan(t, s, text, time.Unix(0, 0))
		type place struct {
			scope string
			begin time.Time
		}
		seen := map[place]bool{}
		var all []place
		for _, f := range flows {
			if k := (place{f.scope, f.begin}); !seen[k] {
				seen[k] = true
				all = append(all, k)
			}
		}
		var places []place // of which some usage is late: a few, in any order
		if len(all) > 0 {
			all = rapid.Permutation(all).Draw(rt, "order")
			places = all[:min(3, len(all))]
		}
		late := map[int]bool{}
		var first []flow
		for i, f := range flows {
			late[i] = slices.Contains(places, place{f.scope, f.begin}) && rapid.Bool().Draw(rt, "late")
			if !late[i] {
				first = append(first, f)
			}
		}
		sendTraffic(t, s, first)
		if rapid.Bool().Draw(rt, "hour by hour") {
			for h := range hours {
				hourly := o
				hourly.Now = start.Add(time.Duration(h+2)*time.Hour + time.Second)
				must(run(t.Context(), s, hourly))
			}
		} else {
			must(run(t.Context(), s, o))
		}
		// What is late arrives and its periods are rated again, in any order.
		for _, k := range places {
			var batch []flow
			for i, f := range flows {
				if late[i] && f.scope == k.scope && f.begin.Equal(k.begin) {
					batch = append(batch, f)
				}
			}
			sendTraffic(t, s, batch)
			must(again(t.Context(), s, o, k.scope, k.begin, k.begin.Add(time.Hour)))
		}
		if rapid.IntRange(0, 2).Draw(rt, "reset") == 0 {
			to := start.Add(time.Duration(rapid.IntRange(0, hours-1).Draw(rt, "reset to")) * time.Hour)
			if err := s.InsertResets(t.Context(), uuid.New(), store.ResetScopes{Only: []string{"s0"}}, to, "test", "test", uuid.NewString()); err != nil {
				rt.Fatal(err)
			}
		}
		must(run(t.Context(), s, o))
		equalLines(rt, text, ratedLines(t, s), want)
		if n := idleRevisions(t, s); n > 0 {
			rt.Fatalf("%d revisions changed nothing\n%s", n, text)
		}
		if x := repriced(t, s, start); x.Result == reconcile.Fails {
			rt.Fatalf("reconcile: %+v\n%s", x, text)
		}
	})
	t.Logf("%d periods were rated again for their carry-in", carried) // few cases may draw none; the test below has its own
}

// Only the periods whose lines really change get a revision, and a volume tier
// that is crossed has one adjustment in the month, wherever the crossing moves.
//
// Six hours of 4 units each with an edge at 10: s0 graduated is cut in hour 2
// (8 to 12), s1 by volume crosses in hour 2, with an adjustment of 8.
func TestOnlyPeriodsWhoseLinesChangeGetARevision(t *testing.T) {
	s := withTraffic(t)
	const text = "currency: EUR\nservices: [{name: traffic, tiers: [{id: g, steps: [{up_to: 10, cost: 2}, {cost: 1}]}, {id: v, scope: s1, kind: volume, steps: [{up_to: 10, cost: 2}, {cost: 1}]}]}]\n"
	applyPlan(t, s, text, time.Unix(0, 0))
	start := at("2026-11-01T00:00:00Z")
	hour := func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }
	var flows []flow
	for n := range 6 {
		for _, scope := range []string{"s0", "s1"} {
			flows = append(flows, flow{hour(n), "one", scope, "a", "", decimal.New(4, 0)})
		}
	}
	sendTraffic(t, s, flows)
	o := options("2026-11-01T07:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	late := func(scope string, n int, id string) func() (rate.Result, error) {
		return func() (rate.Result, error) {
			f := flow{hour(n), "one", scope, id, "", decimal.New(1, 0)}
			flows = append(flows, f)
			sendTraffic(t, s, []flow{f})
			return again(t.Context(), s, o, scope, hour(n), hour(n+1))
		}
	}
	for _, step := range []struct {
		what      string
		do        func() (rate.Result, error)
		carried   uint64
		revisions string // of s0's six hours, and of s1's
		adjusted  string // hour and quantity of the adjustments
	}{
		{"as rated", func() (rate.Result, error) { return rate.Result{}, nil }, 0, "1 1 1 1 1 1, 1 1 1 1 1 1", "02 8"},
		{"late in s0: hour 2 is cut at another place", late("s0", 0, "b"), 1, "2 1 2 1 1 1, 1 1 1 1 1 1", "02 8"},
		{"late in s1: another quantity to adjust", late("s1", 0, "b"), 1, "2 1 2 1 1 1, 2 1 2 1 1 1", "02 9"},
		{"hour 1 of s1 ends exactly at the edge", late("s1", 1, "b"), 1, "2 1 2 1 1 1, 2 2 3 1 1 1", "02 10"},
		{"the crossing moves to hour 1", late("s1", 1, "c"), 1, "2 1 2 1 1 1, 2 3 4 1 1 1", "01 5"},
		{"late past the crossings changes no other hour", late("s0", 3, "b"), 0, "2 1 2 2 1 1, 2 3 4 1 1 1", "01 5"},
		{"a reprocess that finds nothing new", func() (rate.Result, error) { return again(t.Context(), s, o, "s1", hour(0), hour(2)) }, 0, "2 1 2 2 1 1, 3 4 4 1 1 1", "01 5"},
		{"a reset to hour 4 is rated again, the hours before stay", func() (rate.Result, error) {
			if err := s.InsertResets(t.Context(), uuid.New(), store.ResetScopes{Only: []string{"s0"}}, hour(4), "test", "test", uuid.NewString()); err != nil {
				return rate.Result{}, err
			}
			return run(t.Context(), s, o)
		}, 0, "2 1 2 2 3 3, 3 4 4 1 1 1", "01 5"},
		{"a run with nothing to do", func() (rate.Result, error) { return run(t.Context(), s, o) }, 0, "2 1 2 2 3 3, 3 4 4 1 1 1", "01 5"},
	} {
		result, err := step.do()
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if result.Carried != step.carried {
			t.Errorf("%s: %d periods were rated again for their carry-in, want %d", step.what, result.Carried, step.carried)
		}
		var revisions, adjusted string
		if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(groupArray(list), ', ') FROM (SELECT arrayStringConcat(groupArray(toString(revision)), ' ') AS list
			FROM (SELECT scope, begin, max(revision) AS revision FROM period_commits GROUP BY scope, begin ORDER BY scope, begin) GROUP BY scope ORDER BY scope)`).Scan(&revisions); err != nil {
			t.Fatal(err)
		}
		if err := s.Conn().QueryRow(t.Context(), `SELECT arrayStringConcat(groupArray(concat(formatDateTime(begin, '%H', 'UTC'), ' ', toString(qty))), ', ') FROM rated WHERE metric = 'adjustment'`).Scan(&adjusted); err != nil {
			t.Fatal(err)
		}
		if revisions != step.revisions || adjusted != step.adjusted {
			t.Errorf("%s: revisions %s, want %s; adjustments %q, want %q", step.what, revisions, step.revisions, adjusted, step.adjusted)
		}
		if got, want := ratedLines(t, s), expectedLines(t, text, flows); !slices.Equal(got, want) {
			t.Fatalf("%s: lines\n%s\nwant\n%s", step.what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A row of nothing that ends up behind the edge has the next tier's price, though
// its period lies within one tier before and after: hour 1 ends exactly at 10 once
// the late unit is there, and its row of 0 then begins the second tier. Hour 1
// of s1 has none, so nothing of it changes.
func TestARowOfNothingAtTheEdge(t *testing.T) {
	s := withTraffic(t)
	const text = "currency: EUR\nservices: [{name: traffic, tiers: [{id: g, steps: [{up_to: 10, cost: 2}, {cost: 1}]}]}]\n"
	applyPlan(t, s, text, time.Unix(0, 0))
	start := at("2026-11-01T00:00:00Z")
	var flows []flow
	for _, scope := range []string{"s0", "s1"} {
		flows = append(flows, flow{start, "one", scope, "a", "", decimal.New(4, 0)}, flow{start.Add(time.Hour), "one", scope, "a", "", decimal.New(5, 0)})
	}
	flows = append(flows, flow{start.Add(time.Hour), "one", "s0", "b", "", decimal.Zero}, flow{start.Add(time.Hour), "one", "s0", "c", "", decimal.New(-1, 0)})
	sendTraffic(t, s, flows)
	o := options("2026-11-01T05:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		scope, id string
		carried   uint64
	}{{"s0", "late", 1}, {"s1", "late", 0}, {"s0", "later", 1}, {"s1", "later", 1}} { // 11: past the edge, hour 1 is cut
		f := flow{start, "one", step.scope, step.id, "", decimal.New(1, 0)}
		flows = append(flows, f)
		sendTraffic(t, s, []flow{f})
		result, err := again(t.Context(), s, o, step.scope, start, start.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if result.Carried != step.carried {
			t.Errorf("%s %s: %d periods were rated again, want %d", step.scope, step.id, result.Carried, step.carried)
		}
		if got, want := ratedLines(t, s), expectedLines(t, text, flows); !slices.Equal(got, want) {
			t.Fatalf("%s %s: lines\n%s\nwant\n%s", step.scope, step.id, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if n := idleRevisions(t, s); n > 0 {
		t.Errorf("%d revisions changed nothing", n)
	}
}

// edgeAtTen has a tier that fourHours reach in the third of them.
const edgeAtTen = "currency: EUR\nservices: [{name: traffic, tiers: [{id: g, steps: [{up_to: 10, cost: 2}, {cost: 1}]}]}]\n"

// fourHours rates four hours of four units each by edgeAtTen.
func fourHours(t *testing.T, s *store.Store) (rate.Options, []flow) {
	t.Helper()
	applyPlan(t, s, edgeAtTen, time.Unix(0, 0))
	var flows []flow
	for hour := range 4 {
		flows = append(flows, flow{at("2026-11-01T00:00:00Z").Add(time.Duration(hour) * time.Hour), "one", "s0", "a", "", decimal.New(4, 0)})
	}
	sendTraffic(t, s, flows)
	o := options("2026-11-01T06:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	return o, flows
}

// cutCorrection sends five units late for the first of fourHours and rates it again
// in a run that is cut between its commits and the look at what they changed. It
// gives what goes on with it.
func cutCorrection(t *testing.T, s *store.Store, o rate.Options) (late flow, goOn func() (rate.Result, error), job *rate.Job) {
	t.Helper()
	start := at("2026-11-01T00:00:00Z")
	late = flow{start, "one", "s0", "b", "", decimal.New(5, 0)}
	sendTraffic(t, s, []flow{late})
	job = &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	r, err := jobs.Start(t.Context(), s, "reprocess", nil, "test", o.Now)
	if err != nil {
		t.Fatal(err)
	}
	since, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	goOn = func() (rate.Result, error) {
		p, _, err := job.PlanAgain(t.Context(), rate.Again{Scopes: []string{"s0"}, From: start, To: start.Add(time.Hour), Since: since, Reason: "late"})
		if err != nil {
			return rate.Result{}, err
		}
		return job.Run(t.Context(), p, r)
	}
	cut := errors.New("cut")
	job.Passed = func(context.Context, time.Time) error { return cut }
	if _, err := goOn(); !errors.Is(err, cut) {
		t.Fatalf("the run was not cut: %v", err)
	}
	job.Passed = nil
	return late, goOn, job
}

// A run that is cut between its commits and the look at what they changed is
// made up for by the next, though nothing is due then.
func TestACutBeforeTheLookIsMadeUpFor(t *testing.T) {
	s := withTraffic(t)
	o, flows := fourHours(t, s)
	late, _, _ := cutCorrection(t, s, o)
	flows = append(flows, late)
	result, err := run(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	// 9, 4, 4 and 4 units with an edge at 10: the second hour is cut at another
	// place, the third lies in the upper tier now, the fourth did before.
	if result.Carried != 2 {
		t.Errorf("%d periods were rated again, want 2", result.Carried)
	}
	if got, want := ratedLines(t, s), expectedLines(t, edgeAtTen, flows); !slices.Equal(got, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
