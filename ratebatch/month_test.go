package ratebatch_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test are there wherever it runs

	"github.com/ratebatch/ratebatch/ratebatch"
)

func calendar(t *testing.T, zone string) ratebatch.Calendar {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return ratebatch.NewCalendar(location)
}

func TestMonthsBeginInTheBillingZone(t *testing.T) {
	for name, tt := range map[string]struct {
		zone, month, from, to string
		hours                 float64
	}{
		"UTC":                                    {"UTC", "2026-11", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", 720},
		"winter in Berlin":                       {"Europe/Berlin", "2026-12", "2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z", 744},
		"March in Berlin lacks an hour":          {"Europe/Berlin", "2026-03", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", 743},
		"October in Berlin has one more":         {"Europe/Berlin", "2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", 745},
		"New York's change is on 1 November":     {"America/New_York", "2026-11", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z", 721},
		"half an hour in Kolkata":                {"Asia/Kolkata", "2026-11", "2026-10-31T18:30:00Z", "2026-11-30T18:30:00Z", 720},
		"Amman skipped midnight of 1 April 2016": {"Asia/Amman", "2016-04", "2016-03-31T22:00:00Z", "2016-04-30T21:00:00Z", 719},
		"Havana repeats midnight of 1 Nov 2026":  {"America/Havana", "2026-11", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z", 721},
		"Samoa left out 30 December 2011":        {"Pacific/Apia", "2011-12", "2011-12-01T10:00:00Z", "2011-12-31T10:00:00Z", 720},
	} {
		t.Run(name, func(t *testing.T) {
			c := calendar(t, tt.zone)
			m, err := c.ParseMonth(tt.month)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.From.Format(time.RFC3339) + " " + m.To.Format(time.RFC3339); got != tt.from+" "+tt.to || m.To.Sub(m.From).Hours() != tt.hours {
				t.Errorf("%s of %v hours, want %s %s of %v", got, m.To.Sub(m.From).Hours(), tt.from, tt.to, tt.hours)
			}
			for _, at := range []time.Time{m.From, m.To.Add(-time.Second)} {
				if got := c.MonthAt(at); got != m || !m.Contains(at) {
					t.Errorf("%s is in %s", at, got)
				}
			}
			if m.Contains(m.To) || m.Contains(m.From.Add(-time.Second)) || c.Next(m).From != m.To {
				t.Errorf("the month's edges: %+v, next %+v", m, c.Next(m))
			}
		})
	}
	if _, err := (ratebatch.Calendar{}).ParseMonth("November"); ratebatch.ExitCode(err) != ratebatch.ExitConfig {
		t.Errorf("ParseMonth(November): %v", err)
	}
}

func TestTheOffsetIsAMultipleOfThePeriod(t *testing.T) {
	for name, tt := range map[string]struct {
		zone   string
		period time.Duration
		want   string
	}{
		"UTC and a day":            {"UTC", 24 * time.Hour, ""},
		"Berlin and an hour":       {"Europe/Berlin", time.Hour, ""},
		"Berlin and two hours":     {"Europe/Berlin", 2 * time.Hour, "Europe/Berlin"},
		"Berlin and a day":         {"Europe/Berlin", 24 * time.Hour, "its offset from UTC, 1h0m0s, is no multiple of the period 24h0m0s"},
		"Kolkata and an hour":      {"Asia/Kolkata", time.Hour, "its offset from UTC, 5h30m0s, is no multiple of the period 1h0m0s"},
		"Kolkata and half an hour": {"Asia/Kolkata", 30 * time.Minute, ""},
		"Kathmandu and 15 minutes": {"Asia/Kathmandu", 15 * time.Minute, ""},
		"Kathmandu and 30 minutes": {"Asia/Kathmandu", 30 * time.Minute, "5h45m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			err := calendar(t, tt.zone).Check(tt.period)
			if tt.want == "" && err != nil || tt.want != "" && (ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Check = %v, want %q", err, tt.want)
			}
		})
	}
}
