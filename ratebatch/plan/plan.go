// Package plan holds rate plans: what each metric costs, in CloudKitty's words
// (services, fields, mappings, thresholds, groups), for whom and from when to
// when. A plan is a YAML file that people write and review; this package reads
// it with the position of every mistake, checks it, names it by a digest,
// compares two of them and makes one out of CloudKitty's own rules.
//
// Costs and levels are taken from the file's text. They never pass through a
// binary float, because 0.1 has none and someone is billed with the difference.
//
// The package performs no I/O and never reads the clock. What a plan's rules
// mean for a price is package hashmap's business.
package plan

import (
	"fmt"
	"iter"
	"time"

	"github.com/shopspring/decimal"
)

// Limits of numbers in a plan. The cost limits are CloudKitty's
// NUMERIC(40,28); a level is compared with quantities, which are
// Decimal(38,18) in our tables.
const (
	CostIntegerDigits  = 12
	CostScale          = 28
	LevelIntegerDigits = 20
	LevelScale         = 18
)

// DefaultGroup is the group of rules that name none. A group that is really
// called so is the same group, as in CloudKitty.
const DefaultGroup = "_DEFAULT_"

// Plan is one version of a rate plan. The order of services, fields and rules
// is that of the file and matters: among field thresholds of equal level the
// first field's wins.
type Plan struct {
	Version     int          `json:"version,omitempty"`
	Currency    string       `json:"currency,omitempty"`
	Description string       `json:"description,omitempty"`
	Groups      []string     `json:"groups,omitempty"`
	Modules     []Module     `json:"modules,omitempty"`
	Skip        string       `json:"skip,omitempty"`
	Services    []Service    `json:"services,omitempty"`
	Expressions []Expression `json:"expressions,omitempty"`
	Discounts   []Discount   `json:"discounts,omitempty"`
	Charges     []Charge     `json:"charges,omitempty"`

	file   string
	skipAt Position
}

// Position is a place in the plan's file, counted from 1; zero when the plan
// was not read from a file.
type Position struct {
	Line, Column int
}

// Service holds the rules of one metric.
type Service struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitempty"`
	Skip        string      `json:"skip,omitempty"`
	Mappings    []Mapping   `json:"mappings,omitempty"`
	Thresholds  []Threshold `json:"thresholds,omitempty"`
	Fields      []Field     `json:"fields,omitempty"`
	Tiers       []Tiers     `json:"tiers,omitempty"`

	at, skipAt Position
}

// Field holds the rules on one attribute of a metric's usage.
type Field struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitempty"`
	Mappings    []Mapping   `json:"mappings,omitempty"`
	Thresholds  []Threshold `json:"thresholds,omitempty"`

	at Position
}

// Type says how a rule's cost enters the price.
type Type string

const (
	Flat Type = "flat" // a price per unit; of several in a group the highest counts
	Rate Type = "rate" // a factor on the group's price
)

// Mapping prices a service, or a service's usage whose field has the value.
type Mapping struct {
	ID          string          `json:"id,omitempty"`
	Value       string          `json:"value,omitempty"` // of field mappings only
	Cost        decimal.Decimal `json:"cost"`
	Type        Type            `json:"type,omitempty"`
	Group       string          `json:"group,omitempty"`
	Scope       string          `json:"scope,omitempty"` // empty: every scope
	Start       time.Time       `json:"start,omitzero"`  // zero: since ever
	End         time.Time       `json:"end,omitzero"`    // exclusive; zero: open
	Description string          `json:"description,omitempty"`

	at     Position
	broken bool
}

// Threshold prices usage whose quantity, or whose field's value as a number,
// is at least Level.
type Threshold struct {
	ID          string          `json:"id,omitempty"`
	Level       decimal.Decimal `json:"level"`
	Cost        decimal.Decimal `json:"cost"`
	Type        Type            `json:"type,omitempty"`
	Group       string          `json:"group,omitempty"`
	Scope       string          `json:"scope,omitempty"`
	Start       time.Time       `json:"start,omitzero"`
	End         time.Time       `json:"end,omitzero"`
	Description string          `json:"description,omitempty"`

	at     Position
	broken bool
}

// Expression sets a price by a formula (package expr). It takes the place of
// CloudKitty's Python scripts.
type Expression struct {
	ID          string    `json:"id,omitempty"`
	Metric      string    `json:"metric,omitempty"` // empty: every metric
	Scope       string    `json:"scope,omitempty"`  // empty: every scope
	When        string    `json:"when,omitempty"`   // empty: always
	Price       string    `json:"price"`            // the new price
	Start       time.Time `json:"start,omitzero"`
	End         time.Time `json:"end,omitzero"`
	Description string    `json:"description,omitempty"`

	at, whenAt, priceAt Position
}

// ModuleName names one way of pricing.
type ModuleName string

const (
	Hashmap     ModuleName = "hashmap"     // services, mappings, thresholds
	Expressions ModuleName = "expressions" // expression rules
	None        ModuleName = "none"        // no pricing at all: usage stays, with price 0
)

// Module is the state of one rating module for every scope, or for one. An
// entry that names a scope takes the place of the general entry of its module
// there. The module states are part of the plan rather than a document of
// their own, so that one digest says by what a period was priced.
type Module struct {
	Module   ModuleName `json:"module"`
	Scope    string     `json:"scope,omitempty"`
	Enabled  *bool      `json:"enabled,omitempty"`  // nil: yes
	Priority int        `json:"priority,omitempty"` // higher runs earlier; equal: hashmap first

	at Position
}

// ModulesFor lists the modules that price the scope's usage, in the order in
// which they run. It is empty when the scope is not to be priced.
func (p *Plan) ModulesFor(scope string) []ModuleName {
	state := func(name ModuleName) (priority int, enabled, named bool) {
		enabled = name != None
		own := false
		for _, m := range p.Modules {
			if m.Module != name || m.Scope != "" && m.Scope != scope || own && m.Scope == "" {
				continue
			}
			own = m.Scope != ""
			named = true
			priority, enabled = m.Priority, m.Enabled == nil || *m.Enabled
		}
		return priority, enabled, named
	}
	if _, off, _ := state(None); off {
		return nil
	}
	hashmapPriority, hashmapOn, _ := state(Hashmap)
	exprPriority, exprOn, _ := state(Expressions)
	var out []ModuleName
	if hashmapOn {
		out = append(out, Hashmap)
	}
	if exprOn {
		if exprPriority > hashmapPriority {
			return append([]ModuleName{Expressions}, out...)
		}
		out = append(out, Expressions)
	}
	return out
}

// ModuleScopes lists the scopes that have module states of their own, in the
// order of the plan.
func (p *Plan) ModuleScopes() []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, m := range p.Modules {
		if !seen[m.Scope] {
			seen[m.Scope] = true
			out = append(out, m.Scope)
		}
	}
	return out
}

// Kind tells mappings from thresholds.
type Kind string

// A mapping prices a service or a field's value, a threshold a level of its quantity.
const (
	MappingKind   Kind = "mapping"
	ThresholdKind Kind = "threshold"
)

// Rule is a mapping or threshold together with what it hangs on, which is how
// evaluators and reports look at a plan.
type Rule struct {
	Kind        Kind
	ID          string
	Service     string
	Field       string // empty: a rule of the service itself
	Value       string // of field mappings
	Level       decimal.Decimal
	Cost        decimal.Decimal
	Type        Type
	Group       string
	Scope       string
	Start, End  time.Time
	Description string
	At          Position

	broken bool // it could not be read in full
}

// ValidAt says whether the rule holds for a period that begins at t.
func (r *Rule) ValidAt(t time.Time) bool { return Holds(r.Start, r.End, t) }

// ValidAt says whether the rule holds for a period that begins at t.
func (e *Expression) ValidAt(t time.Time) bool { return Holds(e.Start, e.End, t) }

// Holds says whether what begins to hold at start and ends at end, either of them
// zero where it is open, holds for a period that begins at t.
func Holds(start, end, t time.Time) bool {
	return !t.Before(start) && (end.IsZero() || end.After(t))
}

// GroupName is the group the rule counts in.
func (r *Rule) GroupName() string {
	if r.Group == "" {
		return DefaultGroup
	}
	return r.Group
}

// String names the rule in messages: the service, the field, and what tells
// it from its neighbours.
func (r *Rule) String() string { return r.describe(" " + r.ID) }

func (r *Rule) describe(id string) string {
	s := "service " + r.Service
	if r.Field != "" {
		s += ", field " + r.Field
	}
	switch {
	case r.Kind == ThresholdKind:
		s += fmt.Sprintf(", threshold%s at level %s", id, r.Level)
	case r.Field != "":
		s += fmt.Sprintf(", mapping%s of value %q", id, r.Value)
	default:
		s += ", mapping" + id
	}
	if r.Group != "" {
		s += ", group " + r.Group
	}
	if r.Scope != "" {
		s += ", scope " + r.Scope
	}
	return s
}

// Rules yields every mapping and threshold in the order of the file: of each
// service its mappings, its thresholds, then those of its fields.
func (p *Plan) Rules() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for i := range p.Services {
			s := &p.Services[i]
			if !yieldRules(s.Name, "", s.Mappings, s.Thresholds, yield) {
				return
			}
			for j := range s.Fields {
				f := &s.Fields[j]
				if !yieldRules(s.Name, f.Name, f.Mappings, f.Thresholds, yield) {
					return
				}
			}
		}
	}
}

func yieldRules(service, field string, mappings []Mapping, thresholds []Threshold, yield func(*Rule) bool) bool {
	for i := range mappings {
		m := &mappings[i]
		if !yield(&Rule{
			Kind: MappingKind, ID: m.ID, Service: service, Field: field, Value: m.Value, Cost: m.Cost, Type: m.Type,
			Group: m.Group, Scope: m.Scope, Start: m.Start, End: m.End, Description: m.Description, At: m.at, broken: m.broken,
		}) {
			return false
		}
	}
	for i := range thresholds {
		t := &thresholds[i]
		if !yield(&Rule{
			Kind: ThresholdKind, ID: t.ID, Service: service, Field: field, Level: t.Level, Cost: t.Cost, Type: t.Type,
			Group: t.Group, Scope: t.Scope, Start: t.Start, End: t.End, Description: t.Description, At: t.at, broken: t.broken,
		}) {
			return false
		}
	}
	return true
}

// assignIDs gives every rule without an id the next free one of its kind: m1,
// m2… for mappings, t1… for thresholds, g1… for tiers, e1… for expressions, d1…
// for discounts, c1… for charges, counted through the file.
func (p *Plan) assignIDs() {
	taken := map[string]bool{}
	for _, id := range p.ids() {
		taken[*id.text] = true
	}
	count := map[byte]int{}
	for _, id := range p.ids() {
		count[id.letter]++
		if *id.text != "" {
			continue
		}
		n := count[id.letter]
		for taken[fmt.Sprintf("%c%d", id.letter, n)] {
			n++
		}
		*id.text = fmt.Sprintf("%c%d", id.letter, n)
		taken[*id.text] = true
	}
}

type idRef struct {
	letter byte
	text   *string
	at     Position
}

func (p *Plan) ids() []idRef {
	var out []idRef
	collect := func(mappings []Mapping, thresholds []Threshold) {
		for i := range mappings {
			out = append(out, idRef{'m', &mappings[i].ID, mappings[i].at})
		}
		for i := range thresholds {
			out = append(out, idRef{'t', &thresholds[i].ID, thresholds[i].at})
		}
	}
	for i := range p.Services {
		s := &p.Services[i]
		collect(s.Mappings, s.Thresholds)
		for j := range s.Fields {
			collect(s.Fields[j].Mappings, s.Fields[j].Thresholds)
		}
		for j := range s.Tiers {
			out = append(out, idRef{'g', &s.Tiers[j].ID, s.Tiers[j].at})
		}
	}
	for i := range p.Expressions {
		out = append(out, idRef{'e', &p.Expressions[i].ID, p.Expressions[i].at})
	}
	for i := range p.Discounts {
		out = append(out, idRef{'d', &p.Discounts[i].ID, p.Discounts[i].at})
	}
	for i := range p.Charges {
		out = append(out, idRef{'c', &p.Charges[i].ID, p.Charges[i].at})
	}
	return out
}
