package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// freshTiers brings the tiers up to date before they are rated and says as of when:
// a watermark that was set later stands for input which they have not taken up.
// Without it an ingest that has just drained what came in during an outage would have
// hours rated of which the tiers hold nothing yet. It is zero, for any watermark, where
// there are no views. One that is stopped leaves its tier to 'rollup', and changes
// nothing for the others; of one that rating reads that is said. On a cluster the views of
// the other nodes are left to their ten minutes.
func (p *program) freshTiers(ctx context.Context, s *store.Store, job *rate.Job) (asOf time.Time, err error) {
	if err := s.CheckSchema(ctx); err != nil {
		return asOf, err
	}
	views, err := s.TierViews(ctx)
	if err != nil || len(views) == 0 {
		return asOf, err
	}
	tables, err := job.UsageTables(ctx)
	if err != nil {
		return asOf, err
	}
	for _, v := range views {
		if v.Stopped() && slices.ContainsFunc(tables, func(t store.UsageTable) bool { return t.Table == v.Table() }) {
			p.log.WarnContext(ctx, "a view that fills a tier is stopped: periods are rated by what the tier holds, and what it did not take up becomes late usage",
				"view", v.View, "hint", "run 'ratebatch rollup' before 'rate', or SYSTEM START VIEW "+v.View)
		}
	}
	now, err := s.Now(ctx)
	if err != nil {
		return asOf, err
	}
	if err := s.RefreshTiers(ctx); err != nil {
		return asOf, &ratebatch.TryAgainError{Err: fmt.Errorf("bring the tiers up to date: %w", err), Hint: "nothing was rated; run the same command again, or 'ratebatch rollup' first; on a server the user needs SYSTEM VIEWS on the database"}
	}
	return now, nil
}
