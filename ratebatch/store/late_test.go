package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// Of days that were all written a moment ago a look asks those in which a row was
// refreshed, whether they are few or many.
func TestALookAsksTheDaysOfRefreshedRows(t *testing.T) {
	s := storetest.Fresh(t)
	exec := func(text string) {
		t.Helper()
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	const into = "INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, samples, covered_seconds, refreshed_at) "
	look := store.LateLook{
		Since:  time.Date(2026, 5, 20, 0, 0, 0, 0, time.UTC),
		Tables: []store.UsageTable{{Table: "instance_metrics_hourly", Scope: "project_id", Region: "region", Time: "bucket", Tier: true}},
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if err := s.FindDays(t.Context(), &look); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, day := range look.Days {
			got = append(got, day.Format(time.DateOnly))
		}
		slices.Sort(got)
		if look.Days == nil || !slices.Equal(got, want) {
			t.Errorf("%s: a look asks %v, want %v", what, got, want)
		}
	}
	expect("nothing stored")
	exec(into + "VALUES ('2026-05-01 00:00:00', 'r', generateUUIDv4(), 'p', 60, 3600, '2026-05-01 01:00:00')")
	expect("one day, written now", "2026-05-01") // not worth asking what it holds
	exec(into + "SELECT toDateTime('2026-05-02 00:00:00', 'UTC') + 86400 * number, 'r', generateUUIDv4(), 'p', 60, 3600, toDateTime('2026-05-02 01:00:00', 'UTC') + 86400 * number FROM numbers(9)")
	expect("ten days, refreshed before")
	exec(into + "VALUES ('2026-05-03 05:00:00', 'r', generateUUIDv4(), 'p', 60, 3600, '2026-05-20 00:00:00'), ('2026-05-07 00:00:00', 'r', generateUUIDv4(), 'p', 60, 3600, '2026-05-19 23:59:59')")
	expect("one row refreshed since", "2026-05-03")
}
