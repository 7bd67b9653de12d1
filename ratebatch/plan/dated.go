package plan

import "time"

// DatedAfter names all rules, tiers, expressions, discounts and charges that begin
// or end to hold after a moment, each with its price and dates, in the order of the
// file: what usage from that moment on costs under the plan is not, or not always,
// what the same usage will cost under it later.
func (p *Plan) DatedAfter(t time.Time) []string {
	var out []string
	for _, e := range entries(p) {
		if e.start.After(t) || e.end.After(t) {
			out = append(out, e.line())
		}
	}
	return out
}
