package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/closing"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func (p *program) closingJob(s *store.Store, o rate.Options) *closing.Job {
	return &closing.Job{Store: s, Log: p.log, Period: o.Period, Calendar: o.Calendar, Author: author(), Windows: func(ctx context.Context, month ratebatch.Month) (closing.Windows, error) {
		job := &rate.Job{Store: s, Log: p.log, Options: o}
		unsettled, err := job.Unsettled(ctx, month)
		if err != nil {
			return closing.Windows{}, err
		}
		if unsettled > 0 {
			return closing.Windows{}, &ratebatch.TryAgainError{Err: fmt.Errorf("%d periods of month %s are not settled: what was used before them has changed since they were rated", unsettled, month), Hint: "run 'ratebatch rate' first"}
		}
		active, disabled, err := job.MonthWindows(ctx, month)
		return closing.Windows{Active: active, Disabled: disabled}, err
	}}
}

func newCloseCmd(p *program) *cobra.Command {
	var o rateOptions
	var month, reason string
	var list, dryRun bool
	cmd := &cobra.Command{
		Use:   "close --month MONTH",
		Short: "Freeze what a month consists of, so that what was invoiced never changes",
		Long: `Close refuses (exit 75) while any period of an active scope in the month is not
rated, waits or is in conflict. Then it writes down exactly which commits the
month consists of, compared with the lines themselves; from then on readers of
the month use those. What is rated again later is a correction and appears in an
open month. Periods of disabled scopes are settled as disabled. Closing a closed
month again does nothing, unless it was rated differently since (exit 2). Months
are closed in their order: close refuses (exit 20) while an earlier month in which
anything was rated is open. Months are those of the billing time zone
('ratebatch settings').

` + exitCodesHelp,
		Example: `  ratebatch close --month 2026-11
  ratebatch close --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return p.withStore(cmd.Context(), p.listCloses)
			}
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			if err := checkMonth(month); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				options, err := o.settle(ctx, s, options)
				if err != nil {
					return err
				}
				m, err := monthOf(options.Calendar, month, options.Now)
				if err != nil {
					return err
				}
				return p.close(ctx, p.closingJob(s, options), o.jobOptions, m, reason, dryRun)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "month", "", "month to close, "+monthHelp)
	f.StringVar(&reason, "reason", "", "a note that is kept with the close")
	f.BoolVar(&list, "list", false, "list every close and reopen, and what was corrected since")
	f.BoolVar(&dryRun, "dry-run", false, "check the month and print its totals; write nothing")
	o.addPeriodFlags(cmd)
	o.jobOptions.addFlags(cmd)
	return cmd
}

func (p *program) close(ctx context.Context, job *closing.Job, jo jobOptions, month ratebatch.Month, reason string, dryRun bool) error {
	if dryRun {
		plan, err := job.Plan(ctx, month)
		if err != nil {
			return err
		}
		return p.print(plan, func() {
			p.printTotals("month "+plan.Month+map[bool]string{true: alreadyClosed, false: " is complete"}[plan.Already], plan.Totals)
		})
	}
	var result closing.Result
	err := p.underLease(ctx, job.Store, "close", "rate", jo, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
		plan, err := job.Plan(ctx, month)
		if err != nil {
			return nil, err
		}
		result, err = job.Run(ctx, plan, run.ID, reason)
		return map[string]string{"month": result.Month, "closed": fmt.Sprint(result.Closed)}, err
	})
	if err != nil {
		return err
	}
	return p.print(result, func() {
		p.printTotals("month "+result.Month+map[bool]string{true: alreadyClosed, false: " is closed"}[result.Already], result.Totals)
	})
}

const alreadyClosed = " is closed already, and nothing has changed since"

func (p *program) printTotals(title string, totals []store.MonthTotal) {
	fmt.Fprintln(p.stdout, title)
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TOTAL\tPERIODS\tLINES\tDIGEST")
	for _, t := range totals {
		rowf(w, "%s %s\t%d\t%d\t%016x\n", t.Total, t.Currency, t.Periods, t.Lines, t.LineDigest)
	}
	w.Flush()
}

// closesList is what close --list prints.
type closesList struct {
	Closes      []store.MonthChange `json:"closes"`
	Corrections []store.Correction  `json:"corrections"`
}

func (p *program) listCloses(ctx context.Context, s *store.Store) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	var x closesList
	var err error
	if x.Closes, err = s.MonthCloses(ctx); err != nil {
		return err
	}
	if x.Corrections, err = s.Corrections(ctx); err != nil {
		return err
	}
	return p.print(x, func() {
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "MONTH\tWHAT\tTOTAL\tPERIODS\tLINES\tWHEN\tWHO\tREASON")
		for _, c := range x.Closes {
			rowf(w, "%s\t%s\t%s %s\t%d\t%d\t%s\t%s\t%s\n", c.Month.Format("2006-01"), c.Kind, c.Total, c.Currency, c.Periods, c.Lines, c.At.Format(time.RFC3339), c.Author, firstLine(c.Reason))
		}
		for _, c := range x.Corrections {
			rowf(w, "%s\tcorrection\t%s %s\t\t\t\t\tscope %s: %s instead of %s\n", c.Month.Format("2006-01"), c.Current.Sub(c.Frozen), c.Currency, c.Scope, c.Current, c.Frozen)
		}
		w.Flush()
	})
}

func newReopenCmd(p *program) *cobra.Command {
	var month, reason string
	var jo jobOptions
	cmd := &cobra.Command{
		Use:   "reopen --month MONTH --reason TEXT",
		Short: "Open a closed month again; what it consisted of stays on record",
		Long: `Reopen makes a month open again, so that its periods can be reset and its files
replaced. It refuses (exit 20) while a month that was closed after it is closed:
corrections of this one may be billed there, and a month whose lines were removed
by 'ratebatch retention --lines-after', for it could not be closed again. To change
what a closed month costs no month has to be opened: what is rated again is billed
as a correction.

` + exitCodesHelp,
		Example: `  ratebatch reopen --month 2026-11 --reason "ticket 901"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := (ratebatch.Calendar{}).ParseMonth(month); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				b, err := readBilling(ctx, s)
				if err != nil {
					return err
				}
				m, err := b.Calendar.ParseMonth(month)
				if err != nil {
					return err
				}
				job := &closing.Job{Store: s, Log: p.log, Author: author()}
				err = p.underLease(ctx, s, "reopen", "rate", jo, func(ctx context.Context, _ *jobs.Run) (map[string]string, error) {
					return map[string]string{"month": month}, job.Reopen(ctx, m, reason)
				})
				if err != nil {
					return err
				}
				return p.print(map[string]string{"month": month, "state": "open"}, func() { rowf(p.stdout, "month %s is open\n", month) })
			})
		},
	}
	cmd.Flags().StringVar(&month, "month", "", "month to open, such as 2026-11")
	cmd.Flags().StringVar(&reason, "reason", "", "why (mandatory)")
	jo.addFlags(cmd)
	return cmd
}
