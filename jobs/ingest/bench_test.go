package ingest_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
)

// BenchmarkIngest reads the same records again and again, the broker in this
// process: for profiles. 'ratebatch bench --only ingest' has the figures.
func BenchmarkIngest(b *testing.B) {
	p := newPipe(b, 6, kafkatest.Config{})
	sent, err := (simulate.Cloud{Projects: 50, Instances: 8000, Cycles: 9, Begin: time.Now().Add(-3 * time.Hour)}).Produce(b.Context(), p.client, p.topics, nil)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		p.options.Group = p.broker.Name(fmt.Sprint("group-", n))
		job := p.job()
		job.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		result, err := job.Run(b.Context(), uuid.New())
		if err != nil || int64(result.Records) != sent.Total() {
			b.Fatal(result, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(sent.Total()), "ns/record")
}
