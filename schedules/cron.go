package schedules

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// starBit marks a field of a parsed expression that was written as a bare star.
const starBit = 1 << 63

// Cron is a parsed expression of five fields (minute, hour, day of month, month,
// day of week) in a time zone.
type Cron struct {
	spec *cron.SpecSchedule
	zone *time.Location
	text string
}

// ParseCron reads an expression of five fields. Descriptors such as @hourly are
// refused: not everything that this package writes to knows them.
func ParseCron(text string, zone *time.Location) (Cron, error) {
	if strings.Contains(text, "TZ=") {
		return Cron{}, fmt.Errorf("cron %q: name the zone as timezone", text)
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(text)
	if err != nil {
		return Cron{}, fmt.Errorf("cron %q: %w (write minute, hour, day of month, month, day of week)", text, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Cron{}, fmt.Errorf("cron %q: no expression of five fields", text)
	}
	spec.Location = time.UTC // of wall-clock times, see Next
	c := Cron{spec: spec, zone: zone, text: strings.Join(strings.Fields(text), " ")}
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Cron{}, fmt.Errorf("cron %q: no such day exists", text)
	}
	return c, nil
}

// String is the expression.
func (c Cron) String() string { return c.text }

// hourly says whether the job follows the passing of time more than the hour of
// the day: its hour is a star or a step over all hours.
func (c Cron) hourly() bool {
	return strings.HasPrefix(strings.Fields(c.text)[1], "*")
}

// Next is the first slot after t, or zero if there is none for five years.
//
// A job at a fixed hour runs once for each local time it names: a time that a
// clock change leaves out comes when the clock jumps, a time that comes twice
// counts at its first coming. A job whose hour is a star goes by elapsed time:
// it runs in both hours of the same name, and in none that does not exist.
func (c Cron) Next(t time.Time) time.Time {
	if c.hourly() {
		local := *c.spec
		local.Location = c.zone
		return local.Next(t).UTC()
	}
	wall := wallClock(t.In(c.zone))
	for {
		wall = c.spec.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if at := firstInstant(wall, c.zone); at.After(t) {
			return at
		}
	}
}

// wallClock is what a clock on the wall shows, as if it were UTC.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// firstInstant is when a clock in the zone first shows wall, or jumps past it.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	// The offsets around it; no zone changes twice within two days.
	_, before := wall.AddDate(0, 0, -1).In(zone).Zone()
	_, after := wall.AddDate(0, 0, 1).In(zone).Zone()
	early, late := wall.Add(-time.Duration(max(before, after))*time.Second), wall.Add(-time.Duration(min(before, after))*time.Second)
	for _, at := range []time.Time{early, late} {
		if wallClock(at.In(zone)).Equal(wall) {
			return at
		}
	}
	jump, _ := late.In(zone).ZoneBounds()
	return jump.UTC()
}
