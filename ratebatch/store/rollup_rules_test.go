package store_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// Ten o'clock on the day all rules are shown on.
var ten = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func minutes(m float64) time.Time { return ten.Add(time.Duration(m * float64(time.Minute))) }

func sampleOf(region, host string, sequence uint64, begin, at time.Time) store.Sample {
	return store.Sample{
		Region: region, Host: host, Epoch: 1, Sequence: sequence, Begin: begin, At: at,
		InstanceUUID: uuid.UUID{15: 1}, ProjectID: "project", UserID: "user", FlavorName: "small", VCPUs: 1, ImageID: "image", InstanceName: "vm",
	}
}

func traffic(region, host string, sequence uint64, begin, at time.Time, rx uint64) store.PortSample {
	return store.PortSample{Sample: sampleOf(region, host, sequence, begin, at), PortUUID: uuid.UUID{15: 9}, RxBytes: rx}
}

func memory(region, host string, sequence uint64, begin, at time.Time, bytes uint64) store.InstanceSample {
	return store.InstanceSample{Sample: sampleOf(region, host, sequence, begin, at), CPUPct: decimal.New(1250, -2), MemoryActualBytes: &bytes}
}

// short writes a tier's rows for a test: minute of the bucket, samples, samples
// that end, covered seconds, bytes received.
func short(rows []tierRow) string {
	var out []string
	for _, r := range rows {
		_, values, _ := strings.Cut(r.Values, "rx_bytes=")
		rx, _, _ := strings.Cut(values, " ")
		out = append(out, fmt.Sprintf("%s n=%d end=%d %ss rx=%s", r.Bucket.Format("15:04"), r.Samples, r.Ended, r.Covered, rx))
	}
	return strings.Join(out, "; ")
}

func TestSamplesAreSplitOverBuckets(t *testing.T) {
	s := storetest.Fresh(t)
	cases := map[string]struct {
		samples        func(region string) []store.PortSample
		fiveMin, hours string
	}{
		"a sample within a bucket stays whole": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(1), minutes(2), 7)}
			},
			"10:00 n=1 end=1 60s rx=7", "10:00 n=1 end=1 60s rx=7",
		},
		"the remainder goes to the later bucket": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(4.5), minutes(5.5), 7)}
			},
			"10:00 n=1 end=0 30s rx=3; 10:05 n=1 end=1 30s rx=4", "10:00 n=1 end=1 60s rx=7",
		},
		"one byte over two hours is not lost": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(59), minutes(61), 1)}
			},
			"10:55 n=1 end=0 60s rx=0; 11:00 n=1 end=1 60s rx=1", "10:00 n=1 end=0 60s rx=0; 11:00 n=1 end=1 60s rx=1",
		},
		"parts over many buckets add up": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(3), minutes(16), 100)}
			},
			"10:00 n=1 end=0 120s rx=15; 10:05 n=1 end=0 300s rx=38; 10:10 n=1 end=0 300s rx=39; 10:15 n=1 end=1 60s rx=8", "10:00 n=1 end=1 780s rx=100",
		},
		"a sample that ends on an edge belongs to the earlier bucket": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(59), minutes(60), 7)}
			},
			"10:55 n=1 end=1 60s rx=7", "10:00 n=1 end=1 60s rx=7",
		},
		"a sample that begins on an edge belongs to the later bucket": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(60), minutes(61), 7)}
			},
			"11:00 n=1 end=1 60s rx=7", "11:00 n=1 end=1 60s rx=7",
		},
		"a millisecond past the edge is a part": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(59), minutes(60).Add(time.Millisecond), 60001)}
			},
			"10:55 n=1 end=0 60s rx=60000; 11:00 n=1 end=1 0.001s rx=1", "10:00 n=1 end=0 60s rx=60000; 11:00 n=1 end=1 0.001s rx=1",
		},
		"a sample without length goes whole to where it ends": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(7), minutes(7), 7), traffic(r, "a", 2, minutes(60), minutes(60), 5)}
			},
			"10:05 n=1 end=1 0s rx=7; 10:55 n=1 end=1 0s rx=5", "10:00 n=2 end=2 0s rx=12",
		},
		"a clock set back gives a sample without length": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(9), minutes(7), 7)}
			},
			"10:05 n=1 end=1 0s rx=7", "10:00 n=1 end=1 0s rx=7",
		},
		"a repeat counts once": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(1), minutes(2), 7), traffic(r, "a", 1, minutes(1), minutes(2), 7), traffic(r, "a", 2, minutes(2), minutes(3), 7)}
			},
			"10:00 n=2 end=2 120s rx=14", "10:00 n=2 end=2 120s rx=14",
		},
		"of two samples of one moment with two sequences all counts twice but the time": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(1), minutes(2), 7), traffic(r, "a", 2, minutes(1), minutes(2), 7)}
			},
			"10:00 n=2 end=2 60s rx=14", "10:00 n=2 end=2 60s rx=14",
		},
		"an original record counts once per host, port and time": {
			func(r string) []store.PortSample {
				one, again, other := traffic(r, "a", 0, minutes(2), minutes(2), 7), traffic(r, "a", 0, minutes(2), minutes(2), 7), traffic(r, "b", 0, minutes(2), minutes(2), 7)
				one.Epoch, again.Epoch, other.Epoch = 0, 0, 0
				return []store.PortSample{one, again, other}
			},
			"10:00 n=2 end=2 0s rx=14", "10:00 n=2 end=2 0s rx=14",
		},
		"in a migration traffic is summed and time is not": {
			func(r string) []store.PortSample {
				return []store.PortSample{traffic(r, "a", 1, minutes(0), minutes(60), 70), traffic(r, "b", 1, minutes(30), minutes(60), 30)}
			},
			"10:00 n=1 end=0 300s rx=5; 10:05 n=1 end=0 300s rx=6; 10:10 n=1 end=0 300s rx=6; 10:15 n=1 end=0 300s rx=6; 10:20 n=1 end=0 300s rx=6; 10:25 n=1 end=0 300s rx=6; " +
				"10:30 n=2 end=0 300s rx=10; 10:35 n=2 end=0 300s rx=11; 10:40 n=2 end=0 300s rx=11; 10:45 n=2 end=0 300s rx=11; 10:50 n=2 end=0 300s rx=11; 10:55 n=2 end=2 300s rx=11",
			"10:00 n=2 end=2 3600s rx=100",
		},
	}
	type region = string
	names := map[string]region{}
	for name, tt := range cases {
		names[name] = fmt.Sprintf("rule-%d", len(names))
		if err := s.InsertPortSamples(t.Context(), tt.samples(names[name]), ""); err != nil {
			t.Fatal(err)
		}
	}
	rollup(t, s, ten)
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			if got := short(readTier(t, s, kinds[0], 0, names[name])); got != tt.fiveMin {
				t.Errorf("five minutes: %s\nwant          %s", got, tt.fiveMin)
			}
			if got := short(readTier(t, s, kinds[0], 1, names[name])); got != tt.hours {
				t.Errorf("hours: %s\nwant   %s", got, tt.hours)
			}
		})
	}
}

func TestAResizeGivesTwoRowsEachWithItsOwnTime(t *testing.T) {
	s := storetest.Fresh(t)
	before, after := memory("r", "a", 1, minutes(0), minutes(20), 1000), memory("r", "a", 2, minutes(20), minutes(60), 4000)
	after.FlavorName, after.VCPUs = "large", 4
	if err := s.InsertInstanceSamples(t.Context(), []store.InstanceSample{before, after}, ""); err != nil {
		t.Fatal(err)
	}
	rollup(t, s, ten)
	var got []string
	for _, r := range readTier(t, s, kinds[1], 1, "r") {
		got = append(got, fmt.Sprintf("%s %d vCPUs %ss %s", r.Flavor, r.VCPUs, r.Covered, r.Values))
	}
	want := []string{
		"large 4 vCPUs 2400s cpu_pct_avg=12.5 cpu_pct_max=12.5 memory_actual_byte_seconds=9600000 memory_actual_bytes_avg=4000 memory_rss_bytes_avg=null memory_usable_bytes_avg=null",
		"small 1 vCPUs 1200s cpu_pct_avg=12.5 cpu_pct_max=12.5 memory_actual_byte_seconds=1200000 memory_actual_bytes_avg=1000 memory_rss_bytes_avg=null memory_usable_bytes_avg=null",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTimeBeyondTheBucketIsScaledDown(t *testing.T) {
	s := storetest.Fresh(t)
	// Two hosts report the whole hour and a quarter of it: 4500 s of 3600.
	long, overlap := memory("r", "a", 1, minutes(0), minutes(60), 1000), memory("r", "b", 1, minutes(45), minutes(60), 1000)
	overlap.FlavorName = "large"
	if err := s.InsertInstanceSamples(t.Context(), []store.InstanceSample{long, overlap}, ""); err != nil {
		t.Fatal(err)
	}
	rollup(t, s, ten)
	var got []string
	for _, r := range readTier(t, s, kinds[1], 1, "r") {
		_, rest, _ := strings.Cut(r.Values, "byte_seconds=")
		byteSeconds, _, _ := strings.Cut(rest, " ")
		got = append(got, r.Flavor+" "+r.Covered+" "+byteSeconds)
	}
	if want := "large 720 720000; small 2880 2880000"; strings.Join(got, "; ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "; "), want)
	}
}

// Of a live migration both hosts report the time in which both had the domain:
// it counts once, also in an hour that the domain does not fill.
func TestTimeThatTwoHostsHaveCountsOnce(t *testing.T) {
	s := storetest.Fresh(t)
	var w world
	for host, from := range map[string]float64{"a": 30, "b": 40} {
		for i := range 20 {
			begin, end := minutes(from+float64(i)), minutes(from+float64(i)+1)
			w.Instances = append(w.Instances, memory("r", host, uint64(i+1), begin, end, 1000))
			w.Ports = append(w.Ports, traffic("r", host, uint64(i+101), begin, end, 10))
		}
	}
	w.Insert(t, s)
	rollup(t, s, ten)
	w.Compare(t, s, "r")
	for tier, width := range []int{300, 3600} {
		rows, covered := readTier(t, s, kinds[1], tier, "r"), decimal.Zero
		for _, r := range rows {
			covered = covered.Add(decimal.RequireFromString(r.Covered))
		}
		if covered.String() != "1800" || len(rows) != map[int]int{300: 6, 3600: 1}[width] {
			t.Errorf("%d rows of %d s cover %s s, want 1800: from minute 30 to 60", len(rows), width, covered)
		}
	}
}

func TestAFullerRowIsNeverReplaced(t *testing.T) {
	s := storetest.Fresh(t)
	var samples []store.PortSample
	for i := range 60 {
		samples = append(samples, traffic("r", "a", uint64(i+1), minutes(float64(i)), minutes(float64(i+1)), 10))
	}
	if err := s.InsertPortSamples(t.Context(), samples, ""); err != nil {
		t.Fatal(err)
	}
	rollup(t, s, ten)
	if err := s.Conn().Exec(t.Context(), "DELETE FROM port_samples WHERE ts <= toDateTime64('2026-03-01 10:30:00', 3, 'UTC')"); err != nil {
		t.Fatal(err)
	}
	rollup(t, s, ten)
	refresh(t, s)
	for _, final := range []bool{false, true} {
		if final {
			if err := s.Conn().Exec(t.Context(), "OPTIMIZE TABLE port_volume_hourly FINAL"); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := short(readTier(t, s, kinds[0], 1, "r")), "10:00 n=60 end=60 3600s rx=600"; got != want {
			t.Errorf("after half of the raw samples expired: %s, want %s", got, want)
		}
	}
}

func TestLateSamplesReachTheirBuckets(t *testing.T) {
	s := storetest.Fresh(t)
	now := time.Now().UTC()
	var w world
	add := func(sequence uint64, ago time.Duration, ingested time.Duration) {
		at := now.Add(-ago).Truncate(time.Millisecond)
		p := traffic("r", "a", sequence, at.Add(-90*time.Second), at, sequence*1000+7)
		p.IngestedAt = now.Add(-ingested).Truncate(time.Second)
		w.Ports = append(w.Ports, p)
	}
	for i := range 40 { // every hour of 40 has a sample that came in time
		add(uint64(i+1), time.Duration(i+2)*time.Hour, time.Duration(i+2)*time.Hour)
	}
	w.Insert(t, s)
	restart(t, s)
	w.Compare(t, s, "r")
	onTime := len(w.Ports)
	add(100, 5*time.Hour+11*time.Minute, 0)
	add(101, 30*time.Hour+17*time.Minute, 0)
	add(102, 30*time.Hour+18*time.Minute, 0)
	late := world{Ports: w.Ports[onTime:]}
	late.Insert(t, s)
	if before := count(t, s, "port_volume_hourly"); before == 0 {
		t.Fatal("nothing was rolled up")
	}
	refresh(t, s)
	w.Compare(t, s, "r")
}

func TestARefreshThatRepeatsWorkWritesNothing(t *testing.T) {
	s := storetest.Open(t)
	w := world{
		Ports:     []store.PortSample{traffic("r", "a", 1, minutes(3), minutes(70), 100)},
		Instances: []store.InstanceSample{memory("r", "a", 1, minutes(3), minutes(70), 1000)},
		Disks:     []store.DiskSample{{Sample: sampleOf("r", "a", 1, minutes(3), minutes(70)), Device: "vda"}},
	}
	w.Insert(t, s)
	rollup(t, s, ten)
	before := map[string]uint64{}
	for _, k := range kinds {
		for _, tier := range k.Tiers {
			if err := s.Conn().Exec(t.Context(), "SYSTEM STOP MERGES "+tier); err != nil {
				t.Fatal(err)
			}
			before[tier] = count(t, s, tier)
		}
	}
	rollup(t, s, ten)
	refresh(t, s)
	for tier, rows := range before {
		if got := count(t, s, tier); got != rows || rows == 0 {
			t.Errorf("%s has %d rows after repetition, %d before", tier, got, rows)
		}
	}
}

func count(t testing.TB, s *store.Store, table string) uint64 {
	t.Helper()
	var rows uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT count() FROM "+table).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestAServerThatJustStartedFindsWhatItMissed(t *testing.T) {
	s := storetest.Open(t)
	old := time.Now().Add(-30 * 24 * time.Hour)
	var w world
	for i := range 30 {
		p := traffic("r", "a", uint64(i+1), minutes(float64(i)*7), minutes(float64(i)*7+9), uint64(i)*1001+5)
		p.IngestedAt = old // long before any window of minutes
		w.Ports = append(w.Ports, p)
	}
	first := world{Ports: w.Ports[:20]}
	first.Insert(t, s)
	refresh(t, s)
	second := world{Ports: w.Ports[20:]}
	second.Insert(t, s)
	restart(t, s)
	w.Compare(t, s, "r")
}

func TestOnlyClosedBucketsAreComputed(t *testing.T) {
	s := storetest.Fresh(t)
	now := time.Now().UTC()
	hour := now.Truncate(time.Hour)
	w := world{Ports: []store.PortSample{
		traffic("r", "a", 1, hour.Add(-90*time.Second), hour.Add(-30*time.Second), 5), // in the last closed hour
		traffic("r", "a", 2, hour.Add(-30*time.Second), now, 7),                       // into the open one
	}}
	w.Insert(t, s)
	for name, compute := range map[string]func(){
		"a rollup by hand": func() {
			if _, err := s.Rollup(t.Context(), hour.Add(-24*time.Hour), now.Add(48*time.Hour)); err != nil {
				t.Fatal(err)
			}
		},
		"the views": func() { refresh(t, s) },
	} {
		compute()
		for _, r := range readTier(t, s, kinds[0], 1, "r") {
			if !r.Bucket.Before(hour) {
				t.Errorf("%s computed the open hour %s", name, r.Bucket)
			}
		}
		for _, r := range readTier(t, s, kinds[0], 0, "r") {
			if r.Bucket.Add(5 * time.Minute).After(time.Now()) {
				t.Errorf("%s computed the open five minutes %s", name, r.Bucket)
			}
		}
		if rows := readTier(t, s, kinds[0], 1, "r"); len(rows) != 1 || rows[0].Samples != 2 || rows[0].Ended != 1 {
			t.Errorf("%s: %s, want the closed hour with parts of both samples", name, short(rows))
		}
	}
}

func TestBucketsOlderThanRawRetentionAreLeftAlone(t *testing.T) {
	e := storetest.Open(t)
	keep := store.Retention{Raw: 54 * time.Hour, FiveMin: storetest.Forever.FiveMin, Hourly: storetest.Forever.Hourly}
	if _, err := e.Migrate(t.Context(), store.MigrateOptions{Retention: keep, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	result, err := e.Rollup(t.Context(), time.Now().Add(-100*time.Hour), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	oldest := time.Now().Add(-54 * time.Hour)
	if result.Before.Before(oldest) || result.Before.After(oldest.Add(time.Hour)) {
		t.Errorf("buckets before %s were left alone, want the first whole hour after %s", result.Before, oldest)
	}
}

func TestRollupRefusesAWindowWithNothingClosed(t *testing.T) {
	s := storetest.Fresh(t)
	for name, from := range map[string]time.Time{"in the future": time.Now().Add(48 * time.Hour), "backwards": ten} {
		_, err := s.Rollup(t.Context(), from, ten.Add(-time.Hour))
		if ratebatch.ExitCode(err) != ratebatch.ExitConfig {
			t.Errorf("%s: %v, want a configuration error", name, err)
		}
	}
}

func TestABlockWithTheSameTokenIsWrittenOnce(t *testing.T) {
	s := storetest.Open(t)
	rows := []store.PortSample{traffic("r", "a", 1, minutes(0), minutes(1), 1), traffic("r", "a", 2, minutes(1), minutes(2), 2)}
	for range 2 {
		if err := s.InsertPortSamples(t.Context(), rows, "topic/0/0-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Conn().Exec(t.Context(), "SYSTEM STOP MERGES port_samples"); err != nil {
		t.Fatal(err)
	}
	if got := count(t, s, "port_samples"); got != 2 {
		t.Errorf("%d rows after the same block twice, want 2", got)
	}
	if err := s.InsertPortSamples(t.Context(), rows, "topic/0/2-3"); err != nil {
		t.Fatal(err)
	}
	if got := count(t, s, "port_samples"); got != 4 {
		t.Errorf("%d rows after another token, want 4: the tiers drop repeats, not the insert", got)
	}
}

// restart makes the views anew and refreshes them: they have no last refresh
// then, like those of a server that has just started.
func restart(t testing.TB, s *store.Store) {
	t.Helper()
	migrations, err := store.Migrations(store.MigrateOptions{Retention: storetest.Forever})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		if name, ok := strings.CutSuffix(m.Name[4:], "_refresh"); ok {
			if err := s.Conn().Exec(t.Context(), "DROP VIEW "+name+"_refresh SYNC"); err != nil {
				t.Fatal(err)
			}
			if err := s.Conn().Exec(t.Context(), m.Statements[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	refresh(t, s)
}

// A kind without raw samples has nothing that its tiers could take up: an engine
// that has just started would look at every row of the tier for it.
func TestAKindWithoutSamplesIsNotRefreshed(t *testing.T) {
	if left := 10*time.Minute - time.Since(time.Now().Truncate(10*time.Minute)); left < 20*time.Second {
		time.Sleep(left + time.Second) // then all views refresh by themselves
	}
	s := storetest.Fresh(t)
	views := func() map[string]time.Time {
		t.Helper()
		list, err := s.TierViews(t.Context())
		if err != nil || len(list) != 6 {
			t.Fatalf("%d views, %v", len(list), err)
		}
		out := map[string]time.Time{}
		for _, v := range list {
			out[v.View] = v.LastSuccess
		}
		return out
	}
	exec := func(text string) {
		t.Helper()
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for view := range views() {
		exec("SYSTEM START VIEW " + view)
		exec("SYSTEM REFRESH VIEW " + view)
		exec("SYSTEM WAIT VIEW " + view)
	}
	before := views()
	time.Sleep(1100 * time.Millisecond) // the times are whole seconds
	if err := s.RefreshTiers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := views(); !maps.Equal(before, after) {
		t.Errorf("without samples: refreshed at %v, then at %v", before, after)
	}
	exec("INSERT INTO instance_samples (ts, begin, region, project_id) SELECT now64(3) - 7260, now64(3) - 7320, 'r', 'p'")
	if err := s.RefreshTiers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for view, at := range views() {
		if fresh, want := at.After(before[view]), strings.HasPrefix(view, "instance_"); fresh != want {
			t.Errorf("with a sample of an instance: %s refreshed is %v, want %v", view, fresh, want)
		}
	}
}
