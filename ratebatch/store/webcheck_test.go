package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// Lines are compared commit by commit: what one period has too much does not
// make up for what another has too little, and another scope's mistake is only
// that scope's and everybody's.
func TestLinesAreComparedCommitByCommit(t *testing.T) {
	s := storetest.Fresh(t)
	exec := func(text string) {
		t.Helper()
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	const run = "00000000-0000-4000-8000-000000000001"
	line := func(scope string, hour int, price string) {
		t.Helper()
		exec(fmt.Sprintf(`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, qty, price, revision) VALUES ('%s', '%s', '2026-11-03 %02d:00:00', '2026-11-03 %02d:00:00', 'm', 'r', 1, %s, 1)`, run, scope, hour, hour+1, price))
	}
	w := store.CostWindow{From: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 4, 0, 0, 0, 0, time.UTC)}
	agrees := func(when string, want map[string]bool) {
		t.Helper()
		for scope, want := range want {
			if got, err := s.LinesAgree(t.Context(), w, scope); err != nil || got != want {
				t.Errorf("%s, scope %q: %t, want %t (%v)", when, scope, got, want, err)
			}
		}
	}
	agrees("nothing is rated", map[string]bool{"": true, "a": true})
	for _, x := range []string{"('a', '2026-11-03 00:00:00', '2026-11-03 01:00:00', 1, 10)", "('a', '2026-11-03 01:00:00', '2026-11-03 02:00:00', 1, 20)", "('a', '2026-11-03 02:00:00', '2026-11-03 03:00:00', 0, 0)", "('b', '2026-11-03 00:00:00', '2026-11-03 01:00:00', 1, 5)"} {
		exec("INSERT INTO period_commits (scope, begin, end, lines, total, revision, kind, run_id, currency) SELECT x.1, x.2, x.3, x.4, x.5, 1, 'rated', '" + run + "', 'EUR' FROM (SELECT " + x + " AS x)")
	}
	line("b", 0, "5")
	line("a", 0, "20") // in the wrong order: the sum is right
	line("a", 1, "10")
	agrees("prices of two periods are swapped", map[string]bool{"": false, "a": false, "b": true})
	exec("TRUNCATE TABLE rated_lines")
	line("b", 0, "5")
	line("a", 0, "10")
	agrees("a line is missing", map[string]bool{"": false, "a": false, "b": true})
	line("a", 1, "20")
	agrees("all are there", map[string]bool{"": true, "a": true, "b": true})

	// A list that goes on over pages notices what is rated again, not what is rated
	// for the first time.
	state := func() string {
		t.Helper()
		text, err := s.LineState(t.Context(), w, "a")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := state()
	exec("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id) VALUES ('a', '2026-11-03 03:00:00', '2026-11-03 04:00:00', 1, 'rated', '" + run + "'), ('b', '2026-11-03 00:00:00', '2026-11-03 01:00:00', 2, 'rated', '" + run + "')")
	if after := state(); after != before {
		t.Errorf("a new period of the scope and a new revision of another's: %s, was %s", after, before)
	}
	exec("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id) VALUES ('a', '2026-11-03 00:00:00', '2026-11-03 01:00:00', 2, 'reset', '" + run + "')")
	if after := state(); after == before {
		t.Errorf("a period was reset, and the state is %s as before", after)
	}
}
