package rate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Again asks for periods that are rated already.
type Again struct {
	Scopes   []string // nil: all that are active
	From, To time.Time
	Since    time.Time // periods whose current commit was made before it
	Reason   string
}

// Held says which part of what was asked for cannot be rated now.
type Held struct {
	Disabled []string  `json:"disabled,omitempty"` // scopes
	Vanished []string  `json:"vanished,omitempty"` // scopes of which nothing is known any more
	Until    time.Time `json:"until,omitzero"`     // later periods are not ready
	Text     string    `json:"text,omitempty"`
}

// PlanAgain says which of the periods asked for are to be rated: those whose
// current commit is older than asked, and those that have none.
func (j *Job) PlanAgain(ctx context.Context, again Again) (*Plan, Held, error) {
	var held Held
	// All months count here, closed ones as well: there a new revision is a
	// correction.
	x, err := j.readState(ctx, true)
	if err != nil {
		return nil, held, err
	}
	if err := j.checkAgain(ctx, again); err != nil {
		return nil, held, err
	}
	p := Plan{terms: x.terms, asked: true, reason: again.Reason}
	ready, waiting := windows(x.usages, x.commits, x.scopes, x.marks, j.Options)
	p.Waiting = waiting
	byScope := map[string]store.DueWindow{}
	for _, w := range ready {
		byScope[w.Scope] = w
	}
	known := map[string]bool{}
	used := earliest(x.usages)
	for scope := range used {
		known[scope] = true
	}
	for _, c := range x.commits {
		known[c.Scope] = true
		w, ok := byScope[c.Scope]
		if !ok && isActive(x.scopes, c.Scope) {
			w = store.DueWindow{Scope: c.Scope, First: c.First, Until: c.Last.Add(j.Options.Period)}
		}
		// What was rated once may be rated again, also before a first period that
		// was set since.
		w.First = ratebatch.Earlier(w.First, c.First)
		if last := c.Last.Add(j.Options.Period); last.After(w.Until) {
			w.Until = last
		}
		if isActive(x.scopes, c.Scope) {
			byScope[c.Scope] = w
		}
	}
	names := again.Scopes
	if names == nil {
		names = slices.Sorted(maps.Keys(byScope))
	}
	held.Until = again.To
	for _, name := range names {
		_, listed := x.scopes[name]
		w, ok := byScope[name]
		switch {
		case !isActive(x.scopes, name):
			held.Disabled = append(held.Disabled, name)
			continue
		case !ok && !known[name] && !listed:
			held.Vanished = append(held.Vanished, name)
			continue
		case !ok:
			// None of its periods is ready yet. Nothing but this schedule comes back to
			// them where the month is closed.
			if usage, has := used[name]; has && j.Options.First.begin(usage, j.Options).Before(again.To) {
				held.Until = ratebatch.Earlier(held.Until, again.From)
			}
			continue
		}
		if w.Until.Before(held.Until) {
			held.Until = w.Until
		}
		w.First, w.Until, w.Again = ratebatch.Later(w.First, again.From), ratebatch.Earlier(w.Until, again.To), again.Since
		if w.First.Before(w.Until) {
			p.windows = append(p.windows, w)
		}
	}
	if again.Scopes == nil {
		held.Until = time.Time{} // each scope as far as it is ready
	} else if !held.Until.Before(again.To) {
		held.Until = time.Time{}
	}
	p.windows, p.Waiting = withPlan(p.windows, p.Waiting, p.terms.plans, j.Options.Period)
	held.Text = held.text(waiting, p.Waiting[len(waiting):])
	if err := j.due(ctx, &p, nil); err != nil {
		return nil, held, err
	}
	return &p, held, p.expired
}

// checkAgain refuses what was asked for when periods had another length, or was
// rated in periods of another: closed months keep the length that they were rated
// by, and the same time would count twice in them.
func (j *Job) checkAgain(ctx context.Context, again Again) error {
	length := j.Options.Period
	if !ratebatch.PeriodAt(again.From, length).Begin.Equal(again.From) || !ratebatch.PeriodAt(again.To, length).Begin.Equal(again.To) {
		return &ratebatch.HaltError{Period: ratebatch.Period{Begin: again.From, End: again.To},
			Err:  fmt.Errorf("not made of whole periods of %s: the length of a period was another when this was asked for", length),
			Hint: "ask for it anew, from the begin of a period to the end of one"}
	}
	if err := j.checkBilled(ctx, again); err != nil {
		return err
	}
	scope, p, err := j.Store.OtherPeriod(ctx, length, again.From, again.To, again.Scopes...)
	if err != nil || scope == "" {
		return err
	}
	return &ratebatch.HaltError{Scope: scope, Period: p,
		Err:  fmt.Errorf("rated as a period of %s, not %s: both would bill the same time twice", p.Length(), length),
		Hint: fmt.Sprintf("ask for time that was rated in periods of %s; a correction of this one needs %s to be in force again ('ratebatch settings set period'), which has to wait until no open month is rated in %[1]s", length, p.Length())}
}

// checkBilled refuses to correct a closed month whose lines are gone: the
// difference to what was billed is told line by line.
func (j *Job) checkBilled(ctx context.Context, again Again) error {
	closed, err := j.Store.ClosedMonths(ctx)
	if err != nil {
		return err
	}
	for _, c := range closed {
		m := j.Options.Calendar.Named(c.Month)
		if !m.From.Before(again.To) || !again.From.Before(m.To) {
			continue
		}
		gone, err := j.Store.LinesGone(ctx, m, c.Closed)
		if err != nil {
			return err
		}
		if gone {
			return &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed and its lines were removed by 'ratebatch retention --lines-after': a correction could not be told from what was billed", m),
				Hint: "bill the difference by hand"}
		}
	}
	return nil
}

// text says what is held up: by whom or by the input of a region, and what lacks a
// plan.
func (h Held) text(waiting, lacking []Waiting) string {
	var parts []string
	if len(h.Disabled) > 0 {
		parts = append(parts, fmt.Sprintf("%s disabled", list("scope", h.Disabled)))
	}
	if !h.Until.IsZero() {
		text := fmt.Sprintf("periods from %s are not ready", h.Until.Format(time.RFC3339))
		for _, w := range waiting {
			text += ": " + w.Reason
		}
		parts = append(parts, text)
	}
	for _, w := range lacking {
		parts = append(parts, w.Reason)
	}
	return strings.Join(parts, "; ")
}

// list names a few things.
func list(noun string, names []string) string {
	switch n := len(names); {
	case n == 1:
		return noun + " " + names[0] + " is"
	case n <= 5:
		return noun + "s " + strings.Join(names, ", ") + " are"
	default:
		return fmt.Sprintf("%d %ss (%s, …) are", n, noun, strings.Join(names[:5], ", "))
	}
}
