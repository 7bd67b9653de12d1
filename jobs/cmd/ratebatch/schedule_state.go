package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/schedules"
)

// scheduleState keeps a daemon's turn in the table leases and its runs in the run
// log. ClickHouse may be away when the daemon starts and at any time later.
type scheduleState struct {
	p     *program
	e     *engine.Engine
	lease *jobs.Lease
	store atomic.Pointer[store.Store] // runs that end use it too
}

// open connects, again where the embedded engine is gone.
func (x *scheduleState) open(ctx context.Context) (*store.Store, error) {
	if x.e != nil && x.e.Lost() != nil {
		select {
		case <-x.e.Lost():
			x.close(ctx)
		default:
		}
	}
	if x.e == nil {
		e, err := engine.Open(ctx, x.p.engine)
		if err != nil {
			return nil, err
		}
		s := store.New(e.Conn(), e.Database())
		if err := s.CheckSchema(ctx); err != nil {
			_ = e.Close()
			return nil, err
		}
		x.e = e
		x.store.Store(s)
	}
	return x.store.Load(), nil
}

// Turn implements schedules.State.
func (x *scheduleState) Turn(ctx context.Context) (bool, error) {
	s, err := x.open(ctx)
	if err != nil {
		return false, err
	}
	if x.lease != nil {
		held, err := x.lease.Held(ctx)
		if err == nil && !held {
			err = x.lease.Release(ctx)
			x.lease = nil
		}
		return held, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	lease, err := jobs.Acquire(ctx, s, x.p.log, "schedule", id)
	if errors.Is(err, ratebatch.ErrLeaseHeld) {
		return false, nil
	}
	x.lease = lease
	return err == nil, err
}

// LastSlots implements schedules.State.
func (x *scheduleState) LastSlots(ctx context.Context) (map[string]time.Time, error) {
	s, err := x.open(ctx)
	if err != nil {
		return nil, err
	}
	return s.ScheduleSlots(ctx)
}

// Note implements schedules.State. Several runs may end at once: it uses the
// connection as it is and opens none.
func (x *scheduleState) Note(ctx context.Context, r *schedules.Record) error {
	s := x.store.Load()
	if s == nil {
		return errors.New("ClickHouse was never reached")
	}
	run, begun := r.ID.(*jobs.Run)
	if !begun {
		var err error
		if run, err = jobs.Start(ctx, s, store.ScheduleJob(r.Job), r.Args, version, r.Start); err != nil {
			return err
		}
		r.ID = run
	}
	if r.End.IsZero() {
		return nil
	}
	err := r.Err
	if err == nil && !r.Good() {
		err = fmt.Errorf("exit code %d", r.Exit)
	}
	counts := map[string]string{"exit": fmt.Sprint(r.Exit), "tries": fmt.Sprint(r.Tries), "missed": fmt.Sprint(r.Missed)}
	if !errors.Is(r.Err, context.Canceled) {
		counts["slot"] = r.Slot.UTC().Format(time.RFC3339) // else the next daemon makes up for it
	}
	return run.End(ctx, counts, err)
}

// close gives the turn back and leaves ClickHouse.
func (x *scheduleState) close(ctx context.Context) {
	if x.lease != nil {
		if err := x.lease.Release(ctx); err != nil {
			x.p.log.WarnContext(ctx, "release the lease", "error", err)
		}
		x.lease = nil
	}
	if x.e != nil {
		if err := x.e.Close(); err != nil {
			x.p.log.WarnContext(ctx, "close", "error", err)
		}
		x.e = nil
	}
}
