package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newReconcileCmd(p *program) *cobra.Command {
	var month, files string
	var period time.Duration
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Prove a month complete, from samples to files",
		Long: `Reconcile compares, step by step with counts and sums, samples with tiers, tiers
with usage, usage with lines, lines with commits and commits with the delivered
files. What is in no ordinary line is listed in a bucket by name. It reads only.
Exit code 20 says that a step does not hold; a step that can no longer be
checked, because its input has expired, says so and is no failure.

` + exitCodesHelp,
		Example: `  ratebatch reconcile --month 2026-11
  ratebatch reconcile --month 2026-11 --files /srv/finance --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := time.Parse("2006-01", month)
			if err != nil {
				return &ratebatch.ConfigError{Err: fmt.Errorf("--month %q", month), Hint: "write it as 2026-11"}
			}
			if err := ratebatch.CheckPeriodLength(period); err != nil {
				return &ratebatch.ConfigError{Err: err}
			}
			job := &reconcile.Job{Month: at, Period: period}
			if files != "" {
				b, done, err := openBucket(cmd.Context(), files)
				if err != nil {
					return err
				}
				defer done()
				job.Bucket = b
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				job.Store = s
				if err := s.CheckSchema(ctx); err != nil {
					return err
				}
				report, err := job.Run(ctx)
				if err != nil {
					return err
				}
				if err := p.print(report, func() { printReconcile(p, report) }); err != nil {
					return err
				}
				return report.Err()
			})
		},
	}
	cmd.Flags().StringVar(&month, "month", "", "month to reconcile, such as 2026-11 (required)")
	cmd.Flags().StringVar(&files, "files", "", "where the lines were exported to: their files are read and added up too")
	cmd.Flags().DurationVar(&period, "period", time.Hour, "length of a period")
	return cmd
}

func printReconcile(p *program, r reconcile.Report) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tWHAT\tLEFT\tRIGHT\tRESULT\tNOTE")
	for _, s := range r.Steps {
		rowf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Step, s.What, s.Left, s.Right, s.Result, s.Note)
	}
	w.Flush()
	if len(r.Buckets) > 0 {
		fmt.Fprintln(p.stdout)
		w = tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "BUCKET\tSIZE\tWHAT")
		for _, b := range r.Buckets {
			rowf(w, "%s\t%d\t%s\n", b.Bucket, b.Rows, b.What)
		}
		w.Flush()
	}
}
