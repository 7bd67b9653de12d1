package sqlshell_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/engine/sqlshell"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func newShell(t *testing.T, s enginetest.Server, format string) (shell *sqlshell.Shell, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &sqlshell.Shell{Engine: s.Open(t), Format: format, Stdout: stdout, Stderr: stderr}, stdout, stderr
}

func TestFormats(t *testing.T) {
	const query = `SELECT number AS n, if(number = 1, NULL, 'tab	"q"') AS s, toDecimal128(number / 4, 18) AS d, [1, 2] AS a, map('k', 'v') AS m,
		toDateTime('2026-03-01 00:00:00', 'UTC') AS t FROM numbers(2)`
	for format, want := range map[string]string{
		"table": `n  s            d  a      m          t
-  --------  ----  -----  ---------  -------------------
0  tab\t"q"     0  [1,2]  {'k':'v'}  2026-03-01 00:00:00
1  NULL      0.25  [1,2]  {'k':'v'}  2026-03-01 00:00:00
`,
		"vertical": `Row 1:
n: 0
s: tab\t"q"
d: 0
a: [1,2]
m: {'k':'v'}
t: 2026-03-01 00:00:00

Row 2:
n: 1
s: NULL
d: 0.25
a: [1,2]
m: {'k':'v'}
t: 2026-03-01 00:00:00

`,
		"json": `[
  {"n": 0, "s": "tab\t\"q\"", "d": "0", "a": [1,2], "m": {"k":"v"}, "t": "2026-03-01T00:00:00Z"},
  {"n": 1, "s": null, "d": "0.25", "a": [1,2], "m": {"k":"v"}, "t": "2026-03-01T00:00:00Z"}
]
`,
		"jsonl": `{"n": 0, "s": "tab\t\"q\"", "d": "0", "a": [1,2], "m": {"k":"v"}, "t": "2026-03-01T00:00:00Z"}
{"n": 1, "s": null, "d": "0.25", "a": [1,2], "m": {"k":"v"}, "t": "2026-03-01T00:00:00Z"}
`,
		"csv": `n,s,d,a,m,t
0,"tab	""q""",0,"[1,2]",{'k':'v'},2026-03-01 00:00:00
1,,0.25,"[1,2]",{'k':'v'},2026-03-01 00:00:00
`,
		"tsv": `n	s	d	a	m	t
0	tab\t"q"	0	[1,2]	{'k':'v'}	2026-03-01 00:00:00
1	\N	0.25	[1,2]	{'k':'v'}	2026-03-01 00:00:00
`,
	} {
		t.Run(format, func(t *testing.T) {
			for _, server := range enginetest.Servers(t) {
				s, stdout, _ := newShell(t, server, format)
				if err := s.Run(t.Context(), query); err != nil {
					t.Fatal(err)
				}
				if got := stdout.String(); got != want {
					t.Errorf("%s prints\n%s\nwant\n%s", format, got, want)
				}
			}
		})
	}
}

func TestEmptyResultsShowTheirColumns(t *testing.T) {
	for format, want := range map[string]string{"table": "n\n-\n", "json": "[]\n", "jsonl": "", "csv": "n\n", "tsv": "n\n", "vertical": ""} {
		s, stdout, _ := newShell(t, enginetest.Servers(t)[0], format)
		if err := s.Run(t.Context(), "SELECT number AS n FROM numbers(3) WHERE n > 5"); err != nil || stdout.String() != want {
			t.Errorf("%s: %q, want %q; %v", format, stdout, want, err)
		}
	}
}

func TestStatementsShareASession(t *testing.T) {
	s, stdout, _ := newShell(t, enginetest.Servers(t)[0], "csv")
	err := s.Run(t.Context(), `
		CREATE TEMPORARY TABLE t (a String); -- a comment; with a semicolon
		INSERT INTO t VALUES ('x;y'), ('\\G');
		SET max_threads = 3;
		SELECT a, getSetting('max_threads') AS n FROM t ORDER BY a /* ; */`)
	if err != nil || stdout.String() != "a,n\n\\G,3\nx;y,3\n" {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		code int
		want string
	}{
		"nothing":              {" -- only a comment\n ;", ratebatch.ExitConfig, "no statement"},
		"a statement in error": {"SELECT 1; SELECT nope; SELECT 2", ratebatch.ExitUnexpected, "nope"},
		"USE":                  {"USE system", ratebatch.ExitConfig, "--database"},
		"a file":               {"SELECT * FROM file('/etc/passwd', 'CSV')", ratebatch.ExitUnexpected, "refuses file()"},
	} {
		t.Run(name, func(t *testing.T) {
			s, stdout, _ := newShell(t, enginetest.Servers(t)[0], "tsv")
			err := s.Run(t.Context(), tt.text)
			if ratebatch.ExitCode(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("exit %d, want %d: %v", ratebatch.ExitCode(err), tt.code, err)
			}
			if strings.Contains(stdout.String(), "2\n2\n") {
				t.Error("went on after an error")
			}
		})
	}
}

// atPrompt sends keys to the prompt as a terminal does: a line ends with \r.
func atPrompt(t *testing.T, s *sqlshell.Shell, keys string) error {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.WriteString(keys); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Interactive(t.Context(), r)
}

func TestPrompt(t *testing.T) {
	s, stdout, stderr := newShell(t, enginetest.Servers(t)[0], "tsv")
	s.HistoryFile = filepath.Join(t.TempDir(), "state", "history")
	err := atPrompt(t, s, "SELECT 1 AS a,\r2 AS b;\rSELECT 3 AS c\\G\rSELECT nope;\r\\f csv\rSELECT 'x,y' AS d;\r\\d system.one\rCREATE TABLE t (a UInt8) ENGINE = Memory;\r\\d\r\\?\r\\q\r")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a\tb\n1\t2\n", "Row 1:\nc: 3\n", "d\n\"x,y\"\n", "dummy,UInt8", "t,Memory"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("standard output has no %q:\n%s", want, stdout)
		}
	}
	for _, want := range []string{"1 rows, ", "nope", "Ctrl-D", "        -> "} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("standard error has no %q:\n%s", want, stderr)
		}
	}
}

func TestPromptRemembers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	for range 2 {
		s, stdout, _ := newShell(t, enginetest.Servers(t)[0], "tsv")
		s.HistoryFile = file
		const up = "\x1b[A"
		if err := atPrompt(t, s, up+"\r"+"SELECT 42 AS answer;\r"); err != nil {
			t.Fatal(err)
		}
		t.Log(stdout)
	}
	s, stdout, _ := newShell(t, enginetest.Servers(t)[0], "tsv")
	s.HistoryFile = file
	if err := atPrompt(t, s, "\x1b[A\r"); err != nil || !strings.Contains(stdout.String(), "answer\n42\n") {
		t.Errorf("%q, %v", stdout, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: statements may hold secrets", info, err)
	}
}

func TestControlCDropsTheLine(t *testing.T) {
	s, stdout, _ := newShell(t, enginetest.Servers(t)[0], "tsv")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	done := make(chan error, 1)
	go func() { done <- s.Interactive(t.Context(), r) }()
	for _, keys := range []string{"SELECT nonsense,\r", "more\x03", "SELECT 7 AS n;\r", "\x04"} {
		if _, err := w.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		waitRead()
	}
	if err := <-done; err != nil || stdout.String() != "n\n7\n" {
		t.Errorf("%q, %v", stdout, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// waitRead lets the prompt read what was typed: a terminal gives keys as they
// are pressed.
func waitRead() { time.Sleep(150 * time.Millisecond) }
