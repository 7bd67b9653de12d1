package hashmap

import (
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// Options are what a plan's expressions need to know beyond the plan.
type Options struct {
	// Units has the unit of each metric, for expressions that look at unit.
	// Such an expression does not fold for a metric whose unit is not here.
	Units map[string]string
}

// Compile makes an evaluator of a whole plan: hashmap rules, expression rules,
// skip conditions and module states.
func Compile(p *plan.Plan, o Options) (*Evaluator, error) {
	e := CompileRules(FromPlan(p))
	e.units = o.Units
	e.modulesFor = p.ModulesFor
	var mistakes []error
	compile := func(what, text string, parse func(string) (*expr.Expr, error)) *expr.Expr {
		if text == "" {
			return nil
		}
		x, err := parse(text)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", what, err))
			return nil
		}
		for _, t := range x.Boundaries() {
			e.boundary(t)
		}
		return x
	}
	var rules []*formula
	for i := range p.Expressions {
		in := &p.Expressions[i]
		f := &formula{
			Expression: in,
			when:       compile("expression "+in.ID+", when", in.When, expr.Condition),
			price:      compile("expression "+in.ID+", price", in.Price, expr.Number),
		}
		if f.price == nil {
			continue
		}
		e.boundary(in.Start)
		e.boundary(in.End)
		rules = append(rules, f)
		if in.Metric != "" {
			e.service(in.Metric)
		}
	}
	skip := compile("skip", p.Skip, expr.Condition)
	own := map[string]*expr.Expr{}
	for i := range p.Services {
		s := &p.Services[i]
		if s.Skip != "" {
			own[s.Name] = compile("service "+s.Name+", skip", s.Skip, expr.Condition)
		}
	}
	if err := e.addTiers(p); err != nil {
		mistakes = append(mistakes, err)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	e.sortBoundaries()

	// Metrics that the plan does not name share one entry, for the rules that
	// apply to every metric.
	for name, s := range e.all() {
		s.skip = skip
		if x, ok := own[name]; ok && s != e.rest {
			s.skip = x
		}
		for _, scope := range p.ModuleScopes() {
			s.scopes[scope] = true
		}
		for _, f := range rules {
			if f.Metric == "" || f.Metric == name && s != e.rest {
				s.formulas = append(s.formulas, f)
				s.lookAt(f.Scope, f.when, f.price)
			}
		}
		s.lookAt("", s.skip)
		slices.Sort(s.extra)
		s.extra = slices.Compact(s.extra)
	}
	return e, nil
}

// formula is a compiled expression rule.
type formula struct {
	*plan.Expression
	when, price *expr.Expr
}

// lookAt notes which attributes and scopes matter because of expressions.
func (s *service) lookAt(scope string, expressions ...*expr.Expr) {
	if scope != "" {
		s.scopes[scope] = true
	}
	for _, x := range expressions {
		if x == nil {
			continue
		}
		s.extra = append(s.extra, x.Attributes()...)
		for _, name := range x.Scopes() {
			s.scopes[name] = true
		}
		s.usesMetric = s.usesMetric || x.Uses("metric")
		s.usesUnit = s.usesUnit || x.Uses("unit")
	}
}

// stretch is a stretch of raw quantities with what is known of its price so
// far. The bounds are nil at the ends.
type stretch struct {
	expr.Stretch
	line     expr.Line
	rules    []string
	reject   string
	unpriced bool
	skip     bool
}

var errOffGrid = errors.New("a level has more than 18 decimals")

// pipeline runs the modules over all quantities. A PerPoint answer means that
// some expression has to be evaluated point by point.
func (e *Evaluator) pipeline(s *service, env *expr.Env, hashmap func() Folded) Folded {
	if s.usesUnit && env.Unit == "" {
		return Folded{PerPoint: "the unit of metric " + env.Metric + " is not known"}
	}
	todo := []stretch{{unpriced: true}}
	for _, module := range e.modulesFor(env.Scope) {
		var err error
		switch module {
		case plan.Hashmap:
			f := hashmap()
			if f.Reject != "" {
				return asSteps(rejectAll(todo, f.Reject))
			}
			todo, err = addSteps(todo, f.Steps)
		case plan.Expressions:
			todo, err = s.applyFormulas(todo, env)
		case plan.None:
		}
		if err != nil {
			return Folded{PerPoint: err.Error()}
		}
	}
	if s.skip != nil {
		var err error
		if todo, err = applySkip(todo, env, s.skip); err != nil {
			return Folded{PerPoint: err.Error()}
		}
	}
	return asSteps(todo)
}

// rejectAll rejects what no earlier module has rejected.
func rejectAll(in []stretch, reason string) []stretch {
	for i := range in {
		if in[i].reject == "" {
			in[i].reject = reason
		}
	}
	return in
}

// addSteps cuts stretches at the levels of steps and adds the steps' prices.
func addSteps(in []stretch, steps []Step) ([]stretch, error) {
	var out []stretch
	for _, x := range in {
		for i := range steps {
			s := &steps[i]
			var from, to *big.Int
			if s.From != nil {
				if from = s.IntFrom(); s.From.Exponent() < -PriceScale {
					return nil, errOffGrid
				}
			}
			if i+1 < len(steps) {
				to = steps[i+1].IntFrom()
			}
			y := x
			y.From, y.To = later(x.From, from), earlier(x.To, to)
			if y.From != nil && y.To != nil && y.From.Cmp(y.To) >= 0 {
				continue
			}
			y.line = expr.Line{A: x.line.A.Add(s.A), B: x.line.B.Add(s.B)}
			if s.Rule != "" {
				y.rules = append(slices.Clone(x.rules), s.Rule)
			}
			y.unpriced = x.unpriced && s.Unpriced
			out = append(out, y)
		}
	}
	return out, nil
}

func later(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) > 0 {
		return b
	}
	return a
}

func earlier(a, b *big.Int) *big.Int {
	if a == nil || b != nil && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// applyFormulas lets each expression rule in force set the price, in the order
// of the plan.
func (s *service) applyFormulas(in []stretch, env *expr.Env) ([]stretch, error) {
	for _, f := range s.formulas {
		if f.Scope != "" && f.Scope != env.Scope || !f.ValidAt(env.Begin) {
			continue
		}
		var out []stretch
		for _, x := range in {
			if x.reject != "" {
				out = append(out, x)
				continue
			}
			cut, err := f.apply(x, env)
			if err != nil {
				return nil, fmt.Errorf("expression %s: %w", f.ID, err)
			}
			out = append(out, cut...)
		}
		in = out
	}
	return in, nil
}

func (f *formula) apply(x stretch, env *expr.Env) ([]stretch, error) {
	whens := []expr.Piece{{Stretch: x.Stretch, Truth: true}}
	if f.when != nil {
		var err error
		if whens, err = f.when.Fold(env, x.line, x.Stretch); err != nil {
			return nil, err
		}
	}
	var out []stretch
	for _, w := range whens {
		y := x
		y.Stretch, y.reject = w.Stretch, f.rejected(w.Reject)
		if w.Reject != "" || !w.Truth {
			out = append(out, y)
			continue
		}
		prices, err := f.price.Fold(env, x.line, w.Stretch)
		if err != nil {
			return nil, err
		}
		for _, p := range prices {
			z := y
			z.Stretch, z.line, z.reject = p.Stretch, p.Line, f.rejected(p.Reject)
			z.rules = append(slices.Clone(x.rules), f.ID)
			z.unpriced = false
			out = append(out, z)
		}
	}
	return out, nil
}

func (f *formula) rejected(reason string) string {
	if reason == "" {
		return ""
	}
	return "expression " + f.ID + ": " + reason
}

func applySkip(in []stretch, env *expr.Env, skip *expr.Expr) ([]stretch, error) {
	var out []stretch
	for _, x := range in {
		if x.reject != "" {
			out = append(out, x)
			continue
		}
		pieces, err := skip.Fold(env, x.line, x.Stretch)
		if err != nil {
			return nil, fmt.Errorf("skip: %w", err)
		}
		for _, p := range pieces {
			y := x
			y.Stretch, y.skip = p.Stretch, p.Truth
			if p.Reject != "" {
				y.reject = "skip: " + p.Reject
			}
			out = append(out, y)
		}
	}
	return out, nil
}

func asSteps(in []stretch) Folded {
	var f Folded
	for _, x := range in {
		s := Step{A: plan.Normal(x.line.A), B: plan.Normal(x.line.B), Rule: join(x.rules), Unpriced: x.unpriced, Skip: x.skip, Reject: x.reject}
		if s.Skip || s.Reject != "" {
			s.A, s.B, s.Unpriced, s.Rule = decimal.Decimal{}, decimal.Decimal{}, false, ""
		}
		if x.From != nil {
			from := plan.Normal(decimal.NewFromBigInt(x.From, -PriceScale))
			s.From = &from
		}
		if n := len(f.Steps); n > 0 {
			last := &f.Steps[n-1]
			if last.A.Equal(s.A) && last.B.Equal(s.B) && last.Rule == s.Rule && last.Unpriced == s.Unpriced && last.Skip == s.Skip && last.Reject == s.Reject {
				continue
			}
		}
		f.Steps = append(f.Steps, s)
	}
	if len(f.Steps) == 1 && f.Steps[0].Reject != "" {
		return Folded{Reject: f.Steps[0].Reject}
	}
	return f
}

func join(rules []string) string {
	out := ""
	for i, r := range rules {
		if i > 0 {
			out += "+"
		}
		out += r
	}
	return out
}
