package rate_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// meddler does something before each statement that holds a text.
type meddler struct {
	driver.Conn
	text string
	do   func()
}

// Exec meddles and goes on.
func (m *meddler) Exec(ctx context.Context, query string, args ...any) error {
	if strings.Contains(query, m.text) {
		m.do()
	}
	return m.Conn.Exec(ctx, query, args...)
}

func failures(t testing.TB, s *store.Store) string {
	t.Helper()
	list, err := s.ScopeFailures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s from %s: %s", f.Scope, f.Begin.UTC().Format("15:04"), f.Error))
	}
	return strings.Join(out, "\n")
}

func commits(t testing.TB, s *store.Store) string {
	t.Helper()
	var text string
	if err := s.Conn().QueryRow(t.Context(), "SELECT arrayStringConcat(groupArray(concat(scope, ' ', toString(n))), ', ') FROM (SELECT scope, count() AS n FROM current_commits WHERE kind = 'rated' GROUP BY scope ORDER BY scope)").Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

const flatTraffic = `
currency: EUR
services:
  - name: traffic
    mappings: [{cost: "1", type: flat}]
`

func hour(n int) time.Time { return at("2026-11-01T00:00:00Z").Add(time.Duration(n) * time.Hour) }

func qty(text string) decimal.Decimal { return decimal.RequireFromString(text) }

// A scope whose usage changes all the time keeps nobody waiting: the first
// attempt commits all others. It is tried again alone, noted with its cause, and
// due at the next run.
func TestAChangingScopeHoldsNobodyUp(t *testing.T) {
	s := withTraffic(t)
	for name, changes := range map[string]string{ // %d is a number that grows
		"rows that are priced like others": "INSERT INTO traffic VALUES ('2026-11-01 01:00:00', 'one', 'beta', 'more-%d', 'z', 1)",
		"a quantity beyond those folded":   "INSERT INTO traffic VALUES ('2026-11-01 01:00:00', 'one', 'beta', 'b', 'z', 1%d)",
		"several scopes":                   "INSERT INTO traffic VALUES ('2026-11-01 01:00:00', 'one', 'beta', 'b-%[1]d', 'z', 1), ('2026-11-01 01:00:00', 'one', 'delta', 'd-%[1]d', 'z', 1)",
	} {
		t.Run(name, func(t *testing.T) {
			anew(t, s, flatTraffic)
			sendTraffic(t, s, []flow{{hour(0), "one", "alpha", "a", "z", qty("1")}, {hour(0), "one", "beta", "b", "z", qty("1")}, {hour(1), "one", "beta", "b", "z", qty("1")}, {hour(1), "one", "gamma", "c", "z", qty("1")}, {hour(1), "one", "delta", "d", "z", qty("1")}})
			n := 0
			m := &meddler{Conn: s.Conn(), text: "INSERT INTO rated_lines", do: func() {
				n++
				exec(t, s, fmt.Sprintf(changes, n))
			}}
			result, err := run(t.Context(), store.New(m, s.Database()), options("2026-11-01T03:00:01Z"))
			if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "all others are rated") {
				t.Errorf("error = %v, want exit 75 that names the scope left out", err)
			}
			for _, want := range []string{"alpha 2", "gamma 2"} {
				if got := commits(t, s); !strings.Contains(got, want) {
					t.Errorf("rated: %s, want %s among them", got, want)
				}
			}
			if len(result.Failed) == 0 || len(result.Attempts) != 3 {
				t.Errorf("%d attempts, failed %+v: want three attempts and a scope that failed", len(result.Attempts), result.Failed)
			}
			for _, f := range result.Failed {
				if f.Scope != "beta" && f.Scope != "delta" || !strings.Contains(f.Error, "usage changed while it was rated") || !f.Begin.Equal(hour(1)) {
					t.Errorf("failed: %+v", f)
				}
				if got := failures(t, s); !strings.Contains(got, f.Scope+" from 01:00: usage changed while it was rated") {
					t.Errorf("noted: %s", got)
				}
			}
			// Once it holds still it is rated, and no failure is left.
			if _, err := run(t.Context(), s, options("2026-11-01T03:00:01Z")); err != nil {
				t.Fatal(err)
			}
			if got := commits(t, s); got != "alpha 2, beta 2, delta 2, gamma 2" {
				t.Errorf("rated after the next run: %s", got)
			}
			if got := failures(t, s); got != "" {
				t.Errorf("failures after the next run: %s", got)
			}
			var owed, used string
			if err := s.Conn().QueryRow(t.Context(), "SELECT (SELECT toString(sum(price)) FROM rated), (SELECT toString(sum(amount)) FROM traffic)").Scan(&owed, &used); err != nil || owed != used {
				t.Errorf("owed %s for %s (%v)", owed, used, err)
			}
		})
	}
}

// A row of a kind that the pass has not seen is not in the lines and not in what
// the commit says it read: the period is as if the row had come a moment later.
func TestARowThatNobodyFoldedComesLate(t *testing.T) {
	s := withTraffic(t)
	applyPlan(t, s, strings.Replace(flatTraffic, `[{cost: "1", type: flat}]`, `[{cost: "1", type: flat}]
    fields: [{name: zone, mappings: [{value: new, cost: "5", type: flat}]}]`, 1), time.Unix(0, 0))
	sendTraffic(t, s, []flow{{hour(0), "one", "alpha", "a", "z", qty("1")}})
	once := false
	m := &meddler{Conn: s.Conn(), text: "INSERT INTO rated_lines", do: func() {
		if !once {
			sendTraffic(t, s, []flow{{hour(0), "one", "alpha", "b", "new", qty("1")}})
		}
		once = true
	}}
	result, err := run(t.Context(), store.New(m, s.Database()), options("2026-11-01T03:00:01Z"))
	if err != nil || len(result.Attempts) != 1 {
		t.Fatalf("%v after %d attempts, want one that goes through", err, len(result.Attempts))
	}
	var rows, lines uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT sum(usage_rows), sum(lines) FROM current_commits").Scan(&rows, &lines); err != nil || rows != 1 || lines != 1 {
		t.Errorf("commits of %d usage rows and %d lines (%v), want those that were there when usage was counted", rows, lines, err)
	}
}

// What a scope's rows hold stops that scope alone: it is noted with its cause,
// everybody else is rated, and the run ends with exit 20.
func TestAScopeThatCannotBeRatedStopsNobodyElse(t *testing.T) {
	s := withTraffic(t)
	const tiered = `
currency: EUR
services:
  - name: traffic
    tiers: [{id: t, steps: [{up_to: "10", cost: "1"}, {cost: "0.5"}]}]
`
	for name, tt := range map[string]struct {
		plan  string
		bad   []flow
		mend  string
		cause string
	}{
		"a row off its bucket": {flatTraffic,
			[]flow{{hour(1).Add(time.Minute), "one", "s02", "x", "z", qty("1")}, {hour(0).Add(time.Minute), "one", "s07", "x", "z", qty("1")}},
			"ALTER TABLE traffic DELETE WHERE id = 'x' SETTINGS mutations_sync = 2", "does not begin on a boundary of its bucket"},
		"an account that adds up beyond 1e20": {tiered,
			[]flow{{hour(0), "one", "s02", "x", "z", qty("9e19")}, {hour(1), "one", "s02", "x", "z", qty("9e19")}, {hour(0), "one", "s07", "x", "z", qty("9e19")}, {hour(0), "one", "s07", "y", "z", qty("9e19")}},
			"ALTER TABLE traffic DELETE WHERE amount > 1000 SETTINGS mutations_sync = 2", "verflow"},
	} {
		t.Run(name, func(t *testing.T) {
			anew(t, s, tt.plan)
			var flows []flow
			for i := range 9 {
				flows = append(flows, flow{hour(0), "one", fmt.Sprintf("s%02d", i), "a", "z", qty("1")}, flow{hour(1), "one", fmt.Sprintf("s%02d", i), "a", "z", qty("1")})
			}
			sendTraffic(t, s, append(flows, tt.bad...))
			result, err := run(t.Context(), s, options("2026-11-01T03:00:01Z"))
			if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "scope s02 was left out from 2026-11-01T01:00:00Z on, all others are rated") || !strings.Contains(err.Error(), "scope s07 was left out") {
				t.Errorf("error = %v (exit %d), want exit 20 that names both scopes", err, ratebatch.ExitCode(err))
			}
			if got, want := commits(t, s), "s00 2, s01 2, s02 1, s03 2, s04 2, s05 2, s06 2, s08 2"; got != want {
				t.Errorf("rated: %s, want %s", got, want)
			}
			if got := failures(t, s); strings.Count(got, tt.cause) != 2 || strings.Count(got, "\n") != 1 {
				t.Errorf("noted: %s, want two scopes with %q", got, tt.cause)
			}
			if len(result.Failed) != 2 || result.Periods != 15 {
				t.Errorf("result: %+v", result)
			}
			exec(t, s, tt.mend)
			if _, err := run(t.Context(), s, options("2026-11-01T03:00:01Z")); err != nil {
				t.Errorf("after the rows were corrected: %v", err)
			}
			if got := commits(t, s); strings.Count(got, " 2") != 9 || failures(t, s) != "" {
				t.Errorf("after the rows were corrected: rated %s, failures %s", got, failures(t, s))
			}
		})
	}
	// Where every scope fails it is no matter of scopes: the run ends soon.
	anew(t, s, flatTraffic)
	var flows []flow
	for i := range 30 {
		flows = append(flows, flow{hour(0).Add(time.Minute), "one", fmt.Sprintf("s%03d", i), "a", "z", qty("1")})
	}
	sendTraffic(t, s, flows)
	result, err := run(t.Context(), s, options("2026-11-01T03:00:01Z"))
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || len(result.Attempts) > 40 {
		t.Errorf("every scope fails: %v after %d attempts", err, len(result.Attempts))
	}
}

// anew empties the traffic and what rating wrote, and applies a plan.
func anew(t testing.TB, s *store.Store, text string) {
	t.Helper()
	forget(t, s)
	exec(t, s, "TRUNCATE TABLE scope_failures")
	applyPlan(t, s, text, time.Unix(0, 0))
}

// A look for late usage goes around a scope whose rows cannot be read, and looks
// again from the same moment until it can.
func TestALookGoesAroundAScopeThatCannotBeRead(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	o := options("2026-11-01T06:00:01Z")
	if _, err := run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	look := func() (rate.LateResult, error) {
		job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
		return job.Look(t.Context(), &jobs.Run{ID: uuid.New()})
	}
	if _, err := look(); err != nil {
		t.Fatal(err)
	}
	row := func(n int, project, seconds, refreshed string) string {
		return fmt.Sprintf("INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, samples, covered_seconds, refreshed_at) VALUES ('2026-11-01 00:00:00', 'one', '00000000-0000-0000-0000-%012d', '%s', 'm1.large', 4, 60, %s, %s)", n, project, seconds, refreshed)
	}
	exec(t, s, row(21, "alpha", "3600", "now() + 60"))
	exec(t, s, row(22, "beta", "-1", "now() + 60"))
	found, err := look()
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "late usage of scope beta, all others were looked at") {
		t.Errorf("error = %v (exit %d), want exit 20 that names beta", err, ratebatch.ExitCode(err))
	}
	if found.Late != 1 || !found.Difference["EUR"].Equal(qty("0.2")) {
		t.Errorf("found %+v, want alpha's instance hour", found)
	}
	if got := failures(t, s); !strings.Contains(got, "beta") || !strings.Contains(got, "covers less than no time") {
		t.Errorf("noted: %s", got)
	}
	exec(t, s, "ALTER TABLE instance_metrics_hourly UPDATE covered_seconds = 3600 WHERE covered_seconds < 0 SETTINGS mutations_sync = 2")
	if found, err := look(); err != nil || found.Late != 1 {
		t.Errorf("after the row was corrected: %+v, %v, want beta's hour and no other again", found, err)
	}
	if got := failures(t, s); got != "" {
		t.Errorf("after the row was corrected: still noted: %s", got)
	}
}

// A failure is over when nobody is to rate its period any more, not only when the
// period is rated: nobody could end the alarm otherwise.
func TestAFailureEndsWithItsCause(t *testing.T) {
	s := withTraffic(t)
	for name, mend := range map[string]string{
		"the row is gone, and its scope with it": "ALTER TABLE traffic DELETE WHERE scope = 'beta' SETTINGS mutations_sync = 2",
		"the scope is disabled":                  "INSERT INTO scopes (scope, active, fetcher) VALUES ('beta', false, 'operator')",
	} {
		t.Run(name, func(t *testing.T) {
			anew(t, s, flatTraffic)
			sendTraffic(t, s, []flow{{hour(0), "one", "alpha", "a", "z", qty("1")}, {hour(0).Add(time.Minute), "one", "beta", "b", "z", qty("1")}})
			if _, err := run(t.Context(), s, options("2026-11-01T02:00:01Z")); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(failures(t, s), "beta from 00:00") {
				t.Fatalf("%v, noted %s, want a failure of beta", err, failures(t, s))
			}
			exec(t, s, mend)
			if _, err := run(t.Context(), s, options("2026-11-01T02:00:01Z")); err != nil {
				t.Error(err)
			}
			if got := failures(t, s); got != "" {
				t.Errorf("still noted: %s", got)
			}
			exec(t, s, "TRUNCATE TABLE scopes")
		})
	}
}

// A scope that cannot be rated does not hide what it failed for where its month has
// tiers and its carry-in has changed, and the others' carry-ins are settled.
func TestAFailingScopesCarriesAreSettledLater(t *testing.T) {
	s := withTraffic(t)
	anew(t, s, `
currency: EUR
services:
  - name: traffic
    tiers: [{id: t, steps: [{up_to: "2", cost: "1"}, {cost: "0.5"}]}]
`)
	send := func(n int, amount string) {
		sendTraffic(t, s, []flow{{hour(n), "one", "alpha", "a", "z", qty(amount)}, {hour(n), "one", "beta", "b", "z", qty(amount)}})
	}
	for n := range 4 {
		send(n, "1")
	}
	if _, err := run(t.Context(), s, options("2026-11-01T05:00:01Z")); err != nil {
		t.Fatal(err)
	}
	// The first hour of both is rated again with more usage; what follows costs less
	// by it, and the second hour of beta cannot be read any more.
	exec(t, s, "ALTER TABLE traffic UPDATE amount = 3 WHERE at = '2026-11-01 00:00:00' SETTINGS mutations_sync = 2")
	sendTraffic(t, s, []flow{{hour(1).Add(time.Minute), "one", "beta", "b", "z", qty("1")}})
	exec(t, s, "ALTER TABLE period_commits DELETE WHERE begin = '2026-11-01 00:00:00' SETTINGS mutations_sync = 2")
	_, err := run(t.Context(), s, options("2026-11-01T05:00:01Z"))
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(fmt.Sprint(err), "scope beta was left out from 2026-11-01T01:00:00Z on, all others are rated") {
		t.Errorf("error = %v (exit %d), want exit 20 that names beta", err, ratebatch.ExitCode(err))
	}
	owed := func() string {
		var text string
		if err := s.Conn().QueryRow(t.Context(), "SELECT arrayStringConcat(groupArray(concat(scope, ' ', toString(p))), ', ') FROM (SELECT scope, sum(price) AS p FROM rated GROUP BY scope ORDER BY scope)").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := owed(); !strings.HasPrefix(got, "alpha 4, ") { // 2 at 1, 4 at 0.5
		t.Errorf("owed: %s, want alpha 4", got)
	}
	exec(t, s, "ALTER TABLE traffic DELETE WHERE at = '2026-11-01 01:01:00' SETTINGS mutations_sync = 2")
	if _, err := run(t.Context(), s, options("2026-11-01T05:00:01Z")); err != nil {
		t.Error(err)
	}
	if got := owed(); got != "alpha 4, beta 4" || failures(t, s) != "" {
		t.Errorf("after the row was corrected: owed %s, failures %s", got, failures(t, s))
	}
}
