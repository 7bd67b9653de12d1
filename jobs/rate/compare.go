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
// the window must then begin with a month. Discounts are those of each period.
// Minimums and caps count for months that lie in the window as a whole. A window
// that begins before what the tiers still hold is a HaltError: usage that expired
// would count as none.
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
			var sum whatIfSum
			if err := rows.Scan(&side, &sum.metric, &sum.scope, &sum.month, &sum.rule, &sum.slot, &sum.stretch, &sum.amount); err != nil {
				return nil, err
			}
			sum.month = sum.month.UTC()
			all[side].add(sum)
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
		w.priceTiers()
		out[i] = w.amounts()
	}
	return out, nil
}

// whatIf is one side under way.
type whatIf struct {
	pricer    *pricer
	plan      *plan.Plan
	discounts []store.DiscountRule
	edges     []time.Time // between two of them no rule and no discount begins or ends: a stretch
	sums      map[stretched]decimal.Decimal
	tiered    []whatIfSum
}

// stretched is an Amount without its price, of the periods of one stretch.
type stretched struct {
	Amount
	stretch uint32 // how many edges lie at or before the periods' begin
}

// whatIfSum is one row of the query: money, or of tiers an account's quantity,
// where rule is the account and slot says what prices it.
type whatIfSum struct {
	metric, scope, rule string
	month               time.Time
	slot, stretch       uint32
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
	since, err := j.Store.UsageSince(ctx, side.Metrics, j.Options.Now, j.Options.Period)
	if err != nil {
		return nil, err
	}
	if from.Before(since) {
		return nil, &ratebatch.HaltError{Period: ratebatch.Period{Begin: from, End: ratebatch.Earlier(to, since)},
			Err:  fmt.Errorf("the tiers hold usage from %s on only: an empty answer would not mean zero usage", since.Format(time.RFC3339)),
			Hint: "look at usage from then on (--from, --month); 'ratebatch migrate --retention …' keeps what comes longer"}
	}
	p.everything = true
	w := &whatIf{pricer: p, plan: p.planOf[v.Digest], discounts: p.discounts(), edges: p.boundaries(), sums: map[stretched]decimal.Decimal{}}
	for _, d := range w.discounts {
		w.edges = append(w.edges, d.From, d.To)
	}
	slices.SortFunc(w.edges, time.Time.Compare)
	w.edges = slices.CompactFunc(w.edges, time.Time.Equal)
	w.edges = slices.DeleteFunc(w.edges, func(t time.Time) bool { return !t.After(from) || !t.Before(to) })
	if w.plan.HasTiers() && !j.Options.Calendar.MonthAt(from).From.Equal(from) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--from %s: the plan has tiers, which count from the begin of a month", from.Format(time.RFC3339)), Hint: "begin the window with a month"}
	}
	return w, p.fold(ctx)
}

// selects are the side's part of the query.
func (w *whatIf) selects(side int) []string {
	zone := sqltext.String(w.pricer.attempt.pass.job.Options.Calendar.Zone().String())
	edges := make([]string, len(w.edges))
	for i, e := range w.edges {
		edges[i] = fmt.Sprint(e.Unix())
	}
	stretch := fmt.Sprintf("toUInt32(arrayCount(e -> toUnixTimestamp(begin) >= e, [%s]::Array(UInt32))) AS stretch_", strings.Join(edges, ", "))
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
			out = append(out, fmt.Sprintf("%s, account_ AS rule_, toUInt32(t_) AS slot_, %s, sum(toDecimal256(greatest(qty, toDecimal128(0, 18)), 18)) AS amount_\nFROM (SELECT *, %s FROM (%s))\nWHERE %s\nGROUP BY scope_, month_, rule_, slot_, stretch_",
				head, stretch, e.Inner, usage, e.Guard))
			continue
		}
		out = append(out, fmt.Sprintf("%s, toString(rule) AS rule_, toUInt32(0) AS slot_, %s, sum(toDecimal256(price, 18)) AS amount_\nFROM (SELECT scope, begin, qty, %s FROM (SELECT *, %s FROM (%s)) WHERE %s)\nGROUP BY scope_, month_, rule_, stretch_",
			head, stretch, mp.expression.Columns, mp.expression.Inner, usage, mp.expression.Guard))
	}
	return out
}

// stretchAt is the stretch that periods beginning at t lie in.
func (w *whatIf) stretchAt(t time.Time) uint32 {
	n := 0
	for n < len(w.edges) && !t.Before(w.edges[n]) {
		n++
	}
	return uint32(n)
}

func (s whatIfSum) key() stretched {
	return stretched{Amount{Scope: s.scope, Month: s.month, Metric: s.metric, Rule: s.rule}, s.stretch}
}

// add takes in a row of the query.
func (w *whatIf) add(s whatIfSum) {
	if s.slot > 0 {
		w.tiered = append(w.tiered, s)
		return
	}
	key := s.key()
	w.sums[key] = w.sums[key].Add(s.amount)
}

// priceTiers prices what accounts used, stretch after stretch: what they used in
// one costs what the month comes to with it less what it comes to without it, by
// the tariff of the stretch.
func (w *whatIf) priceTiers() {
	slices.SortStableFunc(w.tiered, func(a, b whatIfSum) int { return cmp.Compare(a.stretch, b.stretch) })
	drawn := map[Amount]decimal.Decimal{} // by account
	for _, s := range w.tiered {
		i := slices.IndexFunc(w.pricer.metrics, func(mp *metricPricer) bool { return mp.metric.Name == s.metric })
		tariffs := w.pricer.metrics[i].tiers.expression.Tariffs()
		if int(s.slot) > len(tariffs) {
			continue // skipped, rejected or unpriced: no money, and nothing that counts
		}
		key := s.key()
		before := drawn[key.Amount]
		now := before.Add(s.amount)
		drawn[key.Amount] = now
		for rule, price := range tariffs[s.slot-1].Month(now) {
			key.Rule = rule
			w.sums[key] = w.sums[key].Add(price)
		}
		for rule, price := range tariffs[s.slot-1].Month(before) {
			key.Rule = rule
			w.sums[key] = w.sums[key].Sub(price)
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
			key := stretched{Amount{Scope: x.Scope, Month: p.attempt.pass.job.Options.Calendar.MonthAt(x.Begin).Date, Metric: x.Metric, Rule: r.Rule}, w.stretchAt(x.Begin)}
			w.sums[key] = w.sums[key].Add(r.Price)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// amounts are the sums with discounts, minimums and caps, in a fixed order.
func (w *whatIf) amounts() []Amount {
	options, window := w.pricer.attempt.pass.job.Options, w.pricer.attempt.ids
	sums := map[Amount]decimal.Decimal{}
	totals := map[Amount]decimal.Decimal{} // by scope and month
	count := func(of Amount, price decimal.Decimal) {
		sums[of] = sums[of].Add(price)
		// Who stays within the allowance pays the minimum all the same.
		account := Amount{Scope: of.Scope, Month: of.Month}
		totals[account] = totals[account].Add(price)
	}
	perMetric := map[stretched]decimal.Decimal{}
	for key, price := range w.sums {
		count(key.Amount, price)
		key.Rule = ""
		perMetric[key] = perMetric[key].Add(price)
	}
	for key, price := range perMetric {
		begin := window.From
		if key.stretch > 0 {
			begin = w.edges[key.stretch-1]
		}
		i := slices.IndexFunc(w.discounts, func(r store.DiscountRule) bool {
			return !begin.Before(r.From) && begin.Before(r.To) && (r.Metric == "" || r.Metric == key.Metric) && (r.Scope == "" || r.Scope == key.Scope)
		})
		if i >= 0 {
			count(Amount{Scope: key.Scope, Month: key.Month, Metric: plan.DiscountMetric, Rule: w.discounts[i].ID}, hashmap.Round(price.Mul(w.discounts[i].Rate)))
		}
	}
	for a, total := range totals {
		m := options.Calendar.Named(a.Month)
		if m.From.Before(window.From) || m.To.After(window.To) {
			continue // a part of a month says nothing of what the month comes to
		}
		charges := monthCharges(w.plan, ratebatch.PeriodAt(m.To.Add(-time.Second), options.Period).Begin)
		a.Metric = plan.MinimumMetric
		more := closing(charges, a.Scope, total)
		if more.IsNegative() {
			a.Metric = plan.CapMetric
		}
		sums[a] = more
	}
	var out []Amount
	for a, price := range sums {
		if a.Price = price; !price.IsZero() {
			out = append(out, a)
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
	// What the plans hold that usage of the window does not show, or not all of.
	NotJudged []string `json:"not_judged"`
	// Those of NotJudged that one of the plans holds and the other does not.
	Unseen []string `json:"-"`
}

// NotJudged names what a plan holds that a what-if of [from, to) does not show as
// it will be: what begins or ends to hold after from, and the minimums and caps if
// from and to do not bound whole months.
func NotJudged(x *plan.Plan, c ratebatch.Calendar, from, to time.Time) []string {
	out := x.DatedAfter(from)
	if c.MonthAt(from).From.Equal(from) && c.MonthAt(to).From.Equal(to) {
		return out
	}
	for _, charge := range x.Charges {
		out = append(out, fmt.Sprintf("%s %s of %s, which is of whole months", charge.Kind, charge.ID, charge.Amount))
	}
	return out
}

// Compare sets two sides' amounts against each other.
func Compare(from, to time.Time, before, after []Amount) Comparison {
	c := Comparison{From: from, To: to, NotJudged: []string{}}
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
