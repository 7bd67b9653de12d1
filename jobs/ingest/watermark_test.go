package ingest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// inRegion gives the samples to a region.
func inRegion(b simulate.Batch, region string) simulate.Batch {
	for i := range b.Instances {
		b.Instances[i].Region = region
	}
	for i := range b.Ports {
		b.Ports[i].Region = region
	}
	for i := range b.Disks {
		b.Disks[i].Region = region
	}
	return b
}

// marks are the watermarks of all regions.
func (p *pipe) marks() map[string]store.Watermark {
	p.Helper()
	marks, err := p.store.Watermarks(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return marks
}

// What has landed while a run is still reading says nothing about what is to
// come: rated then, an hour would lack a part of its usage.
func TestNoRegionIsCompleteBeforeItsTopicsAreDrained(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	p.options.BatchRecords = 500
	landed := 0
	drain := func(what, region string) {
		t.Helper()
		landed = 0
		job := p.job()
		job.Progress = func(ingest.Result) {
			landed++
			if p.number("SELECT count() FROM port_samples WHERE region = '"+region+"'")+p.number("SELECT count() FROM instance_samples WHERE region = '"+region+"'") == 0 {
				return
			}
			if mark := p.marks()[region]; mark.CompleteUntil.Unix() != 0 {
				t.Errorf("%s, after batch %d: region %s is complete until %s (%s)", what, landed, region, mark.CompleteUntil, mark.Source)
			}
		}
		if _, err := job.Run(t.Context(), uuid.New()); err != nil {
			t.Fatal(err)
		}
		if landed < 3 {
			t.Fatalf("%s: only %d batches", what, landed)
		}
		if mark := p.marks()[region]; mark.Source != "ingest" || time.Since(mark.CompleteUntil) > time.Minute+p.options.Allowance {
			t.Errorf("%s, when all is drained: %+v", what, mark)
		}
	}
	p.send(inRegion(batches(t, cloud(2, simulate.Faults{})), "first"))
	drain("a fresh installation", "first")
	p.send(inRegion(batches(t, cloud(2, simulate.Faults{})), "second"))
	drain("a new region", "second")
	if err := p.store.SetWatermark(t.Context(), store.Watermark{Region: "first", CompleteUntil: time.Unix(0, 0), Source: "unset"}, "test"); err != nil {
		t.Fatal(err)
	}
	p.send(inRegion(batches(t, cloud(3, simulate.Faults{})), "first"))
	drain("taken back while ingest is behind", "first")
}

// A topic that was renamed holds the watermark until it is drained, and not longer.
func TestATopicThatWasRenamedHoldsTheWatermarkUntilItIsDrained(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{})
	all := pieces(batches(t, cloud(1, simulate.Faults{})), 5)
	old := p.topics
	rename := func(to wire.Topics) { p.topics, p.options.Topics = to, to }
	another := func() wire.Topics {
		t.Helper()
		topics := p.topics
		for _, name := range []*string{&topics.Port, &topics.Instance, &topics.Disk} {
			*name += "-n"
		}
		if r, err := p.broker.Admin(t).CreateTopics(t.Context(), 2, -1, nil, topics.All()...); err != nil || r.Error() != nil {
			t.Fatal(err, r.Error())
		}
		p.broker.Forget(t, topics.All()...)
		return topics
	}
	at := func() time.Time { return p.marks()["RegionOne"].CompleteUntil }
	stays := func(why string) {
		t.Helper()
		before := at()
		p.drain()
		if got := at(); !got.Equal(before) {
			t.Errorf("%s: the watermark went from %s to %s", why, before, got)
		}
	}
	goesOn := func(why string) ingest.Result {
		t.Helper()
		before := at()
		time.Sleep(1100 * time.Millisecond) // watermarks are whole seconds
		result := p.drain()
		if got := at(); !got.After(before) {
			t.Errorf("%s: the watermark stays at %s", why, before)
		}
		return result
	}
	p.send(all[0])
	p.drain()
	renamed := another()
	rename(renamed)
	p.send(all[1])
	stays("agents may still write to the old name")
	p.options.Allowance = 100 * time.Millisecond
	// An ingest that still has the old names, in the same group, is not passed over.
	rename(old)
	p.options.Follow = true
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := p.inBackground(ctx)
	p.until("the other reads", func() bool {
		members, err := p.broker.Admin(t).DescribeGroups(t.Context(), p.options.Group)
		return err == nil && members.AssignedPartitions().Lookup(old.Port, 0)
	})
	rename(renamed)
	p.options.Follow = false
	p.drain()
	live := func(topics wire.Topics) uint64 {
		return p.number("SELECT count() FROM ingest_progress FINAL WHERE NOT gone AND source LIKE '%/" + p.options.Group + "' AND topic IN ('" + strings.Join(topics.All(), "', '") + "')")
	}
	if n := live(old); n != 6 {
		t.Errorf("%d partitions of the old topics count while a member reads them, want 6", n)
	}
	stop()
	p.wait(done)

	p.produce(records(old, all[2])...)
	p.sent.Ports, p.sent.Instances, p.sent.Disks = append(p.sent.Ports, all[2].Ports...), append(p.sent.Instances, all[2].Instances...), append(p.sent.Disks, all[2].Disks...)
	stays("the old topics have records that nobody has read")
	rename(old)
	p.drain()
	rename(renamed)
	time.Sleep(200 * time.Millisecond)
	if result := goesOn("the old topics are drained"); len(result.Losses) != 0 {
		t.Errorf("losses %+v of what was read", result.Losses)
	}
	if n := live(old); n != 0 {
		t.Errorf("%d partitions of drained topics still count", n)
	}
	p.everySample()

	// What was not read and is deleted is lost: with its topic, or by its age.
	third := another()
	p.send(all[3])
	if r, err := p.broker.Admin(t).DeleteTopics(t.Context(), renamed.All()...); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	rename(third)
	result := goesOn("the topics are deleted")
	if len(result.Losses) != 6 || result.Losses[0].Cause != "deleted" || result.Losses[0].TopicID == uuid.Nil {
		t.Errorf("losses %+v, want one of each of six partitions that are deleted", result.Losses)
	}
	fourth := another()
	p.send(all[4])
	ends, err := p.broker.Admin(t).ListEndOffsets(t.Context(), third.All()...)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.broker.Admin(t).DeleteRecords(t.Context(), ends.Offsets()); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	rename(fourth)
	result = goesOn("the records have expired")
	lost := int64(0)
	for _, x := range result.Losses {
		if x.Cause != "expired" {
			t.Errorf("loss %+v", x)
		}
		lost += x.ToOffset - x.FromOffset
	}
	if lost != int64(all[4].Len()) {
		t.Errorf("losses %+v of %d records, want %d", result.Losses, lost, all[4].Len())
	}
	if again := goesOn("nothing is left"); len(again.Losses) != 0 {
		t.Errorf("the next run reports it again: %+v", again.Losses)
	}
}

// Another group's progress holds a region up to when somebody strikes it out; who
// it is that the region waits for is said.
func TestARegionNamesTheSourceThatItWaitsFor(t *testing.T) {
	p := newPipe(t, 1, kafkatest.Config{})
	p.send(batches(t, cloud(1, simulate.Faults{})))
	const elsewhere = "another cluster/group"
	drained := time.Now().Add(-59 * time.Minute).UTC().Truncate(time.Millisecond)
	set := func() {
		t.Helper()
		rows := []store.Progress{{Topic: "a", DrainedAt: drained, Regions: []string{"RegionOne"}}, {Topic: "b", DrainedAt: time.Now().UTC(), Regions: []string{}}}
		if err := p.store.SetIngestProgress(t.Context(), elsewhere, uuid.New(), rows); err != nil {
			t.Fatal(err)
		}
	}
	set()
	if r := p.drain(); len(r.Regions) != 1 || r.Regions[0].WaitsFor != "" {
		t.Errorf("a source that is a little behind: %+v", r.Regions)
	}
	drained = drained.Add(-2 * time.Minute)
	set()
	if r := p.drain(); len(r.Regions) != 1 || r.Regions[0].WaitsFor != elsewhere || !r.Regions[0].Drained.Equal(drained) {
		t.Errorf("a source that is an hour behind: %+v", r.Regions)
	}
	if struck, err := p.store.ForgetSource(t.Context(), elsewhere, "b"); err != nil || len(struck) != 1 {
		t.Errorf("struck %+v, %v; want the topic", struck, err)
	}
	if sources, err := p.store.IngestSources(t.Context()); err != nil || len(sources) != 2 || sources[0].Source != elsewhere && sources[1].Source != elsewhere {
		t.Errorf("sources %+v, %v", sources, err)
	}
	if struck, err := p.store.ForgetSource(t.Context(), elsewhere, ""); err != nil || len(struck) != 1 {
		t.Errorf("struck %+v, %v; want the other topic", struck, err)
	}
	if r := p.drain(); len(r.Regions) != 1 || r.Regions[0].WaitsFor != "" || time.Since(r.Regions[0].Watermark) > time.Minute+p.options.Allowance {
		t.Errorf("without it: %+v", r.Regions)
	}
}
