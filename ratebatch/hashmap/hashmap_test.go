package hashmap

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// drawDecimal draws numbers of all sizes, with a taste for edges.
func drawDecimal(t *rapid.T, name string, integer, scale int, negative bool) decimal.Decimal {
	if rapid.IntRange(0, 3).Draw(t, name+" kind") == 0 {
		edges := []string{"0", "1", "0.5", "10", "1.5", "-1", "-0.5"}
		d := decimal.RequireFromString(rapid.SampledFrom(edges).Draw(t, name))
		if negative || !d.IsNegative() {
			return d
		}
	}
	digits := rapid.IntRange(1, integer+scale).Draw(t, name+" digits")
	exp := rapid.IntRange(0, scale).Draw(t, name+" scale")
	if digits-exp > integer {
		digits = integer + exp
	}
	text := rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", digits)).Draw(t, name)
	c, _ := new(big.Int).SetString(text, 10)
	if negative && rapid.IntRange(0, 3).Draw(t, name+" sign") == 0 {
		c.Neg(c)
	}
	return decimal.NewFromBigInt(c, int32(-exp))
}

var (
	someScopes = []string{"", "", "", "a", "b"}
	someValues = []string{"m1", "m2", "4", "4.0", ""}
	someTimes  = []time.Time{{}, {}, {}, epoch, epoch.Add(time.Hour), epoch.Add(2 * time.Hour)}
)

func drawRules(t *rapid.T) Rules {
	fields := rapid.IntRange(0, 3).Draw(t, "fields")
	r := Rules{Services: []string{"vm"}}
	for i := range fields {
		r.Fields = append(r.Fields, Field{"vm", fmt.Sprintf("f%d", i)})
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "rules") {
		rule := plan.Rule{
			Kind: plan.MappingKind, ID: fmt.Sprintf("r%d", i), Service: "vm",
			Group: rapid.SampledFrom([]string{"", "", "g", plan.DefaultGroup}).Draw(t, "group"),
			Scope: rapid.SampledFrom(someScopes).Draw(t, "scope"),
			Type:  rapid.SampledFrom([]plan.Type{plan.Flat, plan.Flat, plan.Rate}).Draw(t, "type"),
			Cost:  drawDecimal(t, "cost", plan.CostIntegerDigits, plan.CostScale, true),
			Start: rapid.SampledFrom(someTimes).Draw(t, "start"),
			End:   rapid.SampledFrom(someTimes).Draw(t, "end"),
		}
		if fields > 0 && rapid.Bool().Draw(t, "on a field") {
			rule.Field = fmt.Sprintf("f%d", rapid.IntRange(0, fields-1).Draw(t, "field"))
			rule.Value = rapid.SampledFrom(someValues[:4]).Draw(t, "value")
		}
		if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
			rule.Kind, rule.Value = plan.ThresholdKind, ""
			rule.Level = drawDecimal(t, "level", 6, plan.LevelScale, true)
			if rapid.Bool().Draw(t, "extreme level") {
				rule.Level = drawDecimal(t, "level", plan.LevelIntegerDigits, plan.LevelScale, true)
			}
		}
		r.Rules = append(r.Rules, rule)
	}
	return r
}

func drawPoint(t *rapid.T, r Rules) *Point {
	p := &Point{
		Metric:     rapid.SampledFrom([]string{"vm", "vm", "vm", "vm", "vm", "disk"}).Draw(t, "metric"),
		Scope:      rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "scope"),
		Begin:      epoch.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "hour")) * time.Hour),
		Attributes: map[string]string{"other": "m1"},
	}
	for _, f := range r.Fields {
		if rapid.IntRange(0, 4).Draw(t, "has "+f.Name) > 0 {
			p.Attributes[f.Name] = rapid.SampledFrom(someValues).Draw(t, f.Name)
		}
	}
	p.Qty = drawDecimal(t, "qty", 20, 18, true)
	if len(r.Rules) > 0 && rapid.Bool().Draw(t, "at a level") {
		level := rapid.SampledFrom(r.Rules).Draw(t, "level of").Level
		ulp := decimal.New(int64(rapid.IntRange(-1, 1).Draw(t, "beside")), -18)
		p.Qty = level.Add(ulp)
	}
	if rapid.IntRange(0, 20).Draw(t, "beyond the table") == 0 {
		p.Qty = p.Qty.Mul(decimal.New(3, 5)).Add(decimal.New(7, -30))
	}
	return p
}

func TestPriceFoldAndExplainAgree(t *testing.T) {
	t.Parallel()
	const pointsPerPlan = 100 // × rapid's 100 plans = 10,000 cases a run
	counts := map[Bucket]int{}
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		e := CompileRules(rules)
		for range pointsPerPlan {
			p := drawPoint(t, rules)
			got := e.Price(p)
			want := e.Explain(p).Result
			if !got.Price.Equal(want.Price) || got.Rule != want.Rule || got.Bucket != want.Bucket || got.Reason != want.Reason {
				t.Fatalf("%+v:\nPrice   %s %q %s %s\nExplain %s %q %s %s", p,
					got.Price, got.Rule, got.Bucket, got.Reason, want.Price, want.Rule, want.Bucket, want.Reason)
			}
			if got.Bucket != Rejected && !got.Exact().Equal(want.Exact()) {
				t.Fatalf("%+v: exactly %s, want %s", p, got.Exact(), want.Exact())
			}
			if got.Bucket != Rejected && got.Price.Sub(got.Exact()).Abs().GreaterThan(decimal.New(5, -19)) {
				t.Fatalf("%+v: %s is not %s rounded", p, got.Price, got.Exact())
			}
			f := e.Fold(p.Metric, p.Scope, p.Attributes, p.Begin)
			checkSteps(t, &f)
			if f.Reject != "" {
				if got.Bucket != Rejected || got.Reason != f.Reject {
					t.Fatalf("%+v: folded is rejected (%s), the price is not", p, f.Reject)
				}
			} else if s := f.At(p.Qty); !Round(s.A.Mul(p.Qty).Add(s.B)).Equal(want.Price) && want.Bucket != Rejected || s.Rule != want.Rule {
				t.Fatalf("%+v: folded %s·qty + %s by %q, want %s by %q", p, s.A, s.B, s.Rule, want.Price, want.Rule)
			}
			counts[got.Bucket]++
		}
	})
	t.Log(counts)
}

func checkSteps(t *rapid.T, f *Folded) {
	if (f.Reject == "") != (len(f.Steps) > 0) {
		t.Fatalf("%d steps and reject %q", len(f.Steps), f.Reject)
	}
	for i, s := range f.Steps {
		if (i == 0) != (s.From == nil) {
			t.Fatalf("step %d begins at %v", i, s.From)
		}
		if i > 1 && !f.Steps[i-1].From.LessThan(*s.From) {
			t.Fatalf("step %d begins at %s, the one before at %s", i, s.From, f.Steps[i-1].From)
		}
	}
}

// What Fields, ScopesWithRules and Boundaries leave out must make no
// difference, or SQL would join usage with the wrong coefficients.
func TestWhatTheFoldDoesNotLookAtMakesNoDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		e := CompileRules(rules)
		p := drawPoint(t, rules)
		want := fmt.Sprintf("%v", text(e.Fold(p.Metric, p.Scope, p.Attributes, p.Begin)))

		values := map[string]string{"not a rule's field": "x"}
		for _, f := range e.Fields(p.Metric) {
			if v, ok := p.Attributes[f]; ok {
				values[f] = v
			}
		}
		scope := "some scope without rules"
		for _, s := range e.ScopesWithRules(p.Metric) {
			if s == p.Scope {
				scope = s
			}
		}
		at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC) // the last boundary before, or long ago
		for _, b := range e.Boundaries() {
			if !b.After(p.Begin) {
				at = b
			}
		}
		if got := text(e.Fold(p.Metric, scope, values, at)); got != want {
			t.Fatalf("scope %s, values %v, at %s:\n%s\nwant, for scope %s, values %v, at %s:\n%s",
				scope, values, at, got, p.Scope, p.Attributes, p.Begin, want)
		}
	})
}

func text(f Folded) string {
	s := f.Reject
	for _, x := range f.Steps {
		s += fmt.Sprintf("[%v %s %s %s %v]", x.From, x.A, x.B, x.Rule, x.Unpriced)
	}
	return s
}
