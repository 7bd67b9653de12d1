package main

import (
	"context"
	"errors"
	"fmt"
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

// status is what the status command prints.
type status struct {
	Scopes  []scopeStatus     `json:"scopes"`
	Jobs    []store.JobStatus `json:"jobs"`
	Due     uint64            `json:"due_periods"`
	Waiting []rate.Waiting    `json:"waiting"`
	Note    string            `json:"note,omitempty"` // why due periods are not known

	Failures  []store.ScopeFailure `json:"failures,omitempty"`
	Schedules []store.Schedule     `json:"schedules,omitempty"` // that are not done
	Expired   uint64               `json:"expired_periods,omitempty"`
	Warnings  []string             `json:"warnings,omitempty"`
	Oldest    *time.Time           `json:"oldest_due,omitempty"` // day of the oldest due period
	LateOpen  int                  `json:"late_findings"`
	Ingest    ingestStatus         `json:"ingest"`
	Late      []store.LateFinding  `json:"late,omitempty"`
	Outdated  []outdated           `json:"outdated,omitempty"`

	months monthsLeft // warnings says it

	BeforeFirst []store.BeforeFirst         `json:"before_first,omitempty"`
	States      map[string]store.ScopeState `json:"scope_states,omitempty"` // of scopes that were named or disabled
	Rules       map[string]string           `json:"rules,omitempty"`        // what the last run of rate with something due said of metrics and rules
}

// scopeStatus is how far a scope is rated, and what keeps it from going on.
type scopeStatus struct {
	store.ScopeStatus
	Lag       float64 `json:"lag_seconds"` // since its last rated period ended, in whichever currency
	LastError string  `json:"last_error,omitempty"`
}

// scopeStatuses joins what is rated with what fails. A scope of which nothing could
// be rated yet is listed too.
func scopeStatuses(rated []store.ScopeStatus, failures []store.ScopeFailure, now time.Time) []scopeStatus {
	out := make([]scopeStatus, 0, len(rated))
	until := map[string]time.Time{}
	for _, s := range rated {
		until[s.Scope] = ratebatch.Later(s.RatedUntil, until[s.Scope])
	}
	for _, s := range rated {
		out = append(out, scopeStatus{ScopeStatus: s, Lag: now.Sub(until[s.Scope]).Seconds()})
	}
	for _, f := range failures {
		i := slices.IndexFunc(out, func(s scopeStatus) bool { return s.Scope == f.Scope })
		if i < 0 {
			i = len(out)
			out = append(out, scopeStatus{ScopeStatus: store.ScopeStatus{Scope: f.Scope, First: f.Begin, RatedUntil: f.Begin}, Lag: now.Sub(f.Begin).Seconds()})
		}
		out[i].LastError = f.Error
	}
	slices.SortStableFunc(out, func(a, b scopeStatus) int { return strings.Compare(a.Scope, b.Scope) })
	return out
}

// outdated are rated periods that another version is in force for now.
type outdated struct {
	Kind    string    `json:"kind"` // rate plan or metric set
	Version uint32    `json:"version"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Periods uint64    `json:"periods"`
}

func newStatusCmd(p *program) *cobra.Command {
	var o rateOptions
	var late, check bool
	var maxLag, within time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far each scope is rated, what waits and why, and the last run of each job",
		Long: `Status reads the state and the run log and writes nothing. With --late it lists
usage that arrived behind its commit or was lost, with what it is worth, and rated
periods that another rate plan or metric set is in force for now. With --check it
exits 20 when a due period, or the input that periods wait for, is older than
--max-lag; when due periods are older than their tier keeps; when usage was lost, a
scope fails, the last fetch of scopes failed, or rate would stop; for --max-lag after
records were lost in Kafka; when a month that was closed before --max-lag is not
exported since, where anything is; and when a month is open for --close-within after
its end, where months are closed.

` + exitCodesHelp,
		Example: `  ratebatch status
  ratebatch status --late
  ratebatch status --check --max-lag 6h --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				options, err := o.settle(ctx, s, options)
				if err != nil {
					return err
				}
				x, err := readStatus(ctx, p, s, options)
				if err != nil {
					return err
				}
				if x.Outdated, err = readOutdated(ctx, s); err != nil {
					return err
				}
				alarm := x.check(options, maxLag, within)
				if !late {
					x.Late = nil
				}
				if err := p.print(x, func() {
					printStatus(p, x)
					if late {
						printLateUsage(p, x)
					}
				}); err != nil || !check {
					return err
				}
				return alarm
			})
		},
	}
	o.addPeriodFlags(cmd)
	cmd.Flags().BoolVar(&late, "late", false, "list late and lost usage and outdated periods")
	cmd.Flags().BoolVar(&check, "check", false, "exit 20 when rating is late or something is wrong")
	cmd.Flags().DurationVar(&maxLag, "max-lag", 24*time.Hour, "with --check: how old a due period may be")
	cmd.Flags().DurationVar(&within, "close-within", closeWithin, "with --check: how long after its end a month may be open, where months are closed")
	return cmd
}

// check says what an alarm should ring for.
func (x *status) check(o rate.Options, maxLag, within time.Duration) error {
	var errs []error
	halt := func(hint, format string, args ...any) {
		errs = append(errs, &ratebatch.HaltError{Err: fmt.Errorf(format, args...), Hint: hint})
	}
	if x.Note != "" {
		halt("", "rate would stop: %s", x.Note)
	}
	// A period of the oldest due day has been ready for this long at least.
	if x.Oldest != nil && o.Now.Sub(x.Oldest.AddDate(0, 0, 1)) > maxLag {
		halt("run 'ratebatch rate'", "periods of %s are due, longer than %s", x.Oldest.Format(time.DateOnly), maxLag)
	}
	for _, w := range x.Waiting {
		if !w.Until.IsZero() && o.Now.Sub(w.Until) > maxLag {
			halt("see to the region's ingest", "%s", w.Reason)
		}
	}
	if x.Expired > 0 {
		halt("keep the tiers longer, or settle them: 'ratebatch close' says how", "%d due periods are older than their tier keeps", x.Expired)
	}
	for _, f := range x.Failures {
		halt("", "scope %s from %s: %s", f.Scope, f.Begin.UTC().Format(time.RFC3339), f.Error)
	}
	lost := 0
	for _, f := range x.Late {
		if f.Kind == "lost" {
			lost++
		}
	}
	for _, j := range x.Jobs {
		if j.State == "failed" && strings.HasPrefix(j.Job, "scopes ") {
			halt(j.Hint, "%s: %s", j.Job, j.Error)
		}
	}
	if lost > 0 {
		halt("see 'ratebatch status --late'", "usage of %d rated periods was lost", lost)
	}
	errs = append(errs, x.Ingest.check(o.Now, maxLag)...)
	for _, m := range x.months.overdue(o.Now, o.Now.Add(-maxLag), within) {
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// String says it in one sentence.
func (o outdated) String() string {
	return fmt.Sprintf("%s from %s on %s rated by another %s than version %d, which is in force for them now; reprocess them if they should be billed by it",
		count(o.Periods, "period"), o.From.Format(time.RFC3339), plural(o.Periods, "was", "were"), o.Kind, o.Version)
}

// ruleCounts are what a run of rate notes of metrics and rules.
var ruleCounts = []string{"unpriced_metrics", "unmatched_rules", "always_zero_rules"}

func readOutdated(ctx context.Context, s *store.Store) ([]outdated, error) {
	var out []outdated
	for _, kind := range []struct {
		kind store.VersionKind
		name string
	}{{store.PlanVersions, "rate plan"}, {store.MetricVersions, "metric set"}} {
		versions, err := s.Versions(ctx, kind.kind)
		if err != nil {
			return nil, err
		}
		for _, span := range store.InForce(versions, time.Unix(0, 0).UTC(), store.OpenEnd) {
			if span.Version == nil {
				continue
			}
			v := *span.Version
			v.ValidFrom, v.ValidTo = span.Begin, span.End
			n, err := s.OutdatedBy(ctx, kind.kind, v)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				out = append(out, outdated{kind.name, v.Version, span.Begin, span.End, n})
			}
		}
	}
	return out, nil
}

func printLateUsage(p *program, x *status) {
	fmt.Fprintln(p.stdout)
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tPERIOD\tWHAT\tROWS COMMITTED\tNOW\tDIFFERENCE\tBY ANOTHER PLAN\tACTION\tFOUND")
	for _, f := range x.Late {
		plan := ""
		if d := f.ByPlan(); !d.IsZero() {
			plan = d.String() + " " + f.Currency
		}
		rowf(w, "%s\t%s\t%s\t%d\t%d\t%s %s\t%s\t%s\t%s\n", f.Scope, f.Begin.Format(time.RFC3339), f.Kind, f.CommittedRows, f.FoundRows, f.Difference(), f.Currency, plan, f.Action, f.FoundAt.Format(time.RFC3339))
	}
	w.Flush()
}

func readStatus(ctx context.Context, p *program, s *store.Store, o rate.Options) (*status, error) {
	if err := s.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var x status
	var err error
	rated, err := s.ScopeStatuses(ctx)
	if err != nil {
		return nil, err
	}
	if x.Jobs, err = jobs.Statuses(ctx, s); err != nil {
		return nil, err
	}
	if x.Failures, err = s.ScopeFailures(ctx); err != nil {
		return nil, err
	}
	x.Scopes = scopeStatuses(rated, x.Failures, o.Now)
	if x.Late, err = s.LateOpen(ctx); err != nil {
		return nil, err
	}
	if x.States, err = s.ScopeStates(ctx); err != nil {
		return nil, err
	}
	if x.Rules, err = s.LastCounts(ctx, "rate", ruleCounts...); err != nil {
		return nil, err
	}
	x.LateOpen = len(x.Late)
	if x.Ingest, err = readIngestStatus(ctx, s, o.Now); err != nil {
		return nil, err
	}
	if x.months, err = readMonthsLeft(ctx, s, o.Calendar, o.Now); err != nil {
		return nil, err
	}
	for _, m := range x.months.overdue(o.Now, o.Now, closeWithin) {
		x.Warnings = append(x.Warnings, m.Error())
	}
	schedules, err := jobs.Schedules(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, y := range schedules {
		if y.Open() {
			x.Schedules = append(x.Schedules, y)
		}
	}
	plan, err := (&rate.Job{Store: s, Log: p.log, Options: o}).Plan(ctx)
	if code := ratebatch.ExitCode(err); code == ratebatch.ExitConfig || code == ratebatch.ExitHalted {
		x.Note = err.Error() // rate says the same; the rest of the status still holds
		return &x, nil
	}
	if err != nil {
		return nil, err
	}
	x.Due, x.Waiting, x.Expired, x.Oldest = plan.Periods, plan.Waiting, plan.Expired, plan.From
	if x.BeforeFirst, err = (&rate.Job{Store: s, Log: p.log, Options: o}).BeforeFirst(ctx, time.Unix(0, 0).UTC(), store.OpenEnd); err != nil {
		return nil, err
	}
	oldest, keep, err := s.OldestRatable(ctx, o.Now, o.Period)
	if err != nil {
		return nil, err
	}
	if plan.From != nil && plan.From.Before(oldest.Add(warnBefore)) {
		x.Warnings = append(x.Warnings, fmt.Sprintf("the tiers keep usage for %s: in less than %s they delete usage of %s that is not rated", keep, warnBefore, plan.From.Format(time.DateOnly)))
	}
	return &x, nil
}

// warnBefore is how long before a tier deletes unrated usage status says so.
const warnBefore = 7 * 24 * time.Hour

func printStatus(p *program, x *status) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tNAME\tSTATE\tRATED UNTIL\tPERIODS\tPRICE\tUNPRICED\tREJECTED")
	for _, s := range x.Scopes {
		state := "active"
		if known, ok := x.States[s.Scope]; ok && !known.Active {
			state = "disabled"
		} else if s.LastError != "" {
			state = "fails"
		}
		rowf(w, "%s\t%s\t%s\t%s\t%d\t%s %s\t%d\t%d\n", s.Scope, x.States[s.Scope].Name, state, s.RatedUntil.Format(time.RFC3339), s.Periods, s.Price, s.Currency, s.Unpriced, s.Rejected)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "JOB\tLAST RUN\tSTATE\tLAST SUCCESS\tERROR")
	for _, j := range x.Jobs {
		success := "never"
		if j.LastSuccess.Unix() > 0 {
			success = j.LastSuccess.Format(time.RFC3339)
		}
		rowf(w, "%s\t%s\t%s\t%s\t%s\n", j.Job, j.LastStart.Format(time.RFC3339), j.State, success, firstLine(j.Error))
	}
	w.Flush()
	rowf(p.stdout, "\n%s %s due\n", count(x.Due, "period"), plural(x.Due, "is", "are"))
	if x.Note != "" {
		rowf(p.stdout, "rate would stop: %s\n", x.Note)
	}
	printWaiting(p, x.Waiting)
	if x.Expired > 0 {
		rowf(p.stdout, "%d due periods are older than their tier keeps and cannot be rated\n", x.Expired)
	}
	for _, w := range x.Warnings {
		rowf(p.stdout, "warning: %s\n", w)
	}
	for _, f := range x.Failures {
		what := "fails"
		if f.OfLook {
			what = "has usage that may be late and cannot be read"
		}
		rowf(p.stdout, "scope %s %s from %s on: %s\n", f.Scope, what, f.Begin.UTC().Format(time.RFC3339), f.Error)
	}
	for _, y := range x.Schedules {
		text := y.State
		if y.Waiting != "" {
			text = "waits: " + y.Waiting
		}
		rowf(p.stdout, "reprocess %s: %s\n", y.ID, text)
	}
	for _, b := range x.BeforeFirst {
		rowf(p.stdout, "before_first: %s of scope %s in %s from %s on lie before its first period %s and are billed to nobody (see --first-period)\n",
			count(b.Rows, "usage row"), b.Scope, count(b.Periods, "period"), b.From.Format(time.RFC3339), b.First.Format(time.RFC3339))
	}
	for _, name := range ruleCounts {
		if text := x.Rules[name]; text != "" {
			rowf(p.stdout, "%s in the last run that rated: %s\n", strings.ReplaceAll(name, "_", " "), text)
		}
	}
	for _, o := range x.Outdated {
		rowf(p.stdout, "%s\n", o)
	}
	printIngestStatus(p, x.Ingest)
	if x.LateOpen > 0 {
		rowf(p.stdout, "late or lost usage in %d rated periods: see 'ratebatch status --late'\n", x.LateOpen)
	}
}
