package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/retention"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newRetentionCmd(p *program) *cobra.Command {
	var o retention.Options
	var jo jobOptions
	var now string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Remove what is old: dead attempts, superseded revisions, old months, old job runs",
		Long: `Retention removes the lines of attempts that never committed (voiding them first,
so that a stalled run that wakes up commits nothing), the revisions that another
took the place of, rows of the run log and, with --lines-after, the lines of months
long past. What counts is removed only with --lines-after, and then only of months
that are closed and were exported since, to every place that gets them, as was every
month that bills corrections of them (exit 20 names the others and the places), and
while no rate, reprocess, backfill, close or reopen runs (exit 75; everything else is
removed). A place that got nothing for --lines-after, and for 92 days at least, is
not waited for; the output names it. Tiers and raw samples have TTLs of their own:
'ratebatch migrate --retention …'.

` + exitCodesHelp,
		Example: "  ratebatch retention --dry-run\n  ratebatch retention --superseded-after 960h --lines-after 17520h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := momentFlags(momentFlag{"now", now, &o.Now}); err != nil {
				return err
			}
			if o.Now.IsZero() {
				o.Now = p.now()
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				b, err := readBilling(ctx, s)
				if err != nil {
					return err
				}
				return p.retention(ctx, &retention.Job{Store: s, Log: p.log, Options: o, Calendar: b.Calendar}, jo, dryRun)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Dead, "dead-after", retention.DefaultDead, "an attempt that committed nothing is dead after this time")
	f.DurationVar(&o.Superseded, "superseded-after", retention.DefaultSuperseded, "keep a revision this long after another took its place")
	f.DurationVar(&o.Runs, "runs-after", retention.DefaultRuns, "keep the run log this long; each job's last run and last success stay")
	f.DurationVar(&o.Lines, "lines-after", 0, "keep the lines of closed and exported months this long after their end; 0: for ever")
	f.BoolVar(&o.Unexported, "unexported", false, "also remove superseded revisions that no export has replaced yet")
	f.StringVar(&now, "now", "", "judge ages at this moment instead of the clock's")
	f.BoolVar(&dryRun, "dry-run", false, "print what would be removed and write nothing")
	jo.addFlags(cmd)
	return cmd
}

func (p *program) retention(ctx context.Context, job *retention.Job, jo jobOptions, dryRun bool) error {
	if dryRun {
		plan, err := job.Plan(ctx)
		if err != nil {
			return err
		}
		return p.print(plan, func() { printRetention(p, plan, "would go") })
	}
	var plan *retention.Plan
	err := p.underLease(ctx, job.Store, "retention", "retention", jo, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
		job.Alone = func(ctx context.Context, do func(context.Context) error) error {
			// It is what reprocess, backfill and reopen hold; shards rate no closed month.
			held, err := p.acquire(ctx, job.Store, "retention", "rate", jo, run.ID)
			if err != nil {
				return err
			}
			defer p.release(ctx, held, run.ID)
			return do(ctx)
		}
		var err error
		if plan, err = job.Plan(ctx); err != nil {
			return nil, err
		}
		counts := map[string]string{"dead_attempts": fmt.Sprint(plan.DeadAttempts), "superseded": fmt.Sprint(plan.Superseded.Removable), "job_runs": fmt.Sprint(plan.JobRuns)}
		return counts, job.Run(ctx, plan, run.ID)
	})
	if plan == nil || !plan.Done {
		return err
	}
	// What went is said also where something else was refused or has to wait.
	return errors.Join(err, p.print(plan, func() { printRetention(p, plan, "went") }))
}

func printRetention(p *program, plan *retention.Plan, verb string) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	rowf(w, "WHAT\t%s\tLINES\n", verb)
	rowf(w, "dead attempts\t%d\t%d\n", plan.DeadAttempts, plan.DeadLines+plan.VoidLines)
	rowf(w, "superseded revisions\t%d\t%d\n", plan.Superseded.Removable, plan.Superseded.Lines)
	for _, m := range plan.Months {
		rowf(w, "lines of %s\tall\t\n", m)
	}
	rowf(w, "job runs\t%d\t\n", plan.JobRuns)
	w.Flush()
	if kept := plan.Superseded.Commits - plan.Superseded.Removable; kept > 0 {
		rowf(p.stdout, "%d superseded revisions stay: their months were not exported since\n", kept)
	}
	for _, place := range plan.GivenUp {
		rowf(p.stdout, "not waited for: %s\n", place)
	}
	for _, r := range plan.Refused {
		rowf(p.stdout, "refused: lines of %s\n", r)
	}
}
