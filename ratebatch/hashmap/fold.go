package hashmap

import (
	"fmt"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// Step is a stretch of quantities in which the price is exactly A·qty + B.
type Step struct {
	From     *decimal.Decimal // the step holds for quantities from here on; nil for the lowest
	A, B     decimal.Decimal
	Rule     string // ids of the rules that made the price, in the plan's order, mappings first: "m3+t1"
	Unpriced bool   // no rule matched; A and B are 0
	Skip     bool   // the plan's skip condition holds: bucket skipped, no price
	Reject   string // an expression has no answer here: bucket rejected, with this reason
}

// Folded is the price of every quantity for one metric, scope, combination of
// attribute values and validity window. The steps are in rising order and the
// first has no From, so every quantity has exactly one.
type Folded struct {
	Steps    []Step
	Reject   string // why every quantity is rejected; there are no steps then
	PerPoint string // why Price has to be asked for each point; there are no steps then
}

// At gives the step that a quantity falls into.
func (f *Folded) At(qty decimal.Decimal) *Step {
	if len(f.Steps) == 0 {
		return nil
	}
	i := len(f.Steps) - 1
	for i > 0 && qty.LessThan(*f.Steps[i].From) {
		i--
	}
	return &f.Steps[i]
}

// Fold gives the price of every quantity of the metric for the scope, with the
// attribute values given, in a period that begins at t. A key that is absent
// means that the usage does not have the attribute, which differs from an
// empty value. Attributes that no rule looks at make no difference.
func (e *Evaluator) Fold(metric, scope string, values map[string]string, t time.Time) Folded {
	s := e.lookup(metric)
	hashmap := func() Folded {
		return s.fold(scope, t, func(f *field) (string, bool) {
			v, ok := values[f.name]
			return v, ok
		})
	}
	env := &expr.Env{Metric: metric, Unit: e.units[metric], Scope: scope, Attributes: values, Begin: t}
	return e.foldWith(s, env, hashmap)
}

func (e *Evaluator) foldWith(s *service, env *expr.Env, hashmap func() Folded) Folded {
	if modules := e.modulesFor(env.Scope); !s.hasExpressions() && len(modules) > 0 && slices.Contains(modules, plan.Hashmap) {
		return hashmap()
	}
	return e.pipeline(s, env, hashmap)
}

func (s *service) hasExpressions() bool { return len(s.formulas) > 0 || s.skip != nil }

// tally is what the rules of one group come to before the quantity is known.
type tally struct {
	group     int
	flat      decimal.Decimal
	flatRule  *rule
	rate      decimal.Decimal
	rateRules []*rule
	best      *rule   // the field threshold with the highest level reached
	levels    []*rule // service thresholds, by rising level
}

func (s *service) fold(scope string, t time.Time, value func(*field) (string, bool)) Folded {
	var groups []*tally
	touch := func(group int) *tally {
		for _, b := range groups {
			if b.group == group {
				return b
			}
		}
		b := &tally{group: group, rate: one}
		groups = append(groups, b)
		return b
	}
	apply := func(mappings []*rule) {
		for _, m := range mappings {
			touch(m.group).mapping(m)
		}
	}
	apply(s.mappingsFor(scope, "", t))
	for _, th := range s.thresholdsFor(scope, t) {
		if th.Level.GreaterThan(minusOne) {
			b := touch(th.group)
			b.levels = append(b.levels, th)
		}
	}
	for _, f := range s.fields {
		v, ok := value(f)
		if !ok {
			continue
		}
		if v != "" {
			apply(f.mappingsFor(scope, v, t))
		}
		thresholds := f.thresholdsFor(scope, t)
		if len(thresholds) == 0 {
			continue
		}
		n, _, ok := expr.AttributeNumber(v)
		if !ok {
			return Folded{Reject: notANumber(f.name, v)}
		}
		for _, th := range thresholds {
			if n.LessThan(th.Level) || th.Level.LessThanOrEqual(minusOne) {
				continue
			}
			b := touch(th.group)
			if b.best == nil || th.Level.GreaterThan(b.best.Level) {
				b.best = th
			}
		}
	}
	return Folded{Steps: steps(groups)}
}

func notANumber(field, value string) string {
	return fmt.Sprintf("field %s: %s is no number but a threshold compares it", field, ratebatch.Quote(value))
}

func (b *tally) mapping(m *rule) {
	if m.Type == plan.Rate {
		b.rate = b.rate.Mul(m.Cost)
		b.rateRules = append(b.rateRules, m)
		return
	}
	if m.Cost.GreaterThan(b.flat) || b.flatRule == nil && !m.Cost.IsNegative() {
		b.flat, b.flatRule = m.Cost, m
	}
}

// steps adds the groups up between the levels at which a service threshold
// takes over.
func steps(groups []*tally) []Step {
	var levels []decimal.Decimal
	for _, b := range groups {
		b.levels = slices.DeleteFunc(b.levels, func(th *rule) bool {
			// Reached levels compete whatever they are about; of equal ones the service's wins.
			return b.best != nil && th.Level.LessThan(b.best.Level)
		})
		slices.SortFunc(b.levels, func(x, y *rule) int { return x.Level.Cmp(y.Level) })
		for _, th := range b.levels {
			levels = append(levels, th.Level)
		}
	}
	slices.SortFunc(levels, decimal.Decimal.Cmp)
	levels = slices.CompactFunc(levels, decimal.Decimal.Equal)

	out := make([]Step, 0, len(levels)+1)
	out = append(out, sum(groups, nil))
	for i := range levels {
		out = append(out, sum(groups, &levels[i]))
	}
	return out
}

// sum is the step that begins at a level; nil is below all levels.
func sum(groups []*tally, from *decimal.Decimal) Step {
	step := Step{From: from}
	var rules []*rule
	for _, b := range groups {
		a, rule := b.line(from)
		a.flat = a.flat.Mul(a.rate)
		step.A = step.A.Add(a.flat)
		step.B = step.B.Add(a.fee)
		rules = append(rules, rule...)
	}
	step.A, step.B = plan.Normal(step.A), plan.Normal(step.B)
	step.Unpriced = len(rules) == 0
	step.Rule = ruleNames(rules)
	return step
}

type line struct{ flat, rate, fee decimal.Decimal }

// line is one group's price, flat·rate·qty + fee, with the rules behind it.
func (b *tally) line(from *decimal.Decimal) (line, []*rule) {
	l := line{flat: b.flat, rate: b.rate}
	rules := slices.Clone(b.rateRules)
	if b.flatRule != nil {
		rules = append(rules, b.flatRule)
	}
	var reached *rule // service threshold
	if from != nil {
		for _, th := range b.levels {
			if th.Level.LessThanOrEqual(*from) {
				reached = th
			}
		}
	}
	switch {
	case reached != nil && reached.Type == plan.Rate:
		l.rate = l.rate.Mul(reached.Cost)
	case reached != nil:
		l.fee = reached.Cost
	case b.best != nil && b.best.Type == plan.Rate:
		l.rate = l.rate.Mul(b.best.Cost)
	case b.best != nil:
		l.flat = l.flat.Add(b.best.Cost)
	}
	if reached == nil {
		reached = b.best
	}
	if reached != nil {
		rules = append(rules, reached)
	}
	return l, rules
}
