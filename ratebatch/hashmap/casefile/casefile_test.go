package casefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap/casefile"
)

const vectors = "../../../fixtures/vectors/"

func TestRecordedPrices(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]casefile.Summary{
		"hashmap.jsonl":          {Cases: 704, Points: 3730, Passed: 3730},
		"hashmap-upstream.jsonl": {Cases: 19, Points: 76, Passed: 76},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(filepath.Join(vectors, file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var report strings.Builder
			got, err := casefile.Run(t.Context(), file, casefile.Read(file, f), &report, casefile.Go{}, casefile.Folded{})
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s, want %s\n%s", got, want, report.String())
			}
			t.Log(got)
		})
	}
}
