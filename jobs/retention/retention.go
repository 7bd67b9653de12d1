// Package retention is the job that really removes what is old: the lines of
// attempts that never committed, revisions that another took the place of, lines
// of months long closed, and the run log. It never removes what counts and is not
// closed and exported.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Defaults of how long things are kept.
const (
	DefaultDead       = 24 * time.Hour
	DefaultSuperseded = 40 * 24 * time.Hour
	DefaultRuns       = 400 * 24 * time.Hour
	minDead           = time.Hour
)

// Options say how long things are kept.
type Options struct {
	Dead       time.Duration // attempts that committed nothing, from their begin on
	Superseded time.Duration // revisions, from the commit on that took their place
	Runs       time.Duration // rows of the run log
	Lines      time.Duration // lines of closed and exported months, from the month's end on; 0: for ever
	Unexported bool          // remove superseded revisions of months that were not exported since
	Now        time.Time
}

// Validate reports every value that cannot work.
func (o Options) Validate() error {
	var errs []error
	if o.Dead < minDead {
		errs = append(errs, fmt.Errorf("attempts are dead after %s: must be %s at least, or a slow run is taken for a dead one", o.Dead, minDead))
	}
	if o.Superseded < 0 || o.Runs < 24*time.Hour || o.Lines < 0 {
		errs = append(errs, fmt.Errorf("superseded %s, runs %s, lines %s: a time is negative, or shorter than a day for runs", o.Superseded, o.Runs, o.Lines))
	}
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// Job removes what is old.
type Job struct {
	Store    *store.Store
	Log      *slog.Logger
	Options  Options
	Calendar ratebatch.Calendar // of the months whose lines go
	// Alone runs something while no other job can correct or open a closed month; an
	// ErrLeaseHeld says that one does. nil: there is no other job.
	Alone func(ctx context.Context, do func(context.Context) error) error
}

// Plan is what would be removed.
type Plan struct {
	DeadAttempts uint64           `json:"dead_attempts"`
	DeadLines    uint64           `json:"dead_lines"`
	VoidLines    uint64           `json:"void_lines"`
	Superseded   store.Superseded `json:"superseded"`
	JobRuns      uint64           `json:"job_runs"`
	Months       []string         `json:"months,omitempty"`  // whose lines go; after Run, whose lines went
	Refused      []string         `json:"refused,omitempty"` // months that are old enough, and why they stay
	// GivenUp are places that lack deliveries which the months' lines are needed
	// for, and that got none for so long that they are not waited for.
	GivenUp []string `json:"given_up,omitempty"`

	Done bool `json:"-"` // Run came to its end, whatever it refused

	months []ratebatch.Month
	void   []uuid.UUID
}

// Plan says what would be removed. It writes nothing.
func (j *Job) Plan(ctx context.Context) (*Plan, error) {
	o := j.Options
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var p Plan
	var err error
	if p.DeadAttempts, p.DeadLines, err = j.Store.DeadAttempts(ctx, o.Now.Add(-o.Dead)); err != nil {
		return nil, err
	}
	if err := j.void(ctx, &p); err != nil {
		return nil, err
	}
	if p.Superseded, err = j.Store.Superseded(ctx, o.Now.Add(-o.Superseded), !o.Unexported); err != nil {
		return nil, err
	}
	if p.JobRuns, err = j.Store.OldJobRuns(ctx, o.Now.Add(-o.Runs)); err != nil {
		return nil, err
	}
	return &p, j.planMonths(ctx, &p)
}

func (j *Job) void(ctx context.Context, p *Plan) error {
	void, err := j.Store.VoidLines(ctx)
	p.void, p.VoidLines = nil, 0
	for _, v := range void {
		p.void = append(p.void, v.RunID)
		p.VoidLines += v.Lines
	}
	return err
}

// planMonths finds the months whose lines are old enough, and refuses those
// that are not closed, or that a delivery which was not made yet needs.
func (j *Job) planMonths(ctx context.Context, p *Plan) error {
	if j.Options.Lines == 0 {
		return nil
	}
	months, err := j.Store.LineMonths(ctx)
	if err != nil {
		return err
	}
	closed, err := j.Store.ClosedMonths(ctx)
	if err != nil {
		return err
	}
	all, err := j.deliveries(ctx)
	if err != nil {
		return err
	}
	for _, m := range months {
		month := j.Calendar.Named(m.Month)
		if month.To.Add(j.Options.Lines).After(j.Options.Now) {
			continue
		}
		if !m.Closed {
			p.Refused = append(p.Refused, month.String()+" is not closed")
			continue
		}
		why, givenUp, err := j.kept(ctx, m, closed, all)
		if err != nil {
			return err
		}
		if why != "" {
			p.Refused = append(p.Refused, month.String()+" "+why)
			continue
		}
		p.Months = append(p.Months, month.String())
		p.months = append(p.months, month)
		for _, s := range givenUp {
			text := fmt.Sprintf("%s: nothing was exported there since %s", s, s.newest.Format(time.DateOnly))
			if !slices.Contains(p.GivenUp, text) {
				p.GivenUp = append(p.GivenUp, text)
			}
		}
	}
	return nil
}

// dropAlone removes the lines of the plan's months, or of none while another job
// may correct or open one: then it gives what keeps it from that, for the end of a
// run that does everything else.
func (j *Job) dropAlone(ctx context.Context, p *Plan) (busy, err error) {
	months := p.months
	p.Months, p.months = nil, nil
	if len(months) == 0 {
		return nil, nil
	}
	drop := func(ctx context.Context) error { return j.dropMonths(ctx, p, months) }
	if j.Alone == nil {
		return nil, drop(ctx)
	}
	if err = j.Alone(ctx, drop); errors.Is(err, ratebatch.ErrLeaseHeld) {
		return err, nil
	}
	return nil, err
}

// dropMonths removes the lines of months that were planned. All is looked at once
// more: one that was opened or corrected since the plan was made, which may be hours
// ago, would lose the lines that are billed next.
func (j *Job) dropMonths(ctx context.Context, p *Plan, planned []ratebatch.Month) error {
	var now Plan
	if err := j.planMonths(ctx, &now); err != nil {
		return err
	}
	p.Refused, p.GivenUp = now.Refused, now.GivenUp
	for _, month := range now.months {
		if !slices.ContainsFunc(planned, func(m ratebatch.Month) bool { return m.Date.Equal(month.Date) }) {
			continue // it became old enough meanwhile: the next run's
		}
		if err := j.Store.DropLineMonth(ctx, month); err != nil {
			return err
		}
		p.Months = append(p.Months, month.String())
	}
	for _, place := range p.GivenUp {
		j.Log.WarnContext(ctx, "not waiting for a place that was given up", "place", place)
	}
	return nil
}

// voidAtOnce bounds the list of attempts in one statement.
const voidAtOnce = 500

// Run removes what the plan names. Attempts are voided before their lines go,
// so that one that only stalled commits nothing when it wakes up.
func (j *Job) Run(ctx context.Context, p *Plan, run uuid.UUID) error {
	o := j.Options
	if p.DeadAttempts > 0 {
		if err := j.Store.VoidDeadAttempts(ctx, o.Now.Add(-o.Dead), "committed nothing for "+o.Dead.String()); err != nil {
			return err
		}
	}
	if err := j.void(ctx, p); err != nil {
		return err
	}
	for part := range slices.Chunk(p.void, voidAtOnce) {
		if err := j.Store.DeleteVoidLines(ctx, part); err != nil {
			return err
		}
	}
	if p.Superseded.Removable > 0 {
		if err := j.Store.DeleteSuperseded(ctx, run, o.Now.Add(-o.Superseded), !o.Unexported); err != nil {
			return err
		}
	}
	busy, err := j.dropAlone(ctx, p)
	if err != nil {
		return err
	}
	if p.JobRuns > 0 {
		if err := j.Store.DeleteJobRuns(ctx, o.Now.Add(-o.Runs)); err != nil {
			return err
		}
	}
	if err := j.notePlainMonths(ctx); err != nil {
		return err
	}
	p.Done = true
	if len(p.Refused) == 0 {
		return busy
	}
	refused := &ratebatch.HaltError{Err: fmt.Errorf("lines old enough to go were kept: %s", strings.Join(p.Refused, "; ")), Hint: "close the months and export them where they lack, every dataset; everything else was removed"}
	return errors.Join(busy, refused)
}

// notePlainMonths looks which months hold nothing but lines that count, now
// that the others are gone.
func (j *Job) notePlainMonths(ctx context.Context) error {
	months, err := j.Store.LineMonths(ctx)
	if err != nil {
		return err
	}
	open := make([]time.Time, 0, len(months))
	for _, m := range months {
		if !m.Closed {
			open = append(open, m.Month)
		}
	}
	return j.Store.NotePlainMonths(ctx, open)
}
