package rate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// maxFailing bounds how many scopes fail by what their rows hold before a run in
// which nothing could be rated ends: where all fail, it is not the scopes. Those
// that failed before do not count, so that each of them is tried again.
// maxLeftOut bounds all of them.
const (
	maxFailing = 10
	maxLeftOut = 1000
)

// hopeless says whether so many scopes have failed that the run had better end.
func (r *Result) hopeless() bool {
	fresh := 0
	for scope := range r.failing {
		if !r.failedBefore(scope) {
			fresh++
		}
	}
	return fresh >= maxFailing && r.Periods == 0 || len(r.failing) >= maxLeftOut
}

// hasFailed says whether a scope was left out in this run.
func (r *Result) hasFailed(scope string) bool {
	return r.failing[scope] != nil || slices.ContainsFunc(r.Failed, func(f store.ScopeFailure) bool { return f.Scope == scope })
}

func (r *Result) failedBefore(scope string) bool {
	return slices.ContainsFunc(r.before, func(f store.ScopeFailure) bool { return f.Scope == scope })
}

// queue are the passes of the plan's chunks. Scopes that failed in the runs before
// are in passes of their own: they fail again as long as nobody has mended their
// rows, and would have every run look for them again by halves.
func (r *Result) queue(plan *Plan) []*pass {
	var well, ill []store.DueWindow
	for _, w := range plan.windows {
		if r.failedBefore(w.Scope) {
			ill = append(ill, w)
		} else {
			well = append(well, w)
		}
	}
	var queue []*pass
	for _, c := range plan.chunks {
		if len(well) > 0 {
			queue = append(queue, &pass{chunk: c, windows: well, part: len(ill) > 0})
		}
		if ill := within(ill, c); len(ill) > 0 {
			x := &pass{chunk: c, windows: ill, part: true}
			if len(well) > 0 {
				x.chunk.periods = 0 // counted with the others
			}
			queue = append(queue, x)
		}
	}
	return queue
}

// within keeps the windows that reach into a chunk.
func within(windows []store.DueWindow, c chunk) []store.DueWindow {
	return slices.DeleteFunc(slices.Clone(windows), func(w store.DueWindow) bool { return !w.First.Before(c.to) || !c.from.Before(w.Until) })
}

// leave takes scopes out that failed in this run.
func (p *pass) leave(failing map[string]error) {
	if len(failing) == 0 {
		return
	}
	p.part = true // their rows must not be read either
	p.windows = slices.DeleteFunc(slices.Clone(p.windows), func(w store.DueWindow) bool { return failing[w.Scope] != nil })
}

// halves cuts a pass in two that needed too much memory, or failed by what the
// rows of some of its scopes hold; nil when it cannot be.
func (p *pass) halves(err error, period time.Duration) (a, b *pass) {
	byTime := func() (a, b *pass) {
		first, second, ok := p.chunk.halves(period)
		if !ok {
			return nil, nil
		}
		return &pass{chunk: first, windows: p.windows, part: p.part, dedup: p.dedup}, &pass{chunk: second, windows: p.windows, part: p.part, dedup: p.dedup}
	}
	switch {
	case store.IsMemoryLimit(err):
		return byTime()
	case store.IsOfRows(err):
		windows := within(p.windows, p.chunk)
		names := scopesOf(windows)
		if len(names) < 2 {
			p.part = true // alone, its periods cost little
			return byTime()
		}
		middle := names[len(names)/2]
		a = &pass{chunk: p.chunk, part: true, dedup: p.dedup, windows: slices.DeleteFunc(slices.Clone(windows), func(w store.DueWindow) bool { return w.Scope >= middle })}
		b = &pass{chunk: p.chunk, part: true, dedup: p.dedup, windows: slices.DeleteFunc(windows, func(w store.DueWindow) bool { return w.Scope < middle })}
		a.chunk.periods /= 2
		b.chunk.periods -= a.chunk.periods
	}
	return a, b
}

// leaveOut notes that a period of the pass's only scope fails by what its rows
// hold. It returns the cause when that is no matter of single scopes.
func (j *Job) leaveOut(ctx context.Context, p *pass, cause error, result *Result) error {
	windows := within(p.windows, p.chunk)
	names := scopesOf(windows)
	if len(names) != 1 || result.hopeless() {
		return cause
	}
	f := store.ScopeFailure{Scope: names[0], Begin: ratebatch.Later(windows[0].First, p.chunk.from), Error: cause.Error(), FailedAt: j.Options.Now}
	j.Log.ErrorContext(ctx, "scope left out", jobs.KeyScope, f.Scope, jobs.KeyPeriod, f.Begin, "error", cause)
	if result.failing == nil {
		result.failing = map[string]error{}
	}
	result.failing[f.Scope] = cause
	p.failed = append(p.failed, f)
	return j.Store.NoteFailure(ctx, f, p.attempts[len(p.attempts)-1])
}

// namedFailures bounds how many scopes an error names.
const namedFailures = 10

// failures is the error of a run that left scopes out. What only a person can
// mend is named scope by scope.
func (r *Result) failures() error {
	var errs []error
	var changing []store.ScopeFailure
	for _, f := range r.Failed {
		cause := r.failing[f.Scope]
		switch {
		case cause == nil:
			changing = append(changing, f)
		case len(errs) < namedFailures:
			errs = append(errs, fmt.Errorf("scope %s was left out from %s on, all others are rated: %w", f.Scope, f.Begin.Format(time.RFC3339), cause))
		}
	}
	if more := len(r.Failed) - len(changing) - len(errs); more > 0 {
		errs = append(errs, &ratebatch.HaltError{Err: fmt.Errorf("%d more scopes were left out", more), Hint: "'ratebatch status' lists them"})
	}
	if len(changing) > 0 {
		f := changing[0]
		errs = append(errs, &ratebatch.TryAgainError{Err: fmt.Errorf("%d scopes were left out, all others are rated; first scope %s: %s", len(changing), f.Scope, f.Error), Hint: "the next run tries them again"})
	}
	return errors.Join(errs...)
}

// settleFailures ends the failures of earlier runs that a whole run did not meet
// again: their periods are rated, or nobody is to rate them any more, because the
// row is gone and its scope with it, the scope is disabled or its month closed.
func (j *Job) settleFailures(ctx context.Context, run uuid.UUID, result *Result) error {
	for _, f := range result.before {
		again := slices.ContainsFunc(result.Failed, func(x store.ScopeFailure) bool { return x.Scope == f.Scope })
		if f.OfLook || again || !j.Options.Shard.has(f.Scope) {
			continue
		}
		f.Error = ""
		if err := j.Store.NoteFailure(ctx, f, run); err != nil {
			return err
		}
	}
	return nil
}

// settleLooks ends the failures of earlier looks for late usage.
func (j *Job) settleLooks(ctx context.Context) error {
	known, err := j.Store.ScopeFailures(ctx)
	if err != nil {
		return err
	}
	for _, f := range known {
		if f.OfLook {
			f.Error = ""
			if err := j.Store.NoteFailure(ctx, f, uuid.Nil); err != nil {
				return err
			}
		}
	}
	return nil
}
