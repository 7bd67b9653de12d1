package web

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// billing is what figures rest on beside plans and metrics.
type billing struct {
	calendar ratebatch.Calendar
	zone     string
	period   time.Duration
}

func readBilling(ctx context.Context, s *store.Store) (billing, error) {
	b := billing{zone: "UTC", period: time.Hour}
	settings, err := s.BillingSettings(ctx)
	if err != nil {
		return b, err
	}
	if zone := settings[store.SettingTimezone].Value; zone != "" && zone != "UTC" {
		location, err := time.LoadLocation(zone)
		if err != nil {
			return b, fmt.Errorf("billing time zone %s: %w", zone, err)
		}
		b.zone, b.calendar = zone, ratebatch.NewCalendar(location)
	}
	if text := settings[store.SettingPeriod].Value; text != "" {
		if b.period, err = time.ParseDuration(text); err != nil {
			return b, fmt.Errorf("setting period: %w", err)
		}
	}
	return b, nil
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
