package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// What people asked for wrongly is said, and said so that the next try is right.
func TestMistypedNamesAreTold(t *testing.T) {
	flags, e := sharedDatabase(t)
	say := func(args ...string) (int, string) {
		t.Helper()
		code, stdout, stderr := cli(t, append(append([]string{}, flags...), args...)...)
		return code, stdout + stderr
	}
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expect := func(what string, code int, want []string, args ...string) {
		t.Helper()
		got, out := say(args...)
		if got != code {
			t.Errorf("%s: exit %d, want %d:\n%s", what, got, code, out)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", what, w, out)
			}
		}
	}
	explain := func(begin, metric string, more ...string) []string {
		return append([]string{"explain", "--scope", "project-0", "--begin", begin, "--metric", metric}, more...)
	}
	expect("explain before anything is rated", 2, []string{"nothing is rated yet"}, explain("2026-11-01T00:00:00Z", "instance")...)
	if code, out := say(append([]string{"rate"}, now...)...); code != 0 {
		t.Fatal(out)
	}

	// quote
	expect("a metric nobody collects", 0, []string{"warning: nothing collects metric instanze: there are disk.capacity,"}, "quote", "--metric", "instanze")
	expect("a scope that is not known", 0, []string{"warning: scope projekt-0 is not known"}, "quote", "--metric", "instance", "--scope", "projekt-0")
	expect("in JSON", 0, []string{`"warnings": [`}, "quote", "--metric", "instanze", "--output", "json")
	plan := file("plan.yaml", testPlan)
	expect("a metric a plan has no prices for", 0, []string{"warning: the plan has no prices for metric vcpu: there are instance, memory"}, "quote", "--plan", plan, "--metric", "vcpu")
	for _, right := range [][]string{{"quote", "--metric", "instance", "--scope", "project-0"}, {"quote", "--plan", plan, "--metric", "memory"}} {
		if _, out := say(right...); strings.Contains(out, "warning") {
			t.Errorf("%v warns:\n%s", right, out)
		}
	}

	// explain
	expect("a scope without lines", 2, []string{"scope nobody has no rated lines; there are project-0, project-1"}, "explain", "--scope", "nobody", "--begin", "2026-11-01T00:00:00Z", "--metric", "instance")
	expect("within a period", 2, []string{"no period of scope project-0 begins at 2026-11-01T00:30:00Z", "such as 2026-11-01T00:00:00Z"}, explain("2026-11-01T00:30:00Z", "instance")...)
	expect("a period that is not rated", 2, []string{"no lines in the period that begins at 2026-11-09T00:00:00Z"}, explain("2026-11-09T00:00:00Z", "instance")...)
	expect("another metric", 2, []string{"no lines of metric disk; there are instance, memory, vcpu"}, explain("2026-11-01T00:00:00Z", "disk")...)
	expect("another resource", 2, []string{"no line of metric instance and resource vm; there are "}, explain("2026-11-01T00:00:00Z", "instance", "--resource", "vm")...)
	expect("several resources", 2, []string{"more than one line matches: add --resource, such as "}, explain("2026-11-01T00:00:00Z", "instance")...)
	expect("an id of nothing", 2, []string{"no line that counts has this id within what the flags say"}, "explain", "6f1c8f0e-8a37-5d0b-9a53-2f0a6f2d8f11", "--month", "2026-11")

	// metrics apply
	own := string(metric.Default()) + "\n  backup:\n    unit: GiB\n    table: backups\n    time: at\n    resource: [name]\n    quantity: sum\n    value: gib\n"
	expect("a table that there is not", 0, []string{"warning: metric backup reads the table backups, which there is not"}, "metrics", "apply", "--dry-run", "--from", "2027-01-01", file("metrics.yaml", own))
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE backups (at DateTime('UTC'), region String, project_id String, name String, gb Decimal(18, 3)) ENGINE = MergeTree ORDER BY at"); err != nil {
		t.Fatal(err)
	}
	expect("a column that there is not", 0, []string{"warning: metric backup reads the column gib of backups, which has at, region, project_id, name, gb"}, "metrics", "apply", "--dry-run", "--from", "2027-01-01", file("metrics.yaml", own))
	if _, out := say("metrics", "apply", "--dry-run", "--from", "2027-01-01", file("metrics.yaml", strings.Replace(own, "value: gib", "value: gb", 1))); strings.Contains(out, "warning") {
		t.Errorf("a table that fits is warned of:\n%s", out)
	}

	// Files of Windows' editors.
	expect("a byte order mark", 0, nil, "plan", "check", file("plan.yaml", "\uFEFF"+strings.ReplaceAll(testPlan, "\n", "\r\n")))
	expect("UTF-16", 2, []string{"plan.yaml:1:1: the file is in UTF-16: save it as UTF-8"}, "plan", "check", file("plan.yaml", "\xFF\xFEc\x00u\x00"))
	expect("metrics with a byte order mark", 0, nil, "metrics", "apply", "--dry-run", "--from", "2027-01-01", file("metrics.yaml", "\uFEFF"+strings.Replace(own, "value: gib", "value: gb", 1)))

	// bench
	expect("a group of benchmarks that there is not", 2, []string{"no group of benchmarks is called \"speed\"", "catchup"}, "bench", "--only", "speed")
	_, help := say("bench", "--help")
	for _, s := range suites {
		if !strings.Contains(help, " "+s.name+",") && !strings.Contains(help, ", "+s.name+"\n") {
			t.Errorf("bench --help does not list the group %s", s.name)
		}
	}

	// Errors of SQL are as long as what they say.
	code, out := say("engine", "sql", "-q", "SELECT x FROM nowhere")
	if code != 1 || strings.Count(out, "\n") > 2 || len(out) > 300 || !strings.Contains(out, "nowhere") {
		t.Errorf("an unknown table: exit %d, %d bytes:\n%s", code, len(out), out)
	}
	code, out = say("engine", "sql", "-q", "SELEC 1")
	if code != 1 || len(out) > 300 || !strings.Contains(out, "SELEC") {
		t.Errorf("a mistake of syntax: exit %d, %d bytes:\n%s", code, len(out), out)
	}
}
