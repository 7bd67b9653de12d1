package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// costCache keeps the sums of days until their commits change. A day of 50,000
// instances is ten million lines and a few thousand sums.
type costCache struct {
	mu   sync.Mutex
	days map[ratebatch.Period]*costDay
	used int64
}

// costDay are the sums of one day, or of a part of one.
type costDay struct {
	mu    sync.Mutex // held while it is read
	state dayState   // that it was read of
	cells []costCell
	until map[string]time.Time // by scope: end of its last period that is rated
	used  int64
}

type costCell struct {
	store.CostCell
	Currency string
}

// maxDays bounds the cache: two years.
const maxDays = 750

func newCostCache() *costCache {
	return &costCache{days: map[ratebatch.Period]*costDay{}}
}

// daySums are the sums of one day.
type daySums struct {
	day   ratebatch.Period
	cells []costCell
	until map[string]time.Time // by scope
}

// read gives the sums of a window, day by day, each compared with the commits
// it comes from.
func (c *costCache) read(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, from, to time.Time) ([]daySums, error) {
	closed, err := closedMonths(ctx, s)
	if err != nil {
		return nil, err
	}
	states, err := dayStates(ctx, s, calendar, closed, from, to)
	if err != nil {
		return nil, err
	}
	// Kept sums of a month whose lines are gone are shown no more than read ones: who
	// asks another server, or this one after a restart, gets the same answer.
	for _, part := range months(calendar, from, to) {
		month := calendar.MonthAt(part.Begin)
		if err := linesRemoved(ctx, s, month, closed[month.Date].Number); err != nil {
			return nil, err
		}
	}
	var out []daySums
	for _, day := range days(calendar, from, to) {
		state, any := states[day.Begin]
		if !any {
			continue // no commit: nothing to read
		}
		sums, err := c.day(day).read(ctx, day, state, func(ctx context.Context, from, to time.Time) ([]costCell, map[string]time.Time, error) {
			return readDay(ctx, s, costWindow(calendar, closed, from, to))
		}, func(ctx context.Context) (dayState, error) {
			now, err := dayStates(ctx, s, calendar, closed, day.Begin, day.End)
			return now[day.Begin], err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, sums)
	}
	return out, nil
}

func (c *costCache) day(p ratebatch.Period) *costDay {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used++
	d := c.days[p]
	if d == nil {
		if len(c.days) >= maxDays {
			var oldest ratebatch.Period
			least := c.used
			for p, d := range c.days {
				if d.used < least {
					oldest, least = p, d.used
				}
			}
			delete(c.days, oldest)
		}
		d = &costDay{}
		c.days[p] = d
	}
	d.used = c.used
	return d
}

// dayState is what the commits of a day are: figures of another state have to be
// read again.
type dayState struct {
	base     string           // what all of the day rests on: voided attempts, the month's close
	quarters map[int64]string // by begin of a quarter of an hour with commits, in seconds
}

// dayStates says of each day of a window what its commits are; days without any
// are missing.
func dayStates(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) (map[time.Time]dayState, error) {
	hours, err := s.CostState(ctx, from, to)
	if err != nil {
		return nil, err
	}
	out := map[time.Time]dayState{}
	at := 0
	for _, day := range days(calendar, from, to) {
		x := dayState{quarters: map[int64]string{}}
		for ; at < len(hours) && hours[at].Hour.Before(day.End); at++ {
			x.base = fmt.Sprint(hours[at].Voids, " ", closed[calendar.MonthAt(day.Begin).Date].Number)
			x.quarters[hours[at].Hour.Unix()] = fmt.Sprint(hours[at].Commits, " ", hours[at].Latest.UnixMicro())
		}
		if len(x.quarters) > 0 {
			out[day.Begin] = x
		}
	}
	return out, nil
}

// added are the windows of a day that have commits now and had none before. It
// is false when anything else has changed as well.
func (x dayState) added(before dayState, end time.Time) ([]ratebatch.Period, bool) {
	if x.base != before.base {
		return nil, false
	}
	for quarter, was := range before.quarters {
		if x.quarters[quarter] != was {
			return nil, false
		}
	}
	var out []ratebatch.Period
	open := false
	for _, quarter := range slices.Sorted(maps.Keys(x.quarters)) {
		at := time.Unix(quarter, 0).UTC()
		if open {
			out[len(out)-1].End = at
		}
		_, known := before.quarters[quarter]
		if open = !known; open && (len(out) == 0 || !out[len(out)-1].End.Equal(at)) {
			out = append(out, ratebatch.Period{Begin: at})
		}
	}
	if open {
		out[len(out)-1].End = end
	}
	return out, true
}

// read gives the sums of a day of this state. A rating usually adds an hour: then
// only this hour is read, since a day of a large cloud takes a second or two.
// What was committed while it was read may be among the sums already and must not
// be added to them later, so they are kept only if the state is still the same.
func (d *costDay) read(ctx context.Context, day ratebatch.Period, state dayState,
	lines func(ctx context.Context, from, to time.Time) ([]costCell, map[string]time.Time, error), look func(context.Context) (dayState, error)) (daySums, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return daySums{}, err
	}
	missing, grown := state.added(d.state, day.End)
	cells, until := d.cells, d.until
	if !grown || len(d.state.quarters) == 0 {
		missing, cells, until = []ratebatch.Period{day}, nil, nil
	}
	// What is read is for everybody who waits, so it does not end with the one who
	// asked first.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, w := range missing {
		more, end, err := lines(reading, w.Begin, w.End)
		if err != nil {
			return daySums{}, err
		}
		cells, until = mergeCells(cells, more), laterOf(until, end)
	}
	if len(missing) > 0 {
		now, err := look(reading)
		if err != nil {
			return daySums{}, err
		}
		if now.base != state.base || !maps.Equal(now.quarters, state.quarters) {
			state = dayState{}
		}
	}
	d.state, d.cells, d.until = state, cells, until
	return daySums{day, cells, until}, nil
}

// laterOf is up to where each scope is rated by two windows. It changes neither:
// others may be reading them.
func laterOf(a, b map[string]time.Time) map[string]time.Time {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for scope, end := range b {
		out[scope] = ratebatch.Later(out[scope], end)
	}
	return out
}

// mergeCells adds up the sums of two windows. It changes neither: others may be
// reading them.
func mergeCells(a, b []costCell) []costCell {
	if len(a) == 0 {
		return b
	}
	type key struct{ currency, scope, metric, unit, bucket string }
	of := func(x costCell) key { return key{x.Currency, x.Scope, x.Metric, x.Unit, x.Bucket} }
	out := slices.Clone(a)
	at := make(map[key]int, len(out))
	for i, x := range out {
		at[of(x)] = i
	}
	for _, x := range b {
		i, ok := at[of(x)]
		if !ok {
			out = append(out, x)
			continue
		}
		out[i].Lines += x.Lines
		out[i].Qty, out[i].Price = out[i].Qty.Add(x.Qty), out[i].Price.Add(x.Price)
	}
	slices.SortFunc(out, func(x, y costCell) int {
		return cmp.Or(strings.Compare(x.Currency, y.Currency), strings.Compare(x.Scope, y.Scope), strings.Compare(x.Metric, y.Metric), strings.Compare(x.Unit, y.Unit), strings.Compare(x.Bucket, y.Bucket))
	})
	return out
}

// readDay reads and compares. A run may commit between the two statements, so a
// difference is looked at twice.
func readDay(ctx context.Context, s *store.Store, w store.CostWindow) (cells []costCell, until map[string]time.Time, err error) {
	for try := 1; ; try++ {
		var commits []store.CostCommit
		if commits, err = s.CostCommits(ctx, w); err != nil {
			return nil, until, err
		}
		cells = nil
		for _, currency := range currencies(commits) {
			list, err := s.CostCells(ctx, w, currency)
			if err != nil {
				return nil, until, err
			}
			for _, cell := range list {
				cells = append(cells, costCell{cell, currency})
			}
		}
		until = map[string]time.Time{}
		for _, x := range commits {
			until[x.Scope] = ratebatch.Later(until[x.Scope], x.RatedUntil)
		}
		differs := compare(commits, cells)
		if differs == "" {
			return cells, until, nil
		}
		if try == 2 {
			return nil, until, linesDiffer(ctx, s, w, differs)
		}
	}
}

// linesDiffer says why lines of a scope, of some scope if it is empty, are not those
// of its commits: they were removed with their month, or nobody knows.
func linesDiffer(ctx context.Context, s *store.Store, w store.CostWindow, scope string) error {
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	if err := linesRemoved(ctx, s, b.Calendar.MonthAt(w.From), w.Closed); err != nil {
		return err
	}
	return stateDiffers(w, scope)
}

// linesRemoved says that a closed month has no lines any more to show figures of.
// closed is the number of its close; 0 is an open month, of which none are removed.
func linesRemoved(ctx context.Context, s *store.Store, month ratebatch.Month, closed uint32) error {
	if closed == 0 {
		return nil
	}
	removed, err := s.LinesRemoved(ctx, month, closed)
	if err != nil || !removed {
		return err
	}
	return &apiError{status: http.StatusNotFound, code: codeLinesRemoved, message: fmt.Sprintf("the lines of month %s were removed by 'ratebatch retention --lines-after'", month),
		hint: "its exports have them, and 'ratebatch close --list' its totals"}
}

const codeLinesRemoved = "lines_removed"

// isLinesRemoved says whether an error is that of linesRemoved.
func isLinesRemoved(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.code == codeLinesRemoved
}

// stateDiffers says that lines of a scope, of some scope if it is empty, are not
// those of its commits.
func stateDiffers(w store.CostWindow, scope string) error {
	of := ""
	if scope != "" {
		of = " of project " + scope
	}
	text := "the lines%s from " + w.From.Format(time.RFC3339) + " to " + w.To.Format(time.RFC3339) + " are not those that were committed"
	return &apiError{status: http.StatusInternalServerError, code: "state_differs", message: fmt.Sprintf(text, of), scope: scope, unnamed: fmt.Sprintf(text, ""),
		hint: "no figure is shown; look with 'ratebatch reconcile'"}
}

func currencies(commits []store.CostCommit) []string {
	var out []string
	for _, x := range commits {
		if !slices.Contains(out, x.Currency) {
			out = append(out, x.Currency)
		}
	}
	return out
}

// compare names a scope whose lines are not what its commits state.
func compare(commits []store.CostCommit, cells []costCell) string {
	type key struct{ scope, currency string }
	type sum struct {
		lines uint64
		total decimal.Decimal
	}
	read := map[key]sum{}
	for _, x := range cells {
		k := key{x.Scope, x.Currency}
		read[k] = sum{read[k].lines + x.Lines, read[k].total.Add(x.Price)}
	}
	for _, x := range commits {
		k := key{x.Scope, x.Currency}
		if got := read[k]; got.lines != x.Lines || !got.total.Equal(x.Total) {
			return x.Scope
		}
		delete(read, k)
	}
	for k := range read {
		return k.scope
	}
	return ""
}
