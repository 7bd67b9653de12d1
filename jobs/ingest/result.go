package ingest

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Region is one that came through ingest, and up to when it is complete.
type Region struct {
	Region    string    `json:"region"`
	Watermark time.Time `json:"watermark"` // 1970: none yet

	WaitsFor string    `json:"waits_for,omitempty"` // another source, which is far behind; it may be gone for good
	Drained  time.Time `json:"drained,omitzero"`    // up to when that one is; 1970: never
}

// Result is what a run did: one object, printed by ingest --output json.
type Result struct {
	RunID      uuid.UUID          `json:"run_id"`
	Records    uint64             `json:"records"` // that were read, stored and committed
	Samples    map[string]uint64  `json:"samples"` // of them, by kind
	Late       uint64             `json:"late"`
	Rejected   uint64             `json:"rejected"`
	Losses     []store.Loss       `json:"losses"`
	Regions    []Region           `json:"regions"`
	Silent     []store.SilentHost `json:"silent_hosts"`
	Batches    uint64             `json:"batches"`
	Retries    uint64             `json:"retries"`
	Rebalances uint64             `json:"rebalances"`
	Seconds    float64            `json:"seconds"`
	Total      uint64             `json:"-"` // records that waited when partitions were given to us
}

// leftOver is the error of a run that is done but not clean: exit 3.
func (r *Result) leftOver() error {
	switch {
	case len(r.Losses) > 0:
		x := r.Losses[0]
		return fmt.Errorf("%w: records were lost in Kafka in %d places, the first is %s/%d from offset %d: %s", ratebatch.ErrRejected, len(r.Losses), x.Topic, x.Partition, x.FromOffset, x.Detail)
	case r.Rejected > 0:
		return fmt.Errorf("%w: %d records did not decode; they are in the table rejected_records, with their reasons", ratebatch.ErrRejected, r.Rejected)
	}
	return nil
}

// Counts is a result as the run log keeps it.
func (r *Result) Counts() map[string]string {
	counts := map[string]string{
		"records": fmt.Sprint(r.Records), "late": fmt.Sprint(r.Late), "rejected": fmt.Sprint(r.Rejected), "losses": fmt.Sprint(len(r.Losses)),
		"silent_hosts": fmt.Sprint(len(r.Silent)), "batches": fmt.Sprint(r.Batches), "retries": fmt.Sprint(r.Retries),
	}
	for kind, n := range r.Samples {
		counts[kind+"_samples"] = fmt.Sprint(n)
	}
	return counts
}
