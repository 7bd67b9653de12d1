package dump

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// A dump may have been carried here from anywhere: its manifest is refused as
// something a person mends, or names files of its own folder only.
func FuzzManifest(f *testing.F) {
	whole, err := json.Marshal(Manifest{Tables: []Table{{Name: "rated_lines", File: "rated_lines.native"}, {Name: "rated"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"tables":[{"name":"a","file":"../../etc/passwd"}]}`))
	f.Add([]byte(`{"tables":[{"name":"a","file":".."}]}`))
	f.Add([]byte(`{"tables":null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest("manifest.json", text)
		if err != nil {
			if ratebatch.ExitCode(err) != ratebatch.ExitConfig {
				t.Fatalf("%q: exit %d: %v", text, ratebatch.ExitCode(err), err)
			}
			return
		}
		for _, table := range m.Tables {
			if at := filepath.Dir(filepath.Join("/dump", table.File)); table.File != "" && at != "/dump" {
				t.Fatalf("%q names a file in %s", text, at)
			}
		}
	})
}
