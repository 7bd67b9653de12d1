package main

import (
	"context"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Months by their distance from now, so that a schedule's command line need not
// change every month.
const (
	monthCurrent = "current"
	monthLast    = "last"

	monthHelp = "such as 2026-11, or current or last"
)

// checkMonth refuses what can be no month, before anything is opened.
func checkMonth(text string) error {
	if text == monthCurrent || text == monthLast {
		return nil
	}
	_, err := (ratebatch.Calendar{}).ParseMonth(text)
	return err
}

// monthOf is the month that text names at a moment, in the billing time zone.
func monthOf(calendar ratebatch.Calendar, text string, now time.Time) (ratebatch.Month, error) {
	current := calendar.MonthAt(now)
	switch text {
	case monthCurrent:
		return current, nil
	case monthLast:
		return calendar.MonthAt(current.From.Add(-time.Second)), nil
	}
	return calendar.ParseMonth(text)
}

// month is monthOf in the calendar of the database.
func (p *program) month(ctx context.Context, s *store.Store, text string, now time.Time) (ratebatch.Month, error) {
	b, err := readBilling(ctx, s)
	if err != nil {
		return ratebatch.Month{}, err
	}
	return monthOf(b.Calendar, text, now)
}
