package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// instanceCostAnswer is what one instance costs.
type instanceCostAnswer struct {
	Begin      time.Time        `json:"begin"`
	End        time.Time        `json:"end"`
	RatedUntil *time.Time       `json:"rated_until"`
	Projects   []string         `json:"projects"` // whose lines are added up
	Parts      []timeSpan       `json:"parts"`    // of the window: what can be asked of /lines at once
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
	w, err := c.instanceWindow(ctx, b)
	if err != nil {
		return nil, err
	}
	found, err := c.findInstance(ctx)
	if err != nil {
		return nil, err
	}
	scopes, err := c.scopesOf(ctx, found, w)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out := instanceCostAnswer{Begin: w.from, End: w.to}
	step := max(b.Period, time.Hour)
	if w.month != nil {
		step = b.Period // days begin at a period, in some zones within an hour
	}
	byMetric, byTime, totals := map[instanceMetric]*instanceMetric{}, map[instanceTime]*instanceTime{}, map[string]decimal.Decimal{}
	for _, part := range parts(b.Calendar, closed, w.from, w.to) {
		out.Parts = append(out.Parts, timeSpan(part))
		cw := costWindow(b.Calendar, closed, part.Begin, part.End)
		for _, scope := range scopes {
			costs, err := s.scopeCosts(ctx, c, cw, scope, found, step)
			if err != nil {
				return nil, err
			}
			if len(costs) > 0 && !slices.Contains(out.Projects, scope) {
				out.Projects = append(out.Projects, scope)
			}
			for _, x := range costs {
				k := instanceMetric{Metric: x.Metric, Unit: x.Unit, Currency: x.Currency}
				if byMetric[k] == nil {
					m := k
					byMetric[k] = &m
				}
				m := byMetric[k]
				m.Qty, m.Price, m.Lines = m.Qty.Add(x.Qty), m.Price.Add(x.Price), m.Lines+x.Lines
				at := x.Begin
				if w.month != nil {
					at = b.Calendar.DayBegin(at.In(b.Calendar.Zone()))
				}
				tk := instanceTime{Begin: at, Currency: x.Currency}
				if byTime[tk] == nil {
					t := tk
					byTime[tk] = &t
				}
				byTime[tk].Price = byTime[tk].Price.Add(x.Price)
				totals[x.Currency] = totals[x.Currency].Add(x.Price)
				if out.RatedUntil == nil || x.Until.After(*out.RatedUntil) {
					out.RatedUntil = &x.Until
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
	out.Projects, out.Metrics, out.Times, out.Totals = some(out.Projects), some(out.Metrics), some(out.Times), some(out.Totals)
	return out, nil
}

// lastPeriods is how far back the last rated period of an instance's costs may
// lie: rating lags a period or two, and may have stopped for some days.
const lastPeriods = 7 * 24 * time.Hour

// instanceWindow is the month or the range that is asked for. A range begins where
// the period does that its begin lies in. Where periods are longer than the range,
// it is the last rated period before the range's end: no other can be rated whose
// begin lies in the range.
func (c *call) instanceWindow(ctx context.Context, b store.Billing) (window, error) {
	if c.get("month") != "" {
		if c.get("range") != "" || c.get("end") != "" {
			return window{}, badRequest("month with range or end", "give one")
		}
		return c.window(b.Calendar)
	}
	x, err := c.span("24h")
	if err != nil {
		return window{}, err
	}
	if b.Period > x.to.Sub(x.from) {
		recent, err := c.store.CostState(ctx, x.to.Add(-lastPeriods), ratebatch.PeriodAt(x.to, b.Period).Begin)
		if err != nil {
			return window{}, err
		}
		if len(recent) > 0 {
			last := ratebatch.PeriodAt(recent[len(recent)-1].Hour, b.Period)
			return window{from: last.Begin, to: last.End}, nil
		}
	}
	return window{from: ratebatch.PeriodAt(x.from, max(b.Period, time.Hour)).Begin, to: x.to}, nil
}

// scopeCosts reads what an instance costs one scope, once that scope's lines
// agree with its commits.
func (s *Server) scopeCosts(ctx context.Context, c *call, w store.CostWindow, scope string, x store.Instance, step time.Duration) ([]store.InstanceCost, error) {
	if err := agrees(ctx, c.store, w, scope); err != nil {
		return nil, err
	}
	return c.store.InstanceCosts(ctx, w, scope, x.ID, step)
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

// scopesOf are the scopes that may have lines of an instance: its own one for a
// project's token; else what the instance had in the columns that metrics take for
// scope keys. A key that is no column of instances is an operator's own table's;
// whose lines of such metrics are the instance's, the lines say.
func (c *call) scopesOf(ctx context.Context, x store.Instance, w window) ([]string, error) {
	if c.id.Project != "" {
		return []string{c.id.Project}, nil
	}
	history, err := c.store.InstanceHistory(ctx, x.ID, "")
	if err != nil {
		return nil, err
	}
	applied, err := everyMetric(ctx, c.store)
	if err != nil {
		return nil, err
	}
	keys, others := map[string]bool{"project_id": true}, map[string]bool{}
	for _, m := range applied {
		if _, ok := scopeBy(x, m.ScopeKey); ok {
			keys[m.ScopeKey] = true
		} else {
			others[m.Name] = true
		}
	}
	out := map[string]bool{}
	for _, was := range history {
		for key := range keys {
			scope, _ := scopeBy(was, key)
			out[cmp.Or(scope, metric.Unattributed)] = true
		}
	}
	if len(others) > 0 {
		more, err := c.store.InstanceScopes(ctx, w.from, w.to, x.ID, slices.Sorted(maps.Keys(others)))
		if err != nil {
			return nil, err
		}
		for _, scope := range more {
			out[scope] = true
		}
	}
	return slices.Sorted(maps.Keys(out)), nil
}

// scopeBy is what an instance has in a column; false if instances have none of
// this name.
func scopeBy(x store.Instance, column string) (string, bool) {
	switch column {
	case "project_id":
		return x.ProjectID, true
	case "user_id":
		return x.UserID, true
	case "region":
		return x.Region, true
	case "flavor_name":
		return x.FlavorName, true
	case "vcpus":
		return strconv.Itoa(int(x.VCPUs)), true
	case "image_id":
		return x.ImageID, true
	case "instance_name":
		return x.Name, true
	case "instance_uuid":
		return x.ID.String(), true
	}
	return "", false
}
