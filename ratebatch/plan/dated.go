package plan

import "time"

// DatedAfter names all rules, tiers, expressions, discounts and charges that begin
// or end to hold after a moment, each with its dates, in the order of the file:
// what usage from that moment on costs under the plan is not, or not always, what
// the same usage will cost under it later.
func (p *Plan) DatedAfter(t time.Time) []string {
	var out []string
	add := func(name string, start, end time.Time) {
		if start.After(t) || end.After(t) {
			out = append(out, name+validity(FormatTime(start), FormatTime(end)))
		}
	}
	for r := range p.Rules() {
		add(r.String(), r.Start, r.End)
	}
	for _, s := range p.Services {
		for _, x := range s.Tiers {
			add("service "+s.Name+", tiers "+x.ID, x.Start, x.End)
		}
	}
	for _, e := range p.Expressions {
		add("expression "+e.ID, e.Start, e.End)
	}
	for _, d := range p.Discounts {
		add("discount "+d.ID, d.Start, d.End)
	}
	for _, c := range p.Charges {
		add(string(c.Kind)+" "+c.ID, c.Start, c.End)
	}
	return out
}
