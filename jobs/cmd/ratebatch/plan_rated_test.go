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
	// What both plans hold alike is no difference between them.
	promised := head + "      - {cost: \"1.00\"}\ndiscounts: [{percent: \"10\", end: 2027-12-31}]\n"
	old, again := b.file("promised.yaml", promised), b.file("again.yaml", "description: again\n"+promised)
	if out := b.must("plan", "diff", old, again, "--rated", "--from", "2026-11-01", "--max-change", "5"); !strings.Contains(out, "discount: 10 % to 2027-12-31T00:00:00Z") {
		t.Errorf("a discount that both plans end:\n%s", out)
	}
	b.fails(ratebatch.ExitConfig, "does not show all that these do: discount: 10 % to 2027-12-31T00:00:00Z: look", "plan", "diff", same, again, "--rated", "--from", "2026-11-01", "--max-change", "50")
	discounted := b.file("discounted.yaml", head+"      - {cost: \"1.00\", end: 2026-10-31, id: gone}\n      - {cost: \"1.00\", start: 2026-10-31}\ndiscounts: [{percent: \"50\", id: half, start: 2026-12-24}]\n")
	charged := b.file("charged.yaml", head+"      - {cost: \"1.00\"}\ncharges: [{kind: minimum, amount: \"500\", id: least}]\n")
	guarded := []string{"--from", "2027-08-01", "--max-change", "5", "--max-change-month", "2026-11"}
	for file, what := range map[string]string{
		dearer: "does not show all that these do: service instance, mapping: flat 1 to 2027-01-01T00:00:00Z, service instance, mapping: flat 4 from 2027-01-01T00:00:00Z",
		// What ended before the window is none of its business.
		discounted: "does not show all that these do: discount: 50 % from 2026-12-24T00:00:00Z: look at",
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
	b.fails(ratebatch.ExitConfig, "minimum least of 500, which is of whole months", append(half, "--max-change", "5")...)
	b.fails(ratebatch.ExitHalted, "the price of 2 of 2 projects changes by more than 5 %", "plan", "diff", "1", charged, "--rated", "--from", "2026-11-01", "--max-change", "5")

	if out := b.must("plan", "simulate", dearer, "--month", "2026-11"); !strings.Contains(out, "warning: this usage does not show all that these do:\n  service instance, mapping: flat 1 to") {
		t.Errorf("simulated without a warning:\n%s", out)
	}
	var c rate.Comparison
	b.json(&c, "plan", "simulate", dearer, "--month", "2026-11")
	if len(c.NotJudged) != 2 {
		t.Errorf("not judged: %v", c.NotJudged)
	}
	b.must(append([]string{"plan", "apply", same, "--dry-run"}, guarded...)...)
}

// A quote prices as rating does: with the metric's unit and with the scope under its
// key. What a month's bill counts beside it is said.
func TestAQuotePricesAsRatingDoes(t *testing.T) {
	b := newBilled(t)
	b.must("plan", "apply", "--from", "2026-11-01", b.file("plan.yaml", `
currency: EUR
services:
  - name: instance
    fields: [{name: project_id, mappings: [{value: alpha, cost: "3"}]}]
  - name: network.outgoing
    tiers: [{id: egress, free: "10", steps: [{cost: "1"}]}]
expressions: [{id: twice, metric: instance, when: unit == "instance" && groupby.month == "11", price: price * 2}]
discounts: [{percent: "50", id: half, metric: instance}, {percent: "10", id: other, scope: beta}, {percent: "20", id: over, end: 2026-11-02}]
charges: [{kind: minimum, amount: "500", id: least}, {kind: minimum, amount: "7", id: own, scope: alpha}, {kind: cap, amount: "900", id: most, scope: beta}]
`))
	b.rate()
	hours := strings.TrimPrefix(b.text("SELECT concat('a', toString(sum(price))) FROM rated WHERE scope = 'alpha' AND metric = 'instance' AND begin >= '2026-11-30 20:00:00' AND begin < '2026-12-01 00:00:00'"), "a")
	var q quoted
	b.json(&q, "quote", "--scope", "alpha", "--metric", "instance", "--qty", "4", "--at", "2026-11-30T20:00:00Z")
	if q.Total.String() != "24" || hours != "24" {
		t.Errorf("quoted %s, rated %s, want 24", q.Total, hours)
	}
	if got, want := strings.Join(q.Warnings, "; "), "discount half of 50 % on instance is not part of a quote; minimum own of 7 a month is not part of a quote"; got != want {
		t.Errorf("warnings: %s\nwant %s", got, want)
	}
	b.json(&q, "quote", "--metric", "network.outgoing", "--qty", "11", "--at", "2026-11-30T20:00:00Z")
	if got, want := strings.Join(q.Warnings, "; "), "minimum least of 500 a month is not part of a quote; network.outgoing has tiers: each item is priced as the first usage of a month"; got != want {
		t.Errorf("warnings: %s\nwant %s", got, want)
	}
}
