package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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
	top  topPrices
	used int64
}

// costDay are the sums of one day, or of a part of one.
type costDay struct {
	mu    sync.Mutex // held while it is read
	key   string     // of the state it was read of
	cells []costCell
	until time.Time // end of the last period that is rated
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
	until time.Time
}

// read gives the sums of a window, day by day, each compared with the commits
// it comes from.
func (c *costCache) read(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, from, to time.Time) ([]daySums, error) {
	closed, err := closedMonths(ctx, s)
	if err != nil {
		return nil, err
	}
	keys, err := stateKeys(ctx, s, calendar, closed, from, to)
	if err != nil {
		return nil, err
	}
	var out []daySums
	for _, day := range days(calendar, from, to) {
		key, any := keys[day.Begin]
		if !any {
			continue // no commit: nothing to read
		}
		d := c.day(day)
		d.mu.Lock()
		if d.key != key {
			// What is read is for everybody who waits, so it does not end with
			// the one who asked first.
			reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			cells, until, err := readDay(reading, s, costWindow(calendar, closed, day.Begin, day.End))
			cancel()
			if err != nil {
				d.mu.Unlock()
				return nil, err
			}
			d.key, d.cells, d.until = key, cells, until
		}
		out = append(out, daySums{day, d.cells, d.until})
		d.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
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

// stateKeys says of each day of a window what its commits are; days without any
// are missing.
func stateKeys(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) (map[time.Time]string, error) {
	hours, err := s.CostState(ctx, from, to)
	if err != nil {
		return nil, err
	}
	out := map[time.Time]string{}
	at := 0
	for _, day := range days(calendar, from, to) {
		text, n := "", uint64(0)
		var latest time.Time
		for ; at < len(hours) && hours[at].Hour.Before(day.End); at++ {
			n += hours[at].Commits
			if hours[at].Latest.After(latest) {
				latest = hours[at].Latest
			}
			text = fmt.Sprint(hours[at].Voids)
		}
		if n > 0 {
			out[day.Begin] = fmt.Sprint(text, " ", n, " ", latest.UnixMicro(), " ", closed[calendar.MonthAt(day.Begin).Date].Number)
		}
	}
	return out, nil
}

// readDay reads and compares. A run may commit between the two statements, so a
// difference is looked at twice.
func readDay(ctx context.Context, s *store.Store, w store.CostWindow) (cells []costCell, until time.Time, err error) {
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
		until = time.Time{}
		for _, x := range commits {
			if x.RatedUntil.After(until) {
				until = x.RatedUntil
			}
		}
		differs := compare(commits, cells)
		if differs == "" {
			return cells, until, nil
		}
		if try == 2 {
			return nil, until, stateDiffers(w, differs)
		}
	}
}

func stateDiffers(w store.CostWindow, scope string) error {
	return &apiError{status: http.StatusInternalServerError, code: "state_differs",
		message: fmt.Sprintf("the lines of project %s from %s to %s are not those that were committed", scope, w.From.Format(time.RFC3339), w.To.Format(time.RFC3339)),
		hint:    "no figure is shown; look with 'ratebatch reconcile'"}
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

// topPrices are the instances of a window by price.
type topPrices struct {
	mu   sync.Mutex
	key  string
	list []pricedInstance
}

type pricedInstance struct {
	store.TopPrice
	Currency string
}

// maxPriced bounds how many instances are kept by price.
const maxPriced = 100_000

// topPrices gives the instances by price of the last 24 hours that are rated
// before a moment, and these hours. Those before now are kept.
func (s *Server) topPrices(ctx context.Context, st *store.Store, calendar ratebatch.Calendar, now time.Time, keep bool) (list []pricedInstance, from, to time.Time, err error) {
	closed, err := closedMonths(ctx, st)
	if err != nil {
		return nil, from, to, err
	}
	// Rating lags hours behind; it may have stopped for a day.
	to = now.Truncate(time.Hour)
	recent, err := st.CostState(ctx, to.Add(-48*time.Hour), to)
	if err != nil {
		return nil, from, to, err
	}
	if len(recent) > 0 {
		to = recent[len(recent)-1].Hour.Truncate(time.Hour).Add(time.Hour)
	}
	from = to.Add(-24 * time.Hour)
	keys, err := stateKeys(ctx, st, calendar, closed, from, to)
	if err != nil {
		return nil, from, to, err
	}
	if !keep {
		list, err = readTopPrices(ctx, st, calendar, closed, from, to)
		return list, from, to, err
	}
	key := fmt.Sprint(from, keys)
	t := &s.costs.top
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.key == key {
		return t.list, from, to, nil
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if list, err = readTopPrices(reading, st, calendar, closed, from, to); err != nil {
		return nil, from, to, err
	}
	t.key, t.list = key, list
	return list, from, to, nil
}

// readTopPrices adds up the days of a window, since a month may be closed and
// the next not.
func readTopPrices(ctx context.Context, st *store.Store, calendar ratebatch.Calendar, closed map[time.Time]store.MonthClose, from, to time.Time) ([]pricedInstance, error) {
	type key struct {
		store.TopPrice
		currency string
	}
	sums := map[key]decimal.Decimal{}
	windows := []store.CostWindow{costWindow(calendar, closed, from, to)}
	if next := calendar.MonthAt(from).To; next.Before(to) {
		windows = []store.CostWindow{costWindow(calendar, closed, from, next), costWindow(calendar, closed, next, to)}
	}
	for _, w := range windows {
		commits, err := st.CostCommits(ctx, w)
		if err != nil {
			return nil, err
		}
		for _, currency := range currencies(commits) {
			prices, err := st.TopPrices(ctx, w, currency, maxPriced)
			if err != nil {
				return nil, err
			}
			for _, p := range prices {
				k := key{store.TopPrice{ID: p.ID, Scope: p.Scope}, currency}
				sums[k] = sums[k].Add(p.Price)
			}
		}
	}
	list := make([]pricedInstance, 0, len(sums))
	for k, price := range sums {
		k.Price = price
		list = append(list, pricedInstance{k.TopPrice, k.currency})
	}
	slices.SortFunc(list, func(a, b pricedInstance) int {
		if c := b.Price.Cmp(a.Price); c != 0 {
			return c
		}
		return slices.Compare(a.ID[:], b.ID[:])
	})
	return list, nil
}
