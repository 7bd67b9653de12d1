package main

import (
	"context"
	"fmt"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// explainTiers explains the lines whose price is not that of their quantity
// alone: a part of a row that tiers cut, and lines that come from other lines. It
// gives the calculation and its result; no calculation for any other line.
func explainTiers(ctx context.Context, s *store.Store, e *hashmap.Evaluator, p *plan.Plan, line *store.FoundLine) ([]string, decimal.Decimal, error) {
	carries := func(of func(account string) bool) ([]string, error) {
		list, err := s.CommitCarries(ctx, line.Scope, line.Begin, line.RunID)
		var out []string
		for _, a := range list {
			if of(a.Account) {
				out = append(out, fmt.Sprintf("account %s: %s in the month before this period, %s in it", a.Account, a.Before, a.InThis))
			}
		}
		return out, err
	}
	if line.Part >= hashmap.AdjustmentPart {
		if line.Qty.IsZero() {
			return nil, line.Price, nil
		}
		unit := line.Price.DivRound(line.Qty, hashmap.PriceScale)
		out := []string{fmt.Sprintf("%s %s: %s %s × %s = %s", line.Metric, line.Rule, line.Qty, line.Unit, unit, line.Price)}
		if line.Metric != plan.MinimumMetric && line.Metric != plan.CapMetric {
			return out, line.Price, nil
		}
		more, err := carries(func(account string) bool { return account == "(charged)" })
		for _, c := range p.Charges {
			if c.ID == line.Rule {
				more = append(more, fmt.Sprintf("%s %s: %s a month", c.Kind, c.ID, c.Amount))
			}
		}
		return append(more, out...), line.Price, err
	}
	t := e.Tariff(line.Metric, line.Scope, line.Begin)
	if t == nil || line.Bucket != "" {
		return nil, line.Price, nil
	}
	account := t.Account(line.Metric, line.Resource, line.Attributes)
	out, err := carries(func(name string) bool { return name == account })
	out = append([]string{fmt.Sprintf("%s tiers %s per %s", t.Kind, t.ID, t.Per)}, out...)
	for tier, cost := range t.Costs {
		if t.Rule(tier) == line.Rule {
			price := hashmap.Round(cost.Mul(line.Qty))
			return append(out, fmt.Sprintf("tier %s: %s × %s = %s, rounded half-even to %d decimals", line.Rule, cost, line.Qty, price, hashmap.PriceScale)), price, err
		}
	}
	return append(out, "the plan in force has no tier "+line.Rule), decimal.Zero, err
}
