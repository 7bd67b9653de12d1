package web

import (
	"context"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// readBilling reads what figures rest on beside plans and metrics. Until a run
// has settled the length of periods, it is what rate takes if nobody says more.
func readBilling(ctx context.Context, s *store.Store) (store.Billing, error) {
	b, err := s.Billing(ctx)
	if b.Period == 0 {
		b.Period = time.Hour
	}
	return b, err
}

// closedMonths are the months that are closed now, by their date.
func closedMonths(ctx context.Context, s *store.Store) (map[time.Time]store.MonthClose, error) {
	list, err := s.ExportCloses(ctx, store.OpenEnd)
	out := map[time.Time]store.MonthClose{}
	for _, c := range list {
		out[c.Month] = c
	}
	return out, err
}

// costWindow is a window, one of those that parts gives, and which lines of it
// are shown.
func costWindow(calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) store.CostWindow {
	month := calendar.MonthAt(from)
	return store.CostWindow{From: from, To: to, Month: month.Date, Closed: closed[month.Date].Number}
}

// days cuts a window at the begins of days of the billing time zone.
func days(calendar ratebatch.Calendar, from, to time.Time) []ratebatch.Period {
	var out []ratebatch.Period
	for at := from; at.Before(to); {
		local := at.In(calendar.Zone())
		next := calendar.DayBegin(time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, time.UTC))
		if !next.After(at) {
			next = at.Add(24 * time.Hour)
		}
		if next.After(to) {
			next = to
		}
		out = append(out, ratebatch.Period{Begin: at, End: next})
		at = next
	}
	return out
}

// months cuts a window at the begins of months: one may be closed and the next
// not.
func months(calendar ratebatch.Calendar, from, to time.Time) []ratebatch.Period {
	var out []ratebatch.Period
	for at := from; at.Before(to); {
		end := calendar.MonthAt(at).To
		if end.After(to) {
			end = to
		}
		out = append(out, ratebatch.Period{Begin: at, End: end})
		at = end
	}
	return out
}

// parts cuts a window into what can be read at once: months, if one of them is
// closed, since its lines are the frozen ones and those of the next are not.
func parts(calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) []ratebatch.Period {
	list := months(calendar, from, to)
	for _, p := range list {
		if _, ok := closed[calendar.MonthAt(p.Begin).Date]; ok {
			return list
		}
	}
	return []ratebatch.Period{{Begin: from, End: to}}
}
