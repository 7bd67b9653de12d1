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
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
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
	out := costAnswer{Begin: w.from, End: w.to, Group: groups, Totals: []costSum{}, RatedUntil: ratedUntil(list)}
	if w.month != nil {
		closed, err := closedMonths(ctx, c.store)
		if err != nil {
			return nil, err
		}
		_, out.Closed = closed[w.month.Date]
		out.Month = w.month.String()
	}
	if compared != "none" {
		before := previousWindow(b.Calendar, w, compared == "to_date", c.now)
		list, err := s.costs.read(ctx, c.store, b.Calendar, before.from, before.to)
		if err != nil && !isLinesRemoved(err) {
			return nil, err
		}
		if err == nil { // else there is nothing to compare with any more
			out.Previous = &timeSpan{before.from, before.to}
			sums.compare(addDays(list, g, keep, nextMonth(zone)), w.from, out.RatedUntil, zone)
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

func ratedUntil(list []daySums) *time.Time {
	var until time.Time
	for _, d := range list {
		if d.until.After(until) {
			until = d.until
		}
	}
	if until.IsZero() {
		return nil
	}
	return &until
}

// previousWindow is the window a month before: the whole month, or the part of
// it that has passed of this one.
func previousWindow(calendar ratebatch.Calendar, w window, toDate bool, now time.Time) window {
	if w.month == nil {
		zone := calendar.Zone()
		return window{from: w.from.In(zone).AddDate(0, -1, 0).UTC(), to: w.to.In(zone).AddDate(0, -1, 0).UTC()}
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

// instanceCostAnswer is what one instance costs.
type instanceCostAnswer struct {
	Begin      time.Time        `json:"begin"`
	End        time.Time        `json:"end"`
	RatedUntil *time.Time       `json:"rated_until"`
	Totals     []money          `json:"totals"`
	Metrics    []instanceMetric `json:"metrics"`
	Times      []instanceTime   `json:"times"`
}

type instanceMetric struct {
	Metric   string          `json:"metric"`
	Unit     string          `json:"unit"`
	Qty      decimal.Decimal `json:"qty"`
	Currency string          `json:"currency"`
	Price    decimal.Decimal `json:"price"`
	Lines    uint64          `json:"lines"`
}

type instanceTime struct {
	Begin    time.Time       `json:"begin"`
	Currency string          `json:"currency"`
	Price    decimal.Decimal `json:"price"`
}

func (s *Server) instanceCosts(ctx context.Context, c *call) (any, error) {
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	var w window
	if month := c.get("month"); month != "" {
		if c.get("range") != "" || c.get("end") != "" {
			return nil, badRequest("month with range or end", "give one")
		}
		if w, err = c.window(b.Calendar); err != nil {
			return nil, err
		}
	} else {
		x, err := c.span("24h")
		if err != nil {
			return nil, err
		}
		w = window{from: x.from.Truncate(time.Hour), to: x.to}
	}
	found, err := c.findInstance(ctx)
	if err != nil {
		return nil, err
	}
	history, err := c.store.InstanceHistory(ctx, found.ID, c.id.Project)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out := instanceCostAnswer{Begin: w.from, End: w.to}
	byMetric, byTime, totals := map[instanceMetric]*instanceMetric{}, map[instanceTime]*instanceTime{}, map[string]decimal.Decimal{}
	for _, scope := range scopesOf(history) {
		for _, part := range months(b.Calendar, w.from, w.to) {
			cw := costWindow(b.Calendar, closed, part.Begin, part.End)
			costs, err := s.scopeCosts(ctx, c, cw, scope, found)
			if err != nil {
				return nil, err
			}
			for _, x := range costs {
				k := instanceMetric{Metric: x.Metric, Unit: x.Unit, Currency: x.Currency}
				if byMetric[k] == nil {
					m := k
					byMetric[k] = &m
				}
				m := byMetric[k]
				m.Qty, m.Price, m.Lines = m.Qty.Add(x.Qty), m.Price.Add(x.Price), m.Lines+x.Lines
				at := x.Hour
				if w.month != nil {
					local := at.In(b.Calendar.Zone())
					at = dayBegin(b.Calendar, local)
				}
				tk := instanceTime{Begin: at, Currency: x.Currency}
				if byTime[tk] == nil {
					t := tk
					byTime[tk] = &t
				}
				byTime[tk].Price = byTime[tk].Price.Add(x.Price)
				totals[x.Currency] = totals[x.Currency].Add(x.Price)
				if end := x.Hour.Add(min(b.Period, time.Hour)); out.RatedUntil == nil || end.After(*out.RatedUntil) {
					out.RatedUntil = &end
				}
			}
		}
	}
	for _, m := range byMetric {
		out.Metrics = append(out.Metrics, *m)
	}
	slices.SortFunc(out.Metrics, func(a, b instanceMetric) int {
		return cmp.Or(strings.Compare(a.Metric, b.Metric), strings.Compare(a.Unit, b.Unit), strings.Compare(a.Currency, b.Currency))
	})
	for _, t := range byTime {
		out.Times = append(out.Times, *t)
	}
	slices.SortFunc(out.Times, func(a, b instanceTime) int {
		return cmp.Or(a.Begin.Compare(b.Begin), strings.Compare(a.Currency, b.Currency))
	})
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		out.Totals = append(out.Totals, money{currency, totals[currency]})
	}
	out.Metrics, out.Times, out.Totals = some(out.Metrics), some(out.Times), some(out.Totals)
	return out, nil
}

// scopeCosts reads what an instance costs one scope, once that scope's lines
// agree with its commits.
func (s *Server) scopeCosts(ctx context.Context, c *call, w store.CostWindow, scope string, x store.Instance) ([]store.InstanceCost, error) {
	if err := agrees(ctx, c.store, w, scope); err != nil {
		return nil, err
	}
	return c.store.InstanceCosts(ctx, w, scope, x.ID)
}

// agrees compares a scope's lines with its commits, those of all scopes if it is
// empty; a run may commit meanwhile, so a difference is looked at twice.
func agrees(ctx context.Context, st *store.Store, w store.CostWindow, scope string) error {
	for range 2 {
		ok, err := st.LinesAgree(ctx, w, scope)
		if err != nil || ok {
			return err
		}
	}
	return linesDiffer(ctx, st, w, scope)
}

// scopesOf are the projects that an instance belonged to.
func scopesOf(history []store.Instance) []string {
	var out []string
	for _, x := range history {
		scope := x.ProjectID
		if scope == "" {
			scope = metric.Unattributed
		}
		if !slices.Contains(out, scope) {
			out = append(out, scope)
		}
	}
	return out
}

// months cuts a window at the begins of months: one may be closed and the next
// not.
func months(calendar ratebatch.Calendar, from, to time.Time) []ratebatch.Period {
	var out []ratebatch.Period
	for at := from; at.Before(to); {
		end := calendar.MonthAt(at).To
		if end.After(to) {
			end = to
		}
		out = append(out, ratebatch.Period{Begin: at, End: end})
		at = end
	}
	return out
}
