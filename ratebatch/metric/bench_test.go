package metric_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// BenchmarkUsage measures the usage SELECT over a month of the hourly tier,
// 40 flavors and 500 scopes. The rows are read by the engine and thrown away.
// "plain" reads the same columns with no deduplication: what FINAL and GROUP BY
// cost is the ratio to it, which means the same on a busy machine. The 14 M
// rows of the bench targets are left out with -short.
func BenchmarkUsage(b *testing.B) {
	for _, size := range []struct {
		name      string
		instances int
	}{{"1.4M", 2000}, {"14.4M", 20000}} {
		if testing.Short() && size.instances > 2000 {
			continue
		}
		b.Run(size.name, func(b *testing.B) {
			conn := migrated(b)
			// A day at a time: one block holds rows of one partition, as refreshes write them.
			for d := range 30 {
				execute(b, conn, fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, user_id, flavor_name,
						vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, cpu_pct_avg, cpu_pct_max, memory_actual_byte_seconds)
					SELECT toDateTime('2026-03-01 00:00:00', 'UTC') + INTERVAL %[2]d DAY + INTERVAL intDiv(number, %[1]d) HOUR, 'r1',
						reinterpretAsUUID(sipHash128(number %% %[1]d AS i)), concat('project-', toString(i %% 500)), concat('user-', toString(i %% 900)),
						concat('m1.f', toString(cityHash64(i) %% 40)), 1 + i %% 16, concat('image-', toString(i %% 30)), concat('vm-', toString(i)),
						concat('host', toString(i %% 100)), 60, 60, if(cityHash64(number) %% 10 = 0, 3540.123, 3600), 12.3456, 99.12,
						toDecimal128(15461882265600 + cityHash64(number) %% 1000, 3)
					FROM numbers(24 * %[1]d)`, size.instances, d))
			}
			rows := 24 * 30 * size.instances
			set, err := metric.Parse("metrics.yaml", metric.Default())
			if err != nil {
				b.Fatal(err)
			}
			usage := func(name string, o metric.UsageOptions) string {
				m, ok := set.Get(name)
				if !ok {
					b.Fatal(name)
				}
				sql, err := m.UsageSQL(o)
				if err != nil {
					b.Fatal(err)
				}
				return sql
			}
			hour := metric.UsageOptions{Period: time.Hour, Fields: []string{"flavor_name"}}
			full, grouped, daily := hour, hour, hour
			full.Attributes = true
			grouped.Dedup = metric.Grouped
			daily.Period = 24 * time.Hour
			for _, c := range []struct{ name, sql string }{
				{"plain", strings.Replace(usage("instance", hour), " FINAL", "", 1)},
				{"final", usage("instance", hour)},
				{"final_rounded", usage("memory", hour)},
				{"final_attributes", usage("instance", full)},
				{"grouped", usage("instance", grouped)},
				{"day", usage("instance", daily)},
			} {
				b.Run(c.name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						discard(b, conn, c.sql)
					}
					b.ReportMetric(b.Elapsed().Seconds()*14.4e6/(float64(rows)*float64(b.N)), "s/14.4M_rows")
				})
			}
		})
	}
}

// discard runs a query for its cost alone.
func discard(b *testing.B, conn driver.Conn, sql string) {
	b.Helper()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ctx := clickhouse.Context(b.Context(), clickhouse.WithSettings(clickhouse.Settings{"max_memory_usage": "4000000000"}))
	if err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS nowhere (qty Decimal(38, 18)) ENGINE = Null"); err != nil {
		b.Fatal(err)
	}
	// Every column goes into the condition, so that none is left out of the reading.
	all := "qty, cityHash64(region, scope, begin, resource, f_0) AS h"
	if strings.Contains(sql, "AS attributes") {
		all = "qty, length(attributes) + cityHash64(region, scope, begin, resource, f_0) AS h"
	}
	if err := conn.Exec(ctx, "INSERT INTO nowhere SELECT qty FROM (SELECT "+all+" FROM ("+sql+")) WHERE h != 42", window(from, from.AddDate(0, 1, 0))...); err != nil {
		b.Fatal(err)
	}
}
