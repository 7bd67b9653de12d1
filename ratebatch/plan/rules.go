package plan

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

func (d *reader) mappings(parent string, n ast.Node, withValue bool) []Mapping {
	var out []Mapping
	d.sequence(parent+", mappings", n, func(n ast.Node) {
		what := fmt.Sprintf("%s, mapping %d", parent, len(out)+1)
		before := len(d.list)
		m := Mapping{Type: Flat, at: at(n)}
		known := keys{
			"id":          d.id(what+", id", &m.ID),
			"cost":        d.number(what+", cost", &m.Cost, ParseCost),
			"type":        d.ruleType(what+", type", &m.Type),
			"group":       d.name(what+", group", &m.Group),
			"scope":       d.name(what+", scope", &m.Scope),
			"start":       d.moment(what+", start", &m.Start),
			"end":         d.moment(what+", end", &m.End),
			"description": d.text(what+", description", &m.Description),
		}
		if withValue {
			known["value"] = d.name(what+", value", &m.Value)
			d.mapping(what, n, known, "value", "cost")
		} else {
			known["value"] = func(n ast.Node) {
				d.mistake(at(n), "%s: a mapping of a service has no value: put it under a field", what)
			}
			d.mapping(what, n, known, "cost")
		}
		m.broken = len(d.list) > before
		out = append(out, m)
	})
	return out
}

func (d *reader) thresholds(parent string, n ast.Node) []Threshold {
	var out []Threshold
	d.sequence(parent+", thresholds", n, func(n ast.Node) {
		what := fmt.Sprintf("%s, threshold %d", parent, len(out)+1)
		before := len(d.list)
		t := Threshold{Type: Flat, at: at(n)}
		d.mapping(what, n, keys{
			"id":          d.id(what+", id", &t.ID),
			"level":       d.number(what+", level", &t.Level, ParseLevel),
			"cost":        d.number(what+", cost", &t.Cost, ParseCost),
			"type":        d.ruleType(what+", type", &t.Type),
			"group":       d.name(what+", group", &t.Group),
			"scope":       d.name(what+", scope", &t.Scope),
			"start":       d.moment(what+", start", &t.Start),
			"end":         d.moment(what+", end", &t.End),
			"description": d.text(what+", description", &t.Description),
		}, "level", "cost")
		t.broken = len(d.list) > before
		out = append(out, t)
	})
	return out
}

func (d *reader) expression(n ast.Node, p *Plan) {
	what := fmt.Sprintf("expression %d", len(p.Expressions)+1)
	e := Expression{at: at(n)}
	d.mapping(what, n, keys{
		"id":     d.id(what+", id", &e.ID),
		"metric": d.name(what+", metric", &e.Metric),
		"scope":  d.name(what+", scope", &e.Scope),
		"when": func(n ast.Node) {
			e.whenAt = textAt(n)
			d.name(what+", when", &e.When)(n)
		},
		"price": func(n ast.Node) {
			e.priceAt = textAt(n)
			d.name(what+", price", &e.Price)(n)
		},
		"start":       d.moment(what+", start", &e.Start),
		"end":         d.moment(what+", end", &e.End),
		"description": d.text(what+", description", &e.Description),
	}, "price")
	p.Expressions = append(p.Expressions, e)
}
