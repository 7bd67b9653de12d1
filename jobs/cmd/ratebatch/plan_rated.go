package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// planArgument reads a plan by the number of its version, or a draft from a file.
func (p *program) planArgument(ctx context.Context, s *store.Store, v versioned, arg string) (store.Version, error) {
	if _, err := os.Stat(arg); err != nil {
		return p.version(ctx, s, v, []string{arg})
	}
	body, err := p.readArg(arg, v.limit)
	if err != nil {
		return store.Version{}, err
	}
	digest, currency, warnings, err := v.read(arg, body)
	if err != nil {
		return store.Version{}, err
	}
	for _, w := range warnings {
		fmt.Fprintf(p.stderr, "warning: %s\n", w)
	}
	return store.Version{Digest: digest, Body: string(body), Currency: currency}, nil
}

// planName is what a plan is called in messages.
func planName(v store.Version, arg string) string {
	if v.Version > 0 {
		return fmt.Sprintf("version %d", v.Version)
	}
	return arg
}

// ratedOptions say what plan diff --rated and plan simulate look at.
type ratedOptions struct {
	rated               bool
	from, to, maxChange string
	metrics             []string
}

func (o *ratedOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.rated, "rated", false, "rate the stored usage of a window by both and compare the prices; writes nothing")
	f.StringVar(&o.from, "from", "", "with --rated: first moment of the usage; default: the begin of the last whole month")
	f.StringVar(&o.to, "to", "", "with --rated: first moment no longer looked at; default: the end of that month")
	f.StringVar(&o.maxChange, "max-change", "", "with --rated: exit 20 if the price of any project changes by more than this many percent")
	f.StringSliceVar(&o.metrics, "metrics", nil, "with --rated: versions of the metric sets for A and B; default: the one in force")
}

// window is the usage that is looked at.
func (o *ratedOptions) window(c ratebatch.Calendar, now time.Time) (from, to time.Time, err error) {
	last := c.MonthAt(c.MonthAt(now).From.Add(-time.Second))
	from, to = last.From, last.To
	if o.from != "" {
		if from, err = parseMoment("from", o.from); err != nil {
			return from, to, err
		}
		to = c.MonthAt(from).To
	}
	if o.to != "" {
		to, err = parseMoment("to", o.to)
	}
	return from, to, err
}

// ofMonth looks at a month's usage.
func (o *ratedOptions) ofMonth(c ratebatch.Calendar, month string, now time.Time) error {
	m, err := monthOf(c, month, now)
	o.from, o.to = m.From.Format(time.RFC3339), m.To.Format(time.RFC3339)
	return err
}

func parsePercent(text string) (decimal.Decimal, error) {
	d, err := plan.ParseNumber(text, 9, 9)
	if err != nil || d.IsNegative() {
		return d, &ratebatch.ConfigError{Err: fmt.Errorf("--max-change %q", text), Hint: "write a percentage such as 5 or 2.5"}
	}
	return d, nil
}

// whatIfJob is the rate job as the what-ifs use it.
func (p *program) whatIfJob(ctx context.Context, s *store.Store) (*rate.Job, error) {
	b, err := readBilling(ctx, s)
	if err != nil {
		return nil, err
	}
	var o rateOptions
	options, err := o.settle(ctx, s, rate.Options{Now: p.now(), Calendar: b.Calendar})
	return &rate.Job{Store: s, Log: p.log, Options: options}, err
}

// metricsVersion is a metric set by its number, or the one in force.
func (p *program) metricsVersion(ctx context.Context, s *store.Store, number string, at time.Time) (store.Version, error) {
	if number != "" {
		return p.version(ctx, s, versioned{kind: store.MetricVersions, noun: "metric set"}, []string{number})
	}
	versions, err := s.Versions(ctx, store.MetricVersions)
	if err != nil {
		return store.Version{}, err
	}
	if span := store.InForce(versions, at, at.Add(time.Second))[0]; span.Version != nil {
		return *span.Version, nil
	}
	return store.Version{Body: string(metric.Default())}, nil
}

// compareRated prices stored usage by two plans.
func (p *program) compareRated(ctx context.Context, s *store.Store, plans [2]store.Version, names [2]string, o ratedOptions) (rate.Comparison, error) {
	job, err := p.whatIfJob(ctx, s)
	if err != nil {
		return rate.Comparison{}, err
	}
	from, to, err := o.window(job.Options.Calendar, p.now())
	if err != nil {
		return rate.Comparison{}, err
	}
	if plans[0].Currency != plans[1].Currency {
		return rate.Comparison{}, &ratebatch.ConfigError{Err: fmt.Errorf("%s is in %q and %s in %q: their prices cannot be compared", names[0], plans[0].Currency, names[1], plans[1].Currency)}
	}
	if n := len(o.metrics); n != 0 && n != 2 {
		return rate.Comparison{}, &ratebatch.ConfigError{Err: fmt.Errorf("--metrics names %d versions", n), Hint: "write two, such as --metrics 1,2"}
	}
	sides := make([]rate.Side, 2)
	for i := range sides {
		number := ""
		if len(o.metrics) == 2 {
			number = o.metrics[i]
		}
		set, err := p.metricsVersion(ctx, s, number, from)
		if err != nil {
			return rate.Comparison{}, err
		}
		sides[i] = rate.Side{Name: names[i], Plan: plans[i], Metrics: set}
	}
	amounts, err := job.WhatIf(ctx, sides, from, to)
	if err != nil {
		return rate.Comparison{}, err
	}
	c := rate.Compare(from, to, amounts[0], amounts[1])
	var held [2][]string
	for i, side := range sides {
		parsed, err := plan.Parse(names[i], []byte(side.Plan.Body))
		if err != nil {
			return rate.Comparison{}, err
		}
		held[i] = rate.NotJudged(parsed, job.Options.Calendar, from, to)
	}
	for i, list := range held {
		for _, what := range list {
			if !slices.Contains(held[1-i], what) {
				c.Unseen = append(c.Unseen, what)
			}
			if !slices.Contains(c.NotJudged, what) { // both plans may hold it
				c.NotJudged = append(c.NotJudged, what)
			}
		}
	}
	return c, nil
}

// guard fails when prices change by more than was allowed, or may do so without
// being seen: a guard that passes must have judged all that the plans differ in.
func guard(c rate.Comparison, maxChange string) error {
	if maxChange == "" {
		return nil
	}
	percent, err := parsePercent(maxChange)
	if err != nil {
		return err
	}
	past := c.Past(percent)
	if len(past) == 0 && len(c.Unseen) > 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--max-change: usage of %s to %s does not show all that these do: %s", c.From.Format(time.RFC3339), c.To.Format(time.RFC3339), ratebatch.Some(c.Unseen, 5)),
			Hint: "look at the prices in a version of the plan without their dates ('ratebatch plan diff A B --rated') and in whole months, and leave out --max-change"}
	}
	if len(past) == 0 {
		return nil
	}
	x := past[0]
	return &ratebatch.HaltError{Err: fmt.Errorf("the price of %d of %d projects changes by more than %s %%; first %s: %s instead of %s", len(past), len(c.Projects), percent, x.Name, x.After, x.Before),
		Hint: "look at it with 'ratebatch plan diff A B --rated', or allow more with --max-change"}
}

func (p *program) printComparison(c rate.Comparison, currency string) {
	const movers = 10
	rowf(p.stdout, "usage of %s to %s\n", c.From.Format(time.RFC3339), c.To.Format(time.RFC3339))
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	list := func(title string, changes []rate.Change) {
		rowf(w, "\n%s\tBEFORE\tAFTER\tDIFFERENCE\tPERCENT\n", title)
		for i, x := range changes {
			if i == movers {
				rowf(w, "and %d more\t\t\t\t\n", len(changes)-movers)
				break
			}
			percent := "new"
			if x.Percent != nil {
				percent = x.Percent.String()
			}
			rowf(w, "%s\t%s\t%s\t%s\t%s\n", x.Name, x.Before, x.After, x.Difference, percent)
		}
	}
	list("TOTAL "+currency, []rate.Change{c.Total})
	list("PROJECT", c.Projects)
	list("METRIC", c.Metrics)
	list("RULE", c.Rules)
	w.Flush()
	if c.P50 != nil {
		rowf(p.stdout, "\nhalf of the projects change by at most %s %%, 95 of 100 by at most %s %%\n", c.P50, c.P95)
	}
	if len(c.NotJudged) > 0 {
		rowf(p.stdout, "\nwarning: this usage does not show all that these do:\n")
		for _, what := range c.NotJudged {
			rowf(p.stdout, "  %s\n", what)
		}
	}
}

// guardApply compares the plan that would be applied with the one in force, on
// the usage of a month, by default the last whole one. Without usage there is
// nothing to judge by, and a guard that passes then guards nothing.
func (p *program) guardApply(ctx context.Context, s *store.Store, versions []store.Version, next store.Version, o applyOptions) error {
	if _, err := parsePercent(o.maxChange); err != nil {
		return err
	}
	span := store.InForce(versions, next.ValidFrom, next.ValidFrom.Add(time.Second))[0]
	if span.Version == nil {
		return &ratebatch.ConfigError{Err: errors.New("--max-change: no rate plan is in force to compare with")}
	}
	var window ratedOptions
	if o.changeMonth != "" {
		b, err := readBilling(ctx, s)
		if err != nil {
			return err
		}
		if err := window.ofMonth(b.Calendar, o.changeMonth, p.now()); err != nil {
			return err
		}
	}
	c, err := p.compareRated(ctx, s, [2]store.Version{*span.Version, next}, [2]string{planName(*span.Version, ""), "the new plan"}, window)
	if err != nil {
		return err
	}
	if len(c.Projects) == 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--max-change: there is no usage from %s to %s to judge the plan by", c.From.Format(time.RFC3339), c.To.Format(time.RFC3339)),
			Hint: "name a month with usage (--max-change-month), or leave out --max-change"}
	}
	return guard(c, o.maxChange)
}

func (p *program) planSimulateCmd(v versioned) *cobra.Command {
	var month, csvFile, svgFile string
	var metrics []string
	cmd := &cobra.Command{
		Use:   "simulate PLAN",
		Short: "Show what each project would pay next month by a plan, from last month's usage",
		Long: `Simulate rates a month's stored usage by a plan, a file or the number of a
version, beside the plan in force, and writes nothing to the database. Tiers,
allowances, discounts, minimums and caps count as they would. Rules count as they
held in that month: what begins or ends to hold after its begin is named.

` + exitCodesHelp,
		Example: `  ratebatch plan simulate draft.yaml
  ratebatch plan simulate draft.yaml --month 2026-11 --csv prices.csv --svg prices.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				b, err := readBilling(ctx, s)
				if err != nil {
					return err
				}
				o := ratedOptions{metrics: metrics}
				if month != "" {
					if err := o.ofMonth(b.Calendar, month, p.now()); err != nil {
						return err
					}
				}
				from, _, err := o.window(b.Calendar, p.now())
				if err != nil {
					return err
				}
				draft, err := p.planArgument(ctx, s, v, args[0])
				if err != nil {
					return err
				}
				versions, err := s.Versions(ctx, v.kind)
				if err != nil {
					return err
				}
				current := draft
				if span := store.InForce(versions, from, from.Add(time.Second))[0]; span.Version != nil {
					current = *span.Version
				}
				c, err := p.compareRated(ctx, s, [2]store.Version{current, draft}, [2]string{planName(current, args[0]), planName(draft, args[0])}, o)
				if err != nil {
					return err
				}
				for _, out := range []struct {
					file  string
					write func(io.Writer, rate.Comparison, string) error
				}{{csvFile, writePricesCSV}, {svgFile, writePricesSVG}} {
					if err := writeFile(out.file, func(w io.Writer) error { return out.write(w, c, draft.Currency) }); err != nil {
						return err
					}
				}
				return p.print(c, func() { p.printComparison(c, draft.Currency) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "month", "", "whose usage, "+monthHelp+"; default: the last whole month")
	f.StringVar(&csvFile, "csv", "", "also write a row per project to this file")
	f.StringVar(&svgFile, "svg", "", "also draw the projects as bars into this file")
	f.StringSliceVar(&metrics, "metrics", nil, "versions of the metric sets for the plan in force and the other; default: the one in force")
	return cmd
}

func writeFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return errors.Join(write(f), f.Close())
}

func writePricesCSV(w io.Writer, c rate.Comparison, currency string) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"project", "now", "then", "difference", "percent", "currency"}) // Error below has it
	for _, x := range c.Projects {
		percent := ""
		if x.Percent != nil {
			percent = x.Percent.String()
		}
		_ = out.Write([]string{plainCell(x.Name), x.Before.String(), x.After.String(), x.Difference.String(), percent, currency})
	}
	out.Flush()
	return out.Error()
}

// plainCell keeps a spreadsheet from taking a name for a formula or a number.
func plainCell(text string) string {
	if exporter.NeedsApostrophe(text) {
		return "'" + text
	}
	return text
}

// writePricesSVG draws two bars for each of the projects that change most.
func writePricesSVG(w io.Writer, c rate.Comparison, currency string) error {
	const most, row, left, width = 30, 34, 220, 480
	projects := c.Projects[:min(most, len(c.Projects))]
	top := decimal.New(1, -18)
	for _, x := range projects {
		top = decimal.Max(top, x.Before, x.After)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+160, 50+row*len(projects))
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">Price per project in %s: now (grey) and then (blue)</text>`+"\n", html.EscapeString(currency))
	for i, x := range projects {
		y := 40 + row*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+16, html.EscapeString(x.Name))
		for n, bar := range []struct {
			price decimal.Decimal
			color string
		}{{x.Before, "#999999"}, {x.After, "#0072b2"}} {
			length := decimal.Max(bar.price, decimal.Zero).Mul(decimal.New(width, 0)).DivRound(top, 1)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%s" height="12" fill="%s"/><text x="%s" y="%d">%s</text>`+"\n",
				left, y+n*14, length, bar.color, length.Add(decimal.New(left+6, 0)), y+n*14+11, bar.price.RoundBank(2))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
