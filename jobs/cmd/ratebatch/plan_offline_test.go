package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// offline runs a subcommand of plan that needs no ClickHouse.
func offline(t *testing.T, stdin string, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := &program{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, now: time.Now}
	root := &cobra.Command{Use: "plan", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().StringVar(&p.output, "output", "table", "")
	root.AddCommand(planOfflineCommands(p)...)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		p.printError(err)
	}
	return ratebatch.ExitCode(err), stdout.String(), stderr.String()
}

func planTestFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const testedPlan = `currency: EUR
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings: [{value: m1.tiny, cost: "0.01"}]
expressions:
  - {when: hour(begin) < 6, price: price * 0.8}
skip: qty == 0
`

const nightCase = `{"name": "night", "period_begin": "2026-03-01T02:00:00", "points": [{"metric": "instance", "scope_id": "p", "qty": "1", "groupby": {"flavor_name": "m1.tiny"}, "price": "0.008"}]}`

const testedTiers = `currency: EUR
skip: qty == 7
services:
  - name: network.outgoing
    tiers:
      - {id: egress, free: 1000, steps: [{up_to: 10000, cost: "0.05"}, {cost: "0.03"}]}
      - {id: own, scope: own, per: zone, steps: [{cost: "2"}]}
  - name: storage
    tiers: [{id: v, kind: volume, steps: [{up_to: 10, cost: 3}, {up_to: 20, cost: 2}, {cost: 1}]}]
`

// Edges at, just below and just above; the whole amount of a point is that of its
// lines: 995 + 10: 5 free, 5 × 0.05.
var tieredCases = strings.ReplaceAll(`{"name": "egress", "period_begin": "2026-03-20T02:00:00", "points": [
	{"metric": "network.outgoing", "scope_id": "p", "qty": "10", "used_before": "995", "price": "0.25"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "1000", "price": "0"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "5", "used_before": "995", "price": "0"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "5.00000000000000002", "used_before": "995", "price": "0.000000000000000001"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "10000", "used_before": "500", "price": "465"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "0", "used_before": "1000", "price": "0"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "-2", "used_before": "1000", "price": "-0.1"},
	{"metric": "network.outgoing", "scope_id": "p", "qty": "7", "used_before": "5000", "price": "0"},
	{"metric": "network.outgoing", "scope_id": "own", "qty": "3", "used_before": "5000", "price": "6"}]}
{"name": "volume", "period_begin": "2026-03-20T02:00:00", "points": [
	{"metric": "storage", "scope_id": "p", "qty": "1", "used_before": "9", "price": "3"},
	{"metric": "storage", "scope_id": "p", "qty": "1.000000000000000001", "used_before": "9", "price": "-6.999999999999999998"},
	{"metric": "storage", "scope_id": "p", "qty": "12", "used_before": "9", "price": "-6"},
	{"metric": "storage", "scope_id": "p", "qty": "0", "used_before": "9", "price": "0"},
	{"metric": "storage", "scope_id": "p", "qty": "1", "used_before": "25", "price": "1"}]}
{"name": "beside", "period_begin": "2026-03-20T02:00:00", "points": [
	{"metric": "unknown", "scope_id": "p", "qty": "1", "price": "0"}]}
`, "\n\t", " ")

func TestPlanTest(t *testing.T) {
	t.Parallel()
	const vectors = "../../../fixtures/vectors/"
	planFile := planTestFile(t, "plan.yaml", testedPlan)
	for name, tt := range map[string]struct {
		args           []string
		code           int
		last, contains string
	}{
		"the recorded cases pass": {
			[]string{"test", vectors + "hashmap.jsonl", vectors + "hashmap-upstream.jsonl"}, 0,
			"723 cases, 3806 points: 3806 passed, 0 failed", "",
		},
		"a case of one's own plan passes": {
			[]string{"test", "-", "--plan", planFile}, 0, "1 cases, 1 points: 1 passed, 0 failed", "",
		},
		"a wrong price fails, with both answers": {
			[]string{"test", "--plan", planFile, planTestFile(t, "wrong.jsonl", strings.Replace(nightCase, "0.008", "0.01", 1))}, 1,
			"1 cases, 1 points: 0 passed, 1 failed", "want 0.01; evaluator: 0.008 by m1+e1",
		},
		"tiers after what the month has used, in every way": {
			[]string{"test", planTestFile(t, "tiers.jsonl", tieredCases), "--plan", planTestFile(t, "tiers.yaml", testedTiers)}, 0, "3 cases, 15 points: 15 passed, 0 failed", "",
		},
		"a wrong price of tiers, with all answers": {
			[]string{"test", planTestFile(t, "wrongtiers.jsonl", strings.Replace(tieredCases, `"0.25"`, `"0.5"`, 1)), "--plan", planTestFile(t, "tiers.yaml", testedTiers)}, 1,
			"3 cases, 15 points: 14 passed, 1 failed", "want 0.5; evaluator: 0.25 by egress:1+egress:2; folded: not asked: tiers are not folded; folded SQL: 0.25 by egress:1+egress:2",
		},
		"what a month used of a metric without tiers is a mistake": {
			[]string{"test", planTestFile(t, "none.jsonl", strings.Replace(nightCase, `"qty"`, `"used_before": "1", "qty"`, 1)), "--plan", planFile}, 2, "", "point 1: used_before is 1, but instance has no tiers",
		},
		"a month cannot have used less than nothing": {
			[]string{"test", planTestFile(t, "negative.jsonl", strings.Replace(nightCase, `"qty"`, `"used_before": "-1", "qty"`, 1)), "--plan", planFile}, 2, "", "used_before is -1",
		},
		"a case without rules needs a plan": {
			[]string{"test", "-"}, 2, "", "case night has no rules: name the plan with --plan",
		},
		"a file that does not exist": {
			[]string{"test", "nowhere.jsonl"}, 2, "", "nowhere.jsonl: no such file",
		},
		"a plan with mistakes": {
			[]string{"test", "-", "--plan", planTestFile(t, "bad.yaml", "currency: euro")}, 2, "", "bad.yaml:1:11: currency",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := offline(t, nightCase, tt.args...)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if code != tt.code || lines[len(lines)-1] != tt.last || !strings.Contains(stdout+stderr, tt.contains) {
				t.Errorf("exit %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
		})
	}
	code, stdout, _ := offline(t, nightCase, "test", "-", "--plan", planFile, "--output", "json")
	var got struct {
		Cases, Points, Passed, Failed int
		Mismatches                    []string
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || got.Passed != 1 || len(got.Mismatches) != 0 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
}

func TestPlanCheck(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := offline(t, "", "check", planTestFile(t, "plan.yaml", testedPlan))
	if code != 0 || !strings.Contains(stdout, "priced line by line: expression e1, when: it depends on the time within a window") || !strings.Contains(stdout, "no mistakes, digest ") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = offline(t, "currency: EUR\nservices:\n  - name: vm\n    mappings: [{cost: 1e-29}, {cots: 1}]\n", "check", "-")
	if code != 2 || !strings.Contains(stdout, "-:4:23:") || !strings.Contains(stdout, `did you mean "cost"?`) || !strings.Contains(stderr, "3 mistakes") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, _ = offline(t, testedPlan, "check", "-", "--output", "json")
	var got struct {
		Digest   string
		Findings []any
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || len(got.Digest) != 64 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
}

func TestPlanSchema(t *testing.T) {
	t.Parallel()
	if code, stdout, _ := offline(t, "", "schema"); code != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}

func TestPlanImportCloudKitty(t *testing.T) {
	t.Parallel()
	const rules = `{"services": [{"service_id": "s", "name": "instance"}],
		"mappings": [{"mapping_id": "a", "service_id": "s", "cost": "0.4199999999999999844568776552"}, {"mapping_id": "b", "service_id": "gone", "cost": "1"}]}`
	code, stdout, stderr := offline(t, rules, "import-cloudkitty", "-", "--currency", "EUR")
	if code != 0 || !strings.Contains(stdout, `- {cost: "0.42", id: a}`) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	for _, want := range []string{"rounded to 0.42", "not carried over: mapping b"} {
		if !strings.Contains(stdout, "# ") || !strings.Contains(stdout, want) || !strings.Contains(stderr, want) {
			t.Errorf("%q is not listed in\n%s%s", want, stdout, stderr)
		}
	}
	if code, _, stderr := offline(t, stdout, "check", "-"); code != 0 {
		t.Errorf("the plan made is refused: %s", stderr)
	}
	if code, _, _ := offline(t, "nonsense", "import-cloudkitty", "-"); code != 2 {
		t.Errorf("nonsense: exit %d", code)
	}
}
