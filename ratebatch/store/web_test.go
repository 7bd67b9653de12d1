package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// Pages of lines hold every line once and in order, however long a page is: also
// where a page ends among lines that the table's own order does not tell apart,
// and of some lines only.
func TestPagesOfLinesHoldEachLineOnce(t *testing.T) {
	s := storetest.Fresh(t)
	for _, text := range []string{
		// Two scopes and hours, two metrics, two resources; each three times, apart by
		// region or attributes or part; and lines of an attempt that does not count.
		`INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, bucket, part, revision)
		 SELECT toUUID(run), ['one', 'two', 'one'][k + 1], concat('s', toString(a)), toDateTime('2026-11-03 00:00:00', 'UTC') + 3600 * b AS at, at + 3600, concat('m', toString(c)), concat('r', toString(d)), map('flavor', ['x', 'x', 'y'][k + 1]), 'u', 1, 1, if(c = 1 AND d = 1, 'unpriced', ''), k % 2, 1
		 FROM (SELECT number % 2 AS a, intDiv(number, 2) % 2 AS b, intDiv(number, 4) % 2 AS c, intDiv(number, 8) % 2 AS d, intDiv(number, 16) AS k FROM numbers(48))
		 ARRAY JOIN ['00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002'] AS run`,
		`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency) SELECT DISTINCT scope, begin, end, 1, 'rated', run_id, 'EUR' FROM rated_lines WHERE run_id = toUUID('00000000-0000-4000-8000-000000000001')`,
	} {
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	w := store.CostWindow{From: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 4, 0, 0, 0, 0, time.UTC)}
	read := func(page store.LinePage) (all []string) {
		t.Helper()
		for range 100 {
			list, places, err := s.Lines(t.Context(), page)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range list {
				if l.RunID != uuid.MustParse("00000000-0000-4000-8000-000000000001") {
					t.Fatalf("a line of an attempt that does not count: %+v", l)
				}
				all = append(all, fmt.Sprint(l.Scope, " ", l.Begin.Hour(), " ", l.Metric, " ", l.Resource, " ", l.Region, " ", l.Attributes, " ", l.Part))
			}
			if len(list) < page.Limit {
				return all
			}
			page.After = &places[len(places)-1]
		}
		t.Fatal("pages do not end")
		return nil
	}
	for name, tt := range map[string]struct {
		page store.LinePage
		want int
	}{
		"all":           {store.LinePage{}, 48},
		"of a scope":    {store.LinePage{Scope: "s1"}, 24},
		"of a metric":   {store.LinePage{Metric: "m1"}, 24},
		"of a resource": {store.LinePage{Scope: "s0", Resource: "r1"}, 12},
		"unpriced":      {store.LinePage{Bucket: "unpriced"}, 12},
		"none":          {store.LinePage{Metric: "m9"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			page := tt.page
			page.CostWindow, page.Limit = w, 1000
			whole := read(page)
			if len(whole) != tt.want {
				t.Fatalf("%d lines, want %d", len(whole), tt.want)
			}
			for _, limit := range []int{1, 2, 5, 47, 48, 49} {
				page.Limit = limit
				if diff := cmp.Diff(whole, read(page)); diff != "" {
					t.Errorf("%d a page: %s", limit, diff)
				}
			}
		})
	}
}

// A host's figures count the fullest row of each key, and only if that row says
// that the instance was on it.
func TestAHostsFiguresCountTheRowsThatStand(t *testing.T) {
	s := storetest.Fresh(t)
	const columns = `(bucket, region, instance_uuid, project_id, flavor_name, instance_name, host, samples, samples_ended, covered_seconds, refreshed_at, `
	row := func(instance int, flavor, host string, samples int, refreshed string) string {
		return fmt.Sprintf(`('2026-11-03 05:00:00', 'one', '00000000-0000-4000-8000-%012d', 'p%d', '%s', 'vm-%d', '%s', %d, %d, 3600, '2026-11-03 %s', `, instance, instance, flavor, instance, host, samples, samples, refreshed)
	}
	for _, x := range []struct {
		instance, samples, bytes        int
		flavor, host, refreshed, reason string
	}{
		{1, 30, 360_000, "m1", "h1", "06:00:00", "a row that a fuller one replaced"},
		{1, 60, 720_000, "m1", "h1", "06:05:00", "the fuller one"},
		{1, 60, 7_200, "m2", "h1", "06:05:00", "after a resize: a row of its own"},
		{2, 30, 36_000_000, "m1", "h1", "06:00:00", "was on h1 when the hour was half over"},
		{2, 60, 72_000_000, "m1", "h2", "06:05:00", "and on h2 when it was"},
		{3, 60, 3_600, "m1", "h1", "06:05:00", "inserted last and equally full, but older"},
		{3, 60, 36_000, "m1", "h1", "06:10:00", "the newer of two"},
	} {
		for _, text := range []string{
			`INSERT INTO instance_metrics_hourly ` + columns + `cpu_pct_avg) VALUES ` + row(x.instance, x.flavor, x.host, x.samples, x.refreshed) + `10)`,
			`INSERT INTO port_volume_hourly ` + columns + `port_uuid, rx_bytes, tx_bytes) VALUES ` + row(x.instance, x.flavor, x.host, x.samples, x.refreshed) + fmt.Sprintf(`'00000000-0000-5000-8000-%012d', %d, 0)`, x.instance, x.bytes),
			`INSERT INTO disk_metrics_hourly ` + columns + `device, read_bytes, write_bytes) VALUES ` + row(x.instance, x.flavor, x.host, x.samples, x.refreshed) + fmt.Sprintf(`'vda', 0, %d)`, x.bytes),
		} {
			if err := s.Conn().Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := store.UsageFilter{Region: "one", Host: "h1", From: time.Date(2026, 11, 3, 5, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 3, 6, 0, 0, 0, time.UTC)}
	disk, points, err := s.NodePoints(t.Context(), store.TierHourly, f)
	if err != nil || len(points) != 1 {
		t.Fatalf("%d points, %v", len(points), err)
	}
	// Instance 1: 727,200 bytes in the 7,200 s of both its rows; instance 3: 36,000 in 3,600 s.
	if got := *points[0].Values[0]; got != 111 {
		t.Errorf("received %v bytes/s, want 111", got)
	}
	if len(disk) != 1 || *disk[0].Values[1] != 111 {
		t.Errorf("disk: %+v, want 111 bytes/s written", disk)
	}
	list, err := s.NodeInstances(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]uint64{}
	for _, x := range list {
		got[x.Instance.Name] = [2]uint64{x.NetworkBytes, x.DiskBytes}
	}
	if diff := cmp.Diff(map[string][2]uint64{"vm-1": {727_200, 727_200}, "vm-3": {36_000, 36_000}}, got); diff != "" {
		t.Error(diff)
	}
	f.Project = "p3"
	if _, points, err = s.NodePoints(t.Context(), store.TierHourly, f); err != nil || len(points) != 1 || *points[0].Values[0] != 10 {
		t.Errorf("one project's: %+v, %v, want 10 bytes/s", points, err)
	}
}

// Usage without a price is added up by unit: of a metric whose unit was changed
// there are two.
func TestUnpricedUsageIsOfOneUnit(t *testing.T) {
	s := storetest.Fresh(t)
	for _, text := range []string{
		`INSERT INTO rated_lines (run_id, scope, begin, end, metric, resource, unit, qty, bucket, rule) SELECT toUUID('00000000-0000-4000-8000-000000000001'), 'a', toDateTime('2026-11-03 00:00:00', 'UTC') AS at, at + 3600, 'm', toString(number), if(number < 2, 'MiB', 'GiB'), if(number < 2, 1024, 1), 'unpriced', 'no rule' FROM numbers(3)`,
		`INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency) SELECT DISTINCT scope, begin, end, 1, 'rated', run_id, 'EUR' FROM rated_lines`,
	} {
		if err := s.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	w := store.CostWindow{From: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 4, 0, 0, 0, 0, time.UTC)}
	list, total, err := s.UnpricedUsage(t.Context(), w, "", 10, 0)
	var got []string
	for _, x := range list {
		got = append(got, fmt.Sprint(x.Qty, " ", x.Unit, " in ", x.Lines))
	}
	if diff := cmp.Diff([]string{"2048 MiB in 2", "1 GiB in 1"}, got); diff != "" || err != nil || total != 2 {
		t.Errorf("%d rows, %v: %s", total, err, diff)
	}
}
