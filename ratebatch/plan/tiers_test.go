package plan_test

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

const tiersPlan = `
currency: EUR
services:
  - name: egress
    tiers:
      - free: "1000"
        steps:
          - {up_to: "10000", cost: "0.05"}
          - {cost: "0.030"}
      - scope: big
        kind: volume
        per: region
        start: 2026-03-01
        steps: [{up_to: 5, cost: 2}, {cost: 1}]
  - name: vm
    mappings: [{cost: 1}]
discounts:
  - {percent: 10, metric: vm}
  - {percent: "2.5", scope: big, id: loyal}
charges:
  - {kind: minimum, amount: 5}
  - {kind: cap, amount: "99.50", scope: big}
`

func TestTiersAreReadAndWrittenBack(t *testing.T) {
	t.Parallel()
	p := parse(t, tiersPlan)
	if found := p.Validate(plan.Metrics{"egress": {"region"}, "vm": nil}); len(found) > 0 {
		t.Fatalf("findings:\n%s", found)
	}
	first, second := p.Services[0].Tiers[0], p.Services[0].Tiers[1]
	if first.ID != "g1" || first.Kind != plan.Graduated || first.Per != plan.PerScope || len(first.All()) != 3 || !first.All()[0].Cost.IsZero() || first.All()[2].Cost.String() != "0.03" {
		t.Errorf("the first tiers are %+v", first)
	}
	if second.ID != "g2" || second.Kind != plan.Volume || second.Per != "region" || second.Scope != "big" || len(second.All()) != 2 {
		t.Errorf("the second tiers are %+v", second)
	}
	if p.Discounts[0].ID != "d1" || p.Discounts[1].ID != "loyal" || p.Charges[1].ID != "c2" || p.Charges[1].Amount.String() != "99.5" {
		t.Errorf("discounts %+v, charges %+v", p.Discounts, p.Charges)
	}
	again, err := plan.Parse("again.yaml", p.YAML())
	if err != nil {
		t.Fatalf("%s\n%v", p.YAML(), err)
	}
	if again.Digest() != p.Digest() {
		t.Errorf("what was written reads back as another plan:\n%s", p.YAML())
	}
	if plain := parse(t, strings.Replace(tiersPlan, `free: "1000"`, `free: "1001"`, 1)); plain.Digest() == p.Digest() {
		t.Error("another allowance has the same digest")
	}
}

func TestValidateTiers(t *testing.T) {
	t.Parallel()
	service := func(rest string) string { return "currency: EUR\nservices:\n  - name: vm\n" + rest }
	tiers := func(text string) string { return service("    tiers:\n      - " + text) }
	for name, tt := range map[string]struct{ text, want string }{
		"sound tiers":                        {tiers("steps: [{up_to: 1, cost: 2}, {cost: 1}]"), ""},
		"one price without end":              {tiers("{free: 1, steps: [{cost: 1}]}"), ""},
		"per an attribute":                   {tiers("{per: flavor_name, steps: [{cost: 1}]}"), ""},
		"per an attribute that is misspelt":  {tiers("{per: flavour_name, steps: [{cost: 1}]}"), "5:10: service vm, tiers g1: per: the metric has no attribute flavour_name: known are scope, resource, flavor_name, project_id"},
		"skip by quantity":                   {tiers("steps: [{cost: 1}]\nskip: qty == 0"), ""},
		"no steps":                           {tiers("steps: []"), "5:9: service vm, tiers g1: steps is empty"},
		"an end at the top":                  {tiers("steps: [{up_to: 1, cost: 2}]"), "the last step ends at 1, and what is beyond has no price"},
		"no end in the middle":               {tiers("steps: [{cost: 2}, {up_to: 1, cost: 2}]"), "only the last step has no up_to"},
		"edges that fall":                    {tiers("steps: [{up_to: 2, cost: 2}, {up_to: 1, cost: 2}, {cost: 1}]"), "the edges must rise from above 0: 1 comes after 2"},
		"equal edges":                        {tiers("steps: [{up_to: 2, cost: 2}, {up_to: 2.0, cost: 2}, {cost: 1}]"), "the edges must rise"},
		"an allowance above the first edge":  {tiers("{free: 3, steps: [{up_to: 2, cost: 2}, {cost: 1}]}"), "the edges must rise from above 0: 2 comes after 3"},
		"an allowance of nothing":            {tiers("{free: 0, steps: [{cost: 1}]}"), "free is 0"},
		"an allowance of volume tiers":       {tiers("{free: 1, kind: volume, steps: [{cost: 1}]}"), "volume tiers have no allowance"},
		"a cost below zero":                  {tiers("steps: [{cost: -1}]"), "a cost of -1 is below 0"},
		"tiers twice":                        {tiers("steps: [{cost: 1}]\n      - steps: [{cost: 2}]"), "6:9: service vm: tiers g2 and g1 at line 5 are for the same scopes while both hold"},
		"one after the other":                {tiers("{end: 2026-03-01, steps: [{cost: 1}]}\n      - {start: 2026-03-01, steps: [{cost: 2}]}"), ""},
		"tiers of a scope beside the others": {tiers("{scope: a, steps: [{cost: 1}]}\n      - {steps: [{cost: 2}]}"), ""},
		"tiers and mappings":                 {service("    mappings: [{cost: 1}]\n    tiers: [{steps: [{cost: 1}]}]"), "3:5: service vm has tiers and other rules"},
		"an expression on tiers":             {tiers("steps: [{cost: 1}]\nexpressions:\n  - {price: price * 2}"), "expression e1 applies to vm, which has tiers"},
		"skip by price":                      {tiers("steps: [{cost: 1}]\nskip: price > 3"), "skip looks at the price"},
		"a reserved name":                    {"currency: EUR\nservices: [{name: discount, mappings: [{cost: 1}]}]", "rename the metric"},
		"an id twice":                        {tiers("{id: a, steps: [{cost: 1}]}\ncharges: [{id: a, kind: cap, amount: 1}]"), "id a is already that of the rule at line 5"},
		"a discount of all":                  {service("    mappings: [{cost: 1}]\ndiscounts: [{percent: 100}]"), ""},
		"a discount of more than all":        {service("    mappings: [{cost: 1}]\ndiscounts: [{percent: 100.1}]"), "expected more than 0 and at most 100"},
		"a discount of nothing":              {service("    mappings: [{cost: 1}]\ndiscounts: [{percent: 0}]"), "expected more than 0"},
		"a discount on nothing":              {service("    mappings: [{cost: 1}]\ndiscounts: [{percent: 1, metric: gpu}]"), "no such metric as gpu"},
		"discounts of one place":             {service("    mappings: [{cost: 1}]\ndiscounts: [{percent: 1}, {percent: 2}]"), "d1 at line 5 is for the same scopes and metrics"},
		"a minimum above the cap":            {service("    mappings: [{cost: 1}]\ncharges: [{kind: cap, amount: 1}, {kind: minimum, amount: 2, scope: a}]"), "the minimum 2 is above the cap 1"},
		"two caps":                           {service("    mappings: [{cost: 1}]\ncharges: [{kind: cap, amount: 1}, {kind: cap, amount: 2}]"), "c1 at line 5 is for the same scopes"},
		"a cap below zero":                   {service("    mappings: [{cost: 1}]\ncharges: [{kind: cap, amount: -1}]"), "-1 is below 0"},
	} {
		t.Run(name, func(t *testing.T) {
			found := parse(t, tt.text).Validate(plan.Metrics{"vm": {"flavor_name", "project_id"}, "disk": nil, "discount": nil})
			if tt.want == "" && len(found) > 0 || !strings.Contains(found.Error(), tt.want) {
				t.Errorf("%s,\nwant %s", found.Error(), tt.want)
			}
			if refused := found.Err() != nil; refused != (tt.want != "") {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

func TestMistakesInTiersHaveLineAndColumn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"an unknown kind":    {"services:\n  - name: vm\n    tiers:\n      - {kind: stairs, steps: [{cost: 1}]}", "4:16: service vm, tiers 1, kind: expected graduated or volume"},
		"a misspelt key":     {"services:\n  - name: vm\n    tiers:\n      - steps:\n          - {upto: 1, cost: 1}", `5:14: service vm, tiers 1, step 1: unknown key "upto": did you mean "up_to"?`},
		"a cost is missing":  {"services:\n  - name: vm\n    tiers:\n      - steps: [{up_to: 1}]", `"cost" is missing`},
		"steps are missing":  {"services:\n  - name: vm\n    tiers:\n      - free: 1", `4:9: service vm, tiers 1: "steps" is missing`},
		"an amount of words": {"charges:\n  - {kind: cap, amount: much}", `2:25: charge 1, amount: "much" is not a decimal number`},
		"an unknown charge":  {"charges:\n  - {kind: ceiling, amount: 1}", "2:12: charge 1, kind: expected minimum or cap"},
		"too fine a percent": {"discounts: [{percent: 0.00000000000000001}]", "digits after the point"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Parse("plan.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v,\nwant %s", err, tt.want)
			}
		})
	}
}

func TestDiffOfTiers(t *testing.T) {
	t.Parallel()
	a := parse(t, tiersPlan)
	for name, tt := range map[string]struct{ old, new, want string }{
		"an allowance":  {`free: "1000"`, `free: "2000"`, "~ service egress, tiers: graduated per scope: up to 1000 0, up to 10000 0.05, then 0.03 -> graduated per scope: up to 2000 0, up to 10000 0.05, then 0.03\n"},
		"a discount":    {"percent: 10", "percent: 12", "~ discount, metric vm: 10 % -> 12 %\n"},
		"a cap is gone": {`  - {kind: cap, amount: "99.50", scope: big}`, "", "- cap, scope big: 99.5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan.Diff(a, parse(t, strings.Replace(tiersPlan, tt.old, tt.new, 1))); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
