package hashmap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func drawPlan(t *rapid.T) (*plan.Plan, Rules) {
	r := drawRules(t)
	s := plan.Service{Name: "vm"}
	for _, f := range r.Fields {
		s.Fields = append(s.Fields, plan.Field{Name: f.Name})
	}
	for _, x := range r.Rules {
		mappings, thresholds := &s.Mappings, &s.Thresholds
		for i := range s.Fields {
			if s.Fields[i].Name == x.Field {
				mappings, thresholds = &s.Fields[i].Mappings, &s.Fields[i].Thresholds
			}
		}
		if x.Kind == plan.MappingKind {
			*mappings = append(*mappings, plan.Mapping{ID: x.ID, Value: x.Value, Cost: x.Cost, Type: x.Type, Group: x.Group, Scope: x.Scope, Start: x.Start, End: x.End})
		} else {
			*thresholds = append(*thresholds, plan.Threshold{ID: x.ID, Level: x.Level, Cost: x.Cost, Type: x.Type, Group: x.Group, Scope: x.Scope, Start: x.Start, End: x.End})
		}
	}
	conditions := []string{
		"qty >= 10", "price > 1", "price == 0", `groupby.f0 == "m1"`, "qty < 0 || qty > 1000", `scope == "c"`,
		`begin >= time("2026-03-01T01:00:00Z")`, "hour(begin) == 1", `unit == "h"`, `metric == "disk"`,
		"number(metadata.f1) > 2", "has(groupby.f1) && price < 0.5", "qty == 0.5", `scope startsWith "a"`,
	}
	prices := []string{
		"price * 0.8", "price + 1", "max(price, 0.25)", "qty * 0.02", "max(0, qty - 100) * 0.02 + price", "price / 1024 - qty",
		"round(price, 2)", "number(groupby.f0, 3) * qty", "number(groupby.f0)", "abs(price) + min(qty, 10)", "qty > 5 ? price : number(metadata.f1)",
		"1 / 3", "qty * qty", "price / (qty - 10)", "0",
	}
	p := &plan.Plan{Services: []plan.Service{s}}
	for i := range rapid.IntRange(0, 3).Draw(t, "expressions") {
		e := plan.Expression{
			ID:     fmt.Sprintf("e%d", i+1),
			Metric: rapid.SampledFrom([]string{"", "vm", "disk"}).Draw(t, "metric"),
			Scope:  rapid.SampledFrom(someScopes).Draw(t, "scope"),
			Start:  rapid.SampledFrom(someTimes).Draw(t, "start"),
			End:    rapid.SampledFrom(someTimes).Draw(t, "end"),
			Price:  rapid.SampledFrom(prices).Draw(t, "price"),
		}
		if rapid.Bool().Draw(t, "has when") {
			e.When = rapid.SampledFrom(conditions).Draw(t, "when")
		}
		p.Expressions = append(p.Expressions, e)
	}
	if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
		p.Skip = rapid.SampledFrom(conditions).Draw(t, "general skip")
	}
	if rapid.IntRange(0, 3).Draw(t, "own skip") == 0 {
		p.Services[0].Skip = rapid.SampledFrom(conditions).Draw(t, "vm's skip")
	}
	if rapid.IntRange(0, 3).Draw(t, "modules") == 0 {
		p.Modules = append(p.Modules, plan.Module{Module: plan.Expressions, Priority: rapid.IntRange(0, 2).Draw(t, "priority")})
		p.Modules = append(p.Modules, plan.Module{Module: plan.Hashmap, Priority: 1, Scope: rapid.SampledFrom(someScopes).Draw(t, "module scope")})
		p.Modules = append(p.Modules, plan.Module{Module: plan.None, Scope: "b"})
	}
	return p, r
}

func TestExpressionsFoldLikeRules(t *testing.T) {
	t.Parallel()
	counts := map[Bucket]int{}
	perPoint, steps := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p, rules := drawPlan(t)
		e, err := Compile(p, Options{Units: map[string]string{"vm": "h"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			pt := drawPoint(t, rules)
			if pt.Metric == "vm" {
				pt.Unit = "h"
			}
			if rapid.IntRange(0, 5).Draw(t, "turning point") == 0 {
				turn := rapid.SampledFrom([]string{"10", "0", "1000", "100", "0.5", "5"}).Draw(t, "at")
				pt.Qty = decimal.RequireFromString(turn).Add(decimal.New(int64(rapid.IntRange(-1, 1).Draw(t, "beside")), -18))
			}
			got, want := e.Price(pt), e.Explain(pt).Result
			if !got.Price.Equal(want.Price) || got.Rule != want.Rule || got.Bucket != want.Bucket || got.Reason != want.Reason {
				t.Fatalf("%+v:\nPrice   %s %q %s %s\nExplain %s %q %s %s\n%+v", pt, got.Price, got.Rule, got.Bucket, got.Reason,
					want.Price, want.Rule, want.Bucket, want.Reason, p.Expressions)
			}
			counts[got.Bucket]++

			// What SQL sees: the attributes, scopes and windows that matter, and no others.
			values := map[string]string{}
			for _, f := range e.Fields(pt.Metric) {
				if v, ok := pt.Attributes[f]; ok {
					values[f] = v
				}
			}
			scope := "any other scope"
			for _, s := range e.ScopesWithRules(pt.Metric) {
				if s == pt.Scope {
					scope = s
				}
			}
			at := epoch.AddDate(-50, 0, 0)
			for _, b := range e.Boundaries() {
				if !b.After(pt.Begin) {
					at = b
				}
			}
			f := e.Fold(pt.Metric, scope, values, at)
			switch {
			case f.PerPoint != "":
				perPoint++
				continue
			case f.Reject != "":
				if got.Bucket != Rejected || got.Reason != f.Reject {
					t.Fatalf("%+v: folded is rejected: %s, the price %s %s", pt, f.Reject, got.Bucket, got.Reason)
				}
				continue
			}
			checkSteps(t, &f)
			steps += len(f.Steps)
			if pt.Qty.Exponent() < -18 {
				continue
			}
			s := f.At(pt.Qty)
			price := Round(s.A.Mul(pt.Qty).Add(s.B))
			bucket := Priced
			switch {
			case s.Reject != "" || outOfRange(price):
				bucket = Rejected
			case s.Skip:
				bucket = Skipped
			case s.Unpriced:
				bucket = Unpriced
			}
			if bucket != got.Bucket || bucket != Rejected && (!price.Equal(got.Price) || s.Rule != got.Rule) {
				t.Fatalf("%+v: folded %s %s %q, want %s %s %q", pt, bucket, price, s.Rule, got.Bucket, got.Price, got.Rule)
			}
		}
	})
	t.Log(counts, perPoint, "combinations per point,", steps, "steps")
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	parse := func(t *testing.T, text string) *Evaluator {
		p, err := plan.Parse("plan.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		e, err := Compile(p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const base = `
currency: EUR
services:
  - name: vm
    mappings: [{cost: 2}]
`
	for name, tt := range map[string]struct {
		plan, scope, qty string
		want             Result
	}{
		"an expression sees the price so far": {
			base + "expressions: [{price: price * 0.5}]", "", "3",
			Result{Price: decimal.New(3, 0), Rule: "m1+e1"},
		},
		"expressions apply in the order of the plan": {
			base + "expressions: [{price: price + 1}, {price: price * 2}]", "", "3",
			Result{Price: decimal.New(14, 0), Rule: "m1+e1+e2"},
		},
		"expressions first, if their priority is higher": {
			base + "modules: [{module: expressions, priority: 2}]\nexpressions: [{price: price + 1}]", "", "3",
			Result{Price: decimal.New(7, 0), Rule: "e1+m1"},
		},
		"a condition that does not hold changes nothing": {
			base + "expressions: [{when: qty > 3, price: 0}]", "", "3",
			Result{Price: decimal.New(6, 0), Rule: "m1"},
		},
		"an expression prices a metric without a service": {
			"currency: EUR\nexpressions: [{metric: vm, price: qty * 7}]", "", "3",
			Result{Price: decimal.New(21, 0), Rule: "e1"},
		},
		"a scope can have its own module state": {
			base + "modules: [{module: none, scope: free}]", "free", "3",
			Result{Bucket: Unpriced},
		},
		"that leaves others alone": {
			base + "modules: [{module: none, scope: free}]", "other", "3",
			Result{Price: decimal.New(6, 0), Rule: "m1"},
		},
		"a skipped point has no price": {
			base + "skip: price > 5", "", "3",
			Result{Bucket: Skipped},
		},
		"a service's skip takes the place of the general one": {
			strings.Replace(base, "name: vm", "name: vm\n    skip: qty == 0", 1) + "skip: price > 5", "", "3",
			Result{Price: decimal.New(6, 0), Rule: "m1"},
		},
		"a point without an answer is rejected": {
			base + "expressions: [{price: number(groupby.size)}]", "", "3",
			Result{Bucket: Rejected, Reason: `expression e1: number(""): not a number`},
		},
		"what is not linear is priced point by point": {
			base + "expressions: [{price: qty * qty}]", "", "3",
			Result{Price: decimal.New(9, 0), Rule: "m1+e1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := parse(t, tt.plan)
			p := &Point{Metric: "vm", Scope: tt.scope, Qty: decimal.RequireFromString(tt.qty), Begin: epoch}
			got := e.Price(p)
			if !got.Price.Equal(tt.want.Price) || got.Rule != tt.want.Rule || got.Bucket != tt.want.Bucket || got.Reason != tt.want.Reason {
				t.Errorf("%s %q %s %s, want %s %q %s %s", got.Price, got.Rule, got.Bucket, got.Reason, tt.want.Price, tt.want.Rule, tt.want.Bucket, tt.want.Reason)
			}
		})
	}
}
