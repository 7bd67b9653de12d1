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
