package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// hours of samples every ten minutes, some of them across the edges of hours.
func arrivals(begin time.Time, hours int) storetest.World {
	var w storetest.World
	for i := range hours * 6 {
		at := begin.Add(time.Duration(i)*10*time.Minute + 7*time.Minute)
		s := store.Sample{Region: "one", Host: "a", Epoch: 1, Sequence: uint64(i + 1), Begin: at.Add(-10 * time.Minute), At: at, InstanceUUID: uuid.UUID{15: 1}, ProjectID: "p"}
		n := uint64(1000 + 7*i)
		w.Ports = append(w.Ports, store.PortSample{Sample: s, PortUUID: uuid.UUID{15: 2}, RxBytes: n, TxBytes: n * 3})
		w.Disks = append(w.Disks, store.DiskSample{Sample: s, Device: "vda", ReadBytes: &n, WriteBytes: &n})
		w.Instances = append(w.Instances, store.InstanceSample{Sample: s, CPUPct: decimal.New(1, 0)})
	}
	return w
}

func TestCountsStandInForRawSamplesThatExpired(t *testing.T) {
	s := storetest.Open(t)
	month := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	w := arrivals(month.Add(48*time.Hour), 30)
	w.Insert(t, s)
	w.Insert(t, s) // every sample twice: counts are of distinct ones
	if _, err := s.Rollup(t.Context(), month, month.AddDate(0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		r, err := (&reconcile.Job{Store: s, Month: ratebatch.Calendar{}.Named(month), Period: time.Hour}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range r.Steps {
			if x.Step == "samples → tiers" && (strings.Contains(x.What, "hourly") || x.Result == reconcile.Fails) {
				got = append(got, x.What+": "+x.Left+"="+x.Right+" "+string(x.Result))
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// 180 samples of 1000 + 7 i bytes: 292770, sent three times as much.
	bytes := []string{
		"bytes read, raw and hourly: 292770=292770 holds", "bytes written, raw and hourly: 292770=292770 holds",
		"bytes received, raw and hourly: 292770=292770 holds", "bytes sent, raw and hourly: 878310=878310 holds",
	}
	check("disk samples, raw and hourly: 180=180 holds", bytes[0], bytes[1], "instance samples, raw and hourly: 180=180 holds",
		"port samples, raw and hourly: 180=180 holds", bytes[2], bytes[3])
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec := func(statements ...string) {
		t.Helper()
		for _, x := range statements {
			if err := s.Conn().Exec(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The raw tier loses what is older than its retention, all but the last hours.
	keep := time.Since(month.Add(48*time.Hour + 25*time.Hour)).Truncate(time.Hour)
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: store.Retention{Raw: keep, FiveMin: storetest.Forever.FiveMin, Hourly: storetest.Forever.Hourly}, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	old := " DELETE WHERE ts <= toDateTime('2026-03-04 00:30:00', 'UTC') SETTINGS mutations_sync = 2"
	exec("ALTER TABLE port_samples"+old, "ALTER TABLE instance_samples"+old, "ALTER TABLE disk_samples"+old)
	counted := "raw (in 27 hours as counted at arrival)"
	check("disk samples, "+counted+" and hourly: 180=180 holds", bytes[0], bytes[1], "instance samples, "+counted+" and hourly: 180=180 holds",
		"port samples, "+counted+" and hourly: 180=180 holds", bytes[2], bytes[3])
	// Counting again with a part of the samples gone changes nothing.
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	var samples uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT sum(samples) FROM ingest_counts FINAL WHERE kind = 'disk'").Scan(&samples); err != nil || samples != 180 {
		t.Errorf("%d samples are counted (%v), want 180", samples, err)
	}
	// A tier that loses an hour whose raw samples are gone is found out.
	exec("ALTER TABLE disk_metrics_hourly DELETE WHERE bucket = toDateTime('2026-03-03 05:00:00', 'UTC') SETTINGS mutations_sync = 2")
	r, err := (&reconcile.Job{Store: s, Month: ratebatch.Calendar{}.Named(month), Period: time.Hour}).Run(t.Context())
	if err != nil || len(r.Failed()) != 3 || !strings.Contains(r.Failed()[0].What, "disk samples") || r.Failed()[0].Right != "174" {
		t.Errorf("%v, failed steps %+v; want disk samples and bytes", err, r.Failed())
	}
}
