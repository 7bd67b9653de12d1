package store_test

import (
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// What was rated after its month was first closed stays, also of a scope that the
// close did not know: a later month may have billed it as a correction, and the
// next correction takes the difference to it.
func TestRevisionsSinceACloseAreNotRemoved(t *testing.T) {
	s := storetest.Fresh(t)
	exec := func(text string) {
		t.Helper()
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ begin, committed string }{
		{"2026-11-05 00:00:00", "2026-12-02"}, // before the close
		{"2026-11-06 00:00:00", "2026-12-20"}, // after it, of a scope that the close knew nothing of
		{"2026-12-05 00:00:00", "2026-12-20"}, // in a month that is open
	} {
		for revision := range 2 {
			exec("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, lines, committed_at) SELECT 'late', '" + x.begin + "', toDateTime('" + x.begin + "', 'UTC') + 3600, " +
				[]string{"1", "2"}[revision] + ", 'rated', generateUUIDv7(), 1, toDateTime64('" + x.committed + " 00:00:00', 6, 'UTC') + " + []string{"0", "3600"}[revision])
		}
	}
	removable := func(what string, want uint64) {
		t.Helper()
		x, err := s.Superseded(t.Context(), time.Date(2027, 1, 10, 0, 0, 0, 0, time.UTC), false)
		if err != nil || x.Removable != want {
			t.Errorf("%s: %d revisions may be removed, %v; want %d", what, x.Removable, err, want)
		}
	}
	removable("nothing closed", 3)
	exec("INSERT INTO month_commits (month, closed, kind, scope, begin, until, closed_at) VALUES ('2026-11-01', 1, 'close', '', '2026-11-01 00:00:00', '2026-12-01 00:00:00', '2026-12-10 00:00:00')")
	removable("November closed", 2)
	exec("INSERT INTO month_commits (month, closed, kind, scope, begin, until, closed_at) VALUES ('2026-11-01', 1, 'reopen', '', '2026-11-01 00:00:00', '2026-12-01 00:00:00', '2026-12-21 00:00:00')," +
		"('2026-11-01', 2, 'close', '', '2026-11-01 00:00:00', '2026-12-01 00:00:00', '2026-12-22 00:00:00')")
	removable("November closed a second time", 2)
}
