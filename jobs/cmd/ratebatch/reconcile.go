package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newReconcileCmd(p *program) *cobra.Command {
	var month, files string
	var period time.Duration
	var reprice, seed uint64
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Prove a month complete, from samples to files",
		Long: `Reconcile compares, step by step with counts and sums, samples with tiers, tiers
with usage, usage with lines, lines with commits and commits with the delivered
files. Some lines are priced again, one by one, by the plan they were rated with
and without ClickHouse (--reprice). What is in no ordinary line is listed in a bucket by name. It reads only.
Exit code 20 says that a step does not hold; a step that can no longer be
checked, because its input has expired, says so and is no failure.

` + exitCodesHelp,
		Example: `  ratebatch reconcile --month 2026-11
  ratebatch reconcile --month 2026-11 --files /srv/finance --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkMonth(month); err != nil {
				return err
			}
			if period != 0 {
				if err := ratebatch.CheckPeriodLength(period); err != nil {
					return &ratebatch.ConfigError{Err: err}
				}
			}
			job := &reconcile.Job{Reprice: reprice, Seed: seed}
			if files != "" {
				b, done, err := openDelivered(cmd.Context(), files)
				if err != nil {
					return err
				}
				defer done()
				job.Bucket = b
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				job.Store = s
				b, err := readBilling(ctx, s)
				if err != nil {
					return err
				}
				if job.Period, err = b.length(period); err != nil {
					return err
				}
				if job.Month, err = monthOf(b.Calendar, month, p.now()); err != nil {
					return err
				}
				rating, err := (&rateOptions{period: job.Period}).options(p.now())
				if err != nil {
					return err
				}
				if rating, err = (&rateOptions{period: job.Period}).settle(ctx, s, rating); err != nil {
					return err
				}
				job.BeforeFirst = (&rate.Job{Store: s, Log: p.log, Options: rating}).BeforeFirst
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
	cmd.Flags().StringVar(&month, "month", "", "month to reconcile, "+monthHelp+" (required)")
	cmd.Flags().StringVar(&files, "files", "", "where the lines were exported to: their files are read and added up too")
	cmd.Flags().Uint64Var(&reprice, "reprice", 1000, "how many lines, drawn by chance, are priced again one by one in Go; 0: none")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "draw these lines again: the seed that a run named; 0: others every time")
	cmd.Flags().DurationVar(&period, "period", 0, "length of a period (default: that of earlier runs)")
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
