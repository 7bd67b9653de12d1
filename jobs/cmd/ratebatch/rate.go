package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/scopes"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type rateOptions struct {
	period      time.Duration
	waitPeriods int
	first       string
	now         string
	maxPassRows uint64
	late        string
	shard       string
	scopesFrom  []string
	fetch       fetchFlags
	dryRun      bool
	jobOptions
}

// jobOptions are those of every job that runs under a lease.
type jobOptions struct {
	wait    bool
	timeout time.Duration
	query   time.Duration
}

func (o *jobOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", false, "wait for the lease of another run instead of exiting 11, or 75 where that is another job's")
	f.DurationVar(&o.timeout, "timeout", 0, "stop after this time and end what runs on the server; 0: never")
	f.DurationVar(&o.query, "query-timeout", 0, "the server ends any one statement after this time; 0: never")
}

// validate refuses times that cannot work.
func (o *jobOptions) validate() error {
	if o.timeout < 0 || o.query < 0 || o.query > 0 && o.query < time.Second {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--timeout %s, --query-timeout %s", o.timeout, o.query), Hint: "use 0 or a second or more"}
	}
	return nil
}

// addPeriodFlags adds what says which periods there are.
func (o *rateOptions) addPeriodFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&o.period, "period", 0, "length of a period; it must divide a day (default: that of earlier runs, at first 1h)")
	f.IntVar(&o.waitPeriods, "wait-periods", 2, "a period is ready when begin + wait-periods × period < now")
	f.StringVar(&o.first, "first-period", "", "where a scope's first period begins: month (the start of the month of its first usage), usage, or a date (default: that of earlier runs of rate, at first month)")
	f.StringVar(&o.now, "now", "", "judge readiness at this moment (RFC 3339) instead of the clock's")
	f.Uint64Var(&o.maxPassRows, "max-pass-rows", rate.DefaultMaxPassRows, "cut a backlog into passes of at most so many usage rows")
}

func (o *rateOptions) addFlags(cmd *cobra.Command) {
	o.addPeriodFlags(cmd)
	o.jobOptions.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.late, "late", "hold", "what to do with usage that arrived behind its commit, by the period's age: reprocess:48h,hold:40d,ignore")
	f.StringVar(&o.shard, "shard", "", "rate only a part of the scopes, as i/n with i from 0: for n jobs at once. The first also looks for late usage, of all scopes")
	f.StringArrayVar(&o.scopesFrom, "scopes-from", nil, "first fetch the names of scopes: keystone, or a file as 'scopes load' reads it; may be given several times. A fetch that fails is reported and holds up nothing")
	o.fetch.addFlags(cmd)
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be rated and write nothing")
}

func (o *rateOptions) options(now time.Time) (rate.Options, error) {
	first, err := rate.ParseFirstPeriod(o.first)
	if err != nil {
		return rate.Options{}, err
	}
	if o.now != "" {
		if now, err = parseMoment("now", o.now); err != nil {
			return rate.Options{}, err
		}
	}
	late, err := rate.ParseLatePolicy(o.late)
	if err != nil {
		return rate.Options{}, err
	}
	shard, err := rate.ParseShard(o.shard)
	if err != nil {
		return rate.Options{}, err
	}
	if err := o.jobOptions.validate(); err != nil {
		return rate.Options{}, err
	}
	period := o.period
	if period == 0 {
		period = time.Hour // until the database was asked (settle)
	}
	out := rate.Options{Late: late, Shard: shard, Now: now.UTC(), Period: period, WaitPeriods: o.waitPeriods, First: first, MaxPassRows: o.maxPassRows, Author: author()}
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
  ratebatch --clickhouse clickhouse://ratebatch_rate@db:9000/ratebatch rate --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			fetchers, err := o.fetchers()
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				options, err := o.settle(ctx, s, options)
				if err != nil {
					return err
				}
				if !o.dryRun {
					if err := p.fetchScopes(ctx, s, fetchers); err != nil {
						return err
					}
					if err := o.remember(ctx, s, options); err != nil {
						return err
					}
				}
				return p.rate(ctx, s, options, o.jobOptions, o.dryRun)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *rateOptions) fetchers() ([]scopes.Fetcher, error) {
	var out []scopes.Fetcher
	for _, from := range o.scopesFrom {
		if from != "keystone" {
			out = append(out, scopes.Static{File: from})
			continue
		}
		f, err := o.fetch.keystone()
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// fetchScopes runs the fetchers. One that fails has its own line in the run
// log, which status shows and status --check rings for; what is rated does not
// depend on it, so the run goes on.
func (p *program) fetchScopes(ctx context.Context, s *store.Store, list []scopes.Fetcher) error {
	for _, f := range list {
		if _, err := p.fetch(ctx, s, f); err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.log.ErrorContext(ctx, "scopes not fetched, those known so far are rated", "fetcher", f.Name(), "error", err)
		}
	}
	return nil
}

func (p *program) rate(ctx context.Context, s *store.Store, o rate.Options, jo jobOptions, dryRun bool) error {
	job := &rate.Job{Store: s, Log: p.log, Options: o}
	if dryRun {
		plan, err := job.Plan(ctx)
		if err != nil {
			return err
		}
		return p.print(plan, func() { printRatePlan(p, plan) })
	}
	var err error
	if job.Options.TiersAsOf, err = p.freshTiers(ctx, s, job); err != nil {
		return err
	}
	result, err := p.runRate(ctx, job, jo)
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
func (p *program) runRate(ctx context.Context, job *rate.Job, jo jobOptions) (*rate.Result, error) {
	var result *rate.Result
	// A shard is a job of its own in the run log too: status shows each.
	name := strings.TrimSpace("rate " + job.Options.Shard.String())
	err := p.underLease(ctx, job.Store, name, name, jo, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
		var err error
		if result, err = p.rateUnderLease(ctx, job, run); result == nil {
			return nil, err
		}
		counts := map[string]string{}
		counts["scopes"], counts["periods"], counts["lines"] = fmt.Sprint(result.Scopes), fmt.Sprint(result.Periods), fmt.Sprint(result.Lines)
		counts["unpriced"], counts["rejected"], counts["skipped"] = fmt.Sprint(result.Unpriced), fmt.Sprint(result.Rejected), fmt.Sprint(result.Skipped)
		counts["failed_scopes"], counts["lost"] = fmt.Sprint(len(result.Failed)), fmt.Sprint(result.Lost)
		counts["unpriced_metrics"], counts["unmatched_rules"], counts["always_zero_rules"] = ratebatch.Some(result.Rules.UnpricedMetrics, 20), ratebatch.Some(result.Rules.Unmatched, 20), ratebatch.Some(result.Rules.AlwaysZero, 20)
		if result.Late != nil {
			counts["late"] = fmt.Sprint(result.Late.Late)
		}
		return counts, err
	})
	return result, err
}

// underLease runs a job under a lease and in the run log, within its times. A
// lease that is held is ErrLeaseHeld where it is the job's own, so that another run
// does the same work, and to be tried again where it is another job's.
func (p *program) underLease(ctx context.Context, s *store.Store, job, lease string, jo jobOptions, do func(context.Context, *jobs.Run) (map[string]string, error)) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	// Selects end on the server when the command goes away.
	settings := map[string]any{"cancel_http_readonly_queries_on_client_close": 1}
	if jo.query > 0 {
		settings["max_execution_time"] = int(jo.query.Seconds())
	}
	ctx = store.Settings(ctx, settings)
	if jo.timeout > 0 {
		late := &ratebatch.TryAgainError{Err: fmt.Errorf("%s did not end within --timeout %s", job, jo.timeout), Hint: "what was committed stays; the next run goes on from there"}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, jo.timeout, late)
		defer cancel()
	}
	run, err := jobs.Start(ctx, s, job, os.Args[1:], version, p.now())
	if err != nil {
		return err
	}
	counts, err := func() (map[string]string, error) {
		held, err := p.acquire(ctx, s, job, lease, jo, run.ID)
		if err != nil {
			return nil, err
		}
		defer p.release(ctx, held, run.ID)
		return do(ctx, run)
	}()
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = cause
	}
	if endErr := run.End(ctx, counts, err); endErr != nil {
		p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
	}
	return err
}

// acquire claims a lease for a job's run.
func (p *program) acquire(ctx context.Context, s *store.Store, job, lease string, jo jobOptions, run uuid.UUID) (*jobs.Lease, error) {
	acquire := jobs.Acquire
	if jo.wait {
		acquire = jobs.AcquireWait
	}
	held, err := acquire(ctx, s, p.log, lease, run)
	if errors.Is(err, ratebatch.ErrLeaseHeld) && job != lease {
		// Whoever holds it does not do this job's work, so it is to be done later.
		return nil, &ratebatch.TryAgainError{Err: err, Hint: "run it again when that has ended, or with --wait"}
	}
	return held, err
}

// release gives a run's lease back; one that cannot be given back runs out.
func (p *program) release(ctx context.Context, held *jobs.Lease, run uuid.UUID) {
	if err := held.Release(ctx); err != nil {
		p.log.WarnContext(ctx, "release the lease", jobs.KeyRunID, run, "error", err)
	}
}

func (p *program) rateUnderLease(ctx context.Context, job *rate.Job, run *jobs.Run) (*rate.Result, error) {
	plan, err := job.Plan(ctx)
	if err != nil {
		return nil, err
	}
	bar := p.progress("rating", int64(plan.Periods), "periods")
	defer bar.done()
	job.Progress = func(done, _ uint64) { bar.set(int64(done)) }
	result, err := job.Run(ctx, plan, run)
	if err != nil && !result.Ended {
		return nil, err
	}
	if ctx.Err() != nil || job.Options.Shard.Index > 0 {
		return &result, err // late usage of all scopes is the first shard's
	}
	job.Progress = nil
	late, lateErr := job.Look(ctx, run)
	result.Late = &late
	return &result, errors.Join(err, lateErr)
}

func printRatePlan(p *program, plan *rate.Plan) {
	if plan.Expired > 0 {
		rowf(p.stdout, "%s older than their tier keeps cannot be rated\n", count(plan.Expired, "due period"))
	}
	if plan.Periods == 0 {
		fmt.Fprintln(p.stdout, "nothing is due")
	} else {
		rowf(p.stdout, "%s of %s %s due from %s to %s: about %s in %s\n",
			count(plan.Periods, "period"), count(plan.Scopes, "scope"), plural(plan.Periods, "is", "are"), plan.From.Format(time.DateOnly), plan.To.Format(time.DateOnly), count(plan.Rows, "usage row"), passes(plan.Passes))
	}
	printWaiting(p, plan.Waiting)
}

func printWaiting(p *program, waiting []rate.Waiting) {
	for _, w := range waiting {
		rowf(p.stdout, "waiting: %s: %s\n", count(w.Scopes, "scope"), w.Reason)
	}
}

func printRateResult(p *program, r *rate.Result) {
	if r.Periods == 0 && len(r.Failed) == 0 {
		fmt.Fprintln(p.stdout, "nothing is due")
		printLate(p, r)
		printWaiting(p, r.Waiting)
		return
	}
	rowf(p.stdout, "rated %s of %s: %s in %s, %.1f s\n", count(r.Periods, "period"), count(r.Scopes, "scope"), count(r.Lines, "line"), passes(r.Passes), r.Seconds)
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	for _, currency := range slices.Sorted(mapKeys(r.Price)) {
		rowf(w, "price\t%s %s\n", r.Price[currency], currency)
	}
	for _, b := range []struct {
		name  string
		count uint64
	}{{"unpriced", r.Unpriced}, {"rejected", r.Rejected}, {"skipped", r.Skipped}} {
		if b.count > 0 {
			rowf(w, "%s\t%d usage rows\n", b.name, b.count)
		}
	}
	if r.Carried > 0 {
		rowf(w, "rated again\t%s, because what was used before in the month changed\n", count(r.Carried, "period"))
	}
	for _, f := range r.Failed {
		rowf(w, "left out\t%s from %s: %s\n", f.Scope, f.Begin.Format(time.RFC3339), f.Error)
	}
	for _, x := range []struct {
		name string
		list []string
	}{{"unpriced metrics", r.Rules.UnpricedMetrics}, {"rules that matched nothing", r.Rules.Unmatched}, {"rules that always gave 0", r.Rules.AlwaysZero}} {
		if len(x.list) > 0 {
			rowf(w, "%s\t%s\n", x.name, ratebatch.Some(x.list, 10))
		}
	}
	rowf(w, "run\t%s\n", r.RunID)
	w.Flush()
	printLate(p, r)
	printWaiting(p, r.Waiting)
}

func printLate(p *program, r *rate.Result) {
	lost := r.Lost
	if late := r.Late; late != nil {
		lost += late.Lost
		if late.Late > 0 {
			var parts []string
			for _, currency := range slices.Sorted(mapKeys(late.Difference)) {
				parts = append(parts, late.Difference[currency].String()+" "+currency)
			}
			rowf(p.stdout, "late usage in %s, worth %s; %d rated again (see 'ratebatch status --late')\n", count(late.Late, "rated period"), strings.Join(parts, ", "), late.Reprocessed)
		}
	}
	if lost > 0 {
		rowf(p.stdout, "ALARM: %d rated periods have lost usage; they were left as they are (see 'ratebatch status --late')\n", lost)
	}
}

// count is a number of things: 1 period, 2 periods.
func count[N int | uint64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, plural(n, noun, noun+"s"))
}

func passes(n int) string { return fmt.Sprintf("%d %s", n, plural(n, "pass", "passes")) }

// firstLine keeps long notes out of tables.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
