package main

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Usage that went with its tier's age is not checked any more, and is no
// failure; usage that went otherwise is one, before and after that.
func TestReconcileTellsExpiredUsageFromLostUsage(t *testing.T) {
	b := newBilled(t)
	b.rate()
	reconcile := []string{"reconcile", "--month", "2026-11"}
	if out := b.must(reconcile...); !strings.Contains(out, "usage rows now and at their commits") || strings.Contains(out, "usage rows of before") {
		t.Errorf("whole:\n%s", out)
	}
	lose := func(hour string) {
		b.sql("DELETE FROM instance_metrics_hourly WHERE bucket = '2026-11-30 " + hour + ":00:00'")
	}
	lose("20")
	const lost = "usage rows now and at their commits: "
	b.fails(ratebatch.ExitHalted, lost, reconcile...)
	b.sql("INSERT INTO kept_since (tier, since, reason) VALUES ('instance_metrics_hourly', '2026-11-30 20:30:00', 'expired')")
	if out := b.must(reconcile...); !strings.Contains(out, "usage rows of before 2026-11-30T21:00:00Z") || !strings.Contains(out, "not checked") {
		t.Errorf("in part expired:\n%s", out)
	}
	lose("22")
	b.fails(ratebatch.ExitHalted, lost, reconcile...)
}
