package exporter

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"golang.org/x/sync/errgroup"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Partition says how the rows of a delivery are spread over files.
type Partition string

// By day, one day's files can be read alone; by scope, one project's.
const (
	ByDay   Partition = "day"
	ByScope Partition = "scope"
	Whole   Partition = "none"
)

// Input is what one export works on.
type Input struct {
	Store  *store.Store
	Bucket bucket.Bucket

	Dataset   string    // one of Datasets; empty: lines
	Format    string    // one of Formats; empty: parquet
	Month     time.Time // first instant of a month in UTC
	Partition Partition // empty: ByDay, for statements Whole
	Partial   bool      // export although periods are missing
	DryRun    bool      // say what would be written and stop

	FocusVersion string             // one of FocusVersions; empty: 1.2
	Operator     string             // who runs the cloud, for FOCUS; empty: "Cloud operator"
	RoundTo      int32              // digits of a statement's amounts; negative: 2
	SignKey      ed25519.PrivateKey // signs the manifest; nil: no signature

	Now     time.Time     // decides whether the month is over
	Grace   time.Duration // how long a delivery that was replaced stays readable
	Workers int           // files written at the same time; 0: one per processor, at most 2; each takes about 100 MB
	Version string        // of the program, for the manifest
	RunID   uuid.UUID
	Log     *slog.Logger
	// Progress, if set, is called with the number of rows written so far.
	Progress func(rows uint64)
}

// Result says what an export did.
type Result struct {
	Dataset   string            `json:"dataset"`
	Format    string            `json:"format"`
	Month     string            `json:"month"`
	Delivery  string            `json:"delivery"`
	Location  string            `json:"location"`
	Manifest  string            `json:"manifest"` // below Location
	Unchanged bool              `json:"unchanged"`
	DryRun    bool              `json:"dry_run,omitempty"`
	Partial   bool              `json:"partial"`
	Missing   []Missing         `json:"missing,omitempty"`
	Commits   uint64            `json:"commits"`
	Files     int               `json:"files"`
	Rows      uint64            `json:"rows"`
	Bytes     uint64            `json:"bytes"`
	Totals    map[string]string `json:"totals"`
}

// attempts bounds how often an export starts again because commits changed
// while it read.
const attempts = 3

// Run exports one dataset of one month. It writes nothing if the current
// delivery holds the same state already.
func Run(ctx context.Context, in Input) (Result, error) {
	if err := in.complete(); err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		e := &export{Input: in, folder: Folder(in.Dataset, in.Month.Format("2006-01"))}
		result, err := e.run(ctx)
		var mismatch *mismatchError
		if !errors.As(err, &mismatch) {
			return result, err
		}
		changed, looking := e.changed(ctx)
		switch {
		case looking != nil:
			return result, errors.Join(err, looking)
		case !changed:
			return result, &ratebatch.HaltError{Scope: mismatch.scope, Period: mismatch.period, Err: errors.New(mismatch.detail),
				Hint: "nothing was published; look with 'ratebatch reconcile', then rate the period again with 'ratebatch reprocess'"}
		case try == attempts:
			return result, &ratebatch.TryAgainError{Err: fmt.Errorf("the commits changed during each of %d attempts: %w", attempts, err),
				Hint: "nothing was published, run the same command again"}
		}
		in.Log.Info("the commits changed while the export read them, starting again", "attempt", try)
	}
}

// Stream writes one dataset as an Arrow stream. If it fails, the stream has no
// end mark. It starts again for nothing: what was written cannot be taken back.
func Stream(ctx context.Context, in Input, w io.Writer) (Result, error) {
	in.Partition, in.Format, in.Workers = Whole, Arrow, 1
	if err := in.complete(); err != nil {
		return Result{}, err
	}
	one := &streamBucket{w: w}
	in.Bucket = one
	e := &export{Input: in, folder: Folder(in.Dataset, in.Month.Format("2006-01")), stream: true}
	if err := e.plan(ctx); err != nil {
		return Result{}, err
	}
	m, err := e.write(ctx, e.delivery())
	var mismatch *mismatchError
	if errors.As(err, &mismatch) {
		return Result{}, &ratebatch.HaltError{Scope: mismatch.scope, Period: mismatch.period, Err: errors.New(mismatch.detail),
			Hint: "throw the stream away; if a rating ran meanwhile, stream again, else look with 'ratebatch reconcile'"}
	}
	if err != nil {
		return Result{}, err
	}
	return e.result(m), one.end()
}

// streamBucket is a place for one file that is written as it comes.
type streamBucket struct {
	bucket.Bucket // nil: nothing but Create and Location is called
	w             io.Writer
	last          func() error
}

func (b *streamBucket) Location() string { return "-" }

func (b *streamBucket) Create(context.Context, string) (bucket.Writer, error) {
	return streamWriter{b.w}, nil
}

// end writes the end mark, after the check of all commits.
func (b *streamBucket) end() error {
	if b.last == nil {
		return nil
	}
	return b.last()
}

type streamWriter struct{ io.Writer }

func (streamWriter) Commit() error { return nil }
func (streamWriter) Abort() error  { return nil }

func (in *Input) complete() error {
	if in.Dataset == "" {
		in.Dataset = "lines"
	}
	if in.Format == "" {
		in.Format = "parquet"
	}
	if in.Partition == "" {
		in.Partition = ByDay
		if in.Dataset == statementSchema.Dataset {
			in.Partition = Whole
		}
	}
	if in.FocusVersion == "" {
		in.FocusVersion = FocusVersions()[0]
	}
	if in.Operator == "" {
		in.Operator = "Cloud operator"
	}
	if in.RoundTo < 0 {
		in.RoundTo = 2
	}
	if in.Log == nil {
		in.Log = slog.New(slog.DiscardHandler)
	}
	if in.Workers <= 0 {
		in.Workers = min(runtime.GOMAXPROCS(0), 2)
	}
	in.Month = in.Month.UTC()
	if !in.Month.Equal(time.Date(in.Month.Year(), in.Month.Month(), 1, 0, 0, 0, 0, time.UTC)) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("month %s is not the begin of a month in UTC", in.Month.Format(time.RFC3339))}
	}
	if !slices.Contains(Datasets(), in.Dataset) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("dataset %q", in.Dataset), Hint: "there are " + strings.Join(Datasets(), ", ")}
	}
	if !slices.Contains(Formats(), in.Format) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("format %q", in.Format), Hint: "there are " + strings.Join(Formats(), ", ")}
	}
	if !slices.Contains(FocusVersions(), in.FocusVersion) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("FOCUS version %q", in.FocusVersion), Hint: "there are " + strings.Join(FocusVersions(), ", ")}
	}
	if in.Dataset == statementSchema.Dataset && in.Partition == ByDay {
		return &ratebatch.ConfigError{Err: errors.New("statements are for a whole month"), Hint: "use --partition scope or none"}
	}
	switch in.Partition {
	case ByDay, ByScope, Whole:
	default:
		return &ratebatch.ConfigError{Err: fmt.Errorf("partition %q", in.Partition), Hint: "use day, scope or none"}
	}
	return nil
}

// Datasets lists what can be exported.
func Datasets() []string {
	return []string{linesSchema.Dataset, summarySchema.Dataset, focusDataset, statementSchema.Dataset}
}

func (in *Input) schema() Schema {
	switch in.Dataset {
	case summarySchema.Dataset:
		return summarySchema
	case statementSchema.Dataset:
		return statementSchema
	case focusDataset:
		return focusSchema(in.FocusVersion)
	default:
		return linesSchema
	}
}

// export is one attempt.
type export struct {
	Input
	folder  string
	prefix  string // of the delivery, below folder
	window  store.ExportWindow
	scopes  []store.CommittedScope
	names   map[string]ScopeName
	missing []Missing
	set     store.CommitSet
	closed  bool
	stream  bool // to a pipe

	corrections   []correction
	statementSums map[string]map[statementKey]*sums // of corrections, by scope
	rows          atomic.Uint64
	tables        sync.Pool
}

func (e *export) run(ctx context.Context) (Result, error) {
	if err := e.plan(ctx); err != nil {
		return Result{}, err
	}
	delivery := e.delivery()
	current, _, err := ReadManifest(ctx, e.Bucket, e.folder)
	if err != nil && !errors.Is(err, bucket.ErrNotExist) {
		return Result{}, err
	}
	if current != nil && e.closed && current.State.Close == e.window.Closed && current.Delivery != delivery {
		// Other columns, another format or a newer program: not a reason to
		// touch what was billed from.
		if current.State.CommitDigest != e.set.Digest {
			return Result{}, &ratebatch.HaltError{Err: fmt.Errorf("month %s is closed, and its delivery %s holds other commits than the close", current.Month, current.Delivery),
				Hint: "nothing was changed; look with 'ratebatch reconcile --month " + current.Month + "'"}
		}
		delivery = current.Delivery
	}
	if current != nil && current.Delivery == delivery {
		whole, err := e.filesThere(ctx, current)
		if err != nil {
			return Result{}, err
		}
		if whole {
			result := e.result(current)
			result.Unchanged = true
			return result, e.sweep(ctx, current)
		}
		e.Log.Warn("files of the current delivery are missing or have another size, writing it again", "delivery", delivery)
	}
	if e.DryRun {
		return Result{Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: delivery, Location: e.Bucket.Location(),
			Manifest: e.folder + ManifestName, DryRun: true, Partial: len(e.missing) > 0, Missing: e.missing, Commits: e.set.Commits}, nil
	}
	m, err := e.write(ctx, delivery)
	if err != nil {
		return Result{}, err
	}
	if err := e.publish(ctx, m); err != nil {
		return Result{}, err
	}
	return e.result(m), e.sweep(ctx, m)
}

func (e *export) result(m *Manifest) Result {
	r := Result{Dataset: m.Dataset, Format: m.Format, Month: m.Month, Delivery: m.Delivery, Location: e.Bucket.Location(), Manifest: e.folder + ManifestName,
		Partial: m.State.Partial, Missing: m.State.Missing, Commits: m.State.Commits, Files: len(m.Files), Rows: m.Rows, Totals: m.Totals}
	for _, f := range m.Files {
		r.Bytes += f.Bytes
	}
	return r
}

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

func (e *export) filesThere(ctx context.Context, m *Manifest) (bool, error) {
	sizes := map[string]uint64{}
	for object, err := range e.Bucket.List(ctx, e.folder) {
		if err != nil {
			return false, err
		}
		sizes[strings.TrimPrefix(object.Name, e.folder)] = uint64(object.Size)
	}
	for _, f := range m.Files {
		if size, ok := sizes[f.Path]; !ok || size != f.Bytes {
			return false, nil
		}
		same, err := e.sameBytes(ctx, f)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// sameBytes reads a delivered file back and compares it with its manifest: one
// that was damaged is written again and not called delivered.
func (e *export) sameBytes(ctx context.Context, f File) (bool, error) {
	in, err := e.Bucket.Open(ctx, e.folder+f.Path)
	if err != nil {
		return false, err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return false, fmt.Errorf("read %s back: %w", f.Path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)) == f.SHA256, nil
}

// part is one range of the window that is read and written on its own.
type part struct {
	window      store.ExportWindow
	first, last string // scopes
	partition   map[string]string
	path        string // of its files, below the delivery
	lines       uint64 // that its commits count, if known; 0: only the commits are read
}

func (e *export) parts() []part {
	if len(e.scopes) == 0 {
		return nil
	}
	first, last := e.scopes[0].Scope, e.scopes[len(e.scopes)-1].Scope
	var parts []part
	switch e.Partition {
	case Whole:
		parts = append(parts, part{window: e.window, first: first, last: last, lines: e.set.Lines})
	case ByScope:
		for _, s := range e.scopes {
			// Hive escapes partition values the way URLs do, so slashes, quotes
			// and emoji in a scope's name make no other folder.
			parts = append(parts, part{window: e.window, first: s.Scope, last: s.Scope,
				partition: map[string]string{"scope": s.Scope}, path: "scope=" + url.PathEscape(s.Scope) + "/", lines: s.Lines})
		}
	case ByDay:
		for day := e.window.From; day.Before(e.window.To); day = day.AddDate(0, 0, 1) {
			w := e.window
			w.From, w.To = day, day.AddDate(0, 0, 1)
			if last := len(parts) - 1; last >= 0 && parts[last].lines == 0 && e.set.Days[day].Lines == 0 {
				parts[last].window.To = w.To // days without lines have no file, only commits to look at
				continue
			}
			name := day.Format("2006-01-02")
			parts = append(parts, part{window: w, first: first, last: last, partition: map[string]string{"day": name}, path: "day=" + name + "/",
				lines: e.set.Days[day].Lines})
		}
	}
	return parts
}

// write writes all files of a delivery and gives its manifest.
func (e *export) write(ctx context.Context, delivery string) (*Manifest, error) {
	e.prefix = "delivery=" + delivery + "/"
	if e.Dataset == statementSchema.Dataset {
		var err error
		if e.statementSums, err = e.statementCorrections(ctx); err != nil {
			return nil, err
		}
	}
	parts := e.parts()
	files := make([][]File, len(parts))
	tallies := make([]tally, len(parts))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(e.Workers)
	for i, p := range parts {
		group.Go(func() error {
			var err error
			files[i], tallies[i], err = e.writePart(groupCtx, p)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := newTally()
	for _, t := range tallies {
		all.merge(t)
	}
	if all.commits != e.set.Commits || all.digest.String() != e.set.Digest {
		return nil, &mismatchError{period: ratebatch.Period{Begin: e.window.From, End: e.window.To},
			detail: fmt.Sprintf("the window's %d commits have digest %s, the %d that were read %s", e.set.Commits, e.set.Digest, all.commits, all.digest)}
	}
	m := &Manifest{
		Version: ManifestVersion, Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: delivery, Mechanism: "overwrite",
		State: State{Begin: e.window.From, End: e.window.To, Close: e.window.Closed, Partial: len(e.missing) > 0, Missing: e.missing,
			Commits: all.commits, CommitDigest: all.digest.String(), CommittedAt: all.committed, Lines: all.lines,
			Totals: totalsText(all.totals), Plans: sortedNames(all.plans), Metrics: sortedNames(all.metrics)},
		Generator: Generator{Name: "ratebatch", Version: e.Version},
		SchemaID:  e.schema().ID(), Schema: e.schema(),
		Totals: totalsText(all.totals), Files: []File{},
	}
	for _, part := range files {
		for _, f := range part {
			m.Files = append(m.Files, f)
			m.Rows += f.Rows
		}
	}
	if err := e.writeCorrections(ctx, m); err != nil {
		return nil, err
	}
	if e.Dataset == focusDataset && e.closed {
		if err := e.writeAdjustments(ctx, m); err != nil {
			return nil, err
		}
	}
	if len(m.Files) == 0 { // an empty dataset is one too: a file with the columns and no rows
		f, err := e.writeEmpty(ctx)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, *f)
	}
	if e.Dataset == focusDataset {
		m.Focus = focusMetadata(e.schema(), m, e.sectors())
	}
	return m, nil
}

func totalsText(totals map[string]*wide) map[string]string {
	out := map[string]string{}
	for currency, total := range totals {
		out[currency] = total.decimal().String()
	}
	return out
}

// takeTable gives an empty table; the memory of a table outlives the file it
// was used for, else a month of days would allocate it anew 31 times.
func (e *export) takeTable() *table {
	if t, ok := e.tables.Get().(*table); ok {
		return t
	}
	return newTable(linesSchema)
}

func (e *export) giveTable(t *table) { e.tables.Put(t) }

// writePart reads one range and writes its file, if it has rows. Reading and
// encoding run side by side on two tables.
func (e *export) writePart(ctx context.Context, p part) ([]File, tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	commits, err := e.Store.ExportCommits(ctx, p.window, p.first, p.last)
	if err != nil {
		return nil, tally{}, err
	}
	defer commits.Close()
	check := newCommitCheck(commits)
	if p.lines == 0 {
		if err := check.end(); err != nil || e.Dataset != statementSchema.Dataset {
			return nil, check.tally, err
		}
		out := e.newOutput(ctx, p)
		defer out.abort()
		err := e.newSink(out, p).end() // there may be corrections to state
		return out.files, check.tally, err
	}
	blocks, err := e.Store.ExportLines(ctx, p.window, p.first, p.last)
	if err != nil {
		return nil, tally{}, err
	}
	defer blocks.Close()
	reader := &lineReader{blocks: blocks, builder: newLineBuilder(check)}

	free, full := make(chan *table, 2), make(chan *table, 1)
	for range cap(free) {
		t := e.takeTable()
		defer e.giveTable(t)
		free <- t
	}
	group, groupCtx := errgroup.WithContext(ctx)
	out := e.newOutput(groupCtx, p)
	defer out.abort()
	group.Go(func() error {
		defer close(full)
		for {
			var t *table
			select {
			case t = <-free:
			case <-groupCtx.Done():
				return context.Cause(groupCtx)
			}
			more, err := reader.next(t)
			if err != nil || !more {
				return err
			}
			select {
			case full <- t:
			case <-groupCtx.Done():
				return context.Cause(groupCtx)
			}
		}
	})
	group.Go(func() error {
		sink := e.newSink(out, p)
		for t := range full {
			if err := sink.add(t); err != nil {
				return err
			}
			if e.Progress != nil {
				e.Progress(e.rows.Add(uint64(t.rows)))
			}
			free <- t // never blocks: there are two tables and two places
		}
		if groupCtx.Err() != nil {
			return context.Cause(groupCtx) // the reader failed: what came is not all
		}
		return sink.end()
	})
	if err := group.Wait(); err != nil {
		return nil, tally{}, err
	}
	return out.files, check.tally, nil
}

func (e *export) newOutput(ctx context.Context, p part) *output {
	return &output{e: e, ctx: ctx, schema: e.schema(), path: e.prefix + p.path + "part-00000." + e.Format, partition: p.partition}
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

func (e *export) writeEmpty(ctx context.Context) (*File, error) {
	path, partition := "", map[string]string(nil)
	if e.Partition == ByDay {
		day := e.window.From.Format("2006-01-02")
		path, partition = "day="+day+"/", map[string]string{"day": day}
	}
	out, err := e.create(ctx, e.prefix+path+"part-00000."+e.Format, e.schema(), partition)
	if err != nil {
		return nil, err
	}
	defer out.abort()
	return out.commit()
}

// writeText writes a file that is no table, such as a statement's page.
func (e *export) writeText(ctx context.Context, path string, partition map[string]string, text []byte) (*File, error) {
	object, err := e.Bucket.Create(ctx, e.folder+path)
	if err != nil {
		return nil, err
	}
	defer object.Abort() // after Commit it does nothing
	if _, err := object.Write(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := object.Commit(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(text)
	return &File{Path: path, Partition: partition, Bytes: uint64(len(text)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// fileWriter writes one file and takes its checksum on the way.
type fileWriter struct {
	object bucket.Writer
	format formatWriter
	sum    hash.Hash
	file   File
	err    error // of the first write that failed

	endLater *func() error // of a stream: where to put what ends it
}

func (e *export) create(ctx context.Context, path string, schema Schema, partition map[string]string) (*fileWriter, error) {
	object, err := e.Bucket.Create(ctx, e.folder+path)
	if err != nil {
		return nil, err
	}
	w := &fileWriter{object: object, sum: sha256.New(), file: File{Path: path, Partition: partition}}
	format := e.Format
	if e.stream {
		format = ArrowStream
	}
	w.format, err = newFormatWriter(format, w, schema)
	if err := w.failed(err); err != nil {
		return nil, errors.Join(err, object.Abort())
	}
	if stream, ok := e.Bucket.(*streamBucket); ok {
		w.endLater = &stream.last
	}
	return w, nil
}

// Write implements io.Writer below the format's writer. Arrow's writers panic
// when a write fails, at some places, so the first error is kept here, what
// follows is dropped, and every call below ends with a look at it.
func (w *fileWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return len(p), nil
	}
	n, err := w.object.Write(p)
	w.sum.Write(p[:n])
	w.file.Bytes += uint64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
	return len(p), nil
}

var _ io.Writer = (*fileWriter)(nil)

// failed gives the error of the place before that of the format: the second
// follows from the first.
func (w *fileWriter) failed(err error) error {
	if w.err != nil {
		err = w.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.file.Path, err)
	}
	return nil
}

func (w *fileWriter) write(t *table) error {
	w.file.Rows += uint64(t.rows)
	return w.failed(w.format.write(t))
}

func (w *fileWriter) commit() (*File, error) {
	if w.endLater != nil {
		*w.endLater = func() error { return w.failed(w.format.Close()) }
		return &w.file, nil
	}
	if err := w.failed(w.format.Close()); err != nil {
		return nil, err
	}
	if err := w.object.Commit(); err != nil {
		return nil, w.failed(err)
	}
	w.file.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	return &w.file, nil
}

// abort drops the file unless it was committed.
func (w *fileWriter) abort() { _ = w.object.Abort() }

// publish writes the manifest, which makes the delivery the current one, and
// notes it in ClickHouse.
func (e *export) publish(ctx context.Context, m *Manifest) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	if e.SignKey != nil {
		if _, err := e.writeText(ctx, SignatureName, nil, sign(e.SignKey, text)); err != nil {
			return err
		}
	}
	if _, err := e.writeText(ctx, ManifestName, nil, text); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	totals := map[string]decimal.Decimal{}
	for currency, total := range m.Totals {
		totals[currency] = decimal.RequireFromString(total)
	}
	return e.Store.RecordExport(ctx, store.Export{Delivery: m.Delivery, Dataset: m.Dataset, Location: e.Bucket.Location(), Month: e.Month,
		Begin: m.State.Begin, End: m.State.End, Commits: m.State.Commits, CommitDigest: m.State.CommitDigest, Files: uint32(len(m.Files)), Rows: m.Rows,
		Totals: totals, ManifestSHA256: hex.EncodeToString(sum[:]), RunID: e.RunID})
}

// abandoned is the age from which an unfinished object has no writer any more.
const abandoned = 24 * time.Hour

// sweep removes the files of deliveries that were replaced longer than the
// grace ago: readers that follow the manifest had that long to finish.
func (e *export) sweep(ctx context.Context, m *Manifest) error {
	if cleaner, ok := e.Bucket.(bucket.Cleaner); ok {
		if err := cleaner.Clean(ctx, e.folder, e.Now.Add(-abandoned)); err != nil {
			e.Log.Warn("clean up after killed exports", "error", err)
		}
	}
	keep := "delivery=" + m.Delivery + "/"
	newest := map[string]time.Time{}
	files := map[string][]string{}
	for object, err := range e.Bucket.List(ctx, e.folder+"delivery=") {
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(object.Name, e.folder), "/")
		if name+"/" == keep {
			continue
		}
		files[name] = append(files[name], object.Name)
		if object.Modified.After(newest[name]) {
			newest[name] = object.Modified
		}
	}
	for _, name := range sortedNames(files) {
		if e.Now.Sub(newest[name]) < e.Grace {
			continue
		}
		for _, object := range files[name] {
			if err := e.Bucket.Delete(ctx, object); err != nil {
				return err
			}
		}
		e.Log.Info("removed a delivery that was replaced", "delivery", name, "files", len(files[name]))
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
