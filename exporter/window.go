package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// plan reads the commits' figure and refuses a window with holes.
func (e *export) plan(ctx context.Context) error {
	var err error
	if e.window, err = e.Store.ExportWindowNow(ctx, e.month().From, e.month().To); err != nil {
		return err
	}
	e.window.Month = e.Month // also while it is open: an append delivery before may be of a close
	if err := e.closes(ctx); err != nil {
		return err
	}
	if e.OnlyClosed && !e.closed {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("month %s is not closed, and only a closed one is wanted", e.Month.Format("2006-01")),
			Hint: fmt.Sprintf("'ratebatch close --month %s' first: it says what it waits for", e.Month.Format("2006-01"))}
	}
	if e.scopes, err = e.Store.ExportScopes(ctx, e.window); err != nil {
		return err
	}
	states, err := e.Store.ScopeStates(ctx)
	if err != nil {
		return err
	}
	e.names = map[string]ScopeName{}
	for scope, state := range states {
		e.names[scope] = ScopeName{state.Name, state.Domain}
	}
	if err := e.completeness(ctx, states); err != nil {
		return err
	}
	if e.set, err = e.Store.ExportCommitSet(ctx, e.window); err != nil {
		return err
	}
	e.all = e.set
	if e.set.Lines == 0 && len(e.corrections) == 0 {
		e.Log.Warn("there are no rated lines in this month: the dataset is empty", "month", e.Month.Format("2006-01"), "dataset", e.Dataset)
	}
	return nil
}

// completeness finds out up to when every scope is committed and which scopes
// lag behind the others, and refuses what should be there and is not. What the
// manifest says follows from the commits alone; only the refusal looks at the
// clock. What a closed month lacks was settled when it was closed.
func (e *export) completeness(ctx context.Context, states map[string]store.ScopeState) error {
	e.until = e.window.To
	if e.closed {
		return nil
	}
	newest := e.window.From
	for _, s := range e.scopes {
		if s.Until.After(newest) {
			newest = s.Until
		}
	}
	e.until = newest
	due := newest // what should be there by now
	if !e.Now.Before(e.window.To) {
		due = e.window.To
	}
	var refused []Missing
	lacks := func(scope string, from time.Time, covered time.Duration) {
		if want := newest.Sub(from); want > covered {
			e.missing = append(e.missing, Missing{scope, uint64((want - covered) / time.Second)})
		}
		if want := due.Sub(from); want > covered {
			refused = append(refused, Missing{scope, uint64((want - covered) / time.Second)})
		}
	}
	known := map[string]bool{}
	for _, s := range e.scopes {
		known[s.Scope] = true
		if state, ok := states[s.Scope]; ok && !state.Active && s.CompleteUntil.Before(newest) {
			continue // a disabled scope is settled when the month is closed
		}
		if s.CompleteUntil.Before(e.until) {
			e.until = s.CompleteUntil
		}
		from := e.window.From
		if s.First.After(from) {
			from = s.First
		}
		lacks(s.Scope, from, s.Covered)
	}
	if e.Expected != nil {
		expected, err := e.Expected(ctx, e.month())
		if err != nil {
			return err
		}
		for _, w := range expected {
			if known[w.Scope] || !w.First.Before(due) {
				continue
			}
			if w.First.Before(e.until) {
				e.until = w.First
			}
			lacks(w.Scope, w.First, 0)
		}
	}
	if len(refused) > 0 && !e.Partial {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("month %s has uncommitted periods: %s", e.Month.Format("2006-01"), describeMissing(refused)),
			Hint: "run 'ratebatch rate' first, or export what there is with --partial"}
	}
	return nil
}

// state says what of the month's commits a delivery holds; the caller adds the
// figures of the commits.
func (e *export) state() State {
	return State{Begin: e.window.From, End: e.window.To, Close: e.window.Closed, Open: !e.closed, Partial: e.until.Before(e.window.To), CompleteUntil: e.until, Missing: e.missing}
}

func describeMissing(all []Missing) string {
	var b strings.Builder
	for i, m := range all {
		if i == 5 {
			fmt.Fprintf(&b, " and %d more scopes", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "scope %s %s", m.Scope, time.Duration(m.Seconds)*time.Second)
	}
	return b.String()
}

// delivery names the state: the same state and form have the same name.
func (e *export) delivery() string {
	h := sha256.New()
	parts := []string{e.Dataset, e.schema().ID(), e.Format, string(e.Partition), e.window.From.Format(time.RFC3339),
		strconv.FormatUint(e.set.Commits, 10), e.set.Digest, strconv.FormatUint(uint64(e.window.Closed), 10)}
	// What the manifest says of completeness does not all follow from the commits.
	parts = append(parts, e.until.Format(time.RFC3339), fmt.Sprint(e.missing))
	for _, c := range e.corrections {
		parts = append(parts, c.window.Month.Format("2006-01"), fmt.Sprint(c.totals))
	}
	switch e.Dataset { // what else their files depend on
	case focusDataset:
		parts = append(parts, e.Operator, strconv.Itoa(int(e.RoundTo)), fmt.Sprint(e.names))
	case statementSchema.Dataset:
		parts = append(parts, strconv.Itoa(int(e.RoundTo)), fmt.Sprint(e.names))
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// changed says whether the commits of the window are others than the attempt
// started with, as of the same moment: a commit may become visible a little
// after the time it bears.
func (e *export) changed(ctx context.Context) (bool, error) {
	set, err := e.Store.ExportCommitSet(ctx, e.window)
	return set.Digest != e.all.Digest || set.Commits != e.all.Commits, err
}

// sectors says for every hour of the month whether it is complete. What is known
// of an hour of a day without commits is as old as the newest commit.
func (e *export) sectors() []TimeSector {
	var out []TimeSector
	var newest time.Time
	for _, day := range e.set.Days {
		if day.CommittedAt.After(newest) {
			newest = day.CommittedAt
		}
	}
	updated := func(day time.Time) string {
		at := e.set.Days[day].CommittedAt
		if at.IsZero() {
			at = newest
		}
		if at.IsZero() {
			return "" // nothing was committed: left out
		}
		return at.Format(time.RFC3339)
	}
	for at := e.window.From; at.Before(e.window.To); at = at.Add(time.Hour) {
		end := at.Add(time.Hour)
		out = append(out, TimeSector{TimeSectorStart: at.Format(time.RFC3339), TimeSectorEnd: end.Format(time.RFC3339), TimeSectorComplete: !end.After(e.until),
			TimeSectorLastUpdated: updated(at.Truncate(24 * time.Hour))})
	}
	return out
}
