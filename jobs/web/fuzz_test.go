package web

import "testing"

// A cursor comes back from a client: it is one of ours or refused.
func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("zz")
	f.Add("eyJiZWdpbiI6IjIwMjYtMTEtMDFUMDA6MDA6MDBaIn0")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if (c == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", text, c, err)
		}
	})
}

// A tokens file is read or refused with the line, and no secret in the message.
func FuzzTokens(f *testing.F) {
	f.Add([]byte("# comment\nalice sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 project=pa\n"))
	f.Add([]byte("a sha256:zz\n"))
	f.Add([]byte("a b c d\x00\n\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, err := ParseTokens(text)
		if err != nil {
			return
		}
		for _, x := range tokens {
			if x.Name == "" {
				t.Fatalf("a token without a name in %q", text)
			}
		}
	})
}
