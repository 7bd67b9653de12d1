package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// planVersions is the rate plan as a versioned file.
func planVersions() versioned {
	return versioned{kind: store.PlanVersions, noun: "rate plan", fits: planFits, read: func(name string, body []byte) (string, string, []string, error) {
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

// planFits refuses a plan for metrics that nobody collects.
func planFits(ctx context.Context, s *store.Store, name string, v store.Version) error {
	set, err := metricsInForce(ctx, s, v.ValidFrom)
	if err != nil {
		return err
	}
	_, findings := plan.Check(name, []byte(v.Body), set.Names())
	if err := findings.Err(); err != nil {
		return &ratebatch.ConfigError{Err: err, Hint: "metrics are those of 'ratebatch metrics show', or the built-in ones"}
	}
	return nil
}

func newPlanCmd(p *program) *cobra.Command {
	v := planVersions()
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "What usage costs: apply, list, show, compare and test rate plans",
	}
	cmd.AddCommand(p.applyCmd(v), p.listCmd(v), p.showCmd(v), p.planDiffCmd(v))
	cmd.AddCommand(planOfflineCommands(p)...)
	return cmd
}

func (p *program) planDiffCmd(v versioned) *cobra.Command {
	return &cobra.Command{
		Use:     "diff A B",
		Short:   "Show what changed between two applied versions",
		Example: "  ratebatch plan diff 1 2",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				var parsed [2]*plan.Plan
				for i, arg := range args {
					x, err := p.version(ctx, s, v, []string{arg})
					if err != nil {
						return err
					}
					if parsed[i], err = plan.Parse(fmt.Sprintf("version %d", x.Version), []byte(x.Body)); err != nil {
						return err
					}
				}
				_, err := fmt.Fprint(p.stdout, plan.Diff(parsed[0], parsed[1]))
				return err
			})
		},
	}
}
