package exporter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A closed month's corrections are taken by exactly one month at any moment:
// the earliest one after it that is open, where months without any commit are
// passed over as long as later ones have some. What the taker bills is settled
// when it is closed; from that moment on the next taker goes on from there. So
// the chain of takers has no hole and no overlap, in whatever order months were
// closed, as long as each close is judged by what was known at its own moment
// and none is taken back that a later one rests on.

// history is every close and reopen of months, oldest first.
type history []store.MonthChange

// closed gives the months that are closed at a moment, in their order.
func (h history) closed(asOf time.Time) []store.MonthClose {
	var out []store.MonthClose
	for _, c := range h {
		if c.At.After(asOf) {
			break
		}
		out = slices.DeleteFunc(out, func(o store.MonthClose) bool { return o.Month.Equal(c.Month) })
		if c.Kind == "close" {
			out = append(out, store.MonthClose{Month: c.Month, Number: c.Closed, At: c.At})
		}
	}
	slices.SortFunc(out, func(a, b store.MonthClose) int { return a.Month.Compare(b.Month) })
	return out
}

// brokenAt finds a month that was reopened although one that was closed after
// it stayed closed, which reopen has not always refused: what the second one
// billed rests on a close that is gone.
func (h history) brokenAt(asOf time.Time) (reopened, rests time.Time, found bool) {
	restsOn := map[time.Time]time.Time{}
	for i, c := range h {
		if c.At.After(asOf) {
			break
		}
		if c.Kind != "reopen" {
			continue
		}
		delete(restsOn, c.Month)
		before := h[:i].closed(c.At)
		own := slices.IndexFunc(before, func(o store.MonthClose) bool { return o.Month.Equal(c.Month) })
		if own < 0 {
			continue
		}
		for _, o := range before {
			if o.At.After(before[own].At) {
				restsOn[o.Month] = c.Month
			}
		}
	}
	for month, on := range restsOn {
		if !found || ratebatch.Earlier(on, month).Before(ratebatch.Earlier(reopened, rests)) {
			reopened, rests, found = on, month, true
		}
	}
	return reopened, rests, found
}

// sound refuses to export a month whose corrections cannot be told.
func (e *export) sound() error {
	reopened, rests, found := e.history.brokenAt(e.window.AsOf)
	first := ratebatch.Earlier(reopened, rests)
	if !found || e.Month.Before(first) {
		return nil
	}
	const form = "2006-01"
	return &ratebatch.HaltError{Err: fmt.Errorf("month %s was reopened while %s, closed after it, stayed closed: corrections may be billed twice or not at all", reopened.Format(form), rests.Format(form)),
		Hint: fmt.Sprintf("nothing was exported. Reopen the closed months from %s on, the one closed last first ('ratebatch close --list' says when), close them again in the order of months and export them again", first.Format(form))}
}

// takes says whether a month takes the corrections of an earlier, closed one at
// a moment; if it was closed then, just before.
func (e *export) takes(ctx context.Context, corrected, month, asOf time.Time) (bool, error) {
	closed := e.history.closed(asOf)
	for m := corrected.AddDate(0, 1, 0); !m.After(month); m = m.AddDate(0, 1, 0) {
		if !m.Equal(month) && slices.ContainsFunc(closed, func(c store.MonthClose) bool { return c.Month.Equal(m) }) {
			continue
		}
		passed, err := e.passedOver(ctx, m, asOf)
		if err != nil {
			return false, err
		}
		if !passed {
			return m.Equal(month), nil
		}
	}
	return false, nil
}

// monthMoment is a month at a moment.
type monthMoment struct{ month, asOf time.Time }

// passedOver says whether a month had no commit at a moment, and later ones
// had: nobody would look for corrections there.
func (e *export) passedOver(ctx context.Context, month, asOf time.Time) (bool, error) {
	key := monthMoment{month, asOf}
	if passed, ok := e.passed[key]; ok {
		return passed, nil
	}
	m := e.Calendar.Named(month)
	rated, err := e.Store.AnyCommit(ctx, m.From, m.To, asOf)
	if err != nil {
		return false, err
	}
	passed := false
	if !rated {
		if passed, err = e.Store.AnyCommit(ctx, m.To, store.OpenEnd, asOf); err != nil {
			return false, err
		}
	}
	if e.passed == nil {
		e.passed = map[monthMoment]bool{}
	}
	e.passed[key] = passed
	return passed, nil
}

// sameCorrections halts where a closed month was delivered with other
// corrections than those that later months take to be billed there.
func (e *export) sameCorrections(current *Manifest) error {
	due, billed := map[string]string{}, map[string]string{}
	for _, c := range e.corrections {
		totals := map[string]decimal.Decimal{}
		for _, t := range c.totals {
			totals[t.Currency] = totals[t.Currency].Add(t.Total)
		}
		due[c.window.Month.Format("2006-01")] = amounts(totals)
	}
	for _, c := range current.Corrections {
		billed[c.Month] = amounts(exactTotals(c.Totals))
	}
	for _, month := range append(sortedNames(due), sortedNames(billed)...) {
		if due[month] != billed[month] {
			return &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed, and its delivery %s corrects %s by [%s], not by [%s]: months were closed out of their order", current.Month, current.Delivery, month, billed[month], due[month]),
				Hint: fmt.Sprintf("nothing was changed. Reopen the closed months from %s on, the one closed last first ('ratebatch close --list' says when), close them again in the order of months and export them again", current.Month)}
		}
	}
	return nil
}

// amounts is the text of totals, without those that are nothing.
func amounts(totals map[string]decimal.Decimal) string {
	var parts []string
	plain := plainTotals(totals)
	for _, currency := range sortedNames(plain) {
		parts = append(parts, plain[currency]+" "+currency)
	}
	return strings.Join(parts, ", ")
}
