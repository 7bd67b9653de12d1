package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// billed is the database that the tests of state take turns at: two projects
// of one instance each, the first six hours of 30 November 2026 and the two
// days before December's first hour, at 1 EUR an hour.
type billed struct {
	*testing.T
	flags []string
	e     *engine.Engine
	s     *store.Store
}

const hourPlan = `
currency: EUR
services:
  - name: instance
    mappings:
      - {cost: "%s", type: flat}
`

func newBilled(t *testing.T) *billed {
	t.Helper()
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	b.usage("alpha", "2026-11-30 20:00:00", 6, "3600", "2026-11-28 00:00:00")
	b.usage("beta", "2026-11-30 20:00:00", 6, "1800", "2026-11-28 00:00:00")
	b.must("watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")
	b.plan("1.00")
	return b
}

// usage writes one instance's hours.
func (b *billed) usage(scope, begin string, hours int, seconds, refreshed string) {
	b.Helper()
	ctx := store.WithParams(b.Context(), store.Params{"scope": scope, "begin": begin, "hours": hours, "seconds": seconds, "refreshed": refreshed})
	if err := b.e.Conn().Exec(ctx, `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds, refreshed_at)
		SELECT toDateTime({begin:String}, 'UTC') + 3600 * number, 'one', reinterpret(sipHash128({scope:String}), 'UUID'), {scope:String}, 'm1', 1, 'vm', 60, 60, toDecimal32({seconds:String}, 3), 0, toDateTime({refreshed:String}, 'UTC')
		FROM numbers({hours:UInt32})`); err != nil {
		b.Fatal(err)
	}
}

func (b *billed) sql(text string) {
	b.Helper()
	if err := b.e.Conn().Exec(b.Context(), text); err != nil {
		b.Fatalf("%.200s: %v", text, err)
	}
}

func (b *billed) plan(cost string, more ...string) {
	b.Helper()
	b.must(append([]string{"plan", "apply", b.file("plan.yaml", strings.Replace(hourPlan, "%s", cost, 1))}, more...)...)
}

func (b *billed) must(args ...string) string {
	b.Helper()
	return must(b.T, append(append([]string{}, b.flags...), args...)...)
}

// fails runs a command that has to exit with a code and say something.
func (b *billed) fails(code int, want string, args ...string) string {
	b.Helper()
	got, stdout, stderr := cli(b.T, append(append([]string{}, b.flags...), args...)...)
	if got != code || !strings.Contains(stderr, want) {
		b.Errorf("ratebatch %s: exit %d, want %d with %q\n%s%s", strings.Join(args, " "), got, code, want, stdout, stderr)
	}
	return stdout + stderr
}

// at is when the tests run.
const at = "2026-12-01T06:00:00Z"

func (b *billed) rate(more ...string) rated {
	b.Helper()
	return rateJSON(b.T, b.must(append([]string{"rate", "--output", "json", "--now", at, "--first-period", "usage"}, more...)...))
}

// owes is what each scope owes by the view rated.
func (b *billed) owes() string {
	b.Helper()
	return b.text("SELECT arrayStringConcat(groupArray(concat(scope, ' ', toString(price))), ', ') FROM (SELECT scope, sum(price) AS price FROM rated GROUP BY scope ORDER BY scope)")
}

func (b *billed) text(query string) string {
	b.Helper()
	var text string
	if err := b.e.Conn().QueryRow(b.Context(), query).Scan(&text); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return text
}

func (b *billed) owe(want string) {
	b.Helper()
	if got := b.owes(); got != want {
		b.Errorf("owed: %s, want %s", got, want)
	}
}

func TestResetForgetsFromATimeOn(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.owe("alpha 6, beta 3")
	b.fails(ratebatch.ExitConfig, "--reason is not given", "reset", "--all", "--to", "2026-12-01", "--yes")
	b.fails(ratebatch.ExitConfig, "--scope or --all is not given", "reset", "--to", "2026-12-01", "--reason", "x", "--yes")
	b.fails(ratebatch.ExitConfig, "the nearest begins are 2026-11-30T22:00:00Z and 2026-11-30T23:00:00Z", "reset", "--all", "--to", "2026-11-30T22:10:00Z", "--reason", "x", "--yes")
	b.fails(ratebatch.ExitConfig, "nothing was ever rated of scope gamma", "reset", "--scope", "gamma", "--to", "2026-12-01", "--reason", "x", "--yes")
	b.fails(ratebatch.ExitConfig, "needs a yes", "reset", "--scope", "alpha", "--to", "2026-12-01", "--reason", "x")
	if out := b.must("reset", "--scope", "alpha", "--to", "2026-11-30T22:00:00Z", "--reason", "x", "--dry-run"); !strings.Contains(out, "would forget 4 periods from 2026-11-30T22:00:00Z on") {
		t.Errorf("dry run: %s", out)
	}
	b.owe("alpha 6, beta 3")
	b.must("reset", "--scope", "alpha", "--to", "2026-11-30T22:00:00Z", "--reason", "wrong flavor", "--yes")
	b.owe("alpha 2, beta 3")
	if r := b.rate(); r.Periods != 4 || r.Scopes != 1 {
		t.Errorf("the next rate did %+v, want alpha's 4 periods", r)
	}
	b.owe("alpha 6, beta 3")
	// A time before the first commit forgets everything; doing it twice changes nothing.
	b.must("reset", "--all", "--to", "2026-01-01", "--reason", "all", "--yes")
	b.owe("")
	if out := b.must("reset", "--all", "--to", "2026-01-01", "--reason", "all", "--yes"); !strings.Contains(out, "nothing is rated") {
		t.Errorf("second reset: %s", out)
	}
	if r := b.rate(); r.Periods != 12 {
		t.Errorf("rated %d periods after a reset of all, want 12", r.Periods)
	}
	b.owe("alpha 6, beta 3")
	b.fails(ratebatch.ExitHalted, "reset to", "reset", "--all", "--to", "2026-01-01", "--reason", "x", "--yes", "--now", "2070-01-01")
	// What was reset is still there to be looked at.
	if got := b.text("SELECT toString(count()) FROM period_commits WHERE kind = 'reset' AND reason = 'wrong flavor'"); got != "4" {
		t.Errorf("%s reset commits carry the reason", got)
	}
}

func TestReprocessRatesAgainWithoutAHole(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.plan("2.00", "--from", "2026-11-30", "--force", "--reason", "price was wrong")
	if r := b.rate(); r.Periods != 0 {
		t.Errorf("a new plan rated %d periods by itself", r.Periods)
	}
	add := []string{"reprocess", "add", "--now", at}
	whole := []string{"--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T02:00:00Z"}
	b.fails(ratebatch.ExitConfig, "--reason is not given", append(add, append(whole, "--all")...)...)
	b.fails(ratebatch.ExitConfig, "goes from 2026-11-30T20:00:00Z to 2026-11-30T23:00:00Z", append(add, "--all", "--reason", "x", "--from", "2026-11-30T20:10:00Z", "--to", "2026-11-30T22:45:00Z")...)
	b.fails(ratebatch.ExitConfig, "is not before", append(add, "--all", "--reason", "x", "--from", "2026-12-01", "--to", "2026-11-30")...)
	b.fails(ratebatch.ExitConfig, "no scope is called gamma", append(add, append(whole, "--scope", "gamma", "--reason", "x")...)...)
	b.fails(ratebatch.ExitConfig, "ready up to 2026-12-01T04:00:00Z only", append(add, "--all", "--reason", "x", "--from", "2026-12-01", "--to", "2026-12-02")...)
	b.fails(ratebatch.ExitHalted, "would not mean zero usage", "reprocess", "add", "--now", "2070-01-01", "--all", "--reason", "x", "--from", "2026-12-01", "--to", "2026-12-02")
	var one, two store.Schedule
	b.json(&one, append(add, append(whole, "--scope", "alpha", "--reason", "price was wrong")...)...)
	b.fails(ratebatch.ExitConfig, "overlaps schedule "+one.ID.String(), append(add, "--all", "--reason", "x", "--from", "2026-12-01", "--to", "2026-12-01T01:00:00Z")...)
	b.json(&two, append(add, "--scope", "beta", "--reason", "x", "--from", "2026-12-01", "--to", "2026-12-01T01:00:00Z")...)
	b.must("reprocess", "cancel", two.ID.String())
	b.fails(ratebatch.ExitConfig, "is cancelled already", "reprocess", "cancel", two.ID.String())
	b.fails(ratebatch.ExitConfig, "no schedule has the id", "reprocess", "cancel", "x")
	b.owe("alpha 6, beta 3")
	b.must("reprocess", "run", "--now", at)
	b.owe("alpha 12, beta 3")
	if list := b.must("reprocess", "list", "--all"); !strings.Contains(list, "done") || !strings.Contains(list, "100%") || !strings.Contains(list, "price was wrong") {
		t.Errorf("list:\n%s", list)
	}
	// The old revision stays readable, and carries its own plan.
	if got := b.text("SELECT toString(sum(price)) FROM rated_lines WHERE scope = 'alpha' AND revision = 1"); got != "6" {
		t.Errorf("revision 1 sums to %s, want 6", got)
	}
	if out := b.must("reprocess", "run", "--now", at); !strings.Contains(out, "no schedule is pending") {
		t.Errorf("second run: %s", out)
	}
	b.must("backfill", "--scope", "beta", "--from", "2026-12-01", "--to", "2026-12-01T02:00:00Z", "--reason", "the rest", "--now", at)
	b.owe("alpha 12, beta 4")
	if got := b.text("SELECT toString(groupUniqArray(reason)) FROM current_commits WHERE scope = 'beta' AND revision = 2"); got != "['the rest']" {
		t.Errorf("reasons of the backfill: %s", got)
	}
}

func (b *billed) json(to any, args ...string) {
	b.Helper()
	text := b.must(append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(text), to); err != nil {
		b.Fatalf("%v in %s", err, text)
	}
}

// A hundred and fifty schedules are all run, oldest first.
func TestReprocessRunsAllSchedulesOldestFirst(t *testing.T) {
	b := newBilled(t)
	b.rate()
	now, err := b.s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.sql(`INSERT INTO reprocess_schedules (id, scopes, begin, end, state, started_at, done_until, reason, author, created_at)
		SELECT generateUUIDv7(number), ['alpha'], '2026-11-30 20:00:00', '2026-11-30 21:00:00', 'pending', '1970-01-01 00:00:00', '2026-11-30 20:00:00', toString(number), 'test',
		       toDateTime64('` + now.Format("2006-01-02 15:04:05") + `', 6, 'UTC') - number FROM numbers(3)`)
	b.must("reprocess", "run", "--now", at)
	if got := b.text("SELECT toString(groupArray(reason)) FROM (SELECT reason FROM period_commits WHERE scope = 'alpha' AND revision > 1 ORDER BY revision)"); got != "['2','1','0']" {
		t.Errorf("schedules ran in the order %s, want oldest first", got)
	}
	b.owe("alpha 6, beta 3")
}

func TestReprocessWaitsForDisabledScopesAndEndsForVanishedOnes(t *testing.T) {
	b := newBilled(t)
	b.rate()
	whole := []string{"--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T02:00:00Z", "--now", at, "--reason", "x"}
	b.must(append([]string{"reprocess", "add", "--scope", "alpha"}, whole...)...)
	b.must("scopes", "disable", "alpha", "--reason", "not paying")
	b.must("reprocess", "run", "--now", at)
	if list := b.must("reprocess", "list"); !strings.Contains(list, "pending") || !strings.Contains(list, "scope alpha is disabled") {
		t.Errorf("the schedule of a disabled scope does not wait visibly:\n%s", list)
	}
	b.must("scopes", "enable", "alpha", "--reason", "paid")
	b.must("reprocess", "run", "--now", at)
	if got := b.text("SELECT toString(count()) FROM current_commits WHERE scope = 'alpha' AND revision = 2"); got != "6" {
		t.Errorf("%s periods were rated again after the scope was enabled, want 6", got)
	}
	b.must(append([]string{"reprocess", "add", "--scope", "beta"}, whole...)...)
	for _, table := range []string{"period_commits", "instance_metrics_hourly"} {
		column := map[string]string{"period_commits": "scope", "instance_metrics_hourly": "project_id"}[table]
		b.sql("ALTER TABLE " + table + " DELETE WHERE " + column + " = 'beta' SETTINGS mutations_sync = 2")
	}
	b.fails(ratebatch.ExitHalted, "nothing is known of it any more", "reprocess", "run", "--now", at)
	if out := b.must("reprocess", "run", "--now", at); !strings.Contains(out, "no schedule is pending") {
		t.Errorf("a vanished scope's schedule ran again: %s", out)
	}
	if list := b.must("reprocess", "list", "--all"); !strings.Contains(list, "failed") || !strings.Contains(list, "nothing is known of scope beta") {
		t.Errorf("list:\n%s", list)
	}
}

// A scope whose region is complete up to its first usage at most has no period that is ready.
// Its schedule waits, also in a closed month, where nothing else comes back to it.
func TestReprocessWaitsForTheRegionOfAScope(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.sql(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		VALUES ('2026-11-30 21:00:00', 'two', '00000000-0000-0000-0000-000000000002', 'gamma', 'm1', 1, 'far', 60, 60, 3600, 0)`)
	b.must("watermark", "--region", "two", "--until", "2026-11-01T00:00:00Z")
	b.must("scopes", "load", b.file("scopes.csv", "listed,Nothing yet,Default\n"))
	whole := []string{"--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "x", "--now", at}
	out := b.must(append([]string{"backfill", "--scope", "gamma"}, whole...)...)
	if !strings.Contains(out, ": pending, rated 0 periods again") || !strings.Contains(out, "waits: periods from 2026-11-30T20:00:00Z are not ready") || !strings.Contains(out, "input of region two is complete up to 2026-11-01T00:00:00Z only") {
		t.Errorf("backfill of a scope that waits:\n%s", out)
	}
	if list := b.must("reprocess", "list"); !strings.Contains(list, "pending") || !strings.Contains(list, " 0% ") {
		t.Errorf("list:\n%s", list)
	}
	// One that was listed and never had usage has nothing to wait for.
	if out := b.must(append([]string{"backfill", "--scope", "listed"}, whole...)...); !strings.Contains(out, ": done, rated 0 periods again") {
		t.Errorf("backfill of a scope without usage:\n%s", out)
	}
	b.must("watermark", "--region", "two", "--until", "2026-12-01T02:00:00Z")
	b.must("reprocess", "run", "--now", at)
	b.owe("alpha 6, beta 3, gamma 1")
	if out := b.must("reprocess", "run", "--now", at); !strings.Contains(out, "no schedule is pending") {
		t.Errorf("second run: %s", out)
	}
}

func TestClosedMonthsAreFrozen(t *testing.T) {
	b := newBilled(t)
	november := []string{"close", "--month", "2026-11", "--now", at, "--first-period", "usage"}
	b.fails(ratebatch.ExitConfig, "2026-11", "close", "--month", "November")
	b.fails(ratebatch.ExitTryAgain, "alpha: 4 from 2026-11-30T20:00:00Z", november...)
	b.rate()
	b.fails(ratebatch.ExitTryAgain, "not complete", "close", "--month", "2026-12", "--now", at, "--first-period", "usage")
	// Two commits of one revision that disagree keep the month open.
	b.sql("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest) SELECT 'alpha', '2026-11-30 21:00:00', '2026-11-30 22:00:00', 1, 'rated', generateUUIDv4(), 'other'")
	b.fails(ratebatch.ExitTryAgain, "1 of them in conflict", november...)
	if r := b.rate(); r.Periods != 1 {
		t.Errorf("rated %d periods, want the one in conflict", r.Periods)
	}
	if out := b.must(append(november, "--dry-run")...); !strings.Contains(out, "6 EUR") {
		t.Errorf("dry run: %s", out)
	}
	b.must(append(november, "--reason", "invoiced")...)
	if out := b.must(november...); !strings.Contains(out, "closed already") {
		t.Errorf("closing twice: %s", out)
	}
	b.fails(ratebatch.ExitHalted, "month 2026-11 is closed", "reset", "--all", "--to", "2026-11-30", "--reason", "x", "--yes")
	// Rating again in a closed month is a correction: what was frozen is what is read.
	b.plan("2.00", "--from", "2026-11-30", "--force", "--reason", "price was wrong")
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T01:00:00Z", "--reason", "price was wrong", "--now", at)
	b.owe("alpha 7, beta 3") // 4 frozen at 1 EUR, one of December at 2, one at 1
	if list := b.must("close", "--list"); !strings.Contains(list, "scope alpha: 8 instead of 4") || !strings.Contains(list, "invoiced") {
		t.Errorf("close --list:\n%s", list)
	}
	b.fails(ratebatch.ExitConfig, "--reason is not given", "reopen", "--month", "2026-11")
	b.fails(ratebatch.ExitConfig, "is not closed", "reopen", "--month", "2026-10", "--reason", "x")
	b.must("reopen", "--month", "2026-11", "--reason", "ticket 901")
	b.owe("alpha 11, beta 3")
	b.must(november...)
	b.owe("alpha 11, beta 3")
	if got := b.text("SELECT toString(groupArray(concat(toString(kind), ' ', toString(closed)))) FROM (SELECT kind, closed FROM month_commits WHERE kind != 'commit' ORDER BY closed_at)"); got != "['close 1','reopen 1','close 2']" {
		t.Errorf("closes: %s", got)
	}
}

// A closed month that was corrected for late usage holds: usage is compared with
// the commits of the correction, what was billed with the close.
func TestReconcileOfACorrectedMonthHolds(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
	b.sql(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		VALUES ('2026-11-30 23:00:00', 'one', '00000000-0000-0000-0000-000000000001', 'beta', 'm1', 1, 'late', 60, 60, 3600, 0)`)
	b.fails(ratebatch.ExitHalted, "late usage", "reconcile", "--month", "2026-11")
	b.must("backfill", "--scope", "beta", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "late", "--now", at)
	b.owe("alpha 6, beta 3") // 1 EUR more is a correction
	out := b.must("reconcile", "--month", "2026-11")
	for _, want := range []string{"quantities of usage and of lines as corrected", "money of the commits and read as corrected"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// The periods of a disabled scope do not keep a month open; they are settled.
func TestCloseSettlesDisabledScopes(t *testing.T) {
	b := newBilled(t)
	b.must("scopes", "disable", "beta", "--reason", "internal")
	b.rate()
	b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
	if got := b.text("SELECT toString(count()) FROM current_commits WHERE scope = 'beta' AND kind = 'disabled'"); got != "4" {
		t.Errorf("%s periods of the disabled scope are settled, want 4", got)
	}
	b.owe("alpha 6")
}

func TestTimeoutsAndWaiting(t *testing.T) {
	b := newBilled(t)
	b.fails(ratebatch.ExitConfig, "--query-timeout", "rate", "--query-timeout", "1ms")
	b.fails(ratebatch.ExitTryAgain, "did not end within --timeout 1ns", "rate", "--timeout", "1ns", "--now", at)
	held := store.Params{"name": "rate", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitLeaseHeld, "another run holds the lease", "rate", "--now", at)
	// What holds the lease does not do the work of these, so a schedule has to come back to them.
	for _, command := range [][]string{{"reprocess", "run"}, {"reset", "--all", "--to", "2026-11-30", "--reason", "x", "--yes"}, {"close", "--month", "2026-11"}} {
		b.fails(ratebatch.ExitTryAgain, "another run holds the lease", append(command, "--now", at)...)
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		held["state"] = "released"
		if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
			t.Error(err)
		}
	}()
	if r := b.rate("--wait"); r.Periods != 12 {
		t.Errorf("rated %d periods after waiting, want 12", r.Periods)
	}
}

// Usage that arrives behind its commit is found, priced and dealt with by the
// age of its period; lost usage is an alarm and changes nothing.
func TestLateAndLostUsage(t *testing.T) {
	b := newBilled(t)
	b.fails(ratebatch.ExitConfig, "order the rules by age", "rate", "--late", "hold,reprocess:48h")
	b.fails(ratebatch.ExitConfig, "late policy", "rate", "--late", "redo")
	b.rate()
	b.owe("alpha 6, beta 3")
	late := func() store.LateFinding {
		t.Helper()
		var x struct{ Late []store.LateFinding }
		b.json(&x, "status", "--late", "--now", at, "--first-period", "usage")
		if len(x.Late) != 1 {
			t.Fatalf("status --late has %+v, want one finding", x.Late)
		}
		return x.Late[0]
	}
	// A second instance of beta turns up for 23:00; it is held.
	b.sql(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		VALUES ('2026-11-30 23:00:00', 'one', '00000000-0000-0000-0000-000000000001', 'beta', 'm1', 1, 'late', 60, 60, 3600, 0)`)
	b.rate()
	b.owe("alpha 6, beta 3")
	if f := late(); f.Scope != "beta" || f.Kind != "late" || f.Action != "hold" || f.Difference().String() != "1" || f.CommittedRows != 3 || f.FoundRows != 6 {
		t.Errorf("finding %+v, want beta's hour with 1 EUR more", f)
	}
	if out := b.must("status", "--late", "--now", at); !strings.Contains(out, "beta") || !strings.Contains(out, "1 EUR") {
		t.Errorf("status --late:\n%s", out)
	}
	// It is found once.
	b.rate()
	if got := b.text("SELECT toString(count()) FROM late_usage"); got != "1" {
		t.Errorf("%s findings after another look, want 1", got)
	}
	// alpha's hour at 00:00 has more time than was billed; the policy rates it again.
	b.sql("ALTER TABLE instance_metrics_hourly DELETE WHERE project_id = 'alpha' AND bucket = '2026-12-01 00:00:00' SETTINGS mutations_sync = 2")
	b.usage("alpha", "2026-12-01 00:00:00", 1, "1800", "2099-01-01 00:00:00")
	b.rate("--late", "reprocess:6h,hold")
	b.owe("alpha 5.5, beta 3")
	if got := b.text("SELECT toString(groupArray((scope, revision, reason))) FROM current_commits WHERE revision > 1"); got != "[('alpha',2,'late usage')]" {
		t.Errorf("rated again: %s", got)
	}
	// beta's 20:00 loses its row: neither a look nor a backfill makes a new revision of it.
	b.sql("ALTER TABLE instance_metrics_hourly DELETE WHERE project_id = 'beta' AND bucket = '2026-11-30 20:00:00' SETTINGS mutations_sync = 2")
	out := b.must("backfill", "--scope", "beta", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "late rows", "--now", at)
	if !strings.Contains(out, "fewer usage rows than were committed") {
		t.Errorf("backfill says nothing of lost usage: %s", out)
	}
	b.owe("alpha 5.5, beta 4")
	if f := late(); f.Kind != "lost" || f.Begin.Hour() != 20 || f.FoundRows != 0 || f.CommittedRows != 3 {
		t.Errorf("finding %+v, want beta's lost hour", f)
	}
	b.fails(ratebatch.ExitHalted, "usage of 1 rated periods was lost", "status", "--check", "--now", at, "--first-period", "usage")
	b.must("backfill", "--scope", "beta", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "again", "--now", at)
	if got := b.text("SELECT toString(count()) FROM late_usage WHERE kind = 'lost'"); got != "1" {
		t.Errorf("%s findings of lost usage, want 1", got)
	}
	// It comes back, and the alarm ends; it is lost again, and rings again.
	b.usage("beta", "2026-11-30 20:00:00", 1, "1800", "2099-01-01 00:00:00")
	b.rate()
	b.owe("alpha 5.5, beta 4")
	if out := b.must("status", "--check", "--now", at, "--first-period", "usage"); strings.Contains(out, "lost") {
		t.Errorf("usage that came back is still lost:\n%s", out)
	}
	b.sql("ALTER TABLE instance_metrics_hourly DELETE WHERE project_id = 'beta' AND bucket = '2026-11-30 20:00:00' SETTINGS mutations_sync = 2")
	b.must("backfill", "--scope", "beta", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "once more", "--now", at)
	b.fails(ratebatch.ExitHalted, "usage of 1 rated periods was lost", "status", "--check", "--now", at, "--first-period", "usage")
}

// A look reads only what was refreshed since the last one, and never history.
func TestLookReadsNoHistory(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.usage("alpha", "2026-12-01 00:00:00", 1, "1800", time.Now().Add(-time.Hour).UTC().Format(time.DateTime))
	b.rate()
	if got := b.text("SELECT toString(candidates) FROM late_looks ORDER BY looked_at DESC LIMIT 1"); got != "0" {
		t.Errorf("%s candidates, want none: nothing was refreshed since", got)
	}
}

func TestScopesLoadKeepsWhatIsDisabled(t *testing.T) {
	b := newBilled(t)
	write := func(text string) string { return b.file("scopes.csv", text) }
	b.must("scopes", "disable", "beta", "--reason", "internal")
	file := write("# our projects\nalpha,Web shop,Default\nbeta,\"Tests, internal\"\n")
	if out := b.must("scopes", "load", file); !strings.Contains(out, "2 scopes listed by static, 2 changed") {
		t.Errorf("load: %s", out)
	}
	if out := b.must("scopes", "load", file); !strings.Contains(out, "0 changed") {
		t.Errorf("second load: %s", out)
	}
	if out := b.must("scopes", "show", "beta"); !strings.Contains(out, "Tests, internal") || !strings.Contains(out, "disabled") {
		t.Errorf("show: %s", out)
	}
	b.rate()
	b.owe("alpha 6")
	b.fails(ratebatch.ExitConfig, "scopes.csv:2", "scopes", "load", write("a\na\n"))
	b.fails(ratebatch.ExitConfig, "scopes.csv:1", "scopes", "load", write("a,b,c,d\n"))
}
