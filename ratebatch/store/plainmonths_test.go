package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// countedSQL is what rated must show, by the definition and without any hint.
const countedSQL = `SELECT toString(count()) || ' ' || toString(sum(price)) FROM rated_lines WHERE key IN (
    SELECT argMax(if(kind = 'rated', key, 0), rank) FROM period_commits
    WHERE run_id NOT IN (SELECT run_id FROM void_attempts) AND toStartOfMonth(begin) NOT IN (SELECT month FROM closed_months) GROUP BY scope, begin
    UNION ALL
    SELECT f.key FROM month_commits AS f WHERE f.kind = 'commit' AND (f.month, f.closed) IN (SELECT c.month, c.closed FROM closed_months AS c))`

// plainMonths writes lines and commits by hand and says what readers see.
type plainMonths struct {
	*testing.T
	s *store.Store
}

var november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func newPlainMonths(t *testing.T) plainMonths { return plainMonths{t, storetest.Fresh(t)} }

func (p plainMonths) exec(text string, params store.Params) {
	p.Helper()
	if err := p.s.Conn().Exec(store.WithParams(p.Context(), params), text); err != nil {
		p.Fatal(err)
	}
}

// lines writes n lines of price 1 for an hour.
func (p plainMonths) lines(run uuid.UUID, scope string, hour, n int) {
	p.Helper()
	p.exec(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, qty, price)
SELECT {run:UUID}, {scope:String}, {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, 'instance', toString(number), 1, 1 FROM numbers({n:UInt64})`,
		store.Params{"run": run, "scope": scope, "begin": november.Add(time.Duration(hour) * time.Hour), "n": n})
}

func (p plainMonths) commit(run uuid.UUID, scope string, hour, n, revision int) {
	p.Helper()
	p.lines(run, scope, hour, n)
	p.exec(`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, usage_read_at, lines, total)
SELECT {scope:String}, {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, {revision:UInt32}, 'rated', {run:UUID}, 'EUR', now64(6), {n:UInt64}, {n:UInt64}`,
		store.Params{"run": run, "scope": scope, "begin": november.Add(time.Duration(hour) * time.Hour), "n": n, "revision": revision})
}

func (p plainMonths) note() {
	p.Helper()
	if err := p.s.NotePlainMonths(p.Context(), []time.Time{november}); err != nil {
		p.Fatal(err)
	}
}

// want compares what rated shows with the definition and with text (lines and
// total), and whether it was read without commits.
func (p plainMonths) want(text string, plain bool) {
	p.Helper()
	var view, counted string
	for query, into := range map[string]*string{`SELECT toString(count()) || ' ' || toString(sum(price)) FROM rated`: &view, countedSQL: &counted} {
		if err := p.s.Conn().QueryRow(p.Context(), query).Scan(into); err != nil {
			p.Fatal(err)
		}
	}
	months, err := p.s.PlainMonths(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	if view != text || counted != text || months["202611"] != plain {
		p.Fatalf("rated shows %q, by the definition %q, want %q; plain %v, want %v", view, counted, text, months["202611"], plain)
	}
}

func TestPlainMonthsAreBelievedOnlyWhileNothingChanged(t *testing.T) {
	p := newPlainMonths(t)
	first, second, third := uuid.New(), uuid.New(), uuid.New()
	for hour := range 30 {
		p.commit(first, "alpha", hour, 2, 1)
		p.commit(first, "beta", hour, 1, 1)
	}
	p.want("90 90", false)
	p.note()
	p.want("90 90", true)

	// A crashed attempt's lines count for nothing, before and after a look.
	p.lines(second, "alpha", 3, 1)
	p.want("90 90", false)
	p.note()
	p.want("90 90", false)
	if err := p.s.VoidAttempt(t.Context(), second, "test"); err != nil {
		t.Fatal(err)
	}
	if err := p.s.DeleteVoidLines(t.Context(), []uuid.UUID{second}); err != nil {
		t.Fatal(err)
	}
	p.want("90 90", false) // as many rows as at the look, but an attempt is void
	p.note()
	p.want("90 90", true)

	// A period rated again, with a line less; the older one goes.
	p.commit(third, "alpha", 5, 1, 2)
	p.want("89 89", false)
	p.note()
	p.want("89 89", false)
	if err := p.s.DeleteSuperseded(t.Context(), uuid.New(), time.Now().Add(time.Hour), false); err != nil {
		t.Fatal(err)
	}
	p.want("89 89", false)
	// One line of an attempt that never committed makes the numbers of rows
	// those of the look again: it must not be believed.
	p.lines(uuid.New(), "beta", 7, 1)
	p.want("89 89", false)
	p.note()
	p.want("89 89", false)
}

func TestPlainMonthsCountScopeByScope(t *testing.T) {
	p := newPlainMonths(t)
	run := uuid.New()
	p.commit(run, "alpha", 0, 2, 1)
	// beta's commit says two lines, but one is there; a foreign one of alpha
	// makes up for it in the month's sum.
	p.commit(run, "beta", 0, 2, 1)
	p.exec("ALTER TABLE rated_lines DELETE WHERE scope = 'beta' AND resource = '1' SETTINGS mutations_sync = 2", nil)
	p.lines(uuid.New(), "alpha", 0, 1)
	p.note()
	p.want("3 3", false)
}

func TestAClosedMonthShowsWhatWasFrozen(t *testing.T) {
	p := newPlainMonths(t)
	run := uuid.New()
	p.commit(run, "alpha", 0, 2, 1)
	p.note()
	p.want("2 2", true)
	if err := p.s.FreezeMonth(t.Context(), ratebatch.Calendar{}.Named(november), 1, "end", "tester"); err != nil {
		t.Fatal(err)
	}
	frozen, err := p.s.FrozenTotals(t.Context(), ratebatch.Calendar{}.Named(november), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.s.PutMonthClose(t.Context(), ratebatch.Calendar{}.Named(november), store.MonthChange{Closed: 1, Kind: "close", Reason: "end", Author: "tester"}, frozen); err != nil {
		t.Fatal(err)
	}
	p.want("2 2", true)
	// What is rated in it afterwards is a correction's matter, and no look
	// makes it count here.
	p.commit(uuid.New(), "beta", 0, 5, 1)
	p.want("2 2", false)
	p.note()
	p.want("2 2", false)
}

// The rated view believes its hints because the engine takes its snapshot of a
// table before it looks up the constants of the same SELECT: a line that comes
// after the look is not in the sum, and one that comes before is in both.
func TestAViewReadsItsTableAsOfBeforeItsConstants(t *testing.T) {
	s := storetest.Fresh(t)
	for _, text := range []string{
		"CREATE TABLE looked (n UInt32) ENGINE = MergeTree ORDER BY n",
		"INSERT INTO looked SELECT number FROM numbers(10)",
		`CREATE VIEW looked_at AS WITH (SELECT sleep(1.5)) AS slept
SELECT * FROM looked WHERE slept = 0 OR n < 1000 UNION ALL SELECT * FROM looked WHERE NOT slept = 0 AND n < 1000`,
	} {
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for _, sums := range []string{"sum(n)", "count() AS c, sum(n) + 0 * c", "count() * 45 / 10"} {
		var before uint64
		if err := s.Conn().QueryRow(t.Context(), "SELECT sum(n) FROM looked").Scan(&before); err != nil {
			t.Fatal(err)
		}
		inserted := make(chan error, 1)
		time.AfterFunc(700*time.Millisecond, func() {
			inserted <- s.Conn().Exec(t.Context(), "INSERT INTO looked SELECT number FROM numbers(10)")
		})
		var got float64
		row := s.Conn().QueryRow(t.Context(), "SELECT toFloat64(x) FROM (SELECT "+sums+" AS x FROM looked_at)")
		if err := row.Scan(&got); err != nil {
			t.Fatal(err)
		}
		if err := <-inserted; err != nil {
			t.Fatal(err)
		}
		if got != float64(before) {
			t.Errorf("%s over the view is %v, want %d as before its constants were looked up", sums, got, before)
		}
	}
}
