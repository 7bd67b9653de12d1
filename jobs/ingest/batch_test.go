package ingest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
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
	d, b := newDecoder(wire.DefaultTopics()), newBatch()
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

func BenchmarkDecode(b *testing.B) {
	records := someRecords(b, 2000)
	d, batch := newDecoder(wire.DefaultTopics()), newBatch()
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
