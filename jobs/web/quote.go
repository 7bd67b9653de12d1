package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

type quoteRequest struct {
	Project string      `json:"project"`
	At      *time.Time  `json:"at"`
	Items   []quoteItem `json:"items"`
}

type quoteItem struct {
	Metric     string            `json:"metric"`
	Qty        string            `json:"qty"`
	Unit       string            `json:"unit,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

type quoteAnswer struct {
	Project  string          `json:"project"`
	At       time.Time       `json:"at"`
	Version  uint32          `json:"plan_version"`
	Currency string          `json:"currency"`
	Items    []quotedItem    `json:"items"`
	Total    decimal.Decimal `json:"total"`
	Warnings []string        `json:"warnings"` // what a month's bill counts beside it
}

type quotedItem struct {
	quoteItem
	Price  decimal.Decimal `json:"price"`
	Bucket string          `json:"bucket"`
	Reason string          `json:"reason"`
	Rule   string          `json:"rule"`
}

// Bounds of a quote.
const (
	maxQuote = 100
	maxBody  = 256 << 10
)

// NotQuoted says what of a plan a month's bill counts beside what a quote of these
// metrics says, a sentence each: discounts, the minimum and the cap that hold at a
// moment for a scope, and tiers, which go on from what was used in the month.
func NotQuoted(p *plan.Plan, scope string, metrics []string, at time.Time) []string {
	out := []string{}
	for _, d := range p.Discounts {
		if (d.Scope == "" || d.Scope == scope) && (d.Metric == "" || slices.Contains(metrics, d.Metric)) && plan.Holds(d.Start, d.End, at) {
			of := cmp.Or(d.Metric, "every metric")
			out = append(out, fmt.Sprintf("discount %s of %s %% on %s is not part of a quote", d.ID, d.Percent, of))
		}
	}
	for _, x := range p.Charges {
		own := func(y plan.Charge) bool {
			return y.Kind == x.Kind && y.Scope != "" && y.Scope == scope && plan.Holds(y.Start, y.End, at)
		}
		if (x.Scope == "" && !slices.ContainsFunc(p.Charges, own) || x.Scope != "" && x.Scope == scope) && plan.Holds(x.Start, x.End, at) {
			out = append(out, fmt.Sprintf("%s %s of %s a month is not part of a quote", x.Kind, x.ID, x.Amount))
		}
	}
	for _, s := range p.Services {
		if slices.Contains(metrics, s.Name) && slices.ContainsFunc(s.Tiers, func(t plan.Tiers) bool { return (t.Scope == "" || t.Scope == scope) && t.ValidAt(at) }) {
			out = append(out, fmt.Sprintf("%s has tiers: each item is priced as the first usage of a month", s.Name))
		}
	}
	return out
}

func (s *Server) quote(ctx context.Context, c *call) (any, error) {
	var q quoteRequest
	if err := c.body(&q); err != nil {
		return nil, err
	}
	if len(q.Items) == 0 || len(q.Items) > maxQuote {
		return nil, badRequest(fmt.Sprintf("%d items", len(q.Items)), fmt.Sprintf("send 1 to %d", maxQuote))
	}
	if c.id.Project != "" {
		if q.Project != "" && q.Project != c.id.Project {
			return nil, notFound("there is no such project")
		}
		q.Project = c.id.Project
		keys, err := ProjectKeys(ctx, c.store)
		if err != nil {
			return nil, err
		}
		for _, x := range q.Items {
			if DescribesOther(x.Attributes, q.Project, keys) {
				return nil, notFound("there is no such project")
			}
		}
	}
	at := c.now.Truncate(time.Second)
	if q.At != nil {
		at = q.At.UTC()
	}
	p, v, err := PlanInForce(ctx, c.store, at)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, notFound("no rate plan is in force at " + at.Format(time.RFC3339))
	}
	set, err := MetricsInForce(ctx, c.store, at)
	if err != nil {
		return nil, err
	}
	units := map[string]string{}
	var metrics []string
	for i := range q.Items {
		x := &q.Items[i]
		metrics = append(metrics, x.Metric)
		if m, ok := set.Get(x.Metric); ok && x.Unit == "" {
			x.Unit = m.Unit
		}
		if x.Unit != "" {
			units[x.Metric] = x.Unit
		}
	}
	evaluator, err := hashmap.Compile(p, hashmap.Options{Units: units})
	if err != nil {
		return nil, err
	}
	out := quoteAnswer{Project: q.Project, At: at, Version: v.Version, Currency: p.Currency, Items: []quotedItem{}, Warnings: NotQuoted(p, q.Project, metrics, at)}
	for i, x := range q.Items {
		qty, err := quantity(x.Qty)
		if err != nil {
			return nil, badRequest(fmt.Sprintf("item %d: quantity %q is no decimal", i+1, shorten(x.Qty)), "write it as 12.5, with at most 20 digits before and 18 behind the point")
		}
		attributes := x.Attributes
		if m, ok := set.Get(x.Metric); ok {
			attributes = m.WithImplied(attributes, q.Project, at)
		}
		r := evaluator.Price(&hashmap.Point{Metric: x.Metric, Scope: q.Project, Unit: x.Unit, Qty: qty, Attributes: attributes, Begin: at})
		out.Items = append(out.Items, quotedItem{x, r.Price, string(r.Bucket), r.Reason, r.Rule})
		out.Total = out.Total.Add(r.Price)
	}
	return out, nil
}

// quantity reads a decimal that rated lines could hold. 1e999999999 is one too,
// but nobody uses that much.
func quantity(text string) (decimal.Decimal, error) {
	if len(text) > 64 {
		return decimal.Zero, errors.New("too long")
	}
	return plan.ParseNumber(text, plan.LevelIntegerDigits, plan.LevelScale)
}
