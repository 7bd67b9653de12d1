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

// What instances cost is shown only when all lines of the window are those that
// were committed, also when no line belongs to an instance or none is there.
func TestTopPricesAreComparedWithTheirCommits(t *testing.T) {
	s := storetest.Fresh(t)
	hour := store.CostWindow{From: dayBegins, To: dayBegins.Add(time.Hour)}
	run, instance := uuid.New(), uuid.New()
	exec := func(text string, params store.Params) {
		t.Helper()
		if err := s.Conn().Exec(store.WithParams(t.Context(), params), text); err != nil {
			t.Fatal(err)
		}
	}
	line := func(resource, price string) {
		t.Helper()
		exec(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, qty, price)
SELECT {run:UUID}, 'a', {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, 'm', {resource:String}, 1, toDecimal128({price:String}, 18)`,
			store.Params{"run": run, "begin": hour.From, "resource": resource, "price": price})
	}
	exec(`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, usage_read_at, lines, total)
SELECT 'a', {begin:DateTime('UTC')}, {begin:DateTime('UTC')} + 3600, 1, 'rated', {run:UUID}, 'EUR', now64(6), 2, toDecimal128('0.75', 18)`,
		store.Params{"run": run, "begin": hour.From})
	read := func() ([]store.TopPrice, error) {
		t.Helper()
		commits, err := s.CostCommits(t.Context(), hour)
		if err != nil || len(commits) == 0 {
			t.Fatalf("%d commits, %v", len(commits), err)
		}
		return pricesOf(t.Context(), s, hour, commits, "EUR")
	}
	refused := func(when string) {
		t.Helper()
		if got, err := read(); err == nil || !strings.Contains(err.Error(), "are not those that were committed") {
			t.Errorf("%s: %v, %v; want an error that lines and commits differ", when, got, err)
		}
	}
	refused("no line of two is there")
	line("a volume", "0.25")
	refused("one of two is there, of no instance")
	line("another volume", "0.50")
	if got, err := read(); err != nil || len(got) != 0 {
		t.Errorf("both are there, of no instance: %v, %v", got, err)
	}
	line(instance.String(), "0.50")
	refused("one more than was committed")
	exec("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency, usage_read_at, lines, total) SELECT scope, begin, end, 2, kind, run_id, currency, now64(6), 3, toDecimal128('1.25', 18) FROM period_commits", nil)
	got, err := read()
	if err != nil || len(got) != 1 || got[0].ID != instance || !got[0].Price.Equal(decimal.RequireFromString("0.5")) {
		t.Errorf("an instance and two volumes: %v, %v", got, err)
	}
}
