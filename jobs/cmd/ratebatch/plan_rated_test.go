package main

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// A guard passes only what its usage shows: a price that begins or ends to hold
// later, in the new plan or in the old one, and a minimum where the window is no
// whole month are named, and nothing is stored.
func TestGuardsPassNothingThatTheyDoNotJudge(t *testing.T) {
	b := newBilled(t)
	const head = "currency: EUR\nservices:\n  - name: instance\n    mappings:\n"
	same := b.file("same.yaml", head+"      - {cost: \"1.00\", description: the same}\n")
	dearer := b.file("dearer.yaml", head+"      - {cost: \"1.00\", id: now, end: 2027-01-01}\n      - {cost: \"4\", id: later, start: 2027-01-01}\n")
	discounted := b.file("discounted.yaml", head+"      - {cost: \"1.00\", end: 2026-10-31, id: gone}\n      - {cost: \"1.00\", start: 2026-10-31}\ndiscounts: [{percent: \"50\", id: half, start: 2026-12-24}]\n")
	charged := b.file("charged.yaml", head+"      - {cost: \"1.00\"}\ncharges: [{kind: minimum, amount: \"500\", id: least}]\n")
	guarded := []string{"--from", "2027-08-01", "--max-change", "5", "--max-change-month", "2026-11"}
	for file, what := range map[string]string{
		dearer: "does not show all that these do: service instance, mapping now to 2027-01-01T00:00:00Z, service instance, mapping later from 2027-01-01T00:00:00Z",
		// What ended before the window is none of its business.
		discounted: "does not show all that these do: discount half from 2026-12-24T00:00:00Z: look at",
	} {
		b.fails(ratebatch.ExitConfig, what, append([]string{"plan", "apply", file}, guarded...)...)
		b.fails(ratebatch.ExitConfig, what, "plan", "diff", "1", file, "--rated", "--from", "2026-11-01", "--max-change", "5")
		b.fails(ratebatch.ExitConfig, what, "plan", "diff", file, "1", "--rated", "--from", "2026-11-01", "--max-change", "5")
	}
	if n := b.text("SELECT toString(count()) FROM rate_plans"); n != "1" {
		t.Errorf("%s plans are stored, want the first alone", n)
	}
	half := []string{"plan", "diff", "1", charged, "--rated", "--from", "2026-11-15"}
	b.must(half...)
	b.fails(ratebatch.ExitConfig, "minimum least, which is of whole months", append(half, "--max-change", "5")...)
	b.fails(ratebatch.ExitHalted, "the price of 2 of 2 projects changes by more than 5 %", "plan", "diff", "1", charged, "--rated", "--from", "2026-11-01", "--max-change", "5")

	if out := b.must("plan", "simulate", dearer, "--month", "2026-11"); !strings.Contains(out, "warning: this usage does not show all that these do:\n  service instance, mapping now to") {
		t.Errorf("simulated without a warning:\n%s", out)
	}
	var c rate.Comparison
	b.json(&c, "plan", "simulate", dearer, "--month", "2026-11")
	if len(c.NotJudged) != 2 {
		t.Errorf("not judged: %v", c.NotJudged)
	}
	b.must(append([]string{"plan", "apply", same, "--dry-run"}, guarded...)...)
}
