package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const planHelp = `
The plan may price only metrics that are collected in all of its time, and count
tiers by attributes that they have. What has one price for a whole billing month
changes where a month begins: volume tiers and their discounts are refused
otherwise. Dates are midnight UTC. Where billing_timezone has its months begin at
another hour, a date near that is warned of; a minimum or cap that would so count
for the month before is refused without --force and --reason.
`

// planVersions is the rate plan as a versioned file.
func planVersions() versioned {
	return versioned{kind: store.PlanVersions, noun: "rate plan", limit: planLimit, fits: planFits, warns: planWarns, help: planHelp, read: func(name string, body []byte) (string, string, []string, error) {
		parsed, findings := plan.Check(name, body, nil)
		if err := findings.Err(); err != nil {
			return "", "", nil, &ratebatch.ConfigError{Err: err}
		}
		var warnings []string
		for _, f := range findings {
			warnings = append(warnings, f.String())
		}
		for _, x := range parsed.PerPoint() {
			warnings = append(warnings, "priced line by line, not in SQL: "+x)
		}
		return parsed.Digest(), parsed.Currency, warnings, nil
	}}
}

func newPlanCmd(p *program) *cobra.Command {
	v := planVersions()
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "What usage costs: apply, list, show, compare and test rate plans",
	}
	cmd.AddCommand(p.applyCmd(v), p.listCmd(v), p.showCmd(v), p.planDiffCmd(v), p.planSimulateCmd(v))
	cmd.AddCommand(planOfflineCommands(p)...)
	return cmd
}

func (p *program) planDiffCmd(v versioned) *cobra.Command {
	var o ratedOptions
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show what changed between two plans, and what that would have cost",
		Long: `Diff compares two plans, each the number of a version or a file. With --rated it
also rates the stored usage of a window by both and shows the difference by
project, metric and rule; it writes nothing. What the plans hold that this usage
does not show is named: rules, tiers, discounts and charges that begin or end to
hold after the window begins, and minimums and caps where the window is not one of
whole months. Where only one of the plans holds such, --max-change exits 2.

` + exitCodesHelp,
		Example: `  ratebatch plan diff 1 2
  ratebatch plan diff 1 draft.yaml --rated --from 2026-11-01 --max-change 5`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.maxChange != "" && !o.rated {
				return &ratebatch.ConfigError{Err: errors.New("--max-change without --rated")}
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				var versions [2]store.Version
				var names [2]string
				var parsed [2]*plan.Plan
				for i, arg := range args {
					var err error
					if versions[i], err = p.planArgument(ctx, s, v, arg); err != nil {
						return err
					}
					names[i] = planName(versions[i], arg)
					if parsed[i], err = plan.Parse(names[i], []byte(versions[i].Body)); err != nil {
						return err
					}
				}
				if !o.rated {
					_, err := fmt.Fprint(p.stdout, plan.Diff(parsed[0], parsed[1]))
					return err
				}
				c, err := p.compareRated(ctx, s, versions, names, o)
				if err != nil {
					return err
				}
				if err := p.print(c, func() { p.printComparison(c, versions[1].Currency) }); err != nil {
					return err
				}
				return guard(c, o.maxChange)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}
