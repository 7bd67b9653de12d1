package exporter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
)

var errBroken = errors.New("broken by the test")

// broken is a bucket whose nth step fails: a Create, a Commit or some Write.
type broken struct {
	bucket.Bucket
	left   atomic.Int64
	writes atomic.Int64
}

func (b *broken) step() error {
	if b.left.Add(-1) == 0 {
		return errBroken
	}
	return nil
}

func (b *broken) Create(ctx context.Context, name string) (bucket.Writer, error) {
	if err := b.step(); err != nil {
		return nil, err
	}
	w, err := b.Bucket.Create(ctx, name)
	return &brokenWriter{w, b}, err
}

type brokenWriter struct {
	bucket.Writer
	b *broken
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.b.writes.Add(1)%7 == 1 { // a file is some hundred writes; every seventh will do
		if err := w.b.step(); err != nil {
			return 0, err
		}
	}
	return w.Writer.Write(p)
}

func (w *brokenWriter) Commit() error {
	if err := w.b.step(); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Writer.Commit()
}

// files reads everything below a folder, temporary files included.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(text)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestAFailureAtAnyStepLeavesNothingThatCounts(t *testing.T) {
	s, _ := awkward(t)
	clean := t.TempDir()
	whole := input(t, s, clean)
	whole.Partition = exporter.Whole
	export(t, whole)
	want := files(t, clean)
	for n := int64(1); ; n++ {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Partition, in.Workers = exporter.Whole, 1 // so that the nth step is always the same one
		b := &broken{Bucket: in.Bucket}
		b.left.Store(n)
		in.Bucket = b
		_, err := exporter.Run(t.Context(), in)
		if err == nil {
			if n < 10 {
				t.Errorf("an export has only %d steps", n-1)
			}
			return // every step was tried
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("step %d: %v", n, err)
		}
		for name, text := range files(t, dir) {
			if filepath.Base(name) == exporter.ManifestName {
				t.Errorf("step %d: published", n)
			}
			if want[name] != text {
				t.Errorf("step %d left %s, %d bytes", n, name, len(text))
			}
		}
		in.Bucket = b.Bucket
		if _, err := exporter.Run(t.Context(), in); err != nil {
			t.Fatalf("step %d, the rerun: %v", n, err)
		}
		got := files(t, dir)
		if len(got) != len(want) {
			t.Errorf("step %d, the rerun: %d files, want %d", n, len(got), len(want))
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("step %d, the rerun: %s differs", n, name)
			}
		}
	}
}
