package rate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// codeThrowIf is the exception of throwIf: the guards of a pass statement.
const codeThrowIf = 395

// retryAfter is the pause before the next attempt when an answer was lost.
const retryAfter = time.Second

// pass rates one chunk of due days, in as many attempts as it takes.
type pass struct {
	job   *Job
	plan  *Plan
	chunk chunk

	attempts  []uuid.UUID  // ids of all attempts
	begun     []store.Pass // attempts whose answer was lost while they committed
	committed []store.Committed
	overtaken []store.Overtaken
	lost      uint64
	failed    []store.ScopeFailure
	rules     ruleReport
}

// errVoid says that an attempt cannot be committed but another may.
type errVoid struct {
	reason      string
	repeated    bool // usage rows came twice: remove repeats the slow way
	differences []store.Difference
}

func (e *errVoid) Error() string { return e.reason }

// run tries until an attempt is committed, at most maxAttempts times. Scopes
// whose lines differed from their usage twice are left out, so that they do not
// keep the others waiting.
func (p *pass) run(ctx context.Context) error {
	dedup := metric.Final
	differed := map[string]int{}
	windows := p.plan.windows
	for {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		p.attempts = append(p.attempts, id)
		a := &attempt{pass: p, dedup: dedup, windows: windows, ids: store.Pass{ID: id, From: p.chunk.from, To: p.chunk.to, Period: p.job.Options.Period}}
		err = a.run(ctx)
		if err == nil {
			return p.end(ctx, id)
		}
		p.abandon(ctx, a, err)
		if a.committing {
			p.begun = append(p.begun, a.ids)
		}
		var void *errVoid
		var again *ratebatch.TryAgainError
		switch {
		case errors.As(err, &void):
		case errors.As(err, &again) && !store.IsOutcomeKnown(err) && ctx.Err() == nil && len(p.attempts) < maxAttempts:
			// The answer was lost. What the statement did is ended and void;
			// commits that went through stay, the rest is still due.
			p.job.Log.WarnContext(ctx, "answer lost", jobs.KeyRunID, id, "error", err, "attempt", len(p.attempts))
			if err := sleep(ctx, time.Duration(len(p.attempts))*p.job.Options.retryAfter()); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		p.job.Log.WarnContext(ctx, "attempt void", jobs.KeyRunID, id, "reason", void.reason, "attempt", len(p.attempts))
		if void.repeated && dedup == metric.Grouped {
			return &ratebatch.HaltError{Err: fmt.Errorf("usage from %s: %s", p.chunk.from.Format(time.RFC3339), void.reason), Hint: "the usage table holds rows that its key does not tell apart; nothing was committed"}
		}
		if void.repeated {
			dedup = metric.Grouped
		}
		if len(p.attempts) >= maxAttempts {
			return &ratebatch.TryAgainError{Err: fmt.Errorf("%d attempts at periods from %s: %s", len(p.attempts), p.chunk.from.Format(time.RFC3339), void.reason), Hint: "nothing half-written counts; run it again when less usage is arriving"}
		}
		windows = p.without(windows, void.differences, differed)
	}
}

// without leaves out the scopes that differed before and differ again.
func (p *pass) without(windows []store.DueWindow, differences []store.Difference, differed map[string]int) []store.DueWindow {
	out := map[string]bool{}
	for _, d := range differences {
		if differed[d.Scope] == len(p.attempts) {
			continue // counted for this attempt
		}
		if differed[d.Scope] > 0 {
			out[d.Scope] = true
			p.failed = append(p.failed, store.ScopeFailure{Scope: d.Scope, Begin: d.Begin, Error: d.Text})
		}
		differed[d.Scope] = len(p.attempts)
	}
	if len(out) == 0 {
		return windows
	}
	return slices.DeleteFunc(slices.Clone(windows), func(w store.DueWindow) bool { return out[w.Scope] })
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// end adds what earlier attempts committed before their answer was lost, and
// notes the scopes that were left out.
func (p *pass) end(ctx context.Context, attempt uuid.UUID) error {
	for _, ids := range p.begun {
		earlier, err := p.job.Store.Committed(ctx, ids)
		if err != nil {
			return err
		}
		p.committed = append(p.committed, earlier...)
	}
	for i := range p.failed {
		p.failed[i].FailedAt = p.job.Options.Now
		p.job.Log.ErrorContext(ctx, "scope left out", jobs.KeyRunID, attempt, jobs.KeyScope, p.failed[i].Scope, jobs.KeyPeriod, p.failed[i].Begin, "error", p.failed[i].Error)
		if err := p.job.Store.NoteFailure(ctx, p.failed[i], attempt); err != nil {
			return err
		}
	}
	return nil
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
	windows    []store.DueWindow
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

func (a *attempt) run(ctx context.Context) error {
	s := a.pass.job.Store
	log := a.pass.job.Log.With(jobs.KeyRunID, a.ids.ID)
	started := time.Now() //nolint:forbidigo // how long a step took
	lap := func(step string, more ...any) {
		log.DebugContext(ctx, "pass step", append([]any{"step", step, "seconds", time.Since(started).Seconds()}, more...)...)
	}
	set, digest, err := a.metrics()
	if err != nil {
		return err
	}
	usage, err := usageOfAll(set, metric.UsageOptions{Period: a.ids.Period, Attributes: true, Dedup: a.dedup})
	if err != nil {
		return err
	}
	if err := s.InsertPassPeriods(ctx, a.ids, a.windows, nil, digest, usage, a.query()); err != nil {
		return voidIfThrown(err)
	}
	summary, err := s.PassSummary(ctx, a.ids)
	if err != nil {
		return err
	}
	lap("usage counted", "periods", summary.Periods, "usage_rows", summary.UsageRows)
	if summary.Repeated > 0 {
		return &errVoid{reason: fmt.Sprintf("%d periods have usage rows that are not distinct", summary.Repeated), repeated: true}
	}
	if summary.Lost > 0 {
		if err := s.NoteLost(ctx, a.ids); err != nil {
			return err
		}
	}
	if summary.Periods == 0 {
		a.pass.lost = summary.Lost
		return nil // another run was faster
	}
	p, err := a.writeLines(ctx, set, summary)
	if err == nil {
		a.pass.rules = p.report()
	}
	if err != nil {
		return err
	}
	lap("lines written")
	if err := p.readBack(ctx); err != nil {
		return err
	}
	differences, err := s.PassDifferences(ctx, a.ids)
	if err != nil {
		return err
	}
	lap("lines compared")
	if len(differences) > 0 {
		d := differences[0]
		return &errVoid{reason: fmt.Sprintf("scope %s, period %s: %s", d.Scope, d.Begin.Format(time.RFC3339), d.Text), differences: differences}
	}
	terms := p.commitTerms(digest)
	a.committing = true
	if err := s.InsertCommits(ctx, a.ids, terms, a.query()); err != nil {
		return err
	}
	if a.pass.committed, err = s.Committed(ctx, a.ids); err != nil {
		return err
	}
	lap("committed")
	a.pass.lost = summary.Lost
	return a.compare(ctx, terms, summary)
}

// compare looks what became of the periods that the attempt's commits did not
// reach: another attempt came first, or someone voided this one.
func (a *attempt) compare(ctx context.Context, terms store.CommitTerms, summary store.PassSummary) error {
	var count uint64
	for _, c := range a.pass.committed {
		count += c.Periods
	}
	if count == summary.Periods {
		return nil
	}
	s := a.pass.job.Store
	void, err := s.IsVoid(ctx, a.ids.ID)
	if err != nil {
		return err
	}
	if void {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("periods from %s: the attempt was voided while it ran", a.ids.From.Format(time.RFC3339)), Hint: "retention takes an attempt of this age for dead; run it again"}
	}
	a.pass.overtaken, err = s.Overtaken(ctx, a.ids, terms)
	a.pass.job.Log.InfoContext(ctx, "another run came first", jobs.KeyRunID, a.ids.ID, "periods", summary.Periods-count, "by_other_usage", len(a.pass.overtaken))
	return err
}

// metrics is the metric set in force for the attempt, and its digest.
func (a *attempt) metrics() (*metric.Set, string, error) {
	span := store.InForce(a.pass.plan.terms.metrics, a.ids.From, a.ids.To)[0]
	if span.Version == nil {
		return nil, "", &ratebatch.ConfigError{Err: fmt.Errorf("no metric set is in force at %s", a.ids.From.Format(time.RFC3339)), Hint: "apply one with 'ratebatch metrics apply --from …'"}
	}
	return a.pass.plan.terms.sets[span.Version.Digest], span.Version.Digest, nil
}

// writeLines prices the usage and writes the lines.
func (a *attempt) writeLines(ctx context.Context, set *metric.Set, summary store.PassSummary) (*pricer, error) {
	p, err := newPricer(a, set, summary)
	if err != nil {
		return p, err
	}
	if summary.UsageRows == 0 {
		return p, p.deriveLines(ctx)
	}
	if err := p.fold(ctx); err != nil {
		return nil, voidIfThrown(err)
	}
	if text := p.statement(); text != "" {
		if err := a.pass.job.Store.InsertLines(ctx, a.ids, text, a.query()); err != nil {
			return nil, voidIfThrown(err)
		}
	}
	if err := p.priceInGo(ctx); err != nil {
		return p, voidIfThrown(err)
	}
	return p, p.deriveLines(ctx)
}

// voidIfThrown turns the exception of a guard into a void attempt.
func voidIfThrown(err error) error {
	if !store.IsCode(err, codeThrowIf) {
		return err
	}
	text := store.ShortException(err)
	switch {
	case strings.Contains(text, pricing.ChangedMessage):
		return &errVoid{reason: pricing.ChangedMessage}
	case strings.Contains(text, "deduplication by FINAL"):
		return &errVoid{reason: text, repeated: true}
	default:
		// A row that no metric can read stays as it is: trying again is in vain.
		return &ratebatch.HaltError{Err: errors.New(text), Hint: "correct the row or the metric that reads it; nothing was committed"}
	}
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
