package rate_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// oddMetrics read a table in which every column may be NULL.
const oddMetrics = `
metrics:
  volume: {unit: GB, table: odd, time: at, bucket: 3600, quantity: sum, value: amount, scope_key: scope, resource: [id], groupby: [zone, level]}
  uptime: {unit: h, table: odd, time: at, bucket: 3600, quantity: time, value: n, covered: seconds, scope_key: scope, resource: [id], groupby: [zone]}
  calls: {unit: call, table: odd, time: at, bucket: 3600, quantity: presence, scope_key: scope, resource: [id], key: [scope, id], groupby: [zone]}
`

const oddPlan = `
currency: EUR
services:
  - name: volume
    mappings: [{cost: "1.5", type: flat}]
  - name: uptime
    mappings: [{cost: "1", type: flat}]
  - name: calls
    mappings: [{cost: "1", type: flat}]
    fields: [{name: zone, thresholds: [{level: 1, cost: "2", type: rate}]}]
expressions:
  - {metric: volume, price: price / number(groupby.level)}
`

// oddRows are rows that something is wrong with, each in a scope of its own, as
// VALUES of id, zone, level, n, amount, seconds. What they lead to: a cause that
// the scope is left out for, a reason that a line is rejected for, or neither.
var oddRows = map[string]oddRow{
	"covers negative time":    {rows: []string{"'x', '5', '2', 1, 1, -1"}, cause: "metric uptime: a row of odd covers less than no time"},
	"covers the least number": {rows: []string{"'x', '5', '2', 1, 1, -9223372036854775808"}, cause: "metric uptime: a row of odd covers less than no time"},
	"beyond 256 bits":         {rows: []string{"'x', '5', '2', 1, '9e57', 3600"}, cause: "metric volume: column amount holds a number beyond what can be computed exactly"},
	"beyond Decimal(38,18)":   {rows: []string{"'x', '5', '2', 1, '1e20', 3600"}, cause: "metric volume: a quantity beyond what can be computed exactly"},
	"a sum beyond it":         {rows: []string{"'x', '5', '2', 1, '6e19', 1", "'y', '5', '2', 1, '6e19', 1", "'x', '5', '2', 1, '6e19', 1"}, cause: "metric"},
	"two rows of one key":     {rows: []string{"'x', '5', '2', 1, 1, 1", "'x', '5', '2', 1, 1, 2"}, cause: "metric calls: two rows with one key"},
	"off its bucket":          {rows: []string{"'x', '5', '2', 1, 1, 3600"}, cause: "does not begin on a boundary of its bucket"},
	"a price beyond 1e20":     {rows: []string{"'x', '5', '1', 1, '9e19', 3600"}, reason: "price out of range"},
	"no number":               {rows: []string{"'x', '5', 'high', 1, 1, 3600"}, reason: "number"},
	"no attribute":            {rows: []string{"'x', '5', NULL, 1, 1, 3600"}, reason: "number"},
	"divides by zero":         {rows: []string{"'x', '5', '0', 1, 1, 3600"}, reason: "zero"},
	"a number too long":       {rows: []string{"'x', '5', repeat('9', 5000), 1, 1, 3600"}, reason: "not a number"},
	"a threshold on a text":   {rows: []string{"'x', 'north', '2', 1, 1, 3600"}, reason: "number"},
	"bytes that are no text":  {rows: []string{"'x', unhex('FF00C328'), '2', 1, 1, 3600"}, reason: "number"},
	"NULLs":                   {rows: []string{"NULL, NULL, '2', NULL, NULL, NULL"}},
	"a negative number":       {rows: []string{"'x', '5', '2', -5, -5, 3600"}},
	"the greatest number":     {rows: []string{"'x', '5', '2', 9223372036854775807, 1, 9223372036854775807"}},
}

type oddRow struct {
	rows          []string
	cause, reason string
}

// Whatever a scope's rows hold, all others are rated, in one period and in a
// backlog; of the scope what comes before its row. The run says scope, period and
// cause, the next one tries again without the others having to wait for it, and
// once the row is corrected everything is rated and nothing is left of the failure.
func TestNoRowStopsAnotherScope(t *testing.T) {
	s := storetest.Fresh(t)
	dropped(t, s, "odd")
	exec(t, s, "CREATE TABLE odd (at Nullable(DateTime('UTC')), region Nullable(String), scope Nullable(String), id Nullable(String), zone Nullable(String), level Nullable(String), n Nullable(Int64), amount Nullable(Decimal(76, 18)), seconds Nullable(Int64)) ENGINE = MergeTree ORDER BY tuple()")
	set, err := metric.Parse("metrics.yaml", []byte(oddMetrics))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: set.Digest(), Body: oddMetrics, ValidFrom: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	for _, region := range []string{"", "one"} {
		if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": region, "complete_until": at("2027-01-01T00:00:00Z"), "source": "operator", "note": ""}); err != nil {
			t.Fatal(err)
		}
	}
	backlog, few := 6, maps.Clone(oddRows)
	if os.Getenv("RATEBATCH_TEST_FAULTS") == "all" {
		backlog = 720
	} else {
		maps.DeleteFunc(few, func(scope string, _ oddRow) bool {
			return !slices.Contains([]string{"covers negative time", "two rows of one key", "no number"}, scope)
		})
	}
	applyPlan(t, s, oddPlan, time.Unix(0, 0))
	for name, tt := range map[string]struct {
		hours, bad int
		rows       map[string]oddRow
	}{"one period": {1, 0, oddRows}, "a backlog": {backlog, backlog * 2 / 3, few}} {
		t.Run(name, func(t *testing.T) {
			oddRows := tt.rows
			for _, table := range []string{"odd", "rated_lines", "period_commits", "complete_months", "void_attempts", "scope_failures"} {
				exec(t, s, "TRUNCATE TABLE "+table)
			}
			good := func(scope string) {
				exec(t, s, fmt.Sprintf("INSERT INTO odd SELECT toDateTime('2026-11-01 00:00:00', 'UTC') + 3600 * number, 'one', %s, 'a', '5', '2', 1, 1, 3600 FROM numbers(%d)", scope, tt.hours))
			}
			names := slices.Sorted(maps.Keys(oddRows))
			for _, scope := range append([]string{"alpha", "omega"}, names...) {
				good("'" + scope + "'")
			}
			good("NULL")
			begin := hour(tt.bad)
			for scope, odd := range oddRows {
				from := begin
				if scope == "off its bucket" {
					from = from.Add(time.Second)
				}
				for _, row := range odd.rows {
					exec(t, s, fmt.Sprintf("INSERT INTO odd VALUES ('%s', 'one', '%s', %s)", from.Format(time.DateTime), scope, row))
				}
			}
			// NULL is no region, no scope, no time and no number.
			exec(t, s, "INSERT INTO odd VALUES (NULL, 'one', 'alpha', 'x', '5', '2', 1, 1, 3600), ('2026-11-01 00:00:00', NULL, 'omega', 'n', '5', '2', 1, 1, 3600)")
			o := options(hour(tt.hours + 1).Add(time.Second).Format(time.RFC3339))
			result, err := run(t.Context(), s, o)
			if ratebatch.ExitCode(err) != ratebatch.ExitHalted {
				t.Errorf("error = %v (exit %d), want exit 20", err, ratebatch.ExitCode(err))
			}
			rated, rejected, left := map[string]int{"alpha": tt.hours, "omega": tt.hours, "unattributed": tt.hours}, map[string]string{}, 0
			for scope, odd := range oddRows {
				rated[scope] = tt.hours
				switch {
				case odd.cause != "":
					left++
					if rated[scope] = tt.bad; tt.bad == 0 {
						delete(rated, scope)
					}
					if want := fmt.Sprintf("scope %s was left out from %s on, all others are rated: %s", scope, begin.Format(time.RFC3339), odd.cause); !strings.Contains(fmt.Sprint(err), strings.TrimSuffix(want, odd.cause)) || !strings.Contains(fmt.Sprint(err), odd.cause) {
						t.Errorf("the error does not say %q:\n%v", want, err)
					}
				case odd.reason != "":
					rejected[scope] = odd.reason
				}
			}
			want := func() string {
				var out []string
				for _, scope := range slices.Sorted(maps.Keys(rated)) {
					out = append(out, fmt.Sprintf("%s %d", scope, rated[scope]))
				}
				return strings.Join(out, ", ")
			}
			if got := commits(t, s); got != want() {
				t.Errorf("rated: %s\nwant   %s", got, want())
			}
			if got := failures(t, s); strings.Count(got, "\n") != left-1 || strings.Count(got, " from "+begin.Format("15:04")) != left || len(result.Failed) != left {
				t.Errorf("%d failed, noted:\n%s\nwant %d from %s on", len(result.Failed), got, left, begin)
			}
			if got := rejections(t, s); len(got) != len(rejected) {
				t.Errorf("rejected: %v, want one line each of %v", got, rejected)
			} else {
				for scope, reason := range rejected {
					if !strings.Contains(got[scope], reason) {
						t.Errorf("rejected of scope %s for %q, want a reason with %q", scope, got[scope], reason)
					}
				}
			}

			// Nobody has to wait for them again, and none is given up.
			again, err := run(t.Context(), s, o)
			if len(again.Attempts) >= len(result.Attempts) {
				t.Errorf("%d attempts after %d, want fewer: the scopes are known", len(again.Attempts), len(result.Attempts))
			}
			if ratebatch.ExitCode(err) != ratebatch.ExitHalted || len(again.Failed) != left || again.Periods != 0 {
				t.Errorf("run again: %d periods, %d failed, %v", again.Periods, len(again.Failed), err)
			}
			exec(t, s, "ALTER TABLE odd DELETE WHERE id = 'y' OR id = 'x' AND scope IN (SELECT scope FROM scope_failures) SETTINGS mutations_sync = 2")
			if _, err := run(t.Context(), s, o); err != nil {
				t.Errorf("after the rows were corrected: %v", err)
			}
			for scope := range oddRows {
				rated[scope] = tt.hours
			}
			if got := commits(t, s); got != want() || failures(t, s) != "" {
				t.Errorf("after the rows were corrected: rated %s\nfailures %s", got, failures(t, s))
			}
		})
	}
}

// rejections are the reasons of rejected lines by scope.
func rejections(t testing.TB, s *store.Store) map[string]string {
	t.Helper()
	rows, err := s.Conn().Query(t.Context(), "SELECT scope, arrayStringConcat(groupArray(rule), '; ') FROM rated WHERE bucket = 'rejected' GROUP BY scope")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var scope, reasons string
		if err := rows.Scan(&scope, &reasons); err != nil {
			t.Fatal(err)
		}
		out[scope] = reasons
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
