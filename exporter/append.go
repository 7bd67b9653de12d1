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

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// An append delivery holds what is new since the delivery before at the same
// place, so that a reader who adds all of them up has the month at any moment:
// the lines of periods that were not delivered yet, as they are, and of those
// that were, the differences of lines whose period counts by another commit now.
//
// What was delivered before is not looked up in a table that could say
// something else than the place: the manifest there names the moment and the
// commits' figure of each append delivery, and commits are never edited, so the
// state at that moment is read again and held against the figure. Where it is
// not the same any more (retention removed a revision, a commit of a lagging
// replica became visible late) nothing is guessed: the export halts.
//
// Corrections of closed months are differences twice over: of what counts and
// what was billed, now and then.

// difference is a month of which lines changed since the delivery before: the
// exported one, or a closed one that it corrects.
type difference struct {
	window store.AppendWindow
	totals []store.AppendTotal
	own    bool // the exported month
}

// appendTo makes the next append delivery at a place whose manifest is current
// and has this text, or the first one if that is nil.
func (e *export) appendTo(ctx context.Context, current *Manifest, text []byte) (Result, error) {
	var before Increment
	if current != nil {
		if err := e.sameForm(ctx, current); err != nil {
			return Result{}, err
		}
		e.base, before = current, current.Increments[len(current.Increments)-1]
		e.window.ThenAsOf, e.window.ThenClosed = before.AsOf, before.Close
	}
	state, err := e.Store.AppendState(ctx, e.window)
	if err != nil {
		return Result{}, err
	}
	month := ratebatch.Period{Begin: e.window.From, End: e.window.To}
	if state.Now.Commits != e.all.Commits || state.Now.Digest != e.all.Digest {
		return Result{}, &mismatchError{period: month, detail: "the commits changed while they were read"}
	}
	if current != nil && (state.Then.Commits != before.Commits || state.Then.Digest != before.CommitDigest) {
		return Result{}, &ratebatch.HaltError{Period: month,
			Err: fmt.Errorf("append delivery %d at %s/%s holds %d commits of digest %s, those of %s are now %d of digest %s: what it adjusted cannot be told any more",
				before.Sequence, e.Bucket.Location(), e.folder, before.Commits, before.CommitDigest, before.AsOf.Format(time.RFC3339Nano), state.Then.Commits, state.Then.Digest),
			Hint: "nothing was changed; retention removes revisions that were exported everywhere. Export the month to a new place and have its readers start there"}
	}
	e.set = state.New
	differences, err := e.differences(ctx, before)
	if err != nil {
		return Result{}, err
	}
	if current != nil && state.Now.Digest == before.CommitDigest && state.Now.Commits == before.Commits && e.window.Closed == before.Close && len(differences) == 0 {
		return e.unchanged(ctx, current, text)
	}
	next := Increment{Sequence: before.Sequence + 1, Delivery: e.appendName(before, state, differences), AsOf: e.window.AsOf, Close: e.window.Closed,
		Commits: state.Now.Commits, CommitDigest: state.Now.Digest, NewPeriods: state.New.Commits, Adjusted: state.Changed}
	if e.DryRun {
		return Result{Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: next.Delivery, Mechanism: Append, Location: e.Bucket.Location(),
			Manifest: e.folder + ManifestName, DryRun: true, Open: !e.closed, Partial: e.until.Before(e.window.To), CompleteUntil: e.until, Missing: e.missing,
			Commits: state.Now.Commits, Increment: &next}, nil
	}
	m, err := e.append(ctx, next, state, differences)
	if err != nil {
		return Result{}, err
	}
	// A commit that became visible while this was written would not be in the
	// figure, and the next append delivery could not tell what this one held.
	if changed, err := e.changed(ctx); err != nil {
		return Result{}, err
	} else if changed {
		return Result{}, &mismatchError{period: month, detail: "the commits changed while the delivery was written"}
	}
	if err := e.removeStrays(ctx, m); err != nil {
		return Result{}, err
	}
	if err := e.publish(ctx, m); err != nil {
		return Result{}, err
	}
	return e.result(m), e.sweep(ctx, m)
}

// removeStrays removes what lies in the new delivery's folder and is not its
// own, before readers are told to take the folder: what a killed attempt, another
// program or an earlier version left there. Not before it is written:
// one that took over meanwhile may have published the same state under this name,
// and all its files are among those of m.
func (e *export) removeStrays(ctx context.Context, m *Manifest) error {
	strays, err := unlisted(ctx, e.Bucket, e.folder, m, e.prefix)
	if err != nil {
		return err
	}
	for _, path := range strays {
		e.Log.Warn("removing a file that is not the delivery's", "file", e.folder+path)
		if err := e.Bucket.Delete(ctx, e.folder+path); err != nil {
			return err
		}
	}
	return nil
}

// sameForm refuses to go on in another form than that of the deliveries before,
// and halts when their files are not what the manifest says: they cannot be
// written again, since what was current then is not any more.
func (e *export) sameForm(ctx context.Context, current *Manifest) error {
	if len(current.Increments) == 0 {
		return &ratebatch.HaltError{Err: fmt.Errorf("the manifest at %s/%s says append and names no delivery", e.Bucket.Location(), e.folder), Hint: "restore it, or export to a new place"}
	}
	for _, form := range []struct{ what, here, there string }{
		{"format", e.Format, current.Format}, {"partition", string(e.Partition), string(current.Partition)}, {"columns", e.schema().columns(), current.Schema.columns()},
	} {
		if form.here != form.there {
			return &ratebatch.ConfigError{Err: fmt.Errorf("the append deliveries at %s/%s have %s %s, not %s", e.Bucket.Location(), e.folder, form.what, form.there, form.here),
				Hint: "append deliveries are read together: go on with the same, or export to a new place"}
		}
	}
	broken, err := e.damaged(ctx, current)
	if err == nil && len(broken) > 0 {
		err = &ratebatch.HaltError{Err: fmt.Errorf("files of the append deliveries at %s/%s are missing or damaged: %s", e.Bucket.Location(), e.folder, ratebatch.Some(broken, mostBroken)),
			Hint: "'ratebatch export verify' says what is wrong with them; restore them from a copy, or export to a new place"}
	}
	return err
}

// appendName names an append delivery by the one before it, the states that it
// leads from and to, and what it adjusts: the same way of states has the same
// names and the same bytes, and what a killed attempt left of another way is in
// another folder.
func (e *export) appendName(before Increment, state store.AppendState, differences []difference) string {
	h := sha256.New()
	parts := []string{"append", before.Delivery, strconv.Itoa(before.Sequence), e.delivery(), // of the new periods, the close and the corrections
		strconv.FormatUint(state.Now.Commits, 10), state.Now.Digest, state.Then.Digest}
	for _, d := range differences {
		parts = append(parts, d.window.Month.Format("2006-01"), fmt.Sprint(d.own, d.totals))
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// differences finds the months of which lines changed since the delivery before.
func (e *export) differences(ctx context.Context, before Increment) ([]difference, error) {
	var all []difference
	if before.Sequence > 0 {
		all = append(all, difference{own: true, window: store.AppendWindow{From: e.window.From, To: e.window.To, Month: e.Month, Known: true,
			Now: &store.Side{AsOf: e.window.AsOf, Closed: e.window.Closed}, Then: &store.Side{AsOf: before.AsOf, Closed: before.Close}}})
	}
	corrected := map[time.Time]*store.AppendWindow{}
	of := func(c store.CorrectionWindow) (*store.AppendWindow, *store.Side) {
		w := corrected[c.From]
		if w == nil {
			w = &store.AppendWindow{From: c.From, To: c.To, Month: c.Month}
			corrected[c.From] = w
		}
		return w, &store.Side{AsOf: c.AsOf, BilledAsOf: c.BaseAsOf, Billed: c.Closed}
	}
	_, now, err := e.correctionWindows(ctx, e.window.AsOf)
	if err != nil {
		return nil, err
	}
	for _, c := range now {
		w, side := of(c)
		w.Now = side
	}
	if before.Sequence > 0 {
		_, then, err := e.correctionWindows(ctx, before.AsOf)
		if err != nil {
			return nil, err
		}
		for _, c := range then {
			w, side := of(c)
			w.Then = side
		}
	}
	for _, w := range corrected {
		all = append(all, difference{window: *w})
	}
	slices.SortFunc(all, func(a, b difference) int { return a.window.From.Compare(b.window.From) })
	for i := range all {
		if all[i].totals, err = e.Store.AppendTotals(ctx, all[i].window); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(d difference) bool { return len(d.totals) == 0 }), nil
}

// append writes the files of an append delivery and gives the place's manifest.
func (e *export) append(ctx context.Context, next Increment, state store.AppendState, differences []difference) (*Manifest, error) {
	m, err := e.writeCommitted(ctx, next.Delivery)
	if err != nil {
		return nil, err
	}
	sums := exactTotals(m.Totals)
	for _, d := range differences {
		if err := e.writeDifference(ctx, m, d, sums); err != nil {
			return nil, err
		}
	}
	next.Rows, next.Totals = m.Rows, plainTotals(sums)
	m.State = e.state()
	m.State.Commits, m.State.CommitDigest, m.State.CommittedAt, m.State.Lines = state.Now.Commits, state.Now.Digest, state.CommittedAt, state.Now.Lines
	m.State.Plans, m.State.Metrics = state.Plans, state.Metrics
	if e.base != nil {
		m.Increments = slices.Clone(e.base.Increments)
		m.Files = append(slices.Clone(e.base.Files), m.Files...)
		m.Rows += e.base.Rows
		for currency, total := range exactTotals(e.base.Totals) {
			sums[currency] = sums[currency].Add(total)
		}
	}
	m.Increments = append(m.Increments, next)
	if len(m.Files) == 0 {
		f, err := e.writeEmpty(ctx)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, *f)
	}
	m.Totals = plainTotals(sums)
	return m, e.compareAppended(ctx, m, sums)
}

// compareAppended holds the sum of all append deliveries against the commits
// and corrections that count now, and says of these in the manifest.
func (e *export) compareAppended(ctx context.Context, m *Manifest, sums map[string]decimal.Decimal) error {
	scopes, err := e.Store.ExportScopeTotals(ctx, e.window)
	if err != nil {
		return err
	}
	want := map[string]decimal.Decimal{}
	for _, t := range scopes {
		want[t.Currency] = want[t.Currency].Add(t.Total)
	}
	m.State.Totals = plainTotals(want)
	for _, c := range e.corrections {
		out := Correction{Month: c.window.Month.Format("2006-01")}
		totals := map[string]decimal.Decimal{}
		for _, t := range c.totals {
			out.Commits += t.Commits
			totals[t.Currency] = totals[t.Currency].Add(t.Total)
			want[t.Currency] = want[t.Currency].Add(t.Total)
		}
		out.Totals = plainTotals(totals)
		m.Corrections = append(m.Corrections, out)
	}
	for _, currency := range append(sortedNames(want), sortedNames(sums)...) {
		if !want[currency].Equal(sums[currency]) {
			return &mismatchError{period: ratebatch.Period{Begin: e.window.From, End: e.window.To},
				detail: fmt.Sprintf("all append deliveries add up to %s %s, the commits and corrections to %s", sums[currency], currency, want[currency])}
		}
	}
	return nil
}

// writeDifference writes what changed in one month and compares its sums with
// those of the commits.
func (e *export) writeDifference(ctx context.Context, m *Manifest, d difference, totals map[string]decimal.Decimal) error {
	name := "append/" + m.Delivery
	if !d.own {
		name = e.correctionName() + "/" + m.Delivery
	}
	read, want := map[scopeCurrency]*wide{}, map[scopeCurrency]decimal.Decimal{}
	for _, p := range e.differenceParts(d) {
		w := d.window
		w.From, w.To = p.window.From, p.window.To
		blocks, err := e.Store.AppendDifferences(ctx, w, p.first, p.last)
		if err != nil {
			return err
		}
		files, _, err := e.writeDifferences(ctx, blocks, p, name, read)
		if err != nil {
			return err
		}
		for _, f := range files {
			m.Files = append(m.Files, f)
			m.Rows += f.Rows
		}
	}
	for _, t := range d.totals {
		key := scopeCurrency{t.Scope, t.Currency}
		want[key] = want[key].Add(t.Total)
		totals[t.Currency] = totals[t.Currency].Add(t.Total)
	}
	for key := range read {
		want[key] = want[key].Add(decimal.Zero)
	}
	for key, total := range want {
		got := decimal.Zero
		if sum := read[key]; sum != nil {
			got = sum.decimal()
		}
		if !got.Equal(total) {
			return &mismatchError{scope: key.scope, period: ratebatch.Period{Begin: d.window.From, End: d.window.To},
				detail: fmt.Sprintf("the commits differ by %s %s from those delivered before, their lines by %s", total, key.currency, got)}
		}
	}
	return nil
}

// differenceParts are the files that the differences of a month are spread
// over: adjustments beside the lines they adjust, corrections where complete
// deliveries have them.
func (e *export) differenceParts(d difference) []part {
	name := "adjustments." + e.Format
	if !d.own {
		name = "corrections-" + d.window.Month.Format("2006-01") + "." + e.Format
	}
	whole := store.ExportWindow{From: d.window.From, To: d.window.To}
	var parts []part
	find := map[string]int{}
	for _, t := range d.totals {
		p := part{window: whole, path: name, first: t.Scope, last: t.Scope}
		switch e.Partition {
		case ByScope:
			p.path, p.partition = scopeFolder(t.Scope)+name, map[string]string{"scope": t.Scope}
		case ByDay:
			day := e.Month // corrections are billed in this month, whatever their own day
			if d.own {
				day = t.Day // of UTC: the month's first and last one may be cut
				if day.After(whole.From) {
					p.window.From = day
				}
				if end := day.AddDate(0, 0, 1); end.Before(whole.To) {
					p.window.To = end
				}
			}
			p.path, p.partition = "day="+day.Format(time.DateOnly)+"/"+name, map[string]string{"day": day.Format(time.DateOnly)}
		case Whole:
		}
		if at, ok := find[p.path]; ok {
			parts[at].first, parts[at].last = min(parts[at].first, t.Scope), max(parts[at].last, t.Scope)
			continue
		}
		find[p.path] = len(parts)
		parts = append(parts, p)
	}
	return parts
}

func exactTotals(text map[string]string) map[string]decimal.Decimal {
	out := map[string]decimal.Decimal{}
	for currency, total := range text {
		out[currency] = decimal.RequireFromString(total)
	}
	return out
}

// plainTotals leaves out what is nothing: a currency that is not used any more.
func plainTotals(totals map[string]decimal.Decimal) map[string]string {
	out := map[string]string{}
	for currency, total := range totals {
		if !total.IsZero() {
			out[currency] = total.String()
		}
	}
	return out
}

// increment gives the newest append delivery of a manifest and its files; nil
// if it holds a complete delivery.
func (m *Manifest) increment() (*Increment, []File) {
	if len(m.Increments) == 0 {
		return nil, nil
	}
	last := m.Increments[len(m.Increments)-1]
	return &last, slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool { return !strings.HasPrefix(f.Path, "delivery="+last.Delivery+"/") })
}
