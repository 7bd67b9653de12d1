package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// freshTiers brings the tiers up to date before they are rated and says as of when:
// a watermark that was set later stands for input which they have not taken up.
// Without it an ingest that has just drained what came in during an outage would have
// hours rated of which the tiers hold nothing yet. It is zero, for any watermark, where
// views are stopped, which is said: whoever does that fills the tiers by 'rollup'. On a
// cluster the views of the other nodes are left to their ten minutes.
func (p *program) freshTiers(ctx context.Context, s *store.Store) (asOf time.Time, err error) {
	if err := s.CheckSchema(ctx); err != nil {
		return asOf, err
	}
	views, err := s.TierViews(ctx)
	if err != nil {
		return asOf, err
	}
	stopped := false
	for _, v := range views {
		if v.Stopped() {
			stopped = true
			p.log.WarnContext(ctx, "a view that fills a tier is stopped; usage that it did not take up is not rated yet", "view", v.View, "hint", "SYSTEM START VIEW "+v.View+", or 'ratebatch rollup'")
		}
	}
	if stopped || len(views) == 0 {
		return asOf, nil
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
