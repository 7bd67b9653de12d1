package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Options of the rate job.
type Options struct {
	Now         time.Time     // the moment that readiness is judged at
	TiersAsOf   time.Time     // server's time; watermarks set later are of input that the tiers lack; zero: any
	Period      time.Duration // length of a period
	WaitPeriods int           // a period is ready when begin + WaitPeriods × Period < Now
	First       FirstPeriod
	Calendar    ratebatch.Calendar // which months there are
	Shard       Shard
	Late        LatePolicy
	MaxPassRows uint64 // estimated usage rows of one pass; 0: the default
	Author      string
	RetryAfter  time.Duration // pause when an answer was lost; 0: a second
}

func (o Options) retryAfter() time.Duration {
	if o.RetryAfter == 0 {
		return retryAfter
	}
	return o.RetryAfter
}

const (
	// DefaultMaxPassRows bounds the engine's memory for a pass, about 650 bytes
	// a usage row, to two gigabytes.
	DefaultMaxPassRows = 3_000_000
	maxPassPeriods     = 500_000
	maxAttempts        = 3
)

// passLimit is what one pass may hold: who allows more rows than the default
// allows as many more periods.
func (o Options) passLimit() passLimit {
	rows := cmp.Or(o.MaxPassRows, DefaultMaxPassRows)
	return passLimit{rows: rows, periods: maxPassPeriods * max(1, rows/DefaultMaxPassRows), period: o.Period}
}

// Validate reports every value that cannot work.
func (o Options) Validate() error {
	var errs []error
	if err := ratebatch.CheckPeriodLength(o.Period); err != nil {
		errs = append(errs, err)
	}
	if o.WaitPeriods < 0 {
		errs = append(errs, fmt.Errorf("wait periods: %d is negative", o.WaitPeriods))
	}
	if o.Now.IsZero() {
		errs = append(errs, errors.New("now is not set"))
	}
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// Job rates what is due.
type Job struct {
	Store   *store.Store
	Log     *slog.Logger
	Options Options
	// Progress, if set, is told after each pass how many due periods are done.
	Progress func(done, total uint64)
	// Passed, if set, is told after each pass up to where the plan is done.
	Passed func(ctx context.Context, until time.Time) error
}

// Result is what a run did: one object, printed by rate --output json.
type Result struct {
	RunID    uuid.UUID                  `json:"run_id"`
	Scopes   int                        `json:"scopes"`
	Periods  uint64                     `json:"periods"`
	Lines    uint64                     `json:"lines"`
	Price    map[string]decimal.Decimal `json:"price"`
	Unpriced uint64                     `json:"unpriced"`
	Rejected uint64                     `json:"rejected"`
	Skipped  uint64                     `json:"skipped"`
	Rules    RuleReport                 `json:"rules"`
	Passes   int                        `json:"passes"`
	Attempts []uuid.UUID                `json:"attempts"`
	Waiting  []Waiting                  `json:"waiting"`
	Lost     uint64                     `json:"lost,omitempty"`    // periods with fewer usage rows than were committed
	Failed   []store.ScopeFailure       `json:"failed,omitempty"`  // scopes that were left out, each with its cause
	Late     *LateResult                `json:"late,omitempty"`    // what was found behind its commit
	Carried  uint64                     `json:"carried,omitempty"` // of the periods, those rated again because what was used before them changed
	Seconds  float64                    `json:"seconds"`
	Ended    bool                       `json:"-"` // every pass came to its end

	failing map[string]error           // scopes that fail by what their rows hold
	before  []store.ScopeFailure       // failures of the runs before
	lost    map[store.ScopePeriod]bool // Lost, one by one
	carries []error                    // what keeps carry-ins from being settled
}

// Run rates what the plan names, pass by pass, under the run's id. It returns
// ratebatch.ErrRejected beside the result when some lines were rejected, and a
// scope's failure after everything else was rated.
func (j *Job) Run(ctx context.Context, plan *Plan, run *jobs.Run) (Result, error) {
	started := time.Now() //nolint:forbidigo // how long the run took
	result := Result{RunID: run.ID, Price: map[string]decimal.Decimal{}, Waiting: plan.Waiting, Attempts: []uuid.UUID{}}
	scopes := map[string]bool{}
	var err error
	if result.before, err = j.Store.ScopeFailures(ctx); err != nil {
		return result, err
	}
	err = j.passes(ctx, plan, &result, scopes)
	if err == nil {
		err = j.settleCarries(ctx, plan, &result, scopes)
	}
	result.Scopes = len(scopes)
	result.Seconds = time.Since(started).Round(time.Millisecond).Seconds()
	if err != nil {
		return result, err
	}
	result.Ended = true
	for _, m := range plan.complete {
		if err := j.Store.NoteCompleteMonth(ctx, m); err != nil {
			return result, err
		}
	}
	if err := j.Store.NoteUsageMonths(ctx, plan.read, j.Options.Now); err != nil {
		return result, err
	}
	if err := j.Store.NotePlainMonths(ctx, plan.touched()); err != nil {
		return result, err
	}
	if !plan.asked && !plan.late {
		if err := j.settleFailures(ctx, run.ID, &result); err != nil {
			return result, err
		}
	}
	errs := []error{plan.expired}
	errs = append(errs, result.failures())
	errs = append(errs, result.carries...)
	if result.Lost > 0 {
		j.Log.ErrorContext(ctx, "usage lost", jobs.KeyRunID, run.ID, "periods", result.Lost, "hint", "see 'ratebatch status --late'")
	}
	if result.Rejected > 0 {
		errs = append(errs, fmt.Errorf("%d: %w; list them with: select * from rated where bucket = 'rejected'", result.Rejected, ratebatch.ErrRejected))
	}
	return result, errors.Join(errs...)
}

// passes rates the plan's chunks. A chunk that needs more memory than the
// server gives is cut in halves by time. One that fails by what some scope's rows
// hold is cut in halves by scopes and then by time, until that scope's period stands
// alone; the scope is left out from there on.
// Periods that another run rated by other usage meanwhile are rated again at the
// end.
func (j *Job) passes(ctx context.Context, plan *Plan, result *Result, scopes map[string]bool) error {
	queue := result.queue(plan)
	var overtaken []store.Overtaken
	var done uint64
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		p.job, p.plan = j, plan
		p.leave(result.failing)
		if len(p.windows) == 0 {
			continue
		}
		err := p.run(ctx)
		result.Attempts = append(result.Attempts, p.attempts...)
		if a, b := p.halves(err, j.Options.Period); a != nil && !result.hopeless() {
			j.Log.WarnContext(ctx, "pass cut in halves", "from", a.chunk.from, "to", b.chunk.to, "scopes", len(scopesOf(p.windows)), "reason", err)
			if len(p.committed) > 0 {
				result.add(p, scopes)
			}
			overtaken = append(overtaken, p.overtaken...)
			queue = slices.Insert(queue, 0, a, b)
			continue
		}
		if store.IsOfRows(err) {
			err = j.leaveOut(ctx, p, err, result)
		}
		if err != nil {
			return err
		}
		result.add(p, scopes)
		overtaken = append(overtaken, p.overtaken...)
		done += p.chunk.periods
		if j.Progress != nil {
			j.Progress(done, plan.Periods)
		}
		if j.Passed != nil && !slices.ContainsFunc(queue, func(x *pass) bool { return x.chunk.from.Before(p.chunk.to) }) {
			if err := j.Passed(ctx, p.chunk.to); err != nil {
				return err
			}
		}
	}
	if len(overtaken) == 0 || plan.overtakes {
		return nil // what is overtaken twice is found as late usage
	}
	next := *plan
	next.overtakes = true
	next.windows = nil
	for _, o := range overtaken {
		next.windows = append(next.windows, store.DueWindow{Scope: o.Scope, First: o.Begin, Until: o.End, Again: o.Committed.Add(time.Microsecond)})
	}
	next.windows = outside(next.windows, next.closed)
	if err := j.due(ctx, &next, nil); err != nil {
		return err
	}
	return j.passes(ctx, &next, result, scopes)
}

func (r *Result) add(p *pass, scopes map[string]bool) {
	r.Passes++
	for _, x := range p.lost {
		if r.lost == nil {
			r.lost = map[store.ScopePeriod]bool{}
		}
		r.lost[x] = true
	}
	r.Lost = uint64(len(r.lost))
	r.Failed = append(r.Failed, p.failed...)
	for _, x := range p.rules {
		r.Rules.add(x)
	}
	for _, x := range p.committed {
		r.Periods += x.Periods
		r.Lines += x.Lines
		r.Unpriced += x.Unpriced
		r.Rejected += x.Rejected
		r.Skipped += x.Skipped
		r.Price[x.Currency] = r.Price[x.Currency].Add(x.Total)
		for _, s := range x.Scopes {
			scopes[s] = true
		}
	}
}
