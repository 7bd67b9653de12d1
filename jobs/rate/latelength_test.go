package rate_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// Usage that arrives late in a month that was rated in hours is named once periods
// have five minutes, and neither compared with them nor passed over in silence.
func TestLateUsageInPeriodsOfAnotherLengthIsNamed(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, "currency: EUR\nservices: [{name: instance, mappings: [{type: flat, cost: 1}]}]\n", time.Unix(0, 0))
	hours := options("2026-11-01T06:00:01Z")
	if r, err := run(t.Context(), s, hours); err != nil || r.Periods == 0 {
		t.Fatalf("%d periods were rated: %v", r.Periods, err)
	}
	month := ratebatch.Calendar{}.Named(at("2026-11-01T00:00:00Z"))
	if err := s.FreezeMonth(t.Context(), month, 1, "", "test"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutMonthClose(t.Context(), month, store.MonthChange{Closed: 1, Kind: "close"}, nil); err != nil {
		t.Fatal(err)
	}
	look := func(period time.Duration) (rate.LateResult, string) {
		t.Helper()
		var log bytes.Buffer
		o := hours
		o.Period = period
		job := &rate.Job{Store: s, Log: slog.New(slog.NewTextHandler(&log, nil)), Options: o}
		r, err := jobs.Start(t.Context(), s, "rate", nil, "test", o.Now)
		if err != nil {
			t.Fatal(err)
		}
		result, err := job.Look(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return result, log.String()
	}
	for _, table := range []string{"instance_metrics_hourly", "instance_metrics_5min"} {
		for _, begin := range []string{"00:00:00", "00:20:00", "01:00:00"} {
			if table == "instance_metrics_hourly" && begin == "00:20:00" {
				continue
			}
			exec(t, s, "INSERT INTO "+table+" (bucket, region, instance_uuid, project_id, flavor_name, samples, covered_seconds, refreshed_at) VALUES ('2026-11-01 "+begin+"', 'one', '00000000-0000-0000-0000-000000000009', 'alpha', 'm1.small', 5, 300, now() + 60)")
		}
	}
	result, log := look(5 * time.Minute)
	if result.Late != 0 || result.Candidates != 0 || !strings.Contains(log, "usage arrived in periods of another length") || !strings.Contains(log, "periods=2") {
		t.Errorf("by five minutes %d candidates, %d of them late; the log says\n%s", result.Candidates, result.Late, log)
	}
	if result, log = look(time.Hour); result.Late != 2 || strings.Contains(log, "another length") {
		t.Errorf("by hours %d are late, want 2; the log says\n%s", result.Late, log)
	}
}
