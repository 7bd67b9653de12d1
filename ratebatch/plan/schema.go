package plan

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/shopspring/decimal"
)

// Schema is the JSON schema of plan files, for editors that complete and check
// them while they are written. Parse is stricter: it also knows limits that
// span several keys.
func Schema() ([]byte, error) {
	number := &jsonschema.Schema{
		OneOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$`},
			{Type: "number"},
		},
		Description: "A decimal number, taken digit by digit from the text.",
	}
	moment := &jsonschema.Schema{
		Type:        "string",
		Pattern:     `^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})?)?$`,
		Description: "A time such as 2026-03-01T06:00:00Z; without an offset UTC, a bare date is its midnight.",
	}
	r := &jsonschema.Reflector{
		DoNotReference: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[decimal.Decimal]():
				c := *number // Reflect writes the field's comment into it
				return &c
			case reflect.TypeFor[time.Time]():
				c := *moment
				return &c
			case reflect.TypeFor[TierKind]():
				return &jsonschema.Schema{Type: "string", Enum: []any{Graduated, Volume}, Default: Graduated}
			case reflect.TypeFor[ChargeKind]():
				return &jsonschema.Schema{Type: "string", Enum: []any{Minimum, Cap}}
			case reflect.TypeFor[Type]():
				return &jsonschema.Schema{Type: "string", Enum: []any{Flat, Rate}, Default: Flat}
			case reflect.TypeFor[ModuleName]():
				return &jsonschema.Schema{Type: "string", Enum: []any{Hashmap, Expressions, None}}
			}
			return nil
		},
		LookupComment: func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
	}
	s := r.Reflect(&Plan{})
	s.ID = "https://github.com/ratebatch/ratebatch/ratebatch/plan"
	s.Title = "Ratebatch rate plan"
	// A mapping of a field needs a value, one of a service must have none.
	service := property(s, "services").Items
	property(service, "mappings").Items.Properties.Delete("value")
	mapping := property(property(service, "fields").Items, "mappings").Items
	mapping.Required = append(mapping.Required, "value")
	value := property(mapping, "value")
	value.Type, value.AnyOf = "", []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}
	property(s, "version").Enum = []any{1}
	property(s, "currency").Pattern = currencyPattern.String()
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the plan's schema: %w", err)
	}
	return append(out, '\n'), nil
}

func property(s *jsonschema.Schema, name string) *jsonschema.Schema {
	p, ok := s.Properties.Get(name)
	if !ok {
		panic("plan: the schema has no " + name)
	}
	return p
}

// comments are what editors show beside a key.
var comments = map[string]string{
	"Plan.Version":           "Version of the file's form: 1.",
	"Plan.Currency":          "ISO 4217 code of all costs, such as EUR.",
	"Plan.Description":       "What this plan is for.",
	"Plan.Groups":            "Names of groups. Of the flat costs of one group the highest counts, its rates multiply, groups add up.",
	"Plan.Modules":           "Which modules price usage, for all scopes or for one. Left out: hashmap, then expressions.",
	"Plan.Skip":              "A condition; usage it holds for is kept but not priced (bucket skipped).",
	"Plan.Services":          "The rules, by metric.",
	"Plan.Expressions":       "Rules that set the price by a formula, applied in this order.",
	"Module.Module":          "hashmap: services; expressions: expressions; none: no pricing.",
	"Module.Scope":           "The scope this holds for; left out: all.",
	"Module.Enabled":         "Left out: true.",
	"Module.Priority":        "The module of higher priority runs first.",
	"Service.Name":           "The metric's name.",
	"Service.Skip":           "Takes the place of the plan's skip for this metric.",
	"Service.Mappings":       "Costs of all usage of the metric.",
	"Service.Thresholds":     "Costs of usage from a quantity on; a flat one is a fee, not multiplied by the quantity.",
	"Service.Fields":         "Costs by an attribute of the usage.",
	"Field.Name":             "The attribute's name, such as flavor_name.",
	"Field.Mappings":         "Costs by the attribute's value.",
	"Field.Thresholds":       "Costs by the attribute's value as a number, from a level on.",
	"Mapping.ID":             "Names the rule on rated lines. Left out: m1, m2, … through the file.",
	"Mapping.Value":          "The value, matched exactly: case, blanks and 1 against 1.0 matter.",
	"Mapping.Cost":           "Up to 12 digits before and 28 after the point.",
	"Mapping.Type":           "flat: price of a unit, the highest of a group counts; rate: factor on the group.",
	"Mapping.Group":          "One of groups; left out: the default group.",
	"Mapping.Scope":          "The scope (project) the rule is for; it takes the place of the general rule.",
	"Mapping.Start":          "Holds for periods that begin at or after this time.",
	"Mapping.End":            "Holds for periods that begin before this time.",
	"Threshold.ID":           "Names the rule on rated lines. Left out: t1, t2, … through the file.",
	"Threshold.Level":        "The least quantity or value, inclusive. Of one group's thresholds the highest level counts.",
	"Threshold.Cost":         "Up to 12 digits before and 28 after the point.",
	"Threshold.Type":         "flat: added; rate: factor.",
	"Threshold.Group":        "One of groups; left out: the default group.",
	"Threshold.Scope":        "The scope (project) the rule is for.",
	"Threshold.Start":        "Holds for periods that begin at or after this time.",
	"Threshold.End":          "Holds for periods that begin before this time.",
	"Expression.ID":          "Names the rule on rated lines. Left out: e1, e2, … through the file.",
	"Expression.Metric":      "The metric it is for; left out: every one.",
	"Expression.Scope":       "The scope it is for; left out: every one.",
	"Expression.When":        "A condition; left out: always.",
	"Expression.Price":       "The new price, such as price * 0.9.",
	"Expression.Start":       "Holds for periods that begin at or after this time.",
	"Expression.End":         "Holds for periods that begin before this time.",
	"Expression.Description": "For people.",
	"Plan.Discounts":         "Percentages off, a line of their own for each period.",
	"Plan.Charges":           "The least and the most that a scope pays for a month.",
	"Service.Tiers":          "Prices by how much was used in the month so far. A service has tiers or other rules, not both.",
	"Tiers.ID":               "Names the tiers on rated lines, followed by the number of the tier. Left out: g1, g2, … through the file.",
	"Tiers.Kind":             "graduated: each unit costs what its own tier says; volume: all of the month costs what the tier of the month's quantity says.",
	"Tiers.Per":              "What is counted on its own: scope, resource, or an attribute's name. Left out: scope.",
	"Tiers.Free":             "The allowance: so much of a month costs nothing. Of graduated tiers only.",
	"Tiers.Steps":            "The tiers, by rising edge; the last one has no up_to.",
	"Tiers.Scope":            "The scope (project) they are for; they take the place of the general ones.",
	"Tiers.Start":            "Holds for periods that begin at or after this time.",
	"Tiers.End":              "Holds for periods that begin before this time.",
	"TierStep.UpTo":          "The accumulated quantity that the tier ends at, inclusive.",
	"TierStep.Cost":          "Price of a unit; up to 12 digits before and 28 after the point.",
	"Charge.ID":              "Names the rule on rated lines. Left out: c1, c2, … through the file.",
	"Charge.Kind":            "minimum: the least, cap: the most that a scope pays for a month, after discounts.",
	"Charge.Amount":          "Money of the plan's currency.",
	"Charge.Scope":           "The scope (project) it is for; it takes the place of the general one.",
	"Charge.Start":           "Holds for months whose last period begins at or after this time.",
	"Charge.End":             "Holds for months whose last period begins before this time.",
	"Discount.ID":            "Names the rule on rated lines. Left out: d1, d2, … through the file.",
	"Discount.Percent":       "More than 0, at most 100.",
	"Discount.Metric":        "The metric it is for; left out: every one.",
	"Discount.Scope":         "The scope (project) it is for; left out: every one. The discount that names most counts, the scope before the metric.",
	"Discount.Start":         "Holds for periods that begin at or after this time.",
	"Discount.End":           "Holds for periods that begin before this time.",
}
