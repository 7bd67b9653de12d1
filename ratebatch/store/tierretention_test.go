package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
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
		"bucket + INTERVAL 7948800 SECOND": 92 * 24 * time.Hour,
		"toDateTime(ts) + INTERVAL 6 HOUR": 6 * time.Hour,
		"bucket + INTERVAL 3 WEEK DELETE":  21 * 24 * time.Hour,
		"bucket + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9)), bucket + INTERVAL 90 DAY": 90 * 24 * time.Hour,
		"bucket + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9))":                           0,
	} {
		run("ALTER TABLE tier MODIFY TTL " + ttl)
		check("tier", want)
	}
	for _, ttl := range []string{"bucket + INTERVAL 3 MONTH", "bucket + INTERVAL 6 HOUR DELETE WHERE n = 1", "toStartOfDay(bucket) + INTERVAL 1 DAY"} {
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
