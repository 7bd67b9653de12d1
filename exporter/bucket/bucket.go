// Package bucket is the contract of a place that keeps an export's files: a
// folder, or an S3-compatible store. Package buckettest holds the suite that
// every implementation passes; the adapters are in file and s3.
package bucket

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// ErrNotExist says that there is no object of that name.
var ErrNotExist = errors.New("no such object")

// Object describes a stored object.
type Object struct {
	Name     string // slash-separated, relative to the bucket's root
	Size     int64
	Modified time.Time
}

// Bucket stores whole objects under slash-separated names. It is safe for
// concurrent use; calls for different names may run in parallel.
type Bucket interface {
	// Create begins an object. Nothing is visible under name before Commit; an
	// object that is there already is replaced by Commit at once. The context
	// bounds all writes: when it ends, they fail.
	Create(ctx context.Context, name string) (Writer, error)
	// Open reads an object from its begin; ErrNotExist if there is none. It may
	// be repeated, run in parallel and cut short with Close.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List gives the objects whose names start with prefix, in the order of
	// names. Objects in the making are not listed. It may be repeated and cut short.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object; that there is none is no error. It may be repeated.
	Delete(ctx context.Context, name string) error
	// Location is where the bucket is, without credentials, for people and logs.
	Location() string
}

// Writer takes the bytes of one object. Exactly one of Commit and Abort ends
// it; Abort after Commit does nothing, so it can be deferred.
type Writer interface {
	io.Writer
	// Commit makes the object visible, complete. After an error it is either
	// not there or complete: whoever needs to know looks, or writes it again.
	Commit() error
	// Abort drops what was written and leaves nothing behind that costs storage.
	Abort() error
}

// Cleaner is a bucket that can remove what a killed process left unfinished
// under a prefix before a moment. It may be repeated.
type Cleaner interface {
	Clean(ctx context.Context, prefix string, before time.Time) error
}
