// Package closing is the job that closes a month: it writes down exactly which
// commits the month consists of, and from then on readers of the month use
// those. What is rated again later is a correction in an open month.
package closing

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

// Windows are the scopes that have to be rated in the month, each with its
// window in it, and the disabled ones.
type Windows struct {
	Active, Disabled []store.DueWindow
}

// Job closes and reopens months.
type Job struct {
	Store    *store.Store
	Log      *slog.Logger
	Period   time.Duration
	Calendar ratebatch.Calendar
	Author   string
	// Windows says whose periods belong to the month.
	Windows func(ctx context.Context, month ratebatch.Month) (Windows, error)
}

// Plan is what a close would freeze.
type Plan struct {
	Month  string             `json:"month"`
	Totals []store.MonthTotal `json:"totals"`
	// Already: the month is closed, and nothing has changed since.
	Already bool `json:"already_closed,omitempty"`

	month    ratebatch.Month
	disabled []store.DueWindow
	number   uint32
}

// Result is what was frozen.
type Result struct {
	Month   string             `json:"month"`
	Closed  uint32             `json:"closed"` // how often the month was closed
	Already bool               `json:"already_closed,omitempty"`
	Totals  []store.MonthTotal `json:"totals"`
}

// Plan checks that everything in the month is rated. It writes nothing.
func (j *Job) Plan(ctx context.Context, month ratebatch.Month) (*Plan, error) {
	if err := j.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Month: month.String(), month: month}
	closes, err := j.Store.MonthCloses(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range closes {
		if c.Month.Equal(month.Date) {
			p.number = max(p.number, c.Closed)
		}
	}
	closed, err := j.Store.ClosedMonths(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(closed, func(c store.ClosedMonth) bool { return c.Month.Equal(month.Date) }); i >= 0 {
		return j.again(ctx, p, closed[i])
	}
	if p.disabled, err = j.settled(ctx, p); err != nil {
		return nil, err
	}
	if err := j.inOrder(ctx, month, closed); err != nil {
		return nil, err
	}
	if p.Totals, err = j.Store.CurrentTotals(ctx, month); err != nil {
		return nil, err
	}
	return p, j.compare(ctx, p)
}

// settled refuses a month in which something is to be rated, or rated again. It
// gives the windows of the disabled scopes.
func (j *Job) settled(ctx context.Context, p *Plan) ([]store.DueWindow, error) {
	w, err := j.Windows(ctx, p.month)
	if err != nil {
		return nil, err
	}
	return w.Disabled, j.refuse(ctx, p, w.Active)
}

// again is the plan of a month that is closed: nothing, if it still is what was
// frozen. A schedule that closes twice is no mistake.
func (j *Job) again(ctx context.Context, p *Plan, c store.ClosedMonth) (*Plan, error) {
	frozen, err := j.Store.FrozenTotals(ctx, p.month, c.Closed)
	if err != nil {
		return nil, err
	}
	current, err := j.Store.CurrentTotals(ctx, p.month)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(current, frozen, store.MonthTotal.Equal) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("month %s is closed already, and was rated differently since: the difference is a correction in an open month", p.Month),
			Hint: fmt.Sprintf("'ratebatch close --list' shows it; to change the month itself: 'ratebatch reopen --month %s --reason …'", p.Month)}
	}
	p.Already, p.Totals, p.number = true, frozen, c.Closed
	return p, nil
}

// inOrder refuses a month while an earlier one in which anything was committed
// is open. The earliest open month takes the corrections of the closed ones
// before it, so one that is closed before its turn would take none, and what it
// should have billed would wait for a month that nobody may export any more.
func (j *Job) inOrder(ctx context.Context, month ratebatch.Month, closed []store.ClosedMonth) error {
	m, found, err := FirstOpen(ctx, j.Store, j.Calendar, closed, month)
	if err != nil || !found {
		return err
	}
	return &ratebatch.HaltError{Err: fmt.Errorf("month %s cannot be closed before %s, which is open and was rated: months are closed in their order, or corrections of earlier months would get lost between them", month, m),
		Hint: fmt.Sprintf("'ratebatch close --month %s' first; 'ratebatch close --month %s --dry-run' says what it waits for. Periods that can never be rated (their usage has expired) are settled when their scope is disabled while the month is closed", m, m)}
}

// FirstOpen finds the earliest month before another one that is not among the
// closed ones and in which anything was committed.
func FirstOpen(ctx context.Context, s *store.Store, calendar ratebatch.Calendar, closed []store.ClosedMonth, before ratebatch.Month) (ratebatch.Month, bool, error) {
	first, err := s.FirstCommit(ctx)
	if err != nil || first.Unix() <= 0 {
		return ratebatch.Month{}, false, err
	}
	for m := calendar.MonthAt(first); m.Date.Before(before.Date); m = calendar.Next(m) {
		if slices.ContainsFunc(closed, func(c store.ClosedMonth) bool { return c.Month.Equal(m.Date) }) {
			continue
		}
		if rated, err := s.AnyCommit(ctx, m.From, m.To, store.OpenEnd); err != nil || rated {
			return m, rated && err == nil, err
		}
	}
	return ratebatch.Month{}, false, nil
}

// refuse names what is not rated yet.
func (j *Job) refuse(ctx context.Context, p *Plan, windows []store.DueWindow) error {
	due, err := j.Store.DueScopes(ctx, windows, j.Period, p.month.From, p.month.To)
	if err != nil || len(due) == 0 {
		return err
	}
	var periods, conflicts uint64
	var names []string
	for _, d := range due {
		periods += d.Periods
		conflicts += d.Conflicts
		if len(names) < 5 {
			names = append(names, fmt.Sprintf("%s: %d from %s", d.Scope, d.Periods, d.First.Format(time.RFC3339)))
		}
	}
	text := fmt.Sprintf("month %s is not complete: %d periods of %d scopes are not rated or wait", p.Month, periods, len(due))
	if conflicts > 0 {
		text += fmt.Sprintf(", %d of them in conflict", conflicts)
	}
	incomplete := fmt.Errorf("%s (%s)", text, strings.Join(names, "; "))
	now, err := j.Store.Now(ctx)
	if err != nil {
		return err
	}
	oldest, _, err := j.Store.OldestRatable(ctx, now, j.Period)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(due, func(d store.DueScope) bool { return d.First.Before(oldest) }); i >= 0 {
		return &ratebatch.HaltError{Err: incomplete, Hint: fmt.Sprintf("the tiers have usage from %s on only, so what lies before can never be rated. To settle it as nobody's: 'ratebatch scopes disable %s' (and each other one of them), close the month, then 'ratebatch scopes enable'",
			oldest.Format(time.RFC3339), due[i].Scope)}
	}
	return &ratebatch.TryAgainError{Err: incomplete, Hint: "'ratebatch status' says what waits and why, 'ratebatch rate' rates what is ready"}
}

// compare reads the lines themselves and stops when they are not what the
// commits say.
func (j *Job) compare(ctx context.Context, p *Plan) error {
	lines, err := j.Store.LineTotals(ctx, p.month)
	if err != nil {
		return err
	}
	all := sum(p.Totals)
	if lines.Lines != all.Lines || lines.LineDigest != all.LineDigest || !lines.Total.Equal(all.Total) {
		return &ratebatch.HaltError{Err: fmt.Errorf("month %s: the commits have %d lines, %s in all, the lines are %d and %s", p.Month, all.Lines, all.Total, lines.Lines, lines.Total),
			Hint: "nothing was closed; reprocess the month, and look who changed rated_lines"}
	}
	return nil
}

// sum is what totals of all currencies have in lines. Commits of disabled periods
// have none.
func sum(totals []store.MonthTotal) store.MonthTotal {
	var all store.MonthTotal
	for _, t := range totals {
		all.Lines += t.Lines
		all.LineDigest += t.LineDigest
		all.Total = all.Total.Add(t.Total)
	}
	return all
}

// Run freezes the month's commits: first the commits, then the row that makes
// them count.
func (j *Job) Run(ctx context.Context, p *Plan, run uuid.UUID, reason string) (Result, error) {
	result := Result{Month: p.Month}
	if p.Already {
		result.Closed, result.Totals, result.Already = p.number, p.Totals, true
		return result, nil
	}
	if err := j.Store.InsertDisabled(ctx, run, p.disabled, j.Period, p.month.From, p.month.To, "disabled when the month was closed", j.Author); err != nil {
		return result, err
	}
	// A number that a close used which was cut does not count and is not used
	// again.
	number := p.number + 1
	for {
		used, err := j.Store.FrozenTotals(ctx, p.month, number)
		if err != nil {
			return result, err
		}
		if len(used) == 0 {
			break
		}
		number++
	}
	if err := j.Store.FreezeMonth(ctx, p.month, number, reason, j.Author); err != nil {
		return result, err
	}
	frozen, err := j.Store.FrozenTotals(ctx, p.month, number)
	if err != nil {
		return result, err
	}
	if err := j.unchanged(ctx, p, frozen); err != nil {
		return result, err
	}
	if was, is := sum(p.Totals), sum(frozen); was.Lines != is.Lines || was.LineDigest != is.LineDigest || !was.Total.Equal(is.Total) {
		return result, j.changed(p) // by lines that nobody compared
	}
	// Once it is closed it is not noted any more (note_plain_month).
	if err := j.Store.NotePlainMonths(ctx, []time.Time{p.month.Date}); err != nil {
		return result, err
	}
	entry := store.MonthChange{Closed: number, Kind: "close", Reason: reason, Author: j.Author}
	if err := j.Store.PutMonthClose(ctx, p.month, entry, frozen); err != nil {
		return result, err
	}
	// A run that committed in between has changed what is current, and one that
	// reopened an earlier month has changed what this one has to take; one of a shard,
	// which a close does not wait for, may have changed what comes after its periods.
	// The month is open again and the next close takes it in.
	err = j.commitsEnd(ctx)
	var closed []store.ClosedMonth
	if err == nil {
		closed, err = j.Store.ClosedMonths(ctx)
	}
	if err == nil {
		err = j.inOrder(ctx, p.month, closed)
	}
	if err == nil {
		err = j.unchanged(ctx, p, frozen)
	}
	if err == nil {
		_, err = j.settled(ctx, p)
	}
	if err != nil {
		entry.Kind, entry.Reason = "reopen", "changed while it was closed"
		return result, errors.Join(err, j.Store.PutMonthClose(ctx, p.month, entry, nil))
	}
	result.Closed, result.Totals = number, frozen
	return result, nil
}

// commitsWait is how long a close waits for commits that are being written.
const commitsWait = time.Minute

// commitsEnd waits for the statements that are writing commits, as one does whose
// job was killed. What they write is dated before the close and seen after it: a
// correction that this month has to bill, and that the month after takes for billed.
func (j *Job) commitsEnd(ctx context.Context) error {
	for waited := time.Duration(0); ; waited += commitsPoll {
		n, err := j.Store.CommitsUnderWay(ctx)
		if err != nil || n == 0 {
			return err
		}
		if waited >= commitsWait {
			return &ratebatch.TryAgainError{Err: fmt.Errorf("%d statements still write commits", n), Hint: "another job commits; run it again afterwards"}
		}
		if err := jobs.Sleep(ctx, commitsPoll); err != nil {
			return err
		}
	}
}

// commitsPoll is how often that is asked.
const commitsPoll = 200 * time.Millisecond

func (j *Job) unchanged(ctx context.Context, p *Plan, frozen []store.MonthTotal) error {
	current, err := j.Store.CurrentTotals(ctx, p.month)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(current, frozen, store.MonthTotal.Equal) {
		return j.changed(p)
	}
	return nil
}

func (j *Job) changed(p *Plan) error {
	return &ratebatch.TryAgainError{Err: fmt.Errorf("month %s changed while it was closed", p.Month), Hint: "another job commits in it; run it again afterwards"}
}

// Reopen makes a closed month open again; what it consisted of stays on record.
// It refuses a month whose lines were removed: without them it could not be closed
// again, nor any month after it. And it refuses while a month that was closed after
// it is closed: that one may have billed corrections of this month, or those that
// are left after this month took its part, and what this month bills from now on
// would come on top of them or get lost. So closes are taken back like plates from
// a stack, whatever order they were made in.
func (j *Job) Reopen(ctx context.Context, month ratebatch.Month, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return &ratebatch.ConfigError{Err: errors.New("--reason is missing: it is kept with the month")}
	}
	if err := j.Store.CheckSchema(ctx); err != nil {
		return err
	}
	closed, err := j.Store.ClosedMonths(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(closed, func(c store.ClosedMonth) bool { return c.Month.Equal(month.Date) })
	if i < 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("month %s is not closed", month), Hint: "list the closes with 'ratebatch close --list'"}
	}
	own := closed[i]
	removed, err := j.Store.LinesRemoved(ctx, month, own.Closed)
	if err != nil {
		return err
	}
	if removed {
		return &ratebatch.HaltError{Err: fmt.Errorf("month %s cannot be opened: its lines were removed by 'ratebatch retention --lines-after', so it could not be closed again", month),
			Hint: "bill the difference by hand"}
	}
	later := slices.DeleteFunc(closed, func(c store.ClosedMonth) bool { return !c.ClosedAt.After(own.ClosedAt) })
	slices.SortFunc(later, func(a, b store.ClosedMonth) int { return b.ClosedAt.Compare(a.ClosedAt) })
	if len(later) > 0 {
		names := make([]string, len(later))
		for i, c := range later {
			names[i] = c.Month.Format("2006-01")
		}
		list := strings.Join(names, ", ")
		return &ratebatch.HaltError{Err: fmt.Errorf("month %s cannot be opened while what was closed after it is closed (%s): its corrections may be billed there already, and would be billed again or get lost", month, list),
			Hint: fmt.Sprintf("what is rated again in a closed month is billed as a correction, without opening it. If it must be opened: reopen %s first, the one closed last first, then close them again in the order of months and export them again", list)}
	}
	return j.Store.PutMonthClose(ctx, month, store.MonthChange{Closed: own.Closed, Kind: "reopen", Reason: reason, Author: j.Author}, nil)
}
