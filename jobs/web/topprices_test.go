package web

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// rated is a store with lines and commits that a test writes.
type rated struct {
	*testing.T
	*store.Store
	runs map[string]uuid.UUID // of commits
}

func newRated(t *testing.T) *rated {
	t.Helper()
	return &rated{t, storetest.Fresh(t), map[string]uuid.UUID{}}
}

func (r *rated) exec(text string, params store.Params) {
	r.Helper()
	if err := r.Conn().Exec(store.WithParams(r.Context(), params), text); err != nil {
		r.Fatal(err)
	}
}

// commit says of an hour of a scope how many lines it has and what they amount to.
func (r *rated) commit(scope string, at time.Time, lines int, total string) {
	r.Helper()
	run := uuid.New()
	r.runs[scope+at.String()] = run
	r.exec(`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, usage_read_at, lines, total)
SELECT {scope:String}, {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, 1, 'rated', {run:UUID}, 'EUR', now64(6), {lines:UInt64}, toDecimal128({total:String}, 18)`,
		store.Params{"scope": scope, "run": run, "begin": at, "lines": lines, "total": total})
}

// line is one of an hour that was committed; instance: of its attributes, if any.
func (r *rated) line(scope string, at time.Time, resource, instance, price string) {
	r.Helper()
	r.exec(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, attributes, unit, qty, price)
SELECT {run:UUID}, {scope:String}, {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, 'm', {resource:String}, if({instance:String} = '', map(), map('instance_uuid', {instance:String})), 'u', 1, toDecimal128({price:String}, 18)`,
		store.Params{"run": r.runs[scope+at.String()], "scope": scope, "begin": at, "resource": resource, "instance": instance, "price": price})
}

// seen makes an instance known.
func (r *rated) seen(instance uuid.UUID) {
	r.Helper()
	r.exec("INSERT INTO instances (region, instance_uuid, project_id, seen_from, seen_to) SELECT 'one', {instance:UUID}, 'a', now(), now()", store.Params{"instance": instance})
}

func dec(text string) decimal.Decimal { return decimal.RequireFromString(text) }

// What instances cost is shown only when all lines of the window are those that
// were committed, also when no line belongs to an instance or none is there.
func TestTopPricesAreComparedWithTheirCommits(t *testing.T) {
	r := newRated(t)
	hour := store.CostWindow{From: dayBegins, To: dayBegins.Add(time.Hour)}
	instance := uuid.New()
	r.seen(instance)
	r.commit("a", hour.From, 2, "0.75")
	read := func() (store.TopPrices, error) {
		t.Helper()
		commits, err := r.CostCommits(t.Context(), hour)
		if err != nil || len(commits) == 0 {
			t.Fatalf("%d commits, %v", len(commits), err)
		}
		return pricesOf(t.Context(), r.Store, hour, commits, "", "EUR", 100)
	}
	refused := func(when string) {
		t.Helper()
		if got, err := read(); err == nil || !strings.Contains(err.Error(), "are not those that were committed") {
			t.Errorf("%s: %v, %v; want an error that lines and commits differ", when, got, err)
		}
	}
	refused("no line of two is there")
	r.line("a", hour.From, "a volume", "", "0.25")
	refused("one of two is there, of no instance")
	r.line("a", hour.From, "another volume", "", "0.50")
	if got, err := read(); err != nil || len(got.List) != 0 || !got.Others.Equal(dec("0.75")) {
		t.Errorf("both are there, of no instance: %v, %v", got, err)
	}
	r.line("a", hour.From, instance.String(), "", "0.50")
	refused("one more than was committed")
	r.exec("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, usage_read_at, lines, total) SELECT scope, begin, end, 2, kind, run_id, currency, now64(6), 3, toDecimal128('1.25', 18) FROM period_commits", nil)
	got, err := read()
	if err != nil || len(got.List) != 1 || got.List[0].ID != instance || !got.List[0].Price.Equal(dec("0.5")) || !got.Others.Equal(dec("0.75")) {
		t.Errorf("an instance and two volumes: %v, %v", got, err)
	}
}

// Who costs most is found among all instances of a scope and all parts of a window,
// however few are shown.
func TestTheDearestAreThoseOfTheScopeAndTheWholeWindow(t *testing.T) {
	r := newRated(t)
	last, next := time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	once, twice, small := uuid.New(), uuid.New(), uuid.New()
	for _, x := range []uuid.UUID{once, twice, small} {
		r.seen(x)
	}
	r.commit("a", last, 2, "5")
	r.commit("a", next, 2, "3")
	r.commit("b", next, 1, "0.5")
	r.line("a", last, once.String(), "", "3")
	r.line("a", last, twice.String(), "", "2")
	r.line("a", next, once.String(), "", "0.75")
	r.line("a", next, twice.String(), "", "2.25")
	r.line("b", next, small.String()+"/vda", "", "0.5")
	read := func(scope string) string {
		t.Helper()
		got, err := readTopPrices(t.Context(), r.Store, store.Billing{Period: time.Hour}, scope, next.Add(time.Hour), 1, topPrices{})
		if err != nil || len(got.list) != 1 || !got.from.Equal(next.Add(-23*time.Hour)) || !got.to.Equal(next.Add(time.Hour)) {
			t.Fatalf("%q: %+v, %v", scope, got, err)
		}
		names := map[uuid.UUID]string{once: "once", twice: "twice", small: "small"}
		return names[got.list[0].ID] + " " + got.list[0].Price.String()
	}
	check := func(when string) {
		t.Helper()
		for scope, want := range map[string]string{"": "twice 4.25", "a": "twice 4.25", "b": "small 0.5"} {
			if got := read(scope); got != want {
				t.Errorf("%s, the dearest of %q: %s, want %s", when, scope, got, want)
			}
		}
	}
	check("both months open")
	// A closed month is read for itself, where the other one costs more.
	r.exec("INSERT INTO month_commits (month, closed, kind, scope, begin, key, periods) SELECT '2026-10-01', 1, 'commit', scope, begin, key, 1 FROM period_commits WHERE begin < '2026-11-01'", nil)
	r.exec("INSERT INTO month_commits (month, closed, kind) VALUES ('2026-10-01', 1, 'close')", nil)
	check("October closed")
}

// A port is its instance's also where the hourly tier forgot it; what is neither a
// port nor an instance is not shown as one, and what it costs is said.
func TestNoPortIsShownAsAnInstance(t *testing.T) {
	r := newRated(t)
	known, other := uuid.New(), uuid.New() // other: no sample of it was ever seen
	port, lost, volume := uuid.New(), uuid.New(), uuid.New()
	r.seen(known)
	r.commit("a", dayBegins, 5, "15.5")
	r.line("a", dayBegins, known.String(), "", "1")
	r.line("a", dayBegins, port.String(), known.String(), "2")
	r.line("a", dayBegins, lost.String(), "", "4") // a metric that does not group by instance
	r.line("a", dayBegins, volume.String(), "", "8")
	r.line("a", dayBegins, other.String(), "", "0.5")
	for _, x := range [][2]uuid.UUID{{port, known}, {lost, known}} {
		r.exec("INSERT INTO port_volume_hourly (bucket, region, instance_uuid, port_uuid, samples) SELECT {begin:DateTime('UTC')}, 'one', {instance:UUID}, {port:UUID}, 1", store.Params{"begin": dayBegins, "instance": x[1], "port": x[0]})
	}
	check := func(when, price, others string) {
		t.Helper()
		got, err := readTopPrices(t.Context(), r.Store, store.Billing{Period: time.Hour}, "", dayBegins.Add(time.Hour), 10, topPrices{})
		if err != nil || len(got.list) != 1 || got.list[0].ID != known || !got.list[0].Price.Equal(dec(price)) || !got.others["EUR"].Equal(dec(others)) {
			t.Errorf("%s: %+v, %v; want %s for the one instance and %s for others", when, got, err, price, others)
		}
	}
	check("the hourly tier has the ports", "7", "8.5")
	r.exec("TRUNCATE TABLE port_volume_hourly", nil)
	check("the hourly tier is empty", "3", "12.5")
	r.exec("INSERT INTO port_volume_hourly (bucket, region, instance_uuid, port_uuid, samples) SELECT {begin:DateTime('UTC')} + 86400, 'one', {instance:UUID}, {port:UUID}, 1", store.Params{"begin": dayBegins, "instance": known, "port": port})
	check("the hourly tier begins later", "3", "12.5")
}
