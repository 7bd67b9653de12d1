package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

// fileWriter writes one file and takes its checksum on the way.
type fileWriter struct {
	object bucket.Writer
	format formatWriter
	sum    hash.Hash
	file   File
	err    error // of the first write that failed
	stream bool  // goes on with the next file; its end mark comes later
}

func (e *export) create(ctx context.Context, path string, schema Schema, partition map[string]string) (*fileWriter, error) {
	one, stream := e.Bucket.(*streamBucket)
	if stream && one.out != nil { // files of a stream are written one after the other
		one.out.file = File{Path: path, Partition: partition}
		return one.out, nil
	}
	object, err := e.Bucket.Create(ctx, e.folder+path)
	if err != nil {
		return nil, err
	}
	w := &fileWriter{object: object, sum: sha256.New(), stream: stream, file: File{Path: path, Partition: partition}}
	format := e.Format
	if e.stream {
		format = ArrowStream
	}
	w.format, err = newFormatWriter(format, w, schema)
	if err := w.failed(err); err != nil {
		return nil, errors.Join(err, object.Abort())
	}
	if stream {
		one.out = w
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
	if w.stream {
		file := w.file
		return &file, w.failed(nil)
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
