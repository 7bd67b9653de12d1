package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
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

// ratedMonth commits March 2026 of one scope, with three lines, by one run, and
// gives its hours.
func ratedMonth(t *testing.T, s *store.Store) (hour func(n int) time.Time) {
	t.Helper()
	run := uuid.New()
	hour = func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	exporttest.Insert(t, s, run, 1,
		exporttest.Line{Scope: "alpha", Begin: hour(0), Price: "1.5"},
		exporttest.Line{Scope: "alpha", Begin: hour(0), Resource: "vm-2", Price: "0", Bucket: "unpriced"},
		exporttest.Line{Scope: "alpha", Begin: hour(9), Price: "2"})
	exporttest.Commit(t, s, run, 1, "alpha", hour(0), hour(744))
	return hour
}

func TestAMonthReconcilesUntilSomethingIsChanged(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	hour := ratedMonth(t, s)
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
	if r := check(); ratebatch.ExitCode(r.Err()) != ratebatch.ExitHalted || step(r, "deliveries at").Result != reconcile.Fails {
		t.Errorf("a place without deliveries: %+v", r.Steps)
	}
	job.Bucket = nil
	if r := check(); r.Err() != nil || step(r, "deliveries").Result != reconcile.Unknown {
		t.Errorf("before the export: %+v", r.Steps)
	}
	job.Bucket = b
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
	b2, err := bucketfile.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in.Bucket, in.Mechanism = b2, exporter.Append
	if _, err := exporter.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	job.Bucket = b2
	if r := check(); r.Err() != nil || step(r, "money of the lines and of the manifest").Left != "3.5" {
		t.Errorf("append deliveries: %+v", r.Steps)
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

// A price that the pass got wrong, with a commit that agrees with it, is in no
// sum: only pricing the line again finds it.
func TestALineOfAnotherPriceIsFoundByPricingItAgain(t *testing.T) {
	e := enginetest.Open(t)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	const text = "currency: EUR\nservices:\n  - name: instance\n    mappings:\n      - {type: flat, cost: \"1.5\"}\n"
	parsed, err := plan.Parse("plan", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	if _, err := s.AddVersion(t.Context(), store.PlanVersions, store.Version{Digest: parsed.Digest(), Body: text, Currency: "EUR", ValidFrom: hour(0)}); err != nil {
		t.Fatal(err)
	}
	set, err := metric.Parse("the built-in metrics", metric.Default())
	if err != nil {
		t.Fatal(err)
	}
	commit := func(price string) {
		run := uuid.New()
		for _, table := range []string{"rated_lines", "period_commits"} {
			if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE "+table); err != nil {
				t.Fatal(err)
			}
		}
		lines := []exporttest.Line{{Scope: "alpha", Begin: hour(0), Price: "1.5", Qty: "1"}, {Scope: "alpha", Begin: hour(1), Price: "3", Qty: "2"}, {Scope: "alpha", Begin: hour(2), Price: price, Qty: "0.333333333333333333"}}
		exporttest.Insert(t, s, run, 1, lines...)
		exporttest.Commit(t, s, run, 1, "alpha", hour(0), hour(744))
		// exporttest names a plan that is not stored.
		if err := s.Conn().Exec(store.WithParams(t.Context(), store.Params{"plan": parsed.Digest(), "metrics": set.Digest()}),
			"ALTER TABLE period_commits UPDATE plan_digest = {plan:String}, metrics_digest = {metrics:String} WHERE begin > '2026-03-01 00:00:00' SETTINGS mutations_sync = 2"); err != nil {
			t.Fatal(err)
		}
	}
	month := ratebatch.Calendar{}.Named(hour(0))
	job := &reconcile.Job{Store: s, Month: month, Period: time.Hour, Reprice: 100}
	run := func() reconcile.Report {
		t.Helper()
		r, err := job.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	commit("0.5") // 1.5 × 0.333333333333333333 is 0.4999…995, half-even to 18 digits 0.5
	r := run()
	if got := step(r, "lines drawn, and"); r.Err() != nil || got.Left != "2" || got.Result != reconcile.Holds {
		t.Errorf("the right prices: %+v", r.Steps)
	}
	if got := step(r, "1 more lines drawn"); got.Result != reconcile.Unknown {
		t.Errorf("a line of a plan that is not stored: %+v", r.Steps)
	}
	commit("0.500000000000000001")
	r = run()
	if got := step(r, "lines drawn, and"); got.Left != "2" || got.Right != "1" || !strings.Contains(got.Note, "ratebatch explain") {
		t.Errorf("a wrong price: %+v", r.Steps)
	}
	if ratebatch.ExitCode(r.Err()) != ratebatch.ExitHalted {
		t.Errorf("a wrong price gives %v", r.Err())
	}
	job.Reprice = 1 // the same seed draws the same line
	job.Seed = 7
	if a, b := run(), run(); step(a, "lines drawn").Right != step(b, "lines drawn").Right || step(a, "more lines").What != step(b, "more lines").What {
		t.Errorf("one seed, two draws: %+v and %+v", a.Steps, b.Steps)
	}
}

// The lines of a closed and exported month may be removed: what is delivered is
// held against the commits then.
func TestAMonthWithoutItsLinesReconcilesByItsCommits(t *testing.T) {
	s := storetest.Fresh(t)
	hour := ratedMonth(t, s)
	exporttest.Close(t, s, "2026-03", 1)
	month := ratebatch.Calendar{}.Named(hour(0))
	b, err := bucketfile.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := exporter.Input{Store: s, Bucket: b, Month: hour(0), Now: hour(2000), Partition: exporter.Whole, RunID: uuid.New()}
	if _, err := exporter.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if err := s.DropLineMonth(t.Context(), month); err != nil {
		t.Fatal(err)
	}
	// Retention leaves the lines of a month that was not exported: these would be lost.
	exec := func(statement string) {
		t.Helper()
		if err := s.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE exports UPDATE month = '2020-01-01' WHERE 1 SETTINGS mutations_sync = 2")
	r, err := (&reconcile.Job{Store: s, Month: month, Period: time.Hour}).Run(t.Context())
	if err != nil || ratebatch.ExitCode(r.Err()) != ratebatch.ExitHalted {
		t.Errorf("lines that were lost: %v, %v, want exit %d", err, r.Err(), ratebatch.ExitHalted)
	}
	exec("ALTER TABLE exports UPDATE month = '2026-03-01' WHERE 1 SETTINGS mutations_sync = 2")
	for _, to := range []bucket.Bucket{b, nil} {
		r, err := (&reconcile.Job{Store: s, Month: month, Period: time.Hour, Bucket: to, Reprice: 10}).Run(t.Context())
		if err != nil || r.Err() != nil {
			t.Fatalf("%v, %v: %+v", err, r.Err(), r.Steps)
		}
		for _, what := range []string{"usage rows of the commits", "lines of the commits", "lines drawn"} {
			if got := step(r, what); got.Result != reconcile.Unknown || !strings.Contains(got.Note, "retention --lines-after") {
				t.Errorf("%s: %+v, want a step that says why it was not checked", what, got)
			}
		}
		if got := step(r, "commits that count"); got.Result != reconcile.Holds {
			t.Errorf("the files: %+v", r.Steps)
		}
		if got := step(r, "money of the lines and of the manifest"); to != nil && (got.Result != reconcile.Holds || got.Left != "3.5") {
			t.Errorf("the files' money: %+v", got)
		}
	}

	// Nothing new can be made of the month, and the export says why.
	in.Dataset = "statement"
	var halt *ratebatch.HaltError
	if _, err := exporter.Run(t.Context(), in); !errors.As(err, &halt) || !strings.Contains(halt.Hint, "the lines of 2026-03 were removed") || strings.Contains(halt.Hint, "reprocess") {
		t.Errorf("another dataset: %v", err)
	}
}
