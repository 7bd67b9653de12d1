package endpoint

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		kind, format, data string
		reads              bool
	}{
		"SELECT 1":                                                 {"SELECT", "", "", true},
		" -- x\n/* y */ select 1 format CSV":                       {"SELECT", "CSV", "", true},
		"(SELECT 1) UNION ALL (SELECT 2) FORMAT TSV":               {"(", "TSV", "", true},
		"SELECT 'FORMAT CSV', `format`, (SELECT 1 AS format)":      {"SELECT", "", "", true},
		"SELECT $tag$ FORMAT CSV; $tag$":                           {"SELECT", "", "", true},
		"INSERT INTO t FORMAT CSV\n1,2\n":                          {"INSERT", "CSV", "\n1,2\n", false},
		"INSERT INTO t (a, b) VALUES (1, 'x')":                     {"INSERT", "", " (1, 'x')", false},
		"INSERT INTO t SELECT 1 FORMAT Null":                       {"INSERT", "Null", "", false},
		"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x":       {"INSERT", "", "", false},
		"INSERT INTO t SETTINGS async_insert = 0 FORMAT Native":    {"INSERT", "Native", "", false},
		"INSERT INTO t FORMAT JSONEachRow {\"a\": \"FORMAT CSV\"}": {"INSERT", "JSONEachRow", " {\"a\": \"FORMAT CSV\"}", false},
		"": {},
	} {
		s := parse(text)
		data := ""
		if s.dataStart >= 0 {
			data = text[s.dataStart:]
		}
		if s.kind != want.kind || s.format != want.format || data != want.data || s.reads() != want.reads {
			t.Errorf("%q: kind %q, format %q, data %q, reads %v", text, s.kind, s.format, data, s.reads())
		}
	}
}

func TestSplit(t *testing.T) {
	for text, want := range map[string]struct {
		statements []string
		rest       string
	}{
		"SELECT 1; SELECT 2;\n":           {[]string{"SELECT 1", "SELECT 2"}, ""},
		"SELECT 1\\G SELECT":              {[]string{"SELECT 1\\G"}, " SELECT"},
		"SELECT ';' , `;`, \";\" -- ;\n;": {[]string{"SELECT ';' , `;`, \";\" -- ;"}, ""},
		"SELECT 'it''s; \\'; ":            {nil, "SELECT 'it''s; \\'; "},
		"SELECT 'closed\\'":               {nil, "SELECT 'closed\\'"},
		";;\n-- nothing\n;":               {nil, ""},
		"SELECT (1;":                      {nil, "SELECT (1;"},
		"SELECT 1 /* open ;":              {nil, "SELECT 1 /* open ;"},
	} {
		pieces, rest := Split(text)
		var got []string
		for _, p := range pieces {
			if p.Vertical {
				p.Statement += "\\G"
			}
			got = append(got, p.Statement)
		}
		if !slices.Equal(got, want.statements) || rest != want.rest {
			t.Errorf("%q: %q and %q, want %q and %q", text, got, rest, want.statements, want.rest)
		}
	}
}

func TestRenameDatabase(t *testing.T) {
	got := RenameDatabase("CREATE VIEW old.v TO `old`.t AS SELECT old, 'old.x', o.old FROM old.u -- old.y", "old", "new")
	if want := "CREATE VIEW `new`.v TO `new`.t AS SELECT old, 'old.x', o.old FROM `new`.u -- old.y"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestKillsByID(t *testing.T) {
	params := map[string]string{"id": "x"}
	for text, want := range map[string]string{
		"KILL QUERY WHERE query_id = 'a\\'b' SYNC":    "a'b",
		"kill query where query_id='x'":               "x",
		"KILL QUERY WHERE query_id = {id:String}":     "x",
		"KILL QUERY WHERE query_id = 'x' OR 1":        "",
		"KILL QUERY WHERE user = 'x'":                 "",
		"KILL MUTATION WHERE query_id = 'x'":          "",
		"SELECT 'KILL QUERY WHERE query_id = ''x'' '": "",
	} {
		s := parse(text)
		if id, ok := killsByID(&s, params); ok != (want != "") || ok && id != want {
			t.Errorf("%s: %q %v, want %q", text, id, ok, want)
		}
	}
}

// Whatever comes in, the endpoint must neither hang nor fall over, and tokens
// must follow one another.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"SELECT 1", "INSERT INTO t VALUES ('x", "$a$ $a$", "/*", "--", "'\\", "`\\x4", "SELECT '\\xff' FORMAT", "\\G;"} {
		f.Add(s)
	}
	g := newGuard([]string{"file", "url"}, []string{"File", "URL"})
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 {
			return // a heredoc's end is looked for from each '$', which takes its time on a megabyte of them
		}
		s := parse(text)
		at := 0
		for _, token := range s.tokens {
			if token.start < at || token.end <= token.start || token.end > len(text) {
				t.Fatalf("token %v after %d in %q", token, at, text)
			}
			at = token.end
			_ = s.name(token)
		}
		_, _ = g.denied(&s), g.neverAllowed(&s)
		_, _ = killsByID(&s, nil)
		_ = s.withoutFormat()
		pieces, rest := Split(text)
		for _, p := range pieces {
			if !strings.Contains(text, p.Statement) || p.Statement == "" {
				t.Fatalf("%q became %q", text, p.Statement)
			}
		}
		if !strings.Contains(text, rest) {
			t.Fatalf("%q left %q", text, rest)
		}
	})
}

// The engine's blocks are trusted, yet a block that is not understood must end
// in an error, never in a read past its end.
func FuzzNative(f *testing.F) {
	f.Add(emptyBlock([]string{"a", "b"}, []string{"UInt8", "Array(LowCardinality(Nullable(String)))"}))
	f.Add([]byte("\x01\x02\x01a\x05UInt8\x01\x02"))
	f.Add([]byte("\x01\x01\x01a\x13Map(String, String)\x01\x00\x00\x00\x00\x00\x00\x00\x01k\x01v"))
	f.Fuzz(func(_ *testing.T, block []byte) {
		w := &nativeWriter{io.Discard, revisionWithSerializationByte}
		_, _ = w.Write(block)
	})
}
