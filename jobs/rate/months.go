package rate

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// MonthWindows gives the windows in a month of the scopes that have to be rated
// in it, ready or not, and those of the disabled ones.
func (j *Job) MonthWindows(ctx context.Context, month ratebatch.Month) (active, disabled []store.DueWindow, err error) {
	x, err := j.readState(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	o := j.Options
	o.WaitPeriods = 0
	o.Now = ratebatch.Later(j.Options.Now, month.To).AddDate(0, 1, 0)
	complete := map[string]store.Watermark{}
	for region := range x.marks {
		complete[region] = store.Watermark{Region: region, CompleteUntil: o.Now}
	}
	for _, u := range x.usages {
		complete[u.Region] = store.Watermark{Region: u.Region, CompleteUntil: o.Now}
	}
	all, _ := windows(x.usages, x.commits, nil, complete, o)
	for _, w := range all {
		w.First, w.Until = ratebatch.Later(w.First, month.From), ratebatch.Earlier(w.Until, month.To)
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
			before.Until = ratebatch.Earlier(w.Until, m.From)
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

// countedBy is the number of the way in which due periods are counted: what an
// older one took for complete is looked at again. Up to 1 a commit whose begin was
// no period's made up for a hole.
const countedBy = 2

// hashWindows says for each month that has commits what its completeness rests
// on: the windows in it, the state, and countedBy.
func hashWindows(windows []store.DueWindow, states map[time.Time]store.MonthState) map[time.Time]store.MonthState {
	out := make(map[time.Time]store.MonthState, len(states))
	for month, m := range states {
		end := month.AddDate(0, 1, 0)
		hash := fnv.New64a()
		fmt.Fprintln(hash, countedBy)
		for _, w := range windows {
			first, until := ratebatch.Later(w.First, month), ratebatch.Earlier(w.Until, end)
			if first.Before(until) {
				fmt.Fprintf(hash, "%q %d %d\n", w.Scope, first.Unix(), until.Unix())
			}
		}
		m.Windows = hash.Sum64()
		out[month] = m
	}
	return out
}

// beginning is for all months, closed ones as well.
var beginning = time.Unix(0, 0).UTC()

// monthsInForce gives the months that are closed now and since when months may be
// open.
func (j *Job) monthsInForce(ctx context.Context) (closed []ratebatch.Month, open time.Time, err error) {
	if closed, err = j.closedMonths(ctx); err != nil || len(closed) == 0 {
		return closed, beginning, err
	}
	commit, err := j.Store.FirstCommit(ctx)
	if err != nil {
		return nil, open, err
	}
	changes, err := j.Store.MonthCloses(ctx)
	if err != nil {
		return nil, open, err
	}
	var known []ratebatch.Month // that have something to close, or had
	if commit.Unix() > 0 {
		known = append(known, j.Options.Calendar.MonthAt(commit))
	}
	for _, c := range changes {
		known = append(known, j.Options.Calendar.Named(c.Month))
	}
	return closed, openSince(closed, known...), nil
}

// openSince is the start of the earliest month that may be open: a known one
// before the first that is closed (it was reopened, or others were closed before
// it), else the one after the closed months that follow one another from the first
// on.
func openSince(closed []ratebatch.Month, known ...ratebatch.Month) time.Time {
	if len(closed) == 0 {
		return beginning
	}
	next := closed[0].To
	for _, month := range known {
		if month.From.Before(closed[0].From) {
			next = ratebatch.Earlier(next, month.From)
		}
	}
	if next.Before(closed[0].From) {
		return next
	}
	for _, month := range closed[1:] {
		if !month.From.Equal(next) {
			break
		}
		next = month.To
	}
	return next
}
