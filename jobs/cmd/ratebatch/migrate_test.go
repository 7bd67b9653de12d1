package main

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// Where a newer program has migrated the database, an older one bills nothing: no
// job begins, and serve, which may run since long before, shows no figures within a
// minute.
func TestAnOlderProgramBillsNothingOnANewerSchema(t *testing.T) {
	withoutVariables(t)
	flags, e := database(t)
	var ahead atomic.Int64
	s := startServeAt(t, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, flags...)
	costs := func() (int, string) {
		t.Helper()
		status, _, body := s.ask(t, http.MethodGet, "/api/v1/costs?month=2026-11", "")
		return status, string(body)
	}
	if status, body := costs(); status != http.StatusOK {
		t.Errorf("before: %d %s", status, body)
	}
	if err := e.Conn().Exec(t.Context(), "INSERT INTO schema_migrations (version, name, digest) VALUES (999, '999_x', 'x')"); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		append([]string{"rate"}, now...), append([]string{"rate", "--dry-run"}, now...), {"close", "--month", "2026-11"}, {"export", "--month", "2026-11", "--to", t.TempDir()},
		{"reconcile", "--month", "2026-11"}, {"reset", "--scope", "project-0", "--to", "2026-11-01", "--reason", "x", "--yes"}, {"retention"}, {"status"}, {"migrate"},
		{"reprocess", "run"}, {"rollup", "--from", "2026-11-01", "--to", "2026-11-02"}, {"watermark", "--region", "one", "--until", "2026-11-04T00:00:00Z"},
	} {
		if code, _, stderr := cli(t, append(append([]string{}, flags...), command...)...); code != 20 || !strings.Contains(stderr, "migration 999, which this program does not know") {
			t.Errorf("%v: exit %d, want 20\n%s", command, code, stderr)
		}
	}
	ahead.Store(int64(61 * time.Second))
	if status, body := costs(); status != http.StatusServiceUnavailable || !strings.Contains(body, "a newer version of Ratebatch has migrated") {
		t.Errorf("a minute after: %d %s", status, body)
	}
	if status, _, body := s.ask(t, http.MethodGet, "/api/v1/health", ""); status != http.StatusServiceUnavailable || !strings.Contains(string(body), "A newer version") {
		t.Errorf("health: %d %s", status, body)
	}
}

// Whoever makes tables of a cluster is told that nobody has yet billed from one.
func TestMigrateWarnsOfClusters(t *testing.T) {
	withoutVariables(t)
	o := enginetest.Options(t)
	_, _, stderr := cli(t, "--data", o.DataDir, "--database", o.Database, "migrate", "--cluster", "billing")
	if !strings.Contains(stderr, "never tested with several servers") {
		t.Errorf("migrate --cluster: %s", stderr)
	}
	if _, _, stderr := cli(t, "--data", o.DataDir, "--database", o.Database, "migrate"); strings.Contains(stderr, "several servers") {
		t.Errorf("migrate of one server: %s", stderr)
	}
}
