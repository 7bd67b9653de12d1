package sqltext_test

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// What the engine reads is what was written, whatever it is.
func TestTheEngineReadsWhatIsWritten(t *testing.T) {
	e := enginetest.Open(t)
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	for _, text := range []string{"", "m1.small", `it's`, `a\b`, `\`, `'`, "`", `\'; DROP TABLE x --`, "{a:String}", "\x00", "a\nb\tc\rd\be\ff", "日本 🎈 ≥", "\xff\xfe", all.String()} {
		var read string
		if err := e.Conn().QueryRow(t.Context(), "SELECT "+sqltext.String(text)).Scan(&read); err != nil || read != text {
			t.Errorf("the string %q is read as %q, %v", text, read, err)
		}
		if text == "" || strings.ContainsAny(text, "\x00") || text == "\xff\xfe" {
			continue // no name
		}
		if err := e.Conn().QueryRow(t.Context(), "SELECT x."+sqltext.Name(text)+" FROM (SELECT 'found' AS "+sqltext.Name(text)+") AS x").Scan(&read); err != nil || read != "found" {
			t.Errorf("the name %q is not read: %q, %v", text, read, err)
		}
	}
	if got, want := sqltext.Table("a`b.c"), "`a\\`b`.`c`"; got != want {
		t.Errorf("Table = %s, want %s", got, want)
	}
}
