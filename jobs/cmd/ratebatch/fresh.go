package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// staleAfter is how old the newest refresh of a tier may be on a server that
// keeps its views going: three times the slowest one's interval.
const staleAfter = 30 * time.Minute

// freshTiers brings the tiers up to date before they are rated. The embedded
// engine refreshes its views only while it runs, so a job that starts it finds
// tiers from the last time. A server does it by itself; there a view that lags or
// fails is said, since rating would miss usage until late usage is found.
func (p *program) freshTiers(ctx context.Context, s *store.Store) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	views, err := s.TierViews(ctx)
	if err != nil {
		return err
	}
	stopped := false
	for _, v := range views {
		switch {
		case v.Stopped():
			stopped = true
			p.log.WarnContext(ctx, "a view that fills a tier is stopped; usage that it did not take up is not rated yet", "view", v.View, "hint", "SYSTEM START VIEW "+v.View+", or 'ratebatch rollup'")
		case p.engine.URL != "" && (v.Exception != "" || p.now().Sub(v.LastSuccess) > staleAfter):
			p.log.WarnContext(ctx, "a view that fills a tier lags; usage that it did not take up is not rated yet", "view", v.View, "last_success", v.LastSuccess, "exception", v.Exception)
		}
	}
	if p.engine.URL != "" || stopped || len(views) == 0 {
		return nil
	}
	if err := s.RefreshTiers(ctx); err != nil {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("bring the tiers up to date: %w", err), Hint: "nothing was rated; run the same command again, or 'ratebatch rollup' first"}
	}
	return nil
}
