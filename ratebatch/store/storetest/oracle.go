package storetest

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/store"
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

// TierRow is a row of a tier, values as text so that rows compare exactly.
type TierRow struct {
	Bucket                              time.Time
	Region, Instance, Resource, Network string
	Project, User, Flavor, Image        string
	VCPUs                               uint16
	Samples, Ended                      uint32
	Covered                             string
	Name, Host                          string
	Values                              string
}

func (r TierRow) key() string {
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
	row     TierRow
	covered int64
	spans   [][2]int64 // that covered is the sum of
	last    produced
	deltas  map[string]*big.Int
	gauges  map[string]*gaugeSum
}

type gaugeSum struct{ weighted, plain, weight, n, max *big.Int }

// directTier aggregates samples into buckets of width milliseconds.
// byteSeconds names the gauges whose time integral the tier keeps, scaled with
// the covered time.
func directTier(samples []produced, width int64, byteSeconds []string) []TierRow {
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
			row := TierRow{
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
			a.spans = append(a.spans, [2]int64{lo, hi})
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
	totals, spans := map[string]int64{}, map[string][][2]int64{} // per resource and bucket
	total := func(r TierRow) string {
		return r.Bucket.String() + "|" + r.Region + "|" + r.Instance + "|" + r.Resource
	}
	for _, a := range rows {
		totals[total(a.row)] += a.covered
		spans[total(a.row)] = append(spans[total(a.row)], a.spans...)
	}
	var out []TierRow
	for _, a := range rows {
		of, once := totals[total(a.row)], union(spans[total(a.row)])
		capped := func(v *big.Int) *big.Int {
			if of == once {
				return v
			}
			return new(big.Int).Div(new(big.Int).Mul(v, big.NewInt(once)), big.NewInt(of))
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

// union is the time that intervals cover together, each moment once.
func union(spans [][2]int64) (length int64) {
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	reached := int64(-1 << 62)
	for _, s := range spans {
		if from := max(s[0], reached); s[1] > from {
			length += s[1] - from
			reached = s[1]
		}
	}
	return length
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

func sortRows(rows []TierRow) {
	slices.SortFunc(rows, func(a, b TierRow) int { return cmp.Compare(a.key(), b.key()) })
}

// Kind ties a kind of samples to its tiers and to the oracle.
type Kind struct {
	name        string
	Tiers       [2]string // five minutes, hour
	resource    string    // SQL expressions
	network     string
	values      []string // tier columns
	byteSeconds []string
}

// Kinds are the three of them: port, instance, disk.
var Kinds = []Kind{
	{"port", [2]string{"port_volume_5min", "port_volume_hourly"}, "toString(port_uuid)", "toString(network_uuid)", []string{"rx_bytes", "tx_bytes"}, nil},
	{"instance", [2]string{"instance_metrics_5min", "instance_metrics_hourly"}, "''", "''",
		[]string{"cpu_pct_avg", "cpu_pct_max", "memory_actual_bytes_avg", "memory_rss_bytes_avg", "memory_usable_bytes_avg", "memory_actual_byte_seconds"}, []string{"memory_actual_bytes"}},
	{"disk", [2]string{"disk_metrics_5min", "disk_metrics_hourly"}, "device", "''",
		[]string{"read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes_avg", "allocation_bytes_avg", "physical_bytes_avg", "capacity_byte_seconds"}, []string{"capacity_bytes"}},
}

// ReadTier reads the rows of a tier that count, of one region.
func ReadTier(t testing.TB, s *store.Store, k Kind, width int, region string) []TierRow {
	t.Helper()
	columns := make([]string, len(k.values))
	for i, v := range k.values {
		columns[i] = fmt.Sprintf("concat('%s=', ifNull(toString(%s), 'null'))", v, v)
	}
	text := fmt.Sprintf(`SELECT bucket, toString(region), toString(instance_uuid), toString(%s), toString(%s), toString(project_id), toString(user_id),
		toString(flavor_name), toString(image_id), vcpus, samples, samples_ended, toString(covered_seconds), instance_name, toString(host),
		arrayStringConcat(arraySort([%s]), ' ') FROM %s FINAL WHERE region = {region:String}`, k.resource, k.network, strings.Join(columns, ", "), k.Tiers[width])
	rows, err := s.Conn().Query(store.WithParams(t.Context(), store.Params{"region": region}), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []TierRow
	for rows.Next() {
		var r TierRow
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

// World holds samples of the three kinds.
type World struct {
	Ports     []store.PortSample
	Instances []store.InstanceSample
	Disks     []store.DiskSample
}

// Insert writes the samples to the raw tables.
func (w World) Insert(t testing.TB, s *store.Store) {
	t.Helper()
	for _, err := range []error{
		s.InsertPortSamples(t.Context(), w.Ports, ""),
		s.InsertInstanceSamples(t.Context(), w.Instances, ""),
		s.InsertDiskSamples(t.Context(), w.Disks, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w World) produced(kind string) []produced {
	var out []produced
	switch kind {
	case "port":
		for _, r := range w.Ports {
			out = append(out, produced{r.Sample, r.PortUUID.String(), r.NetworkUUID.String(), map[string]uint64{"rx_bytes": r.RxBytes, "tx_bytes": r.TxBytes}, nil})
		}
	case "instance":
		for _, r := range w.Instances {
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
		for _, r := range w.Disks {
			out = append(out, produced{
				r.Sample, r.Device, "",
				map[string]uint64{"read_bytes": value(r.ReadBytes), "write_bytes": value(r.WriteBytes), "read_requests": value(r.ReadRequests), "write_requests": value(r.WriteRequests)},
				map[string]*uint64{"capacity_bytes": r.CapacityBytes, "allocation_bytes": r.AllocationBytes, "physical_bytes": r.PhysicalBytes},
			})
		}
	}
	return out
}

// Compare reports every tier that differs from the direct computation.
func (w World) Compare(t testing.TB, s *store.Store, region string) {
	t.Helper()
	for _, k := range Kinds {
		for i, width := range []int64{300_000, 3_600_000} {
			var of []produced
			for _, p := range w.produced(k.name) {
				if p.Region == region {
					of = append(of, p)
				}
			}
			want := directTier(of, width, k.byteSeconds)
			got := ReadTier(t, s, k, i, region)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("%s differs from the direct computation (-want +got):\n%s", k.Tiers[i], diff)
			}
		}
	}
}
