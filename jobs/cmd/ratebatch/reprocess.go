package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/reprocess"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// requestFlags are those that ask for periods to be rated again.
type requestFlags struct {
	r        reprocess.Request
	from, to string
}

func (o *requestFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.r.Scopes, "scope", nil, "scope; may be given several times")
	f.BoolVar(&o.r.All, "all", false, "every active scope")
	f.StringVar(&o.from, "from", "", "begin of the first period (RFC 3339 or a date, UTC)")
	f.StringVar(&o.to, "to", "", "end of the last period")
	f.StringVar(&o.r.Reason, "reason", "", "why (mandatory); it is kept with every period")
}

func (o *requestFlags) request() (reprocess.Request, error) {
	o.r.Author = author()
	return o.r, momentFlags(momentFlag{"from", o.from, &o.r.From}, momentFlag{"to", o.to, &o.r.To})
}

func newReprocessCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reprocess",
		Short: "Rate periods again: add, list, cancel and run schedules",
		Long: `A schedule names scopes, a stretch of whole periods and a reason. Run rates the
periods again at the next revision; until a period's new revision is committed
readers see the old one, which stays readable until 'ratebatch retention'.

` + exitCodesHelp,
	}
	cmd.AddCommand(p.reprocessAddCmd(), p.reprocessListCmd(), p.reprocessCancelCmd(), p.reprocessRunCmd())
	return cmd
}

func (p *program) reprocessAddCmd() *cobra.Command {
	var q requestFlags
	var o rateOptions
	cmd := &cobra.Command{
		Use:   "add (--scope ID … | --all) --from TIME --to TIME --reason TEXT",
		Short: "Add a schedule; 'reprocess run' executes it",
		Long: `Add notes that periods are to be rated again; 'reprocess run' does it.

` + exitCodesHelp,
		Example: `  ratebatch reprocess add --scope 5f2c… --from 2026-11-01 --to 2026-11-08 --reason "price list of 1 November was wrong"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := q.request()
			if err != nil {
				return err
			}
			return p.withReprocess(cmd.Context(), &o, func(ctx context.Context, job *reprocess.Job) error {
				x, err := job.Add(ctx, r)
				if err != nil {
					return err
				}
				return p.print(x, func() { rowf(p.stdout, "schedule %s\n", x.ID) })
			})
		},
	}
	q.addFlags(cmd)
	o.addPeriodFlags(cmd)
	return cmd
}

// withReprocess opens the store and makes the job over it.
func (p *program) withReprocess(ctx context.Context, o *rateOptions, use func(context.Context, *reprocess.Job) error) error {
	options, err := o.options(p.now())
	if err != nil {
		return err
	}
	return p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		options, err := o.settle(ctx, s, options)
		if err != nil {
			return err
		}
		job := p.reprocessJob(s, options)
		if job.Tables, err = usageTables(ctx, s); err != nil {
			return err
		}
		return use(ctx, job)
	})
}

func (p *program) reprocessJob(s *store.Store, o rate.Options) *reprocess.Job {
	return &reprocess.Job{Store: s, Log: p.log, Period: o.Period, Now: o.Now, Ready: rate.ReadyUntil(o.Now, o.Period, o.WaitPeriods),
		Rate: func(ctx context.Context, x store.Schedule, done func(context.Context, time.Time) error) (reprocess.Outcome, error) {
			return p.rateAgain(ctx, s, o, x, done)
		}}
}

// rateAgain rates one schedule's periods.
func (p *program) rateAgain(ctx context.Context, s *store.Store, o rate.Options, x store.Schedule, done func(context.Context, time.Time) error) (reprocess.Outcome, error) {
	o.Author = x.Author
	job := &rate.Job{Store: s, Log: p.log, Options: o, Passed: done}
	again := rate.Again{From: x.Begin, To: x.End, Since: x.StartedAt, Reason: x.Reason}
	if len(x.Scopes) > 0 {
		again.Scopes = x.Scopes
	}
	plan, held, err := job.PlanAgain(ctx, again)
	out := reprocess.Outcome{Waiting: held.Text, Vanished: held.Vanished}
	if err != nil {
		return out, err
	}
	bar := p.progress("rating again", int64(plan.Periods), "periods")
	defer bar.done()
	job.Progress = func(done, _ uint64) { bar.set(int64(done)) }
	result, err := job.Run(ctx, plan, &jobs.Run{ID: x.ID})
	out.Periods, out.Lines, out.Lost = result.Periods, result.Lines, result.Lost
	return out, err
}

func (p *program) reprocessListCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the schedules that are not done, with their progress; --all lists every one",
		Long:    "List prints the schedules that are not done, with their progress; --all also the others.\n\n" + exitCodesHelp,
		Example: "  ratebatch reprocess list\n  ratebatch reprocess list --all --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				list, err := (&reprocess.Job{Store: s, Log: p.log}).List(ctx)
				if err != nil {
					return err
				}
				shown := []store.Schedule{}
				for _, x := range list {
					if all || x.Open() {
						shown = append(shown, x)
					}
				}
				return p.print(shown, func() { printSchedules(p, shown) })
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are done, cancelled or failed")
	return cmd
}

func printSchedules(p *program, list []store.Schedule) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSCOPES\tFROM\tTO\tSTATE\tDONE\tAUTHOR\tREASON\tNOTE")
	for _, x := range list {
		scopes := strings.Join(x.Scopes, ",")
		if scopes == "" {
			scopes = "all"
		}
		percent := 100 * x.DoneUntil.Sub(x.Begin) / x.End.Sub(x.Begin)
		note := x.Waiting
		if note != "" {
			note = "waits: " + note
		}
		if x.Error != "" {
			note = firstLine(x.Error)
		}
		rowf(w, "%s\t%s\t%s\t%s\t%s\t%d%%\t%s\t%s\t%s\n", x.ID, scopes, x.Begin.Format(time.RFC3339), x.End.Format(time.RFC3339), x.State, percent, x.Author, firstLine(x.Reason), note)
	}
	w.Flush()
}

func (p *program) reprocessCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel ID",
		Short:   "Cancel a schedule; what it has rated stays",
		Long:    "Cancel ends a schedule before it is done; what it has rated stays. 'reprocess list' shows the IDs.\n\n" + exitCodesHelp,
		Example: "  ratebatch reprocess cancel ID",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x, err := (&reprocess.Job{Store: s, Log: p.log}).Cancel(ctx, args[0])
				if err != nil {
					return err
				}
				return p.print(x, func() { rowf(p.stdout, "schedule %s is cancelled\n", x.ID) })
			})
		},
	}
}

func (p *program) reprocessRunCmd() *cobra.Command {
	var o rateOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Execute every schedule that is not done, oldest first",
		Long: `Run executes all schedules, oldest first; one that fails does not stop the others.
A run that was killed goes on where it was. The schedule of a disabled scope
waits; that of a scope of which nothing is known any more ends with an error, once.

` + exitCodesHelp,
		Example: "  ratebatch reprocess run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withReprocess(cmd.Context(), &o, func(ctx context.Context, job *reprocess.Job) error {
				return p.runSchedules(ctx, job, o.jobOptions)
			})
		},
	}
	o.addPeriodFlags(cmd)
	o.jobOptions.addFlags(cmd)
	return cmd
}

func (p *program) runSchedules(ctx context.Context, job *reprocess.Job, jo jobOptions, only ...uuid.UUID) error {
	ran := []reprocess.Ran{}
	err := p.underLease(ctx, job.Store, "reprocess", "rate", jo, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
		job.RunID = run.ID
		list, err := job.Run(ctx, only...)
		ran = append(ran, list...)
		var periods uint64
		for _, x := range ran {
			periods += x.Outcome.Periods
		}
		return map[string]string{"schedules": fmt.Sprint(len(ran)), "periods": fmt.Sprint(periods)}, err
	})
	if len(ran) == 0 && err != nil {
		return err
	}
	return errors.Join(err, p.print(ran, func() {
		if len(ran) == 0 {
			fmt.Fprintln(p.stdout, "no schedule is pending")
		}
		for _, x := range ran {
			rowf(p.stdout, "schedule %s: %s, rated %d periods again, %d lines\n", x.ID, x.State, x.Outcome.Periods, x.Outcome.Lines)
			if x.Waiting != "" {
				rowf(p.stdout, "  waits: %s\n", x.Waiting)
			}
			if x.Error != "" {
				rowf(p.stdout, "  %s\n", firstLine(x.Error))
			}
		}
	}))
}

func newBackfillCmd(p *program) *cobra.Command {
	var q requestFlags
	var o rateOptions
	cmd := &cobra.Command{
		Use:   "backfill --from TIME --to TIME --reason TEXT",
		Short: "Schedule a stretch of periods to be rated again, and run it",
		Long: `Backfill is 'reprocess add' and 'reprocess run' of that one schedule: every period
of the stretch is rated at its next revision, those that never were included.
Without --scope it is for all active scopes. If it is interrupted the schedule
stays, and 'reprocess run' goes on where it was.

` + exitCodesHelp,
		Example: `  ratebatch backfill --from 2026-11-01 --to 2026-11-08 --reason "samples of host 7 came late"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := q.request()
			if err != nil {
				return err
			}
			r.All = r.All || len(r.Scopes) == 0
			return p.withReprocess(cmd.Context(), &o, func(ctx context.Context, job *reprocess.Job) error {
				x, err := job.Add(ctx, r)
				if err != nil {
					return err
				}
				return p.runSchedules(ctx, job, o.jobOptions, x.ID)
			})
		},
	}
	q.addFlags(cmd)
	o.addPeriodFlags(cmd)
	o.jobOptions.addFlags(cmd)
	return cmd
}
