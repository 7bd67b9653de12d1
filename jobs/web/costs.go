package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// money is an amount in a currency.
type money struct {
	Currency string          `json:"currency"`
	Amount   decimal.Decimal `json:"amount"`
}

// costAnswer is a table of costs.
type costAnswer struct {
	Begin      time.Time  `json:"begin"`
	End        time.Time  `json:"end"`
	Month      string     `json:"month,omitempty"`
	Closed     bool       `json:"closed,omitempty"`
	RatedUntil *time.Time `json:"rated_until"`
	Previous   *timeSpan  `json:"previous"`
	Group      []string   `json:"group"`
	Totals     []costSum  `json:"totals"`
	Rows       []costRow  `json:"rows"`
	Total      int        `json:"total"`
}

type timeSpan struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
}

// costSum is a price beside the one before.
type costSum struct {
	Currency   string           `json:"currency"`
	Price      decimal.Decimal  `json:"price"`
	Previous   *decimal.Decimal `json:"previous"`
	Difference *decimal.Decimal `json:"difference"`
	Change     *string          `json:"change_percent"`
	Lines      uint64           `json:"lines"`
	Unpriced   uint64           `json:"unpriced"`
}

type costRow struct {
	Project     *string          `json:"project,omitempty"`
	ProjectName string           `json:"project_name,omitempty"`
	Metric      string           `json:"metric,omitempty"`
	Day         string           `json:"day,omitempty"`
	Month       string           `json:"month,omitempty"`
	Unit        string           `json:"unit,omitempty"`
	Qty         *decimal.Decimal `json:"qty,omitempty"`
	costSum
}

// costKey is what rows are told apart by; what is not asked for is empty.
type costKey struct{ project, metric, unit, day, month, currency string }

func (k costKey) compare(o costKey) int {
	return cmp.Or(strings.Compare(k.month, o.month), strings.Compare(k.day, o.day), strings.Compare(k.project, o.project), strings.Compare(k.metric, o.metric), strings.Compare(k.unit, o.unit), strings.Compare(k.currency, o.currency))
}

// costGroups says by what rows are told apart.
type costGroups map[string]bool

func (g costGroups) key(cell costCell, date time.Time) costKey {
	k := costKey{currency: cell.Currency}
	if g["project"] {
		k.project = cell.Scope
	}
	if g["metric"] {
		k.metric, k.unit = cell.Metric, cell.Unit
	}
	if g["day"] {
		k.day = date.Format(time.DateOnly)
	}
	if g["month"] {
		k.month = date.Format("2006-01")
	}
	return k
}

func (c *call) groups() ([]string, error) {
	text := c.get("group")
	if !c.URL.Query().Has("group") {
		text = "project"
	}
	list := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(list, name) {
			continue
		}
		if !slices.Contains([]string{"project", "metric", "day", "month"}, name) {
			return nil, badRequest("group="+shorten(text), "use project, metric, day, month, separated by commas")
		}
		list = append(list, name)
	}
	return list, nil
}

// costSums adds up days.
type costSums struct {
	rows   map[costKey]*costRow
	totals map[string]*costSum
}

func addDays(list []daySums, g costGroups, keep func(costCell) bool, date func(ratebatch.Period) (time.Time, bool)) costSums {
	out := costSums{map[costKey]*costRow{}, map[string]*costSum{}}
	for _, d := range list {
		at, shown := date(d.day)
		for _, cell := range d.cells {
			if !keep(cell) {
				continue
			}
			total := out.totals[cell.Currency]
			if total == nil {
				total = &costSum{Currency: cell.Currency}
				out.totals[cell.Currency] = total
			}
			total.add(cell)
			if !shown {
				continue // a 31st has no day to stand beside in a month of 30
			}
			k := g.key(cell, at)
			row := out.rows[k]
			if row == nil {
				row = &costRow{costSum: costSum{Currency: cell.Currency}}
				out.rows[k] = row
			}
			row.add(cell)
			if g["metric"] && cell.Bucket == "" {
				qty := cell.Qty
				if row.Qty != nil {
					qty = qty.Add(*row.Qty)
				}
				row.Qty = &qty
			}
		}
	}
	return out
}

func (s *costSum) add(cell costCell) {
	switch cell.Bucket {
	case "":
		s.Price = s.Price.Add(cell.Price)
		s.Lines += cell.Lines
	case "unpriced", "rejected":
		s.Unpriced += cell.Lines
	}
}

// against puts the previous price beside this one.
func (s *costSum) against(previous decimal.Decimal) {
	difference := s.Price.Sub(previous)
	s.Previous, s.Difference = &previous, &difference
	if !previous.IsZero() {
		change := difference.Mul(decimal.NewFromInt(100)).DivRound(previous.Abs(), 1).String()
		s.Change = &change
	}
}

func (s *Server) costTable(ctx context.Context, c *call) (any, error) {
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	w, err := c.window(b.Calendar)
	if err != nil {
		return nil, err
	}
	groups, err := c.groups()
	if err != nil {
		return nil, err
	}
	compared, err := c.oneOf("compare", "month", "none", "month", "to_date")
	if err != nil {
		return nil, err
	}
	order, err := c.oneOf("order", "price", "price", "group", "difference")
	if err != nil {
		return nil, err
	}
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	only, err := c.project()
	if err != nil {
		return nil, err
	}
	g := costGroups{}
	for _, name := range groups {
		g[name] = true
	}
	named := c.get("metric")
	keep := func(x costCell) bool {
		return (only == "" || x.Scope == only) && (named == "" || x.Metric == named)
	}
	list, err := s.costs.read(ctx, c.store, b.Calendar, w.from, w.to)
	if err != nil {
		return nil, err
	}
	zone := b.Calendar.Zone()
	sums := addDays(list, g, keep, func(p ratebatch.Period) (time.Time, bool) { return p.Begin.In(zone), true })
	out := costAnswer{Begin: w.from, End: w.to, Group: groups, Totals: []costSum{}, RatedUntil: ratedUntil(list, only)}
	if w.month != nil {
		closed, err := closedMonths(ctx, c.store)
		if err != nil {
			return nil, err
		}
		_, out.Closed = closed[w.month.Date]
		out.Month = w.month.String()
	}
	if compared != "none" {
		if before := previousWindow(b.Calendar, w, compared == "to_date", c.now); before.from.Before(before.to) {
			list, err := s.costs.read(ctx, c.store, b.Calendar, before.from, before.to)
			if err != nil && !isLinesRemoved(err) {
				return nil, err
			}
			if err == nil { // else there is nothing to compare with any more
				out.Previous = &timeSpan{before.from, before.to}
				sums.compare(addDays(list, g, keep, nextMonth(zone)), w.from, out.RatedUntil, zone)
			}
		}
	}
	names, err := projectNames(ctx, c.store)
	if err != nil {
		return nil, err
	}
	keys := sums.sorted(order)
	out.Total = len(keys)
	for _, k := range cut(keys, limit, offset) {
		row := *sums.rows[k]
		if g["project"] {
			row.Project, row.ProjectName = &k.project, names[k.project]
		}
		row.Metric, row.Unit, row.Day, row.Month = k.metric, k.unit, k.day, k.month
		out.Rows = append(out.Rows, row)
	}
	out.Rows = some(out.Rows)
	for _, currency := range slices.Sorted(maps.Keys(sums.totals)) {
		out.Totals = append(out.Totals, *sums.totals[currency])
	}
	return out, nil
}

// ratedUntil is up to where a scope is rated; without one the scope that is rated
// furthest.
func ratedUntil(list []daySums, only string) *time.Time {
	var until time.Time
	for _, d := range list {
		for scope, end := range d.until {
			if only == "" || scope == only {
				until = ratebatch.Later(until, end)
			}
		}
	}
	if until.IsZero() {
		return nil
	}
	return &until
}

// previousWindow is the window a month before: the whole month, or the part of
// it that has passed of this one. It is empty where the month before has none of
// the window's days.
func previousWindow(calendar ratebatch.Calendar, w window, toDate bool, now time.Time) window {
	if w.month == nil {
		return window{from: monthBefore(calendar, w.from), to: monthBefore(calendar, w.to)}
	}
	m := calendar.MonthAt(w.from.Add(-time.Second))
	out := window{m.From, m.To, &m}
	if now = now.Truncate(time.Hour); toDate && now.Before(w.to) && now.After(w.from) {
		if end := m.From.Add(now.Sub(w.from)); end.Before(out.to) {
			out.to = end
		}
	}
	return out
}

// monthBefore is the same day and time of the month before, or that month's end
// where it has no such day: what stands beside the 29th to the 31st of March is
// nothing of February, and nothing of March.
func monthBefore(calendar ratebatch.Calendar, t time.Time) time.Time {
	zone := calendar.Zone()
	local := t.In(zone)
	date := time.Date(local.Year(), local.Month()-1, local.Day(), 0, 0, 0, 0, time.UTC)
	if date.Day() != local.Day() {
		return calendar.MonthAt(t).From
	}
	begin := calendar.DayBegin(date)
	if t.Equal(calendar.DayBegin(local)) {
		return begin
	}
	same := time.Date(date.Year(), date.Month(), date.Day(), local.Hour(), local.Minute(), local.Second(), 0, zone).UTC()
	return ratebatch.Later(begin, same) // the time may be one that a clock change left out
}

// nextMonth is where a day of the month before stands; false if there is none.
func nextMonth(zone *time.Location) func(ratebatch.Period) (time.Time, bool) {
	return func(p ratebatch.Period) (time.Time, bool) {
		local := p.Begin.In(zone)
		next := time.Date(local.Year(), local.Month()+1, local.Day(), 0, 0, 0, 0, time.UTC)
		return next, next.Day() == local.Day()
	}
}

// compare puts the sums of the month before beside these. What is there no more
// gets a row with price 0; days to come do not.
func (s costSums) compare(before costSums, from time.Time, until *time.Time, zone *time.Location) {
	first, last := from.In(zone).Format(time.DateOnly), ""
	if until != nil {
		last = until.In(zone).Format(time.DateOnly)
	}
	for k, old := range before.rows {
		row := s.rows[k]
		if row == nil {
			if k.day != "" && (k.day > last || k.day < first) {
				continue
			}
			row = &costRow{costSum: costSum{Currency: k.currency}}
			s.rows[k] = row
		}
		row.against(old.Price)
	}
	for _, row := range s.rows {
		if row.Previous == nil {
			row.against(decimal.Zero)
		}
	}
	for currency, old := range before.totals {
		if s.totals[currency] == nil {
			s.totals[currency] = &costSum{Currency: currency}
		}
		s.totals[currency].against(old.Price)
	}
	for _, total := range s.totals {
		if total.Previous == nil {
			total.against(decimal.Zero)
		}
	}
}

func (s costSums) sorted(order string) []costKey {
	keys := slices.Collect(maps.Keys(s.rows))
	slices.SortFunc(keys, func(a, b costKey) int {
		x, y := s.rows[a], s.rows[b]
		switch order {
		case "price":
			return cmp.Or(y.Price.Cmp(x.Price), a.compare(b))
		case "difference":
			return cmp.Or(magnitude(y).Cmp(magnitude(x)), a.compare(b))
		}
		return a.compare(b)
	})
	return keys
}

func magnitude(r *costRow) decimal.Decimal {
	if r.Difference == nil {
		return decimal.Zero
	}
	return r.Difference.Abs()
}
