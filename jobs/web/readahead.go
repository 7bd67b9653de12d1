package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Warm reads ahead what pages show first, until ctx ends.
func (s *Server) Warm(ctx context.Context, every time.Duration) {
	for {
		if err := s.ReadAhead(ctx); err != nil && ctx.Err() == nil {
			s.Log.DebugContext(ctx, "reading ahead", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// ReadAhead reads once what pages show first: the sums of this month and the one
// before, instances by price, the status.
func (s *Server) ReadAhead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	st, err := s.ready(ctx)
	if err != nil {
		return err
	}
	b, err := readBilling(ctx, st)
	if err != nil {
		return err
	}
	now := s.Now().UTC()
	month := b.Calendar.MonthAt(now)
	before := b.Calendar.MonthAt(month.From.Add(-time.Second))
	for _, m := range []ratebatch.Month{month, before} {
		if _, err := s.costs.read(ctx, st, b.Calendar, m.From, m.To); err != nil {
			return err
		}
	}
	if _, err = s.keptPrices(ctx, st, b, now, readAheadFrom); err != nil {
		return err
	}
	if _, err = s.statusOf(ctx, st, readAheadFrom); err != nil {
		return err
	}
	for by := range s.used24 {
		if _, err := s.keptUsed(ctx, st, by, usedAheadFrom); err != nil {
			return err
		}
	}
	return nil
}

// A figure that is kept is read ahead when it is older than readAheadFrom, and
// shown until it is older than keptFor. Reading ahead comes round within that,
// so a page waits only while serve has just started.
const (
	readAheadFrom = 10 * time.Second
	keptFor       = 30 * time.Second
	// Usage of whole hours hardly changes: a new hour and what came late.
	usedAheadFrom = 4 * time.Minute
	usedKeptFor   = 5 * time.Minute
)

// kept is a figure that takes longer to read than a page may wait.
type kept[T any] struct {
	reading sync.Mutex // held by the one who reads; others wait for what it reads

	mu    sync.Mutex
	of    *store.Store
	at    time.Time
	value T
}

func (k *kept[T]) young(st *store.Store, now time.Time, age time.Duration) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.value, k.of == st && now.Sub(k.at) < age
}

// get gives the figure if it is younger than age, else reads it. What is read is
// for everybody who waits, so it does not end with the one who asked first.
func (k *kept[T]) get(ctx context.Context, st *store.Store, now func() time.Time, age time.Duration, read func(context.Context, T) (T, error)) (T, error) {
	if value, ok := k.young(st, now(), age); ok {
		return value, nil
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	value, ok := k.young(st, now(), age)
	if ok {
		return value, nil
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	at := now() // what changes while it is read may be missing
	if k.of != st {
		var none T
		value = none
	}
	value, err := read(reading, value)
	if err != nil {
		return value, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of, k.at, k.value = st, at, value
	return value, nil
}

// statusOf says what `ratebatch status` says. It is kept: what is due is found by
// looking at every scope's periods, and ten people who look at one page ask one
// question.
func (s *Server) statusOf(ctx context.Context, st *store.Store, age time.Duration) (any, error) {
	return s.statuses.get(ctx, st, s.Now, age, func(ctx context.Context, _ any) (any, error) { return s.Status(ctx, st) })
}

// topUsed are the instances of a window that use most of something.
type topUsed struct {
	from, to time.Time
	list     []store.TopInstance
}

// maxTop is how many instances a list of those that use or cost most may hold.
const maxTop = 100

// topUsed gives the instances that used most in the 24 whole hours before a
// moment. Those of everybody before now are kept for a while, as they take all
// instances' hours together; they say what hours they are of.
func (s *Server) topUsed(ctx context.Context, c *call, by string, end time.Time, latest bool, limit int) (topUsed, error) {
	if !latest || c.id.Project != "" {
		return readTopUsed(ctx, c.store, by, c.id.Project, end, limit)
	}
	out, err := s.keptUsed(ctx, c.store, by, usedKeptFor)
	if err == nil && len(out.list) == 0 { // an empty cloud waits for its first figures
		out, err = s.keptUsed(ctx, c.store, by, readAheadFrom)
	}
	out.list = out.list[:min(limit, len(out.list))]
	return out, err
}

func (s *Server) keptUsed(ctx context.Context, st *store.Store, by string, age time.Duration) (topUsed, error) {
	return s.used24[by].get(ctx, st, s.Now, age, func(ctx context.Context, _ topUsed) (topUsed, error) {
		return readTopUsed(ctx, st, by, "", s.Now().UTC(), maxTop)
	})
}

func readTopUsed(ctx context.Context, st *store.Store, by, project string, end time.Time, limit int) (out topUsed, err error) {
	out.to = end.Truncate(time.Hour)
	out.from = out.to.Add(-24 * time.Hour)
	out.list, err = st.TopInstances(ctx, by, project, out.from, out.to, limit)
	return out, err
}

// topPrices are the instances of a window that cost most, and what else it costs.
type topPrices struct {
	state    string // of the commits it was read of
	from, to time.Time
	list     []pricedInstance
	others   map[string]decimal.Decimal // by currency: what is of no known instance
}

type pricedInstance struct {
	store.TopPrice
	Currency string
}

// topPrices gives the instances that cost most in the last 24 hours that are
// rated before a moment, and these hours. Those of everybody before now are kept
// for a while; they say what hours they are of.
func (s *Server) topPrices(ctx context.Context, c *call, b store.Billing, end time.Time, latest bool) (topPrices, error) {
	if !latest || c.id.Project != "" {
		return readTopPrices(ctx, c.store, b, c.id.Project, end, maxTop, topPrices{})
	}
	return s.keptPrices(ctx, c.store, b, end, keptFor)
}

func (s *Server) keptPrices(ctx context.Context, st *store.Store, b store.Billing, now time.Time, age time.Duration) (topPrices, error) {
	return s.top24.get(ctx, st, s.Now, age, func(ctx context.Context, before topPrices) (topPrices, error) {
		return readTopPrices(ctx, st, b, "", now, maxTop, before)
	})
}

// readTopPrices adds up the parts of a window, since a month may be closed and
// the next not; of one scope, or of all if it is empty. What was read before
// counts if nothing was committed since.
func readTopPrices(ctx context.Context, st *store.Store, b store.Billing, scope string, now time.Time, limit int, before topPrices) (topPrices, error) {
	closed, err := closedMonths(ctx, st)
	if err != nil {
		return topPrices{}, err
	}
	// Rating lags two periods or more behind; it may have stopped for a day.
	step := max(b.Period, time.Hour)
	out := topPrices{to: ratebatch.PeriodAt(now, step).Begin, others: map[string]decimal.Decimal{}}
	recent, err := st.CostState(ctx, out.to.Add(-48*time.Hour-2*step), out.to)
	if err != nil {
		return out, err
	}
	if len(recent) > 0 {
		out.to = ratebatch.PeriodAt(recent[len(recent)-1].Hour, step).End
	}
	out.from = out.to.Add(-24 * time.Hour)
	states, err := dayStates(ctx, st, b.Calendar, closed, out.from, out.to)
	if err != nil {
		return out, err
	}
	if out.state = fmt.Sprint(out.from, states); out.state == before.state {
		return before, nil
	}
	type key struct {
		store.TopPrice
		currency string
	}
	sums := map[key]decimal.Decimal{}
	cuts := parts(b.Calendar, closed, out.from, out.to)
	// Who costs little in one part may cost most in all of them.
	most := uint32(limit)
	if len(cuts) > 1 {
		most = math.MaxUint32
	}
	for _, part := range cuts {
		w := costWindow(b.Calendar, closed, part.Begin, part.End)
		commits, err := st.CostCommits(ctx, w)
		if err != nil {
			return out, err
		}
		for _, currency := range currencies(commits) {
			prices, err := pricesOf(ctx, st, w, commits, scope, currency, most)
			if err != nil {
				return out, err
			}
			out.others[currency] = out.others[currency].Add(prices.Others)
			for _, p := range prices.List {
				k := key{store.TopPrice{ID: p.ID, Scope: p.Scope}, currency}
				sums[k] = sums[k].Add(p.Price)
			}
		}
	}
	for k, price := range sums {
		k.Price = price
		out.list = append(out.list, pricedInstance{k.TopPrice, k.currency})
	}
	slices.SortFunc(out.list, func(a, b pricedInstance) int {
		return cmp.Or(b.Price.Cmp(a.Price), slices.Compare(a.ID[:], b.ID[:]), strings.Compare(a.Scope, b.Scope), strings.Compare(a.Currency, b.Currency))
	})
	out.list = slices.Clone(out.list[:min(limit, len(out.list))])
	return out, nil
}

// pricesOf reads the prices of instances in one currency and compares all lines
// that were read with the commits; a run may commit meanwhile, so a difference
// is looked at twice.
func pricesOf(ctx context.Context, st *store.Store, w store.CostWindow, commits []store.CostCommit, scope, currency string, limit uint32) (store.TopPrices, error) {
	for try := 1; ; try++ {
		read, err := st.TopPrices(ctx, w, scope, currency, limit)
		if err != nil {
			return store.TopPrices{}, err
		}
		var committed uint64
		var price decimal.Decimal
		for _, x := range commits {
			if x.Currency == currency && (scope == "" || x.Scope == scope) {
				committed, price = committed+x.Lines, price.Add(x.Total)
			}
		}
		if committed == read.Lines && price.Equal(read.Total) {
			return read, nil
		}
		if try == 2 {
			return store.TopPrices{}, linesDiffer(ctx, st, w, scope)
		}
		if commits, err = st.CostCommits(ctx, w); err != nil {
			return store.TopPrices{}, err
		}
	}
}
