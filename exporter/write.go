package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

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
				partition: map[string]string{"scope": s.Scope}, path: scopeFolder(s.Scope), lines: s.Lines})
		}
	case ByDay:
		// Days are those of UTC, as begin and end of the lines are.
		for day := e.window.From.Truncate(24 * time.Hour); day.Before(e.window.To); day = day.AddDate(0, 0, 1) {
			w := e.window
			if day.After(w.From) {
				w.From = day
			}
			if end := day.AddDate(0, 0, 1); end.Before(w.To) {
				w.To = end
			}
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

// write writes all files of a complete delivery and gives its manifest.
func (e *export) write(ctx context.Context, delivery string) (*Manifest, error) {
	m, err := e.writeCommitted(ctx, delivery)
	if err != nil {
		return nil, err
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

// writeCommitted writes the files of the commits that are read, each compared
// with its lines, and gives a manifest of them.
func (e *export) writeCommitted(ctx context.Context, delivery string) (*Manifest, error) {
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
		Version: ManifestVersion, Dataset: e.Dataset, Format: e.Format, Month: e.Month.Format("2006-01"), Delivery: delivery, Mechanism: e.Mechanism, Partition: e.Partition,
		State:     e.state(),
		Generator: Generator{Name: "ratebatch", Version: e.Version},
		SchemaID:  e.schema().ID(), Schema: e.schema(),
		Totals: totalsText(all.totals), Files: []File{},
	}
	m.State.Commits, m.State.CommitDigest, m.State.CommittedAt, m.State.Lines = all.commits, all.digest.String(), all.committed, all.lines
	m.State.Totals, m.State.Plans, m.State.Metrics = totalsText(all.totals), sortedNames(all.plans), sortedNames(all.metrics)
	for _, part := range files {
		for _, f := range part {
			m.Files = append(m.Files, f)
			m.Rows += f.Rows
		}
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

// writePart reads one range and writes its file, if it has rows. Reading, making
// tables and encoding run side by side.
func (e *export) writePart(ctx context.Context, p part) ([]File, tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	commits, blocks, err := e.read(ctx, p)
	if err != nil {
		return nil, tally{}, err
	}
	defer commits.Close()
	check := newCommitCheck(commits)
	if blocks == nil {
		if err := check.end(); err != nil || e.Dataset != statementSchema.Dataset {
			return nil, check.tally, err
		}
		out := e.newOutput(ctx, p)
		defer out.abort()
		err := e.newSink(out, p).end() // there may be corrections to state
		return out.files, check.tally, err
	}
	defer blocks.Close()
	ahead := newReadAhead(blocks)
	reader := &lineReader{blocks: ahead, builder: newLineBuilder(check)}

	free, full := make(chan *table, 2), make(chan *table, 1)
	for range cap(free) {
		t := e.takeTable()
		defer e.giveTable(t)
		free <- t
	}
	group, groupCtx := errgroup.WithContext(ctx)
	out := e.newOutput(groupCtx, p)
	defer out.abort()
	group.Go(func() error { return ahead.run(groupCtx) })
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

// read begins to read the commits of a range and, where they count any, their
// lines, which are nil else. Both results are closed by the caller.
func (e *export) read(ctx context.Context, p part) (commits, lines *store.BlockReader, err error) {
	var both errgroup.Group // the server takes its time for each
	both.Go(func() (err error) {
		commits, err = e.Store.ExportCommits(ctx, p.window, p.first, p.last)
		return err
	})
	if p.lines > 0 {
		both.Go(func() (err error) {
			lines, err = e.Store.ExportLines(ctx, p.window, p.first, p.last)
			return err
		})
	}
	if err := both.Wait(); err != nil {
		for _, r := range []*store.BlockReader{commits, lines} {
			if r != nil {
				_ = r.Close()
			}
		}
		return nil, nil, err
	}
	return commits, lines, nil
}

func (e *export) newOutput(ctx context.Context, p part) *output {
	return &output{e: e, ctx: ctx, schema: e.schema(), path: e.prefix + p.path + "part-00000." + e.Format, partition: p.partition}
}

func (e *export) writeEmpty(ctx context.Context) (*File, error) {
	path, partition := "", map[string]string(nil)
	if e.Partition == ByDay {
		day := e.Month.Format("2006-01-02")
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
