package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// apiLimit is what every call of the API may take, in seconds.
const apiLimit = 0.3

// benchAPI measures calls of serve's API as pages send them, at full size over
// 50,000 instances, 24 hours of both tiers and 9.6 million rated lines. Sums are
// read ahead, as serve does; how long that takes after a rating is a figure of
// its own.
func benchAPI(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	e, err := engine.Open(ctx, engine.Options{DataDir: dir, Database: "bench", Create: true, Log: p.log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(ctx, store.MigrateOptions{}); err != nil {
		return nil, err
	}
	instances := map[int]int{24: 1_000, 96: 10_000, 720: 50_000}[size.hours]
	now := p.now().UTC().Truncate(time.Hour)
	if err := fillAPI(ctx, s, now.Add(-24*time.Hour), instances); err != nil {
		return nil, err
	}
	open := func(context.Context) (*store.Store, error) { return s, nil }
	var rating rateOptions
	options := rate.Options{Now: now, Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "usage"}}
	limits := web.DefaultLimits
	limits.Rate = 0
	server := p.webServer(open, web.Auth{}, limits, false, &rating, options)
	handler := server.Handler()
	ask := func(path string) ([]byte, error) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1"+path, nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes(), nil
	}
	// What changes after each rating: the sums of the days and the prices of
	// instances.
	for _, x := range []struct{ name, path string }{{"api costs read first", "/costs"}, {"api top by price read first", "/top?by=price"}, {"api status read first", "/rating/status"}} {
		started := time.Now()
		if _, err := ask(x.path); err != nil {
			return nil, err
		}
		figures = append(figures, bench.Figure{Name: x.name, Value: time.Since(started).Seconds(), Unit: "s", Runs: 1})
	}
	var found struct {
		Instances []struct{ ID, Name string }
	}
	body, err := ask("/search?q=vm-00007")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &found); err != nil || len(found.Instances) == 0 {
		return nil, fmt.Errorf("search found nothing: %s", body)
	}
	day, month := now.Add(-24*time.Hour).Format(time.DateOnly), now.Add(-24*time.Hour).Format("2006-01")
	i := "/instances/" + found.Instances[0].ID
	for _, path := range []string{"/health", "/session", "/search?q=vm-000", "/projects", i, i + "/series?range=6h", i + "/series?range=12h", i + "/series?range=24h", i + "/series?range=7d", i + "/costs?range=24h",
		"/nodes", "/nodes/RegionOne/host-0007/series?range=24h", "/nodes/RegionOne/host-0007/series?range=7d", "/nodes/RegionOne/host-0007/instances?range=24h", "/top?by=cpu", "/top?by=memory", "/top?by=network", "/top?by=disk", "/top?by=price",
		"/costs?month=" + month, "/costs?group=project,metric,day&month=" + month, "/lines?day=" + day, "/lines?project=project-0007&day=" + day, "/rating/status", "/rating/runs", "/rating/late", "/rating/unpriced?month=" + month,
		"/rating/schedules", "/rating/exports", "/rating/months", "/plans", "/metrics"} {
		var times []time.Duration
		for range size.runs {
			started := time.Now()
			if _, err := ask(path); err != nil {
				return nil, err
			}
			times = append(times, time.Since(started))
		}
		median, spread := bench.Median(times)
		name := "api GET " + strings.ReplaceAll(strings.ReplaceAll(path, found.Instances[0].ID, "ID"), month, "MONTH")
		figures = append(figures, bench.Figure{Name: strings.ReplaceAll(name, day, "DAY"), Value: median.Seconds(), Unit: "s", Limit: apiLimit, Runs: size.runs, Spread: spread})
	}
	return figures, nil
}

// fillAPI writes a day of tiers, lines and commits straight into their tables.
func fillAPI(ctx context.Context, s *store.Store, begin time.Time, instances int) error {
	const who = `'RegionOne' AS region, reinterpret(sipHash128(i), 'UUID') AS instance_uuid, concat('project-', leftPad(toString(i % 500), 4, '0')) AS project_id, 'user' AS user_id, concat('m1.', toString(i % 20)) AS flavor_name, toUInt16(1 + i % 8) AS vcpus, 'image' AS image_id, concat('vm-', leftPad(toString(i), 5, '0')) AS instance_name`
	const place = `concat('host-', leftPad(toString(i % greatest(1, intDiv({n:UInt64}, 40))), 4, '0')) AS host, toUInt32({step:UInt64} / 60) AS samples, samples AS samples_ended, toDecimal32({step:UInt64}, 3) AS covered_seconds`
	const rows = ` FROM (SELECT number % {n:UInt64} AS i, toDateTime({begin:DateTime('UTC')}, 'UTC') + {step:UInt64} * intDiv(number, {n:UInt64}) AS bucket FROM numbers({n:UInt64} * intDiv(86400, {step:UInt64})))`
	const key = "region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, bucket"
	statements := []struct {
		step int
		text string
	}{}
	for suffix, step := range map[string]int{"5min": 300, "hourly": 3600} {
		for _, text := range []string{
			`INSERT INTO instance_metrics_` + suffix + ` (` + key + `, cpu_pct_avg, cpu_pct_max, memory_actual_bytes_avg, memory_rss_bytes_avg, memory_usable_bytes_avg, memory_actual_byte_seconds)
			 SELECT ` + who + `, ` + place + `, bucket, toDecimal32(cityHash64(i, bucket) % 100, 4), toDecimal32(100, 2), toUInt64(4294967296), toUInt64(cityHash64(i, bucket) % 4294967296), toUInt64(1073741824), toDecimal128(4294967296, 3) * {step:UInt64}` + rows,
			`INSERT INTO port_volume_` + suffix + ` (` + key + `, port_uuid, network_uuid, rx_bytes, tx_bytes)
			 SELECT ` + who + `, ` + place + `, bucket, reinterpret(sipHash128(i, 'port'), 'UUID'), reinterpret(sipHash128(i % 500, 'net'), 'UUID'), cityHash64(i, bucket) % 1000000000, cityHash64(bucket, i) % 1000000000` + rows,
			`INSERT INTO disk_metrics_` + suffix + ` (` + key + `, device, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, capacity_byte_seconds)
			 SELECT ` + who + `, ` + place + `, bucket, 'vda', cityHash64(i, bucket) % 100000000, cityHash64(bucket, i) % 100000000, 1000, 1000, toUInt64(21474836480), toDecimal128(21474836480, 3) * {step:UInt64}` + rows,
		} {
			statements = append(statements, struct {
				step int
				text string
			}{step, text})
		}
	}
	for _, text := range []string{
		`INSERT INTO instances SELECT region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, min(bucket), max(bucket) + 3600 FROM instance_metrics_hourly GROUP BY ALL`,
		`INSERT INTO hosts SELECT region, host, min(bucket), max(bucket) + 3600, max(bucket) + 3600 FROM instance_metrics_hourly GROUP BY region, host`,
		`INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)
		 SELECT toUUID('00000000-0000-4000-8000-000000000001'), region, project_id, bucket, bucket + 3600, metric.1, if(metric.2 = 'port', toString(reinterpret(sipHash128(toUInt64(substring(instance_name, 4)), 'port'), 'UUID')), if(metric.2 = 'disk', concat(toString(instance_uuid), '/vda'), toString(instance_uuid))),
		        map('flavor_name', flavor_name, 'image_id', image_id, 'instance_name', instance_name, 'instance_uuid', toString(instance_uuid), 'user_id', user_id, 'vcpus', toString(vcpus)), 'u', toDecimal128(1, 18), toDecimal128(cityHash64(instance_uuid, bucket, metric.1) % 1000000, 18) / 1000000, 'm1', '', 0, 1
		 FROM instance_metrics_hourly ARRAY JOIN [('instance', ''), ('vcpu', ''), ('memory', ''), ('disk.capacity', 'disk'), ('disk.io.bytes', 'disk'), ('disk.io.requests', 'disk'), ('network.incoming', 'port'), ('network.outgoing', 'port')] AS metric`,
		`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint, usage_read_at, lines, line_digest, total)
		 SELECT scope, begin, begin + 3600, 1, 'rated', any(run_id), 'p', 'm', 'EUR', count(), 1, now64(6), count(), sum(cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket)), sum(toDecimal256(price, 18))
		 FROM rated_lines GROUP BY scope, begin`,
	} {
		statements = append(statements, struct {
			step int
			text string
		}{3600, text})
	}
	for _, x := range statements {
		bound := store.WithParams(ctx, store.Params{"n": instances, "begin": begin, "step": x.step})
		if err := s.Conn().Exec(bound, x.text); err != nil {
			return fmt.Errorf("%.60s: %w", x.text, err)
		}
	}
	return nil
}
