// Package reprocess keeps the schedules by which periods are rated again, and
// runs them. A schedule deletes nothing: the periods get a new revision, and
// readers go from the old one to the new one at once.
package reprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Request is a schedule as someone asks for it.
type Request struct {
	Scopes   []string
	All      bool
	From, To time.Time
	Reason   string
	Author   string
}

// Job keeps and runs schedules.
type Job struct {
	Store  *store.Store
	Log    *slog.Logger
	Period time.Duration
	Now    time.Time
	Tables []store.UsageTable // whose scopes are known
	// Ready is the end of the last period that may be rated now.
	Ready time.Time
	// RunID is the run that holds the lease: a schedule is running as long as it does.
	RunID uuid.UUID
	// Rate rates one schedule's periods whose current commit is older than its
	// StartedAt, and tells done after each pass up to where it is.
	Rate func(ctx context.Context, x store.Schedule, done func(context.Context, time.Time) error) (Outcome, error)
}

// Outcome is what came of one schedule in one run.
type Outcome struct {
	Periods  uint64   `json:"periods"`
	Lines    uint64   `json:"lines"`
	Lost     uint64   `json:"lost,omitempty"`
	Waiting  string   `json:"waiting,omitempty"`  // why a part of it waits
	Vanished []string `json:"vanished,omitempty"` // scopes of which nothing is known any more
}

func (j *Job) check(r Request) error {
	var errs []error
	if r.All == (len(r.Scopes) > 0) {
		errs = append(errs, errors.New("name either scopes or all of them: --scope ID or --all"))
	}
	if slices.Contains(r.Scopes, "") {
		errs = append(errs, errors.New("a scope without a name; usage without a project is scope unattributed"))
	}
	if strings.TrimSpace(r.Reason) == "" {
		errs = append(errs, errors.New("--reason is missing: it is kept with every period that is rated again"))
	}
	switch {
	case r.From.IsZero() || r.To.IsZero():
		errs = append(errs, errors.New("--from or --to is missing"))
	case !r.From.Before(r.To):
		errs = append(errs, fmt.Errorf("--from %s is not before --to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339)))
	default:
		from, to := ratebatch.PeriodAt(r.From, j.Period), ratebatch.PeriodAt(r.To, j.Period)
		if !to.Begin.Equal(r.To) {
			to.Begin = to.End
		}
		if !from.Begin.Equal(r.From) || !to.Begin.Equal(r.To) {
			errs = append(errs, fmt.Errorf("%s to %s is not made of whole periods: the nearest that is goes from %s to %s",
				r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), from.Begin.Format(time.RFC3339), to.Begin.Format(time.RFC3339)))
		} else if r.To.After(j.Ready) {
			errs = append(errs, fmt.Errorf("--to %s: periods are ready up to %s only", r.To.Format(time.RFC3339), j.Ready.Format(time.RFC3339)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// Add stores a schedule. One that overlaps another that is not done is refused:
// the same period would be rated twice for two reasons.
func (j *Job) Add(ctx context.Context, r Request) (store.Schedule, error) {
	var none store.Schedule
	if err := j.check(r); err != nil {
		return none, err
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return none, err
	}
	if err := j.known(ctx, r.Scopes); err != nil {
		return none, err
	}
	oldest, keep, err := j.Store.OldestRatable(ctx, j.Now, j.Period)
	if err != nil {
		return none, err
	}
	if r.From.Before(oldest) {
		return none, &ratebatch.HaltError{Period: ratebatch.PeriodAt(r.From, j.Period), Err: fmt.Errorf("its tier keeps usage for %s only: an empty answer would not mean zero usage", keep),
			Hint: fmt.Sprintf("begin at %s or later", oldest.Format(time.RFC3339))}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return none, err
	}
	x := store.Schedule{ID: id, Scopes: r.Scopes, Begin: r.From, End: r.To, State: store.SchedulePending, DoneUntil: r.From, Reason: r.Reason, Author: r.Author}
	if x.CreatedAt, err = j.Store.Now(ctx); err != nil {
		return none, err
	}
	if err := j.overlap(ctx, x); err != nil {
		return none, err
	}
	if err := j.Store.PutSchedule(ctx, x); err != nil {
		return none, err
	}
	// Two may have been added at once: the later one gives way.
	if err := j.overlap(ctx, x); err != nil {
		x.State, x.Error = store.ScheduleCancelled, err.Error()
		return none, errors.Join(err, j.Store.PutSchedule(ctx, x))
	}
	return x, nil
}

// overlap refuses x when an earlier schedule that is not done shares a period
// of a scope with it.
func (j *Job) overlap(ctx context.Context, x store.Schedule) error {
	all, err := j.Store.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, y := range all {
		if y.ID == x.ID || !y.Open() || y.CreatedAt.After(x.CreatedAt) || y.CreatedAt.Equal(x.CreatedAt) && y.ID.String() > x.ID.String() {
			continue
		}
		if y.Begin.Before(x.End) && x.Begin.Before(y.End) && shareScope(x.Scopes, y.Scopes) {
			return &ratebatch.ConfigError{Err: fmt.Errorf("overlaps schedule %s (%s to %s, %s)", y.ID, y.Begin.Format(time.RFC3339), y.End.Format(time.RFC3339), y.Reason),
				Hint: fmt.Sprintf("run it first, or 'ratebatch reprocess cancel %s'", y.ID)}
		}
	}
	return nil
}

func shareScope(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// known refuses scopes that never had usage nor commits nor a state.
func (j *Job) known(ctx context.Context, scopes []string) error {
	if len(scopes) == 0 {
		return nil
	}
	known, err := j.scopes(ctx)
	if err != nil {
		return err
	}
	var unknown []string
	for _, name := range scopes {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("no scope is called %s", strings.Join(unknown, ", ")), Hint: "list them with 'ratebatch scopes list'"}
	}
	return nil
}

func (j *Job) scopes(ctx context.Context) (map[string]bool, error) {
	known := map[string]bool{}
	commits, err := j.Store.CommitScopes(ctx, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	for _, c := range commits {
		known[c.Scope] = true
	}
	states, err := j.Store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	for name := range states {
		known[name] = true
	}
	usages, err := j.Store.ScopeUsages(ctx, j.Tables, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	for _, u := range usages {
		known[u.Scope] = true
	}
	return known, nil
}

// List gives every schedule, oldest first.
func (j *Job) List(ctx context.Context) ([]store.Schedule, error) {
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	return jobs.Schedules(ctx, j.Store)
}

// Cancel ends a schedule; what it rated so far stays.
func (j *Job) Cancel(ctx context.Context, id string) (store.Schedule, error) {
	all, err := j.List(ctx)
	if err != nil {
		return store.Schedule{}, err
	}
	for _, x := range all {
		if x.ID.String() != id {
			continue
		}
		if !x.Open() {
			return x, &ratebatch.ConfigError{Err: fmt.Errorf("schedule %s is %s already", id, x.State)}
		}
		x.State, x.Waiting = store.ScheduleCancelled, ""
		return x, j.Store.PutSchedule(ctx, x)
	}
	return store.Schedule{}, &ratebatch.ConfigError{Err: fmt.Errorf("no schedule has the id %q", id), Hint: "list them with 'ratebatch reprocess list'"}
}

// Ran is a schedule after a run, with what came of it.
type Ran struct {
	store.Schedule
	Outcome Outcome `json:"outcome"`
}

// Run executes the schedules that are not done, oldest first, or only the ones
// named. One that fails does not stop the others.
func (j *Job) Run(ctx context.Context, only ...uuid.UUID) ([]Ran, error) {
	all, err := j.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []Ran
	var errs []error
	for _, x := range all {
		if !x.Open() || len(only) > 0 && !slices.Contains(only, x.ID) {
			continue
		}
		ran, err := j.run(ctx, x)
		out = append(out, ran)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", x.ID, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return out, errors.Join(errs...)
}

// run does one schedule as far as it goes.
func (j *Job) run(ctx context.Context, x store.Schedule) (Ran, error) {
	// The list is from the run's begin; one before it may have taken hours.
	if cancelled, err := j.cancelled(ctx, x.ID); err != nil {
		return Ran{Schedule: x}, err
	} else if cancelled {
		x.State = store.ScheduleCancelled
		return Ran{Schedule: x}, nil
	}
	if x.StartedAt.Unix() <= 0 {
		now, err := j.Store.Now(ctx)
		if err != nil {
			return Ran{Schedule: x}, err
		}
		x.StartedAt = now
	}
	x.State, x.Error, x.RunID = store.ScheduleRunning, "", j.RunID
	if err := j.Store.PutSchedule(ctx, x); err != nil {
		return Ran{Schedule: x}, err
	}
	outcome, err := j.Rate(ctx, x, func(ctx context.Context, until time.Time) error {
		if until.After(x.End) {
			until = x.End
		}
		if until.After(x.DoneUntil) {
			x.DoneUntil = until
		}
		cancelled, err := j.cancelled(ctx, x.ID)
		if err != nil {
			return err
		}
		if cancelled {
			return errCancelled
		}
		return j.Store.PutSchedule(ctx, x)
	})
	if errors.Is(err, errCancelled) {
		x.State = store.ScheduleCancelled
		return Ran{x, outcome}, nil
	}
	rejected := errors.Is(err, ratebatch.ErrRejected) && ratebatch.ExitCode(err) == ratebatch.ExitRejected
	x.Waiting = outcome.Waiting
	var halt *ratebatch.HaltError
	switch {
	case err != nil && !rejected && errors.As(err, &halt):
		x.State, x.Error = store.ScheduleFailed, err.Error()
	case ctx.Err() != nil:
		// It was interrupted: nothing is wrong with it, and nobody runs it now.
		x.State = store.SchedulePending
	case err != nil && !rejected:
		x.State, x.Error = store.SchedulePending, err.Error() // the next run tries it again
	case outcome.Waiting != "":
		x.State = store.SchedulePending
	case len(outcome.Vanished) > 0:
		x.State, x.DoneUntil = store.ScheduleFailed, x.End
		x.Error = fmt.Sprintf("nothing is known of scope %s any more", strings.Join(outcome.Vanished, ", "))
		err = &ratebatch.HaltError{Scope: outcome.Vanished[0], Err: errors.New("nothing is known of it any more: its schedule has ended"), Hint: "what there is: 'ratebatch scopes list'"}
	default:
		x.State, x.DoneUntil = store.ScheduleDone, x.End
		if outcome.Lost > 0 {
			x.Error = fmt.Sprintf("%d periods have fewer usage rows than were committed and were left as they are", outcome.Lost)
		}
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if cancelled, readErr := j.cancelled(clean, x.ID); readErr == nil && cancelled {
		x.State = store.ScheduleCancelled
		return Ran{x, outcome}, err
	}
	return Ran{x, outcome}, errors.Join(err, j.Store.PutSchedule(clean, x))
}

var errCancelled = errors.New("the schedule was cancelled")

func (j *Job) cancelled(ctx context.Context, id uuid.UUID) (bool, error) {
	all, err := j.Store.Schedules(ctx)
	for _, x := range all {
		if x.ID == id {
			return x.State == store.ScheduleCancelled, err
		}
	}
	return false, err
}
