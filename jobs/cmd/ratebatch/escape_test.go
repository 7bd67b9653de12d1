package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestNamesOfOthersAreOnlyPartsOfACell(t *testing.T) {
	for name, want := range map[string]string{
		"plain":              "plain",
		"Département ✓ 東京":   "Département ✓ 東京",
		"a\nb":               `a\nb`,
		"a\tb\rc":            `a\tb\rc`,
		"\x1b[2Jclear":       `\x1b[2Jclear`,
		"nul\x00 del\x7f":    `nul\x00 del\x7f`,
		"\u009b31m":          `\x9b31m`,
		"right\u202eto left": `right\u202eto left`,
		"broken \xff\xfe":    `broken \xff\xfe`,
		"tag \U000e0041":     `tag \U000e0041`,
	} {
		if got := plain(name); got != want {
			t.Errorf("plain(%q) = %s, want %s", name, got, want)
		}
	}
	var out bytes.Buffer
	rowf(&out, "%s\t%v\t%d\n", "x\x1b\n", []string{"y\n"}, 1)
	if got := out.String(); got != "x\\x1b\\n\t[y\\n]\t1\n" {
		t.Errorf("row %q", got)
	}
	out.Reset()
	if n, err := (printable{&out}).Write([]byte("a\x1b[0m\tb\n")); n != 8 || err != nil || out.String() != "a\\x1b[0m\tb\n" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	if n := strings.Count(escape("a\nb\x1b", "\n"), "\n"); n != 1 {
		t.Errorf("%d line ends are kept", n)
	}
}
