package file_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/exporter/bucket/buckettest"
	"github.com/ratebatch/ratebatch/exporter/bucket/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(tb testing.TB) bucket.Bucket {
	tb.Helper()
	b, err := file.New(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestContract(t *testing.T) { buckettest.Run(t, open) }

func TestNamesStayBelowTheFolder(t *testing.T) {
	b := open(t)
	for _, name := range []string{"../x", "/etc/x", "a/../../x", "", "a/"} {
		if _, err := b.Create(t.Context(), name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestCleanRemovesOnlyWhatIsOld(t *testing.T) {
	root := t.TempDir()
	b, err := file.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "v1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{".ratebatch-old": 48 * time.Hour, ".ratebatch-young": time.Minute, "kept": 48 * time.Hour} {
		path := filepath.Join(root, "v1", name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Clean(t.Context(), "v1/", time.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(root, "v1", "*"))
	hidden, _ := filepath.Glob(filepath.Join(root, "v1", ".ratebatch-*"))
	if len(left)+len(hidden) != 2+1 && len(hidden) != 1 {
		t.Errorf("left: %q %q", left, hidden)
	}
	if _, err := os.Stat(filepath.Join(root, "v1", ".ratebatch-young")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "v1", ".ratebatch-old")); err == nil {
		t.Error("the old one is still there")
	}
}
