package exporter

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEveryNameIsOnePathElementOfItsOwn(t *testing.T) {
	for text, want := range map[string]string{
		"web-shop": "web-shop", "a/b": "a%2Fb", `"c" d'é`: "%22c%22%20d%27%C3%A9", "🦊": "%F0%9F%A6%8A", "~": "%7E", "1+1=2 &": "1%2B1%3D2%20%26", "a.b_c-D": "a.b_c-D", "a:b@c": "a%3Ab%40c",
		strings.Repeat("a", 200): strings.Repeat("a", 200),
	} {
		if got := pathName(text); got != want {
			t.Errorf("pathName(%q) = %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{strings.Repeat("a", 201), strings.Repeat("ä", 10_000), strings.Repeat("🦊/", 3000), strings.Repeat("a", 134) + strings.Repeat("/", 200)} {
		got := pathName(text)
		if len(got) > maxName || strings.Contains(got, "/") || !strings.Contains(got, "~") {
			t.Errorf("%d bytes became %s", len(text), got)
		}
		if _, err := url.PathUnescape(got); err != nil {
			t.Errorf("%s is cut within an escape: %v", got, err)
		}
		if pathName(text+"x") == got || pathName(got) == got {
			t.Errorf("two names are %s", got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		// Texts that are alike, and the names of others among them.
		draw := func(label string) string {
			text := strings.Repeat(rapid.SampledFrom([]string{"a", "ä", "/", "~", "%", "🦊"}).Draw(t, label), rapid.IntRange(0, 300).Draw(t, label+" n")) + rapid.String().Draw(t, label+" end")
			if rapid.Bool().Draw(t, label+" named") {
				text = pathName(text)
			}
			return text
		}
		a, b := draw("a"), draw("b")
		if (pathName(a) == pathName(b)) != (a == b) {
			t.Fatalf("%q is %s, %q is %s", a, pathName(a), b, pathName(b))
		}
		if len(pathName(a)) > maxName {
			t.Fatalf("%q is %s", a, pathName(a))
		}
	})
}
