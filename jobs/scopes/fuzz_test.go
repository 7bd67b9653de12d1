package scopes

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// A list of scopes comes from a spreadsheet or a script: each scope is in it once
// and has an ID, or the file is refused as one that a person has to mend.
func FuzzParse(f *testing.F) {
	f.Add([]byte("p1,Alpha,default\np2\n# a note\n"))
	f.Add([]byte("\xef\xbb\xbfp1,Alpha\r\n\"p,2\",\"a \"\"name\"\"\"\r\n"))
	f.Add([]byte("p1\np1\n"))
	f.Add([]byte("\"p1\n"))
	f.Add([]byte(" ,x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parse("scopes.csv", bytes.NewReader(text))
		if err != nil {
			if ratebatch.ExitCode(err) != ratebatch.ExitConfig {
				t.Fatalf("%q: exit %d: %v", text, ratebatch.ExitCode(err), err)
			}
			return
		}
		seen := map[string]bool{}
		for _, s := range list {
			if s.ID == "" || seen[s.ID] {
				t.Fatalf("%q has the scope %q twice, or one without ID", text, s.ID)
			}
			seen[s.ID] = true
		}
		marked, err := parse("scopes.csv", strings.NewReader("\ufeff"+string(text)))
		if err == nil && !bytes.HasPrefix(text, []byte("\ufeff")) && (len(marked) != len(list) || len(list) > 0 && marked[0] != list[0]) {
			t.Fatalf("%q: %v, and with a byte order mark %v", text, list, marked)
		}
	})
}
