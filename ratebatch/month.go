package ratebatch

import (
	"fmt"
	"time"
)

// Calendar says where months begin: in UTC, or in a billing time zone. The zero
// Calendar is UTC.
type Calendar struct {
	zone *time.Location
}

// NewCalendar is the calendar of a time zone.
func NewCalendar(zone *time.Location) Calendar { return Calendar{zone} }

// CalendarOf is the calendar of a zone by its name; without one it is UTC's.
func CalendarOf(zone string) (Calendar, error) {
	if zone == "" {
		return Calendar{}, nil
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Calendar{}, &ConfigError{Err: fmt.Errorf("billing time zone %q is not known", zone), Hint: "use a name of the time zone database, such as Europe/Berlin, or UTC"}
	}
	return NewCalendar(location), nil
}

// Zone is the time zone that months begin in.
func (c Calendar) Zone() *time.Location {
	if c.zone == nil {
		return time.UTC
	}
	return c.zone
}

// Month is a billing month: its name, and the instants [From, To) it consists of.
type Month struct {
	Date     time.Time // its first day, as a date in UTC: what tables call the month
	From, To time.Time
}

// String is the month's name: 2026-11.
func (m Month) String() string { return m.Date.Format("2006-01") }

// Contains says whether t lies in the month.
func (m Month) Contains(t time.Time) bool { return !t.Before(m.From) && t.Before(m.To) }

// MonthAt is the month that contains t.
func (c Calendar) MonthAt(t time.Time) Month {
	local := t.In(c.Zone())
	return c.month(local.Year(), local.Month())
}

// Named is the month that tables call by this date.
func (c Calendar) Named(date time.Time) Month { return c.month(date.Year(), date.Month()) }

// Next is the month after m.
func (c Calendar) Next(m Month) Month { return c.Named(m.Date.AddDate(0, 1, 0)) }

// ParseMonth reads 2026-11.
func (c Calendar) ParseMonth(text string) (Month, error) {
	date, err := time.Parse("2006-01", text)
	if err != nil {
		return Month{}, &ConfigError{Err: fmt.Errorf("--month %q", text), Hint: "write it as 2026-11"}
	}
	return c.Named(date), nil
}

func (c Calendar) month(year int, month time.Month) Month {
	next := time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	date := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	return Month{date, c.DayBegin(date), c.DayBegin(next)}
}

// DayBegin is the first instant, in UTC, of a date: its year, month and day, in
// whatever zone the date is given. Where a clock change takes away or repeats the
// date's midnight, it is the earliest instant with this date; where the zone left
// the whole day out, the begin of the next.
func (c Calendar) DayBegin(date time.Time) time.Time {
	const step = 15 * time.Minute // clocks change by multiples of it
	year, month, day := date.Date()
	date = time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	t := time.Date(year, month, day, 0, 0, 0, 0, c.Zone())
	reached := func(t time.Time) bool {
		year, month, day := t.In(c.Zone()).Date()
		return !time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Before(date)
	}
	for !reached(t) {
		t = t.Add(step)
	}
	for reached(t.Add(-step)) {
		t = t.Add(-step)
	}
	return t.UTC()
}

// Check reports whether months can be made of whole periods of this length:
// then every month of the zone begins at a period's begin, clock changes
// included.
func (c Calendar) Check(length time.Duration) error {
	for year := 2000; year < 2100; year++ {
		for month := time.January; month <= time.December; month++ {
			begin := c.month(year, month).From
			if at := PeriodAt(begin, length); !at.Begin.Equal(begin) {
				_, offset := begin.In(c.Zone()).Zone()
				return &ConfigError{Err: fmt.Errorf("billing time zone %s: its offset from UTC, %s, is no multiple of the period %s, so %d-%02d would begin within the period %s",
					c.Zone(), time.Duration(offset)*time.Second, length, year, month, at), Hint: "use a shorter period that divides the offset, or another zone"}
			}
		}
	}
	return nil
}
