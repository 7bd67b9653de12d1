package rate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Options of the rate job.
type Options struct {
	Now         time.Time     // the moment that readiness is judged at
	Period      time.Duration // length of a period
	WaitPeriods int           // a period is ready when begin + WaitPeriods × Period < Now
	First       FirstPeriod
	MaxPassRows uint64 // estimated usage rows of one pass; 0: the default
	Author      string
}

const (
	// DefaultMaxPassRows bounds the engine's memory for the checks of a pass
	// (three 8-byte hashes a row) to about a gigabyte.
	DefaultMaxPassRows = 16_000_000
	maxPassPeriods     = 2_000_000
	maxAttempts        = 3
)

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
}

// Plan is what a run would do.
type Plan struct {
	Periods uint64         `json:"periods"`
	Scopes  int            `json:"scopes"`
	From    *time.Time     `json:"from,omitempty"`
	To      *time.Time     `json:"to,omitempty"`
	Passes  int            `json:"passes"`
	Rows    uint64         `json:"estimated_usage_rows"`
	Days    []store.DueDay `json:"days"`
	Waiting []Waiting      `json:"waiting"`

	windows []store.DueWindow
	closed  []time.Time
	chunks  []chunk
	terms   terms
}

// terms are the versions that the periods of a run are rated by.
type terms struct {
	plans   []store.Version
	metrics []store.Version
	sets    map[string]*metric.Set // by digest
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
	Passes   int                        `json:"passes"`
	Attempts []uuid.UUID                `json:"attempts"`
	Waiting  []Waiting                  `json:"waiting"`
	Seconds  float64                    `json:"seconds"`
}

// Plan reads the state and says which periods are due. It writes nothing.
func (j *Job) Plan(ctx context.Context) (*Plan, error) {
	if err := j.Options.Validate(); err != nil {
		return nil, err
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var p Plan
	var err error
	if p.terms, err = j.readTerms(ctx); err != nil {
		return nil, err
	}
	if p.closed, err = j.Store.ClosedMonths(ctx); err != nil {
		return nil, err
	}
	usages, err := j.Store.ScopeUsages(ctx, openSince(p.closed))
	if err != nil {
		return nil, err
	}
	states, err := j.Store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	marks, err := j.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.checkMetrics(ctx, p.terms); err != nil {
		return nil, err
	}
	p.windows, p.Waiting = windows(usages, states, marks, j.Options)
	p.windows, p.Waiting = withPlan(p.windows, p.Waiting, p.terms.plans)
	p.Days, err = j.Store.DueDays(ctx, p.windows, j.Options.Period, p.closed)
	if err != nil {
		return nil, err
	}
	for _, d := range p.Days {
		p.Periods += d.Periods
	}
	if p.Periods == 0 {
		return &p, nil
	}
	if err := j.checkRetention(ctx, p.Days); err != nil {
		return nil, err
	}
	p.Scopes = len(p.windows)
	from, to := p.Days[0].Day, p.Days[len(p.Days)-1].Day.AddDate(0, 0, 1)
	p.From, p.To = &from, &to
	rows, err := j.Store.TierRows(ctx, from, to)
	if err != nil {
		return nil, err
	}
	for _, n := range rows {
		p.Rows += n
	}
	maxRows := j.Options.MaxPassRows
	if maxRows == 0 {
		maxRows = DefaultMaxPassRows
	}
	p.chunks = chunks(p.Days, rows, p.terms.edges(from, to), maxRows, maxPassPeriods)
	p.Passes = len(p.chunks)
	return &p, nil
}

// openSince is the start of the earliest month that may be open: the one after
// the closed months that follow one another from the first on.
func openSince(closed []time.Time) time.Time {
	if len(closed) == 0 {
		return time.Unix(0, 0).UTC()
	}
	next := closed[0].AddDate(0, 1, 0)
	for _, month := range closed[1:] {
		if !month.Equal(next) {
			break
		}
		next = next.AddDate(0, 1, 0)
	}
	return next
}

// withPlan cuts the windows to the time in which a rate plan is in force;
// without one a period waits and says so, and is never rated as free.
func withPlan(windows []store.DueWindow, waiting []Waiting, plans []store.Version) ([]store.DueWindow, []Waiting) {
	var out []store.DueWindow
	lacking := 0
	for _, w := range windows {
		lacks := false
		for _, span := range store.InForce(plans, w.First, w.Until) {
			if span.Version == nil {
				lacks = true
				continue
			}
			if n := len(out); n > 0 && out[n-1].Scope == w.Scope && out[n-1].Until.Equal(span.Begin) {
				out[n-1].Until = span.End
				continue
			}
			out = append(out, store.DueWindow{Scope: w.Scope, First: span.Begin, Until: span.End})
		}
		if lacks {
			lacking++
		}
	}
	if lacking > 0 {
		waiting = append(waiting, Waiting{Scopes: lacking, Reason: "no rate plan is in force for some periods; apply one with 'ratebatch plan apply --from …'"})
	}
	return out, waiting
}

// checkRetention stops before a period that its tier no longer holds for sure:
// an empty answer is not zero usage.
func (j *Job) checkRetention(ctx context.Context, days []store.DueDay) error {
	tier := "hourly"
	if j.Options.Period < time.Hour {
		tier = "5min"
	}
	keep, err := j.Store.TierRetention(ctx, "instance_metrics_"+tier)
	if err != nil || keep == 0 {
		return err
	}
	oldest := j.Options.Now.Add(-keep)
	if days[0].Day.Before(oldest) {
		return &ratebatch.HaltError{
			Period: ratebatch.PeriodAt(days[0].Day, j.Options.Period),
			Err:    fmt.Errorf("due, but the %s tier keeps usage for %s only: an empty answer would not mean zero usage", tier, keep),
			Hint:   "if the usage is still there, keep it with 'ratebatch migrate --retention hourly=…', else start later with --first-period DATE",
		}
	}
	return nil
}

func (j *Job) readTerms(ctx context.Context) (terms, error) {
	var t terms
	var err error
	if t.plans, err = j.Store.Versions(ctx, store.PlanVersions); err != nil {
		return t, err
	}
	if len(t.plans) == 0 {
		return t, &ratebatch.ConfigError{Err: errors.New("no rate plan was applied"), Hint: "write one and run 'ratebatch plan apply FILE'"}
	}
	if t.metrics, err = j.Store.Versions(ctx, store.MetricVersions); err != nil {
		return t, err
	}
	if len(t.metrics) == 0 {
		// Without a metric set of the operator's the built-in one counts.
		t.metrics = []store.Version{{Body: string(metric.Default()), ValidTo: store.OpenEnd}}
	}
	t.sets = map[string]*metric.Set{}
	for i := range t.metrics {
		v := &t.metrics[i]
		set, err := metric.Parse(fmt.Sprintf("metric set %d", v.Version), []byte(v.Body))
		if err != nil {
			return t, err
		}
		v.Digest = set.Digest()
		t.sets[v.Digest] = set
	}
	return t, nil
}

// checkMetrics has the server resolve every table and column that the metric
// sets name, so that a mistake is said before anything is written.
func (j *Job) checkMetrics(ctx context.Context, t terms) error {
	var errs []error
	for _, set := range t.sets {
		for _, m := range set.Metrics {
			text, err := m.UsageSQL(metric.UsageOptions{Period: j.Options.Period, Attributes: true})
			if err != nil {
				return err
			}
			if err := j.Store.CheckUsage(ctx, m.Name, text); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// edges are the instants in (from, to) at which another metric set takes over.
func (t terms) edges(from, to time.Time) []time.Time {
	var out []time.Time
	for _, span := range store.InForce(t.metrics, from, to)[1:] {
		out = append(out, span.Begin)
	}
	return out
}

// Run rates what the plan names, pass by pass, under the run's id. It returns
// ratebatch.ErrRejected beside the result when some lines were rejected.
func (j *Job) Run(ctx context.Context, plan *Plan, run *jobs.Run) (Result, error) {
	started := time.Now()
	result := Result{RunID: run.ID, Price: map[string]decimal.Decimal{}, Waiting: plan.Waiting, Attempts: []uuid.UUID{}}
	scopes := map[string]bool{}
	var done uint64
	for _, c := range plan.chunks {
		p := &pass{job: j, plan: plan, chunk: c}
		committed, attempts, err := p.run(ctx)
		result.Attempts = append(result.Attempts, attempts...)
		if err != nil {
			return result, err
		}
		result.Passes++
		for _, x := range committed {
			result.Periods += x.Periods
			result.Lines += x.Lines
			result.Unpriced += x.Unpriced
			result.Rejected += x.Rejected
			result.Skipped += x.Skipped
			result.Price[x.Currency] = result.Price[x.Currency].Add(x.Total)
			for _, s := range x.Scopes {
				scopes[s] = true
			}
		}
		done += c.periods
		if j.Progress != nil {
			j.Progress(done, plan.Periods)
		}
	}
	result.Scopes = len(scopes)
	result.Seconds = time.Since(started).Round(time.Millisecond).Seconds()
	if result.Rejected > 0 {
		return result, fmt.Errorf("%d: %w; list them with: select * from rated where bucket = 'rejected'", result.Rejected, ratebatch.ErrRejected)
	}
	return result, nil
}
