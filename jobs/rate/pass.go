package rate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// codeThrowIf is the exception of throwIf: the guards of a pass statement.
const codeThrowIf = 395

// pass rates one chunk of due days, in as many attempts as it takes.
type pass struct {
	job   *Job
	plan  *Plan
	chunk chunk
}

// errVoid says that an attempt cannot be committed but another may.
type errVoid struct {
	reason   string
	repeated bool // usage rows came twice: remove repeats the slow way
}

func (e *errVoid) Error() string { return e.reason }

// run tries until an attempt is committed, at most maxAttempts times. It
// returns what the committed attempt amounts to and the ids of all attempts.
func (p *pass) run(ctx context.Context) ([]store.Committed, []uuid.UUID, error) {
	var ids []uuid.UUID
	dedup := metric.Final
	for {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, ids, err
		}
		ids = append(ids, id)
		a := &attempt{pass: p, dedup: dedup, ids: store.Pass{ID: id, From: p.chunk.from, To: p.chunk.to, Period: p.job.Options.Period}}
		committed, err := a.run(ctx)
		if err == nil {
			return committed, ids, nil
		}
		p.abandon(ctx, a, err)
		var void *errVoid
		if !errors.As(err, &void) {
			return nil, ids, err
		}
		p.job.Log.WarnContext(ctx, "attempt void", jobs.KeyRunID, id, "reason", void.reason, "attempt", len(ids))
		if void.repeated && dedup == metric.Grouped {
			return nil, ids, &ratebatch.HaltError{Err: fmt.Errorf("usage from %s: %s", p.chunk.from.Format(time.RFC3339), void.reason), Hint: "the usage table holds rows that its key does not tell apart; nothing was committed"}
		}
		if void.repeated {
			dedup = metric.Grouped
		}
		if len(ids) >= maxAttempts {
			return nil, ids, &ratebatch.TryAgainError{Err: fmt.Errorf("%d attempts at periods from %s: %s", len(ids), p.chunk.from.Format(time.RFC3339), void.reason), Hint: "nothing half-written counts; run it again when less usage is arriving"}
		}
	}
}

// abandon ends what the attempt may still be doing on the server and voids it.
// It works after a cancelled context too.
func (p *pass) abandon(ctx context.Context, a *attempt, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if a.running != "" && !store.IsOutcomeKnown(cause) {
		if err := p.job.Store.Kill(ctx, a.running); err != nil {
			p.job.Log.WarnContext(ctx, "end the attempt's statement", jobs.KeyRunID, a.ids.ID, "error", err)
		}
	}
	// Commits that went through before the trouble are whole and stay: only an
	// attempt that never came to commit is void.
	if a.committing {
		return
	}
	if err := p.job.Store.VoidAttempt(ctx, a.ids.ID, cause.Error()); err != nil {
		p.job.Log.WarnContext(ctx, "void the attempt", jobs.KeyRunID, a.ids.ID, "error", err)
	}
}

// attempt is one try of a pass, with a run_id of its own.
type attempt struct {
	pass       *pass
	ids        store.Pass
	dedup      metric.Dedup
	running    string // query id of the statement under way
	committing bool
	step       int
}

// query names the next statement, so that it can be killed.
func (a *attempt) query() string {
	a.step++
	a.running = fmt.Sprintf("%s-%d", a.ids.ID, a.step)
	return a.running
}

func (a *attempt) run(ctx context.Context) ([]store.Committed, error) {
	s, o := a.pass.job.Store, a.pass.job.Options
	log := a.pass.job.Log.With(jobs.KeyRunID, a.ids.ID)
	started := time.Now()
	lap := func(step string, more ...any) {
		log.DebugContext(ctx, "pass step", append([]any{"step", step, "seconds", time.Since(started).Seconds()}, more...)...)
	}
	span := store.InForce(a.pass.plan.terms.metrics, a.ids.From, a.ids.To)[0]
	if span.Version == nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("no metric set is in force at %s", a.ids.From.Format(time.RFC3339)), Hint: "apply one with 'ratebatch metrics apply --from …'"}
	}
	set := a.pass.plan.terms.sets[span.Version.Digest]
	usage, err := usageOfAll(set, metric.UsageOptions{Period: o.Period, Attributes: true, Dedup: a.dedup})
	if err != nil {
		return nil, err
	}
	if err := s.InsertPassPeriods(ctx, a.ids, a.pass.plan.windows, a.pass.plan.closed, usage, a.query()); err != nil {
		return nil, voidIfThrown(err)
	}
	summary, err := s.PassSummary(ctx, a.ids)
	if err != nil {
		return nil, err
	}
	lap("usage counted", "periods", summary.Periods, "usage_rows", summary.UsageRows)
	if summary.Periods == 0 {
		return nil, nil // another run was faster
	}
	if summary.Repeated > 0 {
		return nil, &errVoid{reason: fmt.Sprintf("%d periods have usage rows that are not distinct", summary.Repeated), repeated: true}
	}
	p, err := newPricer(a, set, summary)
	if err != nil {
		return nil, err
	}
	if summary.UsageRows > 0 {
		if err := p.fold(ctx); err != nil {
			return nil, voidIfThrown(err)
		}
		lap("prices folded")
		if err := s.InsertLines(ctx, a.ids, p.statement(), a.query()); err != nil {
			return nil, voidIfThrown(err)
		}
		if err := p.priceInGo(ctx); err != nil {
			return nil, voidIfThrown(err)
		}
		lap("lines written")
	}
	if err := s.InsertPassLines(ctx, a.ids, a.query()); err != nil {
		return nil, err
	}
	differences, err := s.PassDifferences(ctx, a.ids)
	if err != nil {
		return nil, err
	}
	lap("lines compared")
	if len(differences) > 0 {
		d := differences[0]
		return nil, &errVoid{reason: fmt.Sprintf("scope %s, period %s: %s", d.Scope, d.Begin.Format(time.RFC3339), d.Text)}
	}
	a.committing = true
	if err := s.InsertCommits(ctx, a.ids, p.commitTerms(span.Version.Digest), a.query()); err != nil {
		return nil, err
	}
	committed, err := s.Committed(ctx, a.ids)
	if err != nil {
		return nil, err
	}
	lap("committed")
	return committed, nil
}

// voidIfThrown turns the exception of a guard into a void attempt.
func voidIfThrown(err error) error {
	if store.IsCode(err, codeThrowIf) {
		return &errVoid{reason: fmt.Sprintf("usage changed under the pass: %v", err)}
	}
	return err
}

// usageOfAll is the usage of every metric of the set, with the metric's name.
func usageOfAll(set *metric.Set, o metric.UsageOptions) (string, error) {
	text := ""
	for _, m := range set.Metrics {
		one, err := m.UsageSQL(o)
		if err != nil {
			return "", err
		}
		if text != "" {
			text += "\nUNION ALL\n"
		}
		text += "SELECT region, scope, begin, toLowCardinality(" + store.QuoteString(m.Name) + ") AS metric, resource, attributes, qty FROM (\n" + one + ")"
	}
	return text, nil
}
