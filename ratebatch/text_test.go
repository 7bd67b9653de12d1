package ratebatch

import (
	"strings"
	"testing"
)

// What is cut stays text: no half character, which JSON and terminals would
// show as another one.
func TestShortenCutsBetweenCharacters(t *testing.T) {
	for _, tt := range []struct {
		text    string
		longest int
		want    string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aé", 3, "aé"},
		{"abé", 3, "ab…"},
		{"abéx", 4, "abé…"},
		{"日本語", 8, "日本…"},
		{"ab\xff", 3, "ab\xff"},
	} {
		if got := Shorten(tt.text, tt.longest); got != tt.want {
			t.Errorf("%q to %d bytes: %q, want %q", tt.text, tt.longest, got, tt.want)
		}
	}
	if got, want := Quote(strings.Repeat("a", 59)+"é\n"), `"`+strings.Repeat("a", 59)+`…"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := Quote("a\n\x00\xff"); got != `"a\n\x00\xff"` {
		t.Errorf("what is not shown is not named: %s", got)
	}
}

func TestSomeSaysHowManyMore(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b and 2 more": {"a", "b", "c", "d"}} {
		if got := Some(names, 2); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
