package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// envProgram makes the test binary be the program itself, for tests that kill it.
const envProgram = "RATEBATCH_TEST_PROGRAM"

func TestMain(m *testing.M) {
	engine.ServeIfChild()
	if dir := os.Getenv(envClient); dir != "" {
		os.Exit(clickhouseClient(context.Background(), dir))
	}
	if os.Getenv(envProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	enginetest.Main(m)
}

// cli runs one command line in-process and returns its exit code and output.
func cli(t testing.TB, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// must is cli for a command that has to succeed.
func must(t testing.TB, args ...string) string {
	t.Helper()
	code, stdout, stderr := cli(t, args...)
	if code != 0 {
		t.Fatalf("ratebatch %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// rated is one object of rate --output json.
type rated struct {
	RunID    string            `json:"run_id"`
	Periods  int               `json:"periods"`
	Scopes   int               `json:"scopes"`
	Lines    int               `json:"lines"`
	Rejected int               `json:"rejected"`
	Price    map[string]string `json:"price"`
}

func rateJSON(t testing.TB, text string) rated {
	t.Helper()
	var r rated
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

const testPlan = `
currency: EUR
services:
  - name: instance
    mappings:
      - {cost: "0.0123", type: flat}
  - name: memory
    mappings:
      - {cost: "0.0000001", type: flat}
`

// sharedDatabase gives the shared database, emptied, with two projects' usage and the
// flags that lead to it.
func sharedDatabase(t testing.TB) (flags []string, e *engine.Engine) {
	t.Helper()
	e = storetest.Shared(t)
	return twoProjects(t, e), e
}

// database is sharedDatabase in one of its own, for what looks at views that refresh.
func database(t testing.TB) (flags []string, e *engine.Engine) {
	t.Helper()
	o := enginetest.Options(t)
	must(t, "--data", o.DataDir, "--database", o.Database, "migrate", "--retention", "40y")
	o.Create = true
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return twoProjects(t, e), e
}

// twoProjects fills an empty database with usage, a watermark and a plan.
func twoProjects(t testing.TB, e *engine.Engine) (flags []string) {
	t.Helper()
	flags = []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}
	for _, statement := range []string{
		`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		 SELECT toDateTime('2026-11-01 00:00:00', 'UTC') + 3600 * intDiv(number, 20), 'one', reinterpret(sipHash128(number % 20), 'UUID'), concat('project-', toString(number % 2)), 'm1', 1, 'vm', 60, 60, 3600, toDecimal128(cityHash64(number), 3)
		 FROM numbers(20 * 48)`,
	} {
		if err := e.Conn().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	must(t, append(flags, "watermark", "--region", "one", "--until", "2026-11-03T00:00:00Z")...)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(testPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", file)...)
	return flags
}

var now = []string{"--now", "2026-11-10T00:00:00Z"}

// totals reads what counts: lines and their price per scope.
func totals(t testing.TB, e *engine.Engine) string {
	t.Helper()
	var text string
	if err := e.Conn().QueryRow(t.Context(), "SELECT toString(groupArray((scope, lines, price))) FROM (SELECT scope, count() AS lines, sum(price) AS price FROM rated GROUP BY scope ORDER BY scope)").Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRateTwice(t *testing.T) {
	flags, e := sharedDatabase(t)
	first := rateJSON(t, must(t, append(append(flags, "rate", "--output", "json"), now...)...))
	if first.Periods != 96 || first.Scopes != 2 || first.Lines != 20*48*3 || len(first.Price) != 1 || first.RunID == "" {
		t.Errorf("first run: %+v", first)
	}
	before := totals(t, e)
	code, stdout, stderr := cli(t, append(append(flags, "rate"), now...)...)
	if code != 0 || !strings.Contains(stdout, "nothing is due") {
		t.Errorf("second run: exit %d\n%s%s", code, stdout, stderr)
	}
	if after := totals(t, e); after != before {
		t.Errorf("the second run changed the lines from %s to %s", before, after)
	}
	status := must(t, append(flags, "status")...)
	for _, want := range []string{"project-0", "project-1", "2026-11-03T00:00:00Z", "rate"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
}

func TestRateDryRunWritesNothing(t *testing.T) {
	flags, e := sharedDatabase(t)
	count := func() (n uint64) {
		for _, table := range []string{"rated_lines", "period_commits", "pass_periods", "pass_lines", "job_runs", "leases", "void_attempts"} {
			var rows uint64
			if err := e.Conn().QueryRow(t.Context(), "SELECT count() FROM "+table).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			n += rows
		}
		return n
	}
	before := count()
	out := must(t, append(append(flags, "rate", "--dry-run"), now...)...)
	if !strings.Contains(out, "96 periods of 2 scopes are due") {
		t.Errorf("dry run printed %s", out)
	}
	if after := count(); after != before {
		t.Errorf("a dry run wrote %d rows", after-before)
	}
}

// proxied is a proxy in front of the engine that passes on what pass makes of a
// statement, or nothing.
func proxied(t *testing.T, e *engine.Engine, pass func(r *http.Request, body []byte) ([]byte, bool)) *url.URL {
	t.Helper()
	target, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		body, ok := pass(r, body)
		if !ok {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	auth := e.ClientOptions().Auth
	u.User = url.UserPassword(auth.Username, auth.Password)
	return u
}

// killer is a proxy in front of the engine that calls strike when a statement
// with the given text comes by, instead of passing it on.
func killer(t *testing.T, e *engine.Engine, text string, strike func()) *url.URL {
	t.Helper()
	var struck atomic.Bool
	return proxied(t, e, func(r *http.Request, body []byte) ([]byte, bool) {
		if (bytes.Contains(body, []byte(text)) || strings.Contains(r.URL.RawQuery, url.QueryEscape(text))) && struck.CompareAndSwap(false, true) {
			strike()
			<-r.Context().Done() // the killed client goes away
			return nil, false
		}
		return body, true
	})
}

// A run that is killed with SIGKILL between the lines and the commit leaves
// nothing that counts, and the next one ends with a clean run's totals.
func TestRateKilledBeforeItsCommits(t *testing.T) {
	flags, e := sharedDatabase(t)
	must(t, append(append(flags, "rate"), now...)...)
	want := totals(t, e)

	for _, statement := range []string{"INSERT INTO rated_lines", "INSERT INTO pass_lines", "INSERT INTO period_commits"} {
		t.Run(statement, func(t *testing.T) {
			if err := storetest.Empty(t.Context(), store.New(e.Conn(), e.Database())); err != nil {
				t.Fatal(err)
			}
			twoProjects(t, e)
			var process *exec.Cmd
			proxy := killer(t, e, statement, func() { _ = process.Process.Kill() })
			auth := e.ClientOptions().Auth
			proxy.User = url.UserPassword(auth.Username, auth.Password)
			executable, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"--clickhouse", proxy.String(), "--database", e.Database(), "rate"}, now...)
			process = exec.CommandContext(t.Context(), executable, args...)
			process.Env = append(os.Environ(), envProgram+"=1")
			var output bytes.Buffer
			process.Stdout, process.Stderr = &output, &output
			if err := process.Run(); err == nil || process.ProcessState.ExitCode() != -1 {
				t.Fatalf("the run was not killed: %v\n%s", err, output.String())
			}
			var written, counting uint64
			if err := e.Conn().QueryRow(t.Context(), "SELECT (SELECT count() FROM rated_lines), (SELECT count() FROM rated)").Scan(&written, &counting); err != nil {
				t.Fatal(err)
			}
			if counting != 0 {
				t.Errorf("%d lines of the killed run count", counting)
			}
			if statement != "INSERT INTO rated_lines" && written == 0 {
				t.Error("the killed run had not written its lines yet")
			}
			// Its lease is taken over at once: its process is provably dead.
			result := rateJSON(t, must(t, append(append(flags, "rate", "--output", "json"), now...)...))
			if result.Periods != 96 {
				t.Errorf("the next run rated %d periods, want 96", result.Periods)
			}
			if got := totals(t, e); got != want {
				t.Errorf("totals after the next run %s, want a clean run's %s", got, want)
			}
		})
	}
}

func TestSecondRateExitsAtOnce(t *testing.T) {
	flags, e := sharedDatabase(t)
	s := store.New(e.Conn(), e.Database())
	if err := s.Exec(t.Context(), "lease_beat", store.Params{"name": "rate", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := cli(t, append(append(flags, "rate"), now...)...)
	if code != ratebatch.ExitLeaseHeld || !strings.Contains(stderr, "another run holds the lease") {
		t.Errorf("exit %d, %s, want %d", code, stderr, ratebatch.ExitLeaseHeld)
	}
}

func TestBadInput(t *testing.T) {
	flags, _ := sharedDatabase(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	notADirectory := write("file", "")
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"an unknown key in a plan has line and column": {append(flags, "plan", "apply", write("plan.yaml", "currency: EUR\nservices:\n  - name: instance\n    mapings: []\n")), 2, []string{"plan.yaml:4:5", "mapings"}},
		"a metric that nobody collects":                {append(flags, "plan", "apply", "--from", "2027-01-01", write("other.yaml", "currency: EUR\nservices:\n  - name: instnace\n    mappings: [{cost: 1, type: flat}]\n")), 2, []string{"other.yaml:3", "instnace"}},
		"an unknown key in metrics too":                {append(flags, "metrics", "apply", write("metrics.yaml", "metrics:\n  x:\n    unit: u\n    tabel: t\n")), 2, []string{"metrics.yaml:4:5", "tabel"}},
		"a file that is not there":                     {append(flags, "plan", "apply", filepath.Join(dir, "none.yaml")), 2, []string{"none.yaml"}},
		"an unknown flag":                              {append(flags, "rate", "--perod", "1h"), 2, []string{"--perod", "--help"}},
		"a period that does not divide a day":          {append(flags, "rate", "--period", "7h"), 2, []string{"7h0m0s", "divide"}},
		"a moment that is none":                        {append(flags, "rate", "--now", "yesterday"), 2, []string{"yesterday"}},
		"a data directory that is a file":              {[]string{"--data", notADirectory, "status"}, 2, []string{notADirectory}},
		"a URL without a scheme":                       {[]string{"--clickhouse", "rater:open-sesame@db", "status"}, 2, []string{"scheme://"}},
		"a wrong URL":                                  {[]string{"--clickhouse", "ftp://x", "status"}, 2, []string{"ftp"}},
		"a server that is not there":                   {[]string{"--clickhouse", "http://127.0.0.1:1", "status"}, 75, []string{"127.0.0.1:1"}},
		"a database without a schema":                  {[]string{"--data", flags[1], "--database", "test_nothing_here", "rate"}, 2, []string{"ratebatch migrate"}},
		"an output that is none":                       {append(flags, "status", "--output", "xml"), 2, []string{"xml"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := cli(t, tt.args...)
			if code != tt.code {
				t.Errorf("exit %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr lacks %q: %s", want, stderr)
				}
			}
			if strings.Contains(stderr, "open-sesame") {
				t.Errorf("the password shows: %s", stderr)
			}
			if strings.Count(strings.TrimSpace(stderr), "\n") > 3 {
				t.Errorf("more than a few lines: %s", stderr)
			}
		})
	}
}

// README promises both of every command that is listed.
func TestHelpHasExitCodesAndAnExample(t *testing.T) {
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			walk(sub)
			if !sub.Runnable() {
				continue
			}
			seen++
			out := must(t, append(strings.Fields(sub.CommandPath())[1:], "--help")...)
			if !strings.Contains(out, "Exit codes: 0 ") || !strings.Contains(out, "\nExamples:\n  ") {
				t.Errorf("%s --help has no exit codes or no example:\n%s", sub.CommandPath(), out)
			}
		}
	}
	walk(newRootCmd(&program{}))
	if seen < 50 {
		t.Errorf("only %d commands were found", seen)
	}
}

// rewriter is a proxy in front of the engine that replaces text in statements on
// their way: pairs of what and by what.
func rewriter(t *testing.T, e *engine.Engine, pairs ...string) *url.URL {
	t.Helper()
	replacer := strings.NewReplacer(pairs...)
	return proxied(t, e, func(_ *http.Request, body []byte) ([]byte, bool) { return []byte(replacer.Replace(string(body))), true })
}

func TestServerOlderThanTheSchemaNeeds(t *testing.T) {
	_, e := sharedDatabase(t)
	server := rewriter(t, e, "SELECT version()", "SELECT '23.8.16.40'")
	code, _, stderr := cli(t, "--clickhouse", server.String(), "--database", e.Database(), "migrate")
	if code != ratebatch.ExitConfig || !strings.Contains(stderr, "23.8.16.40") || !strings.Contains(stderr, store.MinVersion) {
		t.Errorf("exit %d, %s: want exit 2 that names both versions", code, stderr)
	}
}

func TestWrongPassword(t *testing.T) {
	_, e := sharedDatabase(t)
	server, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	const secret = "not-the-password"
	server.User = url.UserPassword("default", secret)
	for _, verbose := range [][]string{nil, {"--verbose"}} {
		code, stdout, stderr := cli(t, append(verbose, "--clickhouse", server.String(), "--database", e.Database(), "status")...)
		if code != ratebatch.ExitConfig || !strings.Contains(strings.ToLower(stderr), "password") {
			t.Errorf("exit %d, %s: want exit 2 that speaks of the password", code, stderr)
		}
		if strings.Contains(stdout+stderr, secret) {
			t.Errorf("the password is shown: %s%s", stdout, stderr)
		}
	}
}

// On a full disk a command stops with one sentence, nothing half-written
// counts, and with space again the next run ends with a clean run's totals.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	flags := []string{"--data", filepath.Join(dir, "data")}
	must(t, append(flags, "migrate", "--retention", "40y")...)
	open := func() *engine.Engine {
		e, err := engine.Open(t.Context(), engine.Options{DataDir: filepath.Join(dir, "data"), Database: "ratebatch"})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	if err := e.Conn().Exec(t.Context(), `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		SELECT toDateTime('2026-11-01 00:00:00', 'UTC') + 3600 * (number % 48), 'one', reinterpret(sipHash128(intDiv(number, 48)), 'UUID'), 'p', 'm1', 1, 'vm', 60, 60, 3600, toDecimal128(cityHash64(number), 3) FROM numbers(48 * 1000)`); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "watermark", "--region", "one", "--until", "2026-11-03T00:00:00Z")...)
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(testPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", plan)...)
	ballast := filepath.Join(dir, "ballast")
	if err := fill(ballast); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := cli(t, append(append(flags, "rate"), now...)...)
	if code != ratebatch.ExitTryAgain || !strings.Contains(stderr, "disk") {
		t.Errorf("exit %d, want %d and a sentence about the disk\n%s%s", code, ratebatch.ExitTryAgain, stdout, stderr)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if got := totals(t, e); got != "[]" {
		t.Errorf("lines count after a full disk: %s", got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	result := rateJSON(t, must(t, append(append(flags, "rate", "--output", "json"), now...)...))
	if result.Periods != 48 || result.Lines != 48*1000*3 {
		t.Errorf("the run with space again: %+v", result)
	}
}

// fill writes until the file system is full, but for a little.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	var written int64
	for {
		n, err := f.Write(block)
		written += int64(n)
		if err != nil {
			break
		}
	}
	if err := f.Truncate(max(0, written-(256<<10))); err != nil {
		return err
	}
	return f.Close()
}
