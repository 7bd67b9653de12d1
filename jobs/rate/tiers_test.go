package rate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// trafficMetrics read tables of the test's own, so that usage can be anything
// that a quantity can be.
const trafficMetrics = `
metrics:
  traffic:
    unit: GB
    table: traffic
    time: at
    bucket: 3600
    quantity: sum
    value: amount
    scope_key: scope
    region_key: region
    resource: [id]
    groupby: [zone]
`

func withTraffic(t testing.TB) *store.Store {
	t.Helper()
	s := storetest.Fresh(t)
	dropped(t, s, "traffic")
	return addTraffic(t, s)
}

// addTraffic is withTraffic for a test that needs a database of its own.
func addTraffic(t testing.TB, s *store.Store) *store.Store {
	t.Helper()
	exec(t, s, "CREATE TABLE traffic (at DateTime('UTC'), region LowCardinality(String), scope String, id String, zone String, amount Decimal(38, 18)) ENGINE = MergeTree ORDER BY (scope, at)")
	set, err := metric.Parse("metrics.yaml", []byte(trafficMetrics))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: set.Digest(), Body: trafficMetrics, ValidFrom: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": "one", "complete_until": at("2027-01-01T00:00:00Z"), "source": "operator", "note": ""}); err != nil {
		t.Fatal(err)
	}
	return s
}

// dropped has a table of the test's own gone when the next test's turn comes.
func dropped(t testing.TB, s *store.Store, table string) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Conn().Exec(context.WithoutCancel(t.Context()), "DROP TABLE IF EXISTS "+table+" SYNC"); err != nil {
			t.Error(err)
		}
	})
}

// flow is one usage row.
type flow struct {
	begin  time.Time
	region string
	scope  string
	id     string
	zone   string
	qty    decimal.Decimal
}

func sendTraffic(t testing.TB, s *store.Store, flows []flow) {
	t.Helper()
	if len(flows) == 0 {
		return
	}
	rows := make([]string, len(flows))
	for i, f := range flows {
		rows[i] = fmt.Sprintf("('%s', '%s', '%s', '%s', '%s', '%s')", f.begin.Format("2006-01-02 15:04:05"), f.region, f.scope, f.id, f.zone, f.qty.StringFixed(18))
	}
	exec(t, s, "INSERT INTO traffic VALUES "+strings.Join(rows, ","))
}

// forget empties what rating wrote, so that the next drawn case starts anew.
func forget(t testing.TB, s *store.Store) {
	t.Helper()
	for _, table := range []string{"traffic", "rated_lines", "period_commits", "pass_carries", "carry_looks", "rate_plans", "complete_months", "void_attempts", "late_looks"} {
		exec(t, s, "TRUNCATE TABLE "+table)
	}
}

// rated reads the lines that count, one text each.
func ratedLines(t testing.TB, s *store.Store) []string {
	t.Helper()
	rows, err := s.Conn().Query(t.Context(), `SELECT concat(formatDateTime(begin, '%d %H', 'UTC'), ' ', region, ' ', scope, ' ', metric, ' ', resource, ' ', toString(attributes), ' ', unit, ' ',
		toString(part), ' ', toString(qty), ' ', toString(price), ' ', rule, ' ', bucket) FROM rated`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// expectedLines is what the exact evaluator says of a month of traffic.
func expectedLines(t testing.TB, text string, flows []flow) []string {
	t.Helper()
	p, err := plan.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e, err := hashmap.Compile(p, hashmap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		scope string
		begin time.Time
	}
	periods := map[place][]flow{}
	for _, f := range flows {
		k := place{f.scope, f.begin}
		periods[k] = append(periods[k], f)
	}
	order := slices.SortedFunc(maps.Keys(periods), func(a, b place) int {
		if c := strings.Compare(a.scope, b.scope); c != 0 {
			return c
		}
		return a.begin.Compare(b.begin)
	})
	before := map[string]map[string]decimal.Decimal{}
	var out []string
	for _, k := range order {
		month := k.scope + k.begin.Format(" 2006-01")
		if before[month] == nil {
			before[month] = map[string]decimal.Decimal{}
		}
		var rows []hashmap.TierRow
		for _, f := range periods[k] {
			attributes := map[string]string{}
			if f.zone != "" {
				attributes["zone"] = f.zone
			}
			rows = append(rows, hashmap.TierRow{Region: f.region, Resource: f.id, Attributes: attributes, Qty: f.qty})
		}
		lines, used := e.PriceTiers("traffic", k.scope, k.begin, rows, before[month])
		for _, l := range lines {
			name, resource, attributes := plan.AdjustmentMetric, "", "{'metric':'traffic'}"
			if l.Row >= 0 {
				name, resource, attributes = "traffic", rows[l.Row].Resource, "{}"
				if z := rows[l.Row].Attributes["zone"]; z != "" {
					attributes = "{'zone':'" + z + "'}"
				}
			} else if _, of, ok := strings.Cut(strings.TrimPrefix(l.Account, "traffic/"), "="); ok {
				per, _, _ := strings.Cut(strings.TrimPrefix(l.Account, "traffic/"), "=")
				attributes = "{'metric':'traffic','" + per + "':'" + of + "'}"
			}
			rule := l.Rule
			if l.Bucket == hashmap.Rejected {
				rule = l.Reason
			}
			out = append(out, fmt.Sprintf("%s %s %s %s %s %s GB %d %s %s %s %s", k.begin.Format("02 15"), l.Region, k.scope, name, resource, attributes, l.Part, l.Qty, l.Price, rule, l.Bucket))
		}
		for account, q := range used {
			before[month][account] = before[month][account].Add(q)
		}
	}
	slices.Sort(out)
	return out
}

// drawTiers draws a plan of one metric with tiers, and its edges.
func drawTiers(t *rapid.T) (string, []decimal.Decimal) {
	unit := rapid.SampledFrom([]string{"1", "0.5", "0.000000000000000001", "1000000000"}).Draw(t, "unit")
	var text strings.Builder
	text.WriteString("currency: EUR\n")
	if rapid.IntRange(0, 3).Draw(t, "skips") == 0 {
		text.WriteString("skip: qty == 7\n")
	}
	text.WriteString("services:\n  - name: traffic\n    tiers:\n")
	var all []decimal.Decimal
	one := func(id, more string) {
		volume := rapid.Bool().Draw(t, "volume")
		kind := "graduated"
		if volume {
			kind = "volume"
		}
		per := rapid.SampledFrom([]string{"scope", "resource", "zone"}).Draw(t, "per")
		fmt.Fprintf(&text, "      - {id: %s, kind: %s, per: %s%s, steps: [", id, kind, per, more)
		edges := rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 0, 4, rapid.ID[int]).Draw(t, "edges")
		slices.Sort(edges)
		for _, n := range edges {
			edge := decimal.RequireFromString(unit).Mul(decimal.New(int64(n), 0))
			all = append(all, edge)
			fmt.Fprintf(&text, "{up_to: %q, cost: %q}, ", edge, rapid.StringMatching(`0|[0-9]\.[0-9]{1,20}|[0-9]{1,9}`).Draw(t, "cost"))
		}
		fmt.Fprintf(&text, "{cost: %q}]}\n", rapid.StringMatching(`[0-9]\.[0-9]{1,28}|[0-9]{1,3}`).Draw(t, "last cost"))
	}
	one("g", "")
	if rapid.Bool().Draw(t, "own") {
		one("own", ", scope: s1")
	}
	return text.String(), append(all, decimal.RequireFromString(unit))
}

// drawFlows draws usage whose quantities lie at, just below and just above the
// edges, sum up to them, or are anything.
func drawFlows(t *rapid.T, start time.Time, edges []decimal.Decimal, scopes, hours, most int) []flow {
	tick := decimal.New(1, -18)
	var out []flow
	for scope := range scopes {
		for hour := range hours {
			seen := map[string]bool{}
			for range rapid.IntRange(0, most).Draw(t, "rows") {
				edge := rapid.SampledFrom(edges).Draw(t, "edge")
				qty := edge
				switch rapid.IntRange(0, 8).Draw(t, "shape") {
				case 0:
					qty = edge.Sub(tick)
				case 1:
					qty = edge.Add(tick)
				case 2:
					qty = decimal.Zero
				case 3:
					qty = edge.Neg()
				case 4:
					qty = decimal.New(7, 0)
				case 5:
					qty = edge.DivRound(decimal.New(3, 0), 18)
				case 6:
					qty = decimal.New(rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "any"), -9)
				}
				f := flow{start.Add(time.Duration(hour) * time.Hour), rapid.SampledFrom([]string{"one", "two"}).Draw(t, "region"), fmt.Sprintf("s%d", scope),
					rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone"), qty}
				key := fmt.Sprint(f.region, f.id, f.zone)
				if !seen[key] {
					seen[key] = true
					out = append(out, f)
				}
			}
		}
	}
	return out
}

func equalLines(t rapid.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%s: %d lines, want %d; first difference at %d:\n got %s\nwant %s", what, len(got), len(want), i, strings.Join(got[min(i, len(got)):min(i+3, len(got))], "\n     "), strings.Join(want[min(i, len(want)):min(i+3, len(want))], "\n     "))
			}
		}
	}
}

// Whatever tiers and quantities, a pass gives the lines of the exact evaluator,
// to the last digit.
func TestPropertyTiersInSQLEqualTheEvaluator(t *testing.T) {
	s := withTraffic(t)
	if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": "two", "complete_until": at("2027-01-01T00:00:00Z"), "source": "operator", "note": ""}); err != nil {
		t.Fatal(err)
	}
	promised := storetest.Checks(t, 25)
	points := 0
	rapid.Check(t, func(rt *rapid.T) {
		forget(t, s)
		text, edges := drawTiers(rt)
		flows := drawFlows(rt, at("2026-11-01T00:00:00Z"), edges, 8, 24, 6)
		if len(flows) == 0 {
			return
		}
		sendTraffic(t, s, flows)
		applyPlan(t, s, text, time.Unix(0, 0))
		if _, err := run(t.Context(), s, options("2026-11-02T02:00:00Z")); err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		points += len(flows)
		equalLines(rt, text, ratedLines(t, s), expectedLines(t, text, flows))
	})
	if t.Logf("%d usage rows", points); promised && points < 10_000 {
		t.Errorf("%d usage rows are too few to say anything", points)
	}
}
