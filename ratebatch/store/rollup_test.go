package store_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// The oracle: tiers computed directly from the produced samples, with
// math/big and nothing shared with the SQL.

// produced is a sample of any kind: what it covers, whose it is, and its values.
type produced struct {
	store.Sample
	resource string // what tells resources of an instance apart: port or device
	network  string
	deltas   map[string]uint64  // split over buckets
	gauges   map[string]*uint64 // averaged over time
}

// tierRow is a row of a tier, values as text so that rows compare exactly.
type tierRow struct {
	Bucket                              time.Time
	Region, Instance, Resource, Network string
	Project, User, Flavor, Image        string
	VCPUs                               uint16
	Samples, Ended                      uint32
	Covered                             string
	Name, Host                          string
	Values                              string
}

func (r tierRow) key() string {
	return strings.Join([]string{r.Bucket.Format(time.RFC3339), r.Region, r.Instance, r.Resource, r.Network, r.Project, r.User, r.Flavor, fmt.Sprint(r.VCPUs), r.Image}, "|")
}

// identity makes a sample count once.
func (p produced) identity() string {
	if p.Epoch != 0 {
		return fmt.Sprint(p.Region, "|", p.Host, "|", p.Epoch, "|", p.Sequence)
	}
	return fmt.Sprint(p.Region, "|", p.Host, "|", p.InstanceUUID, "|", p.resource, "|", p.At.UnixMilli())
}

type accumulator struct {
	row     tierRow
	covered int64
	last    produced
	deltas  map[string]*big.Int
	gauges  map[string]*gaugeSum
}

type gaugeSum struct{ weighted, plain, weight, n, max *big.Int }

// directTier aggregates samples into buckets of width milliseconds.
// byteSeconds names the gauges whose time integral the tier keeps, scaled with
// the covered time.
func directTier(samples []produced, width int64, byteSeconds []string) []tierRow {
	seen := map[string]bool{}
	rows := map[string]*accumulator{}
	for _, p := range samples {
		if seen[p.identity()] {
			continue
		}
		seen[p.identity()] = true
		end := p.At.UnixMilli()
		begin := min(p.Begin.UnixMilli(), end)
		lastBucket := (end - 1) / width
		for b := min(begin/width, lastBucket); b <= lastBucket; b++ {
			lo, hi := max(b*width, begin), min((b+1)*width, end)
			row := tierRow{
				Bucket: time.UnixMilli(b * width).UTC(), Region: p.Region, Instance: p.InstanceUUID.String(), Resource: p.resource, Network: p.network,
				Project: p.ProjectID, User: p.UserID, Flavor: p.FlavorName, VCPUs: p.VCPUs, Image: p.ImageID,
			}
			a := rows[row.key()]
			if a == nil {
				a = &accumulator{row: row, deltas: map[string]*big.Int{}, gauges: map[string]*gaugeSum{}}
				rows[row.key()] = a
			}
			a.row.Samples++
			if b == lastBucket {
				a.row.Ended++
			}
			a.covered += hi - lo
			if a.last.At.IsZero() || !p.At.Before(a.last.At) {
				a.last = p
			}
			for name, v := range p.deltas {
				if a.deltas[name] == nil {
					a.deltas[name] = new(big.Int)
				}
				a.deltas[name].Add(a.deltas[name], part(v, lo, hi, begin, end))
			}
			for name, v := range p.gauges {
				g := a.gauges[name]
				if g == nil {
					g = &gaugeSum{new(big.Int), new(big.Int), new(big.Int), new(big.Int), new(big.Int)}
					a.gauges[name] = g
				}
				if v == nil {
					continue
				}
				value, weight := new(big.Int).SetUint64(*v), big.NewInt(hi-lo)
				g.weighted.Add(g.weighted, new(big.Int).Mul(value, weight))
				g.plain.Add(g.plain, value)
				g.weight.Add(g.weight, weight)
				g.n.Add(g.n, big.NewInt(1))
				if value.Cmp(g.max) > 0 {
					g.max = value
				}
			}
		}
	}
	totals := map[string]int64{} // covered per resource and bucket
	total := func(r tierRow) string {
		return r.Bucket.String() + "|" + r.Region + "|" + r.Instance + "|" + r.Resource
	}
	for _, a := range rows {
		totals[total(a.row)] += a.covered
	}
	var out []tierRow
	for _, a := range rows {
		of := totals[total(a.row)]
		capped := func(v *big.Int) *big.Int {
			if of <= width {
				return v
			}
			return new(big.Int).Div(new(big.Int).Mul(v, big.NewInt(width)), big.NewInt(of))
		}
		a.row.Covered = milli(capped(big.NewInt(a.covered)))
		a.row.Name, a.row.Host = a.last.InstanceName, a.last.Host
		values := map[string]string{}
		for name, v := range a.deltas {
			values[name] = v.String()
		}
		for name, g := range a.gauges {
			switch {
			case name == "cpu_pct": // hundredths in, ten-thousandths out
				average := new(big.Int)
				if a.covered > 0 {
					average.Div(new(big.Int).Mul(g.weighted, big.NewInt(100)), big.NewInt(a.covered))
				} else {
					average.Div(new(big.Int).Mul(g.plain, big.NewInt(100)), big.NewInt(int64(a.row.Samples)))
				}
				values["cpu_pct_avg"] = decimal.NewFromBigInt(average, -4).String()
				values["cpu_pct_max"] = decimal.NewFromBigInt(g.max, -2).String()
				continue
			case g.n.Sign() == 0:
				values[name+"_avg"] = "null"
			case g.weight.Sign() > 0:
				values[name+"_avg"] = new(big.Int).Div(g.weighted, g.weight).String()
			default:
				values[name+"_avg"] = new(big.Int).Div(g.plain, g.n).String()
			}
			if slices.Contains(byteSeconds, name) {
				values[strings.TrimSuffix(name, "s")+"_seconds"] = milli(capped(g.weighted))
			}
		}
		a.row.Values = valuesText(values)
		out = append(out, a.row)
	}
	sortRows(out)
	return out
}

// part is the share of v that falls into [lo, hi) of [begin, end).
func part(v uint64, lo, hi, begin, end int64) *big.Int {
	value := new(big.Int).SetUint64(v)
	if begin == end {
		return value
	}
	upTo := func(at int64) *big.Int {
		x := new(big.Int).Mul(value, big.NewInt(at-begin))
		return x.Div(x, big.NewInt(end-begin))
	}
	return new(big.Int).Sub(upTo(hi), upTo(lo))
}

func milli(v *big.Int) string { return decimal.NewFromBigInt(v, -3).String() }

func valuesText(values map[string]string) string {
	var parts []string
	for name, v := range values {
		parts = append(parts, name+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func sortRows(rows []tierRow) {
	slices.SortFunc(rows, func(a, b tierRow) int { return cmp.Compare(a.key(), b.key()) })
}

// kindOf ties a kind of samples to its tiers and to the oracle.
type kindOf struct {
	name        string
	tiers       [2]string // five minutes, hour
	resource    string    // SQL expressions
	network     string
	values      []string // tier columns
	byteSeconds []string
}

var kinds = []kindOf{
	{"port", [2]string{"port_volume_5min", "port_volume_hourly"}, "toString(port_uuid)", "toString(network_uuid)", []string{"rx_bytes", "tx_bytes"}, nil},
	{"instance", [2]string{"instance_metrics_5min", "instance_metrics_hourly"}, "''", "''",
		[]string{"cpu_pct_avg", "cpu_pct_max", "memory_actual_bytes_avg", "memory_rss_bytes_avg", "memory_usable_bytes_avg", "memory_actual_byte_seconds"}, []string{"memory_actual_bytes"}},
	{"disk", [2]string{"disk_metrics_5min", "disk_metrics_hourly"}, "device", "''",
		[]string{"read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes_avg", "allocation_bytes_avg", "physical_bytes_avg", "capacity_byte_seconds"}, []string{"capacity_bytes"}},
}

// readTier reads the rows of a tier that count, of one region.
func readTier(t testing.TB, s *store.Store, k kindOf, width int, region string) []tierRow {
	t.Helper()
	columns := make([]string, len(k.values))
	for i, v := range k.values {
		columns[i] = fmt.Sprintf("concat('%s=', ifNull(toString(%s), 'null'))", v, v)
	}
	text := fmt.Sprintf(`SELECT bucket, toString(region), toString(instance_uuid), toString(%s), toString(%s), toString(project_id), toString(user_id),
		toString(flavor_name), toString(image_id), vcpus, samples, samples_ended, toString(covered_seconds), instance_name, toString(host),
		arrayStringConcat(arraySort([%s]), ' ') FROM %s FINAL WHERE region = {region:String}`, k.resource, k.network, strings.Join(columns, ", "), k.tiers[width])
	rows, err := s.Conn().Query(store.WithParams(t.Context(), store.Params{"region": region}), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []tierRow
	for rows.Next() {
		var r tierRow
		if err := rows.Scan(&r.Bucket, &r.Region, &r.Instance, &r.Resource, &r.Network, &r.Project, &r.User, &r.Flavor, &r.Image, &r.VCPUs,
			&r.Samples, &r.Ended, &r.Covered, &r.Name, &r.Host, &r.Values); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	sortRows(out)
	return out
}

// world holds samples of the three kinds.
type world struct {
	ports     []store.PortSample
	instances []store.InstanceSample
	disks     []store.DiskSample
}

func (w world) insert(t testing.TB, s *store.Store) {
	t.Helper()
	for _, err := range []error{
		s.InsertPortSamples(t.Context(), w.ports, ""),
		s.InsertInstanceSamples(t.Context(), w.instances, ""),
		s.InsertDiskSamples(t.Context(), w.disks, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w world) produced(kind string) []produced {
	var out []produced
	switch kind {
	case "port":
		for _, r := range w.ports {
			out = append(out, produced{r.Sample, r.PortUUID.String(), r.NetworkUUID.String(), map[string]uint64{"rx_bytes": r.RxBytes, "tx_bytes": r.TxBytes}, nil})
		}
	case "instance":
		for _, r := range w.instances {
			cpu := uint64(r.CPUPct.Shift(2).IntPart())
			out = append(out, produced{r.Sample, "", "", nil, map[string]*uint64{
				"cpu_pct": &cpu, "memory_actual_bytes": r.MemoryActualBytes, "memory_rss_bytes": r.MemoryRSSBytes, "memory_usable_bytes": r.MemoryUsableBytes,
			}})
		}
	case "disk":
		value := func(p *uint64) uint64 {
			if p == nil {
				return 0
			}
			return *p
		}
		for _, r := range w.disks {
			out = append(out, produced{
				r.Sample, r.Device, "",
				map[string]uint64{"read_bytes": value(r.ReadBytes), "write_bytes": value(r.WriteBytes), "read_requests": value(r.ReadRequests), "write_requests": value(r.WriteRequests)},
				map[string]*uint64{"capacity_bytes": r.CapacityBytes, "allocation_bytes": r.AllocationBytes, "physical_bytes": r.PhysicalBytes},
			})
		}
	}
	return out
}

// compare reports every tier that differs from the direct computation.
func (w world) compare(t testing.TB, s *store.Store, region string) {
	t.Helper()
	for _, k := range kinds {
		for i, width := range []int64{300_000, 3_600_000} {
			var of []produced
			for _, p := range w.produced(k.name) {
				if p.Region == region {
					of = append(of, p)
				}
			}
			want := directTier(of, width, k.byteSeconds)
			got := readTier(t, s, k, i, region)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("%s differs from the direct computation (-want +got):\n%s", k.tiers[i], diff)
			}
		}
	}
}

var regions atomic.Int64

// Any samples at all: duplicates, clocks that go back, intervals across one or
// many buckets, of no length, on edges; two hosts; resizes; values unknown.
func TestTiersEqualADirectComputation(t *testing.T) {
	s := storetest.Open(t)
	base := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	checks(t, 25)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		region := fmt.Sprintf("region-%d", regions.Add(1))
		w := randomWorld(region, base).Draw(r, "world")
		w.repeated().insert(tb, s)
		rollup(tb, s, base)
		w.compare(tb, s, region)
	})
}

// rollup recomputes everything around base.
func rollup(t testing.TB, s *store.Store, base time.Time) {
	t.Helper()
	if _, err := s.Rollup(t.Context(), base.Add(-24*time.Hour), base.Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// repeated is the same world in another order with every third sample sent twice.
func (w world) repeated() world {
	return world{repeat(w.ports), repeat(w.instances), repeat(w.disks)}
}

func repeat[T any](rows []T) []T {
	random := rand.New(rand.NewPCG(1, uint64(len(rows))))
	out := slices.Clone(rows)
	for i := 0; i < len(rows); i += 3 {
		out = append(out, rows[i])
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// rapidTB lets helpers written for testing.TB fail one case of rapid.Check
// instead of the whole test, so that rapid can shrink it.
type rapidTB struct {
	testing.TB
	rapid *rapid.T
}

func (r rapidTB) Fatal(args ...any)                 { r.rapid.Fatal(args...) }
func (r rapidTB) Fatalf(format string, args ...any) { r.rapid.Fatalf(format, args...) }

// checks sets how many cases rapid tries, unless the command line says so.
func checks(t *testing.T, n int) {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set {
		if err := flag.Set("rapid.checks", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func randomWorld(region string, base time.Time) *rapid.Generator[world] {
	return rapid.Custom(func(t *rapid.T) world {
		var w world
		sequence := uint64(0)
		edge := rapid.Custom(func(t *rapid.T) int64 {
			switch rapid.IntRange(0, 3).Draw(t, "place") {
			case 0:
				return rapid.Int64Range(0, 40).Draw(t, "edge") * 300_000
			case 1:
				return rapid.Int64Range(0, 40).Draw(t, "near an edge")*300_000 + rapid.Int64Range(-1, 1).Draw(t, "by")
			default:
				return rapid.Int64Range(0, 12_000_000).Draw(t, "anywhere")
			}
		})
		length := rapid.Custom(func(t *rapid.T) int64 {
			switch rapid.IntRange(0, 5).Draw(t, "kind of length") {
			case 0:
				return 0
			case 1:
				return rapid.Int64Range(-60_000, 1).Draw(t, "clock set back")
			case 2:
				return rapid.Int64Range(3_000_000, 20_000_000).Draw(t, "hours")
			case 3:
				return 60_000
			default:
				return rapid.Int64Range(1, 700_000).Draw(t, "minutes")
			}
		})
		value := rapid.Uint64Range(0, 1<<56)
		maybe := func(name string) *uint64 {
			if rapid.IntRange(0, 3).Draw(t, name+" known") == 0 {
				return nil
			}
			v := value.Draw(t, name)
			return &v
		}
		taken := map[int64]bool{} // of equal ends it would be open which is last
		common := func() store.Sample {
			sequence++
			at := base.Add(time.Duration(edge.Draw(t, "end")) * time.Millisecond)
			for taken[at.UnixMilli()] {
				at = at.Add(time.Millisecond)
			}
			taken[at.UnixMilli()] = true
			instance := rapid.IntRange(1, 2).Draw(t, "instance")
			flavor := rapid.IntRange(1, 2).Draw(t, "flavor")
			sample := store.Sample{
				Region: region, Host: fmt.Sprintf("host-%d", rapid.IntRange(1, 2).Draw(t, "host")),
				Epoch: 7, Sequence: sequence,
				Begin: at.Add(-time.Duration(length.Draw(t, "length")) * time.Millisecond), At: at,
				InstanceUUID: uuid.UUID{15: byte(instance)}, ProjectID: fmt.Sprintf("project-%d", rapid.IntRange(1, 2).Draw(t, "project")),
				UserID: "user", FlavorName: fmt.Sprintf("flavor-%d", flavor), VCPUs: uint16(flavor), ImageID: "image",
				InstanceName: fmt.Sprintf("vm-%d-%d", instance, rapid.IntRange(1, 2).Draw(t, "name")),
			}
			if rapid.IntRange(0, 4).Draw(t, "original producer") == 0 {
				sample.Epoch, sample.Sequence = 0, 0
			}
			return sample
		}
		for range rapid.IntRange(0, 30).Draw(t, "ports") {
			w.ports = append(w.ports, store.PortSample{
				Sample: common(), PortUUID: uuid.UUID{0: 1, 15: byte(rapid.IntRange(1, 2).Draw(t, "port"))}, NetworkUUID: uuid.UUID{0: 2, 15: byte(rapid.IntRange(1, 2).Draw(t, "network"))},
				RxBytes: value.Draw(t, "rx"), TxBytes: value.Draw(t, "tx"),
			})
		}
		for range rapid.IntRange(0, 30).Draw(t, "instances") {
			w.instances = append(w.instances, store.InstanceSample{
				Sample: common(), CPUPct: decimal.New(rapid.Int64Range(0, 10_000).Draw(t, "cpu"), -2),
				MemoryActualBytes: maybe("actual"), MemoryRSSBytes: maybe("rss"), MemoryUsableBytes: maybe("usable"),
			})
		}
		for range rapid.IntRange(0, 30).Draw(t, "disks") {
			w.disks = append(w.disks, store.DiskSample{
				Sample: common(), Device: fmt.Sprintf("vd%c", 'a'+rune(rapid.IntRange(0, 1).Draw(t, "device"))),
				ReadBytes: maybe("read"), WriteBytes: maybe("write"), ReadRequests: maybe("reads"), WriteRequests: maybe("writes"),
				CapacityBytes: maybe("capacity"), AllocationBytes: maybe("allocation"), PhysicalBytes: maybe("physical"),
			})
		}
		return w
	})
}

// refresh waits for all six views.
func refresh(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.RefreshTiers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The refreshable views run the same text over a window that they find
// themselves: all of the raw tier after a start, later only touched buckets.
func TestViewsEqualADirectComputation(t *testing.T) {
	s := storetest.Open(t)
	base := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	checks(t, 5)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		region := fmt.Sprintf("region-%d", regions.Add(1))
		first := randomWorld(region, base).Draw(r, "world")
		first.repeated().insert(tb, s)
		refresh(tb, s)
		first.compare(tb, s, region)
	})
}
