package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Side is what a what-if prices by: a rate plan and a metric set.
type Side struct {
	Name    string
	Plan    store.Version // whatever its validity: it counts for the whole window
	Metrics store.Version
}

// Amount is what usage of one project, metric and rule comes to.
type Amount struct {
	Scope  string          `json:"scope"`
	Month  time.Time       `json:"month"`
	Metric string          `json:"metric"`
	Rule   string          `json:"rule"`
	Price  decimal.Decimal `json:"price"`
}

// WhatIf prices the stored usage of [from, to) by each side, in one query, and
// writes nothing. Prices of tiers are those of what an account used in the month,
// to the same digits as its lines but for their rounding (less than 1e-18 a line);
// the window must then begin with a month. Minimums and caps count for months
// that the window holds to their end.
func (j *Job) WhatIf(ctx context.Context, sides []Side, from, to time.Time) ([][]Amount, error) {
	if err := j.Options.Validate(); err != nil {
		return nil, err
	}
	if !from.Before(to) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--from %s is not before --to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))}
	}
	var text []string
	var all []*whatIf
	for i, side := range sides {
		w, err := j.whatIf(ctx, side, from, to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.Name, err)
		}
		all = append(all, w)
		text = append(text, w.selects(i)...)
	}
	if len(text) > 0 {
		rows, err := j.Store.QueryPass(ctx, all[0].pricer.attempt.ids, strings.Join(text, "\nUNION ALL\n"), all[0].pricer.attempt.query())
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var side uint8
			var slot uint32
			var sum whatIfSum
			if err := rows.Scan(&side, &sum.metric, &sum.scope, &sum.month, &sum.rule, &slot, &sum.amount); err != nil {
				return nil, err
			}
			sum.month = sum.month.UTC()
			all[side].add(sum, int(slot))
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	out := make([][]Amount, len(sides))
	for i, w := range all {
		if err := w.priceInGo(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", sides[i].Name, err)
		}
		out[i] = w.amounts(to)
	}
	return out, nil
}

// whatIf is one side under way.
type whatIf struct {
	pricer *pricer
	plan   *plan.Plan
	sums   map[Amount]decimal.Decimal // by all but the price
}

// whatIfSum is one row of the query: money, or of tiers an account's quantity.
type whatIfSum struct {
	metric, scope, rule string
	month               time.Time
	amount              decimal.Decimal
}

func (j *Job) whatIf(ctx context.Context, side Side, from, to time.Time) (*whatIf, error) {
	set, err := metric.Parse(side.Name, []byte(side.Metrics.Body))
	if err != nil {
		return nil, err
	}
	v := side.Plan
	v.ValidFrom, v.ValidTo = time.Unix(0, 0), store.OpenEnd
	a := &attempt{pass: &pass{job: j, plan: &Plan{terms: terms{plans: []store.Version{v}}}}, ids: store.Pass{From: from, To: to, Period: j.Options.Period}}
	p, err := newPricer(a, set, store.PassSummary{})
	if err != nil {
		return nil, err
	}
	p.everything = true
	w := &whatIf{pricer: p, plan: p.planOf[v.Digest], sums: map[Amount]decimal.Decimal{}}
	if w.plan.HasTiers() && !j.Options.Calendar.MonthAt(from).From.Equal(from) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--from %s: the plan has tiers, which count from the begin of a month", from.Format(time.RFC3339)), Hint: "begin the window with a month"}
	}
	return w, p.fold(ctx)
}

// selects are the side's part of the query.
func (w *whatIf) selects(side int) []string {
	zone := sqltext.String(w.pricer.attempt.pass.job.Options.Calendar.Zone().String())
	var out []string
	for _, mp := range w.pricer.metrics {
		if mp.rows == 0 {
			continue
		}
		usage, err := w.pricer.usage(mp, false)
		if err != nil {
			panic(err) // it was written once already, for the combinations
		}
		head := fmt.Sprintf("SELECT toUInt8(%d) AS side_, %s AS metric_, toString(scope) AS scope_, toStartOfMonth(begin, %s) AS month_", side, sqltext.String(mp.metric.Name), zone)
		if mp.tiers != nil {
			e := mp.tiers.expression
			out = append(out, fmt.Sprintf("%s, account_ AS rule_, toUInt32(t_) AS slot_, sum(toDecimal256(greatest(qty, toDecimal128(0, 18)), 18)) AS amount_\nFROM (SELECT *, %s FROM (%s))\nWHERE %s\nGROUP BY scope_, month_, rule_, slot_",
				head, e.Inner, usage, e.Guard))
			continue
		}
		out = append(out, fmt.Sprintf("%s, toString(rule) AS rule_, toUInt32(0) AS slot_, sum(toDecimal256(price, 18)) AS amount_\nFROM (SELECT scope, begin, qty, %s FROM (SELECT *, %s FROM (%s)) WHERE %s)\nGROUP BY scope_, month_, rule_",
			head, mp.expression.Columns, mp.expression.Inner, usage, mp.expression.Guard))
	}
	return out
}

// add takes in a row of the query.
func (w *whatIf) add(s whatIfSum, slot int) {
	key := Amount{Scope: s.scope, Month: s.month, Metric: s.metric, Rule: s.rule}
	if slot == 0 {
		w.sums[key] = w.sums[key].Add(s.amount)
		return
	}
	for _, mp := range w.pricer.metrics {
		if mp.metric.Name != s.metric {
			continue
		}
		tariffs := mp.tiers.expression.Tariffs()
		if slot > len(tariffs) {
			return // skipped, rejected or unpriced: no money
		}
		for rule, price := range tariffs[slot-1].Month(s.amount) {
			key.Rule = rule
			w.sums[key] = w.sums[key].Add(price)
		}
	}
}

// priceInGo adds the rows whose price SQL cannot hold.
func (w *whatIf) priceInGo(ctx context.Context) error {
	p := w.pricer
	for _, mp := range p.metrics {
		if mp.rows == 0 || mp.expression.GoGuard == "" {
			continue
		}
		usage, err := p.usage(mp, true)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("SELECT scope, begin, attributes, qty FROM (SELECT *, %s FROM (%s)) WHERE %s", mp.expression.Inner, usage, mp.expression.GoGuard)
		rows, err := p.attempt.pass.job.Store.QueryPass(ctx, p.attempt.ids, text, p.attempt.query())
		if err != nil {
			return err
		}
		for rows.Next() {
			x := hashmap.Point{Metric: mp.metric.Name, Unit: mp.metric.Unit}
			if err := rows.Scan(&x.Scope, &x.Begin, &x.Attributes, &x.Qty); err != nil {
				return errors.Join(err, rows.Close())
			}
			x.Attributes = mp.metric.WithImplied(x.Attributes, x.Scope, x.Begin)
			r := p.windowAt(x.Begin).evaluator.Price(&x)
			key := Amount{Scope: x.Scope, Month: p.attempt.pass.job.Options.Calendar.MonthAt(x.Begin).Date, Metric: x.Metric, Rule: r.Rule}
			w.sums[key] = w.sums[key].Add(r.Price)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// amounts are the sums with discounts, minimums and caps, in a fixed order.
func (w *whatIf) amounts(to time.Time) []Amount {
	job := w.pricer.attempt.pass.job
	type account struct {
		scope string
		month time.Time
	}
	totals := map[account]decimal.Decimal{}
	perMetric := map[Amount]decimal.Decimal{}
	var out []Amount
	for key, price := range w.sums {
		if price.IsZero() {
			// Who stays within the allowance pays the minimum all the same.
			a := account{key.Scope, key.Month}
			totals[a] = totals[a].Add(price)
			continue
		}
		key.Price = price
		out = append(out, key)
		key.Rule, key.Price = "", decimal.Decimal{}
		perMetric[key] = perMetric[key].Add(price)
		a := account{key.Scope, key.Month}
		totals[a] = totals[a].Add(price)
	}
	rules := w.pricer.discounts()
	for key, price := range perMetric {
		i := slices.IndexFunc(rules, func(r store.DiscountRule) bool {
			m := job.Options.Calendar.Named(key.Month)
			return !r.From.After(m.From) && r.To.After(m.From) && (r.Metric == "" || r.Metric == key.Metric) && (r.Scope == "" || r.Scope == key.Scope)
		})
		if i < 0 {
			continue
		}
		off := hashmap.Round(price.Mul(rules[i].Rate))
		out = append(out, Amount{key.Scope, key.Month, plan.DiscountMetric, rules[i].ID, off})
		a := account{key.Scope, key.Month}
		totals[a] = totals[a].Add(off)
	}
	for a, total := range totals {
		m := job.Options.Calendar.Named(a.month)
		if m.To.After(to) {
			continue // the month goes on
		}
		charges := monthCharges(w.plan, ratebatch.PeriodAt(m.To.Add(-time.Second), job.Options.Period).Begin)
		if more := closing(charges, a.scope, total); !more.IsZero() {
			name := plan.MinimumMetric
			if more.IsNegative() {
				name = plan.CapMetric
			}
			out = append(out, Amount{a.scope, a.month, name, "", more})
		}
	}
	slices.SortFunc(out, func(a, b Amount) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), a.Month.Compare(b.Month), strings.Compare(a.Metric, b.Metric), strings.Compare(a.Rule, b.Rule))
	})
	return out
}

// Change is what something costs by one side and by the other.
type Change struct {
	Name       string           `json:"name"`
	Before     decimal.Decimal  `json:"before"`
	After      decimal.Decimal  `json:"after"`
	Difference decimal.Decimal  `json:"difference"`
	Percent    *decimal.Decimal `json:"percent,omitempty"` // of before, two digits; none of nothing
}

// Comparison is what changes from one side to another.
type Comparison struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Total    Change    `json:"total"`
	Projects []Change  `json:"projects"` // the largest difference first
	Metrics  []Change  `json:"metrics"`
	Rules    []Change  `json:"rules"` // as metric:rule
	// Of the projects' percentages without their signs, the one that half of the
	// projects stay within, and that 95 of 100 do.
	P50 *decimal.Decimal `json:"p50,omitempty"`
	P95 *decimal.Decimal `json:"p95,omitempty"`
}

// Compare sets two sides' amounts against each other.
func Compare(from, to time.Time, before, after []Amount) Comparison {
	c := Comparison{From: from, To: to}
	by := func(name func(Amount) string) []Change {
		changes := map[string]*Change{}
		for i, list := range [][]Amount{before, after} {
			for _, a := range list {
				x := changes[name(a)]
				if x == nil {
					x = &Change{Name: name(a)}
					changes[name(a)] = x
				}
				if i == 0 {
					x.Before = x.Before.Add(a.Price)
				} else {
					x.After = x.After.Add(a.Price)
				}
			}
		}
		out := []Change{}
		for _, name := range slices.Sorted(maps.Keys(changes)) {
			x := changes[name]
			x.Difference = x.After.Sub(x.Before)
			if !x.Before.IsZero() {
				percent := x.Difference.Mul(decimal.New(100, 0)).DivRound(x.Before.Abs(), 2)
				x.Percent = &percent
			}
			out = append(out, *x)
		}
		slices.SortStableFunc(out, func(a, b Change) int { return b.Difference.Abs().Cmp(a.Difference.Abs()) })
		return out
	}
	c.Projects = by(func(a Amount) string { return a.Scope })
	c.Metrics = by(func(a Amount) string { return a.Metric })
	c.Rules = by(func(a Amount) string { return a.Metric + ":" + a.Rule })
	if total := by(func(Amount) string { return "total" }); len(total) > 0 {
		c.Total = total[0]
	}
	var percents []decimal.Decimal
	for _, x := range c.Projects {
		if x.Percent != nil {
			percents = append(percents, x.Percent.Abs())
		}
	}
	slices.SortFunc(percents, decimal.Decimal.Cmp)
	if n := len(percents); n > 0 {
		at := func(of int) *decimal.Decimal { return &percents[(n*of+99)/100-1] } // nearest rank
		c.P50, c.P95 = at(50), at(95)
	}
	return c
}

// Past lists the projects whose price changes by more than a percentage; one
// that paid nothing before and pays now is among them.
func (c Comparison) Past(percent decimal.Decimal) []Change {
	var out []Change
	for _, x := range c.Projects {
		if x.Percent == nil && !x.After.IsZero() || x.Percent != nil && x.Difference.Abs().Mul(decimal.New(100, 0)).GreaterThan(percent.Mul(x.Before.Abs())) {
			out = append(out, x)
		}
	}
	return out
}
