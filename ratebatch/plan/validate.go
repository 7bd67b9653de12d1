package plan

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
)

// maxPrice is the first price that does not fit the Decimal(38,18) of a rated
// line.
var maxPrice = decimal.New(1, 20)

// Validate finds what is wrong or doubtful in a plan that parses: duplicate
// and contradictory rules, metrics nobody collects, numbers that cannot work,
// rules that can never count. Metrics are the known metrics; nil leaves
// them unchecked. Findings come in the order of the file.
func (p *Plan) Validate(metrics Metrics) Findings {
	r := &report{file: p.file}
	p.checkNames(r)
	p.checkIDs(r)
	p.checkRules(r)
	p.checkOverlaps(r)
	p.checkFieldThresholds(r)
	p.checkPrices(r)
	p.checkModules(r)
	p.checkExpressions(r)
	p.checkTiers(r)
	p.checkCollected(r, metrics)
	return r.list.sorted()
}

// Metrics are the metrics that a plan may name, each with the names of the
// attributes by which its usage can be told apart.
type Metrics map[string][]string

// Collected finds the rules of a plan that no usage can ever meet, or would meet
// in the wrong way, because a metric is not collected or has not the attribute
// that its tiers are counted by. Findings come in the order of the file.
func (p *Plan) Collected(metrics Metrics) Findings {
	r := &report{file: p.file}
	p.checkCollected(r, metrics)
	return r.list.sorted()
}

func (p *Plan) checkCollected(r *report, metrics Metrics) {
	if metrics == nil {
		return
	}
	check := func(at Position, format, what, metric string) {
		if _, ok := metrics[metric]; metric != "" && !ok {
			r.mistake(at, format, what, metric, listSome(slices.Collect(maps.Keys(metrics))))
		}
	}
	for i := range p.Services {
		s := &p.Services[i]
		check(s.at, "%s %s: no such metric: known are %s", "service", s.Name)
		attributes, ok := metrics[s.Name]
		for j := range s.Tiers {
			// An attribute that no row has would be '' everywhere: one account for all.
			if t := &s.Tiers[j]; ok && !t.broken && t.Per != PerScope && t.Per != PerResource && !slices.Contains(attributes, t.Per) {
				r.mistake(t.at, "service %s, tiers %s: per: the metric has no attribute %s: known are %s, %s, %s", s.Name, t.ID, t.Per, PerScope, PerResource, listSome(attributes))
			}
		}
	}
	for i := range p.Expressions {
		check(p.Expressions[i].at, "%s: no such metric as %s: known are %s", "expression "+p.Expressions[i].ID, p.Expressions[i].Metric)
	}
	for i := range p.Discounts {
		if x := &p.Discounts[i]; !x.broken {
			check(x.at, "%s: no such metric as %s: known are %s", "discount "+x.ID, x.Metric)
		}
	}
}

func (p *Plan) checkNames(r *report) {
	if p.Currency == "" {
		r.warn(Position{1, 1}, "the plan names no currency")
	}
	services := map[string]bool{}
	for i := range p.Services {
		s := &p.Services[i]
		if s.Name == "" {
			continue // a mistake of form, already reported
		}
		if services[s.Name] {
			r.mistake(s.at, "service %s is listed twice: put its rules into one", s.Name)
		}
		services[s.Name] = true
		if len(s.Mappings)+len(s.Thresholds)+len(s.Fields)+len(s.Tiers) == 0 && s.Skip == "" {
			r.warn(s.at, "service %s has no rules: its usage stays unpriced", s.Name)
		}
		fields := map[string]bool{}
		for j := range s.Fields {
			f := &s.Fields[j]
			if f.Name == "" {
				continue
			}
			if fields[f.Name] {
				r.mistake(f.at, "service %s: field %s is listed twice: put its rules into one", s.Name, f.Name)
			}
			fields[f.Name] = true
			if len(f.Mappings)+len(f.Thresholds) == 0 {
				r.warn(f.at, "service %s: field %s has no rules", s.Name, f.Name)
			}
		}
	}
}

func listSome(names []string) string {
	const most = 12
	names = slices.Sorted(slices.Values(names))
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func (p *Plan) checkIDs(r *report) {
	first := map[string]Position{}
	for _, id := range p.ids() {
		if at, ok := first[*id.text]; ok {
			r.mistake(id.at, "id %s is already that of the rule at line %d", *id.text, at.Line)
			continue
		}
		first[*id.text] = id.at
	}
}

func (p *Plan) checkRules(r *report) {
	used := map[string]bool{}
	for rule := range p.sound() {
		checkValidity(r, rule.At, rule.String(), rule.Start, rule.End)
		used[rule.Group] = true
		if rule.Group != "" && rule.Group != DefaultGroup && !slices.Contains(p.Groups, rule.Group) {
			r.mistake(rule.At, "%s: group %q is not listed under groups", rule, rule.Group)
		}
		switch {
		case rule.Kind == ThresholdKind && rule.Level.LessThanOrEqual(decimal.New(-1, 0)):
			r.warn(rule.At, "%s: levels of -1 and below never count", rule)
		case rule.Kind == MappingKind && rule.Type == Flat && rule.Cost.IsNegative():
			r.warn(rule.At, "%s: a flat mapping below zero never counts", rule)
		}
	}
	for _, g := range p.Groups {
		if !used[g] {
			r.warn(Position{1, 1}, "group %q has no rules", g)
		}
	}
}

// sound yields the rules that could be read in full: what follows from a
// mistake that is reported already helps nobody.
func (p *Plan) sound() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for rule := range p.Rules() {
			if !rule.broken && !yield(rule) {
				return
			}
		}
	}
}

func checkValidity(r *report, at Position, what string, start, end time.Time) {
	if !end.IsZero() && !start.Before(end) {
		r.mistake(at, "%s: it ends at %s and starts at %s, so it never holds", what, end.Format(time.RFC3339), start.Format(time.RFC3339))
	}
}

// place is what CloudKitty's rating looks a rule up by: of two rules in one
// place and of one scope, the one listed last would take over silently.
type place struct {
	kind                                Kind
	service, field, value, level, group string
	scope                               string
}

func placeOf(rule *Rule) place {
	pl := place{kind: rule.Kind, service: rule.Service, field: rule.Field, value: rule.Value, group: rule.GroupName(), scope: rule.Scope}
	if rule.Kind == ThresholdKind {
		pl.level = rule.Level.String()
	}
	return pl
}

func (p *Plan) checkOverlaps(r *report) {
	places := map[place][]*Rule{}
	var order []place
	for rule := range p.sound() {
		pl := placeOf(rule)
		if places[pl] == nil {
			order = append(order, pl)
		}
		places[pl] = append(places[pl], rule)
	}
	for _, pl := range order {
		rules := places[pl]
		slices.SortStableFunc(rules, func(a, b *Rule) int { return a.Start.Compare(b.Start) })
		other := rules[0] // of those before, the one that holds longest
		for _, rule := range rules[1:] {
			if overlap(rule, other) {
				r.overlap(rule, other)
			}
			if !other.End.IsZero() && (rule.End.IsZero() || rule.End.After(other.End)) {
				other = rule
			}
		}
	}
}

func (r *report) overlap(rule, other *Rule) {
	if rule.At.Line < other.At.Line {
		rule, other = other, rule
	}
	if rule.Cost.Equal(other.Cost) && rule.Type == other.Type {
		r.mistake(rule.At, "%s: a duplicate of %s at line %d", rule, other.ID, other.At.Line)
		return
	}
	r.mistake(rule.At, "%s: contradicts %s at line %d (%s %s against %s %s) while both hold",
		rule, other.ID, other.At.Line, rule.Type, rule.Cost, other.Type, other.Cost)
}

func overlap(a, b *Rule) bool {
	return (a.End.IsZero() || b.Start.Before(a.End)) && (b.End.IsZero() || a.Start.Before(b.End))
}

// checkFieldThresholds finds fields that have thresholds although the plan
// itself names values of theirs that are no numbers: usage with such a value
// would be rejected.
func (p *Plan) checkFieldThresholds(r *report) {
	for i := range p.Services {
		for j := range p.Services[i].Fields {
			f := &p.Services[i].Fields[j]
			if len(f.Thresholds) == 0 {
				continue
			}
			for k := range f.Mappings {
				m := &f.Mappings[k]
				if m.Value == "" || numeric(m.Value) {
					continue
				}
				for l := range f.Thresholds {
					t := &f.Thresholds[l]
					if (m.Scope == t.Scope || m.Scope == "" || t.Scope == "") && overlap(&Rule{Start: m.Start, End: m.End}, &Rule{Start: t.Start, End: t.End}) {
						r.mistake(t.at, "service %s, field %s: threshold %s is on a field whose value can be %q (mapping %s), which is no number: such usage would be rejected",
							p.Services[i].Name, f.Name, t.ID, m.Value, m.ID)
						break
					}
				}
			}
		}
	}
}

func numeric(value string) bool {
	_, _, ok := expr.AttributeNumber(value)
	return ok
}

// checkPrices finds groups whose price is out of range for a single unit
// already, and groups that can only ever give zero.
func (p *Plan) checkPrices(r *report) {
	type key struct{ service, group string }
	type bounds struct {
		flat, rate decimal.Decimal
		priced     bool // has anything flat
		fee        bool // has a flat service threshold
		last       *Rule
	}
	groups := map[key]*bounds{}
	var order []key
	for rule := range p.sound() {
		k := key{rule.Service, rule.GroupName()}
		b := groups[k]
		if b == nil {
			b = &bounds{rate: decimal.New(1, 0)}
			groups[k] = b
			order = append(order, k)
		}
		b.last = rule
		switch {
		case rule.Type == Rate: // a factor is no price
		case rule.Kind == ThresholdKind && rule.Field == "":
			b.fee = true
		default:
			b.priced = true
			b.flat = decimal.Max(b.flat, rule.Cost.Abs())
		}
	}
	for rule := range p.sound() {
		b := groups[key{rule.Service, rule.GroupName()}]
		if rule.Type == Rate && b.flat.Mul(rule.Cost.Abs()).GreaterThanOrEqual(maxPrice) {
			r.mistake(rule.At, "%s: the price of one unit can reach %s, which is out of range (below 1e20)", rule, b.flat.Mul(rule.Cost.Abs()))
		}
	}
	for _, k := range order {
		if b := groups[k]; !b.priced && !b.fee {
			r.warn(b.last.At, "service %s: group %s has rates but nothing flat, so it always gives 0", k.service, k.group)
		}
	}
}

func (p *Plan) checkModules(r *report) {
	seen := map[string]bool{}
	for i := range p.Modules {
		m := &p.Modules[i]
		key := string(m.Module) + "\x00" + m.Scope
		if seen[key] {
			r.mistake(m.at, "module %s is listed twice for the same scope", m.Module)
		}
		seen[key] = true
	}
	if len(p.ModulesFor("")) == 0 {
		r.warn(Position{1, 1}, "no module is enabled: nothing will be priced")
	}
}

func (p *Plan) checkExpressions(r *report) {
	r.skip("skip", p.skipAt, p.Skip)
	for i := range p.Services {
		s := &p.Services[i]
		r.skip("service "+s.Name+", skip", s.skipAt, s.Skip)
	}
	for i := range p.Expressions {
		e := &p.Expressions[i]
		what := "expression " + e.ID
		checkValidity(r, e.at, what, e.Start, e.End)
		if e.When != "" {
			_, err := expr.Condition(e.When)
			r.expression(what+", when", e.whenAt, err)
		}
		if e.Price != "" {
			_, err := expr.Number(e.Price)
			r.expression(what+", price", e.priceAt, err)
		}
	}
}

func (r *report) skip(what string, at Position, text string) {
	if text == "" {
		return
	}
	_, err := expr.Condition(text)
	r.expression(what, at, err)
}

// expression reports a mistake in an expression at its place in the file,
// where the expression is on one line.
func (r *report) expression(what string, at Position, err error) {
	var mistake *expr.Error
	switch {
	case err == nil:
	case errors.As(err, &mistake):
		if mistake.Line == 1 && at.Line > 0 {
			at.Column += mistake.Column - 1
		}
		r.mistake(at, "%s: %s (character %d of line %d of the expression)", what, mistake.Text, mistake.Column, mistake.Line)
	default:
		r.mistake(at, "%s: %s", what, err)
	}
}

// PerPoint names the expressions of the plan that do not fold, and why: usage
// they apply to is priced line by line, outside SQL.
func (p *Plan) PerPoint() []string {
	var out []string
	add := func(what, text string, parse func(string) (*expr.Expr, error)) {
		if text == "" {
			return
		}
		if e, err := parse(text); err == nil {
			if ok, why := e.Folds(); !ok {
				out = append(out, what+": "+why)
			}
		}
	}
	add("skip", p.Skip, expr.Condition)
	for i := range p.Services {
		add("service "+p.Services[i].Name+", skip", p.Services[i].Skip, expr.Condition)
	}
	for i := range p.Expressions {
		e := &p.Expressions[i]
		add("expression "+e.ID+", when", e.When, expr.Condition)
		add("expression "+e.ID+", price", e.Price, expr.Number)
	}
	return out
}
