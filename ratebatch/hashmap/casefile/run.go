package casefile

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
)

// Answer is what one way of pricing says about a point.
type Answer struct {
	Price    decimal.Decimal
	Rule     string
	Rejected string // the reason, if the point is rejected
	Unasked  string // why this way cannot take the point at all: not held against it
}

// Pricer is one way of pricing a case's points, one answer for each.
type Pricer interface {
	Name() string
	Price(ctx context.Context, c *Case) ([]Answer, error)
}

// Go prices with the evaluator.
type Go struct{}

// Name is the pricer's name in reports.
func (Go) Name() string { return "evaluator" }

// Price asks the evaluator for each point.
func (Go) Price(_ context.Context, c *Case) ([]Answer, error) {
	e, err := c.Evaluator()
	if err != nil {
		return nil, err
	}
	if err := c.checkTiers(e); err != nil {
		return nil, err
	}
	out := make([]Answer, len(c.Points))
	for i := range c.Points {
		r := e.Price(&c.Points[i].Point)
		out[i] = Answer{Price: r.Price, Rule: r.Rule}
		if r.Bucket == hashmap.Rejected {
			out[i].Rejected = r.Reason
		}
	}
	return out, nil
}

// Folded prices with the folded steps alone, the way SQL does: each
// combination of scope and attribute values is folded once, a point takes the
// step of its quantity, multiplies and rounds.
type Folded struct{}

// Name is the pricer's name in reports.
func (Folded) Name() string { return "folded" }

// Price folds each point's combination.
func (Folded) Price(_ context.Context, c *Case) ([]Answer, error) {
	e, err := c.Evaluator()
	if err != nil {
		return nil, err
	}
	out := make([]Answer, len(c.Points))
	for i := range c.Points {
		p := &c.Points[i]
		if e.HasTiers(p.Metric) {
			out[i].Unasked = "tiers are not folded"
			continue
		}
		values := map[string]string{}
		for _, f := range e.Fields(p.Metric) {
			if v, ok := p.Attributes[f]; ok {
				values[f] = v
			}
		}
		f := e.Fold(p.Metric, p.Scope, values, p.Begin)
		switch {
		case f.Reject != "":
			out[i].Rejected = f.Reject
			continue
		case f.PerPoint != "":
			out[i].Unasked = f.PerPoint
			continue
		case c.Plan != nil && len(c.Plan.Expressions) > 0 && (!p.PriceIn.IsZero() || p.Qty.Exponent() < -hashmap.PriceScale):
			out[i].Unasked = "expressions fold for tables' quantities and prices from 0"
			continue
		}
		s := f.At(p.Qty)
		if s.Reject != "" {
			out[i].Rejected = s.Reject
			continue
		}
		if s.Skip {
			continue
		}
		price := hashmap.Round(p.PriceIn.Add(s.A.Mul(p.Qty)).Add(s.B))
		out[i] = Answer{Price: price, Rule: s.Rule}
		if price.Abs().GreaterThanOrEqual(tooLarge) {
			out[i].Rejected = hashmap.OutOfRange
		}
	}
	return out, nil
}

var (
	tooLarge = decimal.New(1, 20)
	absolute = decimal.New(1, -18)
	relative = decimal.New(1, -27)
)

// Right says whether an answer is the expected one. CloudKitty rounds to 28
// significant digits after every operation and we round once to 18 decimals,
// so prices agree within max(1e-18, |price|·1e-27). A point that stops
// CloudKitty must be rejected, as must a price that no line can hold.
//
// One kind of point is rejected although CloudKitty prices it: a field
// threshold on a value that only CloudKitty takes for a number (1_000, digits
// of other scripts, Infinity, JSON true).
func Right(c *Case, p *Point, a Answer) bool {
	switch {
	case a.Unasked != "":
		return true
	case p.Error != "", c.exotic(p), p.Want.Abs().GreaterThanOrEqual(tooLarge):
		return a.Rejected != ""
	case a.Rejected != "":
		return false
	}
	tolerance := decimal.Max(absolute, p.Want.Abs().Mul(relative))
	return a.Price.Sub(p.Want).Abs().LessThanOrEqual(tolerance)
}

// Summary counts what a run found.
type Summary struct {
	Cases  int `json:"cases"`
	Points int `json:"points"`
	Passed int `json:"passed"`
	Failed int `json:"failed"`
}

// String is the last line of a report.
func (s Summary) String() string {
	return fmt.Sprintf("%d cases, %d points: %d passed, %d failed", s.Cases, s.Points, s.Passed, s.Failed)
}

// Run prices the cases of a file in every way and reports each mismatch with
// all answers. A point passes if every way that can take it is right.
func Run(ctx context.Context, name string, cases iter.Seq2[*Case, error], out io.Writer, pricers ...Pricer) (Summary, error) {
	var sum Summary
	for c, err := range cases {
		if err != nil {
			return sum, err
		}
		sum.Cases++
		sum.Points += len(c.Points)
		answers := make([][]Answer, len(pricers))
		for i, p := range pricers {
			answers[i], err = p.Price(ctx, c)
			if err != nil {
				return sum, fmt.Errorf("%s:%d: case %s: %s: %w", name, c.Line, c.Name, p.Name(), err)
			}
			if len(answers[i]) != len(c.Points) {
				return sum, fmt.Errorf("%s:%d: case %s: %s gave %d answers for %d points", name, c.Line, c.Name, p.Name(), len(answers[i]), len(c.Points))
			}
		}
		for i := range c.Points {
			right := true
			for j := range pricers {
				right = right && Right(c, &c.Points[i], answers[j][i])
			}
			if right {
				sum.Passed++
				continue
			}
			sum.Failed++
			if err := mismatch(out, name, c, i, pricers, answers); err != nil {
				return sum, err
			}
		}
	}
	return sum, nil
}

func mismatch(out io.Writer, name string, c *Case, i int, pricers []Pricer, answers [][]Answer) error {
	p := &c.Points[i]
	text := fmt.Sprintf("%s:%d: case %s, point %d: %s of %s: want %s", name, c.Line, c.Name, i+1, p.Qty, p.Metric, c.expected(p))
	for j, pricer := range pricers {
		text += fmt.Sprintf("; %s: %s", pricer.Name(), answers[j][i])
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func (c *Case) expected(p *Point) string {
	switch {
	case p.Error != "":
		return "rejected (" + p.Error + ")"
	case c.exotic(p):
		return "rejected (field threshold on a value that is no number)"
	case p.Want.Abs().GreaterThanOrEqual(tooLarge):
		return "rejected (out of range)"
	}
	return p.Want.String()
}

// String is the answer in a report.
func (a Answer) String() string {
	switch {
	case a.Unasked != "":
		return "not asked: " + a.Unasked
	case a.Rejected != "":
		return "rejected: " + a.Rejected
	case a.Rule != "":
		return a.Price.String() + " by " + a.Rule
	}
	return a.Price.String() + " (no rule matched)"
}
