package metric_test

import (
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// migrated is a fresh database with the real schema, whose tiers keep rows of
// any age and stay unmerged.
func migrated(tb testing.TB) driver.Conn {
	tb.Helper()
	e := enginetest.Open(tb)
	const long = 20 * 365 * 24 * time.Hour // a DateTime ends in 2106
	migrations, err := store.Migrations(store.MigrateOptions{Retention: store.Retention{Raw: long, FiveMin: long, Hourly: long}})
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range migrations {
		table := tierName.FindString(m.Name)
		if table == "" {
			continue
		}
		for _, s := range m.Statements {
			if err := e.Conn().Exec(tb.Context(), s); err != nil {
				tb.Fatalf("%s: %v", m.Name, err)
			}
		}
		if err := e.Conn().Exec(tb.Context(), "SYSTEM STOP MERGES "+table); err != nil {
			tb.Fatal(err)
		}
	}
	return e.Conn()
}

var tierName = regexp.MustCompile(`(port_volume|instance_metrics|disk_metrics)_(5min|hourly)$`)

var day = time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)

// A metric over any tier of any kind, factor, offset and mutate gives in SQL
// what the reference gives in Go, to the last digit, with either way of
// dropping repeats, whatever parts the rows lie in.
func TestUsageSQLEqualsGo(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCase(rt)
		set, err := metric.Parse("metrics.yaml", []byte(c.yaml))
		if err != nil {
			rt.Fatalf("%v\n%s", err, c.yaml)
		}
		m := set.Metrics[0]
		table := m.Tables(c.period)[0]
		if err := conn.Exec(t.Context(), "TRUNCATE TABLE "+table); err != nil {
			rt.Fatal(err)
		}
		for block := range slices.Chunk(c.rows, max(1, len(c.rows)/3)) { // several unmerged parts
			insert(t, conn, table, "bucket", block)
		}
		want, wantErr := reference(m, c.rows, c.bucket, c.period)
		ctx := t.Context()
		if rapid.Bool().Draw(rt, "compiled") {
			ctx = compiled(ctx)
		}
		for _, dedup := range []metric.Dedup{metric.Final, metric.Grouped} {
			sql, err := m.UsageSQL(metric.UsageOptions{Period: c.period, Attributes: true, Dedup: dedup})
			if err != nil {
				rt.Fatalf("%v\n%s", err, c.yaml)
			}
			got, err := usageRows(ctx, conn, sql, day, day.Add(24*time.Hour))
			switch {
			case wantErr != nil && err == nil:
				rt.Fatalf("a quantity that does not fit passed in SQL (%v)\n%s\n%s", wantErr, c.yaml, sql)
			case wantErr != nil && strings.Contains(err.Error(), "beyond what can be computed exactly"):
			case err != nil:
				rt.Fatalf("%v\n%s\n%s", err, c.yaml, sql)
			default:
				if diff := difference(want, got); diff != "" {
					rt.Fatalf("dedup %d, %s\n%s\n%s", dedup, diff, c.yaml, sql)
				}
			}
		}
	})
}

type usageCase struct {
	yaml           string
	bucket, period time.Duration
	rows           []row
}

// numbers of each tier that a metric may read: 64-bit counters, gauges that may
// be missing, decimals, and sums of value × seconds.
var tierNumbers = map[string]struct{ counters, gauges, decimals, integrals []string }{
	"instance_metrics": {nil, []string{"memory_actual_bytes_avg"}, []string{"cpu_pct_avg", "cpu_pct_max"}, []string{"memory_actual_byte_seconds"}},
	"port_volume":      {[]string{"rx_bytes", "tx_bytes"}, nil, nil, nil},
	"disk_metrics":     {[]string{"read_bytes", "write_requests"}, []string{"capacity_bytes_avg"}, nil, []string{"capacity_byte_seconds"}},
}

func drawCase(rt *rapid.T) usageCase {
	family := rapid.SampledFrom([]string{"instance_metrics", "port_volume", "disk_metrics"}).Draw(rt, "family")
	n := tierNumbers[family]
	var c usageCase
	shape := rapid.SampledFrom([]struct {
		table          string
		bucket, period time.Duration
	}{
		{family, time.Hour, time.Hour},
		{family, 5 * time.Minute, 5 * time.Minute},
		{family, time.Hour, 24 * time.Hour},
		{family + "_5min", 5 * time.Minute, time.Hour},
		{family + "_5min", 5 * time.Minute, 24 * time.Hour},
	}).Draw(rt, "table and period")
	c.bucket, c.period = shape.bucket, shape.period

	var b strings.Builder
	fmt.Fprintf(&b, "metrics:\n  m:\n    unit: x\n    table: %s\n", shape.table)
	kind := rapid.SampledFrom([]string{"sum", "time", "presence", "max", "last", "avg"}).Draw(rt, "kind")
	fmt.Fprintf(&b, "    quantity: %s\n", kind)
	values := slices.Concat(n.counters, n.gauges, n.decimals, n.integrals, []string{"vcpus"})
	switch kind {
	case "time":
		switch which := rapid.SampledFrom(append([]string{""}, values...)).Draw(rt, "gauge"); {
		case slices.Contains(n.integrals, which) && rapid.Bool().Draw(rt, "integral"):
			fmt.Fprintf(&b, "    integral: %s\n", which)
		case which != "":
			fmt.Fprintf(&b, "    value: %s\n", which)
		}
	case "sum":
		if len(n.integrals) > 0 && rapid.IntRange(0, 3).Draw(rt, "with seconds") == 0 {
			fmt.Fprintf(&b, "    value: [covered_seconds, %s]\n", n.integrals[0])
			break
		}
		if len(n.counters) > 0 && rapid.Bool().Draw(rt, "two columns") {
			fmt.Fprintf(&b, "    value: [%s]\n", strings.Join(n.counters, ", "))
			break
		}
		fallthrough
	case "max", "last", "avg":
		fmt.Fprintf(&b, "    value: %s\n", rapid.SampledFrom(values).Draw(rt, "value"))
	}
	switch rapid.IntRange(0, 3).Draw(rt, "attributes") {
	case 0:
		b.WriteString("    groupby: [flavor_name]\n")
	case 1:
		b.WriteString("    groupby: {size: flavor_name, cores: vcpus}\n    metadata: [user_id]\n")
	}
	b.WriteString(drawConversion(rt))
	c.yaml = b.String()

	// Few keys and few buckets, so that repeats of a key, a resize within an hour
	// and a change of project all happen.
	buckets := int64(24 * time.Hour / c.bucket)
	count := rapid.IntRange(1, 40).Draw(rt, "rows")
	for i := range count {
		at := day.Add(time.Duration(rapid.Int64Range(0, min(buckets, 30)-1).Draw(rt, "bucket")) * c.bucket)
		who := rapid.IntRange(1, 2).Draw(rt, "instance")
		r := row{
			time: at,
			text: map[string]string{
				"region":        rapid.SampledFrom([]string{"north", "south"}).Draw(rt, "region"),
				"instance_uuid": fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", who),
				"project_id":    rapid.SampledFrom([]string{"", "p1", "p2"}).Draw(rt, "project"),
				"user_id":       rapid.SampledFrom([]string{"", "u"}).Draw(rt, "user"),
				"flavor_name":   rapid.SampledFrom([]string{"", "small", "large"}).Draw(rt, "flavor"),
				"image_id":      "img",
				"instance_name": rapid.SampledFrom([]string{"", "web", "db"}).Draw(rt, "name"),
			},
			number: map[string]*big.Rat{"covered_seconds": drawCovered(rt, c.bucket)},
		}
		vcpus := rapid.SampledFrom([]int64{1, 2, 65535}).Draw(rt, "vcpus")
		r.text["vcpus"] = strconv.FormatInt(vcpus, 10)
		switch family {
		case "port_volume":
			r.text["port_uuid"] = fmt.Sprintf("10000000-0000-0000-0000-00000000000%d", who)
			r.text["network_uuid"] = rapid.SampledFrom([]string{nilUUID, "20000000-0000-0000-0000-000000000000"}).Draw(rt, "network")
		case "disk_metrics":
			r.text["device"] = rapid.SampledFrom([]string{"vda", "vdb"}).Draw(rt, "device")
		}
		for _, col := range n.counters {
			r.number[col] = drawCounter(rt)
		}
		for _, col := range n.gauges {
			r.number[col] = nil
			if rapid.IntRange(0, 3).Draw(rt, "known") > 0 {
				r.number[col] = drawCounter(rt)
			}
		}
		if slices.Contains(n.decimals, "cpu_pct_avg") {
			r.number["cpu_pct_avg"] = big.NewRat(rapid.Int64Range(0, 999999999).Draw(rt, "cpu"), 10000)
			r.number["cpu_pct_max"] = big.NewRat(rapid.Int64Range(0, 99999).Draw(rt, "cpu"), 100)
		}
		for _, col := range n.integrals {
			r.number[col] = drawIntegral(rt, c.period)
		}
		samples := rapid.Int64Range(1, 3).Draw(rt, "samples")
		refreshed := day.Unix() + int64(i) // in the order of insertion, as FINAL sees them
		r.number["samples"] = big.NewRat(samples, 1)
		r.text["refreshed_at"] = strconv.FormatInt(refreshed, 10)
		r.version = []int64{samples, refreshed}
		c.rows = append(c.rows, r)
	}
	for _, r := range c.rows {
		// vcpus is an attribute and a number.
		v, _ := new(big.Rat).SetString(r.text["vcpus"])
		r.number["vcpus"] = v
	}
	return c
}

func drawConversion(rt *rapid.T) string {
	var b strings.Builder
	if f := rapid.SampledFrom([]string{
		"", "1/1073741824", "1/1048576", "1/3", "2/3", "0.001", "1000", "-1", "0", "7/9", "1/2000000000000000000", "1e-18", "123456789/1000",
	}).Draw(rt, "factor"); f != "" {
		fmt.Fprintf(&b, "    factor: %s\n", f)
	}
	if o := rapid.SampledFrom([]string{"", "1/2", "-32", "0.1", "1/3", "1e-18", "5e-19", "-1"}).Draw(rt, "offset"); o != "" {
		fmt.Fprintf(&b, "    offset: %s\n", o)
	}
	mutate := rapid.SampledFrom([]string{"NONE", "NONE", "NONE", "NUMBOOL", "NOTNUMBOOL", "FLOOR", "CEIL", "MAP"}).Draw(rt, "mutate")
	fmt.Fprintf(&b, "    mutate: %s\n", mutate)
	if mutate == "MAP" {
		b.WriteString("    mutate_map: {0: 3, 1: 0.5, 0.5: 7, -32: 1e-18, 2048: -1, 0.1: 2, 18446744073709551615: 99}\n")
	}
	return b.String()
}

// drawCounter favours the edges: zero, one, ties of 1/2^30 at 18 digits, and
// the greatest number.
func drawCounter(rt *rapid.T) *big.Rat {
	switch rapid.IntRange(0, 5).Draw(rt, "size") {
	case 0:
		return new(big.Rat)
	case 1:
		return big.NewRat(rapid.Int64Range(1, 3).Draw(rt, "few"), 1)
	case 2:
		return big.NewRat(2048*(2*rapid.Int64Range(0, 1<<40).Draw(rt, "tie")+1), 1)
	case 3:
		return new(big.Rat).SetInt(new(big.Int).SetUint64(^uint64(0) - uint64(rapid.IntRange(0, 1).Draw(rt, "below"))))
	}
	return new(big.Rat).SetInt(new(big.Int).SetUint64(rapid.Uint64().Draw(rt, "any")))
}

func drawCovered(rt *rapid.T, bucket time.Duration) *big.Rat {
	limit := bucket.Milliseconds()
	return big.NewRat(rapid.SampledFrom([]int64{0, 1, limit, limit + 1, limit / 2, rapid.Int64Range(0, limit).Draw(rt, "ms")}).Draw(rt, "covered"), 1000)
}

// drawIntegral stays below one exbibyte for a whole period, or is far beyond
// anything that can be computed.
func drawIntegral(rt *rapid.T, period time.Duration) *big.Rat {
	switch rapid.IntRange(0, 8).Draw(rt, "size") {
	case 0:
		return new(big.Rat)
	case 1:
		x := new(big.Int).Mul(big.NewInt(1<<60-1), big.NewInt(period.Milliseconds()/400))
		return new(big.Rat).SetFrac(x, big.NewInt(1000))
	case 2:
		return big.NewRat(2359296*(2*rapid.Int64Range(0, 1<<30).Draw(rt, "tie")+1), 1000)
	}
	return big.NewRat(rapid.Int64Range(0, 1<<62).Draw(rt, "any"), 1000)
}

// The catalogue of tiers that metrics are checked against is the schema's.
func TestTiersAreTheSchemas(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^    ([a-z_]+) ((?:LowCardinality|Nullable|Decimal|DateTime)?(?:\([^()]*\))?[A-Za-z0-9]*)`)
	order := regexp.MustCompile(`(?m)^ORDER BY \((.*)\)$`)
	for _, family := range []string{"instance_metrics", "port_volume", "disk_metrics"} {
		for _, tier := range []string{"_5min", "_hourly"} {
			files, err := os.ReadDir("../store/schema")
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(files, func(f os.DirEntry) bool { return strings.HasSuffix(f.Name(), family+tier+".sql") })
			data, err := os.ReadFile("../store/schema/" + files[i].Name())
			if err != nil {
				t.Fatal(err)
			}
			columns := map[string]string{}
			for _, m := range line.FindAllStringSubmatch(string(data), -1) {
				columns[m[1]] = m[2]
			}
			for name, typ := range metric.TierColumns(family) {
				if columns[name] != typ {
					t.Errorf("%s%s: %s is %q in the schema, %q in the catalogue", family, tier, name, columns[name], typ)
				}
			}
			key := strings.Split(order.FindStringSubmatch(string(data))[1], ", ")
			key = slices.DeleteFunc(key, func(c string) bool { return c == "bucket" })
			if !slices.Equal(key, metric.TierKey(family)) {
				t.Errorf("%s%s: key %v in the schema, %v in the catalogue", family, tier, key, metric.TierKey(family))
			}
		}
	}
}
