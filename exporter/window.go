package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// plan reads the commits' figure and refuses a window with holes.
func (e *export) plan(ctx context.Context) error {
	var err error
	if e.window, err = e.Store.ExportWindowNow(ctx, e.Month, e.Month.AddDate(0, 1, 0)); err != nil {
		return err
	}
	if err := e.closes(ctx); err != nil {
		return err
	}
	if e.scopes, err = e.Store.ExportScopes(ctx, e.window); err != nil {
		return err
	}
	if e.missing = missing(e.scopes, e.window, e.Now); e.closed {
		e.missing = nil // what a closed month lacks was settled when it was closed
	}
	if len(e.missing) > 0 && !e.Partial {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("month %s has uncommitted periods: %s", e.Month.Format("2006-01"), describeMissing(e.missing)),
			Hint: "run 'ratebatch rate' first, or export what there is with --partial"}
	}
	if e.set, err = e.Store.ExportCommitSet(ctx, e.window); err != nil {
		return err
	}
	states, err := e.Store.ScopeStates(ctx)
	e.names = map[string]ScopeName{}
	for scope, state := range states {
		e.names[scope] = ScopeName{state.Name, state.Domain}
	}
	return err
}

// missing lists the scopes with time that should be committed and is not: from
// a scope's first period to the end of the month or, while the month is not
// over, to the end of the newest period that any scope has committed.
func missing(scopes []store.CommittedScope, w store.ExportWindow, now time.Time) []Missing {
	until := w.To
	if now.Before(w.To) {
		until = w.From
		for _, s := range scopes {
			if s.Until.After(until) {
				until = s.Until
			}
		}
	}
	var out []Missing
	for _, s := range scopes {
		from := w.From
		if s.First.After(from) {
			from = s.First
		}
		if want := until.Sub(from); want > s.Covered {
			out = append(out, Missing{s.Scope, uint64((want - s.Covered) / time.Second)})
		}
	}
	return out
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
	for _, c := range e.corrections {
		parts = append(parts, c.window.From.Format("2006-01"), fmt.Sprint(c.totals))
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
	return set.Digest != e.set.Digest || set.Commits != e.set.Commits, err
}

// sectors says for every hour of the month whether it is complete.
func (e *export) sectors() []TimeSector {
	var out []TimeSector
	for at := e.window.From; at.Before(e.window.To); at = at.Add(time.Hour) {
		sector := TimeSector{TimeSectorStart: at.Format(time.RFC3339), TimeSectorEnd: at.Add(time.Hour).Format(time.RFC3339),
			TimeSectorComplete: len(e.scopes) > 0, TimeSectorLastUpdated: e.set.Days[at.Truncate(24*time.Hour)].CommittedAt.Format(time.RFC3339)}
		for _, s := range e.scopes {
			// A scope with a hole somewhere is complete nowhere: which hour is
			// missing is not looked up here.
			hole := slices.ContainsFunc(e.missing, func(m Missing) bool { return m.Scope == s.Scope })
			if hole || s.Until.Before(at.Add(time.Hour)) {
				sector.TimeSectorComplete = false
				break
			}
		}
		out = append(out, sector)
	}
	return out
}
