package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// A TTL is never taken for "for ever" because it was written in another way, or
// because the table that a cluster's users name is not the one that has it.
func TestTierRetention(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	run := func(statement string) {
		t.Helper()
		if err := e.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE TABLE tier (bucket DateTime('UTC'), ts DateTime64(3, 'UTC'), n UInt8) ENGINE = MergeTree ORDER BY bucket")
	check := func(table string, want time.Duration) {
		t.Helper()
		if got, err := s.TierRetention(t.Context(), table); err != nil || got != want {
			t.Errorf("retention of %s = %s, %v, want %s", table, got, err, want)
		}
	}
	check("tier", 0)
	for ttl, want := range map[string]time.Duration{
		"bucket + INTERVAL 7948800 SECOND":                                            92 * 24 * time.Hour,
		"toDateTime(ts) + INTERVAL 6 HOUR":                                            6 * time.Hour,
		"bucket + INTERVAL 3 WEEK DELETE":                                             21 * 24 * time.Hour,
		"bucket + INTERVAL 3 MONTH":                                                   84 * 24 * time.Hour, // at least
		"bucket + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9)), bucket + INTERVAL 90 DAY": 90 * 24 * time.Hour,
		"bucket + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9))":                           0,
	} {
		run("ALTER TABLE tier MODIFY TTL " + ttl)
		check("tier", want)
	}
	for _, ttl := range []string{"bucket + INTERVAL 6 HOUR DELETE WHERE n = 1", "toStartOfDay(bucket) + INTERVAL 1 DAY"} {
		run("ALTER TABLE tier MODIFY TTL " + ttl)
		_, err := s.TierRetention(t.Context(), "tier")
		if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "table tier has the TTL") {
			t.Errorf("TTL %s: %v, want an error that names table and TTL", ttl, err)
		}
	}
	// What shows all shards has no TTL of its own.
	run("CREATE TABLE shown_local (bucket DateTime('UTC')) ENGINE = MergeTree ORDER BY bucket TTL bucket + INTERVAL 92 DAY")
	run("CREATE TABLE shown AS shown_local ENGINE = Merge(currentDatabase(), '^shown_local$')")
	check("shown", 92*24*time.Hour)
}

// A period is ratable while every tier that its metric set reads keeps its
// buckets: a metric that names a tier of five minutes has them go with that one,
// for the periods that its set is in force for and no others.
func TestOldestRatable(t *testing.T) {
	s := storetest.Open(t)
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: store.DefaultRetention, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 10, 30, 0, 0, time.UTC)
	check := func(what string, period time.Duration, want time.Time, keep time.Duration) {
		t.Helper()
		got, kept, err := s.OldestRatable(t.Context(), now, period)
		if err != nil || !got.Equal(want) || kept != keep {
			t.Errorf("%s: %s, kept %s, %v, want %s, %s", what, got, kept, err, want, keep)
		}
	}
	const five, hourly = 7 * 24 * time.Hour, 92 * 24 * time.Hour
	whole := func(d time.Duration) time.Time { return now.Add(-d).Truncate(time.Hour).Add(time.Hour) }
	check("built-in set", time.Hour, whole(hourly), hourly)
	check("built-in set, periods of five minutes", 5*time.Minute, now.Add(-five), five)

	apply := func(table string, from time.Time) {
		t.Helper()
		body := "scope_key: project_id\nmetrics:\n  traffic: {unit: B, table: " + table + ", quantity: sum, value: rx_bytes}\n"
		if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: table, Body: body, ValidFrom: from}); err != nil {
			t.Fatal(err)
		}
	}
	apply("port_volume_5min", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	check("a metric of five minutes", time.Hour, whole(five), five)
	changed := now.Add(-30 * 24 * time.Hour).Truncate(time.Hour)
	apply("port_volume", changed)
	check("until another set took over", time.Hour, changed, five)
	apply("port_volume_hourly", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	check("a corrected set", time.Hour, whole(hourly), hourly)
}
