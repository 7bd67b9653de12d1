package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
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
// 50,000 instances: 24 hours of both tiers, 6 hours of raw samples and 9.6 million
// rated lines. Sums are read ahead, as serve does when it starts; then one more
// hour is rated, and the first calls after that are figures of their own.
//
// RATEBATCH_BENCH_API names a folder to keep the filled database in: the next run
// measures it again in seconds, at the moment it was filled, and leaves out what
// happens once. It is for work on queries.
func benchAPI(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	if kept := os.Getenv("RATEBATCH_BENCH_API"); kept != "" {
		dir = kept
	}
	e, err := engine.Open(ctx, engine.Options{DataDir: dir, Database: "bench", Create: true, Log: p.log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(ctx, store.MigrateOptions{}); err != nil {
		return nil, err
	}
	cloud := &apiCloud{s, size.apiInstances, p.now().UTC().Truncate(time.Hour)}
	again, err := cloud.kept(ctx)
	if err != nil {
		return nil, err
	}
	if !again {
		if err := cloud.fill(ctx); err != nil {
			return nil, err
		}
	}
	// The clock goes on from the end of the data, however long filling took.
	ahead := cloud.now.Add(time.Minute).Sub(p.now())
	clock := *p
	clock.now = func() time.Time { return p.now().Add(ahead) }
	open := func(context.Context) (*store.Store, error) { return s, nil }
	var rating rateOptions
	options := rate.Options{Now: cloud.now, Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "usage"}}
	limits := web.DefaultLimits
	limits.Rate = 0
	server := clock.webServer(open, web.Auth{}, limits, false, &rating, options)
	handler := server.Handler()
	ask := func(path string) ([]byte, time.Duration, error) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1"+path, nil)
		w := httptest.NewRecorder()
		started := time.Now()
		handler.ServeHTTP(w, r)
		took := time.Since(started)
		if w.Code != http.StatusOK {
			return nil, 0, fmt.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes(), took, nil
	}
	once := func(name string, took time.Duration, limit float64) {
		figures = append(figures, bench.Figure{Name: name, Value: took.Seconds(), Unit: "s", Limit: limit, Runs: 1})
	}
	started := time.Now()
	if err := server.ReadAhead(ctx); err != nil {
		return nil, err
	}
	once("api read ahead when serve starts", time.Since(started), 0)
	if !again {
		if err := cloud.rate(ctx, -1, 0); err != nil {
			return nil, err
		}
		for _, path := range []string{"/costs", "/top?by=price", "/rating/status"} {
			_, took, err := ask(path)
			if err != nil {
				return nil, err
			}
			once("api GET "+path+" first after a rating", took, apiLimit)
		}
	}
	var found struct {
		Instances []struct{ ID, Name string }
	}
	body, _, err := ask("/search?q=vm-00007")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &found); err != nil || len(found.Instances) == 0 {
		return nil, fmt.Errorf("search found nothing: %s", body)
	}
	id, day := found.Instances[0].ID, cloud.now.Add(-24*time.Hour).Format(time.DateOnly)
	for _, path := range apiCalls(id, day) {
		var times []time.Duration
		for range size.runs {
			_, took, err := ask(path)
			if err != nil {
				return nil, err
			}
			times = append(times, took)
		}
		median, spread := bench.Median(times)
		name := "api GET " + strings.NewReplacer(id, "ID", day, "DAY", day[:7], "MONTH").Replace(path)
		figures = append(figures, bench.Figure{Name: name, Value: median.Seconds(), Unit: "s", Limit: apiLimit, Runs: size.runs, Spread: spread})
	}
	return figures, nil
}

// apiCalls are the calls that pages send, of one instance and one day.
func apiCalls(id, day string) []string {
	i, node, month := "/instances/"+id, "/nodes/RegionOne/host-0007", day[:7]
	return []string{"/health", "/session", "/search?q=vm-000", "/projects", i, i + "/series?range=6h", i + "/series?range=12h", i + "/series?range=24h", i + "/series?range=7d", i + "/costs?range=24h",
		"/nodes", node + "/series?range=6h", node + "/series?range=12h", node + "/series?range=24h", node + "/series?range=7d", node + "/instances?range=24h",
		"/top?by=cpu", "/top?by=memory", "/top?by=network", "/top?by=disk", "/top?by=price",
		"/costs?month=" + month, "/costs?group=month&months=12&compare=none&month=" + month, "/costs?group=project,metric,day&month=" + month, "/lines?day=" + day, "/lines?day=" + day + "&metric=memory", "/lines?project=project-0007&day=" + day,
		"/rating/status", "/rating/runs", "/rating/late", "/rating/unpriced?month=" + month, "/rating/schedules", "/rating/exports", "/rating/months", "/plans", "/metrics"}
}

// apiCloud is a cloud whose tables are filled straight, up to a whole hour.
type apiCloud struct {
	s         *store.Store
	instances int
	now       time.Time
}

// kept says whether the database was filled before, and takes over up to when. It
// stops what would take the processors from what is measured.
func (c *apiCloud) kept(ctx context.Context) (bool, error) {
	var rows uint64
	var end time.Time
	if err := c.s.Conn().QueryRow(ctx, "SELECT count(), max(bucket) + 3600 FROM instance_metrics_hourly").Scan(&rows, &end); err != nil {
		return false, err
	}
	if rows > 0 {
		c.now = end.UTC()
	}
	return rows > 0, c.s.Conn().Exec(ctx, "SYSTEM STOP MERGES")
}

// fill writes 24 hours of tiers, 6 of samples, and lines of all hours but the
// last. Most of it comes in the tables' own order, as if it had been merged: what
// merging costs is a figure of the tiers' benchmark. The last hour comes bucket
// by bucket, in parts of its own, as the views write it; of the tiers these are
// merged as far as the engine merges them at once, of samples they are left.
func (c apiCloud) fill(ctx context.Context) error {
	// The views would read all of it again.
	for _, table := range []string{"port_volume", "instance_metrics", "disk_metrics"} {
		for _, tier := range []string{"_5min", "_hourly"} {
			if err := c.s.Conn().Exec(ctx, "DROP VIEW IF EXISTS "+table+tier+"_refresh"); err != nil {
				return err
			}
		}
	}
	for _, x := range []struct {
		step, hours int
		tables      map[string]string
	}{{60, 6, apiSamples}, {300, 24, apiTiers("5min")}, {3600, 24, apiTiers("hourly")}} {
		for _, text := range x.tables {
			if err := c.insert(ctx, text, x.step, -x.hours*3600, -3600); err != nil {
				return err
			}
			for at := -3600; at < 0; at += max(300, x.step) {
				if err := c.insert(ctx, text, x.step, at, at+max(300, x.step)); err != nil {
					return err
				}
			}
		}
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	for _, text := range []string{
		`INSERT INTO instances SELECT region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, min(bucket), max(bucket) + 3600 FROM instance_metrics_hourly GROUP BY ALL`,
		`INSERT INTO hosts SELECT region, host, min(bucket), max(bucket) + 3600, max(bucket) + 3600 FROM instance_metrics_hourly GROUP BY region, host`,
	} {
		if err := c.insert(ctx, text, 3600, 0, 0); err != nil {
			return err
		}
	}
	for hour := -24; hour < -1; hour++ {
		if hour == -4 { // three hours are in parts of their own, as with a merge every few hours
			for _, table := range []string{"rated_lines", "period_commits", "instances", "hosts"} {
				for _, text := range []string{"SYSTEM START MERGES " + table, "OPTIMIZE TABLE " + table + " FINAL", "SYSTEM STOP MERGES " + table} {
					if err := c.insert(ctx, text, 3600, 0, 0); err != nil {
						return err
					}
				}
			}
		}
		if err := c.rate(ctx, hour, hour+1); err != nil {
			return err
		}
	}
	return nil
}

// settle lets the engine merge the tiers' parts until it finds nothing worth it,
// as it does on a live server: there no twelve parts of an hour lie side by side.
func (c apiCloud) settle(ctx context.Context) error {
	for _, verb := range []string{"START", "STOP"} {
		for _, table := range []string{"port_volume", "instance_metrics", "disk_metrics"} {
			for _, tier := range []string{"_5min", "_hourly"} {
				if err := c.s.Conn().Exec(ctx, "SYSTEM "+verb+" MERGES "+table+tier); err != nil {
					return err
				}
			}
		}
		for idle := 0; verb == "START" && idle < 3; idle++ {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
			var merging uint64
			if err := c.s.Conn().QueryRow(ctx, "SELECT count() FROM system.merges WHERE database = currentDatabase()").Scan(&merging); err != nil {
				return err
			}
			if merging > 0 {
				idle = -1
			}
		}
	}
	return nil
}

// insert runs a statement over steps of some seconds in [from, to), both from now.
func (c apiCloud) insert(ctx context.Context, text string, step, from, to int) error {
	ctx = store.Settings(store.WithParams(ctx, store.Params{"n": c.instances, "begin": c.now.Add(time.Duration(from) * time.Second), "step": step, "steps": (to - from) / step}),
		map[string]any{"max_insert_threads": 2, "max_block_size": 1 << 20, "min_insert_block_size_rows": 1 << 20, "min_insert_block_size_bytes": 1 << 30, "optimize_on_insert": 0})
	if err := c.s.Conn().Exec(ctx, text); err != nil {
		return fmt.Errorf("%.60s: %w", text, err)
	}
	return nil
}

// rate writes lines and commits of the periods of some hours from now.
func (c apiCloud) rate(ctx context.Context, from, to int) error {
	for _, text := range []string{
		`INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)
		 SELECT toUUID('00000000-0000-4000-8000-000000000001'), region, project_id, bucket, bucket + 3600, metric.1, if(metric.2 = 'port', concat(substring(toString(instance_uuid), 1, 14), '5', substring(toString(instance_uuid), 16)), if(metric.2 = 'disk', concat(toString(instance_uuid), '/vda'), toString(instance_uuid))),
		        map('flavor_name', flavor_name, 'image_id', image_id, 'instance_name', instance_name, 'instance_uuid', toString(instance_uuid), 'user_id', user_id, 'vcpus', toString(vcpus)), 'u', toDecimal128(1, 18), toDecimal128(cityHash64(instance_uuid, bucket, metric.1) % 1000000, 18) / 1000000, 'm1', '', 0, 1
		 FROM instance_metrics_hourly ARRAY JOIN [('instance', ''), ('vcpu', ''), ('memory', ''), ('disk.capacity', 'disk'), ('disk.io.bytes', 'disk'), ('disk.io.requests', 'disk'), ('network.incoming', 'port'), ('network.outgoing', 'port')] AS metric
		 WHERE bucket >= {begin:DateTime('UTC')} AND bucket < {begin:DateTime('UTC')} + {step:UInt64} * {steps:UInt64}`,
		`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint, usage_read_at, lines, line_digest, total)
		 SELECT scope, begin, begin + 3600, 1, 'rated', any(run_id), 'p', 'm', 'EUR', count(), 1, now64(6), count(), sum(cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket)), sum(toDecimal256(price, 18))
		 FROM rated_lines WHERE begin >= {begin:DateTime('UTC')} AND begin < {begin:DateTime('UTC')} + {step:UInt64} * {steps:UInt64} GROUP BY scope, begin`,
	} {
		if err := c.insert(ctx, text, 3600, from*3600, to*3600); err != nil {
			return err
		}
	}
	return nil
}

// Who an instance is, where it runs, and its moments: instance by instance, so
// that rows come in the order of the tables' keys. Hosts go across that order:
// the instances of one lie scattered over a table.
const (
	apiWho  = `'RegionOne' AS region, toUUID(concat('00000000-0000-4000-8000-', leftPad(lower(hex(i)), 12, '0'))) AS instance_uuid, concat('project-', leftPad(toString(i % 500), 4, '0')) AS project_id, 'user' AS user_id, concat('m1.', toString(i % 20)) AS flavor_name, toUInt16(1 + i % 8) AS vcpus, 'image' AS image_id, concat('vm-', leftPad(toString(i), 5, '0')) AS instance_name, concat('host-', leftPad(toString(i % greatest(1, intDiv({n:UInt64}, 40))), 4, '0')) AS host`
	apiPort = `toUUID(concat('00000000-0000-5000-8000-', leftPad(lower(hex(i)), 12, '0')))`
	apiRows = ` FROM (SELECT intDiv(number, {steps:UInt64}) AS i, toDateTime({begin:DateTime('UTC')}, 'UTC') + {step:UInt64} * (number % {steps:UInt64}) AS bucket FROM numbers_mt({n:UInt64} * {steps:UInt64}))`
	apiKey  = "region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host"
)

// apiTiers are the statements that fill one of the tiers, by table.
func apiTiers(tier string) map[string]string {
	const place = `, toUInt32({step:UInt64} / 60) AS samples, samples AS samples_ended, toDecimal32({step:UInt64}, 3) AS covered_seconds, bucket`
	const key = apiKey + ", samples, samples_ended, covered_seconds, bucket"
	return map[string]string{
		"instance": `INSERT INTO instance_metrics_` + tier + ` (` + key + `, cpu_pct_avg, cpu_pct_max, memory_actual_bytes_avg, memory_rss_bytes_avg, memory_usable_bytes_avg, memory_actual_byte_seconds)
			 SELECT ` + apiWho + place + `, toDecimal32(cityHash64(i, bucket) % 100, 4), toDecimal32(100, 2), toUInt64(4294967296), toUInt64(cityHash64(i, bucket) % 4294967296), toUInt64(1073741824), toDecimal128(4294967296, 3) * {step:UInt64}` + apiRows,
		"port": `INSERT INTO port_volume_` + tier + ` (` + key + `, port_uuid, network_uuid, rx_bytes, tx_bytes)
			 SELECT ` + apiWho + place + `, ` + apiPort + `, reinterpret(sipHash128(i % 500, 'net'), 'UUID'), cityHash64(i, bucket) % 1000000000, cityHash64(bucket, i) % 1000000000` + apiRows,
		"disk": `INSERT INTO disk_metrics_` + tier + ` (` + key + `, device, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, capacity_byte_seconds)
			 SELECT ` + apiWho + place + `, 'vda', cityHash64(i, bucket) % 100000000, cityHash64(bucket, i) % 100000000, 1000, 1000, toUInt64(21474836480), toDecimal128(21474836480, 3) * {step:UInt64}` + apiRows,
	}
}

// apiSamples are the statements that write raw samples, one a minute.
var apiSamples = func() map[string]string {
	const place = `, 1 AS epoch, toUnixTimestamp(bucket) + i AS sequence, bucket AS begin, bucket + {step:UInt64} AS ts`
	const key = apiKey + ", epoch, sequence, begin, ts"
	return map[string]string{
		"instance": `INSERT INTO instance_samples (` + key + `, cpu_pct, memory_actual_bytes, memory_rss_bytes, memory_usable_bytes)
			 SELECT ` + apiWho + place + `, toDecimal32(cityHash64(i, bucket) % 100, 2), toUInt64(4294967296), toUInt64(cityHash64(i, bucket) % 4294967296), toUInt64(1073741824)` + apiRows,
		"port": `INSERT INTO port_samples (` + key + `, port_uuid, network_uuid, rx_bytes, tx_bytes)
			 SELECT ` + apiWho + place + `, ` + apiPort + `, reinterpret(sipHash128(i % 500, 'net'), 'UUID'), cityHash64(i, bucket) % 100000000, cityHash64(bucket, i) % 100000000` + apiRows,
		"disk": `INSERT INTO disk_samples (` + key + `, device, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes)
			 SELECT ` + apiWho + place + `, 'vda', cityHash64(i, bucket) % 10000000, cityHash64(bucket, i) % 10000000, 100, 100, toUInt64(21474836480)` + apiRows,
	}
}()
