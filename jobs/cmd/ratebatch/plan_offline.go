package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap/casefile"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// withPricers hands the ways of pricing that plan test compares to use.
type withPricers func(ctx context.Context, use func(...casefile.Pricer) error) error

// planOfflineCommands lists the subcommands of plan that only read files.
func planOfflineCommands(p *program) []*cobra.Command {
	return []*cobra.Command{
		p.planCheckCmd(),
		p.planTestCmd(p.allPricers),
		p.planSchemaCmd(),
		p.planImportCmd(),
	}
}

func (p *program) planCheckCmd() *cobra.Command {
	var metrics string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong or doubtful in a rate plan, without applying it",
		Long: `Check reads a rate plan and lists every mistake with its line and column, then
warnings, then the expressions that are priced line by line because they are not
linear in the quantity. "-" reads the standard input.

Exit codes: 0 no mistake, 2 mistakes or an unreadable file.`,
		Example: "  ratebatch plan check plan.yaml --metrics metrics.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := p.readArg(args[0], planLimit)
			if err != nil {
				return err
			}
			var collected plan.Metrics
			if metrics != "" {
				body, err := p.readArg(metrics, metricsLimit)
				if err != nil {
					return err
				}
				set, err := metric.Parse(metrics, body)
				if err != nil {
					return &ratebatch.ConfigError{Err: err}
				}
				collected = known(set)
			}
			return p.planCheck(args[0], data, collected)
		},
	}
	cmd.Flags().StringVar(&metrics, "metrics", "", "metrics.yaml whose metrics and attributes the plan may name; empty: any")
	return cmd
}

func (p *program) planCheck(name string, data []byte, metrics plan.Metrics) error {
	parsed, findings := plan.Check(name, data, metrics)
	result := struct {
		Digest   string        `json:"digest,omitempty"`
		Findings plan.Findings `json:"findings"`
		PerLine  []string      `json:"priced_line_by_line"`
	}{Findings: findings, PerLine: []string{}}
	if result.Findings == nil {
		result.Findings = plan.Findings{}
	}
	if parsed != nil {
		result.Digest = parsed.Digest()
		result.PerLine = append(result.PerLine, parsed.PerPoint()...)
	}
	err := p.print(result, func() {
		for _, f := range findings {
			fmt.Fprintln(p.stdout, f)
		}
		for _, x := range result.PerLine {
			fmt.Fprintf(p.stdout, "%s: priced line by line: %s\n", name, x)
		}
		if parsed != nil {
			fmt.Fprintf(p.stdout, "%s: no mistakes, digest %s\n", name, result.Digest)
		}
	})
	if n := len(findings.Mistakes()); err == nil && n > 0 {
		err = &ratebatch.ConfigError{Err: fmt.Errorf("%s: %d mistakes", name, n)}
	}
	return err
}

func (p *program) planTestCmd(pricers withPricers) *cobra.Command {
	var planFile string
	cmd := &cobra.Command{
		Use:   "test FILE.jsonl…",
		Short: "Price recorded cases in every way and compare with their answers",
		Long: `Test reads cases, one JSON object a line: rules (in CloudKitty's words), points,
and the price that each point must have. Every way of pricing must give it within
max(1e-18, price × 1e-27): CloudKitty rounds to 28 digits after every operation,
Ratebatch once to 18 decimals. A point with "error" must be rejected.

A case without rules is priced by the plan given with --plan, which is how to
write price tests for a plan of your own:

  {"name": "a night's discount", "period_begin": "2026-03-01T02:00:00",
   "points": [{"metric": "instance", "scope_id": "p1", "qty": "1", "unit": "instance",
               "groupby": {"flavor_name": "m1.tiny"}, "metadata": {}, "price": "0.008"}]}

(on one line). Where the plan has tiers, "used_before" says what the point's account
has used in the month before the period; the point is the only usage of its
period, and its price is that of all its lines, an adjustment too:

  {"name": "over the allowance of 1000", "period_begin": "2026-03-20T02:00:00",
   "points": [{"metric": "network.outgoing", "scope_id": "p1", "qty": "10", "unit": "GiB",
               "used_before": "995", "price": "0.25"}]}

Mismatches are printed with all answers; the last line counts.

Exit codes: 0 every point passed, 1 some failed, 2 a file that cannot be read.`,
		Example: "  ratebatch plan test prices.jsonl --plan plan.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var given *plan.Plan
			if planFile != "" {
				data, err := p.readArg(planFile, planLimit)
				if err != nil {
					return err
				}
				var findings plan.Findings
				if given, findings = plan.Check(planFile, data, nil); given == nil {
					return &ratebatch.ConfigError{Err: findings.Err()}
				}
			}
			return pricers(cmd.Context(), func(ways ...casefile.Pricer) error {
				return p.planTest(cmd.Context(), args, given, ways)
			})
		},
	}
	cmd.Flags().StringVar(&planFile, "plan", "", "rate plan for cases that have no rules of their own")
	return cmd
}

// errTestsFailed makes plan test exit with 1.
var errTestsFailed = errors.New("some points do not have the expected price")

func (p *program) planTest(ctx context.Context, files []string, given *plan.Plan, ways []casefile.Pricer) error {
	var total casefile.Summary
	var mismatches strings.Builder
	out := p.stdout
	if p.output == "json" {
		out = &mismatches
	}
	for _, name := range files {
		f, err := p.openArg(name)
		if err != nil {
			return err
		}
		sum, err := casefile.Run(ctx, name, withPlan(name, casefile.Read(name, f), given), out, ways...)
		f.Close()
		if err != nil {
			return &ratebatch.ConfigError{Err: err}
		}
		total.Cases += sum.Cases
		total.Points += sum.Points
		total.Passed += sum.Passed
		total.Failed += sum.Failed
	}
	result := struct {
		casefile.Summary
		Mismatches []string `json:"mismatches"`
	}{total, strings.Split(strings.TrimSpace(mismatches.String()), "\n")}
	if mismatches.Len() == 0 {
		result.Mismatches = []string{}
	}
	if err := p.print(result, func() { fmt.Fprintln(p.stdout, total) }); err != nil {
		return err
	}
	if total.Failed > 0 {
		return errTestsFailed
	}
	return nil
}

// withPlan gives the plan to cases that have no rules.
func withPlan(name string, cases iter.Seq2[*casefile.Case, error], given *plan.Plan) iter.Seq2[*casefile.Case, error] {
	return func(yield func(*casefile.Case, error) bool) {
		for c, err := range cases {
			if err == nil && c.Bare() {
				if c.Plan = given; given == nil {
					c, err = nil, fmt.Errorf("%s:%d: case %s has no rules: name the plan with --plan", name, c.Line, c.Name)
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

func (p *program) planSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of rate plans, for editors",
		Long: `Schema prints the JSON schema of plan files. With the YAML language server, put
this into a plan's first line to have it completed and checked while you write:

  # yaml-language-server: $schema=plan.schema.json

Exit codes: 0 done.`,
		Example: "  ratebatch plan schema > plan.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			data, err := plan.Schema()
			if err == nil {
				_, err = p.stdout.Write(data)
			}
			return err
		},
	}
}

func (p *program) planImportCmd() *cobra.Command {
	var currency string
	cmd := &cobra.Command{
		Use:   "import-cloudkitty FILE.json…",
		Short: "Make a rate plan of CloudKitty's hashmap rules",
		Long: `Import-cloudkitty reads the rules as CloudKitty's API answers them (one object
with services, groups, fields, mappings and thresholds) or as its client lists
them (cloudkitty hashmap … list -f json, any number of lists in any number of
files) and prints a plan. The client leaves out start and end: prefer the API.

Whatever was changed or cannot be carried over is listed in comments at the top
of the plan and on stderr. "-" reads the standard input.

Exit codes: 0 done, 2 a file that cannot be read.`,
		Example: "  ratebatch plan import-cloudkitty rules.json --currency EUR > plan.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var docs [][]byte
			for _, name := range args {
				data, err := p.readArg(name, rulesLimit)
				if err != nil {
					return err
				}
				docs = append(docs, data)
			}
			return p.importCloudKitty(docs, currency)
		},
	}
	cmd.Flags().StringVar(&currency, "currency", "", "ISO 4217 code of the costs, which CloudKitty does not know")
	return cmd
}

func (p *program) importCloudKitty(docs [][]byte, currency string) error {
	imported, notes, err := plan.FromCloudKitty(docs...)
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	imported.Currency = currency
	body := "# Imported from CloudKitty.\n"
	for _, n := range notes {
		body += "# " + strings.ReplaceAll(n.String(), "\n", " ") + "\n"
	}
	body += string(imported.YAML())

	// What CloudKitty accepts and a plan does not has to be decided by a person.
	_, findings := plan.Check("imported plan", []byte(body), nil)
	for _, n := range notes {
		fmt.Fprintln(p.stderr, n)
	}
	for _, f := range findings {
		fmt.Fprintln(p.stderr, f)
	}
	if notes == nil {
		notes = []plan.Note{}
	}
	return p.print(struct {
		Plan     string        `json:"plan"`
		Notes    []plan.Note   `json:"notes"`
		Findings plan.Findings `json:"findings"`
	}{body, notes, findings}, func() { fmt.Fprint(p.stdout, body) })
}
