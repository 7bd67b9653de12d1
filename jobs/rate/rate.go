package rate

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
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
	// Passed, if set, is told after each pass up to where the plan is done.
	Passed func(ctx context.Context, until time.Time) error
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
	Expired uint64         `json:"expired_periods,omitempty"` // due, but older than their tier keeps

	windows   []store.DueWindow
	closed    []ratebatch.Month // months whose periods are left alone
	asked     bool              // for by a person
	reason    string
	chunks    []chunk
	terms     terms
	expired   error
	complete  []store.MonthState // months in which nothing is due
	overtakes bool               // rates what others rated first by other usage
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
}

// state is what the decision on due periods rests on.
type state struct {
	terms   terms
	closed  []ratebatch.Month
	usages  []store.ScopeUsage
	commits []store.CommitScope
	scopes  map[string]store.ScopeState
	marks   map[string]store.Watermark
}

func (j *Job) readState(ctx context.Context) (*state, error) {
	if err := j.Options.Validate(); err != nil {
		return nil, err
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var x state
	var err error
	if x.terms, err = j.readTerms(ctx); err != nil {
		return nil, err
	}
	if err := j.checkMetrics(ctx, x.terms); err != nil {
		return nil, err
	}
	if x.closed, err = j.closedMonths(ctx); err != nil {
		return nil, err
	}
	since := openSince(x.closed)
	if x.usages, err = j.Store.ScopeUsages(ctx, x.terms.tables(time.Hour), since); err != nil {
		return nil, err
	}
	if x.commits, err = j.Store.CommitScopes(ctx, since); err != nil {
		return nil, err
	}
	if x.scopes, err = j.Store.ScopeStates(ctx); err != nil {
		return nil, err
	}
	if x.marks, err = j.Store.Watermarks(ctx); err != nil {
		return nil, err
	}
	return &x, j.checkPeriodLength(ctx, since)
}

// Plan reads the state and says which periods are due. It writes nothing.
func (j *Job) Plan(ctx context.Context) (*Plan, error) {
	x, err := j.readState(ctx)
	if err != nil {
		return nil, err
	}
	p := Plan{terms: x.terms, closed: x.closed}
	p.windows, p.Waiting = windows(x.usages, x.commits, x.scopes, x.marks, j.Options)
	p.windows = outside(p.windows, p.closed)
	p.windows, p.Waiting = withPlan(p.windows, p.Waiting, p.terms.plans)
	p.windows = j.Options.Shard.windows(p.windows)
	// Months in which nothing was due and nothing has changed need no look.
	states, err := j.Store.MonthStates(ctx)
	if err != nil {
		return nil, err
	}
	hints, err := j.Store.CompleteMonths(ctx)
	if err != nil {
		return nil, err
	}
	current := hashWindows(p.windows, states)
	skip := []time.Time{}
	for month, now := range current {
		if hint, ok := hints[month]; ok && hint == now {
			skip = append(skip, month)
		}
	}
	if err := j.due(ctx, &p, skip); err != nil {
		return nil, err
	}
	for month, now := range current {
		due := slices.ContainsFunc(p.Days, func(d store.DueDay) bool { return monthOf(d.Day).Equal(month) })
		if !due && !slices.ContainsFunc(skip, month.Equal) && p.Expired == 0 {
			p.complete = append(p.complete, now)
		}
	}
	return &p, nil
}

// Again asks for periods that are rated already.
type Again struct {
	Scopes   []string // nil: all that are active
	From, To time.Time
	Since    time.Time // periods whose current commit was made before it
	Reason   string
}

// Held says which part of what was asked for cannot be rated now.
type Held struct {
	Disabled []string  `json:"disabled,omitempty"` // scopes
	Vanished []string  `json:"vanished,omitempty"` // scopes of which nothing is known any more
	Until    time.Time `json:"until,omitzero"`     // later periods are not ready
	Text     string    `json:"text,omitempty"`
}

// PlanAgain says which of the periods asked for are to be rated: those whose
// current commit is older than asked, and those that have none.
func (j *Job) PlanAgain(ctx context.Context, again Again) (*Plan, Held, error) {
	var held Held
	x, err := j.readState(ctx)
	if err != nil {
		return nil, held, err
	}
	p := Plan{terms: x.terms, asked: true, reason: again.Reason}
	// All months count here, closed ones as well: there a new revision is a
	// correction.
	everything := time.Unix(0, 0).UTC()
	if x.usages, err = j.Store.ScopeUsages(ctx, x.terms.tables(time.Hour), everything); err != nil {
		return nil, held, err
	}
	if x.commits, err = j.Store.CommitScopes(ctx, everything); err != nil {
		return nil, held, err
	}
	ready, waiting := windows(x.usages, x.commits, x.scopes, x.marks, j.Options)
	p.Waiting = waiting
	byScope := map[string]store.DueWindow{}
	for _, w := range ready {
		byScope[w.Scope] = w
	}
	known := map[string]bool{}
	for _, u := range x.usages {
		known[u.Scope] = true
	}
	for _, c := range x.commits {
		known[c.Scope] = true
		w, ok := byScope[c.Scope]
		if !ok && isActive(x.scopes, c.Scope) {
			w = store.DueWindow{Scope: c.Scope, First: c.First, Until: c.Last.Add(j.Options.Period)}
		}
		if last := c.Last.Add(j.Options.Period); last.After(w.Until) {
			w.Until = last // what was rated once may be rated again
		}
		if isActive(x.scopes, c.Scope) {
			byScope[c.Scope] = w
		}
	}
	names := again.Scopes
	if names == nil {
		names = slices.Sorted(maps.Keys(byScope))
	}
	held.Until = again.To
	for _, name := range names {
		_, listed := x.scopes[name]
		w, ok := byScope[name]
		switch {
		case !isActive(x.scopes, name):
			held.Disabled = append(held.Disabled, name)
			continue
		case !ok && !known[name] && !listed:
			held.Vanished = append(held.Vanished, name)
			continue
		case !ok:
			continue
		}
		if w.Until.Before(held.Until) {
			held.Until = w.Until
		}
		w.First, w.Until, w.Again = later(w.First, again.From), earlier(w.Until, again.To), again.Since
		if w.First.Before(w.Until) {
			p.windows = append(p.windows, w)
		}
	}
	if again.Scopes == nil {
		held.Until = time.Time{} // each scope as far as it is ready
	} else if !held.Until.Before(again.To) {
		held.Until = time.Time{}
	}
	held.Text = held.text(waiting)
	p.windows, p.Waiting = withPlan(p.windows, p.Waiting, p.terms.plans)
	if err := j.due(ctx, &p, nil); err != nil {
		return nil, held, err
	}
	return &p, held, p.expired
}

func (h Held) text(waiting []Waiting) string {
	var parts []string
	if len(h.Disabled) > 0 {
		parts = append(parts, fmt.Sprintf("%s disabled", list("scope", h.Disabled)))
	}
	if !h.Until.IsZero() {
		text := fmt.Sprintf("periods from %s are not ready", h.Until.Format(time.RFC3339))
		for _, w := range waiting {
			text += ": " + w.Reason
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// list names a few things.
func list(noun string, names []string) string {
	switch n := len(names); {
	case n == 1:
		return noun + " " + names[0] + " is"
	case n <= 5:
		return noun + "s " + strings.Join(names, ", ") + " are"
	default:
		return fmt.Sprintf("%d %ss (%s, …) are", n, noun, strings.Join(names[:5], ", "))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// due counts the due periods of the plan's windows and cuts them into passes.
func (j *Job) due(ctx context.Context, p *Plan, skip []time.Time) error {
	if err := j.cutExpired(ctx, p, skip); err != nil {
		return err
	}
	var err error
	if p.Days, err = j.Store.DueDays(ctx, p.windows, j.Options.Period, skip); err != nil {
		return err
	}
	for _, d := range p.Days {
		p.Periods += d.Periods
	}
	if p.Periods == 0 {
		return nil
	}
	from, to := p.Days[0].Day, p.Days[len(p.Days)-1].Day.AddDate(0, 0, 1)
	p.From, p.To = &from, &to
	var clipped []store.DueWindow
	for _, w := range p.windows {
		if w.First, w.Until = later(w.First, from), earlier(w.Until, to); w.First.Before(w.Until) {
			clipped = append(clipped, w)
		}
	}
	if p.Scopes, err = j.Store.DueScopeCount(ctx, clipped, j.Options.Period, from, to); err != nil {
		return err
	}
	p.Scopes = max(p.Scopes, 1) // a conflict is a due period of a scope that is rated
	rows, err := j.Store.TierRows(ctx, from, to)
	if err != nil {
		return err
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
	return nil
}

// cutExpired takes out of the windows what its tier no longer holds for sure:
// an empty answer is not zero usage. What is due there is an error at the end,
// after everything else was rated.
func (j *Job) cutExpired(ctx context.Context, p *Plan, skip []time.Time) error {
	oldest, keep, err := j.Store.OldestRatable(ctx, j.Options.Now, j.Options.Period)
	if err != nil || oldest.IsZero() {
		return err
	}
	var gone, kept []store.DueWindow
	for _, w := range p.windows {
		if w.First.Before(oldest) {
			before := w
			before.Until = earlier(w.Until, oldest)
			gone = append(gone, before)
			w.First = oldest
		}
		if w.First.Before(w.Until) {
			kept = append(kept, w)
		}
	}
	p.windows = kept
	days, err := j.Store.DueDays(ctx, gone, j.Options.Period, skip)
	if err != nil {
		return err
	}
	for _, d := range days {
		p.Expired += d.Periods
	}
	if p.Expired > 0 {
		p.expired = &ratebatch.HaltError{
			Period: ratebatch.Period{Begin: days[0].Day, End: earlier(days[len(days)-1].Day.AddDate(0, 0, 1), oldest)},
			Err:    fmt.Errorf("%d periods are due, but their tier keeps usage for %s only: an empty answer would not mean zero usage", p.Expired, keep),
			Hint:   "if the usage is still there, keep it with 'ratebatch migrate --retention hourly=…', else close the month or start later with --first-period DATE",
		}
	}
	return nil
}

// CheckPeriodLength says whether periods of the length in the options may be
// rated in the months that are open.
func (j *Job) CheckPeriodLength(ctx context.Context) error {
	closed, err := j.closedMonths(ctx)
	if err != nil {
		return err
	}
	return j.checkPeriodLength(ctx, openSince(closed))
}

// checkPeriodLength refuses to rate time in periods of one length that is
// rated in periods of another: it would be billed twice.
func (j *Job) checkPeriodLength(ctx context.Context, since time.Time) error {
	scope, p, err := j.Store.OtherPeriod(ctx, j.Options.Period, since)
	if err != nil || scope == "" {
		return err
	}
	return &ratebatch.HaltError{Scope: scope, Period: p,
		Err:  fmt.Errorf("rated as a period of %s, not %s: both would bill the same time twice", p.Length(), j.Options.Period),
		Hint: fmt.Sprintf("use --period %s, or close the month and change the length from the next one on", p.Length())}
}

// MonthWindows gives the windows in a month of the scopes that have to be rated
// in it, ready or not, and those of the disabled ones.
func (j *Job) MonthWindows(ctx context.Context, month ratebatch.Month) (active, disabled []store.DueWindow, err error) {
	x, err := j.readState(ctx)
	if err != nil {
		return nil, nil, err
	}
	o := j.Options
	o.WaitPeriods = 0
	o.Now = later(j.Options.Now, month.To).AddDate(0, 1, 0)
	complete := map[string]store.Watermark{}
	for region := range x.marks {
		complete[region] = store.Watermark{Region: region, CompleteUntil: o.Now}
	}
	for _, u := range x.usages {
		complete[u.Region] = store.Watermark{Region: u.Region, CompleteUntil: o.Now}
	}
	all, _ := windows(x.usages, x.commits, nil, complete, o)
	for _, w := range all {
		w.First, w.Until = later(w.First, month.From), earlier(w.Until, month.To)
		switch {
		case !w.First.Before(w.Until):
		case isActive(x.scopes, w.Scope):
			active = append(active, w)
		default:
			disabled = append(disabled, w)
		}
	}
	return active, disabled, nil
}

func isActive(scopes map[string]store.ScopeState, name string) bool {
	state, ok := scopes[name]
	return !ok || state.Active
}

// closedMonths are the months that are closed now, in order.
func (j *Job) closedMonths(ctx context.Context) ([]ratebatch.Month, error) {
	closed, err := j.Store.ClosedMonths(ctx)
	out := make([]ratebatch.Month, len(closed))
	for i, c := range closed {
		out[i] = j.Options.Calendar.Named(c.Month)
	}
	slices.SortFunc(out, func(a, b ratebatch.Month) int { return a.From.Compare(b.From) })
	return out, err
}

// outside takes the closed months out of the windows.
func outside(windows []store.DueWindow, closed []ratebatch.Month) []store.DueWindow {
	if len(closed) == 0 {
		return windows
	}
	var out []store.DueWindow
	for _, w := range windows {
		for _, m := range closed {
			if !w.First.Before(m.To) || !m.From.Before(w.Until) {
				continue
			}
			before := w
			before.Until = earlier(w.Until, m.From)
			if before.First.Before(before.Until) {
				out = append(out, before)
			}
			w.First = m.To
		}
		if w.First.Before(w.Until) {
			out = append(out, w)
		}
	}
	return out
}

// monthOf is the month in UTC: commits and hints are kept by it, whatever the
// months that are billed.
func monthOf(t time.Time) time.Time {
	return time.Date(t.UTC().Year(), t.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
}

// hashWindows says for each month that has commits what its completeness rests
// on: the windows in it and the state.
func hashWindows(windows []store.DueWindow, states map[time.Time]store.MonthState) map[time.Time]store.MonthState {
	out := make(map[time.Time]store.MonthState, len(states))
	for month, m := range states {
		end := month.AddDate(0, 1, 0)
		hash := fnv.New64a()
		for _, w := range windows {
			first, until := later(w.First, month), earlier(w.Until, end)
			if first.Before(until) {
				fmt.Fprintf(hash, "%q %d %d\n", w.Scope, first.Unix(), until.Unix())
			}
		}
		m.Windows = hash.Sum64()
		out[month] = m
	}
	return out
}

// openSince is the start of the earliest month that may be open: the one after
// the closed months that follow one another from the first on.
func openSince(closed []ratebatch.Month) time.Time {
	if len(closed) == 0 {
		return time.Unix(0, 0).UTC()
	}
	next := closed[0].To
	for _, month := range closed[1:] {
		if !month.From.Equal(next) {
			break
		}
		next = month.To
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
			out = append(out, store.DueWindow{Scope: w.Scope, First: span.Begin, Until: span.End, Again: w.Again})
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

func (j *Job) readTerms(ctx context.Context) (terms, error) {
	var t terms
	var err error
	if t.plans, err = j.Store.Versions(ctx, store.PlanVersions); err != nil {
		return t, err
	}
	if len(t.plans) == 0 {
		return t, &ratebatch.ConfigError{Err: errors.New("no rate plan was applied"), Hint: "write one and run 'ratebatch plan apply FILE'"}
	}
	of, err := j.readMetrics(ctx)
	t.metrics, t.sets = of.metrics, of.sets
	return t, err
}

// readMetrics reads the metric sets.
func (j *Job) readMetrics(ctx context.Context) (terms, error) {
	var t terms
	var err error
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
// ratebatch.ErrRejected beside the result when some lines were rejected, and a
// scope's failure after everything else was rated.
func (j *Job) Run(ctx context.Context, plan *Plan, run *jobs.Run) (Result, error) {
	started := time.Now() //nolint:forbidigo // how long the run took
	result := Result{RunID: run.ID, Price: map[string]decimal.Decimal{}, Waiting: plan.Waiting, Attempts: []uuid.UUID{}}
	scopes := map[string]bool{}
	err := j.passes(ctx, plan, &result, scopes)
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
	if err := j.Store.NotePlainMonths(ctx, plan.touched()); err != nil {
		return result, err
	}
	errs := []error{plan.expired}
	if len(result.Failed) > 0 {
		f := result.Failed[0]
		errs = append(errs, &ratebatch.TryAgainError{Err: fmt.Errorf("%d scopes were left out, all others are rated; first scope %s: %s", len(result.Failed), f.Scope, f.Error), Hint: "the next run tries them again"})
	}
	if result.Lost > 0 {
		j.Log.ErrorContext(ctx, "usage lost", jobs.KeyRunID, run.ID, "periods", result.Lost, "hint", "see 'ratebatch status --late'")
	}
	if result.Rejected > 0 {
		errs = append(errs, fmt.Errorf("%d: %w; list them with: select * from rated where bucket = 'rejected'", result.Rejected, ratebatch.ErrRejected))
	}
	return result, errors.Join(errs...)
}

// passes rates the plan's chunks. A chunk that needs more memory than the
// server gives is cut in halves; periods that another run rated by other usage
// meanwhile are rated again at the end.
func (j *Job) passes(ctx context.Context, plan *Plan, result *Result, scopes map[string]bool) error {
	queue := slices.Clone(plan.chunks)
	var overtaken []store.Overtaken
	var done uint64
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		p := &pass{job: j, plan: plan, chunk: c}
		err := p.run(ctx)
		result.Attempts = append(result.Attempts, p.attempts...)
		if store.IsMemoryLimit(err) {
			if a, b, ok := c.halves(); ok {
				j.Log.WarnContext(ctx, "pass cut in halves for memory", "from", c.from, "to", c.to)
				queue = slices.Insert(queue, 0, a, b)
				continue
			}
		}
		if err != nil {
			return err
		}
		result.add(p, scopes)
		overtaken = append(overtaken, p.overtaken...)
		done += c.periods
		if j.Progress != nil {
			j.Progress(done, plan.Periods)
		}
		if j.Passed != nil {
			if err := j.Passed(ctx, c.to); err != nil {
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
	r.Lost += p.lost
	r.Failed = append(r.Failed, p.failed...)
	r.Rules.add(p.rules)
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
