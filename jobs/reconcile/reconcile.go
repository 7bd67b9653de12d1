// Package reconcile is the job that proves a month complete, step by step: each
// distinct sample is in one row per tier, each usage row in lines or in a named
// bucket, each line in its commit and in the current delivery. It reads only.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Result is how a step came out.
type Result string

// A step holds, fails, or cannot be checked any more; why stands in its note.
const (
	Holds   Result = "holds"
	Fails   Result = "FAILS"
	Unknown Result = "not checked"
)

// Step compares two sides of the way of the data.
type Step struct {
	Step   string `json:"step"`
	What   string `json:"what"`
	Left   string `json:"left"`
	Right  string `json:"right"`
	Result Result `json:"result"`
	Note   string `json:"note,omitempty"`
}

// Bucket is what is on the way but in no ordinary line, by name.
type Bucket struct {
	Bucket string `json:"bucket"`
	Rows   uint64 `json:"rows"`
	What   string `json:"what"`
}

// Report is the proof, or what is missing of it.
type Report struct {
	Month   string   `json:"month"`
	Closed  bool     `json:"closed"`
	Steps   []Step   `json:"steps"`
	Buckets []Bucket `json:"buckets"`
}

// Failed lists the steps that do not hold.
func (r Report) Failed() []Step {
	return slices.DeleteFunc(slices.Clone(r.Steps), func(s Step) bool { return s.Result != Fails })
}

// Err is nil when every step that could be checked holds.
func (r Report) Err() error {
	failed := r.Failed()
	if len(failed) == 0 {
		return nil
	}
	s := failed[0]
	return &ratebatch.HaltError{Err: fmt.Errorf("month %s: %s: %s: %s is not %s", r.Month, s.Step, s.What, s.Left, s.Right), Hint: s.Note}
}

// Job reconciles one month.
type Job struct {
	Store  *store.Store
	Month  ratebatch.Month
	Period time.Duration // of usage
	// BeforeFirst sizes the usage in a window that lies before its scope's first
	// period; nil: it stays in the bucket no commit.
	BeforeFirst func(ctx context.Context, from, to time.Time) ([]store.BeforeFirst, error)
	Bucket      bucket.Bucket // where the lines were delivered to; nil: only the table exports is looked at

	Reprice uint64 // how many lines are priced again, one by one
	Seed    uint64 // of the draw; 0: by the moment
}

// Run reads everything and compares.
func (j *Job) Run(ctx context.Context) (Report, error) {
	r := Report{Month: j.Month.String(), Buckets: []Bucket{}}
	w, err := j.Store.ExportWindowNow(ctx, j.Month.From, j.Month.To)
	if err != nil {
		return r, err
	}
	closes, err := j.Store.ExportCloses(ctx, w.AsOf)
	if err != nil {
		return r, err
	}
	for _, c := range closes {
		if c.Month.Equal(j.Month.Date) {
			r.Closed, w.Closed, w.Month = true, c.Number, c.Month
		}
	}
	if err := j.samples(ctx, &r, w); err != nil {
		return r, err
	}
	// Usage is what it is now: a closed month that was corrected was rated by it
	// in the commits of the correction, while what was billed stays as it was.
	current := w
	current.Closed = 0
	usage, err := j.usage(ctx, &r, current)
	if err != nil {
		return r, err
	}
	set, err := j.Store.ExportCommitSet(ctx, w)
	if err != nil {
		return r, err
	}
	now := set
	if r.Closed {
		if now, err = j.Store.ExportCommitSet(ctx, current); err != nil {
			return r, err
		}
	}
	if r.Closed && set.Lines > 0 {
		removed, err := j.Store.LinesRemoved(ctx, j.Month, w.Closed)
		if err != nil {
			return r, err
		}
		if removed {
			return r, j.withoutLines(ctx, &r, w, set)
		}
	}
	if now.Commits != set.Commits || now.Digest != set.Digest {
		if _, err := j.lines(ctx, &r, current, usage, " as corrected"); err != nil {
			return r, err
		}
		usage = nil
	}
	lines, err := j.lines(ctx, &r, w, usage, "")
	if err != nil {
		return r, err
	}
	if err := j.reprice(ctx, &r, w); err != nil {
		return r, err
	}
	return r, j.files(ctx, &r, set, lines, "")
}

// withoutLines goes on with a closed month that has no line left, as retention
// leaves those that were exported: the files are compared with what the commits
// say of their lines.
func (j *Job) withoutLines(ctx context.Context, r *Report, w store.ExportWindow, set store.CommitSet) error {
	const why = "no line of this month is left: 'ratebatch retention --lines-after' removes those of closed and exported months. If it never ran here, they are lost"
	r.unknown("usage → lines", "usage rows of the commits and with lines", why)
	r.unknown("lines → commits", "lines of the commits and read", why)
	if j.Reprice > 0 {
		r.unknown("usage → prices", "lines drawn, and those of the same price again", why)
	}
	lines, err := j.Store.ReconcileLines(ctx, w)
	if err != nil {
		return err
	}
	lines.LinesRead, lines.TotalRead = lines.Lines, lines.Total
	return j.files(ctx, r, set, lines, "the lines are gone, so the month cannot be exported again: restore the files from a copy")
}

func compare[T comparable](r *Report, step, what string, left, right T, note string) {
	s := Step{Step: step, What: what, Left: fmt.Sprint(left), Right: fmt.Sprint(right), Result: Holds}
	if left != right {
		s.Result, s.Note = Fails, note
	}
	r.Steps = append(r.Steps, s)
}

func (r *Report) unknown(step, what, why string) {
	r.Steps = append(r.Steps, Step{Step: step, What: what, Result: Unknown, Note: why})
}

// bucket notes what has a name instead of a line.
func (r *Report) bucket(name string, rows uint64, what string) {
	if rows > 0 {
		r.Buckets = append(r.Buckets, Bucket{name, rows, what})
	}
}

// samples proves that each distinct sample is in one row of each tier, with its
// bytes. Where the raw samples have expired, the counts and sums that were made
// of them stand in.
func (j *Job) samples(ctx context.Context, r *Report, w store.ExportWindow) error {
	tallies, err := j.Store.ReconcileSamples(ctx, w.From, w.To)
	if err != nil {
		return err
	}
	const step, note = "samples → tiers", "see 'ratebatch rollup --help': the tier was not refreshed after late samples, or lost rows"
	units := map[string][2]string{"port": {"bytes received", "bytes sent"}, "disk": {"bytes read", "bytes written"}}
	for _, t := range tallies {
		left := t.Kind + " samples, raw and "
		if t.CountedHours > 0 {
			left = fmt.Sprintf("%s samples, raw (in %d hours as counted at arrival) and ", t.Kind, t.CountedHours)
		}
		r.bucket("late", uint64(max(0, t.Late)), t.Kind+" samples that arrived when the tiers no longer took them up")
		if t.Unknown > 0 || t.Expired > 0 {
			r.unknown(step, t.Kind+" samples and hourly", fmt.Sprintf("of %d samples the raw ones have expired and their arrival was not counted, or the tier has expired", t.Unknown+t.Expired))
		}
		if t.Arrived.Samples == 0 {
			if t.Hourly.Samples > 0 {
				r.unknown(step, t.Kind+" samples and hourly", "there are no raw samples: the tier was filled in another way")
			}
			continue
		}
		compare(r, step, left+"hourly", t.Arrived.Samples, t.Hourly.Samples, note)
		if t.FiveHours > 0 {
			compare(r, step, left+"5min", t.Arrived5.Samples, t.FiveMin.Samples, note)
		} else {
			r.unknown(step, left+"5min", "the 5-minute tier has expired")
		}
		unit, ok := units[t.Kind]
		if !ok {
			continue
		}
		compare(r, step, unit[0]+", raw and hourly", t.Arrived.X, t.Hourly.X, note)
		compare(r, step, unit[1]+", raw and hourly", t.Arrived.Y, t.Hourly.Y, note)
		if t.FiveHours > 0 {
			compare(r, step, unit[0]+", raw and 5min", t.Arrived5.X, t.FiveMin.X, note)
			compare(r, step, unit[1]+", raw and 5min", t.Arrived5.Y, t.FiveMin.Y, note)
		}
	}
	return nil
}

// segment is a part of the window with one set of metrics.
type segment struct {
	from, to time.Time
	set      *metric.Set
}

// segments cuts the window where the metrics that periods are rated by change.
func (j *Job) segments(ctx context.Context, w store.ExportWindow) ([]segment, error) {
	versions, err := j.Store.Versions(ctx, store.MetricVersions)
	if err != nil {
		return nil, err
	}
	if len(versions) == 0 { // rating uses the built-in metrics then
		versions = []store.Version{{Body: string(metric.Default()), ValidTo: store.OpenEnd}}
	}
	var out []segment
	for _, span := range store.PeriodSpans(versions, w.From, w.To, j.Period) {
		if span.Version == nil {
			continue
		}
		set, err := metric.Parse(fmt.Sprintf("metric set %d", span.Version.Version), []byte(span.Version.Body))
		if err != nil {
			return nil, err
		}
		out = append(out, segment{span.Begin, span.End, set})
	}
	return out, nil
}

// tally counts usage and what was committed of it.
func (j *Job) tally(ctx context.Context, w store.ExportWindow, segments []segment) (all store.UsageTally, err error) {
	for _, s := range segments {
		if s.from.Before(w.From) {
			s.from = w.From
		}
		if !s.from.Before(s.to) {
			continue
		}
		text := ""
		for _, m := range s.set.Metrics {
			one, err := m.UsageSQL(metric.UsageOptions{Period: j.Period, Attributes: true})
			if err != nil {
				return all, err
			}
			if text != "" {
				text += "\nUNION ALL\n"
			}
			text += "SELECT region, scope, begin, toLowCardinality(" + sqltext.String(m.Name) + ") AS metric, resource, attributes, qty FROM (\n" + one + ")"
		}
		part := w
		part.From, part.To = s.from, s.to
		if part.Month.IsZero() {
			part.Month = j.Month.Date
		}
		t, err := j.Store.ReconcileUsage(ctx, part, text)
		if err != nil {
			return all, err
		}
		all.Rows += t.Rows
		all.InCommits += t.InCommits
		all.WithoutCommit += t.WithoutCommit
		all.Committed += t.Committed
		all.Quantity = all.Quantity.Add(t.Quantity)
		all.Changed += t.Changed
		all.Lost += t.Lost
		all.Periods += t.Periods
	}
	return all, nil
}

// usage proves that what was rated is the usage that there is.
func (j *Job) usage(ctx context.Context, r *Report, w store.ExportWindow) (*store.UsageTally, error) {
	const step = "tiers → usage"
	segments, err := j.segments(ctx, w)
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 {
		r.unknown(step, "usage rows", "no set of metrics is in force in this month")
		return nil, nil
	}
	scope, p, err := j.Store.OtherPeriod(ctx, j.Period, w.From, w.To)
	if err != nil {
		return nil, err
	}
	if scope != "" {
		r.unknown(step, "usage rows", fmt.Sprintf("period %s of scope %s was rated by another length of the period than %s, by which usage is read", p, scope, j.Period))
		return nil, nil
	}
	all, err := j.tally(ctx, w, segments)
	if err != nil {
		return nil, err
	}
	part := false
	if all.InCommits != all.Committed || all.Changed > 0 { // has usage changed, or expired?
		oldest, _, err := j.Store.OldestRatable(ctx, w.AsOf.Add(j.Period), j.Period) // a bucket may go while it is read
		if err != nil {
			return nil, err
		}
		if part = oldest.After(w.From) && oldest.Before(w.To); part {
			r.unknown(step, "usage rows of before "+oldest.Format(time.RFC3339), "the tiers have all usage from then on only: what was rated before can no longer be counted again")
			w.From = oldest
			if all, err = j.tally(ctx, w, segments); err != nil {
				return nil, err
			}
		}
	}
	if !part && all.Rows == 0 && all.Committed > 0 {
		r.unknown(step, "usage rows", "the tiers have expired: what was rated can no longer be counted again")
		return nil, nil
	}
	compare(r, step, "usage rows now, in commits and in the bucket no commit", all.Rows, all.InCommits+all.WithoutCommit, "")
	compare(r, step, "usage rows now and at their commits", all.InCommits, all.Committed, "late usage: 'ratebatch status' lists it, 'ratebatch reprocess' rates it")
	compare(r, step, "rated periods, and those of unchanged usage", all.Periods, all.Periods-all.Changed, "late usage: 'ratebatch status' lists it, 'ratebatch reprocess' rates it")
	if j.BeforeFirst != nil {
		list, err := j.BeforeFirst(ctx, w.From, w.To)
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			all.WithoutCommit -= min(x.Rows, all.WithoutCommit)
			r.bucket("before_first", x.Rows, fmt.Sprintf("usage rows of scope %s in %d periods before its first period, %s; nobody is billed for them", x.Scope, x.Periods, x.First.Format(time.RFC3339)))
		}
	}
	r.bucket("no commit", all.WithoutCommit, "usage rows that are not ready, not rated yet, or of a disabled scope")
	r.bucket("usage lost", all.Lost, "rated periods with fewer usage rows now than at their commit")
	if all.Changed > 0 || part {
		return nil, nil // quantities are of other usage than the lines
	}
	return &all, nil
}

// lines proves that the usage that was committed is in lines, and the lines in
// their commits; as says of which state, where there are two.
func (j *Job) lines(ctx context.Context, r *Report, w store.ExportWindow, usage *store.UsageTally, as string) (store.LineTally, error) {
	t, err := j.Store.ReconcileLines(ctx, w)
	if err != nil {
		return t, err
	}
	where := ""
	if t.Differ > 0 {
		where = fmt.Sprintf("%d periods differ, the first is %s of scope %s: rate it again with 'ratebatch reprocess'", t.Differ, t.FirstBegin.UTC().Format(time.RFC3339), t.FirstScope)
	}
	compare(r, "usage → lines", "usage rows of the commits and with lines"+as, t.UsageRows, t.UsageRowsLines, where)
	if usage != nil {
		compare(r, "usage → lines", "quantities of usage and of lines"+as, usage.Quantity.String(), t.Quantity.String(), "a line was split wrongly: report this")
	}
	compare(r, "lines → commits", "lines of the commits and read"+as, t.Lines, t.LinesRead, where)
	compare(r, "lines → commits", "money of the commits and read"+as, t.Total.String(), t.TotalRead.String(), where)
	compare(r, "lines → commits", "periods, and those whose count, keys and total agree"+as, t.Periods, t.Periods-t.Differ, where)
	if as != "" {
		return t, nil // the buckets are told of what was billed
	}
	r.bucket("unpriced", t.Unpriced, "lines that no rule priced")
	r.bucket("rejected", t.Rejected, "lines that could not be priced exactly")
	r.bucket("skipped", t.Skipped, "lines that a rule or a disabled module left out")
	return t, nil
}

// files proves that the current delivery holds what counts. again is what to do
// where it does not; empty: to export it again.
func (j *Job) files(ctx context.Context, r *Report, set store.CommitSet, lines store.LineTally, again string) error {
	const step = "lines → files"
	if again == "" {
		again = "export the month again: 'ratebatch export --month " + r.Month + "'"
	}
	if j.Bucket == nil {
		places, err := j.Store.ReconcileExports(ctx, j.Month.Date)
		if err != nil {
			return err
		}
		if len(places) == 0 {
			r.unknown(step, "deliveries", "the lines of this month were not exported yet")
		}
		for _, p := range places {
			compare(r, step, "commits that count and at "+p.Location, fmt.Sprint(set.Commits, " ", set.Digest), fmt.Sprint(p.Commits, " ", p.Digest), again)
		}
		return nil
	}
	m, _, err := exporter.ReadManifest(ctx, j.Bucket, exporter.Folder("lines", r.Month))
	if errors.Is(err, bucket.ErrNotExist) {
		// Whoever names a place says that the lines are there.
		compare(r, step, "deliveries at "+j.Bucket.Location(), 1, 0, "there are no lines of this month at that place: "+again)
		return nil
	}
	if err != nil {
		return err
	}
	compare(r, step, "commits that count and of the manifest", fmt.Sprint(set.Commits, " ", set.Digest), fmt.Sprint(m.State.Commits, " ", m.State.CommitDigest), again)
	corrections := uint64(0)
	for _, c := range m.Corrections {
		corrections += c.Rows
	}
	if m.Mechanism == exporter.Append { // its rows are lines and differences of lines, so there is no count to compare
		compare(r, step, "lines that count and of the manifest", lines.LinesRead, m.State.Lines, again)
	} else {
		compare(r, step, "lines that count and of the manifest, without corrections", lines.LinesRead, m.Rows-corrections, again)
	}
	total := decimal.Zero // over currencies, as that of the lines
	for _, text := range m.Totals {
		total = total.Add(decimal.RequireFromString(text))
	}
	for _, c := range m.Corrections {
		for _, text := range c.Totals {
			total = total.Sub(decimal.RequireFromString(text))
		}
	}
	compare(r, step, "money of the lines and of the manifest, without corrections", lines.TotalRead.String(), total.String(), again)
	r.bucket("corrections", corrections, "lines of the delivery that correct earlier months")
	verified, err := exporter.VerifyDelivery(ctx, j.Bucket, exporter.Folder("lines", r.Month), nil)
	if err != nil {
		return err
	}
	compare(r, step, "files of the manifest: what differs in checksums, rows and sums", 0, len(verified.Problems), strings.Join(verified.Problems, "; "))
	return nil
}
