// Package hashmap is the one place that knows what a rate plan's rules mean
// for a price. They are CloudKitty's hashmap rules, evaluated exactly: of the
// flat costs of one group the highest counts, rates of one group multiply,
// groups add up, of the thresholds of one group the one with the highest level
// reached counts, and a scope's own rules replace the general ones in the same
// place. CloudKitty rounds to 28 digits after every operation; here nothing is
// rounded but the price, once, half-even to 18 decimals.
//
// For a fixed metric, scope, attribute values and validity window a price is a
// step function of the quantity: A·qty + B between threshold levels. Fold
// finds these steps, so that SQL (or a loop over points) is left with one
// multiplication; Price is Fold with a cache; Explain follows the rules
// literally, one after the other, and says what each did. Tests hold the three
// against one another.
//
// A point is priced, unpriced because no rule matched, skipped because the
// plan says so, or rejected with a reason. It never stops its neighbours:
// CloudKitty gives up a scope's whole period over one bad value.
//
// The package performs no I/O and never reads the clock.
package hashmap

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// PriceScale is the number of decimals a price is rounded to.
const PriceScale = 18

// Rules are the hashmap rules in the order in which they apply.
type Rules struct {
	Services []string
	Fields   []Field
	Rules    []plan.Rule
}

// Field is an attribute that rules of a service look at. Among field
// thresholds of equal level the field listed first wins.
type Field struct {
	Service, Name string
}

// FromPlan takes the hashmap rules out of a plan.
func FromPlan(p *plan.Plan) Rules {
	var r Rules
	for i := range p.Services {
		s := &p.Services[i]
		r.Services = append(r.Services, s.Name)
		for j := range s.Fields {
			r.Fields = append(r.Fields, Field{s.Name, s.Fields[j].Name})
		}
	}
	for rule := range p.Rules() {
		r.Rules = append(r.Rules, *rule)
	}
	return r
}

// Evaluator prices points by one plan. It is safe for concurrent use.
type Evaluator struct {
	services   map[string]*service
	rest       *service // of metrics that the plan does not name
	modulesFor func(scope string) []plan.ModuleName
	units      map[string]string
	boundaries []time.Time
	seconds    []int64 // the boundaries, for the search
}

// CompileRules makes an evaluator of hashmap rules alone.
func CompileRules(r Rules) *Evaluator {
	e := &Evaluator{
		services:   map[string]*service{},
		rest:       newService(""),
		modulesFor: func(string) []plan.ModuleName { return []plan.ModuleName{plan.Hashmap} },
	}
	for _, name := range r.Services {
		e.service(name)
	}
	for _, f := range r.Fields {
		e.service(f.Service).field(f.Name)
	}
	groups := map[string]int{}
	for i := range r.Rules {
		in := &r.Rules[i]
		name := in.GroupName()
		if _, ok := groups[name]; !ok {
			groups[name] = len(groups)
		}
		out := &rule{Rule: in, index: i, group: groups[name]}
		if in.Kind == plan.ThresholdKind {
			out.index += len(r.Rules)
		}
		s := e.service(in.Service)
		under := &s.parent
		if in.Field != "" {
			under = &s.field(in.Field).parent
		}
		under.add(out)
		if in.Scope != "" {
			s.scopes[in.Scope] = true
		}
		e.boundary(in.Start)
		e.boundary(in.End)
	}
	e.sortBoundaries()
	return e
}

func (e *Evaluator) service(name string) *service {
	s := e.services[name]
	if s == nil {
		s = newService(name)
		e.services[name] = s
	}
	return s
}

func newService(name string) *service {
	s := &service{name: name, scopes: map[string]bool{}, cache: map[string]*prepared{}}
	s.init()
	return s
}

// lookup gives the rules of a metric, whether the plan names it or not.
func (e *Evaluator) lookup(metric string) *service {
	if s := e.services[metric]; s != nil {
		return s
	}
	return e.rest
}

func (e *Evaluator) all() iter.Seq2[string, *service] {
	return func(yield func(string, *service) bool) {
		for name, s := range e.services {
			if !yield(name, s) {
				return
			}
		}
		yield("", e.rest)
	}
}

func (e *Evaluator) boundary(t time.Time) {
	if !t.IsZero() {
		e.boundaries = append(e.boundaries, t.UTC())
	}
}

func (e *Evaluator) sortBoundaries() {
	slices.SortFunc(e.boundaries, time.Time.Compare)
	e.boundaries = slices.CompactFunc(e.boundaries, time.Time.Equal)
	e.seconds = e.seconds[:0]
	for _, b := range e.boundaries {
		e.seconds = append(e.seconds, b.Unix())
	}
}

// Fields lists the attributes that matter for the metric's price, sorted. Two
// usage rows of one scope and window that agree in them have the same steps.
func (e *Evaluator) Fields(metric string) []string {
	s := e.lookup(metric)
	names := slices.Clone(s.extra)
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ScopesWithRules lists the scopes that have rules of their own for the
// metric, sorted. All others fold alike.
func (e *Evaluator) ScopesWithRules(metric string) []string {
	s := e.lookup(metric)
	out := make([]string, 0, len(s.scopes))
	for scope := range s.scopes {
		out = append(out, scope)
	}
	slices.Sort(out)
	return out
}

// Boundaries lists the instants at which the rules in force change, sorted:
// between two of them nothing depends on the time.
func (e *Evaluator) Boundaries() []time.Time { return slices.Clone(e.boundaries) }

// window numbers the stretch between boundaries that t lies in.
func (e *Evaluator) window(t time.Time) int {
	if len(e.seconds) == 0 {
		return 0
	}
	at := t.Unix()
	if t.Nanosecond() != 0 { // boundaries need not be whole seconds in recorded cases
		n, found := slices.BinarySearchFunc(e.boundaries, t, time.Time.Compare)
		if found {
			n++
		}
		return n
	}
	n, found := slices.BinarySearch(e.seconds, at)
	if found {
		n++
	}
	return n
}

// service holds the compiled rules of one metric.
type service struct {
	parent
	name   string
	fields []*field
	scopes map[string]bool // that have rules of their own

	// What expressions add; see Compile.
	formulas   []*formula
	skip       *expr.Expr
	extra      []string // attributes they look at
	tiers      []tiers
	usesMetric bool
	usesUnit   bool

	mu    sync.RWMutex
	cache map[string]*prepared // see Price
}

func (s *service) field(name string) *field {
	for _, f := range s.fields {
		if f.name == name {
			return f
		}
	}
	f := &field{name: name}
	f.init()
	s.fields = append(s.fields, f)
	return f
}

type field struct {
	parent
	name string
}

// parent is what rules hang on: a service or a field.
type parent struct {
	mappings   map[mappingKey][]*rule
	thresholds map[string][]*rule // by scope
	values     map[string]int     // values that mappings name, numbered from 1
}

type mappingKey struct{ scope, value string }

type rule struct {
	*plan.Rule
	index int // mappings, then thresholds, each in the order of the plan
	group int
}

func (p *parent) init() {
	p.mappings = map[mappingKey][]*rule{}
	p.thresholds = map[string][]*rule{}
	p.values = map[string]int{}
}

func (p *parent) add(r *rule) {
	if r.Kind == plan.ThresholdKind {
		p.thresholds[r.Scope] = append(p.thresholds[r.Scope], r)
		return
	}
	key := mappingKey{r.Scope, r.Value}
	p.mappings[key] = append(p.mappings[key], r)
	if _, ok := p.values[r.Value]; !ok {
		p.values[r.Value] = len(p.values) + 1
	}
}

// mappingsFor gives the mappings of a value that are in force for the scope,
// one a group. A later rule takes the place of an earlier one, a rule of the
// scope that of a general one, whatever its type.
func (p *parent) mappingsFor(scope, value string, at time.Time) []*rule {
	out := pick(nil, p.mappings[mappingKey{"", value}], at, sameGroup)
	if scope != "" {
		out = pick(out, p.mappings[mappingKey{scope, value}], at, sameGroup)
	}
	return out
}

// thresholdsFor gives the thresholds in force for the scope, one a group and
// level.
func (p *parent) thresholdsFor(scope string, at time.Time) []*rule {
	out := pick(nil, p.thresholds[""], at, sameLevel)
	if scope != "" {
		out = pick(out, p.thresholds[scope], at, sameLevel)
	}
	return out
}

func sameGroup(a, b *rule) bool { return a.group == b.group }
func sameLevel(a, b *rule) bool { return a.group == b.group && a.Level.Equal(b.Level) }

func pick(out, from []*rule, at time.Time, same func(a, b *rule) bool) []*rule {
	for _, r := range from {
		if !r.ValidAt(at) {
			continue
		}
		if i := slices.IndexFunc(out, func(o *rule) bool { return same(o, r) }); i >= 0 {
			out[i] = r
		} else {
			out = append(out, r)
		}
	}
	return out
}

// ruleNames joins the ids of rules: mappings, then thresholds, each in the
// order of the plan.
func ruleNames(rules []*rule) string {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.index, b.index) })
	rules = slices.CompactFunc(rules, func(a, b *rule) bool { return a == b })
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.ID
	}
	return strings.Join(ids, "+")
}

var (
	minusOne = decimal.New(-1, 0)
	one      = decimal.New(1, 0)
)
