package hashmap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

const prices = `currency: EUR
groups: [support]
services:
  - name: instance
    mappings:
      - {cost: "0.01"}
      - {cost: "0.02", scope: big}
    fields:
      - name: flavor
        mappings:
          - {value: m1.tiny, cost: "0.05", end: 2026-03-01}
          - {value: m1.tiny, cost: "0.06", start: 2026-03-01}
          - {value: gpu, cost: "1.5", type: rate, scope: big}
    thresholds:
      - {level: 10, cost: "0.9", type: rate}
      - {level: 100, cost: "0.8", type: rate, start: 2026-03-01, end: 2026-04-01}
      - {level: 5, cost: "2.5", group: support}
expressions:
  - {when: price > 1000, price: 1000, description: never more}
`

func evaluator(t testing.TB, text string) *hashmap.Evaluator {
	t.Helper()
	p, err := plan.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e, err := hashmap.Compile(p, hashmap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func point(scope, flavor, qty, begin string) *hashmap.Point {
	at, err := time.Parse(time.RFC3339, begin)
	if err != nil {
		panic(err)
	}
	p := &hashmap.Point{Metric: "instance", Scope: scope, Qty: decimal.RequireFromString(qty), Begin: at}
	if flavor != "" {
		p.Attributes = map[string]string{"flavor": flavor}
	}
	return p
}

func TestRulesHoldAtThePeriodsBegin(t *testing.T) {
	t.Parallel()
	e := evaluator(t, prices)
	for name, tt := range map[string]struct {
		point *hashmap.Point
		want  string // price and rules
	}{
		"the old price until the end":                {point("a", "m1.tiny", "1", "2026-02-28T23:00:00Z"), "0.05 m3"},
		"the new price from the start":               {point("a", "m1.tiny", "1", "2026-03-01T00:00:00Z"), "0.06 m4"},
		"a threshold before its start":               {point("a", "", "100", "2026-02-28T23:00:00Z"), "3.4 m1+t1+t3"},
		"a threshold from its start":                 {point("a", "", "100", "2026-03-01T00:00:00Z"), "3.3 m1+t2+t3"},
		"a threshold in its last hour":               {point("a", "", "100", "2026-03-31T23:00:00Z"), "3.3 m1+t2+t3"},
		"a threshold at its end":                     {point("a", "", "100", "2026-04-01T00:00:00Z"), "3.4 m1+t1+t3"},
		"just below a level":                         {point("a", "", "4.999999999999999999", "2026-03-01T00:00:00Z"), "0.04999999999999999999 m1"},
		"a level is inclusive":                       {point("a", "", "5", "2026-03-01T00:00:00Z"), "2.55 m1+t3"},
		"just above a level":                         {point("a", "", "5.000000000000000001", "2026-03-01T00:00:00Z"), "2.55000000000000000001 m1+t3"},
		"a scope's own rule":                         {point("big", "", "1", "2026-03-01T00:00:00Z"), "0.02 m2"},
		"a scope's rate on its flat":                 {point("big", "gpu", "1", "2026-03-01T00:00:00Z"), "0.03 m2+m5"},
		"an expression at its edge":                  {point("big", "", "50000", "2026-05-01T00:00:00Z"), "902.5 m2+t1+t3"},
		"an expression past it":                      {point("big", "", "60000", "2026-05-01T00:00:00Z"), "1000 m2+t1+t3+e1"},
		"nothing is rounded before the price is":     {point("a", "", "0.000000000000000050", "2026-05-01T00:00:00Z"), "0 m1"},
		"half a unit of the last place goes to even": {point("a", "", "0.000000000000000150", "2026-05-01T00:00:00Z"), "0.000000000000000002 m1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := e.Price(tt.point)
			exact := r.Exact()
			got := r.Price
			if strings.HasPrefix(tt.want, exact.String()+" ") {
				got = exact // beyond 18 decimals
			}
			if text := got.String() + " " + r.Rule; text != tt.want {
				t.Errorf("%s (exactly %s), want %s", text, exact, tt.want)
			}
		})
	}
}

func TestExplainNamesWhatCountedAndWhatNearlyDid(t *testing.T) {
	t.Parallel()
	e := evaluator(t, prices)
	trace := e.Explain(point("big", "M1.tiny", "100", "2026-03-15T00:00:00Z"))
	var got strings.Builder
	for _, c := range trace.Considered {
		fmt.Fprintf(&got, "%v %s: %s\n", c.Counts, c.Rule.ID, c.Why)
	}
	got.WriteString(strings.Join(trace.Arithmetic, "\n"))
	const want = `false m1: m2 takes its place for scope big
true m2: 0.02 a unit in group _DEFAULT_
false m3: "M1.tiny" is not "m1.tiny": values must match exactly
false m4: "M1.tiny" is not "m1.tiny": values must match exactly
false t1: t2 of the same group has the higher level 100
true t2: the quantity is 100, at or above level 100
true t3: the quantity is 100, at or above level 5
group _DEFAULT_: 0.02 (m2) × quantity 100 = 2; × 0.8 (t2) = 1.6
group support: 0 (nothing flat) × quantity 100 = 0; + 2.5 (t3) = 2.5
expression e1: not when price > 1000
sum 4.1, rounded half-even to 18 decimals: 4.1`
	if got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

func ExampleEvaluator_Fold() {
	p, err := plan.Parse("plan.yaml", []byte(`
currency: EUR
services:
  - name: instance
    fields:
      - name: flavor
        mappings:
          - {value: m1.tiny, cost: "0.01"}
          - {value: m1.large, cost: "0.08"}
    thresholds:
      - {level: 100, cost: "0.9", type: rate}
`))
	if err != nil {
		panic(err)
	}
	e, err := hashmap.Compile(p, hashmap.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("look at", e.Fields("instance"))
	f := e.Fold("instance", "any scope", map[string]string{"flavor": "m1.large"}, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	for _, s := range f.Steps {
		from := "-∞"
		if s.From != nil {
			from = s.From.String()
		}
		fmt.Printf("from %s: %s·qty + %s by %s\n", from, s.A, s.B, s.Rule)
	}
	// Output:
	// look at [flavor]
	// from -∞: 0.08·qty + 0 by m2
	// from 100: 0.072·qty + 0 by m2+t1
}
