package exporter

import (
	"context"
	"errors"
	"io"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

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
		return Result{}, e.halt(ctx, mismatch, "throw the stream away; if a rating ran meanwhile, stream again, else look with 'ratebatch reconcile'")
	}
	if err != nil {
		return Result{}, err
	}
	return e.result(m), one.end()
}

// streamBucket is a place for one stream that is written as it comes: what would
// be several files, such as the lines and their corrections, follow each other in
// it, with one schema before and one end mark behind them all.
type streamBucket struct {
	bucket.Bucket // nil: nothing but Create and Location is called
	w             io.Writer
	out           *fileWriter // of all files, one after the other; nil: none was begun
}

func (b *streamBucket) Location() string { return "-" }

func (b *streamBucket) Create(context.Context, string) (bucket.Writer, error) {
	return streamWriter{b.w}, nil
}

// end writes the end mark, after the check of all commits.
func (b *streamBucket) end() error {
	if b.out == nil {
		return nil
	}
	return b.out.failed(b.out.format.Close())
}

type streamWriter struct{ io.Writer }

func (streamWriter) Commit() error { return nil }
func (streamWriter) Abort() error  { return nil }
