// Package buckettest holds the suite that every bucket passes, and a real S3
// server with a fault proxy in front of it for those who need one.
package buckettest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ratebatch/ratebatch/exporter/bucket"
)

// Large is more than one part of a multipart upload.
const Large = 11<<20 + 17

// Bytes gives n bytes that repeat with the seed and do not compress.
func Bytes(n int, seed uint64) []byte {
	out := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = random.Read(out) // never fails
	return out
}

// Put writes one object in pieces of odd sizes.
func Put(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
	w, err := b.Create(ctx, name)
	if err != nil {
		return err
	}
	for len(content) > 0 {
		n := min(len(content), 300_007)
		if _, err := w.Write(content[:n]); err != nil {
			return errors.Join(err, w.Abort())
		}
		content = content[n:]
	}
	return w.Commit()
}

// Get reads one object.
func Get(ctx context.Context, b bucket.Bucket, name string) ([]byte, error) {
	in, err := b.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// Names lists what is stored under a prefix.
func Names(tb testing.TB, b bucket.Bucket, prefix string) []string {
	tb.Helper()
	var names []string
	for o, err := range b.List(tb.Context(), prefix) {
		if err != nil {
			tb.Fatal(err)
		}
		names = append(names, o.Name)
	}
	return names
}

// Run tests a bucket that open gives empty.
func Run(t *testing.T, open func(testing.TB) bucket.Bucket) {
	t.Run("an object comes back as it was written", func(t *testing.T) {
		b := open(t)
		for _, size := range []int{0, 1, 4096, Large} {
			name, want := fmt.Sprintf("a/b/%d.bin", size), Bytes(size, uint64(size))
			if err := Put(t.Context(), b, name, want); err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), b, name)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes came back (%v)", name, len(got), err)
			}
		}
	})
	t.Run("names with slashes, quotes, spaces, percent signs and emoji are kept", func(t *testing.T) {
		b := open(t)
		for _, name := range []string{"v1/dataset=lines/month=2026-11/scope=a%2Fb/part.parquet", `q"uo'te/ü 🦊.csv`, "100%/plus+and space", "_manifest.json"} {
			if err := Put(t.Context(), b, name, []byte(name)); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, err := Get(t.Context(), b, name)
			if err != nil || string(got) != name {
				t.Errorf("%s came back as %q (%v)", name, got, err)
			}
			found := false
			for _, listed := range Names(t, b, "") {
				found = found || listed == name
			}
			if !found {
				t.Errorf("%s is not listed", name)
			}
		}
	})
	t.Run("nothing is visible before Commit, nor after Abort", func(t *testing.T) {
		b := open(t)
		for _, size := range []int{10, Large} {
			w, err := b.Create(t.Context(), "hidden")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(Bytes(size, 1)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Open(t.Context(), "hidden"); !errors.Is(err, bucket.ErrNotExist) {
				t.Errorf("size %d: open before commit gave %v", size, err)
			}
			if names := Names(t, b, ""); len(names) != 0 {
				t.Errorf("size %d: listed before commit: %q", size, names)
			}
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
			if _, err := b.Open(t.Context(), "hidden"); !errors.Is(err, bucket.ErrNotExist) {
				t.Errorf("size %d: open after abort gave %v", size, err)
			}
		}
	})
	t.Run("a cancelled context ends a writer and leaves nothing", func(t *testing.T) {
		b := open(t)
		for _, size := range []int{10, Large} {
			ctx, cancel := context.WithCancel(t.Context())
			w, err := b.Create(ctx, "cancelled")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(Bytes(size, 1))
			cancel()
			if err := w.Commit(); err == nil {
				t.Errorf("size %d: commit after cancel went through", size)
			}
			if names := Names(t, b, ""); len(names) != 0 {
				t.Errorf("size %d: left behind: %q", size, names)
			}
		}
	})
	t.Run("Commit replaces what was there, at once", func(t *testing.T) {
		b := open(t)
		for _, content := range [][]byte{Bytes(100, 1), Bytes(Large, 2), Bytes(50, 3)} {
			if err := Put(t.Context(), b, "same", content); err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), b, "same")
			if err != nil || sha256.Sum256(got) != sha256.Sum256(content) {
				t.Errorf("%d bytes came back, want %d (%v)", len(got), len(content), err)
			}
		}
	})
	t.Run("List gives the prefix in the order of names, and can be cut short", func(t *testing.T) {
		b := open(t)
		for _, name := range []string{"x/2", "x/10", "x/1", "y/1", "x1"} {
			if err := Put(t.Context(), b, name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(Names(t, b, "x/")); got != "[x/1 x/10 x/2]" {
			t.Errorf("x/ lists %s", got)
		}
		if got := fmt.Sprint(Names(t, b, "x")); got != "[x/1 x/10 x/2 x1]" {
			t.Errorf("x lists %s", got)
		}
		if got := Names(t, b, "nothing/"); len(got) != 0 {
			t.Errorf("nothing/ lists %q", got)
		}
		for _, err := range b.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			break
		}
	})
	t.Run("Delete may be repeated", func(t *testing.T) {
		b := open(t)
		if err := Put(t.Context(), b, "d/1", []byte("x")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := b.Delete(t.Context(), "d/1"); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Open(t.Context(), "d/1"); !errors.Is(err, bucket.ErrNotExist) {
			t.Errorf("open after delete gave %v", err)
		}
	})
	t.Run("objects are written in parallel", func(t *testing.T) {
		b := open(t)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				if err := Put(t.Context(), b, fmt.Sprintf("p/%d", i), Bytes(400_000, uint64(i))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i := range 8 {
			got, err := Get(t.Context(), b, fmt.Sprintf("p/%d", i))
			if err != nil || !bytes.Equal(got, Bytes(400_000, uint64(i))) {
				t.Errorf("p/%d: %d bytes (%v)", i, len(got), err)
			}
		}
	})
}
