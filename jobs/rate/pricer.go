package rate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// window is a stretch of a pass in which the rules in force do not change.
type window struct {
	begin     time.Time
	version   *store.Version
	evaluator *hashmap.Evaluator
}

// pricer knows, for one attempt, what everything costs.
type pricer struct {
	attempt *attempt
	summary store.PassSummary
	set     *metric.Set
	windows []window
	metrics []*metricPricer
	plans   []*plan.Plan
	planOf  map[string]*plan.Plan // by the digest of its version
	// everything is for what-ifs: all usage of the window, and nothing is written.
	everything bool
}

// metricPricer is what a pass needs of one metric.
type metricPricer struct {
	metric     *metric.Metric
	fields     []string
	scopes     []string
	expression pricing.Expression
	tiers      *tierPricer // nil: no price of it depends on the month so far
	rows       uint64
}

func newPricer(a *attempt, set *metric.Set, summary store.PassSummary) (*pricer, error) {
	p := &pricer{attempt: a, set: set, summary: summary, planOf: map[string]*plan.Plan{}}
	evaluators := map[string]*hashmap.Evaluator{}
	for _, span := range store.InForce(a.pass.plan.terms.plans, a.ids.From, a.ids.To) {
		if span.Version == nil {
			continue // no period of it is due
		}
		e := evaluators[span.Version.Digest]
		if e == nil {
			parsed, err := plan.Parse(fmt.Sprintf("rate plan version %d", span.Version.Version), []byte(span.Version.Body))
			if err != nil {
				return nil, err
			}
			if e, err = hashmap.Compile(parsed, hashmap.Options{Units: units(set)}); err != nil {
				return nil, err
			}
			evaluators[span.Version.Digest] = e
			p.plans = append(p.plans, parsed)
			p.planOf[span.Version.Digest] = parsed
		}
		begins := []time.Time{span.Begin}
		for _, b := range e.Boundaries() {
			// Rules count at a period's begin, and periods begin at whole seconds.
			if b = ceilSecond(b); b.After(begins[len(begins)-1]) && b.Before(span.End) {
				begins = append(begins, b)
			}
		}
		for _, begin := range begins {
			p.windows = append(p.windows, window{begin, span.Version, e})
		}
	}
	for _, m := range set.Metrics {
		mp := &metricPricer{metric: m}
		for _, e := range evaluators {
			mp.fields = append(mp.fields, e.Fields(m.Name)...)
			mp.scopes = append(mp.scopes, e.ScopesWithRules(m.Name)...)
		}
		slices.Sort(mp.fields)
		mp.fields = slices.Compact(mp.fields)
		slices.Sort(mp.scopes)
		mp.scopes = slices.Compact(mp.scopes)
		p.metrics = append(p.metrics, mp)
	}
	return p, nil
}

// units has the unit of each metric, for expressions that look at it.
func units(set *metric.Set) map[string]string {
	out := make(map[string]string, len(set.Metrics))
	for _, m := range set.Metrics {
		out[m.Name] = m.Unit
	}
	return out
}

func ceilSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		return whole.Add(time.Second)
	}
	return t
}

// dense says whether, of every scope that has a due period, every period in the
// pass's window is due, as in a steady hour and in most of a catch-up: then a
// usage row is kept by its scope alone, which the engine decides once per scope
// and not once per row.
func (p *pricer) dense() bool {
	window, period := p.attempt.ids.To.Sub(p.attempt.ids.From), p.attempt.ids.Period
	return p.summary.Lost == 0 && window%period == 0 && p.summary.Periods == p.summary.Scopes*uint64(window/period)
}

// boundaries are the instants at which windows after the first begin.
func (p *pricer) boundaries() []time.Time {
	out := make([]time.Time, 0, len(p.windows))
	for _, w := range p.windows[1:] {
		out = append(out, w.begin)
	}
	return out
}

// dueOnly and dueScopes keep usage to the periods that the attempt rates.
const (
	dueOnly   = "(scope, begin) IN (SELECT scope, begin FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost)"
	dueScopes = "scope IN (SELECT DISTINCT scope FROM pass_periods WHERE run_id = {run_id:UUID})"
)

func (p *pricer) usage(mp *metricPricer, attributes bool) (string, error) {
	o := metric.UsageOptions{Period: p.attempt.ids.Period, Fields: mp.fields, Attributes: attributes, Dedup: p.attempt.dedup, Filter: dueOnly}
	switch {
	case p.everything:
		o.Filter = ""
	case p.dense():
		o.Filter = dueScopes
	}
	return mp.metric.UsageSQL(o)
}

// fold finds the combinations that occur in the usage, prices each once with
// the exact evaluator, and writes the expressions.
func (p *pricer) fold(ctx context.Context) error {
	for _, mp := range p.metrics {
		combos, err := p.combos(ctx, mp)
		if err != nil {
			return fmt.Errorf("metric %s: %w", mp.metric.Name, err)
		}
		if len(combos) == 0 {
			continue
		}
		if p.hasTiers(mp) {
			if err := p.foldTiers(ctx, mp, combos); err != nil {
				return fmt.Errorf("metric %s: %w", mp.metric.Name, err)
			}
			continue
		}
		mp.expression, err = pricing.Build(pricing.Input{Boundaries: p.boundaries(), Scopes: mp.scopes, Fields: len(mp.fields), Combos: combos})
		if err != nil {
			return fmt.Errorf("metric %s: %w", mp.metric.Name, err)
		}
	}
	return nil
}

// combos asks which combinations of window, scope class and rule-field values
// occur, with the smallest and largest quantity of each.
func (p *pricer) combos(ctx context.Context, mp *metricPricer) ([]pricing.Combo, error) {
	usage, err := p.usage(mp, false)
	if err != nil {
		return nil, err
	}
	columns := pricing.ComboColumns(p.boundaries(), mp.scopes, len(mp.fields))
	values := "[]::Array(String)"
	if len(mp.fields) > 0 {
		names := make([]string, len(mp.fields))
		for i := range mp.fields {
			names[i] = fmt.Sprintf("toString(f_%d)", i)
		}
		values = "[" + strings.Join(names, ", ") + "]"
	}
	text := fmt.Sprintf("SELECT %s AS window_, %s AS class_, %s AS values_, count(), min(qty), max(qty)\nFROM (%s)\nGROUP BY window_, class_, values_",
		columns[0], columns[1], values, usage)
	rows, err := p.attempt.pass.job.Store.QueryPass(ctx, p.attempt.ids, text, p.attempt.query())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []pricing.Combo
	for rows.Next() {
		var number uint16
		var class uint32
		var count uint64
		var c pricing.Combo
		if err := rows.Scan(&number, &class, &c.Values, &count, &c.Min, &c.Max); err != nil {
			return nil, err
		}
		c.Window, c.Class = int(number), int(class)
		c.Folded = p.foldOne(mp, c)
		mp.rows += count
		out = append(out, c)
	}
	return out, rows.Err()
}

func (p *pricer) foldOne(mp *metricPricer, c pricing.Combo) hashmap.Folded {
	w := p.windows[c.Window]
	scope := ""
	if c.Class > 0 {
		scope = mp.scopes[c.Class-1]
	}
	return w.evaluator.Fold(mp.metric.Name, scope, present(mp.fields, c.Values), w.begin)
}

// present maps field names to values; an empty value means that the usage does
// not have the attribute.
func present(fields, values []string) map[string]string {
	out := make(map[string]string, len(fields))
	for i, f := range fields {
		if values[i] != "" {
			out[f] = values[i]
		}
	}
	return out
}

// statement is the SELECT of the pass's one INSERT … SELECT.
func (p *pricer) statement() string {
	var branches []string
	for _, mp := range p.metrics {
		if mp.rows == 0 {
			continue
		}
		usage, err := p.usage(mp, true)
		if err != nil {
			panic(err) // it was written once already, for the combinations
		}
		if mp.tiers != nil {
			branches = append(branches, p.tierBranches(mp, usage)...)
			continue
		}
		branches = append(branches, fmt.Sprintf(`SELECT %s
FROM (
    SELECT region, scope, begin, resource, attributes, qty,
    %s
    FROM (SELECT *,
    %s
    FROM (
%s))
    WHERE %s) AS l%s`, p.lineColumns(mp), mp.expression.Columns, mp.expression.Inner, usage, mp.expression.Known, p.revisionJoin()))
	}
	return strings.Join(branches, "\nUNION ALL\n")
}

func (p *pricer) lineColumns(mp *metricPricer) string {
	revision := fmt.Sprintf("toUInt32(%d)", p.summary.HighestRevision)
	if p.mixedRevisions() {
		revision = "r.revision"
	}
	return fmt.Sprintf("{run_id:UUID}, l.region, l.scope, l.begin, l.begin + {period:UInt32}, %s, l.resource, l.attributes, %s, l.qty, l.price, l.rule, l.bucket, toUInt16(0), %s",
		sqltext.String(mp.metric.Name), sqltext.String(mp.metric.Unit), revision)
}

// mixedRevisions says whether the due periods are not all at one revision, as
// when some of them were reset or disagree.
func (p *pricer) mixedRevisions() bool { return p.summary.LowestRevision != p.summary.HighestRevision }

func (p *pricer) revisionJoin() string {
	if !p.mixedRevisions() {
		return ""
	}
	return "\nLEFT ANY JOIN (SELECT scope, begin, revision FROM pass_periods WHERE run_id = {run_id:UUID}) AS r ON l.scope = r.scope AND l.begin = r.begin"
}

// goBatch bounds the memory of lines priced in Go.
const goBatch = 10_000

// priceInGo prices the rows that the statement left out because SQL cannot
// hold their price exactly.
func (p *pricer) priceInGo(ctx context.Context) error {
	for _, mp := range p.metrics {
		if mp.rows == 0 || mp.expression.GoKnown == "" {
			continue
		}
		if err := p.priceMetricInGo(ctx, mp); err != nil {
			return fmt.Errorf("metric %s, priced in Go: %w", mp.metric.Name, err)
		}
	}
	return nil
}

func (p *pricer) priceMetricInGo(ctx context.Context, mp *metricPricer) error {
	usage, err := p.usage(mp, true)
	if err != nil {
		return err
	}
	revision := fmt.Sprintf("toUInt32(%d)", p.summary.HighestRevision)
	if p.mixedRevisions() {
		revision = "r.revision"
	}
	text := fmt.Sprintf(`SELECT l.region, l.scope, l.begin, l.resource, l.attributes, l.qty, %s
FROM (SELECT *, %s
    FROM (%s)
    WHERE %s) AS l%s`, revision, mp.expression.Inner, usage, mp.expression.GoKnown, p.revisionJoin())
	s := p.attempt.pass.job.Store
	rows, err := s.QueryPass(ctx, p.attempt.ids, text, p.attempt.query())
	if err != nil {
		return err
	}
	defer rows.Close()
	var lines []store.Line
	sent := 0
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		token := fmt.Sprintf("%s-%s-%d", p.attempt.ids.ID, mp.metric.Name, sent)
		sent++
		err := s.InsertGoLines(ctx, p.attempt.ids, lines, token)
		lines = lines[:0]
		return err
	}
	for rows.Next() {
		l := store.Line{Metric: mp.metric.Name, Unit: mp.metric.Unit}
		if err := rows.Scan(&l.Region, &l.Scope, &l.Begin, &l.Resource, &l.Attributes, &l.Qty, &l.Revision); err != nil {
			return err
		}
		w := p.windowAt(l.Begin)
		result := w.evaluator.Price(&hashmap.Point{Metric: l.Metric, Scope: l.Scope, Unit: l.Unit, Qty: l.Qty, Attributes: mp.metric.WithImplied(l.Attributes, l.Scope, l.Begin), Begin: l.Begin})
		l.Price, l.Rule, l.Bucket = result.Price, result.Rule, string(result.Bucket)
		if result.Bucket == hashmap.Rejected {
			l.Price, l.Rule = decimal.Zero, result.Reason
		}
		if lines = append(lines, l); len(lines) == goBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return flush()
}

// windowAt is the window that a period beginning at t lies in.
func (p *pricer) windowAt(t time.Time) window {
	i := len(p.windows) - 1
	for i > 0 && t.Before(p.windows[i].begin) {
		i--
	}
	return p.windows[i]
}

// commitTerms say by which plan each part of the pass was rated.
func (p *pricer) commitTerms(metricsDigest string) store.CommitTerms {
	t := store.CommitTerms{Boundaries: []time.Time{}, MetricsDigest: metricsDigest, Author: p.attempt.pass.job.Options.Author,
		Reason: p.attempt.pass.plan.reason, Asked: p.attempt.pass.plan.asked}
	for i, w := range p.windows {
		if i > 0 {
			if w.version == p.windows[i-1].version {
				continue
			}
			t.Boundaries = append(t.Boundaries, w.begin)
		}
		t.PlanDigests = append(t.PlanDigests, w.version.Digest)
		t.Currencies = append(t.Currencies, w.version.Currency)
	}
	return t
}
