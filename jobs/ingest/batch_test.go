package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

func someRecords(tb testing.TB, instances int) []*kgo.Record {
	tb.Helper()
	var out []*kgo.Record
	for r, err := range (simulate.Cloud{Instances: instances, Cycles: 12, Begin: time.Now().Add(-time.Hour)}).Records(wire.DefaultTopics()) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Offset: int64(len(out))})
	}
	return out
}

// A record becomes a row without an allocation of its own, but for what the
// decoder hands out for values that may be null.
func TestDecodingAllocatesLessThanOncePerRecord(t *testing.T) {
	records := someRecords(t, 50)
	d, b := newDecoder(wire.DefaultTopics()), newBatch(nil)
	fill := func() {
		b.reset()
		b.now = time.Now()
		for _, r := range records {
			d.add(b, r)
		}
	}
	fill()
	if len(b.rejected) != 0 || b.records != len(records) {
		t.Fatalf("%d of %d records were rejected: %+v", len(b.rejected), len(records), b.rejected[:1])
	}
	if n := testing.AllocsPerRun(5, fill) / float64(len(records)); n >= 1 {
		t.Errorf("%.2f allocations per record, want less than one", n)
	}
}

// Ten minutes without ClickHouse are waited out, with pauses that grow to half a
// minute; a quarter of an hour ends the run with 75.
func TestTenMinutesOfRefusalAreWaitedOut(t *testing.T) {
	for away, passes := range map[time.Duration]bool{10 * time.Minute: true, 16 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			j := &Job{Log: slog.New(slog.DiscardHandler), Options: DefaultOptions(), Now: time.Now}
			began, tries := time.Now(), 0
			err := j.retry(t.Context(), "write to port_samples", func(context.Context) error {
				tries++
				if time.Since(began) < away {
					return fmt.Errorf("insert: %w", syscall.ECONNREFUSED)
				}
				return nil
			})
			var again *ratebatch.TryAgainError
			if passes && err != nil || !passes && !errors.As(err, &again) {
				t.Errorf("away for %s: %v", away, err)
			}
			if took := time.Since(began); took < 10*time.Minute || took > j.Options.RetryFor+maxPause || tries > 45 || tries < 20 {
				t.Errorf("away for %s: %d tries in %s", away, tries, took)
			}
		})
	}
}

// Offsets are committed only where all below them is stored.
func TestABatchThatDoesNotFollowWhatIsStoredIsNotCommitted(t *testing.T) {
	at := place{"port-stats", 1}
	a := &assigned{next: 30, stored: 10}
	b := newBatch(nil)
	b.spans[at] = &span{first: 20, next: 30, of: a, from: 20}
	s := &session{parts: map[place]*assigned{at: a}, filling: b, spare: newBatch(nil)}
	for range 2 {
		if err := s.flush(); err == nil || !strings.Contains(err.Error(), "port-stats/1: the batch goes on at offset 20 and only what lies below 10 is stored") {
			t.Fatalf("%v, want an error that names the partition and the offsets", err)
		}
	}
	if s.flying != nil || a.stored != 10 {
		t.Errorf("it is being written all the same; stored %d", a.stored)
	}
}

// A batch that is made again when the cutoff has moved on lists the samples that
// have become late meanwhile, and each once for who reads.
func TestABatchThatIsRepeatedAfterTheCutoffMovedLosesNoSample(t *testing.T) {
	s := storetest.Open(t)
	records := someRecords(t, 4) // of twelve minutes, an hour ago
	d := newDecoder(wire.DefaultTopics())
	try := func(cutoff, now time.Time) (b *batch) {
		t.Helper()
		b = newBatch(nil)
		b.cutoff, b.now = cutoff, now
		for _, r := range records {
			d.add(b, r)
		}
		if err := s.InsertLate(t.Context(), b.late, b.token("late_samples")); err != nil {
			t.Fatal(err)
		}
		if err := s.SendPorts(t.Context(), b.ports, b.token("port_samples")); err != nil {
			t.Fatal(err)
		}
		return b
	}
	count := func(from string) (n int) {
		t.Helper()
		var got uint64
		if err := s.Conn().QueryRow(t.Context(), "SELECT count() FROM "+from).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return int(got)
	}
	now := time.Now()
	first, second := now.Add(-56*time.Minute), now.Add(-53*time.Minute)
	before, after := try(first, now), try(second, now)
	if len(before.late) == 0 || len(after.late) <= len(before.late) || len(after.late) == len(records) {
		t.Fatalf("%d late before and %d after, of %d", len(before.late), len(after.late), len(records))
	}
	if n := count("late_samples FINAL"); n != len(after.late) {
		t.Errorf("%d late samples are listed, want %d", n, len(after.late))
	}
	rows := count("late_samples")
	try(second, now)
	if n := count("late_samples"); n != rows {
		t.Errorf("%d rows after a repetition by the same cutoff, want %d", n, rows)
	}
	// A host's clock was a day ahead of ours, and ours has followed.
	s = storetest.Fresh(t)
	if early := try(time.Time{}, now.Add(-maxAhead-54*time.Minute)); len(early.rejected) == 0 || len(early.rejected) == len(records) {
		t.Fatalf("%d of %d records are too early", len(early.rejected), len(records))
	}
	if b := try(time.Time{}, now); count("port_samples FINAL") != b.ports.Rows() {
		t.Errorf("%d port samples are stored, want %d", count("port_samples FINAL"), b.ports.Rows())
	}
}

func BenchmarkDecode(b *testing.B) {
	records := someRecords(b, 2000)
	d, batch := newDecoder(wire.DefaultTopics()), newBatch(nil)
	b.ReportAllocs()
	for b.Loop() {
		batch.reset()
		batch.now = time.Now()
		for _, r := range records {
			d.add(batch, r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(records)), "ns/record")
}
