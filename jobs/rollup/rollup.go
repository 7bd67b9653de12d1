// Package rollup is the job that recomputes the tiers by hand: after an outage
// of the refreshable views, after an import, or on a server without them. It
// takes no lease: two rollups at once write the same rows, and a row that
// stands in a tier already is not written again.
package rollup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Job recomputes the tiers' buckets that begin in [From, To).
type Job struct {
	Store    *store.Store
	Log      *slog.Logger
	From, To time.Time // To zero: now
	Late     bool      // add late samples where raw ones have expired
	Now      func() time.Time
	Progress func(store.RollupProgress) // may be nil
}

// Plan says what Run would do, and writes nothing.
func (j *Job) Plan(ctx context.Context) (store.RollupPlan, error) {
	if err := j.Store.CheckSchema(ctx); err != nil {
		return store.RollupPlan{}, err
	}
	return j.Store.PlanRollup(ctx, store.RollupOptions{From: j.From, To: j.To})
}

// Run does what plan says.
func (j *Job) Run(ctx context.Context, id uuid.UUID, plan store.RollupPlan) (store.RollupResult, error) {
	log := j.Log.With(jobs.KeyRunID, id, jobs.KeyJob, "rollup")
	began := j.Now()
	log.InfoContext(ctx, "rollup starts", jobs.KeyPeriod, ratebatch.Period{Begin: plan.From, End: plan.To}, "statements", plan.Statements)
	if !plan.Before.IsZero() {
		log.WarnContext(ctx, "older buckets are left alone, because the raw tier may have lost samples of them", "before", plan.Before)
	}
	result, err := j.Store.RunRollup(ctx, plan, j.Progress)
	if err != nil {
		return result, err
	}
	if j.Late {
		late, err := j.Store.RollupLate(ctx, j.From, plan.To)
		if err != nil {
			return result, err
		}
		result.Late = &late
		log.InfoContext(ctx, "late samples were looked at", "from", late.From, "to", late.To, "added", late.Added, "added_in_part", late.Partly, "begin_before_from", late.Earlier, "came_again", late.Again, "cannot_be_told", late.Untold)
	}
	log.InfoContext(ctx, "rollup is done", "seconds", j.Now().Sub(began).Seconds(), "rows", result.Rows)
	return result, nil
}

// Counts is a result as the run log keeps it.
func Counts(r store.RollupResult) map[string]string {
	counts := map[string]string{"from": r.From.Format(time.RFC3339), "to": r.To.Format(time.RFC3339)}
	for tier, rows := range r.Rows {
		counts[tier] = fmt.Sprint(rows)
	}
	if r.Late != nil {
		counts["late_added"], counts["late_added_in_part"] = fmt.Sprint(r.Late.Added), fmt.Sprint(r.Late.Partly)
		counts["late_begin_before_from"] = fmt.Sprint(r.Late.Earlier)
		counts["late_came_again"], counts["late_cannot_be_told"] = fmt.Sprint(r.Late.Again), fmt.Sprint(r.Late.Untold)
	}
	return counts
}
