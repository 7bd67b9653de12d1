package hashmap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// Prices that depend on the month so far.
//
// Each account (a scope's metric, or one resource or attribute value of it) adds
// up the quantities above 0 of the billing month. Rows of one period draw on it
// in the order of resource, region, attributes. An edge belongs to the tier
// below it: tier i holds the quantities in (edge i-1, edge i].
//
// Graduated: a row is cut at the edges it crosses, one line for each tier.
// Volume: all rows of a period cost what the tier says that the account is in at
// the period's end; the period that enters another tier has one line more, which
// brings everything before it in the month to the new price.
//
// A quantity of 0 or less moves no edge and is never cut. Its line has the price
// of the tier in which the next quantity above 0 would begin.

// AdjustmentPart is the part number of the line that adjusts a month; numbers
// from here on are of lines that come from other lines and not from usage.
const AdjustmentPart = 60000

// Tariff is a metric's tiers in a form to calculate with.
type Tariff struct {
	ID    string
	Kind  plan.TierKind
	Per   string
	Edges []decimal.Decimal // rising; one less than Costs
	Costs []decimal.Decimal
}

// Rule names a tier on lines; tiers count from 0 here and from 1 on lines.
func (t *Tariff) Rule(tier int) string { return fmt.Sprintf("%s:%d", t.ID, tier+1) }

// Next is the tier in which the quantity begins that follows an accumulated one.
func (t *Tariff) Next(accumulated decimal.Decimal) int {
	n := 0
	for n < len(t.Edges) && t.Edges[n].LessThanOrEqual(accumulated) {
		n++
	}
	return n
}

// Last is the tier that an accumulated quantity ends in.
func (t *Tariff) Last(accumulated decimal.Decimal) int {
	n := 0
	for n < len(t.Edges) && t.Edges[n].LessThan(accumulated) {
		n++
	}
	return n
}

// Account is what the row's quantity is added up under.
func (t *Tariff) Account(metric, resource string, attributes map[string]string) string {
	switch t.Per {
	case plan.PerScope:
		return metric
	case plan.PerResource:
		return metric + "/resource=" + resource
	default:
		return metric + "/" + t.Per + "=" + attributes[t.Per]
	}
}

// Holds says whether an account is one of the metric's under this tariff. A
// metric's name may be the begin of another's, as disk is of disk/io.
func (t *Tariff) Holds(metric, account string) bool {
	if t.Per == plan.PerScope {
		return account == metric
	}
	return strings.HasPrefix(account, metric+"/"+t.Per+"=")
}

func newTariff(t *plan.Tiers) *Tariff {
	out := &Tariff{ID: t.ID, Kind: t.Kind, Per: t.Per}
	for _, s := range t.All() {
		out.Costs = append(out.Costs, s.Cost)
		if s.UpTo != nil {
			out.Edges = append(out.Edges, *s.UpTo)
		}
	}
	return out
}

// tiers is a service's tiers, compiled.
type tiers struct {
	*plan.Tiers
	tariff *Tariff
}

// addTiers takes in the tiers of the plan.
func (e *Evaluator) addTiers(p *plan.Plan) error {
	for i := range p.Services {
		in := &p.Services[i]
		if len(in.Tiers) == 0 {
			continue
		}
		s := e.service(in.Name)
		if len(in.Mappings)+len(in.Thresholds)+len(in.Fields) > 0 {
			return fmt.Errorf("service %s has tiers and other rules: a metric is priced by one or the other", in.Name)
		}
		for j := range p.Expressions {
			if x := &p.Expressions[j]; x.Metric == "" || x.Metric == in.Name {
				return fmt.Errorf("expression %s applies to %s, which has tiers", x.ID, in.Name)
			}
		}
		for j := range in.Tiers {
			t := &in.Tiers[j]
			s.tiers = append(s.tiers, tiers{t, newTariff(t)})
			if t.Scope != "" {
				s.scopes[t.Scope] = true
			}
			if t.Per != plan.PerScope && t.Per != plan.PerResource {
				s.extra = append(s.extra, t.Per)
			}
			e.boundary(t.Start)
			e.boundary(t.End)
		}
	}
	return nil
}

// HasTiers says whether the metric's price can depend on the month so far.
func (e *Evaluator) HasTiers(metric string) bool { return len(e.lookup(metric).tiers) > 0 }

// Tariff is the tiers that price the metric for the scope in a period that
// begins at t; nil if there are none. Fold then says which usage they price: that
// which it calls unpriced. The rest is skipped or rejected.
func (e *Evaluator) Tariff(metric, scope string, t time.Time) *Tariff {
	s := e.lookup(metric)
	if len(s.tiers) == 0 || !slices.Contains(e.modulesFor(scope), plan.Hashmap) {
		return nil
	}
	var general *Tariff
	for _, x := range s.tiers {
		switch {
		case !x.ValidAt(t):
		case x.Scope == scope && scope != "":
			return x.tariff
		case x.Scope == "":
			general = x.tariff
		}
	}
	return general
}

// TierRow is one usage row of a period.
type TierRow struct {
	Region, Resource string
	Attributes       map[string]string
	Facts            map[string]string // what rules see, if that is more than the attributes, which say the order
	Qty              decimal.Decimal
}

func (r *TierRow) facts() map[string]string {
	if r.Facts != nil {
		return r.Facts
	}
	return r.Attributes
}

// JoinParts puts rows that tiers cut together again: of those that differ in
// their quantity only it makes one. The rows come in the order in which they
// draw on accounts.
func JoinParts(parts []TierRow) []TierRow {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b TierRow) int { return a.Compare(&b) })
	var out []TierRow
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].Compare(&p) == 0 {
			out[n-1].Qty = out[n-1].Qty.Add(p.Qty)
			continue
		}
		out = append(out, p)
	}
	return out
}

// TierLine is one line that a period's usage rows come to.
type TierLine struct {
	Row     int // index of the usage row; of an adjustment -1
	Part    int // of the lines of one row, from 0; AdjustmentPart
	Account string
	Region  string
	Qty     decimal.Decimal
	Result
}

// PriceTiers prices all rows of a metric in one period of a scope, given what
// each account has added up in the month before it. It returns the lines, the
// rows in the order in which they draw on the accounts, adjustments last, and
// what the period adds to each account.
func (e *Evaluator) PriceTiers(metric, scope string, begin time.Time, rows []TierRow, before map[string]decimal.Decimal) (lines []TierLine, used map[string]decimal.Decimal) {
	tariff := e.Tariff(metric, scope, begin)
	apart := make([]Result, len(rows))
	for i := range rows {
		apart[i] = e.apart(metric, scope, begin, rows[i])
	}
	return tariff.price(metric, rows, func(i int) (Result, bool) { return apart[i], tariff == nil || apart[i].Bucket != Unpriced }, before)
}

// Price is PriceTiers for rows all of which the tariff prices.
func (t *Tariff) Price(metric string, rows []TierRow, before map[string]decimal.Decimal) (lines []TierLine, used map[string]decimal.Decimal) {
	return t.price(metric, rows, func(int) (Result, bool) { return Result{}, false }, before)
}

// price prices rows but those that are apart, whose result is known.
func (t *Tariff) price(metric string, rows []TierRow, apart func(int) (Result, bool), before map[string]decimal.Decimal) (lines []TierLine, used map[string]decimal.Decimal) {
	used = map[string]decimal.Decimal{}
	regions := map[string]string{}
	order := make([]int, len(rows))
	for i := range rows {
		r := &rows[i]
		order[i] = i
		if _, ok := apart(i); ok {
			continue
		}
		account := t.Account(metric, r.Resource, r.facts())
		used[account] = used[account].Add(decimal.Max(r.Qty, decimal.Zero))
		if region, ok := regions[account]; !ok || r.Region < region {
			regions[account] = r.Region
		}
	}
	slices.SortFunc(order, func(i, j int) int { return rows[i].Compare(&rows[j]) })
	drawn := maps.Clone(before)
	if drawn == nil {
		drawn = map[string]decimal.Decimal{}
	}
	for _, i := range order {
		r := &rows[i]
		if result, ok := apart(i); ok {
			lines = append(lines, TierLine{Row: i, Region: r.Region, Qty: r.Qty, Result: result})
			continue
		}
		account := t.Account(metric, r.Resource, r.facts())
		parts := []part{{t.Last(before[account].Add(used[account])), r.Qty}}
		if t.Kind == plan.Graduated {
			parts = t.cut(drawn[account], r.Qty)
		}
		drawn[account] = drawn[account].Add(decimal.Max(r.Qty, decimal.Zero))
		for n, p := range parts {
			lines = append(lines, TierLine{Row: i, Part: n, Account: account, Region: r.Region, Qty: p.qty, Result: tierResult(t.Costs[p.tier], p.qty, t.Rule(p.tier))})
		}
	}
	if t == nil || t.Kind != plan.Volume {
		return lines, used
	}
	for _, account := range slices.Sorted(maps.Keys(used)) {
		was := before[account]
		old, now := t.Last(was), t.Last(was.Add(used[account]))
		if r, ok := t.Adjustment(old, now, was); ok {
			lines = append(lines, TierLine{Row: -1, Part: AdjustmentPart, Account: account, Region: regions[account], Qty: was, Result: r})
		}
	}
	return lines, used
}

// Month is what a quantity accumulated over a month comes to, by rule, exact but
// for the rounding of its lines.
func (t *Tariff) Month(accumulated decimal.Decimal) map[string]decimal.Decimal {
	if t.Kind == plan.Volume {
		last := t.Last(accumulated)
		return map[string]decimal.Decimal{t.Rule(last): Round(t.Costs[last].Mul(accumulated))}
	}
	out := map[string]decimal.Decimal{}
	for _, p := range t.cut(decimal.Zero, accumulated) {
		out[t.Rule(p.tier)] = Round(t.Costs[p.tier].Mul(p.qty))
	}
	return out
}

// Adjustment is what bringing an accumulated quantity from one volume tier to
// another comes to, and whether there is anything to bring.
func (t *Tariff) Adjustment(old, now int, accumulated decimal.Decimal) (Result, bool) {
	change := t.Costs[now].Sub(t.Costs[old])
	if !accumulated.IsPositive() || change.IsZero() {
		return Result{}, false
	}
	return tierResult(change, accumulated, t.Rule(now)), true
}

// apart is the result of a row that tiers do not price: skipped, rejected, or
// unpriced, which is what tiers price if there are any.
func (e *Evaluator) apart(metric, scope string, begin time.Time, r TierRow) Result {
	f := e.Fold(metric, scope, r.facts(), begin)
	if reason := cmp.Or(f.Reject, f.PerPoint); reason != "" {
		return Result{Bucket: Rejected, Reason: reason}
	}
	s := f.At(r.Qty)
	switch {
	case s.Reject != "":
		return Result{Bucket: Rejected, Reason: s.Reject}
	case s.Skip:
		return Result{Bucket: Skipped}
	default:
		return Result{Bucket: Unpriced}
	}
}

func tierResult(cost, qty decimal.Decimal, rule string) Result {
	r := Result{Price: Round(cost.Mul(qty)), Rule: rule, step: &Step{A: cost}, qty: qty}
	if outOfRange(r.Price) {
		return Result{Bucket: Rejected, Reason: OutOfRange}
	}
	return r
}

// part is the part of a row's quantity that lies in one tier.
type part struct {
	tier int
	qty  decimal.Decimal
}

// cut cuts a quantity that follows an accumulated one at the edges.
func (t *Tariff) cut(accumulated, qty decimal.Decimal) []part {
	tier := t.Next(accumulated)
	if !qty.IsPositive() {
		return []part{{tier, qty}}
	}
	var out []part
	end := accumulated.Add(qty)
	for ; tier < len(t.Edges) && t.Edges[tier].LessThan(end); tier++ {
		out = append(out, part{tier, t.Edges[tier].Sub(accumulated)})
		accumulated = t.Edges[tier]
	}
	return append(out, part{tier, end.Sub(accumulated)})
}

// Compare is the order in which rows of a period draw on an account: resource,
// region, attributes by name, all byte by byte.
func (r *TierRow) Compare(o *TierRow) int {
	if c := cmp.Or(strings.Compare(r.Resource, o.Resource), strings.Compare(r.Region, o.Region)); c != 0 {
		return c
	}
	a, b := slices.Sorted(maps.Keys(r.Attributes)), slices.Sorted(maps.Keys(o.Attributes))
	for i := range min(len(a), len(b)) {
		if c := cmp.Or(strings.Compare(a[i], b[i]), strings.Compare(r.Attributes[a[i]], o.Attributes[b[i]])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// priceTiers prices a point alone, as the only usage of its period: the sum of
// its lines.
func (e *Evaluator) priceTiers(p *Point) (Result, []TierLine) {
	row := TierRow{Qty: p.Qty, Attributes: p.Attributes}
	before := map[string]decimal.Decimal{}
	if t := e.Tariff(p.Metric, p.Scope, p.Begin); t != nil {
		before[t.Account(p.Metric, "", p.Attributes)] = p.Before
	}
	lines, _ := e.PriceTiers(p.Metric, p.Scope, p.Begin, []TierRow{row}, before)
	if len(lines) == 1 {
		return lines[0].Result, lines
	}
	var sum Result
	var rules []string
	for _, l := range lines {
		if l.Bucket != Priced {
			return l.Result, lines
		}
		sum.Price = sum.Price.Add(l.Price)
		rules = append(rules, l.Rule)
	}
	sum.Rule = strings.Join(slices.Compact(rules), "+")
	if outOfRange(sum.Price) {
		return Result{Bucket: Rejected, Reason: OutOfRange}, lines
	}
	return sum, lines
}

// explainTiers says which tiers a point's quantity falls into.
func (e *Evaluator) explainTiers(p *Point) Trace {
	result, lines := e.priceTiers(p)
	x := Trace{Result: result}
	if result.Bucket != Priced {
		x.Arithmetic = append(x.Arithmetic, strings.TrimSpace(string(result.Bucket)+" "+result.Reason))
		return x
	}
	t := e.Tariff(p.Metric, p.Scope, p.Begin)
	x.Arithmetic = append(x.Arithmetic, fmt.Sprintf("%s tiers %s per %s, %s used in the month before", t.Kind, t.ID, t.Per, p.Before))
	for _, l := range lines {
		what := "tier " + l.Rule
		if l.Part == AdjustmentPart {
			what = "adjustment of the month before to tier " + l.Rule
		}
		x.Arithmetic = append(x.Arithmetic, fmt.Sprintf("%s: %s × %s = %s", what, l.step.A, l.Qty, l.Price))
	}
	if len(lines) > 1 {
		x.Arithmetic = append(x.Arithmetic, "sum "+result.Price.String())
	}
	return x
}
