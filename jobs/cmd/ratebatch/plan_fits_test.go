package main

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

const (
	volumePlan = `
currency: EUR
services:
  - name: network.outgoing
    tiers: [{id: v, kind: volume, steps: [{up_to: 100, cost: 1}, {cost: 0.5}]}]
charges:
  - {id: least, kind: minimum, amount: 5}
`
	dearVolume = `{id: w, kind: volume, steps: [{up_to: 100, cost: 10}, {cost: 1}]}`
)

// In New York November 2026 ends at 2026-12-01T05:00Z. Between plans of volume
// tiers only that moment is one to change at: 90 GiB before the 15th at 1 and 20
// after it at 10 and 1 would be adjusted by (1 - 10) × 90.
func TestPlansChangeWhatAMonthCostsWhereItBegins(t *testing.T) {
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	b.must("settings", "set", "billing_timezone", "America/New_York", "--reason", "invoices are by local months")
	cheap := b.file("plan.yaml", volumePlan)
	dear := b.file("dear.yaml", strings.Replace(volumePlan, "{id: v, kind: volume, steps: [{up_to: 100, cost: 1}, {cost: 0.5}]}", dearVolume, 1))
	more := b.file("more.yaml", strings.Replace(volumePlan, "amount: 5", "amount: 50", 1))
	b.must("plan", "apply", cheap)

	const volume = "service network.outgoing: volume tiers w give all of a month one price, but their price would change at "
	b.fails(ratebatch.ExitConfig, volume+"2026-11-15T00:00:00Z, within the month from 2026-11-01T04:00:00Z to 2026-12-01T05:00:00Z", "plan", "apply", dear, "--from", "2026-11-15")
	b.fails(ratebatch.ExitConfig, volume+"2026-12-01T00:00:00Z", "plan", "apply", dear, "--from", "2026-12-01", "--force", "--reason", "x")
	b.must("plan", "apply", dear, "--from", "2026-12-01T05:00:00Z", "--dry-run")
	// The plan that comes back at an end adjusts by its prices too.
	b.fails(ratebatch.ExitConfig, "volume tiers v give all of a month one price, but their price would change at 2027-01-15T00:00:00Z", "plan", "apply", dear, "--from", "2026-12-01T05:00:00Z", "--to", "2027-01-15")

	const charge = "billing_timezone is America/New_York: from 2026-12-01T00:00:00Z on the charges would be minimum 50 instead of minimum 5: that is within the month that ends at 2026-12-01T05:00:00Z"
	out := b.fails(ratebatch.ExitConfig, charge, "plan", "apply", more, "--from", "2026-12-01", "--force")
	if !strings.Contains(out, "warning: --from is 2026-12-01T00:00:00Z, but by billing_timezone America/New_York the month begins at 2026-12-01T05:00:00Z") {
		t.Errorf("no warning of the date:\n%s", out)
	}
	b.must("plan", "apply", more, "--from", "2026-12-01", "--force", "--reason", "agreed for November", "--dry-run")
	if _, stdout, stderr := cli(t, append(b.flags, "plan", "apply", more, "--from", "2026-12-01T05:00:00Z", "--dry-run")...); stderr != "" {
		t.Errorf("of the month's begin:\n%s%s", stdout, stderr)
	}
	// Dates of rules: a warning for each, however many rules have it.
	dated := b.file("dated.yaml", volumePlan+`
discounts:
  - {id: a, percent: 10, metric: instance, start: 2027-01-01, end: 2027-02-01T05:00:00Z}
  - {id: b, percent: 10, metric: disk.capacity, start: 2027-01-01}
  - {id: c, percent: 10, scope: x, metric: instance, start: 2026-12-01}
`)
	code, stdout, stderr := cli(t, append(b.flags, "plan", "apply", dated, "--from", "2026-12-15", "--dry-run")...)
	want := "warning: " + dated + ":10:6: discount a, start is 2027-01-01T00:00:00Z, and 1 more, but by billing_timezone America/New_York the month begins at 2027-01-01T05:00:00Z: write that if the month is meant, since dates are midnight UTC\n"
	if code != 0 || stderr != want {
		t.Errorf("exit %d\n%s%s\nwant\n%s", code, stdout, stderr, want)
	}
	if n := b.text("SELECT toString(count()) FROM rate_plans"); n != "1" {
		t.Errorf("%s plans are stored, want the first alone", n)
	}
}

// With another zone what is stored for later changes elsewhere than at its months'
// begins.
func TestANewTimeZoneWarnsOfWhatIsStoredForLater(t *testing.T) {
	b := newBilled(t)
	b.plan("2.00", "--from", "2100-01-01")
	b.must("plan", "apply", b.file("plan.yaml", strings.Replace(hourPlan, "%s", "3.00", 1)+`charges:
  - {id: least, kind: minimum, amount: 5, start: 2100-03-01}
  - {id: most, kind: cap, amount: 9, start: 2100-02-01, end: 2100-04-10}
`), "--from", "2100-02-10")
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		code, stdout, stderr := cli(t, append(b.flags, "settings", "set", "billing_timezone", zone, "--reason", "x")...)
		want := ""
		if zone != "UTC" {
			want = `warning: rate plan version 2, begin is 2100-01-01T00:00:00Z, but by billing_timezone Europe/Berlin the month begins at 2099-12-31T23:00:00Z: write that if the month is meant, since dates are midnight UTC
warning: rate plan version 3:8:6: minimum least, start is 2100-03-01T00:00:00Z, but by billing_timezone Europe/Berlin the month begins at 2100-02-28T23:00:00Z: write that if the month is meant, since dates are midnight UTC
`
		}
		if code != 0 || stderr != want {
			t.Errorf("%s: exit %d\n%s%s\nwant\n%s", zone, code, stdout, stderr, want)
		}
	}
}

// A plan and a metric set fit in all of the time in which both are in force,
// whichever of them is applied last.
func TestPlansAndMetricSetsFit(t *testing.T) {
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	set := func(entries ...string) string {
		return b.file("metrics.yaml", "metrics:\n"+strings.Join(entries, ""))
	}
	const (
		instance = "  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n    groupby: [flavor_name]\n"
		plain    = "  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n    groupby: [user_id]\n"
		vm       = "  vm:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n"
	)
	per := func(name string) string {
		return b.file("plan.yaml", "currency: EUR\nservices:\n  - name: instance\n    tiers: [{id: g, per: "+name+", free: 5, steps: [{cost: 1}]}]\n")
	}
	const hour = "currency: EUR\nservices:\n  - name: vm\n    mappings: [{cost: 1}]\n"

	b.fails(ratebatch.ExitConfig, ":4:14: service instance, tiers g: per: the metric has no attribute flavour_name: known are scope, resource", "plan", "apply", per("flavour_name"))
	for _, name := range []string{"scope", "resource", "flavor_name", "project_id", "month"} {
		b.must("plan", "apply", per(name), "--dry-run")
	}
	b.must("plan", "apply", per("flavor_name"))
	b.fails(ratebatch.ExitConfig, "service instance: no such metric: known are vm", "metrics", "apply", set(vm), "--from", "2027-01-01")
	b.fails(ratebatch.ExitConfig, "by rate plan version 1, in force from 2027-01-01T00:00:00Z:\nrate plan version 1:4:14: service instance, tiers g: per: the metric has no attribute flavor_name", "metrics", "apply", set(plain, vm), "--from", "2027-01-01")
	// The way to rename a metric: both names, then the plan, then one name.
	b.must("metrics", "apply", set(instance, vm))
	b.must("plan", "apply", b.file("vm.yaml", hour), "--from", "2027-01-01")
	b.fails(ratebatch.ExitConfig, "by rate plan version 1, in force from 2026-12-31T00:00:00Z", "metrics", "apply", set(vm), "--from", "2026-12-31")
	b.must("metrics", "apply", set(vm), "--from", "2027-01-01")
	b.fails(ratebatch.ExitConfig, "by metric set 2, in force from 2027-01-01T00:00:00Z:\n", "plan", "apply", per("scope"), "--from", "2026-12-15")
	b.must("plan", "apply", per("scope"), "--from", "2026-12-15", "--to", "2027-01-01")
	// plan check says so from files.
	b.fails(ratebatch.ExitConfig, "1 mistakes", "plan", "check", per("flavour_name"), "--metrics", set(instance))
}

// A version without an end takes the place of those stored for later.
func TestApplySaysWhichVersionsItReplaces(t *testing.T) {
	b := newBilled(t)
	b.plan("2.00", "--from", "2027-01-01")
	b.plan("3.00", "--from", "2027-02-01")
	file := b.file("plan.yaml", strings.Replace(hourPlan, "%s", "4.00", 1))
	if got := b.must("plan", "apply", file, "--from", "2026-12-15", "--to", "2027-01-15", "--dry-run"); strings.Contains(got, "not come into force") {
		t.Errorf("with an end within January:\n%s", got)
	}
	if got := b.must("plan", "apply", file, "--from", "2026-12-15", "--to", "2027-02-01", "--dry-run"); !strings.Contains(got, "version 2, from 2027-01-01T00:00:00Z on, would not come into force") || strings.Contains(got, "version 3") {
		t.Errorf("with an end after January:\n%s", got)
	}
	var applied struct{ Superseded []int }
	b.json(&applied, "plan", "apply", file, "--from", "2026-12-15", "--dry-run")
	if len(applied.Superseded) != 2 {
		t.Errorf("superseded: %v, want 2 and 3", applied.Superseded)
	}
	got := b.must("plan", "apply", file, "--from", "2026-12-15")
	for _, want := range []string{"rate plan version 4 is in force from 2026-12-15T00:00:00Z on\n", "version 2, from 2027-01-01T00:00:00Z on, will not come into force", "version 3, from 2027-02-01T00:00:00Z on, will not come into force"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := b.must("plan", "apply", b.file("plan.yaml", strings.Replace(hourPlan, "%s", "5.00", 1)), "--from", "2026-12-20"); strings.Contains(got, "not come into force") {
		t.Errorf("nothing was stored for later:\n%s", got)
	}
}
