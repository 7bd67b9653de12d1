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
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// retryAfter is the pause before the next attempt when an answer was lost.
const retryAfter = time.Second

// pass rates one chunk of due days, in as many attempts as it takes.
type pass struct {
	job     *Job
	plan    *Plan
	chunk   chunk
	windows []store.DueWindow // the plan's, or those of a part of its scopes
	part    bool              // of a part of them: usage of the others is not read
	dedup   metric.Dedup      // how its first attempt drops repeats

	attempts  []uuid.UUID  // ids of all attempts
	begun     []store.Pass // attempts whose answer was lost while they committed
	committed []store.Committed
	overtaken []store.Overtaken
	lost      []store.ScopePeriod // of all attempts; some are repeated
	failed    []store.ScopeFailure
	rules     []ruleReport
}

// errRepeats says that usage rows came twice: an attempt that removes repeats the
// slow way may be committed. Where that is in vain, its cause says that it is a
// matter of rows, so of single scopes.
type errRepeats struct {
	reason string
	cause  error
}

func (e *errRepeats) Error() string { return e.reason }
func (e *errRepeats) Unwrap() error { return e.cause }

// run tries until everything is committed, at most maxAttempts times. Scopes
// whose lines differ from their usage keep nobody waiting: the attempt commits
// all others, and the next one is about those scopes alone. What differs to the
// end has failed and is due at the next run.
func (p *pass) run(ctx context.Context) error {
	windows, part := p.windows, p.part
	for {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		p.attempts = append(p.attempts, id)
		a := &attempt{pass: p, dedup: p.dedup, windows: windows, part: part, ids: store.Pass{ID: id, From: p.chunk.from, To: p.chunk.to, Period: p.job.Options.Period}}
		err = a.run(ctx)
		if err == nil && len(a.differences) == 0 {
			return p.end(ctx, id)
		}
		if err == nil {
			d := a.differences[0]
			p.job.Log.WarnContext(ctx, "scopes left out", jobs.KeyRunID, id, "scopes", len(a.differences), jobs.KeyScope, d.Scope, jobs.KeyPeriod, d.Begin, "reason", d.Text, "attempt", len(p.attempts))
			if windows = of(windows, a.differences); len(p.attempts) >= maxAttempts || len(windows) == 0 {
				for _, d := range a.differences {
					p.failed = append(p.failed, store.ScopeFailure{Scope: d.Scope, Begin: d.Begin, Error: d.Text})
				}
				return p.end(ctx, id)
			}
			part = true
			continue
		}
		p.abandon(ctx, a, err)
		if a.committing {
			p.begun = append(p.begun, a.ids)
		}
		var repeats *errRepeats
		var again *ratebatch.TryAgainError
		switch {
		case errors.As(err, &repeats) && p.dedup == metric.Grouped:
			return halted(err)
		case errors.As(err, &repeats):
			p.job.Log.WarnContext(ctx, "attempt void", jobs.KeyRunID, id, "reason", err, "attempt", len(p.attempts))
			p.dedup = metric.Grouped
		case errors.As(err, &again) && !store.IsOutcomeKnown(err) && ctx.Err() == nil && len(p.attempts) < maxAttempts:
			// The answer was lost. What the statement did is ended and void;
			// commits that went through stay, the rest is still due.
			p.job.Log.WarnContext(ctx, "answer lost", jobs.KeyRunID, id, "error", err, "attempt", len(p.attempts))
			if err := jobs.Sleep(ctx, time.Duration(len(p.attempts))*p.job.Options.retryAfter()); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// of keeps the windows of the scopes that differ.
func of(windows []store.DueWindow, differences []store.Difference) []store.DueWindow {
	differs := make(map[string]bool, len(differences))
	for _, d := range differences {
		differs[d.Scope] = true
	}
	return slices.DeleteFunc(slices.Clone(windows), func(w store.DueWindow) bool { return !differs[w.Scope] })
}

// end adds what earlier attempts committed before their answer was lost, and
// tells of the scopes that have failed; they are noted already.
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
	pass        *pass
	windows     []store.DueWindow
	part        bool // usage of other scopes than the windows' is not read
	ids         store.Pass
	dedup       metric.Dedup
	running     string // query id of the statement under way
	committing  bool
	step        int
	differences []store.Difference // scopes that it did not commit
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
	usage, err := usageOfAll(set, metric.UsageOptions{Period: a.ids.Period, Attributes: true, Dedup: a.dedup, Filter: a.filter()})
	if err != nil {
		return err
	}
	if err := s.InsertPassPeriods(ctx, a.ids, a.windows, nil, digest, usage, a.query()); err != nil {
		return thrown(err)
	}
	summary, err := s.PassSummary(ctx, a.ids)
	if err != nil {
		return err
	}
	lap("usage counted", "periods", summary.Periods, "usage_rows", summary.UsageRows)
	if summary.Repeated > 0 && a.dedup == metric.Final {
		return &errRepeats{reason: fmt.Sprintf("%d periods have usage rows that are not distinct", summary.Repeated)}
	}
	if summary.Lost > 0 {
		if err := s.NoteLost(ctx, a.ids); err != nil {
			return err
		}
		lost, err := s.LostPeriods(ctx, a.ids)
		if err != nil {
			return err
		}
		a.pass.lost = append(a.pass.lost, lost...)
	}
	if summary.Periods == 0 {
		return nil // another run was faster
	}
	p, err := a.writeLines(ctx, set, summary)
	if err != nil {
		return thrown(err)
	}
	lap("lines written")
	if err := p.readBack(ctx); err != nil {
		return err
	}
	differences, err := s.PassDifferences(ctx, a.ids)
	if err != nil {
		return err
	}
	lap("lines compared", "scopes_that_differ", len(differences))
	if len(differences) > 0 {
		if err := s.NoteDifferences(ctx, a.ids, a.query()); err != nil {
			return err
		}
	}
	terms := p.commitTerms(digest)
	a.committing = true
	if err := s.InsertCommits(ctx, a.ids, terms, a.query()); err != nil {
		return thrown(err)
	}
	committed, err := s.Committed(ctx, a.ids)
	if err != nil {
		return err
	}
	lap("committed")
	if err := a.compare(ctx, terms, summary, committed, differences); err != nil {
		return err
	}
	a.differences = differences
	a.pass.committed = append(a.pass.committed, committed...)
	a.pass.rules = append(a.pass.rules, p.report())
	return nil
}

// filter is the condition that keeps usage to the attempt's scopes, if it is
// about a part of them: what another scope's rows hold cannot stop it then.
func (a *attempt) filter() string {
	if !a.part {
		return ""
	}
	names := scopesOf(a.windows)
	for i, name := range names {
		names[i] = sqltext.String(name)
	}
	return "scope IN (" + strings.Join(names, ", ") + ")"
}

// scopesOf are the scopes that have a window, in order.
func scopesOf(windows []store.DueWindow) []string {
	var out []string
	for _, w := range windows {
		out = append(out, w.Scope)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compare looks what became of the periods that the attempt's commits did not
// reach: another attempt came first, or someone voided this one.
func (a *attempt) compare(ctx context.Context, terms store.CommitTerms, summary store.PassSummary, committed []store.Committed, differences []store.Difference) error {
	var count uint64
	for _, c := range committed {
		count += c.Periods
	}
	for _, d := range differences {
		count += d.Periods
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
	overtaken, err := s.Overtaken(ctx, a.ids, terms)
	a.pass.overtaken = append(a.pass.overtaken, overtaken...)
	a.pass.job.Log.InfoContext(ctx, "another run came first", jobs.KeyRunID, a.ids.ID, "periods", summary.Periods-count, "by_other_usage", len(overtaken))
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
		return nil, err
	}
	if text := p.statement(); text != "" {
		if err := a.pass.job.Store.InsertLines(ctx, a.ids, text, summary.Threads, a.query()); err != nil {
			return nil, err
		}
	}
	if err := p.priceInGo(ctx); err != nil {
		return p, err
	}
	return p, p.deriveLines(ctx)
}

// thrown gives an exception that the usage's rows have caused its sentence and
// what to do. Repeats that FINAL left are worth an attempt the slow way.
func thrown(err error) error {
	if !store.IsOfRows(err) {
		return err
	}
	text := store.ShortException(err)
	if strings.Contains(text, "deduplication by FINAL") {
		return &errRepeats{text, err}
	}
	// A row that no metric can read stays as it is: trying again is in vain.
	return &ratebatch.HaltError{Err: &rowError{text, err}, Hint: "correct the row or the metric that reads it; the next run rates the scope's periods"}
}

// halted says what to do about repeats that the slow way leaves too; other errors
// stay as they are.
func halted(err error) error {
	var repeats *errRepeats
	if !errors.As(err, &repeats) {
		return err
	}
	return &ratebatch.HaltError{Err: err, Hint: "the usage table holds rows that its key does not tell apart: remove one of them; the next run rates the scope's periods"}
}

// rowError is an exception in one sentence.
type rowError struct {
	text  string
	cause error
}

func (e *rowError) Error() string { return e.text }
func (e *rowError) Unwrap() error { return e.cause }

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
		text += "SELECT region, scope, begin, toLowCardinality(" + sqltext.String(m.Name) + ") AS metric, resource, attributes, qty FROM (\n" + one + ")"
	}
	return text, nil
}
