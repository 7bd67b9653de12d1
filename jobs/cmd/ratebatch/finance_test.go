package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// TestFinance goes the way of finance on simulated usage: rate, export every
// dataset, verify, check FOCUS, reconcile.
func TestFinance(t *testing.T) {
	o := enginetest.Options(t)
	dir := t.TempDir()
	command := func(args ...string) (string, int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: func() time.Time { return time.Date(2026, 4, 15, 0, 0, 0, 0, time.UTC) }, log: slog.New(slog.DiscardHandler)}
		root := newRootCmd(p)
		root.SetArgs(append([]string{"--data", o.DataDir, "--database", o.Database}, args...))
		err := root.ExecuteContext(t.Context())
		if err != nil {
			stdout.WriteString(err.Error())
		}
		return stdout.String() + stderr.String(), ratebatch.ExitCode(err)
	}
	must := func(args ...string) string {
		t.Helper()
		out, code := command(args...)
		if code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, code, out)
		}
		return out
	}
	plan := filepath.Join(dir, "plan.yaml")
	if err := os.WriteFile(plan, []byte("currency: EUR\nservices:\n  - name: instance\n    mappings:\n      - {type: flat, cost: \"0.0125\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must("migrate", "--retention", "3650d")
	must("simulate", "--projects", "3", "--instances", "8", "--begin", "2026-03-01", "--hours", "30", "--interval", "5m")
	must("plan", "apply", plan)
	must("watermark", "--region", "RegionOne", "--until", "2026-04-02T00:00:00Z")
	must("rate")

	to := filepath.Join(dir, "finance")
	var results []exporter.Result
	if err := json.Unmarshal([]byte(must("export", "--month", "2026-03", "--to", to, "--dataset", "lines,summary,focus,statement", "--output", "json")), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 4 || results[0].Rows == 0 || results[0].Totals["EUR"] != results[3].Totals["EUR"] {
		t.Errorf("%+v", results)
	}
	if out := must("export", "verify", to); strings.Count(out, "as the manifest says") != 4 {
		t.Errorf("verify: %s", out)
	}
	files, err := filepath.Glob(filepath.Join(to, "v1/dataset=focus/month=2026-03/delivery=*/*/*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q (%v)", files, err)
	}
	if out := must("focus", "check", files[0], "--focus-version", "1.3"); !strings.Contains(out, "every rule holds") {
		t.Errorf("focus check: %s", out)
	}
	var report reconcile.Report
	if err := json.Unmarshal([]byte(must("reconcile", "--month", "2026-03", "--files", to, "--output", "json")), &report); err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Steps {
		if s.Result != reconcile.Holds {
			t.Errorf("%+v", s)
		}
	}
	if len(report.Steps) < 12 {
		t.Errorf("%d steps: %+v", len(report.Steps), report.Steps)
	}

	for name, args := range map[string][]string{
		"no place":                 {"export", "--month", "2026-03"},
		"a place of another kind":  {"export", "--month", "2026-03", "--to", "ftp://host/x"},
		"a month that is none":     {"export", "--month", "March", "--to", to},
		"a dataset that is none":   {"export", "--month", "2026-03", "--to", to, "--dataset", "invoices"},
		"statements by day":        {"export", "--month", "2026-03", "--to", to, "--dataset", "statement", "--partition", "day"},
		"Parquet to a pipe":        {"export", "--month", "2026-03", "--to", "-"},
		"a key that is none":       {"export", "--month", "2026-03", "--to", to, "--sign-key", plan},
		"secrets in a location":    {"export", "--month", "2026-03", "--to", "s3://key:secret@bucket/x"},
		"nothing to verify":        {"export", "verify", dir},
		"a version FOCUS has not":  {"focus", "check", files[0], "--focus-version", "0.9"},
		"reconcile without month":  {"reconcile"},
		"a period that is too odd": {"reconcile", "--month", "2026-03", "--period", "7m"},
	} {
		if out, code := command(args...); code != ratebatch.ExitConfig {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		} else if strings.Contains(out, "secret@") {
			t.Errorf("%s: shows the secret: %s", name, out)
		}
	}
	csv := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(csv, []byte("BilledCost,BillingCurrency\n1E-7,eur\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := command("focus", "check", csv); code != ratebatch.ExitRejected || !strings.Contains(out, "no exponent") || !strings.Contains(out, "ISO 4217") || !strings.Contains(out, "BillingAccountId is missing") {
		t.Errorf("a bad file: exit code %d: %s", code, out)
	}
}
