package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// explained is everything that made one line.
type explained struct {
	LineID     string            `json:"line_id"`
	Region     string            `json:"region"`
	Scope      string            `json:"scope"`
	Begin      time.Time         `json:"begin"`
	End        time.Time         `json:"end"`
	Metric     string            `json:"metric"`
	Resource   string            `json:"resource"`
	Attributes map[string]string `json:"attributes"`
	Qty        decimal.Decimal   `json:"qty"`
	Unit       string            `json:"unit"`
	Price      decimal.Decimal   `json:"price"`
	Bucket     string            `json:"bucket,omitempty"`
	Rule       string            `json:"rule"`
	Revision   uint32            `json:"revision"`
	RunID      string            `json:"run_id"`
	Plan       string            `json:"plan_digest"`
	Counted    []string          `json:"rules_that_counted"`
	Nearly     []string          `json:"rules_that_did_not"`
	Arithmetic []string          `json:"arithmetic"`
	Currency   string            `json:"currency"`          // of price: that of the plan it was rated by
	PriceNow   decimal.Decimal   `json:"price_by_the_plan"` // what the plan in force at begin gives; equals price
	CurrencyBy string            `json:"currency_by_the_plan"`
	Tier       []store.Record    `json:"tier_rows"`
	Samples    []store.Record    `json:"samples"`

	tiered bool // the metric reads our tiers, and so samples; not a table of the operator's
}

type explainOptions struct {
	scope, month, begin, metric, resource string
	current                               bool
	project                               string // the only one that anything is shown of; empty: all
}

func newExplainCmd(p *program) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain [LINE]",
		Short: "Show how a line came about: samples, tier rows, rules and arithmetic",
		Long: `Explain takes the id of a line, as exports name it, or the flags that single out
one line, and shows the samples and tier rows behind its quantity, the rules that
counted and those that nearly did, and the calculation to the last digit. Samples
are shown as long as the raw tier holds them.

Looking up an id reads the lines of its month; --scope and --month make it quick.
Of a closed month it is the line that was billed; --current shows what counts since
the month was rated again.

` + exitCodesHelp,
		Example: `  ratebatch explain 6f1c8f0e-8a37-5d0b-9a53-2f0a6f2d8f11 --scope web-shop --month 2013-08
  ratebatch explain --scope web-shop --begin 2013-08-20T10:00:00Z --metric instance --resource UUID`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				parsed, err := uuid.Parse(args[0])
				if err != nil {
					return &ratebatch.ConfigError{Err: fmt.Errorf("line %q is no UUID", args[0])}
				}
				id = parsed.String()
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error { return p.explain(ctx, s, id, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.scope, "scope", "", "scope of the line")
	f.StringVar(&o.month, "month", "", "month of the line, such as 2026-11")
	f.StringVar(&o.begin, "begin", "", "begin of the line's period (RFC 3339)")
	f.StringVar(&o.metric, "metric", "", "metric of the line")
	f.StringVar(&o.resource, "resource", "", "resource of the line")
	f.BoolVar(&o.current, "current", false, "of a closed month the line that counts now, not the one that was billed")
	return cmd
}

func (p *program) explain(ctx context.Context, s *store.Store, id string, o explainOptions) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	x, err := explainLine(ctx, s, id, o)
	if err != nil {
		return err
	}
	return p.print(x, func() { printExplained(p.stdout, x) })
}

// explainLine finds out how a line came about.
func explainLine(ctx context.Context, s *store.Store, id string, o explainOptions) (*explained, error) {
	line, err := findLine(ctx, s, id, o)
	if err != nil {
		return nil, err
	}
	parsed, err := planInForce(ctx, s, line.Begin)
	if err != nil {
		return nil, err
	}
	set, err := metricsInForce(ctx, s, line.Begin)
	if err != nil {
		return nil, err
	}
	evaluator, err := hashmap.Compile(parsed, hashmap.Options{Units: map[string]string{line.Metric: line.Unit}})
	if err != nil {
		return nil, err
	}
	attributes := line.Attributes
	m, known := set.Get(line.Metric)
	if known {
		attributes = m.WithImplied(attributes, line.Scope, line.Begin)
	}
	currencies, err := s.CommitCurrencies(ctx, []string{line.Scope}, line.Begin, line.Begin.Add(time.Second))
	if err != nil {
		return nil, err
	}
	trace := evaluator.Explain(&hashmap.Point{Metric: line.Metric, Scope: line.Scope, Unit: line.Unit, Qty: line.Qty, Attributes: attributes, Begin: line.Begin})
	if o.project != "" {
		keys, err := web.ProjectKeys(ctx, s)
		if err != nil {
			return nil, err
		}
		trace = ownTrace(trace, parsed, o.project, keys)
	}
	x := &explained{LineID: exporter.IDOf(line).String(), Region: line.Region, Scope: line.Scope, Begin: line.Begin, End: line.End, Metric: line.Metric, Resource: line.Resource,
		Attributes: line.Attributes, Qty: line.Qty, Unit: line.Unit, Price: line.Price, Bucket: line.Bucket, Rule: line.Rule, Revision: line.Revision,
		RunID: line.RunID.String(), Plan: parsed.Digest(), Counted: []string{}, Nearly: []string{}, Arithmetic: trace.Arithmetic, PriceNow: trace.Result.Price,
		Currency: currencies[store.CommitID{Scope: line.Scope, Begin: line.Begin.Unix(), RunID: line.RunID}], CurrencyBy: parsed.Currency}
	for _, c := range trace.Considered {
		text := fmt.Sprintf("%s: %s", c.Rule.String(), c.Why)
		if c.Counts {
			x.Counted = append(x.Counted, text)
		} else {
			x.Nearly = append(x.Nearly, text)
		}
	}
	tiers, price, err := explainTiers(ctx, s, evaluator, parsed, line)
	if err != nil {
		return nil, err
	}
	if tiers != nil {
		x.Arithmetic, x.PriceNow, x.Counted = tiers, price, append(x.Counted, line.Rule)
	}
	if x.tiered = known && m.Tiered(); x.tiered {
		if x.Tier, x.Samples, err = source(ctx, s, m, line, o.project); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// ownTrace leaves out of a trace what it says of other projects: their rules,
// and conditions that may name them. The keys are those of web.ProjectKeys.
func ownTrace(t hashmap.Trace, p *plan.Plan, project string, keys []string) hashmap.Trace {
	t.Considered = slices.DeleteFunc(t.Considered, func(c hashmap.Considered) bool { return web.OfOthers(c.Rule, project, keys) })
	for i, text := range t.Arithmetic {
		if condition, skipped := strings.CutPrefix(text, "skipped: "); skipped && web.NamesProjects(condition, keys) {
			t.Arithmetic[i] = "skipped: by a condition of the plan"
		}
		for _, e := range p.Expressions {
			head := "expression " + e.ID + ": "
			if !strings.HasPrefix(text, head) || !web.NamesProjects(e.When, keys) && !web.NamesProjects(e.Price, keys) {
				continue
			}
			if strings.HasPrefix(text, head+"not when ") {
				t.Arithmetic[i] = head + "its condition does not hold"
			} else if at := strings.LastIndex(text, " = "); at >= 0 {
				t.Arithmetic[i] = head + "price" + text[at:]
			}
		}
	}
	return t
}

// errNoLine says that nothing matches what is known of a line.
var errNoLine = errors.New("no rated line matches")

// findLine finds the one line that is meant.
func findLine(ctx context.Context, s *store.Store, id string, o explainOptions) (*store.FoundLine, error) {
	filter := store.LineFilter{CostWindow: store.CostWindow{From: time.Unix(0, 0), To: store.OpenEnd}, Scope: o.scope, Metric: o.metric, Resource: o.resource}
	if o.month != "" {
		b, err := readBilling(ctx, s)
		if err != nil {
			return nil, err
		}
		month, err := b.Calendar.ParseMonth(o.month)
		if err != nil {
			return nil, err
		}
		filter.From, filter.To = month.From, month.To
	}
	if o.begin != "" {
		begin, err := parseMoment("begin", o.begin)
		if err != nil {
			return nil, err
		}
		filter.From, filter.To = begin, begin.Add(time.Second)
	}
	if id == "" && (o.scope == "" || o.begin == "" || o.metric == "") {
		return nil, &ratebatch.ConfigError{Err: errors.New("no line is named"), Hint: "give its id, or at least --scope, --begin and --metric"}
	}
	scopes := []string{o.scope}
	if o.scope == "" {
		var err error
		if scopes, err = s.ScopesWithLines(ctx, filter.From, filter.To); err != nil {
			return nil, err
		}
	}
	windows, err := lineWindows(ctx, s, filter.From, filter.To, o.current)
	if err != nil {
		return nil, err
	}
	var found []store.FoundLine
	for _, scope := range scopes {
		filter.Scope = scope
		for _, filter.CostWindow = range windows {
			err := s.FindLines(ctx, filter, func(l store.FoundLine) bool {
				if id != "" && exporter.IDOf(&l).String() != id {
					return true
				}
				found = append(found, l)
				return id == "" && len(found) < 2
			})
			if err != nil {
				return nil, err
			}
			if id != "" && len(found) > 0 || len(found) > 1 {
				break
			}
		}
		if id != "" && len(found) > 0 {
			break
		}
	}
	switch {
	case len(found) == 0:
		hint, err := whyNoLine(ctx, s, id, windows, o)
		if err != nil {
			return nil, err
		}
		return nil, &ratebatch.ConfigError{Err: errNoLine, Hint: hint}
	case len(found) > 1:
		return nil, &ratebatch.ConfigError{Err: errors.New("more than one line matches"), Hint: "add --resource, such as " + found[0].Resource + ", or give the line's id"}
	}
	return &found[0], nil
}

// lineWindows cuts a window where closed months begin and end: the lines of
// these are those that were billed, unless the current ones are asked for.
func lineWindows(ctx context.Context, s *store.Store, from, to time.Time, current bool) ([]store.CostWindow, error) {
	closes, err := s.ExportCloses(ctx, store.OpenEnd)
	if err != nil {
		return nil, err
	}
	var out []store.CostWindow
	if len(closes) > 0 && !current {
		b, err := readBilling(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, c := range closes { // in their order
			m := b.Calendar.Named(c.Month)
			if !m.To.After(from) || !m.From.Before(to) {
				continue
			}
			if from.Before(m.From) {
				out = append(out, store.CostWindow{From: from, To: m.From})
				from = m.From
			}
			until := m.To
			if to.Before(until) {
				until = to
			}
			out = append(out, store.CostWindow{From: from, To: until, Month: c.Month, Closed: c.Number})
			from = until
		}
	}
	if from.Before(to) {
		out = append(out, store.CostWindow{From: from, To: to})
	}
	return out, nil
}

// whyNoLine says which part of what is known of a line does not fit: the first
// of scope, period, metric and resource without which there are lines.
func whyNoLine(ctx context.Context, s *store.Store, id string, windows []store.CostWindow, o explainOptions) (string, error) {
	scopes, err := s.ScopesWithLines(ctx, time.Unix(0, 0), store.OpenEnd)
	if err != nil {
		return "", err
	}
	switch {
	case len(scopes) == 0:
		return "nothing is rated yet: 'ratebatch rate'", nil
	case o.scope != "" && !slices.Contains(scopes, o.scope):
		return fmt.Sprintf("scope %s has no rated lines; there are %s", o.scope, ratebatch.Some(scopes, 10)), nil
	case id != "":
		text := "no line that counts has this id"
		if o.scope != "" || o.month != "" || o.begin != "" || o.metric != "" || o.resource != "" {
			text += " within what the flags say; leave them out to look everywhere"
		}
		return text + ". A line of a period that was rated again has no other id, but one whose attributes or metric changed has", nil
	}
	// What there is in the period, of any metric and resource.
	metrics, resources := map[string]bool{}, map[string]bool{}
	for _, w := range windows {
		err = s.FindLines(ctx, store.LineFilter{CostWindow: w, Scope: o.scope}, func(l store.FoundLine) bool {
			metrics[l.Metric] = true
			if l.Metric == o.metric && len(resources) < 100 {
				resources[l.Resource] = true
			}
			return true
		})
		if err != nil {
			return "", err
		}
	}
	from := windows[0].From
	switch {
	case len(metrics) == 0 && !from.Equal(from.Truncate(time.Hour)):
		return fmt.Sprintf("no period of scope %s begins at %s: --begin takes the begin of a period, such as %s", o.scope, from.Format(time.RFC3339), from.Truncate(time.Hour).Format(time.RFC3339)), nil
	case len(metrics) == 0:
		return fmt.Sprintf("scope %s has no lines in the period that begins at %s: it had no usage, or is not rated (see 'ratebatch status')", o.scope, from.Format(time.RFC3339)), nil
	case len(resources) == 0:
		return fmt.Sprintf("the period has no lines of metric %s; there are %s", o.metric, ratebatch.Some(slices.Sorted(maps.Keys(metrics)), 20)), nil
	default:
		return fmt.Sprintf("the period has no line of metric %s and resource %s; there are %s", o.metric, o.resource, ratebatch.Some(slices.Sorted(maps.Keys(resources)), 10)), nil
	}
}

// sampleTables are the raw tables behind the tiers.
var sampleTables = map[string]string{"instance_metrics": "instance_samples", "port_volume": "port_samples", "disk_metrics": "disk_samples"}

// source reads the tier rows and samples of the line's resource and period, only
// those of one project if it is named: a resource may have changed hands.
func source(ctx context.Context, s *store.Store, m *metric.Metric, l *store.FoundLine, project string) (tier, samples []store.Record, err error) {
	params := store.Params{"begin": l.Begin, "end": l.End, "region": l.Region}
	where := ""
	if project != "" {
		params["project"] = project
		where = " AND project_id = {project:String}"
	}
	parts := strings.SplitN(l.Resource, "/", len(m.Resource))
	for i, column := range m.Resource {
		if i < len(parts) {
			params[fmt.Sprintf("r%d", i)] = parts[i]
			where += fmt.Sprintf(" AND toString(`%s`) = {r%d:String}", column, i)
		}
	}
	table := m.Tables(l.End.Sub(l.Begin))[0]
	tier, err = s.Records(ctx, "SELECT * FROM "+table+" FINAL WHERE region = {region:String} AND bucket >= {begin:DateTime('UTC')} AND bucket < {end:DateTime('UTC')}"+where+" ORDER BY ALL LIMIT 1000", params)
	if err != nil {
		return nil, nil, err
	}
	family := strings.TrimSuffix(strings.TrimSuffix(table, "_hourly"), "_5min")
	samples, err = s.Records(ctx, "SELECT * FROM "+sampleTables[family]+" FINAL WHERE region = {region:String} AND ts > {begin:DateTime('UTC')} AND begin < {end:DateTime('UTC')}"+where+" ORDER BY ts LIMIT 1000", params)
	return tier, samples, err
}

func printExplained(out io.Writer, x *explained) {
	fmt.Fprintf(out, "line %s\n  %s %s of scope %s, %s to %s, revision %d\n  attributes", x.LineID, x.Metric, x.Resource, x.Scope, x.Begin.Format(time.RFC3339), x.End.Format(time.RFC3339), x.Revision)
	for _, name := range slices.Sorted(maps.Keys(x.Attributes)) {
		fmt.Fprintf(out, " %s=%s", name, x.Attributes[name])
	}
	fmt.Fprintf(out, "\n  qty   %s %s\n  price %s", x.Qty, x.Unit, strings.TrimSpace(x.Price.String()+" "+x.Currency))
	if x.Bucket != "" {
		fmt.Fprintf(out, " (bucket %s)", x.Bucket)
	}
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n\n%s\n  %s", title, strings.Join(lines, "\n  "))
		}
	}
	section("rules that counted", x.Counted)
	section("rules that did not", x.Nearly)
	section("arithmetic", x.Arithmetic)
	if !x.PriceNow.Equal(x.Price) || x.CurrencyBy != x.Currency {
		fmt.Fprintf(out, "\n\nthe plan in force for this period now gives %s: the line was rated by another version", strings.TrimSpace(x.PriceNow.String()+" "+x.CurrencyBy))
	}
	fmt.Fprint(out, "\n")
	if x.tiered {
		printRecords(out, "tier rows", x.Tier)
		printRecords(out, "samples", x.Samples)
	}
}

// printRecords writes rows as "column value" pairs, leaving out what is the
// same for all of a resource.
func printRecords(out io.Writer, title string, records []store.Record) {
	if len(records) == 0 {
		fmt.Fprintf(out, "\n%s: none are stored any more\n", title)
		return
	}
	fmt.Fprintf(out, "\n%s (%d)\n", title, len(records))
	shown := map[string]bool{"bucket": true, "begin": true, "ts": true, "covered_seconds": true, "samples": true, "vcpus": true, "flavor_name": true,
		"rx_bytes": true, "tx_bytes": true, "read_requests": true, "write_requests": true, "memory_actual_byte_seconds": true, "memory_actual_bytes": true,
		"capacity_byte_seconds": true, "capacity_bytes": true, "sequence": true, "host": true}
	for _, r := range records {
		fmt.Fprint(out, " ")
		for i, column := range r.Columns {
			if shown[column] {
				fmt.Fprintf(out, " %s=%s", column, r.Values[i])
			}
		}
		fmt.Fprintln(out)
	}
}
