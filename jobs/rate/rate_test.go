package rate_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

const smallPlan = `
currency: EUR
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {value: m1.small, cost: "0.05", type: flat}
          - {value: m1.large, cost: "0.2000000000000000000000000001", type: flat}
  - name: memory
    mappings:
      - {cost: 0.003, type: flat}
    thresholds:
      - {level: 8, cost: 0.9, type: rate}
  - name: network.outgoing
    mappings:
      - {cost: "0.01", type: flat}
`

// cloud fills the hourly tiers: two projects and one instance without a
// project, three hours, a resize in the second.
func cloud(t testing.TB, s *store.Store) {
	t.Helper()
	instance := `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, memory_actual_byte_seconds, refreshed_at) VALUES `
	row := func(hour int, n int, project, flavor string, vcpus int, seconds string, gib int) string {
		return fmt.Sprintf("('2026-11-01 %02d:00:00', 'one', '00000000-0000-0000-0000-%012d', '%s', 'u', '%s', %d, 'img', 'vm-%d', 'h1', 60, 60, %s, toDecimal128('%s', 3) * %d * 1073741824, now())", hour, n, project, flavor, vcpus, n, seconds, seconds, gib)
	}
	exec(t, s, instance+strings.Join([]string{
		row(0, 1, "alpha", "m1.small", 1, "3600", 2),
		row(1, 1, "alpha", "m1.small", 1, "1200", 2), // resized at 01:20
		row(1, 1, "alpha", "m1.large", 4, "2400", 16),
		row(2, 1, "alpha", "m1.large", 4, "3600", 16),
		row(0, 2, "beta", "m1.large", 4, "3600", 8),
		row(1, 2, "beta", "m1.large", 4, "1000.001", 8),
		row(2, 3, "", "m1.tiny", 1, "3600", 1), // no project, no rule
	}, ","))
	exec(t, s, `INSERT INTO port_volume_hourly (bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, rx_bytes, tx_bytes, refreshed_at) VALUES
		('2026-11-01 00:00:00', 'one', '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0001-000000000001', '00000000-0000-0000-0002-000000000001', 'alpha', 'u', 'm1.small', 1, 'img', 'vm-1', 'h1', 60, 60, 3600, 5, 1073741824, now()),
		('2026-11-01 01:00:00', 'one', '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0001-000000000001', '00000000-0000-0000-0002-000000000001', 'alpha', 'u', 'm1.small', 1, 'img', 'vm-1', 'h1', 60, 60, 3600, 0, 1, now())`)
	// The input is complete up to 03:00.
	if err := s.Exec(t.Context(), "insert_watermark", store.Params{"region": "one", "complete_until": at("2026-11-01T03:00:00Z"), "source": "operator", "note": ""}); err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, s *store.Store, text string) {
	t.Helper()
	if err := s.Conn().Exec(t.Context(), text); err != nil {
		t.Fatalf("%.300s: %v", text, err)
	}
}

func applyPlan(t testing.TB, s *store.Store, text string, from time.Time) {
	t.Helper()
	parsed, err := plan.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddVersion(t.Context(), store.PlanVersions, store.Version{Digest: parsed.Digest(), Body: text, Currency: parsed.Currency, ValidFrom: from}); err != nil {
		t.Fatal(err)
	}
}

func options(now string) rate.Options {
	return rate.Options{Now: at(now), Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "month"}, Author: "test"}
}

func run(ctx context.Context, s *store.Store, o rate.Options) (rate.Result, error) {
	job := &rate.Job{Store: s, Log: slog.New(slog.DiscardHandler), Options: o}
	r, err := jobs.Start(ctx, s, "rate", nil, "test", o.Now)
	if err != nil {
		return rate.Result{}, err
	}
	p, err := job.Plan(ctx)
	if err != nil {
		return rate.Result{}, err
	}
	return job.Run(ctx, p, r)
}

// lines reads the rated lines as text, one per line.
func lines(t testing.TB, s *store.Store) string {
	t.Helper()
	rows, err := s.Conn().Query(t.Context(), `SELECT concat(scope, ' ', formatDateTime(begin, '%H', 'UTC'), ' ', metric, ' ', attributes['flavor_name'], ' ', toString(qty), ' ', toString(price), ' ', bucket) FROM rated ORDER BY scope, begin, metric, resource, attributes['flavor_name']`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(line))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// What the small cloud costs, worked out by hand: seconds ÷ 3600 × price.
const wantLines = `alpha 00 instance m1.small 1 0.05
alpha 00 memory m1.small 2 0.006
alpha 00 network.incoming m1.small 0.000000004656612873 0 unpriced
alpha 00 network.outgoing m1.small 1 0.01
alpha 00 vcpu m1.small 1 0 unpriced
alpha 01 instance m1.large 0.666666666666666667 0.133333333333333333
alpha 01 instance m1.small 0.333333333333333333 0.016666666666666667
alpha 01 memory m1.large 10.666666666666666667 0.0288
alpha 01 memory m1.small 0.666666666666666667 0.002
alpha 01 network.incoming m1.small 0 0 unpriced
alpha 01 network.outgoing m1.small 0.000000000931322575 0.000000000009313226
alpha 01 vcpu m1.large 2.666666666666666667 0 unpriced
alpha 01 vcpu m1.small 0.333333333333333333 0 unpriced
alpha 02 instance m1.large 1 0.2
alpha 02 memory m1.large 16 0.0432
alpha 02 vcpu m1.large 4 0 unpriced
beta 00 instance m1.large 1 0.2
beta 00 memory m1.large 8 0.0216
beta 00 vcpu m1.large 4 0 unpriced
beta 01 instance m1.large 0.277778055555555556 0.055555611111111111
beta 01 memory m1.large 2.222224444444444444 0.006666673333333333
beta 01 vcpu m1.large 1.111112222222222222 0 unpriced
unattributed 02 instance m1.tiny 1 0 unpriced
unattributed 02 memory m1.tiny 1 0.003
unattributed 02 vcpu m1.tiny 1 0 unpriced`

func TestRateSmallCloud(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	result, err := run(t.Context(), s, options("2026-11-01T06:00:01Z"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLines, lines(t, s)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	// Periods without usage are committed too: 3 scopes × 3 hours.
	if result.Periods != 9 || result.Scopes != 3 || result.Lines != 25 || result.Unpriced != 10 || result.Rejected != 0 || result.Passes != 1 {
		t.Errorf("result = %+v", result)
	}
	if got, want := fmt.Sprint(result.Rules.UnpricedMetrics, result.Rules.Unmatched, result.Rules.AlwaysZero), "[instance network.incoming vcpu] [] []"; got != want {
		t.Errorf("rule report %s, want %s", got, want)
	}
	want := decimal.RequireFromString("0.776822284453757670")
	if got := result.Price["EUR"]; !got.Equal(want) {
		t.Errorf("price = %s EUR, want %s", got, want)
	}
	again, err := run(t.Context(), s, options("2026-11-01T06:00:01Z"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Periods != 0 || again.Passes != 0 || len(again.Attempts) != 0 {
		t.Errorf("the second run did something: %+v", again)
	}
}

func TestRateByThePlanValidAtThePeriodsBegin(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	applyPlan(t, s, strings.ReplaceAll(smallPlan, `"0.05"`, `"0.06"`), at("2026-11-01T01:00:00Z"))
	if _, err := run(t.Context(), s, options("2026-11-01T06:00:01Z")); err != nil {
		t.Fatal(err)
	}
	got := lines(t, s)
	for _, want := range []string{"alpha 00 instance m1.small 1 0.05\n", "alpha 01 instance m1.small 0.333333333333333333 0.02\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
	var digests uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT uniqExact(plan_digest) FROM period_commits").Scan(&digests); err != nil || digests != 2 {
		t.Errorf("%d plan digests in the commits, %v, want 2", digests, err)
	}
}

// A hole is due wherever it lies, at the next revision where one was reset.
func TestHolesAndResetsAreDue(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	if _, err := run(t.Context(), s, options("2026-11-01T06:00:01Z")); err != nil {
		t.Fatal(err)
	}
	exec(t, s, `INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, reason) SELECT 'alpha', '2026-11-01 01:00:00', '2026-11-01 02:00:00', 2, 'reset', generateUUIDv4(), 'test'`)
	exec(t, s, `ALTER TABLE period_commits DELETE WHERE scope = 'beta' AND begin = '2026-11-01 00:00:00' SETTINGS mutations_sync = 2`)
	if got := lines(t, s); strings.Contains(got, "alpha 01") || strings.Contains(got, "beta 00") {
		t.Fatalf("lines of a reset period are still there:\n%s", got)
	}
	result, err := run(t.Context(), s, options("2026-11-01T06:00:01Z"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Periods != 2 {
		t.Errorf("rated %d periods, want the 2 that were due", result.Periods)
	}
	if diff := cmp.Diff(wantLines, lines(t, s)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	var revisions string
	if err := s.Conn().QueryRow(t.Context(), "SELECT toString(groupArray((scope, revision))) FROM (SELECT scope, revision FROM current_commits WHERE (scope = 'alpha' AND begin = '2026-11-01 01:00:00') OR (scope = 'beta' AND begin = '2026-11-01 00:00:00') ORDER BY scope)").Scan(&revisions); err != nil {
		t.Fatal(err)
	}
	if revisions != "[('alpha',3),('beta',1)]" {
		t.Errorf("revisions %s, want alpha at 3 and beta at 1", revisions)
	}
}

// Two attempts that committed the same revision with different digests: the
// one committed first counts until the period is rated again.
func TestConflictingCommitsAreRatedAgain(t *testing.T) {
	s := storetest.Fresh(t)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	if _, err := run(t.Context(), s, options("2026-11-01T06:00:01Z")); err != nil {
		t.Fatal(err)
	}
	exec(t, s, `INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest) SELECT 'alpha', '2026-11-01 01:00:00', '2026-11-01 02:00:00', 1, 'rated', generateUUIDv4(), 'other'`)
	if diff := cmp.Diff(wantLines, lines(t, s)); diff != "" {
		t.Errorf("a later commit of the same revision changed the lines (-want +got):\n%s", diff)
	}
	result, err := run(t.Context(), s, options("2026-11-01T06:00:01Z"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Periods != 1 {
		t.Errorf("rated %d periods, want the one in conflict", result.Periods)
	}
	if diff := cmp.Diff(wantLines, lines(t, s)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// Repeated tier rows count once, merged or not.
func TestRepeatedTierRowsCountOnce(t *testing.T) {
	s := storetest.Fresh(t)
	exec(t, s, "SYSTEM STOP MERGES")
	defer exec(t, s, "SYSTEM START MERGES") // or no other test's mutation ever ends
	cloud(t, s)
	cloud(t, s)
	applyPlan(t, s, smallPlan, time.Unix(0, 0))
	if _, err := run(t.Context(), s, options("2026-11-01T06:00:01Z")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLines, lines(t, s)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestRateRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *store.Store)
		now     string
		code    int
		text    string
	}{
		"no plan was applied": {func(t *testing.T, s *store.Store) { cloud(t, s) }, "2026-11-01T06:00:01Z", ratebatch.ExitConfig, "ratebatch plan apply"},
		"a period older than its tier keeps": {func(t *testing.T, s *store.Store) {
			cloud(t, s)
			applyPlan(t, s, smallPlan, time.Unix(0, 0))
		}, "2086-11-01T06:00:01Z", ratebatch.ExitHalted, "would not mean zero usage"},
		"a metric that names a missing column": {func(t *testing.T, s *store.Store) {
			cloud(t, s)
			applyPlan(t, s, smallPlan, time.Unix(0, 0))
			exec(t, s, "CREATE TABLE own (ts DateTime, project String, res String) ENGINE = MergeTree ORDER BY ts")
			if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: "x", ValidFrom: time.Unix(0, 0),
				Body: "metrics:\n  own:\n    unit: x\n    table: own\n    time: ts\n    bucket: 3600\n    key: [res]\n    quantity: sum\n    value: amount\n    resource: res\n    region_key: \"\"\n    scope_key: project\n"}); err != nil {
				t.Fatal(err)
			}
		}, "2026-11-01T06:00:01Z", ratebatch.ExitConfig, "amount"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.Fresh(t)
			tt.prepare(t, s)
			_, err := run(t.Context(), s, options(tt.now))
			if ratebatch.ExitCode(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error = %v (exit %d), want exit %d with %q", err, ratebatch.ExitCode(err), tt.code, tt.text)
			}
			if got := lines(t, s); got != "" {
				t.Errorf("lines count after a refusal:\n%s", got)
			}
		})
	}
}
