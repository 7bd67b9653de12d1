package rate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

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
	late      bool              // usage that arrived behind its commits
	reason    string
	chunks    []chunk
	terms     terms
	expired   error
	gone      []store.DueWindow  // taken out of the windows, for their tier does not hold them for sure
	complete  []store.MonthState // months in which nothing is due
	read      []store.UsageMonth // months whose usage was read
	overtakes bool               // rates what others rated first by other usage
}

// state is what the decision on due periods rests on.
type state struct {
	terms   terms
	closed  []ratebatch.Month
	open    time.Time // since when months may be open
	usages  []store.ScopeUsage
	read    []store.UsageMonth // months whose usage was read for it
	commits []store.CommitScope
	scopes  map[string]store.ScopeState
	marks   map[string]store.Watermark
}

// readTermsInForce is the part of the state that no usage is read for.
func (j *Job) readTermsInForce(ctx context.Context) (*state, error) {
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
	if x.closed, x.open, err = j.monthsInForce(ctx); err != nil {
		return nil, err
	}
	return &x, j.checkPeriodLength(ctx, x.open)
}

// readState reads who has usage and what was rated, in the months that may be open
// or in all of them, and all else that the decision rests on.
func (j *Job) readState(ctx context.Context, all bool) (*state, error) {
	x, err := j.readTermsInForce(ctx)
	if err != nil {
		return nil, err
	}
	from := x.open
	if all {
		from = beginning
	}
	if x.usages, x.read, err = j.Store.UsageByMonth(ctx, x.terms.tables(time.Hour), from); err != nil {
		return nil, err
	}
	if x.commits, err = j.Store.CommitScopes(ctx, from); err != nil {
		return nil, err
	}
	if x.scopes, err = j.Store.ScopeStates(ctx); err != nil {
		return nil, err
	}
	x.marks, err = j.Store.WatermarksOf(ctx, x.usages, j.Options.TiersAsOf)
	return x, err
}

// Plan reads the state and says which periods are due. It writes nothing.
func (j *Job) Plan(ctx context.Context) (*Plan, error) {
	x, err := j.readState(ctx, false)
	if err != nil {
		return nil, err
	}
	p := Plan{terms: x.terms, closed: x.closed, read: x.read}
	p.windows, p.Waiting = windows(x.usages, x.commits, x.scopes, x.marks, j.Options)
	p.windows = outside(p.windows, p.closed)
	p.windows, p.Waiting = withPlan(p.windows, p.Waiting, p.terms.plans, j.Options.Period)
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

// due counts the due periods of the plan's windows and cuts them into passes.
// The plan may be a copy of another with other windows: nothing that was found
// for those stays.
func (j *Job) due(ctx context.Context, p *Plan, skip []time.Time) error {
	p.Periods, p.Expired, p.Rows, p.Scopes, p.Passes = 0, 0, 0, 0, 0
	p.From, p.To, p.expired, p.gone, p.Days, p.chunks = nil, nil, nil, nil, nil, nil
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
		if w.First, w.Until = ratebatch.Later(w.First, from), ratebatch.Earlier(w.Until, to); w.First.Before(w.Until) {
			clipped = append(clipped, w)
		}
	}
	if p.Scopes, err = j.Store.DueScopeCount(ctx, clipped, j.Options.Period, from, to); err != nil {
		return err
	}
	p.Scopes = max(p.Scopes, 1) // a conflict is a due period of a scope that is rated
	rows, err := j.Store.TierRows(ctx, p.terms.metricsOf(j.Options.Period), j.Options.Period, from, to)
	if err != nil {
		return err
	}
	for _, n := range rows {
		p.Rows += n
	}
	limit := j.Options.passLimit()
	for i, d := range p.Days {
		// In between days are due as a whole, as a rule.
		if i == 0 || i == len(p.Days)-1 || rows[d.Day] > limit.rows || d.Periods > limit.periods {
			if p.Days[i], err = j.Store.DueBounds(ctx, clipped, j.Options.Period, d); err != nil {
				return err
			}
		}
	}
	p.chunks = chunks(p.Days, rows, p.terms.edges(from, to, j.Options.Period), limit)
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
			before.Until = ratebatch.Earlier(w.Until, oldest)
			gone = append(gone, before)
			w.First = oldest
		}
		if w.First.Before(w.Until) {
			kept = append(kept, w)
		}
	}
	p.windows, p.gone = kept, gone
	days, err := j.Store.DueDays(ctx, gone, j.Options.Period, skip)
	if err != nil {
		return err
	}
	for _, d := range days {
		p.Expired += d.Periods
	}
	if p.Expired > 0 {
		p.expired = &ratebatch.HaltError{
			Period: ratebatch.Period{Begin: days[0].Day, End: ratebatch.Earlier(days[len(days)-1].Day.AddDate(0, 0, 1), oldest)},
			Err:    fmt.Errorf("%d periods are due, but their tier keeps usage for %s only: an empty answer would not mean zero usage", p.Expired, keep),
			Hint:   "if the usage is still there, keep it with 'ratebatch migrate --retention hourly=…', else settle it as nobody's: disable its scopes while the month is closed ('ratebatch close' says how)",
		}
	}
	return nil
}

// CheckPeriodLength says whether periods of the length in the options may be
// rated in the months that are open.
func (j *Job) CheckPeriodLength(ctx context.Context) error {
	_, open, err := j.monthsInForce(ctx)
	if err != nil {
		return err
	}
	return j.checkPeriodLength(ctx, open)
}

// checkPeriodLength refuses to rate time in periods of one length that is
// rated in periods of another: it would be billed twice.
func (j *Job) checkPeriodLength(ctx context.Context, since time.Time) error {
	scope, p, err := j.Store.OtherPeriod(ctx, j.Options.Period, since, store.OpenEnd)
	if err != nil || scope == "" {
		return err
	}
	return &ratebatch.HaltError{Scope: scope, Period: p,
		Err:  fmt.Errorf("rated as a period of %s, not %s: both would bill the same time twice", p.Length(), j.Options.Period),
		Hint: fmt.Sprintf("use --period %s, or close the month and change the length from the next one on", p.Length())}
}
