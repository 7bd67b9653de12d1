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

// costWindow is a window within one month, and which lines of it are shown.
func costWindow(calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) store.CostWindow {
	month := calendar.MonthAt(from)
	return store.CostWindow{From: from, To: to, Month: month.Date, Closed: closed[month.Date].Number}
}

// days cuts a window at the begins of days of the billing time zone.
func days(calendar ratebatch.Calendar, from, to time.Time) []ratebatch.Period {
	var out []ratebatch.Period
	for at := from; at.Before(to); {
		local := at.In(calendar.Zone())
		next := dayBegin(calendar, time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, time.UTC))
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
