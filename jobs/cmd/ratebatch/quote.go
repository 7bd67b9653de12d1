package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// quoteItem is one thing to be priced, as it stands in a JSON file.
type quoteItem struct {
	Metric   string            `json:"metric"`
	Qty      json.Number       `json:"qty"`
	Unit     string            `json:"unit,omitempty"`
	Groupby  map[string]string `json:"groupby,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// quotedItem is its answer.
type quotedItem struct {
	quoteItem
	Price  decimal.Decimal `json:"price"`
	Bucket string          `json:"bucket,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Rule   string          `json:"rule"`
}

// quoted is what quote prints.
type quoted struct {
	Scope    string          `json:"scope"`
	At       time.Time       `json:"at"`
	Plan     string          `json:"plan_digest"`
	Currency string          `json:"currency"`
	Items    []quotedItem    `json:"items"`
	Total    decimal.Decimal `json:"total"`
	Warnings []string        `json:"warnings,omitempty"` // what may be mistyped, and what a month's bill counts beside it
}

type quoteOptions struct {
	metric, qty, unit, scope, at, planFile, from string
	attributes                                   []string
}

func newQuoteCmd(p *program) *cobra.Command {
	var o quoteOptions
	cmd := &cobra.Command{
		Use:   "quote",
		Short: "Say exactly what usage would cost, for any scope and date",
		Long: `Quote prices one item given by flags, or a list of items from a JSON file:

  [{"metric": "instance", "qty": "720", "metadata": {"flavor_name": "m1.small"}}]

by the rate plan in force at --at, or by a plan file. Prices are exact decimals,
rounded once to 18 digits, as a rated line's. What a month's bill counts beside
them (discounts, minimum and cap, what tiers counted before) is said as a warning.
Units and the attributes that rating adds by itself (the scope under its key, the
calendar) come from the metrics in force; with --plan only what is given counts.

` + exitCodesHelp,
		Example: `  ratebatch quote --metric instance --qty 720 --attribute flavor_name=c1.small
  ratebatch quote --scope web-shop --at 2026-11-01 --from items.json
  ratebatch quote --plan plan.yaml --metric network.outgoing --qty 12.5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.quote(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.metric, "metric", "", "metric to price")
	f.StringVar(&o.qty, "qty", "1", "quantity, an exact decimal")
	f.StringVar(&o.unit, "unit", "", "unit, for expressions that look at it")
	f.StringArrayVar(&o.attributes, "attribute", nil, "name=value of groupby or metadata; may be repeated")
	f.StringVar(&o.scope, "scope", "", "scope whose own rules apply; empty: the general ones")
	f.StringVar(&o.at, "at", "", "moment whose rules apply (RFC 3339 or a date); default: now")
	f.StringVar(&o.planFile, "plan", "", "price by this plan file instead of the plan in force")
	f.StringVar(&o.from, "from", "", "JSON file with a list of items; - is the standard input")
	return cmd
}

func (p *program) quote(ctx context.Context, o quoteOptions) error {
	items, err := p.quoteItems(o)
	if err != nil {
		return err
	}
	at := p.now().UTC()
	if o.at != "" {
		if at, err = parseMoment("at", o.at); err != nil {
			return err
		}
	}
	parsed, set, warnings, err := p.planToQuote(ctx, o, items, at)
	if err != nil {
		return err
	}
	var metrics []string
	for i := range items {
		metrics = append(metrics, items[i].Metric)
		if m, ok := set.Get(items[i].Metric); ok && items[i].Unit == "" {
			items[i].Unit = m.Unit
		}
	}
	warnings = append(warnings, web.NotQuoted(parsed, o.scope, metrics, at)...)
	for _, w := range warnings {
		fmt.Fprintf(p.stderr, "ratebatch: warning: %s\n", plain(w))
	}
	evaluator, err := hashmap.Compile(parsed, hashmap.Options{Units: unitsOf(items)})
	if err != nil {
		return err
	}
	out := quoted{Scope: o.scope, At: at, Plan: parsed.Digest(), Currency: parsed.Currency, Items: []quotedItem{}, Warnings: warnings}
	for i, item := range items {
		qty, err := plan.ParseNumber(item.Qty.String(), plan.LevelIntegerDigits, plan.LevelScale) // what usage can have
		if err != nil {
			return &ratebatch.ConfigError{Err: fmt.Errorf("item %d: quantity: %w", i+1, err)}
		}
		attributes := maps.Clone(item.Metadata)
		if attributes == nil {
			attributes = map[string]string{}
		}
		maps.Copy(attributes, item.Groupby) // groupby wins over metadata
		if m, ok := set.Get(item.Metric); ok {
			attributes = m.WithImplied(attributes, o.scope, at)
		}
		r := evaluator.Price(&hashmap.Point{Metric: item.Metric, Scope: o.scope, Unit: item.Unit, Qty: qty, Attributes: attributes, Begin: at})
		out.Items = append(out.Items, quotedItem{quoteItem: item, Price: r.Price, Bucket: string(r.Bucket), Reason: r.Reason, Rule: r.Rule})
		out.Total = out.Total.Add(r.Price)
	}
	return p.print(out, func() {
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "METRIC\tQTY\tPRICE\tRULES\t")
		for _, x := range out.Items {
			note := x.Rule
			if x.Bucket != "" {
				note = strings.TrimSpace(x.Bucket + " " + x.Reason)
			}
			rowf(w, "%s\t%s\t%s\t%s\t\n", x.Metric, x.Qty, x.Price, note)
		}
		rowf(w, "total\t\t%s %s\t\t\n", out.Total, out.Currency)
		w.Flush()
	})
}

func (p *program) quoteItems(o quoteOptions) ([]quoteItem, error) {
	if o.from != "" {
		data, err := p.readArg(o.from, itemsLimit)
		if err != nil {
			return nil, err
		}
		var items []quoteItem
		decoder := json.NewDecoder(strings.NewReader(string(data)))
		decoder.DisallowUnknownFields()
		decoder.UseNumber()
		if err := decoder.Decode(&items); err != nil {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", o.from, err), Hint: "it must be a list of objects with metric, qty, metadata"}
		}
		if decoder.Decode(new(any)) != io.EOF {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: more follows after the list", o.from)}
		}
		return items, nil
	}
	if o.metric == "" {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("nothing to price"), Hint: "name --metric and --qty, or a file with --from"}
	}
	item := quoteItem{Metric: o.metric, Qty: json.Number(o.qty), Unit: o.unit, Metadata: map[string]string{}}
	for _, pair := range o.attributes {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--attribute %q", pair), Hint: "write name=value"}
		}
		item.Metadata[name] = value
	}
	return []quoteItem{item}, nil
}

func unitsOf(items []quoteItem) map[string]string {
	out := map[string]string{}
	for _, x := range items {
		if x.Unit != "" {
			out[x.Metric] = x.Unit
		}
	}
	return out
}

// planToQuote is the plan of a file, with no metrics, or the plan and the metrics
// in force at a moment, and what looks mistyped: 0 for a metric that does not exist
// is a wrong answer.
func (p *program) planToQuote(ctx context.Context, o quoteOptions, items []quoteItem, at time.Time) (parsed *plan.Plan, set *metric.Set, warnings []string, err error) {
	if o.planFile != "" {
		body, err := p.readArg(o.planFile, planLimit)
		if err != nil {
			return nil, nil, nil, err
		}
		if parsed, err = plan.Parse(o.planFile, body); err != nil {
			return nil, nil, nil, &ratebatch.ConfigError{Err: err}
		}
		return parsed, &metric.Set{}, unknownMetrics(items, pricedMetrics(parsed), "the plan has no prices for"), nil
	}
	err = p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		if err := s.CheckSchema(ctx); err != nil {
			return err
		}
		if parsed, err = planInForce(ctx, s, at); err != nil {
			return err
		}
		if set, err = metricsInForce(ctx, s, at); err != nil {
			return err
		}
		warnings = unknownMetrics(items, set.Names(), "nothing collects")
		if o.scope == "" {
			return nil
		}
		known, err := listScopes(ctx, s)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(known, func(x listedScope) bool { return x.Scope == o.scope }) {
			warnings = append(warnings, fmt.Sprintf("scope %s is not known: see 'ratebatch scopes list'", o.scope))
		}
		return nil
	})
	return parsed, set, warnings, err
}

// pricedMetrics names what a plan prices; nil if it may price anything.
func pricedMetrics(p *plan.Plan) []string {
	var out []string
	for _, s := range p.Services {
		out = append(out, s.Name)
	}
	for _, e := range p.Expressions {
		if e.Metric == "" {
			return nil
		}
		out = append(out, e.Metric)
	}
	return out
}

// unknownMetrics says which items are of none of the known metrics; nil knows all.
func unknownMetrics(items []quoteItem, known []string, what string) []string {
	var out []string
	for _, x := range items {
		if w := fmt.Sprintf("%s metric %s: there are %s", what, x.Metric, strings.Join(known, ", ")); known != nil && !slices.Contains(known, x.Metric) && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

func planInForce(ctx context.Context, s *store.Store, at time.Time) (*plan.Plan, error) {
	versions, err := s.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	span := store.InForce(versions, at, at.Add(time.Second))[0]
	if span.Version == nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("no rate plan is in force at %s", at.Format(time.RFC3339)), Hint: "see 'ratebatch plan list'"}
	}
	return plan.Parse(fmt.Sprintf("rate plan version %d", span.Version.Version), []byte(span.Version.Body))
}

// metricsInForce is the metric set in force at a moment, the built-in one if
// none was ever applied.
func metricsInForce(ctx context.Context, s *store.Store, at time.Time) (*metric.Set, error) {
	versions, err := s.Versions(ctx, store.MetricVersions)
	if err != nil {
		return nil, err
	}
	if len(versions) == 0 {
		return metric.Parse("the built-in metrics", metric.Default())
	}
	span := store.InForce(versions, at, at.Add(time.Second))[0]
	if span.Version == nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("no metric set is in force at %s", at.Format(time.RFC3339)), Hint: "see 'ratebatch metrics list'"}
	}
	return metric.Parse(fmt.Sprintf("metric set %d", span.Version.Version), []byte(span.Version.Body))
}
