package exporter

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// DownloadInput names the lines of one download.
type DownloadInput struct {
	Store    *store.Store
	Format   string // Parquet or CSV
	Scope    string // empty: all
	From, To time.Time
	Month    time.Time // whose close Closed is
	Closed   uint32    // number of the close whose frozen commits are read; 0: the current ones
	Log      *slog.Logger
}

// Download writes the lines of a window as one file in the dataset lines,
// without a manifest and without the corrections of other months. Every commit
// is compared with its lines on the way; after an error the file has no end.
func Download(ctx context.Context, in DownloadInput, w io.Writer) error {
	one := &streamBucket{w: w}
	e := &export{Input: Input{Store: in.Store, Bucket: one, Dataset: linesSchema.Dataset, Format: in.Format, Partition: Whole, Workers: 1, Log: in.Log}}
	var err error
	if e.window, err = in.Store.ExportWindowNow(ctx, in.From, in.To); err != nil {
		return err
	}
	e.window.Month, e.window.Closed = in.Month, in.Closed
	first, last, lines := in.Scope, in.Scope, uint64(0)
	scopes, err := in.Store.ExportScopes(ctx, e.window)
	if err != nil {
		return err
	}
	for _, s := range scopes {
		if in.Scope == "" || s.Scope == in.Scope {
			lines += s.Lines
		}
	}
	if in.Scope == "" && len(scopes) > 0 {
		first, last = scopes[0].Scope, scopes[len(scopes)-1].Scope
	}
	var files []File
	if len(scopes) > 0 {
		if files, _, err = e.writePart(ctx, part{window: e.window, first: first, last: last, lines: lines}); err != nil {
			var mismatch *mismatchError
			if errors.As(err, &mismatch) {
				return &ratebatch.HaltError{Scope: mismatch.scope, Period: mismatch.period, Err: errors.New(mismatch.detail),
					Hint: "throw the file away; if a rating ran meanwhile, download again, else look with 'ratebatch reconcile'"}
			}
			return err
		}
	}
	if len(files) == 0 { // no line: a file with the columns and no rows
		if _, err := e.writeEmpty(ctx); err != nil {
			return err
		}
	}
	return one.end()
}
