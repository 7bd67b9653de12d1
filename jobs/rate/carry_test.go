package rate

import (
	"testing"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A period is rated again for another carry-in exactly when a line of it
// changes.
func TestTariffDiffers(t *testing.T) {
	dec := decimal.RequireFromString
	tariff := func(kind plan.TierKind) *hashmap.Tariff {
		return &hashmap.Tariff{ID: "g", Kind: kind, Edges: []decimal.Decimal{dec("10"), dec("20")}, Costs: []decimal.Decimal{dec("3"), dec("2"), dec("1")}}
	}
	for name, tt := range map[string]struct {
		kind          plan.TierKind
		was, is, used string
		want          bool
	}{
		"graduated, within one tier":                  {plan.Graduated, "0", "5", "5", false},
		"graduated, just past the edge":               {plan.Graduated, "0", "5.000000000000000001", "5", true},
		"graduated, begins in the next tier":          {plan.Graduated, "9", "10", "1", true},
		"graduated, both in the last tier":            {plan.Graduated, "20", "5000", "7", false},
		"graduated, cut before and not now":           {plan.Graduated, "9", "12", "2", true},
		"graduated, cut at another place":             {plan.Graduated, "9", "8", "3", true},
		"graduated, nothing used in the same tier":    {plan.Graduated, "1", "9.9", "0", false},
		"graduated, nothing used at the edge":         {plan.Graduated, "9.9", "10", "0", true},
		"volume, within one tier":                     {plan.Volume, "1", "2", "8", false},
		"volume, ends in another tier":                {plan.Volume, "1", "3", "8", true},
		"volume, another quantity to adjust":          {plan.Volume, "9", "8", "4", true},
		"volume, nothing to adjust before, now there": {plan.Volume, "11", "9", "4", true},
		"volume, nothing to adjust at all":            {plan.Volume, "11", "12", "4", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tariffDiffers(tariff(tt.kind), dec(tt.was), dec(tt.is), dec(tt.used)); got != tt.want {
				t.Errorf("from %s to %s with %s used: %v, want %v", tt.was, tt.is, tt.used, got, tt.want)
			}
		})
	}
}

// Of a period that ends exactly at an edge the commit alone does not say whether
// a line changes: a quantity of 0 or less may follow there.
func TestEdgeDiffers(t *testing.T) {
	dec := decimal.RequireFromString
	tariff := &hashmap.Tariff{ID: "g", Kind: plan.Graduated, Edges: []decimal.Decimal{dec("10"), dec("20")}, Costs: []decimal.Decimal{dec("3"), dec("2"), dec("1")}}
	line := func(resource, qty, rule string) store.FoundLine {
		return store.FoundLine{Line: store.Line{Scope: "s", Resource: resource, Qty: dec(qty), Rule: rule}}
	}
	for name, tt := range map[string]struct {
		was, is, used string
		lines         []store.FoundLine
		doubtful      bool
		want          bool
	}{
		"nothing ends at an edge":                {"1", "2", "5", nil, false, false},
		"ends at the edge now, nothing follows":  {"4", "5", "5", []store.FoundLine{line("a", "5", "g:1")}, true, false},
		"ends at the edge now, 0 follows":        {"4", "5", "5", []store.FoundLine{line("a", "5", "g:1"), line("b", "0", "g:1")}, true, true},
		"ends at the edge now, 0 comes first":    {"4", "5", "5", []store.FoundLine{line("a", "0", "g:1"), line("b", "5", "g:1")}, true, false},
		"ended at the edge, -1 follows":          {"5", "4", "5", []store.FoundLine{line("a", "5", "g:1"), line("b", "-1", "g:2")}, true, true},
		"ended at the edge, just below it now":   {"5", "4.999999999999999999", "5", []store.FoundLine{line("a", "5", "g:1"), line("b", "-1", "g:2")}, true, true},
		"0 follows in another metric's bucket":   {"4", "5", "5", []store.FoundLine{line("a", "5", "g:1"), {Line: store.Line{Resource: "b", Bucket: "skipped"}}}, true, false},
		"0 in the middle and 0 at the end, once": {"4", "5", "5", []store.FoundLine{line("a", "2", "g:1"), line("b", "0", "g:1"), line("c", "3", "g:1"), line("d", "0", "g:1")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := edgeDiffers(tariff, dec(tt.was), dec(tt.is), dec(tt.used)); got != tt.doubtful {
				t.Fatalf("doubtful: %v, want %v", got, tt.doubtful)
			}
			tariff.Per = plan.PerScope
			d := doubt{metric: "m", account: "m", tariff: tariff, is: dec(tt.is)}
			if got := tt.doubtful && d.differs(tt.lines); got != tt.want {
				t.Errorf("differs: %v, want %v", got, tt.want)
			}
		})
	}
}

// A metric's name may be the begin of another's: an account is that of the metric
// whose tariff counts so.
func TestAnAccountIsOfOneMetric(t *testing.T) {
	p, err := plan.Parse("plan.yaml", []byte(`
currency: EUR
services:
  - name: disk
    tiers: [{id: whole, steps: [{cost: 1}]}]
  - name: disk/io
    tiers: [{id: io, steps: [{cost: 1}]}, {id: own, scope: own, per: resource, steps: [{cost: 1}]}]
  - name: port
    tiers: [{id: port, per: resource, steps: [{cost: 1}]}]
  - name: port/resource
    tiers: [{id: other, per: kind, steps: [{cost: 1}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := hashmap.Compile(p, hashmap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := &tieredPlan{plan: p, evaluator: e, metrics: []string{"disk", "disk/io", "port", "port/resource"}}
	for name, tt := range map[string]struct{ scope, account, metric, tariff string }{
		"the shorter name":                      {"a", "disk", "disk", "whole"},
		"the longer name":                       {"a", "disk/io", "disk/io", "io"},
		"the longer name by resource":           {"own", "disk/io/resource=r", "disk/io", "own"},
		"by resource":                           {"a", "port/resource=r/kind=x", "port", "port"},
		"by kind of a metric called after that": {"a", "port/resource/kind=x", "port/resource", "other"},
		"an account that the plan has no more":  {"a", "disk/resource=r", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			metric, tariff := x.tariff(store.CarryState{Scope: tt.scope}, tt.account)
			if metric != tt.metric || (tariff == nil) != (tt.tariff == "") || tariff != nil && tariff.ID != tt.tariff {
				t.Errorf("account %s is of metric %q by %+v, want %q by %q", tt.account, metric, tariff, tt.metric, tt.tariff)
			}
		})
	}
}

func TestClosing(t *testing.T) {
	dec := decimal.RequireFromString
	m := store.MonthCharges{Priced: true, Others: []string{"internal"},
		Minimums: []store.ChargeRule{{ID: "a", Amount: dec("5")}, {ID: "b", Scope: "own", Amount: dec("7")}},
		Caps:     []store.ChargeRule{{ID: "c", Amount: dec("100")}}}
	for name, tt := range map[string]struct{ scope, cameTo, want string }{
		"below the minimum":         {"x", "4.999999999999999999", "0.000000000000000001"},
		"at the minimum":            {"x", "5", "0"},
		"a scope's own minimum":     {"own", "5", "2"},
		"at the cap":                {"x", "100", "0"},
		"just above the cap":        {"x", "100.000000000000000001", "-0.000000000000000001"},
		"a scope without modules":   {"internal", "0", "0"},
		"a month that gave back":    {"x", "-3", "8"},
		"the general cap for owner": {"own", "101", "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := closing(m, tt.scope, dec(tt.cameTo)); !got.Equal(dec(tt.want)) {
				t.Errorf("closing(%s) = %s, want %s", tt.cameTo, got, tt.want)
			}
		})
	}
}
