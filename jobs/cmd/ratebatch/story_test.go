package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/fault"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// A billing story, from the last hours of November 2026 to the first two of
// December. alpha runs one instance all the time, beta one for half of every
// hour, gamma starts one at midnight.
func TestABillingStory(t *testing.T) {
	b := newBilled(t)
	b.usage("gamma", "2026-12-01 00:00:00", 2, "3600", "2026-11-28 00:00:00")

	// An instance hour costs 1 EUR, and from 22:00 on 2 EUR.
	b.plan("2.00", "--from", "2026-11-30T22:00:00Z")

	// The first run is killed when it is about to commit: nobody owes anything.
	broken := fault.New(b.e.Conn(), 0, "")
	if err := rateOnce("hold")(t.Context(), b.program(), store.New(broken, b.e.Database())); err != nil {
		t.Fatal(err)
	}
	var commit int
	for i, text := range broken.Statements() {
		if strings.Contains(text, "INSERT INTO period_commits") {
			commit = i + 1
		}
	}
	for _, table := range []string{"period_commits", "rated_lines", "late_looks", "complete_months", "job_runs"} {
		b.sql("TRUNCATE TABLE " + table)
	}
	killed := fault.New(b.e.Conn(), commit, fault.DieBefore)
	if err := rateOnce("hold")(t.Context(), b.program(), store.New(killed, b.e.Database())); err == nil {
		t.Fatal("the first run was not killed")
	}
	b.sql("TRUNCATE TABLE leases") // its process is gone
	b.owe("")

	// The next run bills every hour once: two at 1 EUR, the rest at 2 EUR.
	b.rate()
	b.owe("alpha 10, beta 5, gamma 4")
	if r := b.rate(); r.Periods != 0 {
		t.Errorf("a second run rated %d periods", r.Periods)
	}

	// Readings of a second instance of beta turn up for 23:00, a day late. They are
	// listed with what they are worth, and nobody's bill changes.
	b.sql(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, samples, covered_seconds)
		VALUES ('2026-11-30 23:00:00', 'one', '00000000-0000-0000-0000-00000000000b', 'beta', 'm1', 1, 60, 3600)`)
	b.rate()
	b.owe("alpha 10, beta 5, gamma 4")
	if out := b.must("status", "--late", "--now", at, "--first-period", "usage"); !strings.Contains(out, "2 EUR") {
		t.Errorf("status --late does not say what the late usage is worth:\n%s", out)
	}

	// The operator has the hour rated again. The old revision stays readable.
	b.must("backfill", "--scope", "beta", "--from", "2026-11-30T23:00:00Z", "--to", "2026-12-01", "--reason", "host 7 was offline", "--now", at)
	b.owe("alpha 10, beta 7, gamma 4")
	if out := b.must("status", "--late", "--now", at, "--first-period", "usage"); strings.Contains(out, "2 EUR") {
		t.Errorf("the late usage is still listed after it was billed:\n%s", out)
	}

	// November is closed: alpha 2 × 1 + 2 × 2, beta half of that and the late hour.
	if out := b.must("close", "--month", "2026-11", "--reason", "invoiced", "--now", at, "--first-period", "usage"); !strings.Contains(out, "11 EUR") {
		t.Errorf("close:\n%s", out)
	}
	invoice := b.exported()

	// Then the price turns out wrong: 3 EUR from 22:00 on. Rating November again
	// leaves the invoice as it is; what it would change is a correction.
	b.plan("3.00", "--from", "2026-11-30T22:00:00Z", "--force", "--reason", "typing error")
	if out := b.must("status", "--late", "--now", at, "--first-period", "usage"); !strings.Contains(out, "were rated by another rate plan") {
		t.Errorf("status --late does not list the outdated periods:\n%s", out)
	}
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T22:00:00Z", "--to", "2026-12-01", "--reason", "typing error", "--now", at)
	b.owe("alpha 10, beta 7, gamma 4")
	if out := b.must("close", "--list"); !strings.Contains(out, "scope alpha: 8 instead of 6") {
		t.Errorf("close --list does not say what is to be corrected:\n%s", out)
	}
	later := b.exported()
	for line := range strings.SplitSeq(invoice, "\n") {
		if strings.Contains(line, "month=2026-11") && !strings.Contains(later, line) {
			t.Errorf("a file of the closed month changed: %s is not in\n%s", line, later)
		}
	}
	if !strings.Contains(later, "month=2026-12") || !strings.Contains(later, "corrections-2026-11.parquet") {
		t.Errorf("December's files hold no correction of November:\n%s", later)
	}
	b.must("status", "--check", "--now", at, "--first-period", "usage")
}

func TestStatusCheckRingsWhenRatingIsLate(t *testing.T) {
	b := newBilled(t)
	b.fails(20, "periods of 2026-11-30 are due, longer than 1h0m0s", "status", "--check", "--max-lag", "1h", "--now", at, "--first-period", "usage")
	b.must("status", "--check", "--max-lag", "24h", "--now", at, "--first-period", "usage")
	b.rate()
	b.must("status", "--check", "--max-lag", "24h", "--now", at, "--first-period", "usage")
	// The input has stopped: the region holds its scopes up, and that is said.
	b.fails(20, "input of region one is complete up to 2026-12-01T02:00:00Z only", "status", "--check", "--max-lag", "6h", "--now", "2026-12-02", "--first-period", "usage")
}

// Neither the process's time zone nor the server's changes what is rated, not
// even at a clock change: 1 November 2026 has 25 hours in New York.
func TestTimeZonesChangeNothing(t *testing.T) {
	b := newBilled(t)
	hours := func(b *billed) {
		b.begin(faultJob{prepare: func(*billed) {}})
		b.usage("alpha", "2026-10-31 20:00:00", 30, "3600", "2026-11-28 00:00:00")
		b.rateWhole("hold")
	}
	hours(b)
	want := b.outcome()
	if n := strings.Count(want, "commit alpha"); n < 700 {
		t.Fatalf("only %d periods of alpha are rated", n)
	}
	utc := time.Local
	defer func() { time.Local = utc }()
	for _, zone := range []string{"America/New_York", "Asia/Kathmandu"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Skip(err)
		}
		time.Local = location
		hours(b)
		if got := b.outcome(); got != want {
			t.Errorf("process in %s: the outcome differs", zone)
		}
	}
	// A server elsewhere.
	t.Setenv("TZ", "America/New_York")
	e, err := engine.Open(t.Context(), engine.Options{DataDir: t.TempDir(), Database: "zone", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: storetest.Forever}); err != nil {
		t.Fatal(err)
	}
	there := &billed{T: t, e: e, s: s}
	if zone := there.text("SELECT serverTimezone()"); zone != "America/New_York" {
		t.Errorf("the server is in %s", zone)
	}
	if err := s.SetWatermark(t.Context(), store.Watermark{Region: "one", CompleteUntil: time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC), Source: "operator"}, ""); err != nil {
		t.Fatal(err)
	}
	hours(there)
	if got := there.outcome(); got != want {
		t.Errorf("server in New York: the outcome differs from\n%.2000s\nto\n%.2000s", want, got)
	}
}
