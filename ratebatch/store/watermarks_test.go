package store_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// at is an hour of November 2026.
func at(day, hour int) time.Time { return time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC) }

// executes gives a way to run statements that have to work.
func executes(t *testing.T, s *store.Store) func(text string, params store.Params) {
	return func(text string, params store.Params) {
		t.Helper()
		if err := s.Conn().Exec(store.WithParams(t.Context(), params), text); err != nil {
			t.Fatal(err)
		}
	}
}

// The rate job asks for the marks of the regions that have usage, and history is
// read for them only when one of them has been silent for days. Whatever is
// read, a region's mark is what the whole says.
func TestWatermarksOfRegionsAreThoseOfTheWhole(t *testing.T) {
	s := storetest.Fresh(t)
	exec := executes(t, s)
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

// A region follows its samples only where nothing better is known of it, and then
// the slowest of the kinds that it sends.
func TestWatermarksThatFollowSamples(t *testing.T) {
	s := storetest.Fresh(t)
	exec := executes(t, s)
	sample := func(table, region string, ts, arrived time.Time) {
		t.Helper()
		exec("INSERT INTO "+table+" (ts, region, ingested_at) SELECT {at:DateTime('UTC')}, {region:String}, {arrived:DateTime('UTC')}", store.Params{"at": ts, "region": region, "arrived": arrived})
	}
	check := func(what string, asOf time.Time, region string, until time.Time, source string) {
		t.Helper()
		if asOf.IsZero() {
			whole, err := s.Watermarks(t.Context())
			if err != nil || !whole[region].CompleteUntil.Equal(until) || whole[region].Source != source {
				t.Errorf("%s, as a whole: %+v, %v; want %s by %s", what, whole[region], err, until, source)
			}
		}
		got, err := s.WatermarksOf(t.Context(), []store.ScopeUsage{{Region: region}}, asOf)
		if err != nil || !got[region].CompleteUntil.Equal(until) || got[region].Source != source {
			t.Errorf("%s: %+v, %v; want %s by %s", what, got[region], err, until, source)
		}
	}
	arrived := at(20, 12)
	sample("instance_samples", "all kinds", at(20, 10), arrived)
	sample("port_samples", "all kinds", at(20, 7), arrived)
	sample("disk_samples", "all kinds", at(20, 9), arrived)
	check("the slowest kind counts", time.Time{}, "all kinds", at(20, 7), "newest sample")
	sample("port_samples", "one kind", at(20, 8), arrived)
	check("a kind that was never sent holds nothing up", time.Time{}, "one kind", at(20, 8), "newest sample")
	sample("instance_samples", "lags", at(20, 6), arrived)
	sample("disk_samples", "lags", at(18, 6), arrived)
	check("a kind of two days ago is waited for", time.Time{}, "lags", at(18, 6), "newest sample")
	sample("instance_samples", "stopped", at(20, 6), arrived)
	sample("disk_samples", "stopped", at(18, 5), arrived)
	check("a kind of before is no longer sent", time.Time{}, "stopped", at(20, 6), "newest sample")
	sample("instance_samples", "lags behind others", at(19, 6), arrived)
	sample("disk_samples", "lags behind others", at(17, 8), arrived)
	check("its kinds are compared with each other", time.Time{}, "lags behind others", at(17, 8), "newest sample")
	exec("INSERT INTO disk_metrics_hourly (bucket, region, project_id) SELECT {at:DateTime('UTC')}, 'of hours too', 'p'", store.Params{"at": at(20, 4)})
	sample("instance_samples", "of hours too", at(20, 6), arrived)
	check("a kind without samples counts by its hours", time.Time{}, "of hours too", at(20, 4), "newest hour")

	// What arrived after the tiers were brought up to date they lack.
	sample("instance_samples", "arrives", at(20, 6), at(20, 11))
	sample("instance_samples", "arrives", at(20, 9), arrived)
	check("what arrived until then counts", arrived.Add(time.Second), "arrives", at(20, 9), "newest sample")
	check("what arrived since does not", arrived, "arrives", at(20, 6), "newest sample")

	run := uuid.New()
	progress := func(source string, drained time.Time, gone bool, regions ...string) {
		t.Helper()
		row := store.Progress{Topic: "port-stats", TopicID: uuid.New(), DrainedAt: drained, Regions: append([]string{}, regions...), Gone: gone}
		if err := s.SetIngestProgress(t.Context(), source, run, []store.Progress{row}); err != nil {
			t.Fatal(err)
		}
	}
	never := time.Unix(0, 0).UTC()
	progress("a/b", never, false)
	check("a partition that was not read may hold anything", time.Time{}, "one kind", never, "ingest has not drained a/b yet")
	progress("a/b", at(20, 11), false, "all kinds")
	check("ingest reads another region", time.Time{}, "one kind", at(20, 8), "newest sample")
	check("ingest reads it and has set none", time.Time{}, "all kinds", never, "ingest has not drained it yet")
	if err := s.SetWatermark(t.Context(), store.Watermark{Region: "all kinds", CompleteUntil: at(20, 11), Source: "ingest"}, "test"); err != nil {
		t.Fatal(err)
	}
	check("ingest has set one", time.Time{}, "all kinds", at(20, 11), "ingest")
	if err := s.SetWatermark(t.Context(), store.Watermark{Region: "all kinds", CompleteUntil: never, Source: "unset"}, "test"); err != nil {
		t.Fatal(err)
	}
	check("it was taken back", time.Time{}, "all kinds", never, "ingest has not drained it yet")
	progress("a/b", never, true, "all kinds")
	check("the source is gone", time.Time{}, "all kinds", at(20, 7), "newest sample")
}
