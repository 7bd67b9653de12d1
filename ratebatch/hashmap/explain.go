package hashmap

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// Trace says how a price came about, so that an invoice's line can be argued
// about rule by rule.
type Trace struct {
	Result     Result
	Considered []Considered // every rule that counted, and those that nearly did, in the plan's order
	Arithmetic []string     // the calculation, step by step
}

// Considered is what became of one rule.
type Considered struct {
	Rule   plan.Rule
	Counts bool   // it made the price
	Why    string // what it did, or what kept it from counting
}

// Explain prices a point the slow way: it follows the rules literally, one
// after the other, as CloudKitty does, and notes what each did. The answer is
// that of Price.
func (e *Evaluator) Explain(p *Point) Trace {
	if e.HasTiers(p.Metric) {
		return e.explainTiers(p)
	}
	x := &explainer{p: p, notes: map[*rule]Considered{}}
	say := func(format string, args ...any) { x.lines = append(x.lines, fmt.Sprintf(format, args...)) }
	s := e.lookup(p.Metric)
	if s == e.rest {
		say("the plan has no service %s", p.Metric)
	}
	result := e.evaluate(s, p, func(*Point) hashmapPart { return x.run(s) }, say)
	return x.trace(result)
}

type explainer struct {
	p      *Point
	groups []*account
	notes  map[*rule]Considered
	lines  []string
}

// account is a group while its rules are applied.
type account struct {
	name      string
	flat      decimal.Decimal
	flatRule  *rule
	rate      decimal.Decimal
	rateRules []*rule
	level     decimal.Decimal // of the threshold; -1: none
	threshold *rule
	ofField   bool
}

func (x *explainer) note(r *rule, counts bool, format string, args ...any) {
	x.notes[r] = Considered{*r.Rule, counts, fmt.Sprintf(format, args...)}
}

func (x *explainer) account(r *rule) *account {
	for _, a := range x.groups {
		if a.name == r.GroupName() {
			return a
		}
	}
	a := &account{name: r.GroupName(), rate: one, level: minusOne}
	x.groups = append(x.groups, a)
	return a
}

func (x *explainer) run(s *service) hashmapPart {
	for _, m := range x.inForce(s.rules(plan.MappingKind)) {
		x.mapping(m)
	}
	for _, th := range x.inForce(s.rules(plan.ThresholdKind)) {
		x.threshold(th, x.p.Qty, "the quantity")
	}
	for _, f := range s.fields {
		value, ok := x.p.Attributes[f.name]
		if !ok {
			const few = 20 // of a long price list, naming every entry helps nobody
			if rules := f.rules(""); len(rules) <= few {
				for _, r := range rules {
					x.note(r, false, "the usage has no attribute %s", f.name)
				}
			}
			continue
		}
		mappings := f.rules(plan.MappingKind)
		for _, m := range mappings {
			if m.Value != value && nearly(m.Value, value) {
				x.note(m, false, "%q is not %q: values must match exactly", value, m.Value)
			}
		}
		mappings = slices.DeleteFunc(mappings, func(m *rule) bool { return m.Value != value })
		for _, m := range x.inForce(mappings) {
			x.mapping(m)
		}
		thresholds := x.inForce(f.rules(plan.ThresholdKind))
		if len(thresholds) == 0 {
			continue
		}
		n, _, ok := expr.AttributeNumber(value)
		if !ok {
			reason := notANumber(f.name, value)
			x.note(thresholds[0], false, "%s", reason)
			return hashmapPart{reject: reason}
		}
		for _, th := range thresholds {
			x.threshold(th, n, f.name)
		}
	}
	return x.total()
}

// rules gives what hangs on a parent in the plan's order; an empty kind means
// both.
func (p *parent) rules(kind plan.Kind) []*rule {
	var out []*rule
	for _, list := range p.mappings {
		out = append(out, list...)
	}
	for _, list := range p.thresholds {
		out = append(out, list...)
	}
	out = slices.DeleteFunc(out, func(r *rule) bool { return kind != "" && r.Kind != kind })
	slices.SortFunc(out, func(a, b *rule) int { return a.index - b.index })
	return out
}

// inForce leaves the rules that hold at the period's begin and that no other
// rule replaces: general rules first, then the scope's.
func (x *explainer) inForce(rules []*rule) []*rule {
	var out []*rule
	for _, scope := range []string{"", x.p.Scope} {
		for _, r := range rules {
			switch {
			case r.Scope != scope:
				continue
			case x.p.Begin.Before(r.Start):
				x.note(r, false, "it starts at %s, after the period's begin", r.Start.Format(time.RFC3339))
				continue
			case !r.End.IsZero() && !r.End.After(x.p.Begin):
				x.note(r, false, "it ended at %s", r.End.Format(time.RFC3339))
				continue
			}
			same := slices.IndexFunc(out, func(o *rule) bool {
				return placeOf(o) == placeOf(r)
			})
			if same < 0 {
				out = append(out, r)
				continue
			}
			x.note(out[same], false, "%s takes its place%s", r.ID, map[bool]string{true: " for scope " + r.Scope}[r.Scope != ""])
			out[same] = r
		}
		if scope == x.p.Scope {
			break
		}
	}
	return out
}

// placeOf is what a rule replaces another by.
func placeOf(r *rule) [4]string {
	level := ""
	if r.Kind == plan.ThresholdKind {
		level = plan.Normal(r.Level).String()
	}
	return [4]string{string(r.Kind), r.GroupName(), r.Value, level}
}

func nearly(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

func (x *explainer) mapping(m *rule) {
	a := x.account(m)
	if m.Type == plan.Rate {
		a.rate = a.rate.Mul(m.Cost)
		a.rateRules = append(a.rateRules, m)
		x.note(m, true, "a factor of %s on group %s", m.Cost, a.name)
		return
	}
	switch {
	case m.Cost.GreaterThan(a.flat) || a.flatRule == nil && !m.Cost.IsNegative():
		if a.flatRule != nil {
			x.note(a.flatRule, false, "%s of the same group costs more: %s", m.ID, m.Cost)
		}
		a.flat, a.flatRule = m.Cost, m
		x.note(m, true, "%s a unit in group %s", m.Cost, a.name)
	case m.Cost.IsNegative():
		x.note(m, false, "a flat mapping below zero never counts")
	default:
		x.note(m, false, "%s of the same group costs %s", a.flatRule.ID, a.flat)
	}
}

func (x *explainer) threshold(th *rule, n decimal.Decimal, what string) {
	switch {
	case n.LessThan(th.Level):
		x.note(th, false, "%s is %s, below level %s", what, n, th.Level)
		return
	case th.Level.LessThanOrEqual(minusOne):
		x.note(th, false, "levels of -1 and below never count")
		return
	}
	a := x.account(th)
	if th.Level.LessThanOrEqual(a.level) {
		x.note(th, false, "%s of the same group has level %s", a.threshold.ID, a.level)
		return
	}
	if a.threshold != nil {
		x.note(a.threshold, false, "%s of the same group has the higher level %s", th.ID, th.Level)
	}
	a.level, a.threshold, a.ofField = th.Level, th, th.Field != ""
	x.note(th, true, "%s is %s, at or above level %s", what, n, th.Level)
}

// total adds the groups up.
func (x *explainer) total() hashmapPart {
	var out hashmapPart
	var used []*rule
	for _, a := range x.groups {
		price, text := a.price(x.p.Qty)
		out.price = out.price.Add(price)
		x.lines = append(x.lines, text)
		used = append(used, a.rateRules...)
		if a.flatRule != nil {
			used = append(used, a.flatRule)
		}
		if a.threshold != nil {
			used = append(used, a.threshold)
		}
	}
	out.rule, out.unpriced = ruleNames(used), len(used) == 0
	return out
}

// price is the group's part of the price, and its calculation as text.
func (a *account) price(qty decimal.Decimal) (decimal.Decimal, string) {
	text := "group " + a.name + ": "
	if a.flatRule == nil {
		text += "0 (nothing flat)"
	} else {
		text += fmt.Sprintf("%s (%s)", a.flat, a.flatRule.ID)
	}
	flat, rate := a.flat, a.rate
	if a.threshold != nil && a.ofField && a.threshold.Type == plan.Flat {
		flat = flat.Add(a.threshold.Cost)
		text = fmt.Sprintf("%s + %s (%s) = %s", text, a.threshold.Cost, a.threshold.ID, flat)
	}
	for _, r := range a.rateRules {
		text += fmt.Sprintf(" × %s (%s)", r.Cost, r.ID)
	}
	if a.threshold != nil && a.ofField && a.threshold.Type == plan.Rate {
		rate = rate.Mul(a.threshold.Cost)
		text += fmt.Sprintf(" × %s (%s)", a.threshold.Cost, a.threshold.ID)
	}
	r := flat.Mul(rate).Mul(qty)
	text += fmt.Sprintf(" × quantity %s = %s", qty, r)
	if a.threshold != nil && !a.ofField {
		if a.threshold.Type == plan.Flat {
			r = r.Add(a.threshold.Cost)
			text += fmt.Sprintf("; + %s (%s) = %s", a.threshold.Cost, a.threshold.ID, r)
		} else {
			r = r.Mul(a.threshold.Cost)
			text += fmt.Sprintf("; × %s (%s) = %s", a.threshold.Cost, a.threshold.ID, r)
		}
	}
	return r, text
}

func (x *explainer) trace(r Result) Trace {
	t := Trace{Result: r, Arithmetic: x.lines}
	rules := make([]*rule, 0, len(x.notes))
	for r := range x.notes {
		rules = append(rules, r)
	}
	slices.SortFunc(rules, func(a, b *rule) int { return a.index - b.index })
	for _, r := range rules {
		t.Considered = append(t.Considered, x.notes[r])
	}
	return t
}
