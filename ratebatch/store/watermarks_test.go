package store_test

import (
	"maps"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// The rate job asks for the marks of the regions that have usage, and history is
// read for them only when one of them has been silent for days. Whatever is
// read, a region's mark is what the whole says.
func TestWatermarksOfRegionsAreThoseOfTheWhole(t *testing.T) {
	s := storetest.Fresh(t)
	at := func(day, hour int) time.Time { return time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC) }
	exec := func(text string, params store.Params) {
		t.Helper()
		if err := s.Conn().Exec(store.WithParams(t.Context(), params), text); err != nil {
			t.Fatal(err)
		}
	}
	hour := "INSERT INTO instance_metrics_hourly (bucket, region, project_id) SELECT {at:DateTime('UTC')}, {region:String}, 'p'"
	exec("ALTER TABLE instance_metrics_hourly REMOVE TTL", nil)
	exec("ALTER TABLE instance_samples REMOVE TTL", nil)
	exec(hour, store.Params{"at": at(20, 5), "region": "talks"})
	exec(hour, store.Params{"at": at(19, 5), "region": "talked yesterday"})
	exec(hour, store.Params{"at": at(3, 7), "region": "silent"})
	exec(hour, store.Params{"at": at(2, 7), "region": "set"})
	exec("INSERT INTO instance_samples (ts, region) SELECT {at:DateTime('UTC')}, 'talks'", store.Params{"at": at(20, 6)})
	if err := s.SetWatermark(t.Context(), store.Watermark{Region: "set", CompleteUntil: at(9, 0), Source: "operator"}, "test"); err != nil {
		t.Fatal(err)
	}
	whole, err := s.Watermarks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Time{"talks": at(20, 6), "talked yesterday": at(19, 5), "silent": at(3, 7), "set": at(9, 0)}
	for region, until := range want {
		if !whole[region].CompleteUntil.Equal(until) {
			t.Errorf("region %s is complete until %v, want %v", region, whole[region], until)
		}
	}
	delete(whole, "silent")
	got, err := s.WatermarksOf(t.Context(), []store.ScopeUsage{{Region: "talks"}, {Region: "talked yesterday"}, {Region: "set"}}, time.Time{})
	if err != nil || !maps.Equal(got, whole) {
		t.Errorf("of those that talk: %v, %v; want %v", got, err, whole)
	}
	got, err = s.WatermarksOf(t.Context(), []store.ScopeUsage{{Region: "talks"}, {Region: "silent"}}, time.Time{})
	if err != nil || !got["silent"].CompleteUntil.Equal(at(3, 7)) || len(got) != len(want) {
		t.Errorf("with one that is silent: %v, %v", got, err)
	}
	got, err = s.WatermarksOf(t.Context(), []store.ScopeUsage{{Region: "never seen"}}, time.Time{})
	if _, ok := got["never seen"]; err != nil || ok || len(got) != len(want) {
		t.Errorf("with one that never was: %v, %v", got, err)
	}
	// What was set after the tiers were brought up to date is of input that they lack.
	tiersAsOf, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetWatermark(t.Context(), store.Watermark{Region: "set", CompleteUntil: at(21, 0), Source: "ingest"}, "test"); err != nil {
		t.Fatal(err)
	}
	for asOf, until := range map[time.Time]time.Time{tiersAsOf: at(9, 0), {}: at(21, 0)} {
		got, err = s.WatermarksOf(t.Context(), []store.ScopeUsage{{Region: "set"}}, asOf)
		if err != nil || !got["set"].CompleteUntil.Equal(until) {
			t.Errorf("as of %v: %v, %v; want %v", asOf, got["set"], err, until)
		}
	}
}
