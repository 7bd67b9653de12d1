package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// status is what the status command prints.
type status struct {
	Scopes  []store.ScopeStatus `json:"scopes"`
	Jobs    []store.JobStatus   `json:"jobs"`
	Due     uint64              `json:"due_periods"`
	Waiting []rate.Waiting      `json:"waiting"`
	Note    string              `json:"note,omitempty"` // why due periods are not known
}

func newStatusCmd(p *program) *cobra.Command {
	var o rateOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far each scope is rated, what waits and why, and the last run of each job",
		Example: `  ratebatch status
  ratebatch status --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x, err := readStatus(ctx, p, s, options)
				if err != nil {
					return err
				}
				return p.print(x, func() { printStatus(p, x) })
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func readStatus(ctx context.Context, p *program, s *store.Store, o rate.Options) (*status, error) {
	if err := s.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var x status
	var err error
	if x.Scopes, err = s.ScopeStatuses(ctx); err != nil {
		return nil, err
	}
	if x.Jobs, err = s.JobStatuses(ctx); err != nil {
		return nil, err
	}
	plan, err := (&rate.Job{Store: s, Log: p.log, Options: o}).Plan(ctx)
	if code := ratebatch.ExitCode(err); code == ratebatch.ExitConfig || code == ratebatch.ExitHalted {
		x.Note = err.Error() // rate says the same; the rest of the status still holds
		return &x, nil
	}
	if err != nil {
		return nil, err
	}
	x.Due, x.Waiting = plan.Periods, plan.Waiting
	return &x, nil
}

func printStatus(p *program, x *status) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tRATED UNTIL\tPERIODS\tPRICE\tUNPRICED\tREJECTED")
	for _, s := range x.Scopes {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s %s\t%d\t%d\n", s.Scope, s.RatedUntil.Format(time.RFC3339), s.Periods, s.Price, s.Currency, s.Unpriced, s.Rejected)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "JOB\tLAST RUN\tSTATE\tLAST SUCCESS\tERROR")
	for _, j := range x.Jobs {
		success := "never"
		if j.LastSuccess.Unix() > 0 {
			success = j.LastSuccess.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.Job, j.LastStart.Format(time.RFC3339), j.State, success, firstLine(j.Error))
	}
	w.Flush()
	fmt.Fprintf(p.stdout, "\n%d periods are due\n", x.Due)
	if x.Note != "" {
		fmt.Fprintf(p.stdout, "rate would stop: %s\n", x.Note)
	}
	printWaiting(p, x.Waiting)
}
