package web

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test are there wherever it runs

	"github.com/ratebatch/ratebatch/ratebatch"
)

func calendar(t *testing.T, zone string) ratebatch.Calendar {
	t.Helper()
	c, err := ratebatch.CalendarOf(zone)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every date of a month has one window that begins on it, also where a clock
// change takes away or repeats the date's midnight.
func TestEveryDateIsOneDay(t *testing.T) {
	for name, tt := range map[string]struct {
		zone, month string
		days        int
		date        string // of the month, and when it begins
		begin       string
	}{
		"Santiago skips midnight of 6 September 2026": {"America/Santiago", "2026-09", 30, "2026-09-06", "2026-09-06T04:00:00Z"},
		"Santiago repeats 23:00 of 4 April 2026":      {"America/Santiago", "2026-04", 30, "2026-04-05", "2026-04-05T04:00:00Z"},
		"Havana skips midnight of 8 March 2026":       {"America/Havana", "2026-03", 31, "2026-03-08", "2026-03-08T05:00:00Z"},
		"Havana repeats midnight of 1 November 2026":  {"America/Havana", "2026-11", 30, "2026-11-01", "2026-11-01T04:00:00Z"},
		"Berlin":                               {"Europe/Berlin", "2026-10", 31, "2026-10-26", "2026-10-25T23:00:00Z"},
		"Samoa had no 30 December 2011":        {"Pacific/Apia", "2011-12", 30, "2011-12-31", "2011-12-30T10:00:00Z"},
		"UTC, where every day has 24 hours":    {"UTC", "2026-02", 28, "2026-02-28", "2026-02-28T00:00:00Z"},
		"Amman skipped midnight of 1 April 16": {"Asia/Amman", "2016-04", 30, "2016-04-01", "2016-03-31T22:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			c := calendar(t, tt.zone)
			m, err := c.ParseMonth(tt.month)
			if err != nil {
				t.Fatal(err)
			}
			list := days(c, m.From, m.To)
			if len(list) != tt.days || !list[0].Begin.Equal(m.From) || !list[len(list)-1].End.Equal(m.To) {
				t.Fatalf("%d days from %s to %s, want %d", len(list), list[0].Begin, list[len(list)-1].End, tt.days)
			}
			seen := map[string]string{}
			for i, d := range list {
				date := d.Begin.In(c.Zone()).Format(time.DateOnly)
				if seen[date] != "" || i > 0 && !d.Begin.Equal(list[i-1].End) || d.Length() > 25*time.Hour {
					t.Errorf("%s: %s, after %s", date, d, seen[date])
				}
				if last := d.End.Add(-time.Second).In(c.Zone()).Format(time.DateOnly); last != date {
					t.Errorf("%s ends on %s", d, last)
				}
				seen[date] = d.Begin.Format(time.RFC3339)
			}
			if seen[tt.date] != tt.begin {
				t.Errorf("%s begins %s, want %s", tt.date, seen[tt.date], tt.begin)
			}
		})
	}
}

// A window stands beside the same days of the month before; days that this month
// does not have stand beside nothing, at either end.
func TestTheWindowAMonthBefore(t *testing.T) {
	for name, tt := range map[string]struct{ zone, from, to, wantFrom, wantTo string }{
		"a week":                                {"UTC", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z", "2026-10-02T00:00:00Z", "2026-10-09T00:00:00Z"},
		"hours of a day":                        {"UTC", "2026-11-02T06:30:00Z", "2026-11-02T09:00:00Z", "2026-10-02T06:30:00Z", "2026-10-02T09:00:00Z"},
		"1 to 30 March: all of February":        {"UTC", "2026-03-01T00:00:00Z", "2026-03-31T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		"28 to 30 March: 28 February":           {"UTC", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"},
		"29 and 30 March: none of February":     {"UTC", "2026-03-29T00:00:00Z", "2026-03-31T00:00:00Z", "", ""},
		"31 March: none":                        {"UTC", "2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z", "", ""},
		"31 March and 1 April: 1 March":         {"UTC", "2026-03-31T00:00:00Z", "2026-04-02T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		"29 March of a leap year: 29 February":  {"UTC", "2028-03-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		"January: December":                     {"UTC", "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z", "2025-12-05T00:00:00Z", "2025-12-06T00:00:00Z"},
		"local days across the change of March": {"Europe/Berlin", "2026-04-01T22:00:00Z", "2026-04-02T22:00:00Z", "2026-03-01T23:00:00Z", "2026-03-02T23:00:00Z"},
		"local days to those of summer":         {"Europe/Berlin", "2026-11-01T23:00:00Z", "2026-11-30T23:00:00Z", "2026-10-01T22:00:00Z", "2026-10-31T23:00:00Z"},
		"a day to one without midnight":         {"America/Santiago", "2026-10-06T03:00:00Z", "2026-10-07T03:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
		"a day without midnight":                {"America/Santiago", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z", "2026-08-06T04:00:00Z", "2026-08-07T04:00:00Z"},
		"a time that a clock change left out":   {"Europe/Berlin", "2026-04-29T00:30:00Z", "2026-04-29T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			at := func(text string) time.Time {
				x, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			got := previousWindow(calendar(t, tt.zone), window{from: at(tt.from), to: at(tt.to)}, false, time.Time{})
			if tt.wantFrom == "" {
				if got.from.Before(got.to) {
					t.Errorf("%s to %s, want none", got.from, got.to)
				}
			} else if !got.from.Equal(at(tt.wantFrom)) || !got.to.Equal(at(tt.wantTo)) {
				t.Errorf("%s to %s, want %s to %s", got.from, got.to, tt.wantFrom, tt.wantTo)
			}
		})
	}
}
