package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// ClosedMonth is a month that is closed: what it consists of is frozen.
type ClosedMonth struct {
	Month    time.Time
	Closed   uint32 // how often it was closed
	ClosedAt time.Time
}

// ClosedMonths lists the months that are closed now.
func (s *Store) ClosedMonths(ctx context.Context) ([]ClosedMonth, error) {
	return Collect(ctx, s, "closed_months", nil, scanClosedMonth)
}

// UnexportedMonths lists the months that were closed after something had been
// exported, and were not exported since.
func (s *Store) UnexportedMonths(ctx context.Context) ([]ClosedMonth, error) {
	return Collect(ctx, s, "unexported_months", nil, scanClosedMonth)
}

func scanClosedMonth(rows driver.Rows) (ClosedMonth, error) {
	var m ClosedMonth
	err := rows.Scan(&m.Month, &m.Closed, &m.ClosedAt)
	m.Month, m.ClosedAt = m.Month.UTC(), m.ClosedAt.UTC()
	return m, err
}

// DueWindow is the window [First, Until) in which a scope's periods can be due.
// Windows of one scope do not overlap.
type DueWindow struct {
	Scope        string
	First, Until time.Time
	// Again, if set, makes periods due whose current commit was made before it.
	Again time.Time
}

func (w DueWindow) again() int64 {
	if w.Again.IsZero() {
		return 0
	}
	return w.Again.UnixMicro()
}

// withScopes writes the windows into the statement as one constant.
func withScopes(text string, windows []DueWindow) string {
	var list strings.Builder
	list.WriteByte('[')
	for i, w := range windows {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "(%s,%d,%d,%d)", sqltext.String(w.Scope), w.First.Unix(), w.Until.Unix(), w.again())
	}
	list.WriteByte(']')
	constant := "SELECT window.1 AS scope, toDateTime(window.2, 'UTC') AS first, toDateTime(window.3, 'UTC') AS until, window.4 AS again FROM (SELECT arrayJoin(CAST(" +
		sqltext.String(list.String()) + ", 'Array(Tuple(String, UInt32, UInt32, Int64))')) AS window)"
	return strings.ReplaceAll(text, "/* SCOPES */", constant)
}

// dates formats days for an Array(Date) parameter.
func dates(days []time.Time) []string {
	out := make([]string, len(days))
	for i, d := range days {
		out[i] = d.UTC().Format(time.DateOnly)
	}
	return out
}

// DueDay says how many periods that begin on a day (UTC) are due, and between
// which times of the day they lie; both are zero where that was not looked up.
type DueDay struct {
	Day     time.Time `json:"day"`
	Periods uint64    `json:"periods"`

	From, To time.Time `json:"-"`
}

// DueBounds looks up between which times of the day its due periods lie.
func (s *Store) DueBounds(ctx context.Context, windows []DueWindow, period time.Duration, day DueDay) (DueDay, error) {
	next := day.Day.AddDate(0, 0, 1)
	ctx = WithParams(ctx, Params{"period": int64(period / time.Second), "from": day.Day, "to": next, "closed": []string{}, "metrics_digest": ""})
	err := s.each(ctx, "due_bounds", withScopes(SQL("due_bounds"), windows), func(rows driver.Rows) error {
		var n uint64
		var first, last time.Time
		if err := rows.Scan(&n, &first, &last); err != nil {
			return err
		}
		if n > 0 {
			day.From, day.To = first.UTC(), last.UTC().Add(period)
		}
		return nil
	})
	return day, err
}

// namedScopes is how many scopes due_check names a day at most, less one.
const namedScopes = 2000

// DueDays counts the due periods of the scopes per day, oldest first. Months
// in skip are not looked at. It first tells, cheaply, the days that are wholly
// rated or not at all; only the others are counted period by period.
func (s *Store) DueDays(ctx context.Context, windows []DueWindow, period time.Duration, skip []time.Time) ([]DueDay, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	from, to := windows[0].First, windows[0].Until
	for _, w := range windows {
		if w.First.Before(from) {
			from = w.First
		}
		if w.Until.After(to) {
			to = w.Until
		}
	}
	due := map[time.Time]uint64{}
	open := map[time.Time][]string{} // scopes that need a closer look
	seconds := int64(period / time.Second)
	check := WithParams(ctx, Params{"period": seconds, "closed": dates(skip), "from": from.Truncate(24 * time.Hour), "to": to.Add(24*time.Hour - 1).Truncate(24 * time.Hour)})
	err := s.each(check, "due_check", withScopes(SQL("due_check"), windows), func(rows driver.Rows) error {
		var day time.Time
		var never, unclear uint64
		var names []string
		if err := rows.Scan(&day, &never, &unclear, &names); err != nil {
			return err
		}
		if never > 0 {
			due[day.UTC()] = never
		}
		if unclear > 0 {
			open[day.UTC()] = names
		}
		return nil
	})
	if err != nil || len(open) == 0 {
		return dueDays(due), err
	}
	days := slices.SortedFunc(maps.Keys(open), time.Time.Compare)
	pairs := &strings.Builder{}
	pairs.WriteByte('[')
	for _, day := range days {
		names := open[day]
		if len(names) > namedScopes {
			// Not all are named: the day is counted for every scope.
			delete(due, day)
			names = nil
			for _, w := range windows {
				names = append(names, w.Scope)
			}
		}
		for _, name := range names {
			if pairs.Len() > 1 {
				pairs.WriteByte(',')
			}
			fmt.Fprintf(pairs, "(%d,%s)", day.Unix()/86400, sqltext.String(name))
		}
	}
	pairs.WriteByte(']')
	constant := "SELECT toDate(pair.1) AS day, pair.2 AS scope FROM (SELECT arrayJoin(CAST(" + sqltext.String(pairs.String()) + ", 'Array(Tuple(UInt16, String))')) AS pair)"
	text := strings.ReplaceAll(withScopes(SQL("due_days"), windows), "/* DAYS */", constant)
	exact := WithParams(ctx, Params{"period": seconds, "from": days[0], "to": days[len(days)-1].AddDate(0, 0, 1)})
	err = s.each(exact, "due_days", text, func(rows driver.Rows) error {
		var d DueDay
		if err := rows.Scan(&d.Day, &d.Periods); err != nil {
			return err
		}
		due[d.Day.UTC()] += d.Periods
		return nil
	})
	return dueDays(due), err
}

func dueDays(due map[time.Time]uint64) []DueDay {
	out := make([]DueDay, 0, len(due))
	for _, day := range slices.SortedFunc(maps.Keys(due), time.Time.Compare) {
		out = append(out, DueDay{Day: day, Periods: due[day]})
	}
	return out
}

// each runs a statement with the context's parameters and hands over its rows.
func (s *Store) each(ctx context.Context, name, text string, row func(driver.Rows) error) error {
	rows, err := s.conn.Query(ctx, text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	return nil
}

// MonthState is what the hints of complete months rest on.
type MonthState struct {
	Month   time.Time
	Windows uint64
	Commits uint64
	Latest  time.Time
	Voids   uint64
}

// MonthStates says, per month, how many commits there are.
func (s *Store) MonthStates(ctx context.Context) (map[time.Time]MonthState, error) {
	list, err := Collect(ctx, s, "state_counts", nil, func(rows driver.Rows) (MonthState, error) {
		var m MonthState
		err := rows.Scan(&m.Month, &m.Commits, &m.Latest, &m.Voids)
		return m, err
	})
	return byMonth(list), err
}

// CompleteMonths lists the months in which nothing was due at the last look.
func (s *Store) CompleteMonths(ctx context.Context) (map[time.Time]MonthState, error) {
	list, err := Collect(ctx, s, "complete_months", nil, func(rows driver.Rows) (MonthState, error) {
		var m MonthState
		err := rows.Scan(&m.Month, &m.Windows, &m.Commits, &m.Latest, &m.Voids)
		return m, err
	})
	return byMonth(list), err
}

func byMonth(list []MonthState) map[time.Time]MonthState {
	out := make(map[time.Time]MonthState, len(list))
	for _, m := range list {
		m.Month, m.Latest = m.Month.UTC(), m.Latest.UTC()
		out[m.Month] = m
	}
	return out
}

// NoteCompleteMonth stores the hint that nothing is due in a month.
func (s *Store) NoteCompleteMonth(ctx context.Context, m MonthState) error {
	return s.Exec(ctx, "insert_complete_month", Params{"month": m.Month.Format(time.DateOnly), "windows": m.Windows, "commits": m.Commits, "latest": m.Latest, "voids": m.Voids})
}

// OtherPeriod is one period that counts, shares time with [from, to) and whose
// length is not the given one; its scope is empty when there is none. It looks at
// the scopes named, or at all.
func (s *Store) OtherPeriod(ctx context.Context, length time.Duration, from, to time.Time, scopes ...string) (scope string, p ratebatch.Period, err error) {
	params := Params{"period": int64(length / time.Second), "from": from, "to": to, "scopes": append([]string{}, scopes...)}
	list, err := Collect(ctx, s, "other_period_lengths", params, func(rows driver.Rows) (ratebatch.Period, error) {
		var found ratebatch.Period
		err := rows.Scan(&scope, &found.Begin, &found.End)
		return found, err
	})
	if err != nil || len(list) == 0 {
		return "", p, err
	}
	return scope, list[0], nil
}
