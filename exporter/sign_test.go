package exporter_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/exporter"
)

func TestAnUnchangedDeliveryIsSigned(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Partition = exporter.Whole
	first := export(t, in)
	path := filepath.Join(dir, filepath.Dir(first.Manifest), exporter.SignatureName)
	for range 2 { // without any signature, and with that of another key
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		before := files(t, dir)
		in.SignKey, in.DryRun = private, true
		export(t, in)
		for name, text := range files(t, dir) {
			if before[name] != text {
				t.Errorf("a dry run wrote %s", name)
			}
		}
		in.DryRun = false
		if r := export(t, in); !r.Unchanged || r.Delivery != first.Delivery {
			t.Errorf("%+v", r)
		}
		v, err := exporter.Verify(t.Context(), in.Bucket, public)
		if err != nil || len(v) != 1 || !v[0].Signed || len(v[0].Problems) > 0 {
			t.Errorf("%+v (%v)", v, err)
		}
		// A signature that is right already is not written again.
		long := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
		export(t, in)
		if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(long) {
			t.Errorf("the same signature was written again (%v)", err)
		}
	}
}
