package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// lookBack is how long status shows what ingest had trouble with.
const lookBack = 7 * 24 * time.Hour

// ingestStatus is what became of the agents' records lately.
type ingestStatus struct {
	Silent   []store.SilentHost `json:"silent_hosts"`
	Losses   []store.Loss       `json:"losses"`
	Rejected uint64             `json:"rejected_records"`
	Late     uint64             `json:"late_samples"`
}

func readIngestStatus(ctx context.Context, s *store.Store, now time.Time) (ingestStatus, error) {
	var x ingestStatus
	var err error
	if x.Silent, err = s.SilentHosts(ctx, now.Add(-ingest.DefaultOptions().SilentAfter)); err != nil {
		return x, err
	}
	if x.Losses, err = s.Losses(ctx, now.Add(-lookBack)); err != nil {
		return x, err
	}
	x.Rejected, x.Late, err = s.IngestLeftovers(ctx, now.Add(-lookBack))
	return x, err
}

func printIngestStatus(p *program, x ingestStatus) {
	for _, l := range x.Losses {
		fmt.Fprintf(p.stdout, "LOST in Kafka, found %s: %s\n", l.FoundAt.UTC().Format(time.RFC3339), describeLoss(l))
	}
	if x.Rejected > 0 {
		fmt.Fprintf(p.stdout, "%d records did not decode in %d days: see the table rejected_records\n", x.Rejected, int(lookBack.Hours())/24)
	}
	if x.Late > 0 {
		fmt.Fprintf(p.stdout, "%d samples came too late for the tiers in %d days: see the table late_samples and 'ratebatch rollup --include-late'\n", x.Late, int(lookBack.Hours())/24)
	}
	printSilent(p, x.Silent)
}

// check says what an alarm should ring for: losses that were found lately.
func (x ingestStatus) check(now time.Time, within time.Duration) []error {
	var errs []error
	for _, l := range x.Losses {
		if now.Sub(l.FoundAt) <= within {
			errs = append(errs, &ratebatch.HaltError{Err: fmt.Errorf("records were lost in Kafka: %s", describeLoss(l)), Hint: "see docs/ingest.md: their usage cannot be rated"})
		}
	}
	return errs
}
