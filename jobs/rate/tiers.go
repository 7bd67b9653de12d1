package rate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Tiers in a pass. The pass's one INSERT … SELECT needs to know, for every row,
// what its account had used in the month before. Summing over rows would sort
// them all; so a statement before it sums per period and account, adds what the
// commits before say, and stores it in pass_carries. Nearly every period lies
// within one tier: its rows look the tier up and are priced like any other. Only
// the rows of a period that crosses an edge are summed one by one and cut.

// tierPricer is what a pass needs of a metric with tiers.
type tierPricer struct {
	expression pricing.TierExpression
	carries    store.Carries
	crossings  uint64
	took       time.Duration // to work out carries
}

// hasTiers says whether the price of the metric depends on the month so far in
// any window of the pass.
func (p *pricer) hasTiers(mp *metricPricer) bool {
	return slices.ContainsFunc(p.windows, func(w window) bool { return w.evaluator.HasTiers(mp.metric.Name) })
}

// foldTiers writes the metric's expression and works out what each account had
// before each period.
func (p *pricer) foldTiers(ctx context.Context, mp *metricPricer, combos []pricing.Combo) error {
	name := mp.metric.Name
	in := pricing.TierInput{Input: pricing.Input{Boundaries: p.boundaries(), Scopes: mp.scopes, Fields: len(mp.fields)}, Metric: name, Names: mp.fields}
	for _, c := range combos {
		w := p.windows[c.Window]
		scope := ""
		if c.Class > 0 {
			scope = mp.scopes[c.Class-1]
		}
		in.Combos = append(in.Combos, pricing.TierCombo{Combo: c, Tariff: w.evaluator.Tariff(name, scope, w.begin)})
	}
	e, err := pricing.BuildTiers(in)
	if err != nil {
		return err
	}
	mp.tiers = &tierPricer{expression: e}
	mp.expression = pricing.Expression{Form: e.Form, Uses: e.Uses}
	if len(e.Tariffs()) == 0 || p.everything {
		return nil
	}
	usage, err := p.usage(mp, false)
	if err != nil {
		return err
	}
	a := p.attempt
	mp.tiers.carries = store.Carries{Metric: name, Zone: a.pass.job.Options.Calendar.Zone().String(), MonthFrom: a.pass.job.Options.Calendar.MonthAt(a.ids.From).From, Edges: e.Edges("tariff"), Volume: e.IsVolume("tariff"),
		Rows: fmt.Sprintf("SELECT scope, begin, region, qty, t_, account_\nFROM (SELECT *, %s FROM (%s))\nWHERE %s AND %s", e.Inner, usage, e.Known, e.Tiered)}
	s := a.pass.job.Store
	started := time.Now() //nolint:forbidigo // how long a step took
	if err := s.InsertPassCarries(ctx, a.ids, mp.tiers.carries, a.query()); err != nil {
		return err
	}
	mp.tiers.took = time.Since(started)
	mp.tiers.crossings, err = s.PassCrossings(ctx, a.ids, name)
	return err
}

// tierBranches are the SELECTs of a metric with tiers: the rows of periods that
// lie within a tier, and those that are cut.
func (p *pricer) tierBranches(mp *metricPricer, usage string) []string {
	e := mp.tiers.expression
	columns := strings.Replace(p.lineColumns(mp), "toUInt16(0)", "l.part_", 1)
	carries := fmt.Sprintf("(SELECT scope, begin, account, carry_in, last_tier, crosses FROM pass_carries WHERE run_id = {run_id:UUID} AND metric = %s)", sqltext.String(mp.metric.Name))
	on := "u.scope = w.scope AND u.begin = w.begin"
	if e.PerRow {
		on += " AND u.account_ = w.account"
	}
	whole := fmt.Sprintf(`SELECT %s
FROM (
    SELECT region, scope, begin, resource, attributes, qty, toUInt16(0) AS part_,
    %s
    FROM (
        SELECT u.region AS region, u.scope AS scope, u.begin AS begin, u.resource AS resource, u.attributes AS attributes, u.qty AS qty, u.q_ AS q_,
            %s AS c_
        FROM (SELECT *,
    %s
    FROM (
%s)) AS u
        LEFT ANY JOIN %s AS w ON %s
        WHERE %s AND NOT (%s AND (w.last_tier = 0 OR w.crosses)))) AS l%s`,
		columns, e.Columns, e.Coefficient("u.t_", "if("+e.Tiered+", w.last_tier, 1)"), e.Inner, usage, carries, on,
		e.Known, e.Tiered, p.revisionJoin())
	if mp.tiers.crossings == 0 {
		return []string{whole}
	}
	o := metric.UsageOptions{Period: p.attempt.ids.Period, Fields: mp.fields, Attributes: true, Dedup: p.attempt.dedup,
		Filter: fmt.Sprintf("(scope, begin) IN (SELECT scope, begin FROM pass_carries WHERE run_id = {run_id:UUID} AND metric = %s AND crosses)", sqltext.String(mp.metric.Name))}
	crossing, err := mp.metric.UsageSQL(o)
	if err != nil {
		panic(err) // it was written once already, with another filter
	}
	// The order in which rows draw on an account is that of hashmap.TierRow.
	cut := fmt.Sprintf(`SELECT %s
FROM (
    SELECT region, scope, begin, resource, attributes, reinterpret(q_, 'Decimal(38, 18)') AS qty, part_,
    %s
    FROM (
        SELECT region, scope, begin, resource, attributes, toUInt16(place_ - 1) AS part_, piece_.2 AS q_, %s AS c_
        FROM (
            SELECT region, scope, begin, resource, attributes, t_,
                %s AS pieces_
            FROM (
                SELECT u.region AS region, u.scope AS scope, u.begin AS begin, u.resource AS resource, u.attributes AS attributes, u.t_ AS t_, u.q_ AS raw_,
                    %s AS edges_,
                    reinterpretAsInt128(w.carry_in) + sum(greatest(u.q_, toInt128(0))) OVER (PARTITION BY u.scope, u.begin, u.account_
                        ORDER BY u.resource, toString(u.region), CAST(u.attributes AS Array(Tuple(String, String))) ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS hi_
                FROM (SELECT *,
    %s
    FROM (
%s)) AS u
                INNER JOIN %s AS w ON %s
                WHERE %s AND %s AND w.crosses))
        ARRAY JOIN pieces_ AS piece_, arrayEnumerate(pieces_) AS place_)) AS l%s`,
		columns, e.Columns, e.Coefficient("t_", "piece_.1"), pricing.Pieces("raw_", "hi_", "edges_"), e.Edges("u.t_"), e.Inner, crossing, carries, on, e.Known, e.Tiered, p.revisionJoin())
	return []string{whole, cut}
}

// isDerived says whether the attempt can have lines that are not one for each
// usage row.
func (p *pricer) isDerived() bool {
	for _, mp := range p.metrics {
		if mp.tiers != nil {
			return true
		}
	}
	return slices.ContainsFunc(p.plans, func(x *plan.Plan) bool { return len(x.Discounts)+len(x.Charges) > 0 })
}

// readBack sums the attempt's lines up per period.
func (p *pricer) readBack(ctx context.Context) error {
	a := p.attempt
	if p.isDerived() {
		return a.pass.job.Store.InsertPassLinesTiers(ctx, a.ids, a.query())
	}
	return a.pass.job.Store.InsertPassLines(ctx, a.ids, a.query())
}

// deriveLines writes the lines that come from other lines: what crossing a
// volume tier changes about the month before, discounts on all of that, and last
// the month's minimum and cap.
func (p *pricer) deriveLines(ctx context.Context) error {
	for _, mp := range p.metrics {
		if err := p.adjust(ctx, mp); err != nil {
			return fmt.Errorf("metric %s, adjustments: %w", mp.metric.Name, err)
		}
	}
	a := p.attempt
	if rules := p.discounts(); len(rules) > 0 {
		if err := a.pass.job.Store.InsertDiscountLines(ctx, a.ids, rules, a.query()); err != nil {
			return err
		}
	}
	for _, m := range p.charges() {
		if err := a.pass.job.Store.InsertCharges(ctx, a.ids, m, a.query(), a.query()); err != nil {
			return err
		}
	}
	return nil
}

// adjust writes the adjustments of volume tiers. There is at most one for each
// account, month and edge, so Go prices them.
func (p *pricer) adjust(ctx context.Context, mp *metricPricer) error {
	if mp.tiers == nil || !slices.ContainsFunc(mp.tiers.expression.Tariffs(), func(t *hashmap.Tariff) bool { return t.Kind == plan.Volume }) {
		return nil
	}
	a := p.attempt
	s := a.pass.job.Store
	list, err := s.PassAdjustments(ctx, a.ids, mp.tiers.carries)
	if err != nil {
		return err
	}
	var lines []store.Line
	for _, x := range list {
		t := mp.tiers.expression.Tariffs()[x.Tariff-1]
		if line, ok := adjustment(mp.metric, t, x); ok {
			lines = append(lines, line)
		}
	}
	n := 0
	for batch := range slices.Chunk(lines, goBatch) {
		if err := s.InsertGoLines(ctx, a.ids, batch, fmt.Sprintf("%s-%s-adjust-%d", a.ids.ID, mp.metric.Name, n)); err != nil {
			return err
		}
		n++
	}
	return nil
}

// adjustment is the line of an account that enters another tier.
func adjustment(m *metric.Metric, t *hashmap.Tariff, x store.Adjustment) (store.Line, bool) {
	attributes := map[string]string{"metric": m.Name}
	if _, of, ok := strings.Cut(strings.TrimPrefix(x.Account, m.Name), "="); ok && t.Per != plan.PerScope {
		attributes[t.Per] = of
	}
	result, ok := t.Adjustment(x.First-1, x.Last-1, x.CarryIn)
	line := store.Line{Region: x.Region, Scope: x.Scope, Begin: x.Begin, Metric: plan.AdjustmentMetric, Attributes: attributes, Unit: m.Unit,
		Qty: x.CarryIn, Price: result.Price, Rule: result.Rule, Bucket: string(result.Bucket), Part: hashmap.AdjustmentPart, Revision: x.Revision}
	if result.Bucket == hashmap.Rejected {
		line.Rule = result.Reason
	}
	return line, ok
}

// planSpans calls back for each stretch of the pass with one plan version.
func (p *pricer) planSpans(visit func(from, to time.Time, version *store.Version, x *plan.Plan)) {
	for _, span := range store.InForce(p.attempt.pass.plan.terms.plans, p.attempt.ids.From, p.attempt.ids.To) {
		if span.Version != nil {
			visit(span.Begin, span.End, span.Version, p.planOf[span.Version.Digest])
		}
	}
}

// discounts are the discounts of the pass, the most specific first.
func (p *pricer) discounts() []store.DiscountRule {
	var out []store.DiscountRule
	p.planSpans(func(from, to time.Time, version *store.Version, x *plan.Plan) {
		for _, d := range x.Discounts {
			r := store.DiscountRule{From: ratebatch.Later(from, d.Start), To: to, Metric: d.Metric, Scope: d.Scope, ID: d.ID, Rate: d.Percent.Shift(-2).Neg(), Currency: version.Currency}
			if !d.End.IsZero() {
				r.To = ratebatch.Earlier(to, d.End)
			}
			if r.From.Before(r.To) {
				out = append(out, r)
			}
		}
	})
	names := func(r store.DiscountRule) int { return 2*min(1, len(r.Scope)) + min(1, len(r.Metric)) }
	slices.SortStableFunc(out, func(a, b store.DiscountRule) int { return names(b) - names(a) })
	return out
}

// charges are the minimums and caps of the months whose last period the pass
// can rate.
func (p *pricer) charges() []store.MonthCharges {
	a := p.attempt
	calendar := a.pass.job.Options.Calendar
	var out []store.MonthCharges
	for m := calendar.MonthAt(a.ids.From); m.From.Before(a.ids.To); m = calendar.Next(m) {
		last := ratebatch.PeriodAt(m.To.Add(-time.Second), a.ids.Period).Begin
		if last.Before(a.ids.From) || !last.Before(a.ids.To) {
			continue
		}
		p.planSpans(func(from, to time.Time, version *store.Version, x *plan.Plan) {
			if last.Before(from) || !last.Before(to) {
				return
			}
			if c := monthCharges(x, last); len(c.Minimums)+len(c.Caps) > 0 {
				c.MonthFrom, c.Last, c.Currency = m.From, last, version.Currency
				terms := p.commitTerms("")
				c.Boundaries, c.Currencies = terms.Boundaries, terms.Currencies
				out = append(out, c)
			}
		})
	}
	return out
}

// monthCharges are the charges of a plan that hold for a month with this last
// period.
func monthCharges(x *plan.Plan, last time.Time) store.MonthCharges {
	out := store.MonthCharges{Priced: len(x.ModulesFor("")) > 0, Others: []string{}}
	for _, scope := range x.ModuleScopes() {
		if (len(x.ModulesFor(scope)) > 0) != out.Priced {
			out.Others = append(out.Others, scope)
		}
	}
	for _, c := range x.Charges {
		if last.Before(c.Start) || !c.End.IsZero() && !last.Before(c.End) {
			continue
		}
		r := store.ChargeRule{ID: c.ID, Scope: c.Scope, Amount: c.Amount}
		if c.Kind == plan.Minimum {
			out.Minimums = append(out.Minimums, r)
		} else {
			out.Caps = append(out.Caps, r)
		}
	}
	return out
}

// closing is what a charge adds to a month that came to an amount.
func closing(m store.MonthCharges, scope string, cameTo decimal.Decimal) decimal.Decimal {
	if slices.Contains(m.Others, scope) == m.Priced {
		return decimal.Zero
	}
	of := func(rules []store.ChargeRule) *store.ChargeRule {
		var found *store.ChargeRule
		for i := range rules {
			if rules[i].Scope == scope || rules[i].Scope == "" && found == nil {
				found = &rules[i]
			}
		}
		return found
	}
	if least := of(m.Minimums); least != nil && cameTo.LessThan(least.Amount) {
		return least.Amount.Sub(cameTo)
	}
	if most := of(m.Caps); most != nil && cameTo.GreaterThan(most.Amount) {
		return most.Amount.Sub(cameTo)
	}
	return decimal.Zero
}
