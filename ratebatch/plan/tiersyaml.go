package plan

import (
	"fmt"
	"strings"
)

// tiers writes the tiers of a service.
func (w *writer) tiers(list []Tiers) {
	if len(list) > 0 {
		w.line(2, "tiers:")
	}
	for i := range list {
		t := &list[i]
		w.line(3, "- id: %s", scalar(t.ID))
		w.text(4, "kind", string(t.Kind))
		w.text(4, "per", t.Per)
		if t.Free != nil {
			w.line(4, "free: %q", t.Free)
		}
		w.text(4, "scope", t.Scope)
		w.text(4, "start", FormatTime(t.Start))
		w.text(4, "end", FormatTime(t.End))
		w.text(4, "description", t.Description)
		w.line(4, "steps:")
		for _, s := range t.Steps {
			if s.UpTo == nil {
				w.line(5, "- {cost: %q}", s.Cost)
			} else {
				w.line(5, "- {up_to: %q, cost: %q}", s.UpTo, s.Cost)
			}
		}
	}
}

// charges writes discounts and charges.
func (w *writer) charges(p *Plan) {
	if len(p.Discounts) > 0 {
		w.line(0, "discounts:")
	}
	for i := range p.Discounts {
		x := &p.Discounts[i]
		metric := ""
		if x.Metric != "" {
			metric = ", metric: " + scalar(x.Metric)
		}
		w.line(1, "- {percent: %q%s%s}", x.Percent, metric, tail(x.ID, Flat, "", x.Scope, x.Start, x.End, x.Description))
	}
	if len(p.Charges) > 0 {
		w.line(0, "charges:")
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		w.line(1, "- {kind: %s, amount: %q%s}", c.Kind, c.Amount, tail(c.ID, Flat, "", c.Scope, c.Start, c.End, c.Description))
	}
}

// tierEntries are the lines of a plan's comparison for tiers, discounts and
// charges.
func tierEntries(p *Plan) []entry {
	var out []entry
	of := func(scope string) string {
		if scope == "" {
			return ""
		}
		return ", scope " + scope
	}
	for i := range p.Services {
		for j := range p.Services[i].Tiers {
			t := &p.Services[i].Tiers[j]
			parts := make([]string, 0, len(t.Steps)+1)
			for _, s := range t.All() {
				if s.UpTo == nil {
					parts = append(parts, "then "+s.Cost.String())
				} else {
					parts = append(parts, fmt.Sprintf("up to %s %s", s.UpTo, s.Cost))
				}
			}
			out = append(out, during("service "+p.Services[i].Name+", tiers"+of(t.Scope), fmt.Sprintf("%s per %s: %s", t.Kind, t.Per, strings.Join(parts, ", ")), t.Start, t.End))
		}
	}
	for i := range p.Discounts {
		x := &p.Discounts[i]
		key := "discount"
		if x.Metric != "" {
			key += ", metric " + x.Metric
		}
		out = append(out, during(key+of(x.Scope), x.Percent.String()+" %", x.Start, x.End))
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		out = append(out, during(string(c.Kind)+of(c.Scope), c.Amount.String(), c.Start, c.End))
	}
	return out
}
