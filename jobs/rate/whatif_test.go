package rate_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// whatIf prices the usage of a window by one plan and a metric set.
func whatIf(t testing.TB, s *store.Store, o rate.Options, text, metrics string, from, to time.Time) ([]rate.Amount, error) {
	t.Helper()
	job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	amounts, err := job.WhatIf(t.Context(), []rate.Side{{Name: "the plan", Plan: store.Version{Body: text, Currency: "EUR"}, Metrics: store.Version{Body: metrics}}}, from, to)
	if err != nil {
		return nil, err
	}
	return amounts[0], nil
}

// What a what-if says of a window is what was rated there, wherever in a month
// the window, the rules, the tiers and the discounts begin and end. A minimum and a
// cap are of whole months: a part of one has neither.
func TestWhatIfsAreWhatWasRated(t *testing.T) {
	s := withTraffic(t)
	const (
		november = "2026-11-01T00:00:00Z"
		december = "2026-12-01T00:00:00Z"
		middle   = "2026-11-15T00:00:00Z"
	)
	tests := map[string]struct{ plan, from, to string }{
		"a discount that begins within the month": {`
services: [{name: traffic, mappings: [{cost: "2"}]}]
discounts: [{percent: "50", id: half, start: 2026-11-10}]`, november, december},
		"a window that begins within the month has the month's discount": {`
services: [{name: traffic, mappings: [{cost: "2"}]}]
discounts: [{percent: "50", id: half}]`, middle, december},
		"a scope's discount takes the place of the general one until it ends": {`
services: [{name: traffic, mappings: [{cost: "2"}]}]
discounts: [{percent: "10", id: all}, {percent: "50", scope: s1, id: own, end: 2026-11-21}, {percent: "25", scope: s1, metric: traffic, id: best, start: 2026-11-25}]`, november, december},
		"a rule and a discount change at different moments": {`
services: [{name: traffic, mappings: [{cost: "2", end: 2026-11-10}, {cost: "3", start: 2026-11-10}]}]
discounts: [{percent: "10", id: d, start: 2026-11-05, end: 2026-11-20}]`, november, december},
		"graduated tiers with a discount for a part of the month": {`
services: [{name: traffic, tiers: [{id: g, free: "10", steps: [{up_to: "30", cost: "2"}, {cost: "1"}]}]}]
discounts: [{percent: "50", id: half, start: 2026-11-10}]`, november, december},
		"volume tiers: what crossing an edge changes is discounted where it is crossed": {`
services: [{name: traffic, tiers: [{id: v, kind: volume, per: resource, steps: [{up_to: "30", cost: "2"}, {cost: "1"}]}]}]
discounts: [{percent: "50", id: half, start: 2026-11-15}]`, november, december},
		"tiers that others take the place of go on counting": {`
services: [{name: traffic, tiers: [{id: a, end: 2026-11-15, steps: [{up_to: "20", cost: "2"}, {cost: "1"}]}, {id: b, start: 2026-11-15, kind: volume, steps: [{up_to: "120", cost: "4"}, {cost: "3"}]}]}]`, november, december},
		"a minimum and a cap of a whole month": {`
services: [{name: traffic, mappings: [{cost: "2"}]}]
discounts: [{percent: "50", id: half, start: 2026-11-10}]
charges: [{kind: minimum, amount: "1000", scope: s0}, {kind: cap, amount: "60", scope: s1}]`, november, december},
		"half a month has no minimum": {`
services: [{name: traffic, mappings: [{cost: "2"}]}]
charges: [{kind: minimum, amount: "1000", scope: s0}, {kind: cap, amount: "1", scope: s1}]`, middle, december},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			forget(t, s)
			var flows []flow
			for day := range 30 {
				for _, scope := range []string{"s0", "s1"} {
					for _, id := range []string{"a", "b"} {
						flows = append(flows, flow{at(november).AddDate(0, 0, day), "one", scope, id, "", decimal.New(int64(10+day), -1)})
					}
				}
			}
			sendTraffic(t, s, flows)
			text := "currency: EUR" + tt.plan
			applyPlan(t, s, text, time.Unix(0, 0))
			o := options("2026-12-01T03:00:00Z")
			if _, err := run(t.Context(), s, o); err != nil {
				t.Fatal(err)
			}
			amounts, err := whatIf(t, s, o, text, trafficMetrics, at(tt.from), at(tt.to))
			if err != nil {
				t.Fatal(err)
			}
			// What volume tiers change afterwards is a metric of its own in lines.
			got := map[string]decimal.Decimal{}
			for _, a := range amounts {
				key := a.Scope + " " + a.Metric
				got[key] = got[key].Add(a.Price)
			}
			filter := ""
			if tt.from == middle {
				filter = " AND metric NOT IN ('minimum', 'cap')"
			}
			rows, err := s.Conn().Query(t.Context(), fmt.Sprintf(`SELECT concat(scope, ' ', if(metric = 'adjustment', attributes['metric'], toString(metric))) AS key, sum(price) FROM rated
				WHERE begin >= toDateTime(%d, 'UTC') AND begin < toDateTime(%d, 'UTC')%s GROUP BY key HAVING sum(price) != 0 ORDER BY key`, at(tt.from).Unix(), at(tt.to).Unix(), filter))
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			n := 0
			for ; rows.Next(); n++ {
				var key string
				var want decimal.Decimal
				if err := rows.Scan(&key, &want); err != nil {
					t.Fatal(err)
				}
				if !got[key].Equal(want) {
					t.Errorf("%s: %s, rated %s", key, got[key], want)
				}
			}
			if err := rows.Err(); err != nil || n == 0 || n != len(got) {
				t.Errorf("%d sums were rated and %d said: %v (%v)", n, len(got), got, err)
			}
		})
	}
}

// Usage that its tier no longer holds for sure is not taken for none: with
// periods of half an hour that is the tier of five minutes.
func TestWhatIfsDoNotTakeExpiredUsageForNone(t *testing.T) {
	s := storetest.Open(t)
	if _, err := s.Migrate(t.Context(), store.MigrateOptions{Retention: store.DefaultRetention, SetRetention: true}); err != nil {
		t.Fatal(err)
	}
	text := "currency: EUR\nservices: [{name: instance, mappings: [{cost: \"2\"}]}]"
	o := options("2026-12-15T00:00:00Z")
	o.Period = 30 * time.Minute
	_, err := whatIf(t, s, o, text, string(metric.Default()), at("2026-11-01T00:00:00Z"), at("2026-12-01T00:00:00Z"))
	var halt *ratebatch.HaltError
	if !errors.As(err, &halt) || !strings.Contains(err.Error(), "an empty answer would not mean zero usage") {
		t.Errorf("a month whose usage is gone: %v, want a halt", err)
	}
	if _, err := whatIf(t, s, o, text, string(metric.Default()), at("2026-12-10T00:00:00Z"), at("2026-12-14T00:00:00Z")); err != nil {
		t.Errorf("days whose usage is there: %v", err)
	}
}
