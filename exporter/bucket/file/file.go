// Package file keeps a bucket's objects as files below a folder. An object is
// written beside its place and renamed into it, so a reader sees all of it or
// nothing, and it is on the disk before Commit returns.
package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

// Bucket is a folder.
type Bucket struct {
	root string
}

// New returns the bucket below root, which need not exist yet.
func New(root string) (*Bucket, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", root, err)
	}
	if info, err := os.Stat(absolute); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", absolute)
	}
	return &Bucket{absolute}, nil
}

// Location implements bucket.Bucket.
func (b *Bucket) Location() string { return "file://" + filepath.ToSlash(b.root) }

// temporary marks files in the making; their names start with a dot, so tools
// that read whole folders skip them.
const temporary = ".ratebatch-"

func (b *Bucket) path(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) || strings.HasSuffix(name, "/") {
		return "", fmt.Errorf("object name %q leaves the folder", name)
	}
	return filepath.Join(b.root, filepath.FromSlash(name)), nil
}

// Create implements bucket.Bucket.
func (b *Bucket) Create(ctx context.Context, name string) (bucket.Writer, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	// Not os.CreateTemp, whose files are nobody else's whatever the umask: finance
	// reads exports, unless the operator's umask says otherwise.
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), temporary+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, file: f, path: path}, nil
}

type writer struct {
	ctx  context.Context // a writer lives within one call of its maker
	file *os.File
	path string
	done bool
}

func (w *writer) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.file.Write(p)
}

func (w *writer) Commit() error {
	if w.done {
		return errors.New("commit of an ended object")
	}
	if err := context.Cause(w.ctx); err != nil {
		return errors.Join(err, w.Abort())
	}
	w.done = true
	err := w.file.Sync()
	if closing := w.file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(w.file.Name(), w.path)
	}
	if err != nil {
		os.Remove(w.file.Name()) // the first error is the one to report
		return err
	}
	return syncFolder(filepath.Dir(w.path))
}

// syncFolder makes a rename durable.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	return errors.Join(w.file.Close(), os.Remove(w.file.Name()))
}

// Open implements bucket.Bucket.
func (b *Bucket) Open(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, bucket.ErrNotExist)
	}
	return f, err
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		var objects []bucket.Object
		start := b.root
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			path, err := b.path(prefix[:i])
			if err != nil {
				yield(bucket.Object{}, err)
				return
			}
			start = path
		}
		err := filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // not there, or gone while we looked
			}
			if err != nil {
				return err
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if entry.IsDir() || strings.HasPrefix(entry.Name(), temporary) {
				return nil
			}
			relative, err := filepath.Rel(b.root, path)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(relative)
			if !strings.HasPrefix(name, prefix) {
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			objects = append(objects, bucket.Object{Name: name, Size: info.Size(), Modified: info.ModTime().UTC()})
			return nil
		})
		if err != nil {
			yield(bucket.Object{}, err)
			return
		}
		sort.Slice(objects, func(i, j int) bool { return objects[i].Name < objects[j].Name })
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// Delete implements bucket.Bucket. Folders that become empty go as well.
func (b *Bucket) Delete(_ context.Context, name string) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(path); dir != b.root && strings.HasPrefix(dir, b.root); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			break // not empty
		}
	}
	return nil
}

// Clean implements bucket.Cleaner.
func (b *Bucket) Clean(ctx context.Context, prefix string, before time.Time) error {
	path, err := b.path(strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return err
	}
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if entry.IsDir() || !strings.HasPrefix(entry.Name(), temporary) {
			return nil
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(before) {
			return nil // gone meanwhile, or young: its writer may be at work
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
