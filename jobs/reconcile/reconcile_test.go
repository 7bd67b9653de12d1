package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func step(r reconcile.Report, what string) reconcile.Step {
	for _, s := range r.Steps {
		if strings.Contains(s.What, what) {
			return s
		}
	}
	return reconcile.Step{}
}

func TestAMonthReconcilesUntilSomethingIsChanged(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	run := uuid.New()
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	exporttest.Insert(t, s, run, 1,
		exporttest.Line{Scope: "alpha", Begin: hour(0), Price: "1.5"},
		exporttest.Line{Scope: "alpha", Begin: hour(0), Resource: "vm-2", Price: "0", Bucket: "unpriced"},
		exporttest.Line{Scope: "alpha", Begin: hour(9), Price: "2"})
	exporttest.Commit(t, s, run, 1, "alpha", hour(0), hour(744))
	b, err := bucketfile.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	job := &reconcile.Job{Store: s, Month: ratebatch.Calendar{}.Named(hour(0)), Period: time.Hour, Bucket: b}
	check := func() reconcile.Report {
		t.Helper()
		r, err := job.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := check(); r.Err() != nil || step(r, "deliveries").Result != reconcile.Unknown {
		t.Errorf("before the export: %+v", r.Steps)
	}
	in := exporter.Input{Store: s, Bucket: b, Month: hour(0), Now: hour(2000), Partition: exporter.Whole, RunID: uuid.New()}
	if _, err := exporter.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r := check()
	if r.Err() != nil || step(r, "lines of the commits").Left != "3" || step(r, "money").Left != "3.5" || step(r, "files of the manifest").Result != reconcile.Holds {
		t.Errorf("after the export: %+v", r.Steps)
	}
	if len(r.Buckets) != 1 || r.Buckets[0].Bucket != "unpriced" || r.Buckets[0].Rows != 1 {
		t.Errorf("buckets: %+v", r.Buckets)
	}
	job.Bucket = nil
	if r := check(); r.Err() != nil || step(r, "commits that count and at file://").Result != reconcile.Holds {
		t.Errorf("by the table exports: %+v", r.Steps)
	}
	// Two changes that cancel each other in the sums are found all the same.
	for _, change := range []string{"UPDATE price = price + 1 WHERE begin = '2026-03-01 00:00:00' AND resource = 'vm-1'", "UPDATE price = price - 1 WHERE begin = '2026-03-01 09:00:00'"} {
		if err := s.Conn().Exec(t.Context(), "ALTER TABLE rated_lines "+change+" SETTINGS mutations_sync = 2"); err != nil {
			t.Fatal(err)
		}
	}
	r = check()
	if err := r.Err(); ratebatch.ExitCode(err) != ratebatch.ExitHalted || step(r, "money").Result != reconcile.Holds || !strings.Contains(err.Error(), "2 periods differ, the first is 2026-03-01T00:00:00Z of scope alpha") {
		t.Errorf("after the changes: %v\n%+v", err, r.Steps)
	}
}
