package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// A month in Berlin, worked out by hand.
//
// November 2026 begins there at 2026-10-31T23:00Z and ends at 2026-11-30T23:00Z.
// Egress: 10 GiB a month free, then 0.05 a GiB, above 100 GiB 0.03. An instance
// costs 2.00 an hour, for alpha 10 % less. Everybody pays 5 a month at least;
// gamma pays 12 at most.
//
//	alpha, 31 Oct 22:00Z (October): p1 50 GiB: 10 free + 40 × 0.05           =  2.00
//	                                October in all                           =  2.00, minimum + 3.00
//	alpha, 31 Oct 23:00Z (1 Nov 00:00): p1 6 GiB, p2 7 GiB in the same hour:
//	                                p1 draws first: 6 free; p2: 4 free, 3 × 0.05 =  0.15
//	alpha, 10 Nov 00:00Z: an instance for an hour                            =  2.00
//	                                10 % of 2.00 less                        = -0.20
//	alpha, 30 Nov 22:00Z (30 Nov 23:00, the last hour): p1 100 GiB after 13:
//	                                87 × 0.05 = 4.35, 13 × 0.03 = 0.39       =  4.74
//	                                November in all                          =  6.69
//	alpha, 30 Nov 23:00Z (December): p1 1 GiB                                =  free
//	beta,  10 Nov 00:00Z: an instance for an hour: 2.00, minimum + 3.00      =  5.00
//	gamma, 10 Nov 00:00Z: an instance for ten hours: 20.00, cap - 8.00       = 12.00
const tiersPlan = `
currency: EUR
services:
  - name: network.outgoing
    tiers:
      - id: egress
        free: "10"
        steps:
          - {up_to: "100", cost: "0.05"}
          - {cost: "0.03"}
  - name: instance
    mappings: [{cost: "2.00", id: hour}]
discounts:
  - {percent: "10", metric: instance, scope: alpha, id: partner}
charges:
  - {kind: minimum, amount: "5", id: least}
  - {kind: cap, amount: "12", scope: gamma, id: most}
`

func TestTiersOfAMonthInBerlin(t *testing.T) {
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	egress := func(scope, port, begin string, gib int) {
		t.Helper()
		ctx := store.WithParams(t.Context(), store.Params{"scope": scope, "port": port, "begin": begin, "gib": gib})
		if err := e.Conn().Exec(ctx, `INSERT INTO port_volume_hourly (bucket, region, instance_uuid, port_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, rx_bytes, tx_bytes, refreshed_at)
			SELECT toDateTime({begin:String}, 'UTC'), 'one', reinterpret(sipHash128({scope:String}), 'UUID'), reinterpret(toFixedString({port:String}, 16), 'UUID'), {scope:String}, 'm1', 1, 'vm', 60, 60, 3600, 0, {gib:UInt64} * 1073741824, toDateTime('2026-11-28 00:00:00', 'UTC')`); err != nil {
			t.Fatal(err)
		}
	}
	egress("alpha", "p1", "2026-10-31 22:00:00", 50)
	egress("alpha", "p1", "2026-10-31 23:00:00", 6)
	egress("alpha", "p2", "2026-10-31 23:00:00", 7)
	egress("alpha", "p1", "2026-11-30 22:00:00", 100)
	egress("alpha", "p1", "2026-11-30 23:00:00", 1)
	b.usage("alpha", "2026-11-10 00:00:00", 1, "3600", "2026-11-28 00:00:00")
	b.usage("beta", "2026-11-10 00:00:00", 1, "3600", "2026-11-28 00:00:00")
	b.usage("gamma", "2026-11-10 00:00:00", 10, "3600", "2026-11-28 00:00:00")
	b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "invoices are by local months")
	b.must("watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.yaml")
	if err := os.WriteFile(file, []byte(tiersPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("plan", "apply", file)
	b.must("rate", "--now", at)

	lines := func() string {
		return b.text(`SELECT arrayStringConcat(groupArray(line), '\n') FROM (
			SELECT concat(scope, ' ', formatDateTime(begin, '%m-%d %H', 'UTC'), ' ', metric, ' ', toString(part), ' ', toString(qty), ' ', unit, ' ', toString(price), ' ', rule) AS line
			FROM rated WHERE price != 0 OR (metric = 'network.outgoing' AND qty > 0) ORDER BY scope, begin, metric, resource, part)`)
	}
	want := strings.TrimSpace(`
alpha 10-31 22 minimum 60002 3 EUR 3 least
alpha 10-31 22 network.outgoing 0 10 GiB 0 egress:1
alpha 10-31 22 network.outgoing 1 40 GiB 2 egress:2
alpha 10-31 23 network.outgoing 0 6 GiB 0 egress:1
alpha 10-31 23 network.outgoing 0 4 GiB 0 egress:1
alpha 10-31 23 network.outgoing 1 3 GiB 0.15 egress:2
alpha 11-10 00 discount 60001 2 EUR -0.2 partner
alpha 11-10 00 instance 0 1 instance 2 hour
alpha 11-30 22 network.outgoing 0 87 GiB 4.35 egress:2
alpha 11-30 22 network.outgoing 1 13 GiB 0.39 egress:3
alpha 11-30 23 network.outgoing 0 1 GiB 0 egress:1
beta 11-10 00 instance 0 1 instance 2 hour
beta 11-30 22 minimum 60002 3 EUR 3 least
`)
	for hour := range 10 {
		want += "\ngamma 11-10 0" + string(rune('0'+hour)) + " instance 0 1 instance 2 hour"
	}
	want += "\ngamma 11-30 22 cap 60003 8 EUR -8 most"
	if got := lines(); got != want {
		t.Fatalf("lines:\n%s\nwant\n%s", got, want)
	}

	// The statement has the minimum, the cap and the discount as positions.
	out := filepath.Join(dir, "finance")
	b.must("export", "--month", "2026-11", "--to", out, "--dataset", "lines,statement,focus")
	if got := b.must("export", "verify", out); strings.Count(got, "as the manifest says") != 3 {
		t.Errorf("verify: %s", got)
	}
	pages, err := filepath.Glob(filepath.Join(out, "v1/dataset=statement/month=2026-11/delivery=*/pages/*/*.html"))
	if err != nil || len(pages) != 3 {
		t.Fatalf("pages %q (%v)", pages, err)
	}
	statement := ""
	for _, p := range pages {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		statement += string(data)
	}
	for _, position := range []string{"discount", "minimum", "cap", "6.69", "5.00", "12.00", "-8.00", "-0.20"} {
		if !strings.Contains(statement, position) {
			t.Errorf("the statement has no %s", position)
		}
	}
	for _, x := range [][4]string{
		{"alpha", "2026-11-30T23:00:00Z", "network.outgoing", "graduated tiers egress per scope\n  account network.outgoing: 0 in the month before this period, 1 in it\n  tier egress:1: 0 × 1 = 0"},
		{"beta", "2026-11-30T22:00:00Z", "minimum", "account (charged): 2 in the month before this period, 0 in it\n  minimum least: 5 a month\n  minimum least: 3 EUR × 1 = 3"},
		{"alpha", "2026-11-10T00:00:00Z", "discount", "discount partner: 2 EUR × -0.1 = -0.2"},
	} {
		if got := b.must("explain", "--scope", x[0], "--begin", x[1], "--metric", x[2]); !strings.Contains(got, x[3]) || strings.Contains(got, "another version") {
			t.Errorf("explained:\n%s\nwant\n%s", got, x[3])
		}
	}
	// Every usage row is in lines that add up to it.
	got := strings.Join(strings.Fields(b.must("reconcile", "--month", "2026-11", "--files", out)), " ")
	for _, step := range []string{"usage rows of the commits and with lines 42 42 holds", "quantities of usage and of lines 137 137 holds", "money of the commits and read 23.69 23.69 holds"} {
		if !strings.Contains(got, step) {
			t.Errorf("reconcile does not say %q:\n%s", step, got)
		}
	}

	// Usage of 1 November that arrives late draws on the allowance first: what
	// follows in the month is cut elsewhere, and its other periods stay.
	egress("alpha", "p0", "2026-10-31 23:00:00", 2) // p0 2 free, p1 6 free, p2: 2 free, 5 × 0.05
	b.must("backfill", "--scope", "alpha", "--from", "2026-10-31T23:00:00Z", "--to", "2026-11-01T00:00:00Z", "--reason", "late", "--now", at)
	late := b.text(`SELECT arrayStringConcat(groupArray(line), '\n') FROM (SELECT concat(formatDateTime(begin, '%m-%d %H', 'UTC'), ' ', toString(revision), ' ', toString(part), ' ', toString(qty), ' ', toString(price)) AS line
		FROM rated WHERE scope = 'alpha' AND revision > 1 AND metric = 'network.outgoing' ORDER BY begin, resource, part)`)
	if want := "10-31 23 2 0 2 0\n10-31 23 2 0 6 0\n10-31 23 2 0 2 0\n10-31 23 2 1 5 0.25\n11-30 22 2 0 85 4.25\n11-30 22 2 1 15 0.45"; late != want {
		t.Errorf("after late usage:\n%s\nwant\n%s", late, want)
	}
	if n := b.text("SELECT toString(count()) FROM current_commits WHERE revision > 1"); n != "2" {
		t.Errorf("%s periods have a revision, want those two whose lines changed", n)
	}
	b.must("close", "--month", "2026-11")
	metrics := filepath.Join(dir, "metrics.yaml")
	if err := os.WriteFile(metrics, []byte("metrics:\n  discount:\n    unit: h\n    table: instance_metrics\n    quantity: time\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitConfig, "metric discount: lines of this name come from other lines", "metrics", "apply", metrics)
	whatIfs(b, dir)
}

// whatIfs compares the plan with a dearer one. By the first November is what was
// rated: alpha 90 × 0.05 + 15 × 0.03 + 2.00 - 0.20 = 6.75, beta 5, gamma 12. By
// the other alpha pays 90 × 0.06 + 0.45 + 1.80 = 7.65 (+ 13.33 %) and beta the
// minimum of 6 (+ 20 %).
func whatIfs(b *billed, dir string) {
	b.Helper()
	draft := filepath.Join(dir, "draft.yaml")
	if err := os.WriteFile(draft, []byte(strings.NewReplacer(`cost: "0.05"`, `cost: "0.06"`, `amount: "5"`, `amount: "6"`).Replace(tiersPlan)), 0o600); err != nil {
		b.Fatal(err)
	}
	const rows = "SELECT toString(sum(total_rows)) FROM system.tables WHERE database = currentDatabase() AND name IN ('rated_lines', 'period_commits', 'pass_carries', 'pass_periods', 'pass_lines', 'void_attempts', 'rate_plans')"
	before := b.text(rows)
	var c rate.Comparison
	b.json(&c, "plan", "diff", "1", draft, "--rated", "--from", "2026-10-31T23:00:00Z")
	var got []string
	for _, x := range append(c.Projects, c.Total) {
		got = append(got, strings.Join([]string{x.Name, x.Before.String(), x.After.String(), x.Difference.String(), x.Percent.String()}, " "))
	}
	if want := "beta 5 6 1 20; alpha 6.75 7.65 0.9 13.33; gamma 12 12 0 0; total 23.75 25.65 1.9 8"; strings.Join(got, "; ") != want {
		b.Errorf("compared: %s\nwant %s", strings.Join(got, "; "), want)
	}
	if c.P50.String() != "13.33" || c.P95.String() != "20" {
		b.Errorf("p50 %s, p95 %s, want 13.33 and 20", c.P50, c.P95)
	}
	if now := b.text("SELECT toString(sum(price)) FROM rated WHERE begin >= '2026-10-31 23:00:00' AND begin < '2026-11-30 23:00:00'"); now != c.Total.Before.String() {
		b.Errorf("rated again from usage %s, rated %s", c.Total.Before, now)
	}
	b.fails(ratebatch.ExitHalted, "the price of 1 of 3 projects changes by more than 15 %; first beta: 6 instead of 5", "plan", "diff", "1", draft, "--rated", "--from", "2026-10-31T23:00:00Z", "--max-change", "15")
	b.must("plan", "diff", "1", draft, "--rated", "--from", "2026-10-31T23:00:00Z", "--max-change", "20")
	b.fails(ratebatch.ExitConfig, "tiers, which count from the begin of a month", "plan", "diff", "1", draft, "--rated", "--from", "2026-11-02")
	prices, picture := filepath.Join(dir, "prices.csv"), filepath.Join(dir, "prices.svg")
	table := b.must("plan", "simulate", draft, "--month", "2026-11", "--csv", prices, "--svg", picture)
	if !strings.Contains(table, "half of the projects change by at most 13.33 %, 95 of 100 by at most 20 %") {
		b.Errorf("simulated:\n%s", table)
	}
	data, err := os.ReadFile(prices)
	if want := "project,now,then,difference,percent,currency\nbeta,5,6,1,20,EUR\nalpha,6.75,7.65,0.9,13.33,EUR\ngamma,12,12,0,0,EUR\n"; err != nil || string(data) != want {
		b.Errorf("CSV (%v):\n%s\nwant\n%s", err, data, want)
	}
	if data, err = os.ReadFile(picture); err != nil || xml.Unmarshal(data, new(any)) != nil || strings.Count(string(data), "<rect") != 6 {
		b.Errorf("SVG (%v):\n%s", err, data)
	}
	if after := b.text(rows); after != before {
		b.Errorf("what-ifs wrote: %s rows before, %s after", before, after)
	}
}

// The commands of docs/tiers.md, in its order, with the plan that it shows.
func TestTiersDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/tiers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(text), "```yaml\n")
	shown, _, closed := strings.Cut(shown, "```")
	if !found || !closed {
		t.Fatal("the document shows no plan")
	}
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	b.usage("alpha", "2026-11-30 20:00:00", 4, "3600", "2026-11-28 00:00:00")
	b.must("watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")
	t.Chdir(t.TempDir())
	for name, plan := range map[string]string{"plan.yaml": shown, "draft.yaml": strings.Replace(shown, `cost: "0.04"`, `cost: "2"`, 1)} {
		if err := os.WriteFile(name, []byte(plan), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ratebatch ")
		if !ok {
			continue
		}
		n++
		args := words(command)
		if args[0] == "rate" {
			args = append(args, "--now", at)
		}
		b.must(args...)
	}
	if n < 7 {
		t.Errorf("only %d commands were found", n)
	}
	// 4 × 0.04 = 0.16, less 10 %, up to 5.
	if got := b.text("SELECT concat(toString(sum(price)), ' in ', toString(countIf(price != 0)), ' lines') FROM rated"); got != "5 in 9 lines" {
		t.Errorf("rated %s, want 5 in 9 lines: four hours, four discounts and the minimum", got)
	}
	if _, err := os.Stat("prices.svg"); err != nil {
		t.Error(err)
	}
}
