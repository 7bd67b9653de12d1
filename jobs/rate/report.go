package rate

import (
	"maps"
	"slices"
	"strings"
)

// RuleReport makes unpriced usage visible: which metrics had usage that no rule
// matched, which rules matched nothing in the run, and which always gave 0.
type RuleReport struct {
	UnpricedMetrics []string `json:"unpriced_metrics"`
	Unmatched       []string `json:"unmatched_rules"` // as metric:rule
	AlwaysZero      []string `json:"always_zero"`     // as metric:rule, or metric:rule+rule where they act together

	all, used, zero, priced, unpriced map[string]bool
}

// ruleReport is what one attempt adds to a RuleReport.
type ruleReport struct{ all, used, zero, priced, unpriced []string }

// report says what the attempt's prices came from.
func (p *pricer) report() ruleReport {
	var out ruleReport
	inGo := map[string]bool{}
	for _, mp := range p.metrics {
		for _, use := range mp.expression.Uses {
			name := mp.metric.Name + ":" + use.Rule
			switch {
			case use.InGo:
				inGo[mp.metric.Name] = true
			case use.Bucket == "unpriced":
				out.unpriced = append(out.unpriced, mp.metric.Name)
			case use.Bucket != "":
			case use.Zero:
				out.zero = append(out.zero, name)
			default:
				out.priced = append(out.priced, name)
			}
			for id := range strings.SplitSeq(use.Rule, "+") {
				if use.Bucket == "" && id != "" {
					out.used = append(out.used, mp.metric.Name+":"+id)
				}
			}
		}
	}
	for _, parsed := range p.plans {
		for rule := range parsed.Rules() {
			// Which rules price in Go is known line by line only.
			if _, collected := p.set.Get(rule.Service); collected && !inGo[rule.Service] {
				out.all = append(out.all, rule.Service+":"+rule.ID)
			}
		}
	}
	return out
}

// add takes in what an attempt of the run found.
func (r *RuleReport) add(x ruleReport) {
	for _, pair := range []struct {
		to   *map[string]bool
		from []string
	}{{&r.all, x.all}, {&r.used, x.used}, {&r.zero, x.zero}, {&r.priced, x.priced}, {&r.unpriced, x.unpriced}} {
		if *pair.to == nil {
			*pair.to = map[string]bool{}
		}
		for _, name := range pair.from {
			(*pair.to)[name] = true
		}
	}
	without := func(a, b map[string]bool) []string {
		out := []string{}
		for _, name := range slices.Sorted(maps.Keys(a)) {
			if !b[name] {
				out = append(out, name)
			}
		}
		return out
	}
	r.UnpricedMetrics = slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(r.unpriced))))
	r.Unmatched = without(r.all, r.used)
	r.AlwaysZero = without(r.zero, r.priced)
}
