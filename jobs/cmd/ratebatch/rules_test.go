package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const gapsPlan = `
currency: EUR
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {value: m1, cost: "0", type: flat, id: gift}
          - {value: m9, cost: "1", type: flat, id: nobody}
  - name: memory
    thresholds:
      - {level: "1000000", cost: "1", type: flat, id: never}
`

// Status says which metrics nothing priced, which rules nothing matched and which
// always gave 0 in the last run that rated, and keeps saying it when the next
// run has nothing to do; and how many periods another plan is in force for now.
func TestStatusReportsRulesAndOutdatedPeriods(t *testing.T) {
	b := newBilled(t)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(gapsPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("plan", "apply", file, "--from", "2026-11-30")
	if out := b.must("rate", "--now", at, "--first-period", "usage"); !strings.Contains(out, "rules that matched nothing") {
		t.Errorf("rate says nothing of rules:\n%s", out)
	}
	reported := func() *status {
		t.Helper()
		var x status
		b.json(&x, "status", "--now", at)
		return &x
	}
	want := map[string]string{"unpriced_metrics": "memory, vcpu", "unmatched_rules": "instance:nobody, memory:never", "always_zero_rules": "instance:gift"}
	if got := reported().Rules; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rules %v, want %v", got, want)
	}
	b.rate()
	if got := reported().Rules; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rules after a run with nothing to do: %v, want %v", got, want)
	}
	text := b.must("status", "--now", at)
	for _, line := range []string{"unpriced metrics in the last run that rated: memory, vcpu", "unmatched rules in the last run that rated: instance:nobody, memory:never", "always zero rules in the last run that rated: instance:gift"} {
		if !strings.Contains(text, line) {
			t.Errorf("status lacks %q:\n%s", line, text)
		}
	}
	if x := reported(); len(x.Outdated) != 0 {
		t.Errorf("outdated before another plan is in force: %+v", x.Outdated)
	}
	// Another plan from December on: two scopes' first two hours of it.
	b.plan("2.00", "--from", "2026-12-01", "--force", "--reason", "new prices")
	x := reported()
	if len(x.Outdated) != 1 || x.Outdated[0].Kind != "rate plan" || x.Outdated[0].Periods != 4 || !x.Outdated[0].From.Equal(store.OpenEnd) && x.Outdated[0].From.Format("2006-01-02") != "2026-12-01" {
		t.Errorf("outdated: %+v, want the 4 periods of December", x.Outdated)
	}
	b.must("backfill", "--from", "2026-12-01", "--to", "2026-12-01T02:00:00Z", "--reason", "new prices", "--now", at)
	if x := reported(); len(x.Outdated) != 0 {
		t.Errorf("outdated after the backfill: %+v", x.Outdated)
	}
	b.owe("alpha 4, beta 2")
	// What matched nothing before does now.
	if got := reported().Rules; got["unmatched_rules"] != "instance:nobody, memory:never" {
		t.Errorf("a backfill is not a run of rate: rules %v", got)
	}
}
