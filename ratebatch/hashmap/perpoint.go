package hashmap

import (
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func (p *Point) env() *expr.Env {
	return &expr.Env{
		Qty: p.Qty, Metric: p.Metric, Unit: p.Unit, Scope: p.Scope, Attributes: p.Attributes, Begin: p.Begin,
	}
}

// hashmapPart is what the hashmap rules say about one point.
type hashmapPart struct {
	price    decimal.Decimal
	rule     string
	unpriced bool
	reject   string
}

func (f *Folded) part(qty decimal.Decimal) hashmapPart {
	if f.Reject != "" {
		return hashmapPart{reject: f.Reject}
	}
	s := f.At(qty)
	return hashmapPart{price: s.A.Mul(qty).Add(s.B), rule: s.Rule, unpriced: s.Unpriced}
}

// evaluate runs the modules for one point and says what it does.
func (e *Evaluator) evaluate(s *service, p *Point, hashmap func(*Point) hashmapPart, say func(string, ...any)) Result {
	if !reasonable(p.Qty) || !reasonable(p.PriceIn) {
		say("rejected: %s", QtyOutOfRange)
		return Result{Bucket: Rejected, Reason: QtyOutOfRange}
	}
	price, unpriced := p.PriceIn, true
	var rules []string
	rejected := func(reason string) Result {
		say("rejected: %s", reason)
		return Result{Bucket: Rejected, Reason: reason}
	}
	if !price.IsZero() {
		say("price before rating: %s", price)
	}
	modules := e.modulesFor(p.Scope)
	if len(modules) == 0 {
		say("the plan has scope %s not priced: module none", p.Scope)
	}
	for _, module := range modules {
		switch module {
		case plan.Hashmap:
			h := hashmap(p)
			if h.reject != "" {
				return rejected(h.reject)
			}
			price = price.Add(h.price)
			unpriced = unpriced && h.unpriced
			if h.rule != "" {
				rules = append(rules, h.rule)
			}
		case plan.Expressions:
			env := p.env()
			for _, f := range s.formulas {
				if f.Scope != "" && f.Scope != p.Scope || !f.ValidAt(p.Begin) {
					continue
				}
				env.Price = price
				next, holds, err := f.point(env)
				if err != nil {
					return rejected(f.rejected(err.Error()))
				}
				if !holds {
					say("expression %s: not when %s", f.ID, f.When)
					continue
				}
				say("expression %s: price = %s = %s", f.ID, f.Price, next)
				price, unpriced = next, false
				rules = append(rules, f.ID)
			}
		case plan.None:
		}
	}
	if s.skip != nil {
		env := p.env()
		env.Price = price
		skip, err := s.skip.Condition(env)
		if err != nil {
			return rejected("skip: " + err.Error())
		}
		if skip {
			say("skipped: %s", s.skip)
			return Result{Bucket: Skipped}
		}
	}
	r := Result{Price: Round(price), Rule: join(rules), step: &Step{B: price}}
	if unpriced {
		r.Bucket = Unpriced
		say("no rule matched: price %s", r.Price)
	} else {
		say("sum %s, rounded half-even to %d decimals: %s", price, PriceScale, r.Price)
	}
	if outOfRange(r.Price) {
		r.Bucket, r.Reason, r.Price = Rejected, OutOfRange, decimal.Decimal{}
		say("rejected: %s", OutOfRange)
	}
	return r
}

// point gives the rule's price for one point, if its condition holds.
func (f *formula) point(env *expr.Env) (price decimal.Decimal, holds bool, err error) {
	if f.when != nil {
		holds, err = f.when.Condition(env)
		if err != nil || !holds {
			return price, false, err
		}
	}
	price, err = f.price.Number(env)
	return price, true, err
}
