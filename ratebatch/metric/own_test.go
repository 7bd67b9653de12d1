package metric_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

func execute(tb testing.TB, conn driver.Conn, statements ...string) {
	tb.Helper()
	for _, s := range statements {
		if err := conn.Exec(tb.Context(), s); err != nil {
			tb.Fatalf("%v\n%s", err, s)
		}
	}
}

// A metric over a table of the operator's gives in SQL what the reference
// gives in Go: types that may be NULL, times off every boundary, versions.
func TestOwnTableEqualsGo(t *testing.T) {
	t.Parallel()
	conn := enginetest.Open(t).Conn()
	execute(t, conn,
		`CREATE TABLE calls (region String, at DateTime64(3, 'Europe/Berlin'), scope Nullable(String), id String, part LowCardinality(Nullable(String)),
			amount Nullable(Decimal(38, 10)), units Int64, small UInt8, covered Nullable(Decimal(18, 3)), ver UInt32)
			ENGINE = MergeTree ORDER BY at`,
		`CREATE VIEW calls_view AS SELECT * FROM calls`)
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		kind := rapid.SampledFrom([]string{"sum", "time", "presence", "max", "last", "avg"}).Draw(rt, "kind")
		fmt.Fprintf(&b, "metrics:\n  m:\n    unit: x\n    table: %s\n    time: at\n    scope_key: scope\n    resource: [id, part]\n    quantity: %s\n",
			rapid.SampledFrom([]string{"calls", "calls_view"}).Draw(rt, "table"), kind)
		value := rapid.SampledFrom([]string{"amount", "units", "small"}).Draw(rt, "value")
		switch {
		case kind == "time":
			fmt.Fprintf(&b, "    covered: covered\n    value: %s\n", rapid.SampledFrom([]string{"units", "small"}).Draw(rt, "gauge"))
		case kind == "sum" && rapid.Bool().Draw(rt, "two"):
			b.WriteString("    value: [units, small]\n")
		case kind != "presence":
			fmt.Fprintf(&b, "    value: %s\n", value)
		}
		if kind == "avg" && rapid.Bool().Draw(rt, "weighted") {
			b.WriteString("    covered: covered\n")
		}
		if rapid.Bool().Draw(rt, "no region") {
			b.WriteString("    region_key: \"\"\n")
		}
		aligned := rapid.Bool().Draw(rt, "aligned")
		if aligned {
			b.WriteString("    bucket: 3600\n")
		}
		switch rapid.IntRange(0, 2).Draw(rt, "key") {
		case 0:
			b.WriteString("    key: [region, scope, id, part]\n    version: ver\n")
		case 1:
			b.WriteString("    key: [region, scope, id, part]\n    version: [ver, units]\n")
		}
		b.WriteString(drawConversion(rt))
		period := rapid.SampledFrom([]time.Duration{time.Hour, 24 * time.Hour}).Draw(rt, "period")

		var rows []row
		seen := map[string]bool{}
		for i := range rapid.IntRange(1, 30).Draw(rt, "rows") {
			at := day.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "hour")) * time.Hour)
			if !aligned {
				at = at.Add(time.Duration(rapid.IntRange(0, 3599).Draw(rt, "second")) * time.Second)
			}
			r := row{
				time: at,
				text: map[string]string{
					"region": rapid.SampledFrom([]string{"north", "south"}).Draw(rt, "region"),
					"scope":  rapid.SampledFrom([]string{"", "p1", "p2"}).Draw(rt, "scope"),
					"id":     rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "id"),
					"part":   rapid.SampledFrom([]string{"", "x"}).Draw(rt, "part"),
				},
				number: map[string]*big.Rat{
					"amount":  nil,
					"units":   big.NewRat(rapid.SampledFrom([]int64{0, 1, -1, 1<<63 - 1, -1 << 63, rapid.Int64().Draw(rt, "any")}).Draw(rt, "units"), 1),
					"small":   big.NewRat(int64(rapid.Uint8().Draw(rt, "small")), 1),
					"covered": drawCovered(rt, time.Hour),
					"ver":     big.NewRat(int64(i), 1),
				},
				version: []int64{int64(i)},
				null:    rapid.Bool().Draw(rt, "null"),
			}
			if rapid.IntRange(0, 9).Draw(rt, "covered known") == 0 {
				r.number["covered"] = nil
			}
			switch rapid.IntRange(0, 3).Draw(rt, "amount") {
			case 1:
				r.number["amount"] = big.NewRat(rapid.Int64().Draw(rt, "amount"), 10000000000)
			case 2:
				r.number["amount"] = big.NewRat(rapid.Int64Range(-9, 9).Draw(rt, "amount"), 2)
			}
			if r.text["scope"] != "" && r.text["part"] != "" {
				r.null = false // it makes no difference to the key
			}
			key := fmt.Sprint(at, r.text)
			if seen[key] && !strings.Contains(b.String(), "version:") && strings.Contains(b.String(), "key:") {
				continue
			}
			seen[key] = true
			rows = append(rows, r)
		}
		set, err := metric.Parse("metrics.yaml", []byte(b.String()))
		if err != nil {
			rt.Fatalf("%v\n%s", err, b.String())
		}
		m := set.Metrics[0]
		execute(t, conn, "TRUNCATE TABLE calls")
		insertCalls(t, conn, rows)
		sql, err := m.UsageSQL(metric.UsageOptions{Period: period, Attributes: true})
		if err != nil {
			rt.Fatalf("%v\n%s", err, b.String())
		}
		want, wantErr := reference(m, rows, m.Bucket, period)
		ctx := t.Context()
		if rapid.Bool().Draw(rt, "compiled") {
			ctx = compiled(ctx)
		}
		got, err := usageRows(ctx, conn, sql, day, day.Add(24*time.Hour))
		switch {
		case wantErr != nil && err == nil:
			rt.Fatalf("a quantity that does not fit passed in SQL (%v)\n%s\n%s", wantErr, b.String(), sql)
		case wantErr != nil && strings.Contains(err.Error(), "beyond what can be computed exactly"):
		case err != nil:
			rt.Fatalf("%v\n%s\n%s", err, b.String(), sql)
		default:
			if diff := difference(want, got); diff != "" {
				rt.Fatalf("%s\n%s\n%s", diff, b.String(), sql)
			}
		}
	})
}

// insertCalls writes times as Unix milliseconds, which no time zone moves.
func insertCalls(tb testing.TB, conn driver.Conn, rows []row) {
	tb.Helper()
	var b strings.Builder
	b.WriteString("INSERT INTO calls VALUES ")
	for i, r := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		null := func(s string) string {
			if s == "" && r.null {
				return "NULL"
			}
			return "'" + s + "'"
		}
		number := func(column string) string {
			if v := r.number[column]; v != nil {
				return "'" + decimalText(v) + "'"
			}
			return "NULL"
		}
		fmt.Fprintf(&b, "('%s', %d, %s, '%s', %s, %s, %s, %s, %s, %s)",
			r.text["region"], r.time.UnixMilli(), null(r.text["scope"]), r.text["id"], null(r.text["part"]),
			number("amount"), number("units"), number("small"), number("covered"), number("ver"))
	}
	execute(tb, conn, b.String())
}

// ownTable makes a small table with what each test needs.
func ownTable(tb testing.TB, values ...string) driver.Conn {
	tb.Helper()
	conn := enginetest.Open(tb).Conn()
	execute(tb, conn, `CREATE TABLE own (region String, at DateTime('UTC'), project_id String, id String, v Int64, seconds Int32, f Float64, fine Decimal(38, 20), large Decimal(76, 0))
		ENGINE = MergeTree ORDER BY at`)
	for _, v := range values {
		execute(tb, conn, "INSERT INTO own (region, at, project_id, id, v, seconds) VALUES "+v)
	}
	return conn
}

// A resource's time is at most the bucket, over all its rows, and what a pass
// looks at does not change it.
func TestOwnTableCapsTimePerResource(t *testing.T) {
	t.Parallel()
	conn := ownTable(t,
		"('r', '2026-03-05 01:00:00', 'p1', 'vm', 1, 2400), ('r', '2026-03-05 01:00:00', 'p2', 'vm', 1, 2400)",
		"('r', '2026-03-05 02:00:00', 'p1', 'vm', 1, 3600), ('r', '2026-03-05 02:00:00', 'p1', 'other', 1, 9999)",
	)
	m := parse(t, "metrics: {m: {unit: h, table: own, time: at, bucket: 3600, resource: id, quantity: time, covered: seconds}}").Metrics[0]
	for name, tt := range map[string]struct {
		filter string
		want   map[string]string
	}{
		"over both projects": {"", map[string]string{
			"r|p1|2026-03-05 01:00:00|vm|{}":    "0.666666666666666667",
			"r|p2|2026-03-05 01:00:00|vm|{}":    "0.333333333333333333",
			"r|p1|2026-03-05 02:00:00|vm|{}":    "1",
			"r|p1|2026-03-05 02:00:00|other|{}": "1",
		}},
		"the same when one project is looked at": {"scope = 'p2'", map[string]string{
			"r|p2|2026-03-05 01:00:00|vm|{}": "0.333333333333333333",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sql, err := m.UsageSQL(metric.UsageOptions{Period: time.Hour, Attributes: true, Filter: tt.filter})
			if err != nil {
				t.Fatal(err)
			}
			got, err := usageRows(t.Context(), conn, sql, day, day.Add(24*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if diff := difference(decimals(tt.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOwnTableFailsLoudly(t *testing.T) {
	t.Parallel()
	conn := ownTable(t,
		"('r', '2026-03-05 01:00:00', 'p', 'vm', 1, 10), ('r', '2026-03-05 01:00:00', 'p', 'vm', 1, 10)",
		"('r', '2026-03-06 01:00:00', 'p', 'vm', 1, -10)",
		"('r', '2026-03-07 01:30:00', 'p', 'vm', 1, 10)",
		"('r', '2026-03-08 01:00:00', 'p', 'vm', 9223372036854775807, 10)",
	)
	execute(t, conn,
		"INSERT INTO own (at, id, large) VALUES ('2026-03-09 01:00:00', 'vm', '1000000000000000000000000000000000000000')",
		"INSERT INTO own (at, id, large) VALUES ('2026-03-10 01:00:00', 'vm', '-1000000000000000000000000000000000000000000000000000000000000000000000')",
		"INSERT INTO own (at, id, large) VALUES ('2026-03-11 01:00:00', 'vm', '1000000000000000000000000000000000000000000000000000000000000000000000000000')")
	const own = "unit: x, table: own, time: at, resource: id, "
	for name, tt := range map[string]struct {
		keys   string
		day    int
		period time.Duration
		want   string
	}{
		"a column of floats":                            {own + "quantity: sum, value: f", 5, time.Hour, "column f is neither an integer"},
		"a column finer than a quantity":                {own + "quantity: sum, value: fine", 5, time.Hour, "column fine is neither an integer"},
		"covered seconds in floats":                     {own + "quantity: time, covered: f", 5, time.Hour, "column f is neither an integer"},
		"rows that cover less than no time":             {own + "quantity: time, covered: seconds", 6, time.Hour, "covers less than no time"},
		"rows off their bucket":                         {own + "quantity: sum, value: v, bucket: 3600", 7, time.Hour, "does not begin on a boundary of its bucket"},
		"two rows with one key, added up":               {own + "quantity: sum, value: v, bucket: 3600, key: [region, project_id, id]", 5, 24 * time.Hour, "two rows with one key"},
		"a quantity beyond Decimal(38,18)":              {own + "quantity: sum, value: v, factor: 1000", 8, time.Hour, "beyond what can be computed exactly"},
		"a quantity beyond it after rounding up":        {own + "quantity: sum, value: v, factor: 1000, mutate: CEIL", 8, time.Hour, "beyond what can be computed exactly"},
		"a value of 10^39, however small the factor":    {own + "quantity: sum, value: large, factor: 1/1000000000000", 9, time.Hour, "column large holds a number beyond"},
		"the time of such a value":                      {own + "quantity: time, value: large, bucket: 3600", 9, time.Hour, "column large holds a number beyond"},
		"a value that wraps around when it gets digits": {own + "quantity: max, value: large", 10, time.Hour, "column large holds a number beyond"},
		"covered seconds that wrap around":              {own + "quantity: time, covered: large", 11, time.Hour, "column large holds a number beyond"},
		"a mean beyond Decimal(38,18)":                  {own + "quantity: avg, value: v, factor: 1000", 8, time.Hour, "beyond what can be computed exactly"},
	} {
		t.Run(name, func(t *testing.T) {
			m := parse(t, "metrics: {m: {"+tt.keys+"}}").Metrics[0]
			sql, err := m.UsageSQL(metric.UsageOptions{Period: tt.period, Attributes: true})
			if err != nil {
				t.Fatal(err)
			}
			from := time.Date(2026, 3, tt.day, 0, 0, 0, 0, time.UTC)
			got, err := usageRows(t.Context(), conn, sql, from, from.Add(24*time.Hour))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, error %v, want %s\n%s", got, err, tt.want, sql)
			}
		})
	}
}

func TestUsageSQLRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys   string
		period time.Duration
		want   string
	}{
		"a period finer than the rows":   {"unit: x, table: own, time: at, resource: id, quantity: sum, value: v, bucket: 3600", 5 * time.Minute, "no multiple of the 1h0m0s of a row"},
		"a period no tier can give":      {"unit: x, table: instance_metrics, quantity: time", 7 * time.Minute, "multiple of 5m0s"},
		"more digits than 256 bits hold": {"unit: x, table: own, time: at, resource: id, quantity: time, integral: v, factor: 73786976294838206463/73786976294838206461, offset: 1/73786976294838206459", time.Hour, "too many digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := metric.Parse("metrics.yaml", []byte("metrics: {m: {"+tt.keys+"}}"))
			if err == nil {
				_, err = set.Metrics[0].UsageSQL(metric.UsageOptions{Period: tt.period})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// Rules may look at the scope under its key and at CloudKitty's calendar
// attributes; SQL and Go say the same of every day.
func TestImpliedAttributes(t *testing.T) {
	set, err := metric.Parse("metrics.yaml", []byte("metrics:\n  own:\n    unit: x\n    table: own\n    time: ts\n    bucket: 3600\n    key: [res]\n    quantity: sum\n    value: amount\n    resource: res\n    region_key: \"\"\n    scope_key: project\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := get(t, set, "own")
	conn := enginetest.Open(t).Conn()
	for _, statement := range []string{
		"CREATE TABLE own (ts DateTime('UTC'), project String, res String, amount UInt64) ENGINE = MergeTree ORDER BY ts",
		"INSERT INTO own SELECT toDateTime('2023-12-30 05:00:00', 'UTC') + 86400 * number, 'p', 'r', 1 FROM numbers(1500)",
	} {
		if err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"project", "week_of_the_year", "day_of_the_year", "month", "year"}
	sql, err := m.UsageSQL(metric.UsageOptions{Period: time.Hour, Fields: names})
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2023, 12, 30, 0, 0, 0, 0, time.UTC)
	got := table(t, conn, "SELECT toString(f_0), toString(f_1), toString(f_2), toString(f_3), toString(f_4) FROM ("+sql+") ORDER BY begin", from, from.AddDate(0, 0, 1500))
	if len(got) != 1500 {
		t.Fatalf("%d rows", len(got))
	}
	for i := range got {
		implied := m.WithImplied(nil, "p", from.AddDate(0, 0, i).Add(5*time.Hour))
		var want []string
		for _, name := range names {
			want = append(want, implied[name])
		}
		if got[i] != strings.Join(want, " ") {
			t.Fatalf("%s: SQL says %q, Go %q", from.AddDate(0, 0, i).Format(time.DateOnly), got[i], want)
		}
	}
	if implied := m.WithImplied(map[string]string{"month": "own"}, "p", from); implied["month"] != "own" {
		t.Errorf("an attribute of the usage must win, month is %q", implied["month"])
	}
	// A name that the metric gives to a column is that column, also where it is empty.
	m.Groupby = []metric.Attribute{{Name: "month", Column: "billed"}, {Name: "project", Column: "billed"}}
	if err := conn.Exec(t.Context(), "ALTER TABLE own ADD COLUMN billed String"); err != nil {
		t.Fatal(err)
	}
	if sql, err = m.UsageSQL(metric.UsageOptions{Period: time.Hour, Fields: []string{"month", "project", "year"}}); err != nil {
		t.Fatal(err)
	}
	got = table(t, conn, "SELECT concat(f_0, '|', f_1, '|', f_2) FROM ("+sql+")", from, from.AddDate(0, 0, 1))
	implied := m.WithImplied(nil, "p", from)
	if want := implied["month"] + "|" + implied["project"] + "|" + implied["year"]; want != "||2023" || len(got) != 1 || got[0] != want {
		t.Errorf("SQL says %q, Go %q, want ||2023", got, want)
	}
}
