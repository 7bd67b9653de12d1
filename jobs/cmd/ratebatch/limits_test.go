package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// measureRun runs the program as a process and says how long it took, and its peak
// memory in MiB.
func measureRun(t *testing.T, args ...string) (took time.Duration, peak int64) {
	t.Helper()
	t.Setenv(envProgram, "1")
	begin := time.Now()
	var stderr strings.Builder
	run, err := runSelf(t.Context(), &stderr, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return time.Since(begin), run.peak >> 10
}

// What is too large is refused in a moment, and the limit is named.
func TestWhatIsTooLargeIsRefused(t *testing.T) {
	b := newBilled(t)
	dir := t.TempDir()
	large := func(name string, size int) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, int64(size)); err != nil { // a hole: it takes no space
			t.Fatal(err)
		}
		return file
	}
	begin := time.Now()
	b.changes("files that are too large", func() {
		b.fails(ratebatch.ExitConfig, "a rate plan has at most 16 MB", "plan", "apply", large("plan.yaml", plan.MaxSize+1))
		b.fails(ratebatch.ExitConfig, "a file of metrics has at most 4 MB", "metrics", "apply", large("metrics.yaml", metric.MaxSize+1))
		b.fails(ratebatch.ExitConfig, "/huge.yaml has 4096.0 MB: a rate plan has at most 16 MB: it is room for 240,000 mappings", "plan", "check", large("huge.yaml", 4<<30))
		b.fails(ratebatch.ExitConfig, "at most 16 MB", "plan", "diff", large("huge.yaml", 4<<30), "1")
		b.fails(ratebatch.ExitConfig, "at most 16 MB", "quote", "--metric", "instance", "--plan", large("huge.yaml", 4<<30))
	})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A large plan and a scope of many resources take time and memory in proportion:
// a twentieth of each in make test, all of it with RATEBATCH_TEST_FAULTS=all.
func TestLargePlansAndScopes(t *testing.T) {
	scale := 20
	if os.Getenv(envFaults) == "all" {
		scale = 1
	}
	b := newBilled(t)
	b.sql("TRUNCATE TABLE instance_metrics_hourly")
	b.sql("TRUNCATE TABLE rate_plans")
	resources, values := 1_000_000/scale, 240_000/scale // as many as a plan may have
	b.sql(fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds)
		SELECT toDateTime('2026-11-30 20:00:00', 'UTC'), 'one', reinterpret(sipHash128(number), 'UUID'), 'large', concat('flavor-', leftPad(toString(number %% %d), 2, '0')), 1, 'vm', 60, 60, 3600 FROM numbers(%d)`, values, resources))
	metrics := b.file("metrics.yaml", "metrics:\n  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n    groupby: [flavor_name]\n")
	b.must("metrics", "apply", metrics)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	text := valuesPlan(values)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := func(args ...string) []string { return append(append([]string{}, b.flags...), args...) }
	took, peak := measureRun(t, flags("plan", "apply", file)...)
	t.Logf("plan apply of %d MB, %d rules: %s, %d MiB", len(text)>>20, values, took, peak)
	if limit := int64(300 + 160*(len(text)>>20)); peak > limit {
		t.Errorf("plan apply took %d MiB, at most %d were expected", peak, limit)
	}
	took, peak = measureRun(t, flags("rate", "--now", at, "--first-period", "usage")...)
	t.Logf("rate of %d resources of one scope by it: %s, %d MiB", resources, took, peak)
	if limit := int64(400 + 180*(len(text)>>20)); peak > limit { // the plan's; the resources stay in the engine
		t.Errorf("rate took %d MiB, at most %d were expected", peak, limit)
	}
	if got := b.text("SELECT toString(count()) FROM rated WHERE bucket = ''"); got != fmt.Sprint(resources) {
		t.Errorf("%s lines are priced, want %d", got, resources)
	}
	took, peak = measureRun(t, flags("export", "--month", "2026-11", "--to", t.TempDir(), "--partition", "scope", "--partial", "--first-period", "usage")...)
	t.Logf("export of its month: %s, %d MiB", took, peak)
	if peak > 600 { // a row group of each of two workers
		t.Errorf("export took %d MiB", peak)
	}
}
