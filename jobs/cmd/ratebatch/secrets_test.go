package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Every command, at debug level, with credentials that fail everywhere: no stream
// and no file shows one.
func TestNoCommandShowsASecret(t *testing.T) {
	withoutVariables(t)
	const secret = "hunter2"
	for name, value := range map[string]string{
		"RATEBATCH_CLICKHOUSE": "clickhouse://rater:" + secret + "@127.0.0.1:1/ratebatch?password=" + secret, "RATEBATCH_CLICKHOUSE_PASSWORD": secret,
		"RATEBATCH_KAFKA": "127.0.0.1:1", "RATEBATCH_KAFKA_USER": "ingest", "RATEBATCH_KAFKA_PASSWORD": secret, "RATEBATCH_AGENT_PASSWORD": secret, "RATEBATCH_INGEST_PASSWORD": secret,
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1", "OS_AUTH_URL": "http://127.0.0.1:1", "OS_USERNAME": "u", "OS_USER_DOMAIN_NAME": "d", "OS_PROJECT_NAME": "p", "OS_PROJECT_DOMAIN_NAME": "d", "OS_PASSWORD": secret,
		"RATEBATCH_EXPORT_TO": "s3://finance/x?endpoint=http://127.0.0.1:1", "RATEBATCH_METRICS_PUSH": "http://u:" + secret + "@127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("RATEBATCH_METRICS_DIR", dir)
	if err := os.WriteFile("plan.yaml", []byte(testPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	// What a command needs to get as far as its credentials.
	args := map[string][]string{
		"export": {"--month", "2026-11"}, "export verify": {"s3://finance/x?endpoint=http://127.0.0.1:1"}, "close": {"--month", "2026-11"}, "reopen": {"--month", "2026-11", "--reason", "x"},
		"reconcile": {"--month", "2026-11"}, "plan apply": {"plan.yaml"}, "plan check": {"plan.yaml"}, "metrics apply": {"plan.yaml"}, "reset": {"--all", "--from", "2026-11-01", "--reason", "x"},
		"backfill": {"--all", "--from", "2026-11-01", "--to", "2026-11-02", "--reason", "x"}, "watermark": {"--region", "one", "--until", "2026-11-01"}, "scopes fetch": {"keystone", "--fetch-timeout", "1s"},
		"ingest": {"--retry-for", "1s"}, "compare-cloudkitty": {"--month", "2026-11", "plan.yaml"}, "engine sql": {"-q", "SELECT 1"}, "rate": {"--scopes-from", "keystone", "--fetch-timeout", "1s"},
		"quote": {"--metric", "instance"}, "migrate": {"--kafka", ""}, "simulate": {"--kafka", ""},
	}
	// Daemons (below), what fetches or serves for long, and the demo.
	leave := []string{"demo", "bench", "dev kafka", "engine serve", "engine install", "schedule run", "serve", "help", "completion", "release"}
	var commands []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "ratebatch"), " ")
		if slices.ContainsFunc(leave, func(l string) bool { return name == l || strings.HasPrefix(name, l+" ") }) {
			return
		}
		if name != "" && cmd.Runnable() {
			commands = append(commands, name)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(&program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, now: time.Now, log: slog.New(slog.DiscardHandler)}))
	if len(commands) < 30 {
		t.Fatalf("only %v", commands)
	}
	check := func(what, text string) {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s shows a secret: …%s…", what, text[max(0, i-100):min(len(text), i+50)])
		}
	}
	failed := 0
	for _, name := range commands {
		for _, more := range [][]string{{"--help"}, args[name]} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			var stdout, stderr bytes.Buffer
			line := append(append(strings.Fields(name), more...), "--verbose", "--log-format", "json")
			if code := run(ctx, line, strings.NewReader(""), &stdout, &stderr); code != 0 {
				failed++
			}
			cancel()
			check(name+" on stdout", stdout.String())
			check(name+" on stderr", stderr.String())
		}
	}
	if failed < 20 {
		t.Errorf("only %d commands failed: were their credentials used?", failed)
	}
	// The daemons, as long as it takes to fail a few times, and what they serve.
	for _, line := range [][]string{{"schedule", "run"}, {"serve"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var stdout, stderr lockedBuffer
		ended := make(chan int, 1)
		go func() {
			p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now}
			ended <- p.run(ctx, append(slices.Clone(line), "--listen", "127.0.0.1:0", "--verbose", "--log-format", "json"))
		}()
		address := regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]{2,}`) // not the server's port 1
		eventually(t, "address of "+line[0], func() bool { return address.MatchString(stderr.String()) }, &stderr)
		eventually(t, "failure of "+line[0], func() bool { return strings.Contains(stderr.String(), "connection refused") }, &stderr)
		for _, path := range []string{"/healthz", "/metrics", "/api/v1/health", "/api/v1/rating/status"} {
			response, err := http.Get("http://" + address.FindString(stderr.String()) + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			check(line[0]+path, string(text))
		}
		cancel()
		<-ended
		check(line[0]+" on stdout", stdout.String())
		check(line[0]+" on stderr", stderr.String())
	}
	http.DefaultClient.CloseIdleConnections()
	// Rendered manifests and everything that was written.
	for _, target := range []string{"systemd", "kubernetes", "crontab"} {
		must(t, "schedule", "render", target, "--out", filepath.Join(dir, target))
	}
	files := 0
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		check(path, string(text))
		return err
	}); err != nil || files < 20 {
		t.Errorf("%d files (%v)", files, err)
	}
}
