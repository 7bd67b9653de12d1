package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/jobs/closing"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// closeWithin is how long after its end a month may be open, unless told otherwise:
// the schedule closes it on the fourth.
const closeWithin = 5 * 24 * time.Hour

// monthsLeft is what is still to be done for months that have ended.
type monthsLeft struct {
	closes     bool                // whether months are closed at all
	open       *ratebatch.Month    // the earliest that has ended, was rated and is not closed; nil: none, or no month is ever closed
	unexported []store.ClosedMonth // closed, and not exported since, where anything is exported
}

func readMonthsLeft(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, now time.Time) (monthsLeft, error) {
	var x monthsLeft
	closed, err := s.ClosedMonths(ctx)
	if err != nil || len(closed) == 0 {
		return x, err
	}
	x.closes = true
	m, found, err := closing.FirstOpen(ctx, s, calendar, closed, calendar.MonthAt(now))
	if err != nil {
		return x, err
	}
	if found {
		x.open = &m
	}
	x.unexported, err = s.UnexportedMonths(ctx)
	return x, err
}

// openFor is how long ago the earliest open month ended; 0 while there is none
// but the running one.
func (x monthsLeft) openFor(now time.Time) time.Duration {
	if x.open == nil {
		return 0
	}
	return now.Sub(x.open.To)
}

// overdue says what was to be done before a moment: months that were closed until
// then and not exported, and one that is open for longer than it may be.
func (x monthsLeft) overdue(now, closedBefore time.Time, within time.Duration) (out []*ratebatch.HaltError) {
	for _, m := range x.unexported {
		if m.ClosedAt.Before(closedBefore) {
			name := m.Month.Format("2006-01")
			out = append(out, &ratebatch.HaltError{Err: fmt.Errorf("month %s was closed %s and is not exported since", name, m.ClosedAt.Format(time.RFC3339)), Hint: "run 'ratebatch export --month " + name + "'"})
		}
	}
	if x.openFor(now) > within {
		out = append(out, &ratebatch.HaltError{Err: fmt.Errorf("month %s ended %s and is not closed", x.open, x.open.To.UTC().Format(time.RFC3339)), Hint: "run 'ratebatch close --month " + x.open.String() + "'"})
	}
	return out
}
