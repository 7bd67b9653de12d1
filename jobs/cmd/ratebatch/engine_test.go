package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// on gives the flags that name a fresh database of the test binary's engine.
func on(t *testing.T) []string {
	t.Helper()
	o := enginetest.Options(t)
	return []string{"--data", o.DataDir, "--database", o.Database}
}

func TestEngineSQL(t *testing.T) {
	flags := on(t)
	for name, tt := range map[string]struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		"a statement":            {[]string{"-q", "SELECT 1 AS a, 'x' AS b"}, "", 0, "a  b\n-  -\n1  x\n"},
		"several":                {[]string{"-f", "csv", "-q", "CREATE TABLE t (n UInt8) ENGINE = Memory; INSERT INTO t VALUES (1), (2)", "-q", "SELECT sum(n) AS n FROM t"}, "", 0, "n\n3\n"},
		"JSON by --output":       {[]string{"-o", "json", "-q", "SELECT toDecimal128('0.1', 18) AS d"}, "", 0, "[\n  {\"d\": \"0.1\"}\n]\n"},
		"vertical":               {[]string{"-q", `SELECT 1 AS one\G`}, "", 0, "Row 1:\none: 1\n\n"},
		"standard input":         {nil, "SELECT 1 AS a;\nSELECT 2 AS b", 0, "a\n-\n1\nb\n-\n2\n"},
		"a failing statement":    {[]string{"-q", "SELECT nope"}, "", 1, ""},
		"nothing":                {nil, "", 2, ""},
		"a format that is none":  {[]string{"-f", "xml", "-q", "SELECT 1"}, "", 2, ""},
		"a server that is away":  {[]string{"--clickhouse", "http://127.0.0.1:1", "-q", "SELECT 1"}, "", 75, ""},
		"a URL that is none":     {[]string{"--clickhouse", "mysql://x", "-q", "SELECT 1"}, "", 2, ""},
		"a file of this machine": {[]string{"-q", "SELECT * FROM file('/etc/passwd', 'LineAsString')"}, "", 1, ""},
		"an argument without -q": {[]string{"SELECT 1"}, "", 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append(append([]string{"engine", "sql"}, flags...), tt.args...)
			if code := run(t.Context(), args, strings.NewReader(tt.stdin), &stdout, &stderr); code != tt.code || stdout.String() != tt.want {
				t.Errorf("exit %d, want %d; output %q, want %q; %s", code, tt.code, &stdout, tt.want, &stderr)
			}
			if tt.code != 0 && strings.Count(strings.TrimSpace(stderr.String()), "\n") > 0 {
				t.Errorf("more than one line of error: %s", &stderr)
			}
		})
	}
}

func TestEngineDumpAndLoad(t *testing.T) {
	source, target := on(t), on(t)
	with := func(flags []string, args ...string) []string {
		return append(append([]string{"engine"}, args...), flags...)
	}
	must(t, with(source, "sql", "-q", "CREATE TABLE t (n UInt64, d Decimal(38, 18)) ENGINE = MergeTree ORDER BY n; INSERT INTO t SELECT number, number / 7 FROM numbers(1000)")...)
	dir := filepath.Join(t.TempDir(), "dump")
	var m struct{ Tables []struct{ Rows int } }
	if err := json.Unmarshal([]byte(must(t, with(source, "dump", dir, "-o", "json")...)), &m); err != nil || len(m.Tables) != 1 || m.Tables[0].Rows != 1000 {
		t.Errorf("%v %v", m, err)
	}
	if code, _, stderr := cli(t, with(source, "dump", dir)...); code != 2 || !strings.Contains(stderr, "not empty") {
		t.Errorf("into the same folder: exit %d %s", code, stderr)
	}
	must(t, with(target, "load", dir)...)
	const sum = "SELECT count() AS n, sum(d) AS d FROM t"
	if got, want := must(t, with(target, "sql", "-q", sum)...), must(t, with(source, "sql", "-q", sum)...); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if code, _, stderr := cli(t, with(target, "load", dir)...); code != 2 || !strings.Contains(stderr, "rows already") {
		t.Errorf("a second load: exit %d %s", code, stderr)
	}
}

func TestEngineServe(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "engine", "serve", "--data", dir)
	cmd.Env = append(os.Environ(), envProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "ClickHouse 26.") {
		t.Fatalf("%q %v", line[:n], err)
	}
	e, err := engine.Open(t.Context(), engine.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(line[:n]), e.URL()) {
		t.Errorf("serve says %q, the engine is at %s", line[:n], e.URL())
	}
	if code, _, stderr := cli(t, "engine", "serve", "--data", dir, "--port", "1"); code != 2 || !strings.Contains(stderr, "already serves") {
		t.Errorf("another port: exit %d %s", code, stderr)
	}
	// The one that serves goes; the other client stays.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the test's program has no signal handler of its own
	time.Sleep(500 * time.Millisecond)
	if err := e.Conn().Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if code, _, stderr := cli(t, "engine", "serve", "--clickhouse", "http://x"); code != 2 {
		t.Errorf("exit %d %s", code, stderr)
	}
}

func TestEngineInstallKnowsWhatIsThere(t *testing.T) {
	// Without the library nothing could have run before; from a tarball that is
	// not there, so that no test downloads.
	code, stdout, stderr := cli(t, "engine", "install", "--from", filepath.Join(t.TempDir(), "none.tgz"))
	if code == 0 && !strings.Contains(stdout, "already installed") || code != 0 && (code != 2 || !strings.Contains(stderr, "none.tgz")) {
		t.Errorf("exit %d %s %s", code, stdout, stderr)
	}
}
