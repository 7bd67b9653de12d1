package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net/url"
	"runtime"
	"sort"
	"strconv"
	"strings"
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

	Dataset   string    // lines
	Format    string    // parquet
	Month     time.Time // first instant of a month in UTC
	Partition Partition // empty: ByDay
	Partial   bool      // export although periods are missing
	DryRun    bool      // say what would be written and stop

	Now     time.Time     // decides whether the month is over
	Grace   time.Duration // how long a delivery that was replaced stays readable
	Workers int           // files written at the same time; 0: one per processor, at most 4
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
		e := &export{Input: in, folder: folder(in.Dataset, in.Month.Format("2006-01"))}
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

func (in *Input) complete() error {
	if in.Dataset == "" {
		in.Dataset = "lines"
	}
	if in.Format == "" {
		in.Format = "parquet"
	}
	if in.Partition == "" {
		in.Partition = ByDay
	}
	if in.Log == nil {
		in.Log = slog.New(slog.DiscardHandler)
	}
	if in.Workers <= 0 {
		in.Workers = min(runtime.GOMAXPROCS(0), 4)
	}
	in.Month = in.Month.UTC()
	if !in.Month.Equal(time.Date(in.Month.Year(), in.Month.Month(), 1, 0, 0, 0, 0, time.UTC)) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("month %s is not the begin of a month in UTC", in.Month.Format(time.RFC3339))}
	}
	if _, ok := schemas[in.Dataset]; !ok {
		return &ratebatch.ConfigError{Err: fmt.Errorf("dataset %q", in.Dataset), Hint: "there are " + strings.Join(Datasets(), ", ")}
	}
	if in.Format != "parquet" {
		return &ratebatch.ConfigError{Err: fmt.Errorf("format %q", in.Format), Hint: "there is parquet"}
	}
	switch in.Partition {
	case ByDay, ByScope, Whole:
	default:
		return &ratebatch.ConfigError{Err: fmt.Errorf("partition %q", in.Partition), Hint: "use day, scope or none"}
	}
	return nil
}

var schemas = map[string]Schema{linesSchema.Dataset: linesSchema}

// Datasets lists what can be exported.
func Datasets() []string {
	var names []string
	for name := range schemas {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// export is one attempt.
type export struct {
	Input
	folder  string
	window  store.ExportWindow
	scopes  []store.CommittedScope
	missing []Missing
	set     store.CommitSet
	rows    atomic.Uint64
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
	if e.scopes, err = e.Store.ExportScopes(ctx, e.window); err != nil {
		return err
	}
	if e.missing = missing(e.scopes, e.window, e.Now); len(e.missing) > 0 && !e.Partial {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("month %s has uncommitted periods: %s", e.Month.Format("2006-01"), describeMissing(e.missing)),
			Hint: "run 'ratebatch rate' first, or export what there is with --partial"}
	}
	e.set, err = e.Store.ExportCommitSet(ctx, e.window)
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
	for _, part := range []string{e.Dataset, schemas[e.Dataset].ID(), e.Format, string(e.Partition), e.window.From.Format(time.RFC3339),
		strconv.FormatUint(e.set.Commits, 10), e.set.Digest} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// changed says whether the commits of the window are others than the attempt
// started with, as of the same moment: a commit may become visible a little
// after the time it bears.
func (e *export) changed(ctx context.Context) (bool, error) {
	set, err := e.Store.ExportCommitSet(ctx, e.window)
	return set != e.set, err
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
	}
	return true, nil
}

// part is one range of the window that is read and written on its own.
type part struct {
	window      store.ExportWindow
	first, last string // scopes
	partition   map[string]string
	path        string // of its files, below the delivery
}

func (e *export) parts() []part {
	if len(e.scopes) == 0 {
		return nil
	}
	first, last := e.scopes[0].Scope, e.scopes[len(e.scopes)-1].Scope
	var parts []part
	switch e.Partition {
	case Whole:
		parts = append(parts, part{window: e.window, first: first, last: last})
	case ByScope:
		for _, s := range e.scopes {
			// Hive escapes partition values the way URLs do, so slashes, quotes
			// and emoji in a scope's name make no other folder.
			parts = append(parts, part{window: e.window, first: s.Scope, last: s.Scope,
				partition: map[string]string{"scope": s.Scope}, path: "scope=" + url.PathEscape(s.Scope) + "/"})
		}
	case ByDay:
		for day := e.window.From; day.Before(e.window.To); day = day.AddDate(0, 0, 1) {
			w := e.window
			w.From, w.To = day, day.AddDate(0, 0, 1)
			name := day.Format("2006-01-02")
			parts = append(parts, part{window: w, first: first, last: last, partition: map[string]string{"day": name}, path: "day=" + name + "/"})
		}
	}
	return parts
}

// write writes all files of a delivery and gives its manifest.
func (e *export) write(ctx context.Context, delivery string) (*Manifest, error) {
	prefix := "delivery=" + delivery + "/"
	parts := e.parts()
	files := make([]*File, len(parts))
	tallies := make([]tally, len(parts))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(e.Workers)
	for i, p := range parts {
		group.Go(func() error {
			var err error
			files[i], tallies[i], err = e.writePart(groupCtx, prefix, p)
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
		State: State{Begin: e.window.From, End: e.window.To, Partial: len(e.missing) > 0, Missing: e.missing,
			Commits: all.commits, CommitDigest: all.digest.String(), CommittedAt: all.committed, Lines: all.lines,
			Totals: totalsText(all.totals), Plans: sortedKeys(all.plans), Metrics: sortedKeys(all.metrics)},
		Generator: Generator{Name: "ratebatch", Version: e.Version},
		SchemaID:  schemas[e.Dataset].ID(), Schema: schemas[e.Dataset],
		Totals: totalsText(all.totals), Files: []File{},
	}
	for _, f := range files {
		if f != nil {
			m.Files = append(m.Files, *f)
			m.Rows += f.Rows
		}
	}
	if len(m.Files) == 0 { // an empty dataset is one too: a file with the columns and no rows
		f, err := e.writeEmpty(ctx, prefix)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, *f)
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

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// writePart reads one range and writes its file, if it has rows. Reading and
// encoding run side by side on two tables.
func (e *export) writePart(ctx context.Context, prefix string, p part) (*File, tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	commits, err := e.Store.ExportCommits(ctx, p.window, p.first, p.last)
	if err != nil {
		return nil, tally{}, err
	}
	defer commits.Close()
	blocks, err := e.Store.ExportLines(ctx, p.window, p.first, p.last)
	if err != nil {
		return nil, tally{}, err
	}
	defer blocks.Close()
	check := newCommitCheck(commits)
	reader := &lineReader{blocks: blocks, builder: newLineBuilder(check)}

	free, full := make(chan *table, 2), make(chan *table, 1)
	free <- newTable(linesSchema)
	free <- newTable(linesSchema)
	var f *File
	group, groupCtx := errgroup.WithContext(ctx)
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
		var out *fileWriter
		for t := range full {
			if out == nil {
				if out, err = e.create(groupCtx, prefix+p.path+"part-00000."+e.Format, p.partition); err != nil {
					return err
				}
				defer out.abort()
			}
			if err := out.write(t); err != nil {
				return err
			}
			if e.Progress != nil {
				e.Progress(e.rows.Add(uint64(t.rows)))
			}
			free <- t // never blocks: there are two tables and two places
		}
		if out == nil || groupCtx.Err() != nil {
			return context.Cause(groupCtx)
		}
		var err error
		f, err = out.commit()
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, tally{}, err
	}
	return f, check.tally, nil
}

func (e *export) writeEmpty(ctx context.Context, prefix string) (*File, error) {
	path, partition := "", map[string]string(nil)
	if e.Partition == ByDay {
		day := e.window.From.Format("2006-01-02")
		path, partition = "day="+day+"/", map[string]string{"day": day}
	}
	out, err := e.create(ctx, prefix+path+"part-00000."+e.Format, partition)
	if err != nil {
		return nil, err
	}
	defer out.abort()
	return out.commit()
}

// fileWriter writes one file and takes its checksum on the way.
type fileWriter struct {
	object bucket.Writer
	format *parquetWriter
	sum    hash.Hash
	file   File
}

func (e *export) create(ctx context.Context, path string, partition map[string]string) (*fileWriter, error) {
	object, err := e.Bucket.Create(ctx, e.folder+path)
	if err != nil {
		return nil, err
	}
	w := &fileWriter{object: object, sum: sha256.New(), file: File{Path: path, Partition: partition}}
	if w.format, err = newParquetWriter(w, schemas[e.Dataset]); err != nil {
		return nil, errors.Join(err, object.Abort())
	}
	return w, nil
}

// Write implements io.Writer below the format's writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.object.Write(p)
	w.sum.Write(p[:n])
	w.file.Bytes += uint64(n)
	return n, err
}

var _ io.Writer = (*fileWriter)(nil)

func (w *fileWriter) write(t *table) error {
	w.file.Rows += uint64(t.rows)
	if err := w.format.write(t); err != nil {
		return fmt.Errorf("%s: %w", w.file.Path, err)
	}
	return nil
}

func (w *fileWriter) commit() (*File, error) {
	if err := w.format.Close(); err != nil {
		return nil, fmt.Errorf("%s: %w", w.file.Path, err)
	}
	if err := w.object.Commit(); err != nil {
		return nil, fmt.Errorf("%s: %w", w.file.Path, err)
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
	object, err := e.Bucket.Create(ctx, e.folder+ManifestName)
	if err != nil {
		return err
	}
	defer object.Abort() // after Commit it does nothing
	if _, err := object.Write(text); err != nil {
		return err
	}
	if err := object.Commit(); err != nil {
		return fmt.Errorf("%s%s: %w", e.folder, ManifestName, err)
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

// sweep removes the files of deliveries that were replaced longer than the
// grace ago: readers that follow the manifest had that long to finish.
func (e *export) sweep(ctx context.Context, m *Manifest) error {
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

func sortedNames(files map[string][]string) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
