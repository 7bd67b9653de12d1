package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/rate"
)

// Somebody stopped a view: the tiers of all others are brought up to date all the
// same, and a watermark that is set meanwhile does not count.
func TestAStoppedViewLeavesTheOtherTiersFresh(t *testing.T) {
	b := newBilled(t)
	const kept = "port_volume_5min_refresh"
	views, err := b.s.TierViews(t.Context())
	if err != nil || len(views) != 6 {
		t.Fatalf("%d views, %v", len(views), err)
	}
	for _, v := range views {
		if v.View != kept {
			b.sql("SYSTEM START VIEW " + v.View)
			b.sql("SYSTEM WAIT VIEW " + v.View)
			t.Cleanup(func() { _ = b.e.Conn().Exec(context.Background(), "SYSTEM STOP VIEW "+v.View) })
		}
	}
	b.sql("INSERT INTO instance_samples (begin, ts, region, host, epoch, sequence, project_id) SELECT toStartOfHour(now()) - 7200, toStartOfHour(now()) - 3600, 'one', 'h', 1, 1, 'fresh'")
	b.sql("INSERT INTO port_samples (begin, ts, region, host, epoch, sequence, project_id) SELECT toStartOfHour(now()) - 7200, toStartOfHour(now()) - 3600, 'one', 'h', 1, 2, 'fresh'")
	fresh := func(period time.Duration) (time.Time, string) {
		t.Helper()
		var log bytes.Buffer
		p := &program{log: slog.New(slog.NewTextHandler(&log, nil))}
		asOf, err := p.freshTiers(t.Context(), b.s, &rate.Job{Store: b.s, Options: rate.Options{Period: period}})
		if err != nil {
			t.Fatal(err)
		}
		return asOf, log.String()
	}
	began, err := b.s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asOf, log := fresh(time.Hour)
	if asOf.Before(began) || log != "" {
		t.Errorf("tiers as of %v, want after %v; a view that rating does not read: %q", asOf, began, log)
	}
	for _, table := range []string{"instance_metrics_hourly", "instance_metrics_5min", "port_volume_hourly"} {
		var n uint64
		if err := b.e.Conn().QueryRow(t.Context(), "SELECT count() FROM "+table+" WHERE project_id = 'fresh'").Scan(&n); err != nil || n == 0 {
			t.Errorf("%s has %d rows of the sample, %v", table, n, err)
		}
	}
	if asOf, log = fresh(5 * time.Minute); asOf.IsZero() || !strings.Contains(log, "becomes late usage") || !strings.Contains(log, kept) {
		t.Errorf("as of %v, one that it reads: %q", asOf, log)
	}
}
