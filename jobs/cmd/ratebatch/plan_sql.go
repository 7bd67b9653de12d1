package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap/casefile"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// allPricers are the ways of pricing that need no ClickHouse, and the SQL of a
// pass: on the server of --clickhouse, else on an embedded engine in a folder
// of its own.
func (p *program) allPricers(ctx context.Context, use func(...casefile.Pricer) error) (err error) {
	o := p.engine
	if o.URL == "" {
		var dir string
		if dir, err = os.MkdirTemp("", "ratebatch-plan-test-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		o.DataDir = dir
	}
	o.Database = ""
	e, err := engine.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := e.Close(); err == nil {
			err = closeErr
		}
	}()
	return use(casefile.Go{}, casefile.Folded{}, &sqlPricer{conn: e.Conn()})
}

// sqlPricer prices a case's points as a pass does: folded in Go, multiplied and
// rounded in SQL, and in Go again where SQL cannot hold a price.
type sqlPricer struct {
	conn driver.Conn
}

// Name is the pricer's name in reports.
func (*sqlPricer) Name() string { return "folded SQL" }

// maxQty bounds what a usage table holds.
var maxQty = decimal.New(1, 20)

// Price asks one statement for all points that a usage table can hold.
func (s *sqlPricer) Price(ctx context.Context, c *casefile.Case) ([]casefile.Answer, error) {
	evaluator, err := c.Evaluator()
	if err != nil {
		return nil, err
	}
	out := make([]casefile.Answer, len(c.Points))
	var combos []pricing.Combo
	var rows []string
	tiered := map[string][]int{}
	for i := range c.Points {
		p := &c.Points[i]
		if evaluator.HasTiers(p.Metric) {
			tiered[p.Metric] = append(tiered[p.Metric], i)
			continue
		}
		folded := evaluator.Fold(p.Metric, p.Scope, p.Attributes, p.Begin)
		switch {
		case !p.Qty.Equal(p.Qty.Truncate(hashmap.PriceScale)) || p.Qty.Abs().GreaterThanOrEqual(maxQty):
			out[i].Unasked = "the quantity does not fit a usage table"
			continue
		case !p.PriceIn.IsZero() && folded.PerPoint == "":
			folded = plusPriceIn(folded, p.PriceIn)
		}
		// Each point is a combination of its own, told apart by its number.
		combos = append(combos, pricing.Combo{Values: []string{strconv.Itoa(i)}, Min: p.Qty, Max: p.Qty, Folded: folded})
		rows = append(rows, fmt.Sprintf("(%d, '%s')", i, p.Qty.StringFixed(hashmap.PriceScale)))
	}
	for _, points := range tiered {
		if err := s.priceTiers(ctx, c, evaluator, points, out); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	if len(combos) == 0 {
		return out, nil
	}
	e, err := pricing.Build(pricing.Input{Fields: 1, Combos: combos})
	if err != nil {
		return nil, err
	}
	asked := map[int]bool{}
	source := fmt.Sprintf(`(SELECT x.1 AS n, toDateTime(0, 'UTC') AS begin, '' AS scope, toLowCardinality(toString(x.1)) AS f_0, toDecimal128(x.2, 18) AS qty
FROM (SELECT arrayJoin(CAST(%s, 'Array(Tuple(UInt32, String))')) AS x))`, sqltext.String("["+strings.Join(rows, ",")+"]"))
	err = s.each(ctx, fmt.Sprintf("SELECT n, price, rule, bucket FROM (SELECT n, %s FROM (SELECT *, %s FROM %s) WHERE %s)", e.Columns, e.Inner, source, e.Guard), func(n int, a casefile.Answer, bucket string) {
		asked[n] = true
		if hashmap.Bucket(bucket) == hashmap.Rejected {
			a = casefile.Answer{Rejected: a.Rule}
		}
		out[n] = a
	})
	if err != nil {
		return nil, fmt.Errorf("case %s: %w", c.Name, err)
	}
	for _, combo := range combos {
		i, err := strconv.Atoi(combo.Values[0])
		if err != nil {
			return nil, err
		}
		if asked[i] {
			continue
		}
		if e.GoGuard == "" {
			return nil, fmt.Errorf("case %s: point %d was priced by nobody", c.Name, i)
		}
		r := evaluator.Price(&c.Points[i].Point)
		out[i] = casefile.Answer{Price: r.Price, Rule: r.Rule}
		if r.Bucket == hashmap.Rejected {
			out[i].Rejected = r.Reason
		}
	}
	return out, nil
}

// priceTiers prices points of one metric with tiers by the statement's texts of a
// pass: rows are cut at the edges or, by volume, take the tier of the month's
// quantity, and an adjustment is priced in Go.
func (s *sqlPricer) priceTiers(ctx context.Context, c *casefile.Case, evaluator *hashmap.Evaluator, points []int, out []casefile.Answer) error {
	in := pricing.TierInput{Input: pricing.Input{Fields: 1}, Metric: c.Points[points[0]].Metric, Names: []string{"point"}}
	var rows []string
	alone := map[*hashmap.Tariff]*hashmap.Tariff{}
	for _, i := range points {
		p := &c.Points[i]
		if !p.Qty.Equal(p.Qty.Truncate(hashmap.PriceScale)) || p.Qty.Abs().GreaterThanOrEqual(maxQty) || p.Before.Add(p.Qty).GreaterThanOrEqual(maxQty) {
			out[i].Unasked = "the quantity does not fit a usage table"
			continue
		}
		t := evaluator.Tariff(p.Metric, p.Scope, p.Begin)
		if t != nil { // each point has an account of its own
			if alone[t] == nil {
				own := *t
				own.Per = plan.PerScope
				alone[t] = &own
			}
			t = alone[t]
		}
		in.Combos = append(in.Combos, pricing.TierCombo{Combo: pricing.Combo{Values: []string{strconv.Itoa(i)}, Min: p.Qty, Max: p.Qty, Folded: evaluator.Fold(p.Metric, p.Scope, p.Attributes, p.Begin)}, Tariff: t})
		rows = append(rows, fmt.Sprintf("(%d, '%s', '%s')", i, p.Qty.StringFixed(hashmap.PriceScale), p.Before.StringFixed(hashmap.PriceScale)))
	}
	if len(rows) == 0 {
		return nil
	}
	e, err := pricing.BuildTiers(in)
	if err != nil {
		return err
	}
	edges, volume := "CAST('[]', 'Array(Int128)')", "0"
	if len(e.Tariffs()) > 0 {
		edges, volume = fmt.Sprintf("if(%s, %s, CAST('[]', 'Array(Int128)'))", e.Tiered, e.Edges("least(t_, "+fmt.Sprint(len(e.Tariffs()))+")")), e.IsVolume("t_")
	}
	text := fmt.Sprintf(`SELECT n, sum(toDecimal256(price, 18)), arrayStringConcat(arrayMap(x -> x.2, arraySort(groupArray((place_, toString(rule))))), '+'), max(toString(bucket))
FROM (
    SELECT n, place_, %s
    FROM (
        SELECT n, place_, piece_.2 AS q_, %s AS c_
        FROM (
            SELECT n, t_, if(%s, [(toUInt32(1 + arrayCount(x -> x < hi_, edges_)), raw_)], %s) AS pieces_
            FROM (SELECT n, t_, q_ AS raw_, reinterpretAsInt128(before) + greatest(q_, toInt128(0)) AS hi_, %s AS edges_
                  FROM (SELECT *, %s FROM (
                      SELECT x.1 AS n, toDateTime(0, 'UTC') AS begin, '' AS scope, '' AS resource, toLowCardinality(toString(x.1)) AS f_0, toDecimal128(x.2, 18) AS qty, toDecimal128(x.3, 18) AS before
                      FROM (SELECT arrayJoin(CAST(%s, 'Array(Tuple(UInt32, String, String))')) AS x)))
                  WHERE %s))
        ARRAY JOIN pieces_ AS piece_, arrayEnumerate(pieces_) AS place_))
GROUP BY n`, e.Columns, e.Coefficient("t_", "piece_.1"), volume, pricing.Pieces("raw_", "hi_", "edges_"), edges, e.Inner, sqltext.String("["+strings.Join(rows, ",")+"]"), e.Guard)
	asked := 0
	err = s.each(ctx, text, func(n int, a casefile.Answer, bucket string) {
		asked++
		if hashmap.Bucket(bucket) == hashmap.Rejected {
			a = casefile.Answer{Rejected: a.Rule}
		}
		p := &c.Points[n]
		if t := evaluator.Tariff(p.Metric, p.Scope, p.Begin); bucket == "" && t != nil && t.Kind == plan.Volume {
			if more, ok := t.Adjustment(t.Last(p.Before), t.Last(p.Before.Add(decimal.Max(p.Qty, decimal.Zero))), p.Before); ok {
				a.Price = a.Price.Add(more.Price)
			}
		}
		if a.Price.Abs().GreaterThanOrEqual(maxQty) {
			a = casefile.Answer{Rejected: hashmap.OutOfRange}
		}
		out[n] = a
	})
	if err == nil && asked != len(rows) {
		err = fmt.Errorf("%d of %d points of %s were priced", asked, len(rows), in.Metric)
	}
	return err
}

// plusPriceIn lets prices begin at the price before rating, which a table's
// usage never has but recorded cases do.
func plusPriceIn(f hashmap.Folded, in decimal.Decimal) hashmap.Folded {
	steps := make([]hashmap.Step, len(f.Steps))
	for i, s := range f.Steps {
		s.B = s.B.Add(in)
		s.Unpriced = false
		steps[i] = s
	}
	f.Steps = steps
	return f
}

func (s *sqlPricer) each(ctx context.Context, text string, found func(int, casefile.Answer, string)) error {
	rows, err := s.conn.Query(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n uint32
		var a casefile.Answer
		var bucket string
		if err := rows.Scan(&n, &a.Price, &a.Rule, &bucket); err != nil {
			return err
		}
		found(int(n), a, bucket)
	}
	return rows.Err()
}
