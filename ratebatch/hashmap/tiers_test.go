package hashmap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func tiersOf(t testing.TB, text string) *hashmap.Evaluator {
	t.Helper()
	p, err := plan.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(nil).Err(); err != nil {
		t.Fatal(err)
	}
	e, err := hashmap.Compile(p, hashmap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var tierBegin = time.Date(2026, 11, 5, 7, 0, 0, 0, time.UTC)

// say writes lines as "row.part quantity price rule".
func say(lines []hashmap.TierLine) string {
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d.%d %s %s %s %s", l.Row, l.Part, l.Qty, l.Price, l.Rule, l.Bucket)))
	}
	return strings.Join(out, "; ")
}

func row(resource, qty string) hashmap.TierRow {
	return hashmap.TierRow{Region: "one", Resource: resource, Qty: decimal.RequireFromString(qty)}
}

const graduated = `
currency: EUR
services:
  - name: m
    tiers: [{id: g, free: 100, steps: [{up_to: 1000, cost: "0.02"}, {cost: "0.01"}]}]
`

func TestGraduatedTiers(t *testing.T) {
	e := tiersOf(t, graduated)
	for name, tt := range map[string]struct {
		before string
		rows   []hashmap.TierRow
		want   string
	}{
		"the last free unit is free":               {"0", []hashmap.TierRow{row("a", "100")}, "0.0 100 0 g:1"},
		"just below the edge":                      {"0", []hashmap.TierRow{row("a", "99.999999999999999999")}, "0.0 99.999999999999999999 0 g:1"},
		"just above the edge":                      {"0", []hashmap.TierRow{row("a", "100.000000000000000001")}, "0.0 100 0 g:1; 0.1 0.000000000000000001 0 g:2"},
		"half a unit past the edge":                {"0", []hashmap.TierRow{row("a", "100.5")}, "0.0 100 0 g:1; 0.1 0.5 0.01 g:2"},
		"an account that is at the edge":           {"100", []hashmap.TierRow{row("a", "1")}, "0.0 1 0.02 g:2"},
		"an account just below the edge":           {"99.5", []hashmap.TierRow{row("a", "1")}, "0.0 0.5 0 g:1; 0.1 0.5 0.01 g:2"},
		"an account just above the edge":           {"100.000000000000000001", []hashmap.TierRow{row("a", "1")}, "0.0 1 0.02 g:2"},
		"over two edges at once":                   {"50", []hashmap.TierRow{row("a", "1000")}, "0.0 50 0 g:1; 0.1 900 18 g:2; 0.2 50 0.5 g:3"},
		"ending at the upper edge":                 {"500", []hashmap.TierRow{row("a", "500")}, "0.0 500 10 g:2"},
		"the allowance is used up by two in turn":  {"90", []hashmap.TierRow{row("b", "8"), row("a", "7")}, "1.0 7 0 g:1; 0.0 3 0 g:1; 0.1 5 0.1 g:2"},
		"the order is resource, not the input's":   {"90", []hashmap.TierRow{row("a", "7"), row("b", "8")}, "0.0 7 0 g:1; 1.0 3 0 g:1; 1.1 5 0.1 g:2"},
		"nothing at the start":                     {"0", []hashmap.TierRow{row("a", "0")}, "0.0 0 0 g:1"},
		"nothing at the edge costs the next tier":  {"100", []hashmap.TierRow{row("a", "0")}, "0.0 0 0 g:2"},
		"a negative quantity moves no edge":        {"100", []hashmap.TierRow{row("a", "-5"), row("b", "900"), row("c", "1")}, "0.0 -5 -0.1 g:2; 1.0 900 18 g:2; 2.0 1 0.01 g:3"},
		"a negative quantity within the allowance": {"10", []hashmap.TierRow{row("a", "-5")}, "0.0 -5 0 g:1"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, _ := e.PriceTiers("m", "s", tierBegin, tt.rows, map[string]decimal.Decimal{"m": decimal.RequireFromString(tt.before)})
			if got := say(lines); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestVolumeTiers(t *testing.T) {
	e := tiersOf(t, "currency: EUR\nservices: [{name: m, tiers: [{id: v, kind: volume, steps: [{up_to: 10, cost: 3}, {up_to: 20, cost: 2}, {cost: 1}]}]}]")
	for name, tt := range map[string]struct{ before, qty, want string }{
		"within the first tier":             {"0", "10", "0.0 10 30 v:1"},
		"into another tier from nothing":    {"0", "11", "0.0 11 22 v:2"},
		"exactly at the edge":               {"9", "1", "0.0 1 3 v:1"},
		"just below the edge":               {"9", "0.5", "0.0 0.5 1.5 v:1"},
		"just above it the month is cheap":  {"9", "1.000000000000000001", "0.0 1.000000000000000001 2.000000000000000002 v:2; -1.60000 9 -9 v:2"},
		"over two edges: one adjustment":    {"9", "12", "0.0 12 12 v:3; -1.60000 9 -18 v:3"},
		"once crossed there is no other":    {"10.5", "1", "0.0 1 2 v:2"},
		"an account at the edge crosses it": {"10", "1", "0.0 1 2 v:2; -1.60000 10 -10 v:2"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, _ := e.PriceTiers("m", "s", tierBegin, []hashmap.TierRow{row("a", tt.qty)}, map[string]decimal.Decimal{"m": decimal.RequireFromString(tt.before)})
			if got := say(lines); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhatTiersApplyTo(t *testing.T) {
	e := tiersOf(t, `
currency: EUR
skip: qty == 3
modules: [{module: none, scope: free}]
services:
  - name: m
    tiers:
      - {id: g, per: resource, steps: [{up_to: 1, cost: 0}, {cost: 1}], end: 2026-11-06}
      - {id: o, scope: own, per: zone, steps: [{up_to: 1, cost: 0}, {cost: 2}]}
`)
	zone := func(resource, qty, zone string) hashmap.TierRow {
		r := row(resource, qty)
		r.Attributes = map[string]string{"zone": zone}
		return r
	}
	for name, tt := range map[string]struct {
		scope string
		begin time.Time
		rows  []hashmap.TierRow
		want  string
	}{
		"each resource has its own account": {"s", tierBegin, []hashmap.TierRow{row("a", "2"), row("b", "2")}, "0.0 1 0 g:1; 0.1 1 1 g:2; 1.0 1 0 g:1; 1.1 1 1 g:2"},
		"a scope's own tiers":               {"own", tierBegin, []hashmap.TierRow{zone("a", "2", "x"), zone("b", "2", "x"), zone("c", "1", "y")}, "0.0 1 0 o:1; 0.1 1 2 o:2; 1.0 2 4 o:2; 2.0 1 0 o:1"},
		"tiers that have ended":             {"s", tierBegin.AddDate(0, 0, 1), []hashmap.TierRow{row("a", "2")}, "0.0 2 0  unpriced"},
		"a scope without modules":           {"free", tierBegin, []hashmap.TierRow{row("a", "2")}, "0.0 2 0  unpriced"},
		"what is skipped is not counted":    {"s", tierBegin, []hashmap.TierRow{row("a", "3"), row("a", "2")}, "0.0 3 0  skipped; 1.0 1 0 g:1; 1.1 1 1 g:2"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, _ := e.PriceTiers("m", tt.scope, tt.begin, tt.rows, nil)
			slices.SortStableFunc(lines, func(a, b hashmap.TierLine) int { return a.Row - b.Row })
			if got := say(lines); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
	p := hashmap.Point{Metric: "m", Scope: "s", Begin: tierBegin, Qty: decimal.RequireFromString("2.5"), Before: decimal.RequireFromString("0.5")}
	if r := e.Price(&p); r.Price.String() != "2" || r.Rule != "g:1+g:2" {
		t.Errorf("a point alone: %s by %s, want 2 by g:1+g:2", r.Price, r.Rule)
	}
	if got := strings.Join(e.Explain(&p).Arithmetic, "\n"); got != "graduated tiers g per resource, 0.5 used in the month before\ntier g:1: 0 × 0.5 = 0\ntier g:2: 1 × 2 = 2\nsum 2" {
		t.Errorf("explained as\n%s", got)
	}
}

// A month of rows, priced period by period, equals the month counted out unit
// by unit: every half unit goes to the first tier that has room for it.
func TestPropertyTiersAreCountedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		half := func(n int) decimal.Decimal { return decimal.New(int64(n)*5, -1) }
		edges := rapid.SliceOfNDistinct(rapid.IntRange(1, 60), 0, 4, rapid.ID[int]).Draw(t, "edges")
		slices.Sort(edges)
		costs := rapid.SliceOfN(rapid.IntRange(0, 999), len(edges)+1, len(edges)+1).Draw(t, "costs")
		volume := rapid.Bool().Draw(t, "volume")
		text := "currency: EUR\nservices: [{name: m, tiers: [{id: x, kind: "
		if volume {
			text += "volume"
		} else {
			text += "graduated"
		}
		text += ", steps: ["
		for i, c := range costs {
			if i < len(edges) {
				text += fmt.Sprintf("{up_to: %s, cost: %d}, ", half(edges[i]), c)
			} else {
				text += fmt.Sprintf("{cost: %d}]}]}]", c)
			}
		}
		p, err := plan.Parse("plan.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		e, err := hashmap.Compile(p, hashmap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tierOf := func(unit int) int { // of the unit with this number, from 1
			for i, edge := range edges {
				if unit <= edge {
					return i
				}
			}
			return len(edges)
		}
		before := map[string]decimal.Decimal{}
		counted := 0
		for period := range rapid.IntRange(1, 6).Draw(t, "periods") {
			n := rapid.IntRange(0, 4).Draw(t, "rows")
			var rows []hashmap.TierRow
			var halves []int
			for i := range n {
				halves = append(halves, rapid.IntRange(-3, 30).Draw(t, "quantity"))
				rows = append(rows, hashmap.TierRow{Resource: fmt.Sprint(i), Qty: half(halves[i])})
			}
			lines, used := e.PriceTiers("m", "s", tierBegin.Add(time.Duration(period)*time.Hour), rows, before)
			// Rows come in the order of their resources here.
			sums := make([]decimal.Decimal, n)
			for _, l := range lines {
				if l.Row >= 0 {
					sums[l.Row] = sums[l.Row].Add(l.Qty)
				}
			}
			for i := range rows {
				if !sums[i].Equal(rows[i].Qty) {
					t.Fatalf("the lines of row %d add up to %s, not %s: %s", i, sums[i], rows[i].Qty, say(lines))
				}
			}
			start := counted
			inTier := make([]map[int]int, n)
			for i, h := range halves {
				inTier[i] = map[int]int{}
				if h <= 0 {
					inTier[i][tierOf(counted+1)] += h
				}
				for range h {
					counted++
					inTier[i][tierOf(counted)]++
				}
			}
			if counted > start {
				if got := used["m"]; !got.Equal(half(counted - start)) {
					t.Fatalf("used %s, want %s", got, half(counted-start))
				}
			}
			for i := range rows {
				want := ""
				for tier := range len(costs) {
					at := tier
					q, ok := inTier[i][tier]
					if volume {
						if tier != tierOf(max(counted, 1)) {
							continue
						}
						q, ok = halves[i], true
					}
					if ok {
						want += fmt.Sprintf(" %s*%d", half(q), costs[at])
					}
				}
				got := ""
				for _, l := range lines {
					if l.Row == i {
						unit := costs[tierNumber(t, l.Rule)-1]
						if !l.Price.Equal(l.Qty.Mul(decimal.New(int64(unit), 0))) {
							t.Fatalf("line %s × %d = %s", l.Qty, unit, l.Price)
						}
						got += fmt.Sprintf(" %s*%d", l.Qty, unit)
					}
				}
				if got != want {
					t.Fatalf("row %d of %v, %d before: %s, want %s", i, halves, start, got, want)
				}
			}
			for account, q := range used {
				before[account] = before[account].Add(q)
			}
		}
	})
}

func tierNumber(t *rapid.T, rule string) int {
	var n int
	if _, err := fmt.Sscanf(rule, "x:%d", &n); err != nil {
		t.Fatalf("rule %q: %v", rule, err)
	}
	return n
}

// Whatever the periods, a month by volume costs the price of the tier that its
// quantity ends in.
func TestPropertyVolumeIsOnePrice(t *testing.T) {
	e := tiersOf(t, "currency: EUR\nservices: [{name: m, tiers: [{id: v, kind: volume, steps: [{up_to: 10, cost: 3}, {up_to: 20.5, cost: 5}, {cost: 1}]}]}]")
	rapid.Check(t, func(t *rapid.T) {
		before := map[string]decimal.Decimal{}
		total := decimal.Zero
		for range rapid.IntRange(1, 10).Draw(t, "periods") {
			rows := []hashmap.TierRow{row("a", decimal.New(int64(rapid.IntRange(0, 50).Draw(t, "tenths")), -1).String())}
			lines, used := e.PriceTiers("m", "s", tierBegin, rows, before)
			for _, l := range lines {
				total = total.Add(l.Price)
			}
			before["m"] = before["m"].Add(used["m"])
		}
		unit := int64(1)
		switch q := before["m"]; {
		case q.LessThanOrEqual(decimal.New(10, 0)):
			unit = 3
		case q.LessThanOrEqual(decimal.RequireFromString("20.5")):
			unit = 5
		}
		if want := before["m"].Mul(decimal.New(unit, 0)); !total.Equal(want) {
			t.Fatalf("%s cost %s, want %s", before["m"], total, want)
		}
	})
}
