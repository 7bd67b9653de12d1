package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// everyMinute are samples of one instance for the minutes [from, to) after
// begin, as its host numbers them.
func everyMinute(host string, instance byte, begin time.Time, from, to int) (w world) {
	for i := from; i < to; i++ {
		at := begin.Add(time.Duration(i+1)*time.Minute + 30*time.Second)
		s := store.Sample{Region: "r", Host: host, Epoch: 1, Begin: at.Add(-time.Minute), At: at, InstanceUUID: uuid.UUID{15: instance},
			ProjectID: "project", UserID: "user", FlavorName: "small", VCPUs: 1, ImageID: "image", InstanceName: "vm"}
		n, size := uint64(1000*i+7), uint64(1<<30)
		s.Sequence = uint64(3*i + 1)
		w.Ports = append(w.Ports, store.PortSample{Sample: s, PortUUID: uuid.UUID{15: instance}, RxBytes: n, TxBytes: 3 * n})
		s.Sequence++
		w.Instances = append(w.Instances, store.InstanceSample{Sample: s, CPUPct: decimal.New(1250, -2), MemoryActualBytes: &size})
		s.Sequence++
		w.Disks = append(w.Disks, store.DiskSample{Sample: s, Device: "vda", ReadBytes: &n, CapacityBytes: &size})
	}
	return w
}

func plus(a, b world) world {
	return world{Ports: append(a.Ports[:len(a.Ports):len(a.Ports)], b.Ports...), Instances: append(a.Instances[:len(a.Instances):len(a.Instances)], b.Instances...),
		Disks: append(a.Disks[:len(a.Disks):len(a.Disks)], b.Disks...)}
}

func insertLate(t *testing.T, s *store.Store, w world) {
	t.Helper()
	common := func(x store.Sample) wire.Common {
		return wire.Common{V: 1, TS: x.At.Unix(), Host: x.Host, RegionName: x.Region, InstanceUUID: x.InstanceUUID, BeginMS: x.Begin.UnixMilli(), EndMS: x.At.UnixMilli(), Epoch: x.Epoch, Sequence: x.Sequence,
			ProjectID: x.ProjectID, UserID: x.UserID, FlavorName: x.FlavorName, VCPUs: x.VCPUs, ImageID: x.ImageID, InstanceName: x.InstanceName}
	}
	var rows []store.Late
	for _, x := range w.Ports {
		r := wire.Port{Common: common(x.Sample), PortUUID: x.PortUUID, NetworkUUID: x.NetworkUUID, RxBytes: x.RxBytes, TxBytes: x.TxBytes}
		rows = append(rows, store.Late{Kind: "port", Sample: x.Sample, Record: r.Append(nil)})
	}
	for _, x := range w.Instances {
		r := wire.Instance{Common: common(x.Sample), CPUPct: wire.Hundredths(x.CPUPct.Shift(2).IntPart()), MemoryActualBytes: x.MemoryActualBytes}
		rows = append(rows, store.Late{Kind: "instance", Sample: x.Sample, Record: r.Append(nil)})
	}
	for _, x := range w.Disks {
		r := wire.Disk{Common: common(x.Sample), Device: x.Device, ReadBytes: x.ReadBytes, CapacityBytes: x.CapacityBytes}
		rows = append(rows, store.Late{Kind: "disk", Sample: x.Sample, Record: r.Append(nil)})
	}
	if err := s.InsertLate(t.Context(), rows, ""); err != nil {
		t.Fatal(err)
	}
}

// Late samples are added to rows whose raw samples are gone; those that were
// stored in time and came again are not; and adding may be repeated.
func TestLateSamplesAreAddedOnce(t *testing.T) {
	s := storetest.Open(t)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	// The host falls silent within an hour, in the middle of five minutes.
	inTime := everyMinute("a", 1, begin, 0, 83)
	inTime.Insert(t, s)
	if _, err := s.Rollup(t.Context(), begin.Add(-time.Hour), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	keep := store.Retention{Raw: 54 * time.Hour, FiveMin: storetest.Forever.FiveMin, Hourly: storetest.Forever.Hourly}
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: keep, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"port_samples", "instance_samples", "disk_samples"} {
		if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE "+table); err != nil { // they have expired
			t.Fatal(err)
		}
	}
	add := func() {
		t.Helper()
		if _, err := s.RollupLate(t.Context(), begin, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	// It comes back, sends what it had spooled, and some of what it had sent.
	late := everyMinute("a", 1, begin, 83, 130)
	insertLate(t, s, plus(late, everyMinute("a", 1, begin, 60, 83)))
	add()
	want := plus(inTime, late)
	want.Compare(t, s, "r")
	add()
	want.Compare(t, s, "r")
	// Another host comes back later still.
	other := everyMinute("b", 2, begin, 10, 70)
	insertLate(t, s, other)
	add()
	want = plus(want, other)
	want.Compare(t, s, "r")
	for _, kind := range []string{"port", "instance", "disk"} {
		var added uint64
		if err := s.Conn().QueryRow(t.Context(), "SELECT sum(samples) FROM ingest_counts FINAL WHERE kind = 'late_"+kind+"'").Scan(&added); err != nil || added != 47+60 {
			t.Errorf("%d late %s samples are counted (%v), want %d", added, kind, err, 47+60)
		}
	}
}
