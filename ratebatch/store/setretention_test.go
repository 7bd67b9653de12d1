package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func retain(t *testing.T, s *store.Store, keep store.Retention) {
	t.Helper()
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: keep, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
}

// rawGone removes what raw samples there are, as their TTL does.
func rawGone(t *testing.T, s *store.Store, statement string) {
	t.Helper()
	for _, table := range []string{"port_samples", "instance_samples", "disk_samples"} {
		if err := s.Conn().Exec(t.Context(), statement+" "+table); err != nil {
			t.Fatal(err)
		}
	}
}

// addLate has ingest's rule judge samples, list them as late and add them.
func addLate(t *testing.T, s *store.Store, w world, from time.Time) {
	t.Helper()
	kept, err := s.RawKept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cutoff := kept.LateBefore(time.Now()); !w.Ports[0].Begin.Before(cutoff) {
		t.Fatalf("samples of %s count as in time: what is older than %s is late", w.Ports[0].Begin, cutoff)
	}
	insertLate(t, s, w)
	if _, err := s.RollupLate(t.Context(), from, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// A longer retention brings no sample back: hours that had lost theirs are left
// alone as before, by a rollup and by the views, and late samples are added to
// their rows.
func TestALongerRetentionBringsNothingBack(t *testing.T) {
	s := storetest.Open(t)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	inTime := everyMinute("a", 1, begin, 0, 50)
	inTime.Insert(t, s)
	rollup := func() {
		t.Helper()
		if _, err := s.Rollup(t.Context(), begin.Add(-time.Hour), time.Time{}); err != nil {
			t.Fatal(err)
		}
		refresh(t, s)
		inTime.Compare(t, s, "r")
	}
	rollup()
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	short := storetest.Forever
	short.Raw = 54 * time.Hour
	retain(t, s, short)
	rawGone(t, s, "TRUNCATE TABLE")
	short.Raw = 240 * time.Hour
	retain(t, s, short)
	everyMinute("b", 2, begin, 50, 108).Insert(t, s) // as if somebody took them for raw samples
	rollup()
	late := everyMinute("a", 1, begin, 50, 108)
	addLate(t, s, late, begin)
	plus(inTime, late).Compare(t, s, "r")
}

// The same where the tables of raw samples were made anew, as after a restore:
// up to the last hour that the tiers hold; later hours are computed as ever.
func TestRawSamplesMadeAnewAreNotAll(t *testing.T) {
	s := storetest.Open(t)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-30 * time.Hour)
	inTime := everyMinute("a", 1, begin, 0, 50)
	inTime.Insert(t, s)
	rollup := func(want world) {
		t.Helper()
		if _, err := s.Rollup(t.Context(), begin.Add(-time.Hour), time.Time{}); err != nil {
			t.Fatal(err)
		}
		refresh(t, s)
		want.Compare(t, s, "r")
	}
	rollup(inTime)
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	rawGone(t, s, "DROP TABLE")
	result, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: storetest.Forever})
	if err != nil || len(result.Applied) != 3 {
		t.Fatalf("made anew: %v, %v", result.Applied, err)
	}
	late, next := everyMinute("a", 1, begin, 50, 58), everyMinute("a", 1, begin, 60, 100)
	plus(everyMinute("b", 2, begin, 50, 58), next).Insert(t, s)
	rollup(plus(inTime, next))
	addLate(t, s, late, begin)
	plus(plus(inTime, late), next).Compare(t, s, "r")
	if result, err = s.Migrate(t.Context(), store.MigrateOptions{}); err != nil || len(result.Applied) != 0 {
		t.Errorf("the second time: %v, %v", result.Applied, err)
	}
}

// Periods whose rows had expired before the tiers' retention was made longer
// would be rated as zero.
func TestALongerRetentionMakesNoOldPeriodRatable(t *testing.T) {
	s := storetest.Open(t)
	retain(t, s, store.DefaultRetention)
	now := time.Now().UTC()
	longer := store.Retention{Raw: 54 * time.Hour, FiveMin: 30 * 24 * time.Hour, Hourly: 400 * 24 * time.Hour}
	retain(t, s, longer)
	if oldest, keep, err := s.OldestRatable(t.Context(), now, time.Hour); err != nil || keep < longer.Hourly {
		t.Errorf("without any usage nothing has gone, but periods are ratable from %s on (%s), %v", oldest, keep, err)
	}
	retain(t, s, store.DefaultRetention)
	everyMinute("a", 1, now.Add(-3*time.Hour), 0, 2).Insert(t, s)
	retain(t, s, longer)
	for period, keep := range map[time.Duration]time.Duration{time.Hour: store.DefaultRetention.Hourly, 5 * time.Minute: store.DefaultRetention.FiveMin} {
		oldest, _, err := s.OldestRatable(t.Context(), now, period)
		if edge := now.Add(-keep); err != nil || oldest.Before(edge) || oldest.After(edge.Add(period+time.Minute)) {
			t.Errorf("periods of %s are ratable from %s on, %v, want %s", period, oldest, err, edge)
		}
		later, kept, err := s.OldestRatable(t.Context(), now.Add(24*time.Hour), period)
		if err != nil || !later.Equal(oldest) || kept < keep+23*time.Hour {
			t.Errorf("a day later periods of %s are ratable from %s on (%s), %v, want %s still", period, later, kept, err, oldest)
		}
	}
}

// What was noted about rows of the tiers stays as long as they do, also where an
// earlier version had lengthened the tiers only; hours of which it may have gone
// are refused, for late samples would be added to them twice.
func TestNotesAboutRowsStayAsLongAsTheRows(t *testing.T) {
	s := storetest.Open(t)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	everyMinute("a", 1, begin, 0, 50).Insert(t, s)
	if _, err := s.Rollup(t.Context(), begin.Add(-time.Hour), time.Time{}); err != nil {
		t.Fatal(err)
	}
	retain(t, s, store.Retention{Raw: 54 * time.Hour, FiveMin: storetest.Forever.FiveMin, Hourly: 100 * 24 * time.Hour})
	rawGone(t, s, "TRUNCATE TABLE")
	insertLate(t, s, everyMinute("a", 2, begin, 50, 58))
	if _, err := s.RollupLate(t.Context(), begin, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"tier_bases", "ingest_sequences"} {
		if keep, err := s.TierRetention(t.Context(), table); err != nil || keep < 100*24*time.Hour {
			t.Errorf("%s is kept for %s (%v), the hourly tiers for 100 days", table, keep, err)
		}
		for _, statement := range []string{"MODIFY TTL " + map[string]string{"tier_bases": "bucket", "ingest_sequences": "hour"}[table] + " + INTERVAL 1 DAY SETTINGS materialize_ttl_after_modify = 0"} {
			if err := s.Conn().Exec(t.Context(), "ALTER TABLE "+table+" "+statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func() {
		t.Helper()
		_, err := s.RollupLate(t.Context(), begin, time.Time{})
		if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "late samples lie between") {
			t.Errorf("hours whose notes may have gone: %v, want a refusal", err)
		}
	}
	check()
	if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE tier_bases"); err != nil { // they have
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"tier_bases", "ingest_sequences"} {
		if keep, err := s.TierRetention(t.Context(), table); err != nil || keep < 100*24*time.Hour {
			t.Errorf("after migrate %s is kept for %s (%v)", table, keep, err)
		}
	}
	check()
}

// A view that another version of the program made is made anew with this one's
// text; one that is right stays.
func TestMigrateMakesViewsOfOtherVersionsAnew(t *testing.T) {
	s := storetest.Open(t)
	for _, statement := range []string{
		"DROP VIEW port_volume_5min_refresh SYNC",
		"CREATE MATERIALIZED VIEW port_volume_5min_refresh REFRESH EVERY 5 MINUTE APPEND TO port_volume_5min EMPTY AS SELECT * FROM port_volume_5min WHERE 0",
	} {
		if err := s.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	result, err := s.Migrate(t.Context(), store.MigrateOptions{})
	if err != nil || !slices.Equal(result.Applied, []string{"017_port_volume_5min_refresh"}) {
		t.Fatalf("made anew: %v, %v", result.Applied, err)
	}
	begin := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	w := everyMinute("a", 1, begin, 0, 50)
	w.Insert(t, s)
	refresh(t, s)
	w.Compare(t, s, "r")
	if result, err = s.Migrate(t.Context(), store.MigrateOptions{}); err != nil || len(result.Applied) != 0 {
		t.Errorf("the second time: %v, %v", result.Applied, err)
	}
}

// An older program changes nothing of a database that a newer one made, its views
// included.
func TestAnOlderProgramsMigrateChangesNothing(t *testing.T) {
	s := storetest.Open(t)
	for _, statement := range []string{
		"INSERT INTO schema_migrations (version, name) VALUES (999, 'newer')",
		"DROP VIEW port_volume_5min_refresh SYNC",
		"CREATE MATERIALIZED VIEW port_volume_5min_refresh REFRESH EVERY 5 MINUTE APPEND TO port_volume_5min EMPTY AS SELECT * FROM port_volume_5min WHERE 0 COMMENT 'of the newer program'",
	} {
		if err := s.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); ratebatch.ExitCode(err) != ratebatch.ExitHalted {
		t.Errorf("%v, want a refusal", err)
	}
	var comment string
	if err := s.Conn().QueryRow(t.Context(), "SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = 'port_volume_5min_refresh'").Scan(&comment); err != nil || comment != "of the newer program" {
		t.Errorf("the view's comment is %q (%v), want the newer program's", comment, err)
	}
}

// Months of another time zone are other months: whatever was looked at before has
// to be looked at again.
func TestANewZoneHasEverythingLookedAtAgain(t *testing.T) {
	s := storetest.Fresh(t)
	_, now, err := s.CarrySince(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.NoteCarryLook(t.Context(), now, 1, 0); err != nil {
		t.Fatal(err)
	}
	if since, _, err := s.CarrySince(t.Context()); err != nil || !since.Equal(now.Add(-10*time.Minute)) {
		t.Errorf("since %s (%v), want ten minutes before %s", since, err, now)
	}
	if err := s.PutBillingSetting(t.Context(), store.BillingSetting{Name: store.SettingTimezone, Value: "Europe/Berlin", Reason: "x", Author: "y"}); err != nil {
		t.Fatal(err)
	}
	if since, _, err := s.CarrySince(t.Context()); err != nil || since.After(time.Unix(86400, 0)) {
		t.Errorf("since %s (%v) after a change of the zone, want the beginning", since, err)
	}
}
