package metric_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

func decimals(text map[string]string) map[string]decimal.Decimal {
	out := map[string]decimal.Decimal{}
	for k, v := range text {
		out[k] = decimal.RequireFromString(v)
	}
	return out
}

func table(tb testing.TB, conn driver.Conn, sql string, from, to time.Time) []string {
	tb.Helper()
	rows, err := conn.Query(tb.Context(), sql, window(from, to)...)
	if err != nil {
		tb.Fatalf("%v\n%s", err, sql)
	}
	var out []string
	for rows.Next() {
		line := make([]string, len(rows.Columns()))
		into := make([]any, len(line))
		for i := range line {
			into[i] = &line[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		out = append(out, strings.Join(line, " "))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		tb.Fatalf("%v\n%s", err, sql)
	}
	return out
}

const instanceColumns = "INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, samples, covered_seconds, memory_actual_byte_seconds) VALUES "

const vm = "11111111-1111-1111-1111-111111111111"

// The columns that a pass reads have the types that are promised, for every
// default metric, both ways of dropping repeats, and hours and days.
func TestUsageSQLColumns(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	want := []string{
		"region LowCardinality(String)", "scope LowCardinality(String)", "begin DateTime('UTC')", "resource String",
		"attributes Map(LowCardinality(String), String)", "qty Decimal(38, 18)",
		"f_0 LowCardinality(String)", "f_1 LowCardinality(String)", "f_2 LowCardinality(String)",
	}
	set, err := metric.Parse("metrics.yaml", metric.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range set.Metrics {
		for _, period := range []time.Duration{5 * time.Minute, time.Hour, 24 * time.Hour} {
			for _, dedup := range []metric.Dedup{metric.Final, metric.Grouped} {
				sql, err := m.UsageSQL(metric.UsageOptions{
					Period: period, Dedup: dedup, Attributes: true, Fields: []string{"flavor_name", "vcpus", "nothing"},
				})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, line := range table(t, conn, "DESCRIBE ("+sql+")", day, day) {
					got = append(got, strings.TrimRight(line, " "))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s %s: %s", m.Name, period, diff)
				}
			}
		}
	}
}

// An hour's usage row is a tier row, so the hour's query groups nothing: that
// would be most of the cost.
func TestHourlyUsageHasNoGroupBy(t *testing.T) {
	t.Parallel()
	set, err := metric.Parse("metrics.yaml", metric.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range set.Metrics {
		for period, grouped := range map[time.Duration]bool{time.Hour: false, 5 * time.Minute: false, 2 * time.Hour: true} {
			sql, err := m.UsageSQL(metric.UsageOptions{Period: period, Attributes: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(sql, "GROUP BY"); got != grouped {
				t.Errorf("%s %s: grouped is %t\n%s", m.Name, period, got, sql)
			}
			if got := strings.Contains(sql, "FINAL"); !got {
				t.Errorf("%s %s: not FINAL", m.Name, period)
			}
		}
	}
}

// One day of usage reads one day's partition of the tier.
func TestUsageSQLPrunesPartitions(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	for d := range 10 {
		execute(t, conn, instanceColumns+fmt.Sprintf("('2026-03-%02d 05:00:00', 'r', '%s', 'p', 'u', 'f', 1, 'i', 'n', 60, 3600, 0)", 1+d, vm))
	}
	m := parse(t, "metrics: {m: {unit: x, table: instance_metrics, quantity: time}}").Metrics[0]
	for _, period := range []time.Duration{time.Hour, 24 * time.Hour} {
		begin := day.Add(5 * time.Hour).Truncate(period).Format(time.DateTime)
		for _, dedup := range []metric.Dedup{metric.Final, metric.Grouped} {
			sql, err := m.UsageSQL(metric.UsageOptions{Period: period, Dedup: dedup, Attributes: true, Filter: "(scope, begin) IN (SELECT 'p', toDateTime('" + begin + "', 'UTC'))"})
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(table(t, conn, "EXPLAIN indexes = 1 "+sql, day, day.Add(24*time.Hour)), "\n")
			if !strings.Contains(plan, "Parts: 1/10") {
				t.Errorf("period %s, dedup %d reads more than one of ten parts:\n%s", period, dedup, plan)
			}
		}
	}
}

// A resize in the middle of an hour gives two usage rows, each with its own
// time; usage without project has a scope; a repeat counts once.
func TestUsageOfAnHour(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	execute(t, conn,
		instanceColumns+"('2026-03-05 05:00:00', 'r', '"+vm+"', 'p', 'u', 'small', 1, 'i', 'old', 10, 600, 0)",
		instanceColumns+"('2026-03-05 05:00:00', 'r', '"+vm+"', 'p', 'u', 'small', 1, 'i', 'web', 20, 1200, 5153960755200)",
		instanceColumns+"('2026-03-05 05:00:00', 'r', '"+vm+"', 'p', 'u', 'large', 4, 'i', 'web', 40, 2400, 20615843020800), ('2026-03-05 06:00:00', 'r', '"+vm+"', '', 'u', 'large', 4, '', 'web', 60, 3600, 30923764531200)",
	)
	set, err := metric.Parse("metrics.yaml", metric.Default())
	if err != nil {
		t.Fatal(err)
	}
	const small = "r|p|2026-03-05 05:00:00|" + vm + "|{'flavor_name':'small','image_id':'i','instance_name':'web','user_id':'u','vcpus':'1'}"
	const large = "r|p|2026-03-05 05:00:00|" + vm + "|{'flavor_name':'large','image_id':'i','instance_name':'web','user_id':'u','vcpus':'4'}"
	const alone = "r|unattributed|2026-03-05 06:00:00|" + vm + "|{'flavor_name':'large','instance_name':'web','user_id':'u','vcpus':'4'}"
	for name, want := range map[string]map[string]string{
		"instance": {small: "0.333333333333333333", large: "0.666666666666666667", alone: "1"},
		"vcpu":     {small: "0.333333333333333333", large: "2.666666666666666667", alone: "4"},
		"memory":   {small: "1.333333333333333333", large: "5.333333333333333333", alone: "8"},
	} {
		t.Run(name, func(t *testing.T) {
			sql, err := get(t, set, name).UsageSQL(metric.UsageOptions{Period: time.Hour, Attributes: true})
			if err != nil {
				t.Fatal(err)
			}
			got, err := usageRows(t.Context(), conn, sql, day, day.Add(24*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if diff := difference(decimals(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("fields", func(t *testing.T) {
		sql, err := get(t, set, "instance").UsageSQL(metric.UsageOptions{Period: time.Hour, Fields: []string{"vcpus", "none", "image_id"}})
		if err != nil {
			t.Fatal(err)
		}
		got := table(t, conn, "SELECT toString(scope), toString(f_0), toString(f_1), toString(f_2) FROM ("+sql+") ORDER BY ALL", day, day.Add(24*time.Hour))
		if want := []string{"p 1  i", "p 4  i", "unattributed 4  "}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Where one row is one usage row the query has no guard of its own; rows with one
// key show a repeat that FINAL left, as between shards that split a key.
func TestKeysShowRepeats(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	execute(t, conn,
		"CREATE TABLE shard_1 AS instance_metrics_hourly", "CREATE TABLE shard_2 AS instance_metrics_hourly",
		"CREATE TABLE shards AS instance_metrics_hourly ENGINE = Merge(currentDatabase(), '^shard_[12]$')")
	for _, shard := range []string{"shard_1", "shard_2"} {
		execute(t, conn, strings.Replace(instanceColumns, "instance_metrics_hourly", shard, 1)+"('2026-03-05 05:00:00', 'r', '"+vm+"', 'p', 'u', 'f', 1, 'i', 'n', 60, 3600, 0)")
	}
	m := parse(t, "metrics: {m: {unit: x, table: instance_metrics, quantity: time}}").Metrics[0]
	options := func(period time.Duration, dedup metric.Dedup) metric.UsageOptions {
		return metric.UsageOptions{Period: period, Attributes: true, Dedup: dedup, TableName: func(string) string { return "shards" }}
	}
	for dedup, want := range map[metric.Dedup]string{metric.Final: "2 1 2", metric.Grouped: "1 1 1"} {
		sql, err := m.UsageSQL(options(time.Hour, dedup))
		if err != nil {
			t.Fatal(err)
		}
		got := table(t, conn, "SELECT toString(count()), toString(uniqExact(region, scope, begin, resource, attributes)), toString(sum(qty)) FROM ("+sql+")", day, day.Add(24*time.Hour))
		if !slices.Equal(got, []string{want}) {
			t.Errorf("dedup %d: %q, want %q", dedup, got, want)
		}
	}
	sql, err := m.UsageSQL(options(24*time.Hour, metric.Final))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := usageRows(t.Context(), conn, sql, day, day.Add(24*time.Hour)); err == nil || !strings.Contains(err.Error(), "two rows with one key") {
		t.Errorf("a day of repeats gives error %v", err)
	}
}

// A cluster's tiers have other names than the files say.
func TestTableName(t *testing.T) {
	t.Parallel()
	m := parse(t, "metrics: {m: {unit: x, table: instance_metrics, quantity: time}}").Metrics[0]
	sql, err := m.UsageSQL(metric.UsageOptions{Period: time.Hour, TableName: func(name string) string { return "`db`.`" + name + "_all`" }})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(sql, "FROM `db`.`instance_metrics_hourly_all` AS t FINAL") {
		t.Error(sql)
	}
}
