package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type rateOptions struct {
	period      time.Duration
	waitPeriods int
	first       string
	now         string
	maxPassRows uint64
	dryRun      bool
}

func (o *rateOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&o.period, "period", time.Hour, "length of a period; it must divide a day")
	f.IntVar(&o.waitPeriods, "wait-periods", 2, "a period is ready when begin + wait-periods × period < now")
	f.StringVar(&o.first, "first-period", "month", "where a scope's first period begins: month (the start of the month of its first usage), usage, or a date")
	f.StringVar(&o.now, "now", "", "judge readiness at this moment (RFC 3339) instead of the clock's")
	f.Uint64Var(&o.maxPassRows, "max-pass-rows", rate.DefaultMaxPassRows, "cut a backlog into passes of at most so many usage rows")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be rated and write nothing")
}

func (o *rateOptions) options(now time.Time) (rate.Options, error) {
	first, err := rate.ParseFirstPeriod(o.first)
	if err != nil {
		return rate.Options{}, err
	}
	if o.now != "" {
		if now, err = time.Parse(time.RFC3339, o.now); err != nil {
			return rate.Options{}, &ratebatch.ConfigError{Err: fmt.Errorf("--now %q", o.now), Hint: "write it as 2026-11-01T00:00:00Z"}
		}
	}
	out := rate.Options{Now: now.UTC(), Period: o.period, WaitPeriods: o.waitPeriods, First: first, MaxPassRows: o.maxPassRows, Author: author()}
	return out, out.Validate()
}

// author is who a change is attributed to: the user of the process.
func author() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

func newRateCmd(p *program) *cobra.Command {
	var o rateOptions
	cmd := &cobra.Command{
		Use:   "rate",
		Short: "Rate all ready periods of all scopes in one pass",
		Long: `Rate rates every ready period of every active scope that has no current
commit, holes included, and commits them. Running it again when nothing is due
does nothing and exits 0. A run that was killed anywhere leaves nothing that
counts; the next one rates what is still due.

` + exitCodesHelp,
		Example: `  ratebatch rate
  ratebatch rate --dry-run
  ratebatch --clickhouse clickhouse://rater@db:9000/ratebatch rate --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				return p.rate(ctx, s, options, o.dryRun)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (p *program) rate(ctx context.Context, s *store.Store, o rate.Options, dryRun bool) error {
	job := &rate.Job{Store: s, Log: p.log, Options: o}
	if dryRun {
		plan, err := job.Plan(ctx)
		if err != nil {
			return err
		}
		return p.print(plan, func() { printRatePlan(p, plan) })
	}
	result, err := p.runRate(ctx, job)
	if result == nil {
		return err
	}
	if printErr := p.print(result, func() { printRateResult(p, result) }); printErr != nil && err == nil {
		return printErr
	}
	return err
}

// runRate does one run of the rate job under its lease and in the run log. The
// result is nil when the run did not come to an end.
func (p *program) runRate(ctx context.Context, job *rate.Job) (*rate.Result, error) {
	if err := job.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	run, err := jobs.Start(ctx, job.Store, "rate", os.Args[1:], version, p.now())
	if err != nil {
		return nil, err
	}
	result, err := p.rateUnderLease(ctx, job, run)
	counts := map[string]string{}
	if result != nil {
		counts["scopes"], counts["periods"], counts["lines"] = fmt.Sprint(result.Scopes), fmt.Sprint(result.Periods), fmt.Sprint(result.Lines)
		counts["unpriced"], counts["rejected"], counts["skipped"] = fmt.Sprint(result.Unpriced), fmt.Sprint(result.Rejected), fmt.Sprint(result.Skipped)
	}
	if endErr := run.End(ctx, counts, err); endErr != nil {
		p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
	}
	return result, err
}

func (p *program) rateUnderLease(ctx context.Context, job *rate.Job, run *jobs.Run) (*rate.Result, error) {
	lease, err := jobs.Acquire(ctx, job.Store, p.log, "rate", run.ID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := lease.Release(ctx); err != nil {
			p.log.WarnContext(ctx, "release the lease", jobs.KeyRunID, run.ID, "error", err)
		}
	}()
	plan, err := job.Plan(ctx)
	if err != nil {
		return nil, err
	}
	bar := p.progress("rating", int64(plan.Periods), "periods")
	defer bar.done()
	job.Progress = func(done, _ uint64) { bar.set(int64(done)) }
	result, err := job.Run(ctx, plan, run)
	if err != nil && ratebatch.ExitCode(err) != ratebatch.ExitRejected {
		return nil, err
	}
	return &result, err
}

func printRatePlan(p *program, plan *rate.Plan) {
	if plan.Periods == 0 {
		fmt.Fprintln(p.stdout, "nothing is due")
	} else {
		fmt.Fprintf(p.stdout, "%d periods of %d scopes are due from %s to %s: about %d usage rows in %d passes\n",
			plan.Periods, plan.Scopes, plan.From.Format(time.DateOnly), plan.To.Format(time.DateOnly), plan.Rows, plan.Passes)
	}
	printWaiting(p, plan.Waiting)
}

func printWaiting(p *program, waiting []rate.Waiting) {
	for _, w := range waiting {
		fmt.Fprintf(p.stdout, "waiting: %d scopes: %s\n", w.Scopes, w.Reason)
	}
}

func printRateResult(p *program, r *rate.Result) {
	if r.Periods == 0 {
		fmt.Fprintln(p.stdout, "nothing is due")
		printWaiting(p, r.Waiting)
		return
	}
	fmt.Fprintf(p.stdout, "rated %d periods of %d scopes: %d lines in %d passes, %.1f s\n", r.Periods, r.Scopes, r.Lines, r.Passes, r.Seconds)
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	for _, currency := range slices.Sorted(mapKeys(r.Price)) {
		fmt.Fprintf(w, "price\t%s %s\n", r.Price[currency], currency)
	}
	for _, b := range []struct {
		name  string
		count uint64
	}{{"unpriced", r.Unpriced}, {"rejected", r.Rejected}, {"skipped", r.Skipped}} {
		if b.count > 0 {
			fmt.Fprintf(w, "%s\t%d usage rows\n", b.name, b.count)
		}
	}
	fmt.Fprintf(w, "run\t%s\n", r.RunID)
	w.Flush()
	printWaiting(p, r.Waiting)
}

// firstLine keeps long notes out of tables.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
