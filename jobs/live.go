package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// claim is a lease as it is claimed now.
type claim struct {
	name, holder string
	live         bool
}

// claims lists the claimed leases. One whose holder is provably dead, or has been
// silent for a minute, is not live, as for who wants the lease.
func claims(ctx context.Context, s *store.Store) ([]claim, error) {
	return store.Collect(ctx, s, "lease_claims", nil, func(rows driver.Rows) (claim, error) {
		var c claim
		var silent float64
		err := rows.Scan(&c.name, &c.holder, &silent)
		c.live = silent <= leaseAfter.Seconds() && !provablyDead(c.holder)
		return c, err
	})
}

// Schedules lists every reprocessing schedule, oldest first. One that says running
// while its run is gone is pending: a killed run cannot write that itself.
func Schedules(ctx context.Context, s *store.Store) ([]store.Schedule, error) {
	list, err := s.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var claimed []claim
	for i := range list {
		x := &list[i]
		if x.State != store.ScheduleRunning {
			continue
		}
		if claimed == nil {
			if claimed, err = claims(ctx, s); err != nil {
				return nil, err
			}
		}
		live, by := false, "its run"
		for _, c := range claimed {
			// Schedules run under the lease of rate; those of earlier versions do not
			// name their run.
			if c.name != "rate" || x.RunID != uuid.Nil && !strings.HasSuffix(c.holder, " "+x.RunID.String()) {
				continue
			}
			live, by = live || c.live, describeHolder(c.holder)
		}
		if !live {
			x.State = store.SchedulePending
			x.Error = fmt.Sprintf("interrupted: %s is gone; 'ratebatch reprocess run' goes on from there", by)
		}
	}
	return list, nil
}

// Statuses lists the last run of each job. One that says running while its lease
// has nobody behind it was interrupted.
func Statuses(ctx context.Context, s *store.Store) ([]store.JobStatus, error) {
	list, err := s.JobStatuses(ctx)
	if err != nil {
		return nil, err
	}
	claimed, err := claims(ctx, s)
	if err != nil {
		return nil, err
	}
	for i := range list {
		x := &list[i]
		for _, c := range claimed {
			if x.State == "running" && !c.live && strings.HasSuffix(c.holder, " "+x.RunID.String()) {
				x.State, x.Error = "interrupted", describeHolder(c.holder)+", is gone"
			}
		}
	}
	return list, nil
}
