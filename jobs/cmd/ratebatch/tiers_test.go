package main

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

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
	for _, position := range []string{"Discount", "partner", "Minimum charge: what is missing to it", "least", "Maximum charge: what is above it", "most", "6.69", "5.00", "12.00", "-8.00", "-0.20"} {
		if !strings.Contains(statement, position) {
			t.Errorf("the statement has no %s", position)
		}
	}
	files := filepath.Join(dir, "csv")
	b.must("export", "--month", "2026-11", "--to", files, "--dataset", "lines,statement,focus", "--format", "csv")
	positions := csvColumns(t, files, "statement", "scope", "position", "kind", "metric", "rule", "quantity", "unit", "amount", "description")
	if want := strings.TrimSpace(`
alpha|1|usage|instance|hour|1|instance|2.00|instance
alpha|2|usage|network.outgoing|egress:1|10|GiB|0.00|network.outgoing
alpha|3|usage|network.outgoing|egress:2|90|GiB|4.50|network.outgoing
alpha|4|usage|network.outgoing|egress:3|13|GiB|0.39|network.outgoing
alpha|5|usage|discount|partner|2|EUR|-0.20|Discount
alpha|6|total|||||6.69|Total
beta|1|usage|instance|hour|1|instance|2.00|instance
beta|2|usage|minimum|least|3|EUR|3.00|Minimum charge: what is missing to it
beta|3|total|||||5.00|Total
gamma|1|usage|instance|hour|10|instance|20.00|instance
gamma|2|usage|cap|most|8|EUR|-8.00|Maximum charge: what is above it
gamma|3|total|||||12.00|Total`); positions != want {
		t.Errorf("statement:\n%s\nwant\n%s", positions, want)
	}
	// So are they lines and charges of their own.
	for _, x := range []struct{ dataset, columns, want string }{
		{"lines", "scope metric part price rule", "alpha|discount|60001|-0.2|partner\nbeta|minimum|60002|3|least\ngamma|cap|60003|-8|most"},
		{"focus", "SubAccountId SkuMeter ChargeCategory BilledCost ChargeDescription", "alpha|discount|Credit|-0.2|Discount\nbeta|minimum|Usage|3|Minimum charge: what is missing to it\ngamma|cap|Credit|-8|Maximum charge: what is above it"},
	} {
		var own []string
		for line := range strings.SplitSeq(csvColumns(t, files, x.dataset, strings.Fields(x.columns)...), "\n") {
			if strings.Contains(line, "|discount|") || strings.Contains(line, "|minimum|") || strings.Contains(line, "|cap|") {
				own = append(own, line)
			}
		}
		if got := strings.Join(own, "\n"); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", x.dataset, got, x.want)
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
	for _, step := range []string{"usage rows of the commits and with lines 42 42 holds", "quantities of usage and of lines 137 137 holds", "money of the commits and read 23.69 23.69 holds",
		"periods of tiered prices drawn, and those of the same lines again 2 2 holds"} {
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
	b.must("close", "--month", "2026-10") // its last hours in Berlin were rated too
	b.must("close", "--month", "2026-11")
	b.must("export", "--month", "2026-11", "--to", out, "--dataset", "lines")
	b.must("export", "--month", "2026-11", "--to", files, "--dataset", "lines", "--format", "csv")
	if got := strings.Join(strings.Fields(b.must("reconcile", "--month", "2026-11")), " "); !strings.Contains(got, "periods of tiered prices drawn, and those of the same lines again 2 2 holds") {
		t.Errorf("reconcile of the closed month:\n%s", got)
	}
	metrics := filepath.Join(dir, "metrics.yaml")
	if err := os.WriteFile(metrics, []byte("metrics:\n  discount:\n    unit: h\n    table: instance_metrics\n    quantity: time\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitConfig, "metric discount: lines of this name come from other lines", "metrics", "apply", metrics)
	whatIfs(b, dir)
}

// csvColumns reads columns of a dataset's CSV files, in the order of files and
// rows: a line of texts for each row.
func csvColumns(t *testing.T, dir, dataset string, columns ...string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(dir, "v1", "dataset="+dataset), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".csv" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		records, err := csv.NewReader(file).ReadAll()
		if err != nil {
			return err
		}
		for _, record := range records[1:] {
			var texts []string
			for _, c := range columns {
				at := slices.Index(records[0], c)
				if at < 0 {
					return fmt.Errorf("%s has no column %s", path, c)
				}
				texts = append(texts, record[at])
			}
			out = append(out, strings.Join(texts, "|"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// The allowance of 10 GiB and the edge at 100 GiB, met exactly, by a byte less and
// by a byte more, within an hour and after another. A byte is
// 0.000000000931322575 GiB (2^-30 has 30 decimals), and 0.05 a GiB of it
// 0.00000000004656612875, rounded half-even to 0.000000000046566129; 0.03 of it
// 0.00000000002793967725, rounded to 0.000000000027939677. Below by a byte, a
// quantity is 9.999999999068677425 or 89.999999999068677425, and 0.05 of that
// 4.49999999995343387125, rounded to 4.499999999953433871.
//
//	at      10 GiB: free                     then 90 GiB: 4.50                          then 1 GiB: 0.03
//	below   10 GiB - 1 byte: free            then 90 GiB: 1 byte free, the rest 0.05    then 1 GiB: 1 byte at 0.05, the rest 0.03
//	above   10 GiB + 1 byte: 1 byte at 0.05  then 90 GiB: all but the last byte at 0.05 then 1 GiB: 0.03
//
// All three stay below the minimum of 5 and pay it: the last column of months.
func TestTheEdgesOfTiersByTheByte(t *testing.T) {
	e := storetest.Shared(t)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	const gib = 1 << 30
	for scope, first := range map[string]int{"at": 10 * gib, "below": 10*gib - 1, "above": 10*gib + 1, "little": 1} {
		for hour, bytes := range []int{first, 90 * gib, gib} {
			if scope == "little" && hour > 0 {
				break
			}
			ctx := store.WithParams(t.Context(), store.Params{"scope": scope, "hour": hour, "bytes": bytes})
			if err := e.Conn().Exec(ctx, `INSERT INTO port_volume_hourly (bucket, region, instance_uuid, port_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, rx_bytes, tx_bytes, refreshed_at)
				SELECT toDateTime('2026-11-30 20:00:00', 'UTC') + 3600 * {hour:UInt8}, 'one', reinterpret(sipHash128({scope:String}), 'UUID'), reinterpret(toFixedString('p', 16), 'UUID'), {scope:String}, 'm1', 1, 'vm', 60, 60, 3600, 0, {bytes:UInt64}, toDateTime('2026-11-28 00:00:00', 'UTC')`); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.must("watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")
	plans := map[string]string{"plan.yaml": tiersPlan, "draft.yaml": strings.Replace(tiersPlan, `amount: "5"`, `amount: "7"`, 1)}
	dir := t.TempDir()
	for name, text := range plans {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.must("plan", "apply", filepath.Join(dir, "plan.yaml"))
	b.must("rate", "--now", at)
	got := b.text(`SELECT arrayStringConcat(groupArray(line), '\n') FROM (
		SELECT concat(scope, ' ', formatDateTime(begin, '%H', 'UTC'), ' ', toString(part), ' ', toString(qty), ' ', toString(price), ' ', rule) AS line
		FROM rated WHERE metric = 'minimum' OR metric = 'network.outgoing' ORDER BY scope, begin, metric DESC, part)`)
	want := strings.TrimSpace(`
above 20 0 10 0 egress:1
above 20 1 0.000000000931322575 0.000000000046566129 egress:2
above 21 0 89.999999999068677425 4.499999999953433871 egress:2
above 21 1 0.000000000931322575 0.000000000027939677 egress:3
above 22 0 1 0.03 egress:3
above 23 60002 0.469999999972060323 0.469999999972060323 least
at 20 0 10 0 egress:1
at 21 0 90 4.5 egress:2
at 22 0 1 0.03 egress:3
at 23 60002 0.47 0.47 least
below 20 0 9.999999999068677425 0 egress:1
below 21 0 0.000000000931322575 0 egress:1
below 21 1 89.999999999068677425 4.499999999953433871 egress:2
below 22 0 0.000000000931322575 0.000000000046566129 egress:2
below 22 1 0.999999999068677425 0.029999999972060323 egress:3
below 23 60002 0.470000000027939677 0.470000000027939677 least
little 20 0 0.000000000931322575 0 egress:1
little 23 60002 5 5 least`)
	if got != want {
		t.Errorf("lines:\n%s\nwant\n%s", got, want)
	}
	// Who uses only what is free pays the minimum too, now and by the draft.
	var c rate.Comparison
	b.json(&c, "plan", "simulate", filepath.Join(dir, "draft.yaml"), "--month", "2026-11")
	for _, x := range c.Projects {
		if !x.Before.Equal(decimal.New(5, 0)) || !x.After.Equal(decimal.New(7, 0)) || x.Percent.String() != "40" {
			t.Errorf("%s pays %s and by the draft %s, want 5 and 7", x.Name, x.Before, x.After)
		}
	}
	if len(c.Projects) != 4 || c.Total.After.String() != "28" {
		t.Errorf("simulated for %d projects, %s in all", len(c.Projects), c.Total.After)
	}
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
	// By the second metric set an instance's hour counts twice: alpha 6.75 + 1.80,
	// beta 4.00 and still below the minimum, gamma capped.
	single, doubled := filepath.Join(dir, "single.yaml"), filepath.Join(dir, "doubled.yaml")
	builtin := b.must("metrics", "default")
	for file, text := range map[string]string{single: builtin, doubled: strings.Replace(builtin, "  instance:\n", "  instance:\n    factor: 2\n", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.must("metrics", "apply", single, "--from", "2027-06-01")
	b.must("metrics", "apply", doubled, "--from", "2027-07-01")
	var m rate.Comparison
	b.json(&m, "plan", "diff", "1", "1", "--rated", "--from", "2026-10-31T23:00:00Z", "--metrics", "1,2")
	got = nil
	for _, x := range append(m.Projects, m.Total) {
		got = append(got, strings.Join([]string{x.Name, x.Before.String(), x.After.String(), x.Difference.String()}, " "))
	}
	if want := "alpha 6.75 8.55 1.8; beta 5 5 0; gamma 12 12 0; total 23.75 25.55 1.8"; strings.Join(got, "; ") != want {
		b.Errorf("by two metric sets: %s\nwant %s", strings.Join(got, "; "), want)
	}
	// A guard of plan apply: nothing is stored that changes more than is allowed.
	b.fails(ratebatch.ExitHalted, "the price of 1 of 3 projects changes by more than 15 %; first beta: 6 instead of 5", "plan", "apply", draft, "--from", "2027-08-01", "--max-change", "15", "--max-change-month", "2026-11")
	if n := b.text("SELECT toString(count()) FROM rate_plans"); n != "1" {
		b.Errorf("%s plans are stored after one was refused", n)
	}
	b.fails(ratebatch.ExitConfig, "there is no usage from 2026-06-30T22:00:00Z to 2026-07-31T22:00:00Z", "plan", "apply", draft, "--from", "2027-08-01", "--max-change", "15", "--max-change-month", "2026-07")
	b.fails(ratebatch.ExitConfig, "--max-change-month without --max-change", "plan", "apply", draft, "--from", "2027-08-01", "--max-change-month", "2026-07")
	b.must("plan", "apply", draft, "--from", "2027-08-01", "--max-change", "20", "--max-change-month", "2026-11", "--dry-run")
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
	_, cases, found := strings.Cut(string(text), "```json\n")
	if cases, _, closed = strings.Cut(cases, "```"); !found || !closed {
		t.Fatal("the document shows no price test")
	}
	if err := os.WriteFile("prices.jsonl", []byte(cases), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.must("plan", "test", "prices.jsonl", "--plan", "plan.yaml"); !strings.Contains(got, "1 cases, 1 points: 1 passed, 0 failed") {
		t.Errorf("plan test: %s", got)
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
