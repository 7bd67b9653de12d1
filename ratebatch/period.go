package ratebatch

import (
	"fmt"
	"time"
)

// Period is the half-open interval [Begin, End) in UTC that usage is rated for.
type Period struct {
	Begin, End time.Time
}

// PeriodAt returns the period of the given length that contains t. Periods are
// counted from the Unix epoch, so every length that divides a day starts at
// midnight UTC whatever the process's or the server's time zone.
func PeriodAt(t time.Time, length time.Duration) Period {
	seconds := int64(length / time.Second)
	unix := t.Unix()
	begin := unix - mod(unix, seconds)
	return Period{time.Unix(begin, 0).UTC(), time.Unix(begin+seconds, 0).UTC()}
}

func mod(a, b int64) int64 {
	if m := a % b; m < 0 {
		return m + b
	}
	return a % b
}

// BeginFrom is the begin of the first period of the given length that begins at
// t or later.
func BeginFrom(t time.Time, length time.Duration) time.Time {
	p := PeriodAt(t, length)
	if p.Begin.Before(t) {
		return p.End
	}
	return p.Begin
}

// Earlier is the earlier one of two instants.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later is the later one of two instants.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Length is the time between Begin and End.
func (p Period) Length() time.Duration { return p.End.Sub(p.Begin) }

// Next is the period of the same length that begins where p ends.
func (p Period) Next() Period { return Period{p.End, p.End.Add(p.Length())} }

// Contains says whether t lies in [Begin, End).
func (p Period) Contains(t time.Time) bool { return !t.Before(p.Begin) && t.Before(p.End) }

// String gives the form used in logs and messages:
// 2026-03-01T00:00:00Z/2026-03-01T01:00:00Z.
func (p Period) String() string {
	return p.Begin.UTC().Format(time.RFC3339) + "/" + p.End.UTC().Format(time.RFC3339)
}

// CheckPeriodLength reports whether periods of this length can be rated: whole
// seconds, at least five minutes (the finest tier), and a divisor of a day so
// that no period crosses midnight UTC.
func CheckPeriodLength(length time.Duration) error {
	const day = 24 * time.Hour
	switch {
	case length < 5*time.Minute || length > day:
		return fmt.Errorf("a period of %s: must be between 5m0s and 24h0m0s", length)
	case length%(5*time.Minute) != 0:
		return fmt.Errorf("a period of %s: must be a multiple of 5m0s, the finest tier", length)
	case day%length != 0:
		return fmt.Errorf("a period of %s: must divide a day of 24h", length)
	}
	return nil
}
