package retention

import (
	"context"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A month's lines are read again for two kinds of deliveries: its own, and those
// of the later months that bill what was rated differently after its close. Each
// of them has to be where it is wanted before the lines may go, or it can never
// be made.

// minGivenUp bounds what is taken for a place that was given up: exports of
// closed months come once a month, and one may be late.
const minGivenUp = 92 * 24 * time.Hour

// place is one dataset at one location.
type place struct{ location, dataset string }

func (p place) String() string { return p.dataset + " at " + p.location }

// sent is what was delivered to one place.
type sent struct {
	place

	months      map[time.Time]time.Time // the moment that the newest delivery of each month shows
	first, last time.Time               // of those months
	newest      time.Time               // of those moments
}

// deliveries are all places, in their order.
type deliveries []sent

func (j *Job) deliveries(ctx context.Context) (deliveries, error) {
	list, err := j.Store.MonthDeliveries(ctx)
	var all deliveries
	for _, d := range list { // by places
		at := place{d.Location, d.Dataset}
		if n := len(all); n == 0 || all[n-1].place != at {
			all = append(all, sent{place: at, months: map[time.Time]time.Time{}, first: d.Month})
		}
		s := &all[len(all)-1]
		s.months[d.Month], s.last = d.AsOf, d.Month
		if d.AsOf.After(s.newest) {
			s.newest = d.AsOf
		}
	}
	return all, err
}

// lacks says where a closed month was not delivered as it was closed, although
// it is wanted there; ok is true if it lacks nowhere. It is wanted where it or
// later months were delivered and earlier ones, and where the month was delivered
// that it corrects: one delivery of some month, for a look, makes no series. A
// place that got nothing since a moment was given up, and is named apart.
func (all deliveries) lacks(month, closedAt, corrects, since time.Time) (where []string, givenUp []sent, ok bool) {
	lines := false // somewhere
	for _, s := range all {
		if at, found := s.months[month]; found && !at.Before(closedAt) {
			lines = lines || s.dataset == "lines"
			continue
		}
		_, corrected := s.months[corrects]
		if s.first.After(month) || s.last.Before(month) && !corrected {
			continue
		}
		if s.newest.Before(since) {
			givenUp = append(givenUp, s)
			continue
		}
		where = append(where, s.String())
	}
	return where, givenUp, lines && len(where) == 0
}

// kept says why the lines of a closed month have to stay; empty: they may go.
// givenUp are places that are not waited for.
func (j *Job) kept(ctx context.Context, m store.LineMonth, closed []store.ClosedMonth, all deliveries) (why string, givenUp []sent, err error) {
	since := j.Options.Now.Add(-max(j.Options.Lines, minGivenUp))
	where, givenUp, ok := all.lacks(m.Month, m.ClosedAt, m.Month, since)
	if !ok {
		return "was not exported since it was closed" + list(where), nil, nil
	}
	if m.RatedLast.Unix() <= 0 {
		return "", givenUp, nil
	}
	const again = "was rated again since it was closed, and "
	takers, open, err := j.takers(ctx, m, closed)
	switch {
	case err != nil:
		return "", nil, err
	case len(takers) == 0:
		return again + "no later month was closed since, which would bill the correction", nil, nil
	case !open.IsZero():
		return again + open.Format("2006-01") + ", which bills the correction, is not closed", nil, nil
	}
	for _, t := range takers {
		where, more, ok := all.lacks(t.Month, t.ClosedAt, m.Month, since)
		if !ok {
			return again + t.Month.Format("2006-01") + ", which may bill the correction, was not exported since it was closed" + list(where), nil, nil
		}
		givenUp = append(givenUp, more...)
	}
	return "", givenUp, nil
}

// list writes where something lacks; nothing if it lacks everywhere.
func list(where []string) string {
	const few = 3
	if len(where) == 0 {
		return ""
	}
	text := ratebatch.Some(where, few)
	if len(where) > few {
		text += " places"
	}
	return " (" + text + ")"
}

// takers are the closed months that may bill what was rated of a month after it
// was closed, up to the one that took the last of it: at any moment the earliest
// later month that is open takes corrections. open is such a month that is not
// closed yet, although one behind it is: versions before closed months out of
// their order. More months than really took something may be named; all of them
// are closed, and are exported sooner or later.
func (j *Job) takers(ctx context.Context, m store.LineMonth, closed []store.ClosedMonth) (takers []store.ClosedMonth, open time.Time, err error) {
	var last store.ClosedMonth // the first close after the last commit
	for _, c := range closed {
		if c.Month.After(m.Month) && c.ClosedAt.After(m.RatedLast) && (last.Month.IsZero() || c.ClosedAt.Before(last.ClosedAt)) {
			last = c
		}
	}
	if last.Month.IsZero() {
		return nil, open, nil
	}
	for next := j.Calendar.Next(j.Calendar.Named(m.Month)); next.Date.Before(last.Month); next = j.Calendar.Next(next) {
		if slices.ContainsFunc(closed, func(c store.ClosedMonth) bool { return c.Month.Equal(next.Date) }) {
			continue
		}
		rated, err := j.Store.AnyCommit(ctx, next.From, next.To, store.OpenEnd)
		if err != nil {
			return nil, open, err
		}
		if rated { // else corrections pass it over
			return []store.ClosedMonth{last}, next.Date, nil
		}
	}
	for _, c := range closed {
		if c.Month.After(m.Month) && !c.ClosedAt.Before(m.RatedFirst) && (!c.ClosedAt.After(last.ClosedAt) || c.Month.Before(last.Month)) {
			takers = append(takers, c)
		}
	}
	return takers, open, nil
}
