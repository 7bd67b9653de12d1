package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
)

// Tiers price a metric by how much of it was used in the billing month so far.
//
// A service has tiers or hashmap rules, never both: which of them a line was
// priced by must not depend on who reads the plan. Of several tiers of a service
// those of the scope take the place of the general ones. Expressions do not
// apply to a service with tiers (a plan with both is refused), skip conditions
// do: what is skipped is not counted.
type Tiers struct {
	ID          string           `json:"id,omitempty"`
	Kind        TierKind         `json:"kind,omitempty"`
	Per         string           `json:"per,omitempty"`  // PerScope, PerResource or an attribute's name: what has an account of its own
	Free        *decimal.Decimal `json:"free,omitempty"` // the allowance; of graduated tiers only
	Steps       []TierStep       `json:"steps"`
	Scope       string           `json:"scope,omitempty"` // empty: every scope
	Start       time.Time        `json:"start,omitzero"`
	End         time.Time        `json:"end,omitzero"`
	Description string           `json:"description,omitempty"`

	at     Position
	broken bool
}

// TierKind says what a tier's price applies to.
type TierKind string

const (
	Graduated TierKind = "graduated" // each unit costs what its own tier says
	Volume    TierKind = "volume"    // all of the month costs what the tier of the month's quantity says
)

// What an allowance and its tiers are counted for.
const (
	PerScope    = "scope"
	PerResource = "resource"
)

// TierStep is one tier: the price of a unit up to an accumulated quantity. An
// edge belongs to the tier below it.
type TierStep struct {
	UpTo *decimal.Decimal `json:"up_to,omitempty"` // nil: no end
	Cost decimal.Decimal  `json:"cost"`
}

// ValidAt says whether the tiers hold for a period that begins at t.
func (t *Tiers) ValidAt(at time.Time) bool { return Holds(t.Start, t.End, at) }

// All are the tiers with the allowance as the first of them, which costs
// nothing.
func (t *Tiers) All() []TierStep {
	if t.Free == nil {
		return t.Steps
	}
	return append([]TierStep{{UpTo: t.Free}}, t.Steps...)
}

// Charge is the least or the most that a scope pays for a month.
type Charge struct {
	ID          string          `json:"id,omitempty"`
	Kind        ChargeKind      `json:"kind"`
	Amount      decimal.Decimal `json:"amount"`
	Scope       string          `json:"scope,omitempty"` // empty: every scope; a scope's own takes the place of the general one
	Start       time.Time       `json:"start,omitzero"`
	End         time.Time       `json:"end,omitzero"`
	Description string          `json:"description,omitempty"`

	at     Position
	broken bool
}

// ChargeKind is minimum or cap.
type ChargeKind string

// The least and the most that a scope pays a month.
const (
	Minimum ChargeKind = "minimum"
	Cap     ChargeKind = "cap"
)

// Discount takes a percentage off what a scope's usage costs. Of those that
// apply to a metric of a scope one counts: that of scope and metric, else that
// of the scope, else that of the metric, else the general one.
type Discount struct {
	ID          string          `json:"id,omitempty"`
	Percent     decimal.Decimal `json:"percent"`
	Metric      string          `json:"metric,omitempty"` // empty: every metric
	Scope       string          `json:"scope,omitempty"`  // empty: every scope
	Start       time.Time       `json:"start,omitzero"`
	End         time.Time       `json:"end,omitzero"`
	Description string          `json:"description,omitempty"`

	at     Position
	broken bool
}

// Metrics of lines that come from other lines and not from usage. No service
// and no discount can name them.
const (
	AdjustmentMetric = "adjustment" // what crossing a volume tier changes about the month before
	DiscountMetric   = "discount"
	MinimumMetric    = string(Minimum)
	CapMetric        = string(Cap)
)

// DerivedMetrics are those names.
func DerivedMetrics() []string {
	return []string{AdjustmentMetric, DiscountMetric, MinimumMetric, CapMetric}
}

// HasTiers says whether any price depends on the month so far.
func (p *Plan) HasTiers() bool {
	return slices.ContainsFunc(p.Services, func(s Service) bool { return len(s.Tiers) > 0 })
}

func (d *reader) tiers(parent string, n ast.Node) []Tiers {
	var out []Tiers
	d.sequence(parent+", tiers", n, func(n ast.Node) {
		what := fmt.Sprintf("%s, tiers %d", parent, len(out)+1)
		before := len(d.list)
		t := Tiers{Kind: Graduated, Per: PerScope, at: at(n)}
		var free decimal.Decimal
		d.mapping(what, n, keys{
			"id": d.id(what+", id", &t.ID),
			"kind": func(n ast.Node) {
				if s, ok := n.(*ast.StringNode); ok && (s.Value == string(Graduated) || s.Value == string(Volume)) {
					t.Kind = TierKind(s.Value)
					return
				}
				d.mistake(at(n), "%s, kind: expected graduated or volume, found %s", what, kind(n))
			},
			"per": d.name(what+", per", &t.Per),
			"free": func(n ast.Node) {
				d.number(what+", free", &free, ParseLevel)(n)
				t.Free = &free
			},
			"steps":       func(n ast.Node) { t.Steps = d.tierSteps(what, n) },
			"scope":       d.name(what+", scope", &t.Scope),
			"start":       d.moment(what+", start", &t.Start),
			"end":         d.moment(what+", end", &t.End),
			"description": d.text(what+", description", &t.Description),
		}, "steps")
		t.broken = len(d.list) > before
		out = append(out, t)
	})
	return out
}

func (d *reader) tierSteps(parent string, n ast.Node) []TierStep {
	var out []TierStep
	d.sequence(parent+", steps", n, func(n ast.Node) {
		what := fmt.Sprintf("%s, step %d", parent, len(out)+1)
		var s TierStep
		var upTo decimal.Decimal
		d.mapping(what, n, keys{
			"up_to": func(n ast.Node) {
				d.number(what+", up_to", &upTo, ParseLevel)(n)
				s.UpTo = &upTo
			},
			"cost": d.number(what+", cost", &s.Cost, ParseCost),
		}, "cost")
		out = append(out, s)
	})
	return out
}

func (d *reader) charges(p *Plan) func(ast.Node) {
	return func(n ast.Node) {
		d.sequence("charges", n, func(n ast.Node) {
			what := fmt.Sprintf("charge %d", len(p.Charges)+1)
			before := len(d.list)
			c := Charge{at: at(n)}
			d.mapping(what, n, keys{
				"id": d.id(what+", id", &c.ID),
				"kind": func(n ast.Node) {
					if s, ok := n.(*ast.StringNode); ok && (s.Value == string(Minimum) || s.Value == string(Cap)) {
						c.Kind = ChargeKind(s.Value)
						return
					}
					d.mistake(at(n), "%s, kind: expected minimum or cap, found %s", what, kind(n))
				},
				"amount":      d.number(what+", amount", &c.Amount, parseAmount),
				"scope":       d.name(what+", scope", &c.Scope),
				"start":       d.moment(what+", start", &c.Start),
				"end":         d.moment(what+", end", &c.End),
				"description": d.text(what+", description", &c.Description),
			}, "kind", "amount")
			c.broken = len(d.list) > before
			p.Charges = append(p.Charges, c)
		})
	}
}

func (d *reader) discounts(p *Plan) func(ast.Node) {
	return func(n ast.Node) {
		d.sequence("discounts", n, func(n ast.Node) {
			what := fmt.Sprintf("discount %d", len(p.Discounts)+1)
			before := len(d.list)
			x := Discount{at: at(n)}
			d.mapping(what, n, keys{
				"id":          d.id(what+", id", &x.ID),
				"percent":     d.number(what+", percent", &x.Percent, parsePercent),
				"metric":      d.name(what+", metric", &x.Metric),
				"scope":       d.name(what+", scope", &x.Scope),
				"start":       d.moment(what+", start", &x.Start),
				"end":         d.moment(what+", end", &x.End),
				"description": d.text(what+", description", &x.Description),
			}, "percent")
			x.broken = len(d.list) > before
			p.Discounts = append(p.Discounts, x)
		})
	}
}

// parseAmount reads an amount of money; a line's price has 18 decimals.
func parseAmount(text string) (decimal.Decimal, error) {
	return ParseNumber(text, CostIntegerDigits, LevelScale)
}

// parsePercent reads a percentage; a hundredth of it is a unit price with 18
// decimals.
func parsePercent(text string) (decimal.Decimal, error) { return ParseNumber(text, 3, LevelScale-2) }

// checkTiers finds tiers that contradict themselves or other rules.
func (p *Plan) checkTiers(r *report) {
	for i := range p.Services {
		s := &p.Services[i]
		if slices.Contains(DerivedMetrics(), s.Name) {
			r.mistake(s.at, "service %s: lines of %s come from other lines, so it cannot have rules; rename the metric", s.Name, s.Name)
		}
		if len(s.Tiers) == 0 {
			continue
		}
		if len(s.Mappings)+len(s.Thresholds)+len(s.Fields) > 0 {
			r.mistake(s.at, "service %s has tiers and other rules: a metric is priced by one or the other", s.Name)
		}
		for j := range s.Tiers {
			s.Tiers[j].check(r, s.Name)
			for k := range s.Tiers[:j] {
				a, b := &s.Tiers[k], &s.Tiers[j]
				if a.Scope == b.Scope && overlap(&Rule{Start: a.Start, End: a.End}, &Rule{Start: b.Start, End: b.End}) {
					r.mistake(b.at, "service %s: tiers %s and %s at line %d are for the same scopes while both hold", s.Name, b.ID, a.ID, a.at.Line)
				}
			}
		}
		for j := range p.Expressions {
			if e := &p.Expressions[j]; e.Metric == s.Name || e.Metric == "" {
				r.mistake(e.at, "expression %s applies to %s, which has tiers: give the expression another metric", e.ID, s.Name)
			}
		}
		for _, skip := range []struct {
			text string
			at   Position
		}{{s.Skip, s.skipAt}, {p.Skip, p.skipAt}} {
			x, err := expr.Condition(skip.text)
			if skip.text == "" || err != nil {
				continue
			}
			if ok, why := x.Folds(); !ok {
				r.mistake(skip.at, "skip: %s; for service %s, which has tiers, it must not depend on that", why, s.Name)
			}
			if x.Uses("price") {
				r.mistake(skip.at, "skip looks at the price, but what service %s, which has tiers, costs is known only after it is known what is skipped", s.Name)
			}
		}
	}
	p.checkCharges(r)
	p.checkDiscounts(r)
}

func (t *Tiers) check(r *report, service string) {
	what := fmt.Sprintf("service %s, tiers %s", service, t.ID)
	if t.broken {
		return
	}
	checkValidity(r, t.at, what, t.Start, t.End)
	if len(t.Steps) == 0 {
		r.mistake(t.at, "%s: steps is empty", what)
		return
	}
	if t.Free != nil && t.Kind == Volume {
		r.mistake(t.at, "%s: volume tiers have no allowance, because all of the month costs what its last tier says; write a step of cost 0 if that is meant", what)
	}
	if t.Free != nil && !t.Free.IsPositive() {
		r.mistake(t.at, "%s: free is %s: leave it out or write more than 0", what, t.Free)
	}
	if len(t.Steps) > maxTiers {
		r.mistake(t.at, "%s has %d steps: at most %d", what, len(t.Steps), maxTiers)
	}
	last := decimal.Zero
	for i, s := range t.All() {
		if s.Cost.IsNegative() {
			r.mistake(t.at, "%s: a cost of %s is below 0", what, s.Cost)
		}
		switch {
		case s.UpTo == nil && i < len(t.All())-1:
			r.mistake(t.at, "%s: only the last step has no up_to", what)
			return
		case s.UpTo == nil:
			return
		case !s.UpTo.GreaterThan(last):
			r.mistake(t.at, "%s: the edges must rise from above 0: %s comes after %s", what, s.UpTo, last)
			return
		}
		last = *s.UpTo
	}
	r.mistake(t.at, "%s: the last step ends at %s, and what is beyond has no price: leave out its up_to", what, last)
}

// maxTiers bounds the tiers of a metric; part numbers of lines stay below
// those of lines that come from other lines.
const maxTiers = 1000

func (p *Plan) checkCharges(r *report) {
	for i := range p.Charges {
		c := &p.Charges[i]
		if c.broken {
			continue
		}
		what := fmt.Sprintf("%s %s", c.Kind, c.ID)
		checkValidity(r, c.at, what, c.Start, c.End)
		if c.Amount.IsNegative() {
			r.mistake(c.at, "%s: %s is below 0", what, c.Amount)
		}
		for j := range p.Charges {
			o := &p.Charges[j]
			if o.broken || !overlap(&Rule{Start: c.Start, End: c.End}, &Rule{Start: o.Start, End: o.End}) {
				continue
			}
			if j < i && c.Kind == o.Kind && c.Scope == o.Scope {
				r.mistake(c.at, "%s: %s at line %d is for the same scopes while both hold", what, o.ID, o.at.Line)
			}
			if c.Kind == Minimum && o.Kind == Cap && (c.Scope == o.Scope || c.Scope == "" || o.Scope == "") && c.Amount.GreaterThan(o.Amount) {
				r.mistake(c.at, "%s: the minimum %s is above the cap %s at line %d", what, c.Amount, o.Amount, o.at.Line)
			}
		}
	}
}

func (p *Plan) checkDiscounts(r *report) {
	for i := range p.Discounts {
		x := &p.Discounts[i]
		if x.broken {
			continue
		}
		what := "discount " + x.ID
		checkValidity(r, x.at, what, x.Start, x.End)
		if !x.Percent.IsPositive() || x.Percent.GreaterThan(decimal.New(100, 0)) {
			r.mistake(x.at, "%s: %s %%: expected more than 0 and at most 100", what, x.Percent)
		}
		for j := range p.Discounts[:i] {
			o := &p.Discounts[j]
			if !o.broken && x.Metric == o.Metric && x.Scope == o.Scope && overlap(&Rule{Start: x.Start, End: x.End}, &Rule{Start: o.Start, End: o.End}) {
				r.mistake(x.at, "%s: %s at line %d is for the same scopes and metrics while both hold", what, o.ID, o.at.Line)
			}
		}
	}
}
