package store_test

import (
	"slices"
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

// original makes them records of the original producer, in a region of its own:
// without interval, identity or owner.
func original(w world) world {
	w = plus(w, world{})
	bare := func(x store.Sample) store.Sample {
		return store.Sample{Region: "o", Host: x.Host, Begin: x.At, At: x.At, InstanceUUID: x.InstanceUUID}
	}
	w.Ports, w.Instances, w.Disks = slices.Clone(w.Ports), slices.Clone(w.Instances), slices.Clone(w.Disks)
	for i := range w.Ports {
		w.Ports[i].Sample, w.Instances[i].Sample, w.Disks[i].Sample = bare(w.Ports[i].Sample), bare(w.Instances[i].Sample), bare(w.Disks[i].Sample)
	}
	return w
}

func insertLate(t *testing.T, s *store.Store, w world) {
	t.Helper()
	common := func(x store.Sample) wire.Common {
		if x.Epoch == 0 {
			return wire.Common{TS: x.At.Unix(), Host: x.Host, RegionName: x.Region, InstanceUUID: x.InstanceUUID}
		}
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
// stored in time and came again are not; and adding may be repeated. Of records
// of the original producer the same holds by the seconds that they tell.
func TestLateSamplesAreAddedOnce(t *testing.T) {
	s := storetest.Open(t)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	both := func(host string, instance byte, from, to int) world {
		w := everyMinute(host, instance, begin, from, to)
		return plus(w, original(w))
	}
	// The host falls silent within an hour, in the middle of five minutes.
	inTime := both("a", 1, 0, 83)
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
	add := func(want world) {
		t.Helper()
		if _, err := s.RollupLate(t.Context(), begin, time.Time{}); err != nil {
			t.Fatal(err)
		}
		want.Compare(t, s, "r")
		want.Compare(t, s, "o")
	}
	// It comes back, sends what it had spooled, and some of what it had sent.
	late := both("a", 1, 83, 130)
	insertLate(t, s, plus(late, both("a", 1, 60, 83)))
	want := plus(inTime, late)
	add(want)
	add(want)
	// Another host comes back later still.
	other := both("b", 2, 10, 70)
	insertLate(t, s, other)
	want = plus(want, other)
	add(want)
	// An original record of a second in which its host's samples were stored may
	// have been one of them: it stays listed.
	insertLate(t, s, original(everyMinute("a", 3, begin, 70, 71)))
	add(want)
	for _, kind := range []string{"port", "instance", "disk"} {
		var added uint64
		if err := s.Conn().QueryRow(t.Context(), "SELECT sum(samples) FROM ingest_counts FINAL WHERE kind = 'late_"+kind+"'").Scan(&added); err != nil || added != 2*(47+60) {
			t.Errorf("%d late %s samples are counted (%v), want %d", added, kind, err, 2*(47+60))
		}
	}
}

// What arrived is noted also when a rollup counted late samples after it came.
func TestACountOfLateSamplesHidesNoArrivals(t *testing.T) {
	s := storetest.Open(t)
	var before, counted, noted time.Time
	if err := s.Conn().Exec(t.Context(), "CREATE MATERIALIZED VIEW sequences_noted ENGINE = Memory AS SELECT now64(6, 'UTC') AS at FROM ingest_sequences"); err != nil {
		t.Fatal(err)
	}
	if err := s.Conn().QueryRow(t.Context(), "SELECT now64(6, 'UTC')").Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := s.Conn().Exec(t.Context(), "INSERT INTO ingest_counts (kind, region, hour, samples, counted_at) SELECT 'late_port', 'r', toStartOfHour(now()), 1, now64(6) + INTERVAL 10 MINUTE"); err != nil {
		t.Fatal(err)
	}
	w := everyMinute("a", 1, before.Truncate(time.Hour).Add(-3*time.Hour), 0, 3)
	w.Insert(t, s)
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT max(last) FROM ingest_ranges WHERE region = 'r'").Scan(&last); err != nil || last != w.Disks[2].Sequence {
		t.Errorf("stored sequences are noted up to %d (%v), want %d", last, err, w.Disks[2].Sequence)
	}
	// The next count starts from when this one began, before any of its statements.
	if err := s.Conn().QueryRow(t.Context(), "SELECT max(counted_at), (SELECT min(at) FROM sequences_noted) FROM ingest_counts WHERE kind = 'port'").Scan(&counted, &noted); err != nil {
		t.Fatal(err)
	}
	if counted.After(noted) || counted.Before(before) {
		t.Errorf("counted at %s, want before %s, when its first statement ran", counted, noted)
	}
}

// A late sample that reaches into hours that the raw tier still has whole is
// added in part; the rest is when those have become old.
func TestALateSampleAcrossTheRawCutoffIsAddedInPart(t *testing.T) {
	s := storetest.Open(t)
	now := time.Now().UTC()
	begin := now.Truncate(time.Hour).Add(-70 * time.Hour)
	w := everyMinute("a", 1, begin, 0, 1)
	for _, x := range []*store.Sample{&w.Ports[0].Sample, &w.Instances[0].Sample, &w.Disks[0].Sample} {
		x.Begin, x.At = begin, begin.Add(30*time.Hour+10*time.Minute)
	}
	whole := everyMinute("a", 1, begin, 10, 11)
	retain := func(raw time.Duration) {
		t.Helper()
		keep := store.Retention{Raw: raw, FiveMin: storetest.Forever.FiveMin, Hourly: storetest.Forever.Hourly}
		if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: keep, SetRetention: true}); err != nil {
			t.Fatal(err)
		}
	}
	retain(54 * time.Hour)
	want := plus(w, whole)
	insertLate(t, s, want)
	rest := begin.Add(31*time.Hour - time.Hour + 54*time.Hour)
	got, err := s.RollupLate(t.Context(), begin, time.Time{})
	if err != nil || got.Added != 3 || got.Partly != 3 || got.Rest == nil || !got.Rest.Equal(rest) {
		t.Errorf("%+v, %v; want 3 whole and 3 in part, the rest from %s on", got, err, rest)
	}
	var bytes uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT sum(rx_bytes) FROM port_volume_hourly FINAL WHERE region = 'r'").Scan(&bytes); err != nil || bytes >= 7+10_007 || bytes < 10_007 {
		t.Errorf("%d bytes are in the tier (%v), want those of one sample and a part of the other's", bytes, err)
	}
	// A window that the operator ends early is told so too.
	if got, err = s.RollupLate(t.Context(), begin, begin.Add(2*time.Hour)); err != nil || got.Partly != 3 || got.Rest == nil || got.Rest.Before(rest) {
		t.Errorf("of two hours: %+v, %v; want the rest from %s on", got, err, rest)
	}
	// One that the operator begins late, of the other end.
	if got, err = s.RollupLate(t.Context(), begin.Add(2*time.Hour), time.Time{}); err != nil || got.Added != 0 || got.Partly != 3 || got.Earlier != 3 {
		t.Errorf("from the third hour on: %+v, %v; want 3 that begin earlier", got, err)
	}
	// The hours have become old.
	retain(30 * time.Hour)
	for range 2 {
		if got, err = s.RollupLate(t.Context(), begin, time.Time{}); err != nil || got.Added != 6 || got.Partly != 0 || got.Rest != nil || got.Earlier != 0 {
			t.Errorf("later: %+v, %v; want all added", got, err)
		}
		want.Compare(t, s, "r")
	}
}

// A host's sequences run across all its resources and kinds. A late sample whose
// sequence lies between those that were stored is added if it never was: here
// every third minute, and one instance of the host's two.
func TestLateSamplesInHolesAreAdded(t *testing.T) {
	s := storetest.Open(t) // it changes the retention
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	var stored, missed world
	for i := range 50 {
		if w := everyMinute("a", 1, begin, i, i+1); i%3 == 1 {
			missed = plus(missed, w)
		} else {
			stored = plus(stored, w)
		}
	}
	// The second instance has the sequences between.
	numbered := func(instance byte, from, to int, later uint64) world {
		w := everyMinute("a", instance, begin, from, to)
		for i := range w.Ports {
			for _, x := range []*uint64{&w.Ports[i].Sequence, &w.Instances[i].Sequence, &w.Disks[i].Sequence} {
				*x += later
			}
		}
		return w
	}
	second := numbered(2, 0, 50, 1000)
	stored = plus(stored, numbered(3, 55, 56, 2000))
	stored.Insert(t, s)
	if _, err := s.Rollup(t.Context(), begin.Add(-time.Hour), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CountIngested(t.Context()); err != nil {
		t.Fatal(err)
	}
	short := storetest.Forever
	short.Raw = 54 * time.Hour
	retain(t, s, short)
	rawGone(t, s, "TRUNCATE TABLE")
	insertLate(t, s, plus(plus(missed, second), stored))
	want := plus(plus(stored, missed), second)
	for range 2 {
		got, err := s.RollupLate(t.Context(), begin, time.Time{})
		if err != nil || got.Added != uint64(3*(len(missed.Ports)+len(second.Ports))) || got.Again != uint64(3*len(stored.Ports)) || got.Untold != 0 {
			t.Errorf("added %d, came again %d, cannot be told %d, %v", got.Added, got.Again, got.Untold, err)
		}
		want.Compare(t, s, "r")
	}
	// A version that noted no ranges: whether they were stored nobody can tell.
	if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE ingest_ranges"); err != nil {
		t.Fatal(err)
	}
	insertLate(t, s, everyMinute("b", 4, begin, 0, 10)) // of a host that nothing is known of
	got, err := s.RollupLate(t.Context(), begin, time.Time{})
	if err != nil || got.Again != 0 || got.Untold == 0 || len(got.Details) != 1 || got.Details[0].Host != "a" || !got.Details[0].Hour.Equal(begin) || got.Added+got.Untold != uint64(3*(len(want.Ports)+10)) {
		t.Errorf("without ranges: %+v, %v", got, err)
	}
	// And one that counted nothing at all.
	for _, table := range []string{"ingest_sequences", "ingest_counts"} {
		if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE "+table); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = s.RollupLate(t.Context(), begin, time.Time{}); err != nil || got.Added != 0 {
		t.Errorf("without any note: %+v, %v", got, err)
	}
}
