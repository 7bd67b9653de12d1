package rate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// repriced is the step of reconcile that prices periods of tiered prices again.
func repriced(t testing.TB, s *store.Store, month time.Time) reconcile.Step {
	t.Helper()
	job := &reconcile.Job{Store: s, Month: ratebatch.Calendar{}.Named(month), Period: time.Hour, Reprice: 1000, Seed: 1}
	r, err := job.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Steps {
		if strings.Contains(x.What, "periods of tiered prices") {
			return x
		}
	}
	return reconcile.Step{}
}

// What a pass got wrong about tiers is found by adding the month up again from
// its lines: unit price, tier, split, what came before, what the commit keeps
// and the adjustment. An edge of 10 units; three hours of 4 units by two
// resources, graduated for s0 and by volume for s1.
//
//	s0, hour 0: a 3, b 1 at 2; hour 1: a 3, b 1 at 2; hour 2: a 2 at 2, then 1 at 1; b 1 at 1
//	s1, hour 2 enters the second tier: 4 × 1 and an adjustment of 8 × -1
func TestTamperedTiersAreFound(t *testing.T) {
	s := withTraffic(t)
	const text = `currency: EUR
services:
  - name: traffic
    tiers:
      - {id: g, steps: [{up_to: 10, cost: 2}, {cost: 1}]}
      - {id: v, scope: s1, kind: volume, per: zone, steps: [{up_to: 10, cost: 2}, {cost: 1}]}
`
	applyPlan(t, s, text, time.Unix(0, 0))
	start := at("2026-11-01T00:00:00Z")
	var flows []flow
	for hour := range 3 {
		for _, scope := range []string{"s0", "s1"} {
			begin := start.Add(time.Duration(hour) * time.Hour)
			flows = append(flows, flow{begin, "one", scope, "a", "x", decimal.New(3, 0)}, flow{begin, "one", scope, "b", "x", decimal.New(1, 0)})
		}
	}
	sendTraffic(t, s, flows)
	if _, err := run(t.Context(), s, options("2026-11-01T05:00:01Z")); err != nil {
		t.Fatal(err)
	}
	if got := repriced(t, s, start); got.Result != reconcile.Holds || got.Left != "6" {
		t.Fatalf("rated right: %+v", got)
	}
	const (
		cutHour = " WHERE scope = 's0' AND begin = '2026-11-01 02:00:00' AND resource = 'a'"
		volume  = " WHERE scope = 's1' AND begin = '2026-11-01 02:00:00' AND metric = 'adjustment'"
	)
	for _, tt := range []struct{ name, table, change, back, finds string }{
		{"a price that is not its unit price × quantity", "rated_lines", "UPDATE price = toDecimal128('1.000000000000000001', 18)" + cutHour + " AND part = 1", "UPDATE price = 1" + cutHour + " AND part = 1",
			`part 1, zone "x" was rated 1 for 1.000000000000000001 by g:2, priced and is 1 for 1 by g:2, priced`},
		{"a cut at another place whose parts add up", "rated_lines", "UPDATE qty = if(part = 0, 1, 2), price = 2" + cutHour, "UPDATE qty = if(part = 0, 2, 1), price = if(part = 0, 4, 1)" + cutHour,
			`part 0, zone "x" was rated 1 for 2 by g:1, priced and is 2 for 4 by g:1, priced`},
		{"a tier that was not reached", "rated_lines", "UPDATE rule = 'g:2', price = 3 WHERE scope = 's0' AND begin = '2026-11-01 01:00:00' AND resource = 'a'",
			"UPDATE rule = 'g:1', price = 6 WHERE scope = 's0' AND begin = '2026-11-01 01:00:00' AND resource = 'a'", "was rated 3 for 3 by g:2, priced and is 3 for 6 by g:1, priced"},
		{"a row that was not cut", "rated_lines", "DELETE" + cutHour + " AND part = 1", "", "the commit says that account traffic used 4, its lines say 3"},
		{"what was used before it", "rated_lines", "UPDATE qty = qty + 1, price = price + 2 WHERE scope = 's1' AND begin = '2026-11-01 00:00:00' AND resource = 'a'",
			"UPDATE qty = qty - 1, price = price - 2 WHERE scope = 's1' AND begin = '2026-11-01 00:00:00' AND resource = 'a'", "traffic of scope s1 at 2026-11-01T0"},
		{"an adjustment of another quantity", "rated_lines", "UPDATE qty = 7, price = -7" + volume, "UPDATE qty = 8, price = -8" + volume, `adjustment of "" in region "one", part 60000, metric "traffic", zone "x" was rated 7 for -7 by v:2, priced and is 8 for -8`},
		{"what a commit keeps of an account", "period_commits", "UPDATE used = map('traffic', 5) WHERE scope = 's0' AND begin = '2026-11-01 01:00:00'",
			"UPDATE used = map('traffic', 4) WHERE scope = 's0' AND begin = '2026-11-01 01:00:00'", "the commit says that account traffic used 5, its lines say 4"},
		{"an adjustment that is missing", "rated_lines", "DELETE" + volume, "", `zone "x" is missing: 8 for -8 by v:2, priced`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			alter := func(change string) {
				t.Helper()
				exec(t, s, "ALTER TABLE "+tt.table+" "+change+" SETTINGS mutations_sync = 2")
			}
			if tt.back == "" { // of what is deleted a copy goes back
				where := strings.TrimPrefix(tt.change, "DELETE")
				exec(t, s, "CREATE TABLE gone ENGINE = Memory AS SELECT * FROM "+tt.table+where)
				defer func() {
					exec(t, s, "INSERT INTO "+tt.table+" SELECT * FROM gone")
					exec(t, s, "DROP TABLE gone")
				}()
			} else {
				defer alter(tt.back)
			}
			alter(tt.change)
			got := repriced(t, s, start)
			if got.Result != reconcile.Fails || !strings.Contains(got.Note, tt.finds) || !strings.Contains(got.Note, "ratebatch explain") {
				t.Errorf("%s: %+v\nwant %s", tt.name, got, tt.finds)
			}
		})
	}
	if got := repriced(t, s, start); got.Result != reconcile.Holds {
		t.Errorf("all is as it was: %+v", got)
	}
}
