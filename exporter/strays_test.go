package exporter_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// An attempt that was killed leaves files of a state that is not the one the
// next attempt finds: nobody may count them.
func TestFilesOfAKilledAppendAttemptAreNotAmongTheDeliverys(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Mechanism, in.Partition, in.Workers = exporter.Append, exporter.Whole, 1
	first := export(t, in)
	rate(t, s, "2026-03", 2, map[string]string{"vm-1": "12"})
	dry := in
	dry.DryRun = true
	twelve := export(t, dry).Increment.Delivery
	rate(t, s, "2026-03", 3, map[string]string{"vm-1": "13"})
	thirteen := export(t, dry).Increment.Delivery
	if twelve == thirteen {
		t.Errorf("adjustments of 2 and of 3 have one name, %s", twelve)
	}

	// What another program left under the very name is removed before it counts.
	folder := filepath.Join(dir, filepath.Dir(first.Manifest), "delivery="+thirteen, "day=2026-03-01")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(folder, "part-00007.parquet")
	for _, path := range []string{stray, filepath.Join(folder, "_SUCCESS")} {
		if err := os.WriteFile(path, []byte("not mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := export(t, in)
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the file of another attempt is still there (%v)", err)
	}
	if r.Delivery != thirteen || r.Totals["EUR"] != "13" || r.Rows != 1 {
		t.Errorf("%+v", r)
	}
	if v, err := exporter.Verify(t.Context(), in.Bucket, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 {
		t.Errorf("%+v (%v)", v, err)
	}

	// Verify names what came later, in any delivery that readers take.
	for _, delivery := range []string{first.Delivery, r.Delivery} {
		path := filepath.Join(dir, filepath.Dir(first.Manifest), "delivery="+delivery, "part-00009.parquet")
		if err := os.WriteFile(path, []byte("not mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := exporter.Verify(t.Context(), in.Bucket, nil)
		if err != nil || len(v) != 1 || len(v[0].Problems) != 1 || !strings.Contains(v[0].Problems[0], "delivery="+delivery+"/part-00009.parquet: the manifest does not list it") {
			t.Errorf("a file that came later: %+v (%v)", v, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// What a closed month was billed from comes back as it was, or not at all.
func TestALostFileOfAClosedMonthIsNotReplacedByAnotherForm(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-01", 1, map[string]string{"vm-1": "10.4", "vm-2": "5.4"})
	exporttest.Close(t, s, "2026-01", 1)
	for name, tt := range map[string]struct {
		dataset string
		change  func(in *exporter.Input)
	}{
		"other digits":          {"statement", func(in *exporter.Input) { in.RoundTo = 0 }},
		"another partition":     {"lines", func(in *exporter.Input) { in.Partition = exporter.Whole }},
		"another format":        {"summary", func(in *exporter.Input) { in.Format = exporter.CSV }},
		"another operator":      {"focus", func(in *exporter.Input) { in.Operator = "Somebody else" }},
		"another FOCUS version": {"focus", func(in *exporter.Input) { in.FocusVersion = "1.3" }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := input(t, s, dir)
			in.Month, in.Dataset, in.RoundTo = exporttest.Hour("2026-01", 0), tt.dataset, 2
			r := export(t, in)
			before := files(t, dir)
			lost := manifest(t, dir, r).Files[0].Path
			path := filepath.Join(dir, filepath.Dir(r.Manifest), lost)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			left := files(t, dir)
			other := in
			tt.change(&other)
			for _, dry := range []bool{true, false} {
				other.DryRun = dry
				if _, err := exporter.Run(t.Context(), other); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "are missing or damaged: "+lost) {
					t.Errorf("dry run %v: %v, want a halt that names %s", dry, err, lost)
				}
			}
			if !maps.Equal(files(t, dir), left) {
				t.Error("the place was changed")
			}

			// In its own form it comes back, and what lies beside it goes.
			if err := os.WriteFile(filepath.Join(dir, filepath.Dir(r.Manifest), "delivery="+r.Delivery, "part-00009.parquet"), []byte("not mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if again := export(t, in); again.Unchanged || !maps.Equal(files(t, dir), before) {
				t.Errorf("in its own form: %+v", again)
			}
		})
	}
}
