package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// figures is an emptied database whose figures a test compares with what serve says.
func figures(t *testing.T) *billed {
	t.Helper()
	e := storetest.Shared(t)
	return &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
}

func (b *billed) exec(text string) {
	b.Helper()
	if err := b.e.Conn().Exec(b.Context(), text); err != nil {
		b.Fatal(err)
	}
}

// sum is what the lines that count amount to.
func (b *billed) sum(where string) string {
	b.Helper()
	var text string
	if err := b.e.Conn().QueryRow(b.Context(), "SELECT toString(sum(toDecimal256(price, 18))) FROM rated WHERE "+where).Scan(&text); err != nil {
		b.Fatal(err)
	}
	return text
}

// vm is the instance of these tests.
const vm = "00000000-0000-4000-8000-0000000000aa"

// ran gives the instance these buckets of a tier, and the history that their
// samples would have left.
func (b *billed) ran(table, project, user string, begin time.Time, step time.Duration, n int) {
	b.Helper()
	b.exec(fmt.Sprintf(`INSERT INTO %s (bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		SELECT toDateTime(%d, 'UTC') + %d * number, 'one', '%s', '%s', '%s', 'm1', 1, 'vm', 60, 60, %d, toDecimal128(1000000007 * (number + 1), 3) FROM numbers(%d)`,
		table, begin.Unix(), int(step/time.Second), vm, project, user, int(step/time.Second), n))
	b.exec(fmt.Sprintf("INSERT INTO instances (region, instance_uuid, project_id, user_id, flavor_name, vcpus, instance_name, seen_from, seen_to) SELECT 'one', '%s', '%s', '%s', 'm1', 1, 'vm', toDateTime(%d, 'UTC'), toDateTime(%d, 'UTC')",
		vm, project, user, begin.Unix(), begin.Add(step*time.Duration(n)).Unix()))
}

type instanceFigures struct {
	Begin, End time.Time
	RatedUntil *time.Time `json:"rated_until"`
	Projects   []string
	Parts      []struct{ Begin, End time.Time }
	Totals     []struct{ Currency, Amount string }
	Times      []struct {
		Begin time.Time
		Price string
	}
}

func (x instanceFigures) total() string {
	if len(x.Totals) != 1 {
		return fmt.Sprint(x.Totals)
	}
	return x.Totals[0].Amount
}

// A project's token learns no other project's price from a quote, whatever way the
// other one is named.
func TestCloudKittyQuoteIsOfOnesOwnProject(t *testing.T) {
	b := figures(t)
	b.must("plan", "apply", b.file("plan.yaml", `
currency: EUR
services:
  - name: memory
    mappings:
      - {cost: "0.25", type: flat}
    fields:
      - name: project_id
        mappings:
          - {value: pa, cost: "1", type: flat}
          - {value: pb, cost: "7", type: flat}
`), "--from", "2026-10-01")
	file, tokens := tokensFile(t, "", "pa")
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), append(b.flags, "--tokens", file, "--cloudkitty-api", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	for desc, want := range map[string]map[string]string{
		`{"project_id":"pb"}`:                           {"": "7.0", "pa": "403"},
		`{"groupby":{"project_id":"pb"}}`:               {"": "7.0", "pa": "403"},
		`{"metadata":{"project_id":"pb"},"groupby":{}}`: {"": "7.0", "pa": "403"},
		`{"scope":"pb"}`:                                {"": "0.25", "pa": "403"},
		`{"project_id":"pa"}`:                           {"": "1.0", "pa": "1.0"},
		`{"flavor_name":"m1"}`:                          {"": "0.25", "pa": "1.0"},
	} {
		for project, want := range want {
			k.token = tokens[project]
			status, _, body := k.ask(t, http.MethodPost, "/v1/rating/quote/", `{"resources":[{"service":"memory","desc":`+desc+`,"volume":1}]}`)
			var price string
			if status == http.StatusOK {
				if err := json.Unmarshal(body, &price); err != nil {
					t.Fatal(err)
				}
				if got, err := decimal.NewFromString(price); err != nil || !got.Equal(decimal.RequireFromString(want)) {
					t.Errorf("%s for a token of %q: %s, want %s", desc, project, price, want)
				}
			} else if fmt.Sprint(status) != want {
				t.Errorf("%s for a token of %q: %d, want %s: %s", desc, project, status, want, body)
			}
		}
	}
}

// A month, a day and a year of CloudKitty's summary are those of the bill.
func TestCloudKittyGroupsByTheBillsMonths(t *testing.T) {
	b := figures(t)
	b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "invoices are by local months")
	b.must("plan", "apply", b.file("plan.yaml", testPlan))
	b.ran("instance_metrics_hourly", "p", "u", time.Date(2026, 10, 31, 21, 0, 0, 0, time.UTC), time.Hour, 5) // of it two hours are October's
	b.must("watermark", "--region", "one", "--until", "2026-11-02T00:00:00Z")
	b.must("rate", "--first-period", "usage", "--now", "2026-11-10T00:00:00Z")
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), append(b.flags, "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	const window = "begin=2026-10-31T21:00:00Z&end=2026-11-01T02:00:00Z"
	prices := func(group string) map[string]string {
		var costs struct {
			Rows []struct{ Month, Day, Price string }
		}
		s.get(t, "/api/v1/costs?compare=none&group="+group+"&"+window, &costs)
		out := map[string]string{}
		for _, x := range costs.Rows {
			at, err := time.Parse("2006-01-02", x.Month+x.Day+strings.TrimPrefix("-01", strings.Repeat("-01", len(x.Day)/10)))
			if err != nil {
				t.Fatal(err)
			}
			out[map[string]string{"month": fmt.Sprint(int(at.Month())), "day": fmt.Sprint(at.YearDay())}[group]] = x.Price
		}
		return out
	}
	for group, of := range map[string]string{"time-m": "month", "time-d": "day"} {
		var summary struct {
			Columns []string
			Results [][]json.RawMessage
		}
		k.get(t, "/v2/summary?groupby="+group+"&"+window, &summary)
		got := map[string]string{}
		for _, row := range summary.Results {
			got[strings.Trim(string(row[4]), `"`)] = string(row[3])
		}
		if want := prices(of); len(want) != 2 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v as /costs has it", group, got, want)
		}
	}
	for filter, want := range map[string]int{"month:10": 6, "month:11": 9, "day_of_the_year:304": 6, "week_of_the_year:43": 6, "week_of_the_year:44": 9, "year:2026": 15} {
		var frames struct{ Total int }
		k.get(t, "/v2/dataframes?filters="+filter+"&"+window, &frames)
		if frames.Total != want {
			t.Errorf("%s: %d points, want %d", filter, frames.Total, want)
		}
	}
}

// What an instance costs is found under whatever metrics take for a scope.
func TestInstanceCostsWhateverAScopeIs(t *testing.T) {
	b := figures(t)
	metrics := strings.NewReplacer("scope_key: project_id", "scope_key: user_id", "user_id, flavor_name", "project_id, flavor_name").Replace(string(metric.Default())) + `
  licence:
    unit: licence
    table: licences
    time: at
    resource: [name]
    quantity: sum
    value: n
    scope_key: tenant
    groupby: [instance_uuid]
`
	b.exec("CREATE TABLE licences (at DateTime('UTC'), region String, tenant String, name String, instance_uuid UUID, n Decimal(18, 3)) ENGINE = MergeTree ORDER BY at")
	t.Cleanup(func() {
		if err := b.e.Conn().Exec(context.WithoutCancel(t.Context()), "DROP TABLE licences"); err != nil {
			t.Error(err)
		}
	})
	begin := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	b.exec("INSERT INTO licences SELECT toDateTime('2026-11-02 01:00:00', 'UTC'), 'one', 'a tenant', 'l' || toString(number), if(number = 0, toUUID('" + vm + "'), generateUUIDv4()), 3 FROM numbers(2)")
	b.must("metrics", "apply", b.file("metrics.yaml", metrics))
	b.must("plan", "apply", b.file("plan.yaml", testPlan+"  - name: licence\n    mappings:\n      - {cost: \"5\", type: flat}\n"))
	b.ran("instance_metrics_hourly", "p", "ann", begin, time.Hour, 3)
	b.ran("instance_metrics_hourly", "q", "bob", begin.Add(3*time.Hour), time.Hour, 3)
	b.must("watermark", "--region", "one", "--until", "2026-11-03T00:00:00Z")
	b.must("rate", "--first-period", "usage", "--now", "2026-11-10T00:00:00Z")
	file, tokens := tokensFile(t, "", "p")
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), append(b.flags, "--tokens", file)...)
	s.token = tokens[""]
	var costs instanceFigures
	s.get(t, "/api/v1/instances/"+vm+"/costs?range=24h&end=2026-11-03T00:00:00Z", &costs)
	want := b.sum("resource = '" + vm + "' OR attributes['instance_uuid'] = '" + vm + "'")
	if costs.total() != want || !slices.Equal(costs.Projects, []string{"a tenant", "ann", "bob"}) || want == "0" {
		t.Errorf("%s of %v, want %s as rated", costs.total(), costs.Projects, want)
	}
	s.token = tokens["p"] // of a project that no line is of
	s.get(t, "/api/v1/instances/"+vm+"/costs?range=24h&end=2026-11-03T00:00:00Z", &costs)
	if len(costs.Totals) != 0 || len(costs.Projects) != 0 {
		t.Errorf("the token of another scope sees %+v", costs)
	}
}

// An instance that changed hands where a month was closed: the figure is that of
// the lines of every part that is named, of all that it belonged to.
func TestInstanceCostsAreThoseOfTheirLines(t *testing.T) {
	b := figures(t)
	b.must("plan", "apply", b.file("plan.yaml", testPlan))
	b.ran("instance_metrics_hourly", "p", "u", time.Date(2026, 10, 31, 21, 0, 0, 0, time.UTC), time.Hour, 2)
	b.ran("instance_metrics_hourly", "q", "u", time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC), time.Hour, 3)
	b.must("watermark", "--region", "one", "--until", "2026-11-02T00:00:00Z")
	b.must("rate", "--first-period", "usage", "--now", "2026-11-10T00:00:00Z")
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), b.flags...)
	check := func(when string, parts int) {
		t.Helper()
		var costs instanceFigures
		s.get(t, "/api/v1/instances/"+vm+"/costs?range=6h&end=2026-11-01T02:00:00Z", &costs)
		sum := decimal.Zero
		for _, p := range costs.Parts {
			var lines struct {
				Lines []struct{ Price decimal.Decimal }
			}
			s.get(t, fmt.Sprintf("/api/v1/lines?limit=500&instance=%s&begin=%s&end=%s", vm, p.Begin.Format(time.RFC3339), p.End.Format(time.RFC3339)), &lines)
			for _, l := range lines.Lines {
				sum = sum.Add(l.Price)
			}
		}
		if len(costs.Parts) != parts || !slices.Equal(costs.Projects, []string{"p", "q"}) || costs.total() != sum.String() || costs.total() != b.sum("1") {
			t.Errorf("%s: %s of %v in %d parts, whose lines amount to %s; rated: %s", when, costs.total(), costs.Projects, len(costs.Parts), sum, b.sum("1"))
		}
	}
	check("October open", 1)
	b.must("close", "--month", "2026-10", "--reason", "invoiced", "--first-period", "usage", "--now", "2026-11-10T00:00:00Z")
	check("October closed", 2)
}

// Up to where an instance is rated is the end of its last period, however long
// periods are; where they are longer than the range, the last one is shown.
func TestInstanceCostsOfEveryLengthOfPeriods(t *testing.T) {
	midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -4) // young enough for every tier
	at := func(hours float64) string {
		return midnight.Add(time.Duration(hours * float64(time.Hour))).Format(time.RFC3339)
	}
	for name, tt := range map[string]struct {
		period, table   string
		step            time.Duration
		n               int     // buckets of the tier, which is complete up to their end
		span            string  // the range
		end             float64 // hours since midnight, as all below
		begin, to       float64 // whose lines are meant
		until           float64
		times           int
		topFrom, topEnd float64
	}{
		"quarters of an hour":         {"15m", "instance_metrics_5min", 5 * time.Minute, 12*10 + 3, "6h", 10.5, 4, 24, 10.25, 7, -14, 10},
		"hours":                       {"1h", "instance_metrics_hourly", time.Hour, 12, "6h", 12.5, 6, 24, 12, 6, -12, 12},
		"days, in a range of 6 hours": {"24h", "instance_metrics_hourly", time.Hour, 72, "6h", 53, 24, 48, 48, 1, 24, 48},
		"days, in a range of 24":      {"24h", "instance_metrics_hourly", time.Hour, 72, "24h", 29, 0, 48, 48, 2, 0, 24},
	} {
		t.Run(name, func(t *testing.T) {
			b := figures(t)
			now := at(24 * 5) // before the 5-minute tier forgets
			b.must("plan", "apply", b.file("plan.yaml", testPlan))
			b.ran(tt.table, "p", "u", midnight, tt.step, tt.n)
			if tt.step < time.Hour { // whose usage there is says the hourly tier
				b.ran("instance_metrics_hourly", "p", "u", midnight, time.Hour, 10)
			}
			b.must("watermark", "--region", "one", "--until", midnight.Add(tt.step*time.Duration(tt.n)).Format(time.RFC3339))
			b.must("rate", "--period", tt.period, "--first-period", "usage", "--now", now)
			s := startServeAt(t, clockOf(t, now), b.flags...)
			lines := func(from, to float64) string {
				return b.sum("begin >= parseDateTimeBestEffort('" + at(from) + "') AND begin < parseDateTimeBestEffort('" + at(to) + "')")
			}
			var costs instanceFigures
			s.get(t, "/api/v1/instances/"+vm+"/costs?range="+tt.span+"&end="+at(tt.end), &costs)
			want := lines(tt.begin, tt.to)
			if costs.RatedUntil == nil || costs.RatedUntil.Format(time.RFC3339) != at(tt.until) || costs.Begin.Format(time.RFC3339) != at(tt.begin) || costs.total() != want || want == "0" || len(costs.Times) != tt.times {
				t.Errorf("from %s, %s in %d times, rated until %v; want from %s, %s in %d, until %s", costs.Begin, costs.total(), len(costs.Times), costs.RatedUntil, at(tt.begin), want, tt.times, at(tt.until))
			}
			var top struct {
				Begin, End time.Time
				Items      []struct{ Price string }
			}
			s.get(t, "/api/v1/top?by=price&end="+at(tt.end), &top)
			if want = lines(tt.topFrom, tt.topEnd); len(top.Items) != 1 || top.Items[0].Price != want || top.Begin.Format(time.RFC3339) != at(tt.topFrom) || top.End.Format(time.RFC3339) != at(tt.topEnd) {
				t.Errorf("the dearest from %s to %s: %+v, want %s from %s to %s", top.Begin, top.End, top.Items, want, at(tt.topFrom), at(tt.topEnd))
			}
		})
	}
}
