package metric_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// row is one row of a metric's table, as text where it is text and as an exact
// number where it is one; a missing number is NULL.
type row struct {
	time    time.Time
	text    map[string]string
	number  map[string]*big.Rat
	version []int64 // of equal keys the greatest counts
	null    bool    // empty text is NULL where the column can hold it
}

// reference computes usage in Go from the rows, the long way round. The keys
// are what usageRows makes of the SQL's rows.
func reference(m *metric.Metric, rows []row, bucket, period time.Duration) (map[string]decimal.Decimal, error) {
	rows = deduplicate(m, rows)
	covered := coveredMillis(m, rows, bucket, period)
	groups := map[string][]int{}
	for i, r := range rows {
		key := usageKey(m, r, period)
		groups[key] = append(groups[key], i)
	}
	out := map[string]decimal.Decimal{}
	for key, members := range groups {
		qty, err := m.Convert(rawValue(m, rows, covered, members, period))
		if err != nil {
			return nil, err
		}
		out[key] = qty
	}
	return out, nil
}

func deduplicate(m *metric.Metric, rows []row) []row {
	if len(m.Version) == 0 {
		return rows
	}
	newest := map[string]int{}
	var out []row
	for _, r := range rows {
		key := r.time.String()
		for _, k := range m.RowKey {
			key += "\x00" + r.text[k]
		}
		if r.null {
			key += "\x00NULL" // of another key than ''
		}
		i, seen := newest[key]
		switch {
		case !seen:
			newest[key] = len(out)
			out = append(out, r)
		case slices.Compare(r.version, out[i].version) > 0:
			out[i] = r
		}
	}
	return out
}

func scopeOf(m *metric.Metric, r row) string {
	return cmp.Or(r.text[m.ScopeKey], metric.Unattributed)
}

func resourceOf(m *metric.Metric, r row) string {
	parts := make([]string, len(m.Resource))
	for i, c := range m.Resource {
		parts[i] = r.text[c]
	}
	return strings.Join(parts, "/")
}

func usageKey(m *metric.Metric, r row, period time.Duration) string {
	var attributes []string
	for _, a := range m.Attributes() {
		if v := r.text[a.Column]; v != "" && v != nilUUID {
			attributes = append(attributes, fmt.Sprintf("'%s':'%s'", a.Name, v))
		}
	}
	region := ""
	if m.RegionKey != "" {
		region = r.text[m.RegionKey]
	}
	begin := ratebatch.PeriodAt(r.time, period).Begin
	return fmt.Sprintf("%s|%s|%s|%s|{%s}", region, scopeOf(m, r), begin.Format(time.DateTime), resourceOf(m, r), strings.Join(attributes, ","))
}

const nilUUID = "00000000-0000-0000-0000-000000000000"

// coveredMillis is what each row covers, capped per row and, for tables of the
// operator's, per resource.
func coveredMillis(m *metric.Metric, rows []row, bucket, period time.Duration) []*big.Rat {
	span := cmp.Or(bucket, period)
	limit := new(big.Rat).SetInt64(span.Milliseconds())
	out := make([]*big.Rat, len(rows))
	for i, r := range rows {
		out[i] = limit
		if m.Covered != "" {
			c := new(big.Rat)
			if v := r.number[m.Covered]; v != nil {
				c.Mul(v, big.NewRat(1000, 1))
			}
			if c.Cmp(limit) < 0 {
				out[i] = c
			}
		}
	}
	if m.Tiered() || m.Quantity != metric.Time || m.Integral != "" {
		return out
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := rows[a], rows[b]
		c := x.time.Compare(y.time)
		for _, k := range m.RowKey {
			c = cmp.Or(c, cmp.Compare(x.text[k], y.text[k]))
		}
		c = cmp.Or(c, cmp.Compare(scopeOf(m, x), scopeOf(m, y)))
		for _, k := range m.Attributes() {
			c = cmp.Or(c, cmp.Compare(x.text[k.Column], y.text[k.Column]))
		}
		for _, k := range m.Value {
			c = cmp.Or(c, x.number[k].Cmp(y.number[k]))
		}
		return cmp.Or(c, out[a].Cmp(out[b]))
	})
	used := map[string]*big.Rat{}
	for _, i := range order {
		key := rows[i].text[m.RegionKey] + "|" + resourceOf(m, rows[i]) + "|" + ratebatch.PeriodAt(rows[i].time, span).String()
		if used[key] == nil {
			used[key] = new(big.Rat)
		}
		left := new(big.Rat).Sub(limit, used[key])
		if out[i].Cmp(left) > 0 {
			out[i] = left
		}
		used[key] = new(big.Rat).Add(used[key], out[i])
	}
	return out
}

func rawValue(m *metric.Metric, rows []row, covered []*big.Rat, members []int, period time.Duration) *big.Rat {
	sum, weights, plain := new(big.Rat), new(big.Rat), new(big.Rat)
	var greatest, newest *big.Rat
	var newestAt string
	known := 0
	value := func(i int) *big.Rat {
		total, any := new(big.Rat), false
		for _, c := range m.Value {
			if v := rows[i].number[c]; v != nil {
				total.Add(total, v)
				any = true
			}
		}
		if !any {
			return nil
		}
		return total
	}
	for _, i := range members {
		weight := covered[i]
		if m.Quantity == metric.Avg && m.Covered == "" {
			weight = big.NewRat(1, 1)
		}
		v := value(i)
		switch {
		case m.Quantity == metric.Time && m.Integral != "":
			v = rows[i].number[m.Integral]
			weight = big.NewRat(1000, 1)
		case m.Quantity == metric.Time && len(m.Value) == 0:
			v = big.NewRat(1, 1)
		}
		if v == nil {
			continue
		}
		known++
		plain.Add(plain, v)
		sum.Add(sum, new(big.Rat).Mul(v, weight))
		weights.Add(weights, weight)
		if greatest == nil || v.Cmp(greatest) > 0 {
			greatest = v
		}
		at := rows[i].time.Format(time.RFC3339Nano)
		for _, k := range m.RowKey {
			at += "\x00" + rows[i].text[k]
		}
		if newest == nil || at > newestAt || at == newestAt && v.Cmp(newest) > 0 {
			newest, newestAt = v, at
		}
	}
	if m.Quantity == metric.Presence {
		return big.NewRat(1, 1)
	}
	if known == 0 {
		return new(big.Rat)
	}
	switch m.Quantity {
	case metric.Sum:
		return plain
	case metric.Time:
		return sum.Quo(sum, new(big.Rat).SetInt64(period.Milliseconds()))
	case metric.Max:
		return greatest
	case metric.Last:
		return newest
	case metric.Avg, metric.Presence:
	}
	if weights.Sign() == 0 {
		return plain.Quo(plain, new(big.Rat).SetInt64(int64(known)))
	}
	return sum.Quo(sum, weights)
}

// compiled makes the engine compile every expression at once instead of after
// a few runs: compiled code has had faults of its own (greatest of Int128).
func compiled(ctx context.Context) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{
		"compile_expressions": 1, "min_count_to_compile_expression": 0,
		"compile_aggregate_expressions": 1, "min_count_to_compile_aggregate_expression": 0,
	}))
}

// usageRows runs a usage query.
func usageRows(ctx context.Context, conn driver.Conn, sql string, from, to time.Time) (map[string]decimal.Decimal, error) {
	rows, err := conn.Query(ctx, "SELECT toString(region), toString(scope), toString(begin), resource, toString(attributes), qty FROM ("+sql+")", window(from, to)...)
	if err != nil {
		return nil, err
	}
	out := map[string]decimal.Decimal{}
	for rows.Next() {
		var part [5]string
		var qty decimal.Decimal
		if err := rows.Scan(&part[0], &part[1], &part[2], &part[3], &part[4], &qty); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		key := strings.Join(part[:], "|")
		if _, twice := out[key]; twice {
			return nil, errors.Join(fmt.Errorf("usage row %s twice", key), rows.Close())
		}
		out[key] = qty
	}
	return out, errors.Join(rows.Err(), rows.Close())
}

func window(from, to time.Time) []any {
	return []any{
		clickhouse.Named("from", from.UTC().Format(time.DateTime)),
		clickhouse.Named("to", to.UTC().Format(time.DateTime)),
	}
}

// difference lists where two sets of usage differ, or is empty.
func difference(want, got map[string]decimal.Decimal) string {
	var b strings.Builder
	for key, w := range want {
		if g, ok := got[key]; !ok {
			fmt.Fprintf(&b, "missing %s = %s\n", key, w)
		} else if !g.Equal(w) {
			fmt.Fprintf(&b, "%s = %s, want %s\n", key, g, w)
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok {
			fmt.Fprintf(&b, "not wanted %s = %s\n", key, g)
		}
	}
	return b.String()
}

// insert writes rows as text, in one block.
func insert(tb testing.TB, conn driver.Conn, table, timeColumn string, rows []row) {
	tb.Helper()
	if len(rows) == 0 {
		return
	}
	union := maps.Clone(rows[0].number) // vcpus is in both
	for c := range rows[0].text {
		union[c] = nil
	}
	columns := append([]string{timeColumn}, slices.Sorted(maps.Keys(union))...)
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", table, strings.Join(columns, ", "))
	for _, r := range rows {
		fmt.Fprintf(&b, "('%s'", r.time.UTC().Format("2006-01-02 15:04:05"))
		for _, c := range columns[1:] {
			if v, ok := r.number[c]; ok {
				if v == nil {
					b.WriteString(", NULL")
				} else {
					fmt.Fprintf(&b, ", '%s'", decimalText(v))
				}
			} else {
				fmt.Fprintf(&b, ", '%s'", r.text[c])
			}
		}
		b.WriteString(")")
	}
	if err := conn.Exec(tb.Context(), b.String()); err != nil {
		tb.Fatal(err)
	}
}

func decimalText(v *big.Rat) string {
	if v.IsInt() {
		return v.Num().String()
	}
	return strings.TrimRight(v.FloatString(20), "0")
}
