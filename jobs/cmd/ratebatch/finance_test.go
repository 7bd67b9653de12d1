package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

	// A line counted wrongly and one priced wrongly are two things: some lines were
	// priced again.
	if i := slices.IndexFunc(report.Steps, func(s reconcile.Step) bool { return s.Step == "usage → prices" }); i < 0 || report.Steps[i].Left == "0" {
		t.Errorf("no line was priced again: %+v", report.Steps)
	}

	// March is rated up to its end; of April nothing is known.
	var manifest exporter.Manifest
	text, err := os.ReadFile(filepath.Join(to, "v1/dataset=lines/month=2026-03/_manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if !manifest.State.Open || manifest.State.Partial || !manifest.State.CompleteUntil.Equal(manifest.State.End) {
		t.Errorf("March: %+v", manifest.State)
	}
	if out := must("export", "--month", "2026-03", "--to", to); !strings.Contains(out, "2026-03 is open: all its periods are in") || !strings.Contains(out, "nothing was written") {
		t.Errorf("export again: %s", out)
	}
	if out := must("export", "--month", "2025-12", "--to", to); !strings.Contains(out, "0 rows of 0 commits in 1 files") || !strings.Contains(out, "2025-12 is open and partial: all periods are in up to 2025-12-01T00:00:00Z") {
		t.Errorf("an empty month: %s", out)
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(must("export", "schema")), &schema); err != nil || schema["title"] == "" {
		t.Errorf("schema: %v (%v)", schema, err)
	}

	// Who wants the closed month gets nothing before.
	bills := filepath.Join(dir, "bills")
	for _, args := range [][]string{{"--to", bills}, {"--to", bills, "--dry-run"}, {"--to", "-", "--format", "arrow"}} {
		if out, code := command(append([]string{"export", "--month", "2026-03", "--closed"}, args...)...); code != ratebatch.ExitTryAgain || !strings.Contains(out, "ratebatch close --month 2026-03") {
			t.Errorf("export --closed %q of an open month: exit code %d: %s", args, code, out)
		}
	}
	if _, err := os.Stat(filepath.Join(bills, "v1")); !os.IsNotExist(err) {
		t.Errorf("an open month was exported: %v", err)
	}

	// Append deliveries go to a place of their own.
	lake := filepath.Join(dir, "lake")
	if out := must("export", "--month", "2026-03", "--to", lake, "--delivery", "append"); !strings.Contains(out, "append delivery 1 adds") {
		t.Errorf("append: %s", out)
	}
	must("backfill", "--all", "--from", "2026-03-01T05:00:00Z", "--to", "2026-03-01T07:00:00Z", "--reason", "test")
	if out := must("export", "--month", "2026-03", "--to", lake, "--delivery", "append"); !strings.Contains(out, "append delivery 2 adds 0 periods and adjusts 6: 0 rows in 0 files") {
		t.Errorf("append: %s", out)
	}
	must("reconcile", "--month", "2026-03", "--files", lake)
	must("export", "verify", lake)

	// A statement has the same text for an amount in every form.
	csvs := filepath.Join(dir, "csv")
	must("export", "--month", "2026-03", "--to", csvs, "--dataset", "statement", "--format", "csv")
	tables, err := filepath.Glob(filepath.Join(csvs, "v1/dataset=statement/month=2026-03/delivery=*/*.csv"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%q (%v)", tables, err)
	}
	table, err := os.Open(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	records, err := csv.NewReader(table).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	amount, scope, kind := slices.Index(records[0], "amount"), slices.Index(records[0], "scope"), slices.Index(records[0], "kind")
	for _, record := range records[1:] {
		if record[kind] != "total" {
			continue
		}
		pages, _ := filepath.Glob(filepath.Join(filepath.Dir(tables[0]), "pages", "scope="+record[scope], "*.html"))
		if len(pages) != 1 {
			t.Fatalf("pages of %s: %q", record[scope], pages)
		}
		page, err := os.ReadFile(pages[0])
		if err != nil || !strings.Contains(string(page), ">"+record[amount]+" EUR<") || len(record[amount])-strings.Index(record[amount], ".") != 3 {
			t.Errorf("the table says %s, the page does not (%v)", record[amount], err)
		}
	}

	// What is wrong with files is said once each.
	damaged, err := filepath.Glob(filepath.Join(lake, "v1/dataset=lines/month=2026-03/delivery=*/day=2026-03-01/*.parquet"))
	if err != nil || len(damaged) != 1 {
		t.Fatalf("%q (%v)", damaged, err)
	}
	if err := os.Truncate(damaged[0], 100); err != nil {
		t.Fatal(err)
	}
	out, code := command("export", "verify", lake)
	if code != ratebatch.ExitHalted || strings.Count(out, "100 bytes, the manifest says") != 1 || strings.Contains(out, "add up to") || !strings.Contains(out, "1 of 1 deliveries are not what their manifests say: lines 2026-03") {
		t.Errorf("verify: exit code %d: %s", code, out)
	}
	if out, code := command("reconcile", "--month", "2026-02", "--files", to); code != ratebatch.ExitHalted || !strings.Contains(out, "there are no lines of this month at that place") {
		t.Errorf("reconcile of a month that was not exported: exit code %d: %s", code, out)
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
		"no folder to verify":      {"export", "verify", filepath.Join(dir, "nosuch")},
		"no folder to reconcile":   {"reconcile", "--month", "2026-03", "--files", filepath.Join(dir, "nosuch")},
		"sums to append":           {"export", "--month", "2026-03", "--to", lake, "--delivery", "append", "--dataset", "summary"},
		"two mechanisms":           {"export", "--month", "2026-03", "--to", to, "--delivery", "append"},
		"a dry run to a pipe":      {"export", "--month", "2026-03", "--to", "-", "--format", "arrow", "--dry-run"},
		"append to a pipe":         {"export", "--month", "2026-03", "--to", "-", "--format", "arrow", "--delivery", "append"},
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
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("BilledCost,BillingCurrency\n1E-7,eur\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := command("focus", "check", bad); code != ratebatch.ExitRejected || !strings.Contains(out, "no exponent") || !strings.Contains(out, "ISO 4217") || !strings.Contains(out, "BillingAccountId is missing") {
		t.Errorf("a bad file: exit code %d: %s", code, out)
	}
}
