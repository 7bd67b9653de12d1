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
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
	"github.com/ratebatch/ratebatch/ratebatch/store"
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
	for i := range c.Points {
		p := &c.Points[i]
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
	if len(combos) == 0 {
		return out, nil
	}
	e, err := pricing.Build(pricing.Input{Fields: 1, Combos: combos})
	if err != nil {
		return nil, err
	}
	asked := map[int]bool{}
	source := fmt.Sprintf(`(SELECT x.1 AS n, toDateTime(0, 'UTC') AS begin, '' AS scope, toLowCardinality(toString(x.1)) AS f_0, toDecimal128(x.2, 18) AS qty
FROM (SELECT arrayJoin(CAST(%s, 'Array(Tuple(UInt32, String))')) AS x))`, store.QuoteString("["+strings.Join(rows, ",")+"]"))
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
