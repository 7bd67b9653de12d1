package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type compareOptions struct {
	month, scopeKey, by, tolerance string
	rename                         map[string]string
	most                           int
}

func newCompareCmd(p *program) *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare-cloudkitty FILE…",
		Short: "Compare a month with CloudKitty's dataframes, by scope, metric and period",
		Long: `Compare-cloudkitty reads what CloudKitty rated (JSON of its API v2 or v1, pages one
after another, or the CSV of its client) and shows where a month of Ratebatch
differs: what only one of them has, and quantities and prices that are not the
same. CloudKitty's numbers are binary floats, so --tolerance says which difference
of one value is none.

It exits 20 when anything differs, and writes nothing.

` + exitCodesHelp,
		Example: `  cloudkitty dataframes get -b 2026-11-01 -e 2026-12-01 -f csv > november.csv
  ratebatch compare-cloudkitty --month 2026-11 november.csv
  ratebatch compare-cloudkitty --month 2026-11 --by period --rename cpu=vcpu --output json page1.json page2.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tolerance, err := decimal.NewFromString(o.tolerance)
			if err != nil || tolerance.IsNegative() {
				return &ratebatch.ConfigError{Err: fmt.Errorf("--tolerance %q", o.tolerance), Hint: "write a number such as 0.000001"}
			}
			if o.by != "scope" && o.by != "metric" && o.by != "period" {
				return &ratebatch.ConfigError{Err: fmt.Errorf("--by %q", o.by), Hint: "use scope, metric or period"}
			}
			if err := checkMonth(o.month); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				return p.compare(ctx, s, o, tolerance, args)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.month, "month", "", "month to compare, "+monthHelp+" (required)")
	f.StringVar(&o.scopeKey, "scope-key", "project_id", "what CloudKitty calls a scope ([collect]/scope_key)")
	f.StringVar(&o.by, "by", "metric", "how fine differences are shown: scope, metric (of each scope) or period")
	f.StringVar(&o.tolerance, "tolerance", "0.000001", "a difference of one period's value up to this is none")
	f.StringToStringVar(&o.rename, "rename", nil, "CloudKitty's name of a metric = ours; may be repeated")
	f.IntVar(&o.most, "most", 100, "show at most so many differences; 0: all")
	return cmd
}

// sums are a quantity and a price of both systems.
type sums struct {
	Scope     string          `json:"scope"`
	Metric    string          `json:"metric,omitempty"`
	Begin     *time.Time      `json:"begin,omitempty"`
	Qty       decimal.Decimal `json:"qty"`
	TheirQty  decimal.Decimal `json:"cloudkitty_qty"`
	Price     decimal.Decimal `json:"price"`
	Their     decimal.Decimal `json:"cloudkitty_price"`
	Why       string          `json:"why"` // what of its periods differs
	Periods   int             `json:"periods"`
	Different int             `json:"different_periods"`

	only, theirs, prices, quantities int
}

// comparison is what compare-cloudkitty prints.
type comparison struct {
	Month       string          `json:"month"`
	Points      int             `json:"cloudkitty_points"`
	Compared    int             `json:"compared"` // values: scope × metric × period
	Different   int             `json:"different"`
	Outside     int             `json:"points_outside_the_month"`
	Price       decimal.Decimal `json:"price"`
	Their       decimal.Decimal `json:"cloudkitty_price"`
	Differences []sums          `json:"differences"`
	More        int             `json:"more_differences,omitempty"`
}

type valueKey struct {
	scope, metric string
	begin         int64
}

type valuePair struct{ qty, price, theirQty, theirPrice decimal.Decimal }

func (p *program) compare(ctx context.Context, s *store.Store, o compareOptions, tolerance decimal.Decimal, names []string) error {
	month, err := p.month(ctx, s, o.month, p.now())
	if err != nil {
		return err
	}
	result := comparison{Month: month.String(), Differences: []sums{}}
	values := map[valueKey]*valuePair{}
	at := func(scope, metric string, begin time.Time) *valuePair {
		k := valueKey{scope, metric, begin.Unix()}
		if values[k] == nil {
			values[k] = &valuePair{}
		}
		return values[k]
	}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return &ratebatch.ConfigError{Err: err}
		}
		err = readPoints(name, file, o.scopeKey, func(x point) error {
			result.Points++
			if !month.Contains(x.begin) {
				result.Outside++
				return nil
			}
			if ours, ok := o.rename[x.metric]; ok {
				x.metric = ours
			}
			v := at(x.scope, x.metric, x.begin)
			v.theirQty, v.theirPrice = v.theirQty.Add(x.qty), v.theirPrice.Add(x.price)
			return nil
		})
		file.Close()
		if err != nil {
			return &ratebatch.ConfigError{Err: err}
		}
	}
	lines, err := s.MetricPeriods(ctx, month.From, month.To)
	if err != nil {
		return err
	}
	for _, l := range lines {
		v := at(l.Scope, l.Metric, l.Begin)
		v.qty, v.price = v.qty.Add(l.Qty), v.price.Add(l.Price)
	}
	result.judge(values, o, tolerance)
	if err := p.print(result, func() { printComparison(p, &result) }); err != nil {
		return err
	}
	if result.Different > 0 {
		return &ratebatch.HaltError{Err: fmt.Errorf("%d of %d values differ", result.Different, result.Compared), Hint: "docs/from-cloudkitty.md says where differences come from"}
	}
	if result.Compared == 0 {
		return &ratebatch.ConfigError{Err: errors.New("neither has anything in this month"), Hint: "check --month and the files"}
	}
	return nil
}

// judge compares each value and adds them up as finely as asked for.
func (c *comparison) judge(values map[valueKey]*valuePair, o compareOptions, tolerance decimal.Decimal) {
	groups := map[valueKey]*sums{}
	for k, v := range values {
		c.Compared++
		c.Price, c.Their = c.Price.Add(v.price), c.Their.Add(v.theirPrice)
		g := valueKey{scope: k.scope}
		if o.by != "scope" {
			g.metric = k.metric
		}
		if o.by == "period" {
			g.begin = k.begin
		}
		x := groups[g]
		if x == nil {
			x = &sums{Scope: g.scope, Metric: g.metric}
			if o.by == "period" {
				begin := time.Unix(k.begin, 0).UTC()
				x.Begin = &begin
			}
			groups[g] = x
		}
		x.Periods++
		x.Qty, x.TheirQty = x.Qty.Add(v.qty), x.TheirQty.Add(v.theirQty)
		x.Price, x.Their = x.Price.Add(v.price), x.Their.Add(v.theirPrice)
		byQty, byPrice := v.qty.Sub(v.theirQty).Abs().GreaterThan(tolerance), v.price.Sub(v.theirPrice).Abs().GreaterThan(tolerance)
		if !byQty && !byPrice {
			continue
		}
		c.Different++
		x.Different++
		switch {
		case v.theirQty.IsZero() && v.theirPrice.IsZero():
			x.only++
		case v.qty.IsZero() && v.price.IsZero():
			x.theirs++
		case byQty:
			x.quantities++
		default:
			x.prices++
		}
	}
	for _, x := range groups {
		if x.Different == 0 {
			continue
		}
		for _, w := range []struct {
			n    int
			text string
		}{{x.only, "only here"}, {x.theirs, "only in CloudKitty"}, {x.quantities, "quantity differs"}, {x.prices, "same quantity, price differs"}} {
			if w.n > 0 {
				if x.Why != "" {
					x.Why += ", "
				}
				x.Why += fmt.Sprintf("%s (%d)", w.text, w.n)
			}
		}
		c.Differences = append(c.Differences, *x)
	}
	slices.SortFunc(c.Differences, func(a, b sums) int {
		if d := b.Price.Sub(b.Their).Abs().Cmp(a.Price.Sub(a.Their).Abs()); d != 0 {
			return d // what matters most comes first
		}
		at := func(s sums) int64 {
			if s.Begin == nil {
				return 0
			}
			return s.Begin.Unix()
		}
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Metric, b.Metric), cmp.Compare(at(a), at(b)))
	})
	if o.most > 0 && len(c.Differences) > o.most {
		c.More = len(c.Differences) - o.most
		c.Differences = c.Differences[:o.most]
	}
}

func printComparison(p *program, c *comparison) {
	rowf(p.stdout, "%s: %d of %d values differ; %s here, %s in CloudKitty\n", c.Month, c.Different, c.Compared, c.Price, c.Their)
	if c.Outside > 0 {
		rowf(p.stdout, "%d of %d points lie outside the month and were left out\n", c.Outside, c.Points)
	}
	if len(c.Differences) == 0 {
		return
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tMETRIC\tBEGIN\tQUANTITY\tCLOUDKITTY\tPRICE\tCLOUDKITTY\tDIFFERENCE\tWHY")
	for _, x := range c.Differences {
		begin := "-"
		if x.Begin != nil {
			begin = x.Begin.Format(time.RFC3339)
		}
		rowf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Scope, x.Metric, begin, x.Qty, x.TheirQty, x.Price, x.Their, x.Price.Sub(x.Their), x.Why)
	}
	w.Flush()
	if c.More > 0 {
		rowf(p.stdout, "and %d more (--most 0 shows all)\n", c.More)
	}
}
