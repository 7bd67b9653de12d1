package ingest_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

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

// marks are the watermarks of all regions; where a whole and a short look differ
// the test fails.
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
