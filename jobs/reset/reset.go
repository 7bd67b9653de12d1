// Package reset is the job that forgets what was rated from a time on, so that
// the next rate starts exactly there. It adds commits of kind reset and removes
// nothing: what counted before stays readable until retention.
package reset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Options of a reset.
type Options struct {
	Scopes []string // the scopes to reset
	All    bool     // or all of them
	To     time.Time
	Period time.Duration
	Reason string
	Author string
	Now    time.Time
}

// Validate reports every value that cannot work.
func (o Options) Validate() error {
	var errs []error
	if err := ratebatch.CheckPeriodLength(o.Period); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	if o.All == (len(o.Scopes) > 0) {
		errs = append(errs, errors.New("name either scopes or all of them: --scope ID or --all"))
	}
	if slices.Contains(o.Scopes, "") {
		errs = append(errs, errors.New("a scope without a name; usage without a project is scope unattributed"))
	}
	if strings.TrimSpace(o.Reason) == "" {
		errs = append(errs, errors.New("--reason is missing: it is kept with every reset period"))
	}
	switch at := ratebatch.PeriodAt(o.To, o.Period); {
	case o.To.IsZero():
		errs = append(errs, errors.New("--to is missing"))
	case !at.Begin.Equal(o.To):
		errs = append(errs, fmt.Errorf("--to %s lies within a period: the nearest begins are %s and %s", o.To.Format(time.RFC3339), at.Begin.Format(time.RFC3339), at.End.Format(time.RFC3339)))
	}
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// Job resets scopes.
type Job struct {
	Store   *store.Store
	Log     *slog.Logger
	Options Options
}

// Plan is what a reset would forget; afterwards the next rate starts at To.
type Plan struct {
	To      time.Time  `json:"to"`
	Scopes  []string   `json:"scopes"`             // empty: all
	Left    []string   `json:"disabled,omitempty"` // of all, those left alone: nobody would rate them again
	Periods uint64     `json:"periods"`
	First   *time.Time `json:"first,omitempty"` // begin of the first period to forget
}

// Result is what a reset did.
type Result struct {
	RunID uuid.UUID `json:"run_id"`
	Plan
}

// Plan says what would be forgotten, or why it must not be. It writes nothing.
func (j *Job) Plan(ctx context.Context) (*Plan, error) {
	o := j.Options
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	if err := j.known(ctx); err != nil {
		return nil, err
	}
	plan := &Plan{To: o.To, Scopes: append([]string{}, o.Scopes...)}
	var err error
	if plan.Left, err = j.disabled(ctx); err != nil {
		return nil, err
	}
	if scope, p, err := j.Store.ResetSplit(ctx, plan.scopes(), o.To); err != nil {
		return nil, err
	} else if scope != "" {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--to %s lies within the period %s of scope %s", o.To.Format(time.RFC3339), p, scope), Hint: "use its begin or its end"}
	}
	months, err := j.Store.ResetPeriods(ctx, plan.scopes(), o.To)
	if err != nil {
		return nil, err
	}
	for _, m := range months {
		plan.Periods += m.Periods
		if plan.First == nil || m.First.Before(*plan.First) {
			plan.First = &m.First
		}
	}
	return plan, j.refuse(ctx, months)
}

// known refuses scopes of which nothing was ever rated: a reset that does
// nothing because of a misspelt name would look like a success.
func (j *Job) known(ctx context.Context) error {
	if j.Options.All {
		return nil
	}
	commits, err := j.Store.CommitScopes(ctx, time.Unix(0, 0))
	if err != nil {
		return err
	}
	var unknown []string
	for _, name := range j.Options.Scopes {
		if !slices.ContainsFunc(commits, func(c store.CommitScope) bool { return c.Scope == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("nothing was ever rated of scope %s", strings.Join(unknown, ", ")), Hint: "list the scopes with 'ratebatch scopes list'"}
	}
	return nil
}

func (p *Plan) scopes() store.ResetScopes { return store.ResetScopes{Only: p.Scopes, But: p.Left} }

// disabled lists the disabled scopes of a reset of all, which leaves them alone,
// and refuses those that are named: a disabled scope is not rated again, so what
// it owes would be gone.
func (j *Job) disabled(ctx context.Context) ([]string, error) {
	states, err := j.Store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if !states[name].Active && (j.Options.All || slices.Contains(j.Options.Scopes, name)) {
			out = append(out, name)
		}
	}
	if len(out) > 0 && !j.Options.All {
		return nil, &ratebatch.HaltError{Scope: out[0], Err: errors.New("it is disabled, so nothing would rate again what is forgotten"), Hint: "enable it first: 'ratebatch scopes enable'"}
	}
	return out, nil
}

// refuse stops at what could not be rated again or must not change.
func (j *Job) refuse(ctx context.Context, months []store.ResetMonth) error {
	closed, err := j.Store.ClosedMonths(ctx)
	if err != nil {
		return err
	}
	for _, m := range months {
		if slices.ContainsFunc(closed, func(c store.ClosedMonth) bool { return c.Month.Equal(m.Month) }) {
			name := m.Month.Format("2006-01")
			return &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed: %d of the periods to forget lie in it", name, m.Periods),
				Hint: fmt.Sprintf("reset from a later time on, or 'ratebatch reopen --month %s --reason …' first", name)}
		}
	}
	oldest, keep, err := j.Store.OldestRatable(ctx, j.Options.Now, j.Options.Period)
	if err != nil {
		return err
	}
	if len(months) > 0 && months[0].First.Before(oldest) {
		return &ratebatch.HaltError{Period: ratebatch.PeriodAt(months[0].First, j.Options.Period),
			Err:  fmt.Errorf("its tier keeps usage for %s only, so it could not be rated again", keep),
			Hint: fmt.Sprintf("reset to %s or later", oldest.Format(time.RFC3339))}
	}
	return nil
}

// Run forgets what the plan names.
func (j *Job) Run(ctx context.Context, plan *Plan, run uuid.UUID) (Result, error) {
	result := Result{RunID: run, Plan: *plan}
	if plan.Periods == 0 {
		return result, nil
	}
	id := "reset-" + run.String()
	err := j.Store.InsertResets(ctx, run, plan.scopes(), j.Options.To, j.Options.Reason, j.Options.Author, id)
	if err != nil && !store.IsOutcomeKnown(err) {
		// It may still be writing. What it wrote stays: the same command
		// completes it.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := j.Store.Kill(clean, id); err != nil {
			j.Log.WarnContext(ctx, "end the reset's statement", "error", err)
		}
	}
	if err != nil {
		return result, err
	}
	left, err := j.Store.ResetPeriods(ctx, plan.scopes(), j.Options.To)
	if err != nil {
		return result, err
	}
	if len(left) > 0 {
		return result, &ratebatch.TryAgainError{Err: fmt.Errorf("%d periods from %s on were rated or closed meanwhile", left[0].Periods, left[0].First.Format(time.RFC3339)), Hint: "run the same command again"}
	}
	return result, nil
}
