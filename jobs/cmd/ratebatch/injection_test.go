package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// hostile are texts that break what puts them into a statement, a line, a path
// or a file instead of binding them.
func hostile() map[string]string {
	planes := ""
	for plane := range rune(17) {
		planes += string(plane<<16 + 0xE041 + plane) // of the private use area in plane 0
	}
	return map[string]string{
		"quotes":             `it's "quoted" ''twice''`,
		"backslashes":        `\ \\ \' \n \0 \x41 \`,
		"NUL":                "a\x00b\x00",
		"newlines":           "a\nb\r\nc\td\n",
		"10,000 letters":     strings.Repeat("x", 10_000),
		"10,000 bytes of 4":  strings.Repeat("🦊", 2500),
		"a second statement": `'; DROP TABLE rated_lines; --`,
		"the end of a list":  `') UNION ALL SELECT * FROM leases --`,
		"a shell's words":    "${HOME} $(id) $$ %s %d",
		"parameters":         "{x:String} {scope:String} {{table}}",
		"backticks":          "`rated_lines` `id` `",
		"every plane":        planes,
		"no UTF-8":           "\xff\xfe\xc0\xaf\xed\xa0\x80",
		"no UTF-8 either":    "\xfe\xfe\xc0\xaf\xed\xa0\x80",
		"comments":           "/* -- # */ */ --",
		"a heredoc":          "$x$ $x$ $",
		"a value of a map":   "{'a':'b'},['c']",
		"spaces":             "  a b  ",
		"a path":             "../../../etc/passwd",
		"a wild card":        "%_*?[a-z]",
		"a flag":             "--all",
		"markup":             `<script>alert(1)</script>&amp;`,
		"a formula":          "=cmd|' /C calc'!A0",
	}
}

// plain says whether a rate plan takes a text: it is valid, printable and not
// too long. What it does not take it refuses with the line.
func takenByPlans(text string) bool {
	return utf8.ValidString(text) && len(text) <= 4096 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f })
}

// checksums names every table of the database by what it holds.
func (b *billed) checksums() map[string]string {
	b.Helper()
	rows, err := b.e.Conn().Query(b.Context(), "SELECT name, total_rows > 0 FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'")
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]string{}
	var parts []string // of those that hold something: reading 40 tables takes longer than most commands
	for rows.Next() {
		var name string
		var filled uint8
		if err := rows.Scan(&name, &filled); err != nil {
			b.Fatal(err)
		}
		out[name] = "no rows"
		if filled == 0 {
			continue
		}
		parts = append(parts, "SELECT '"+name+"' AS name, concat(toString(count()), ' ', toString(groupBitXor(sipHash64(toString(tuple(*)))))) AS sum FROM "+name)
	}
	if err := rows.Close(); err != nil {
		b.Fatal(err)
	}
	if len(out) < 30 {
		b.Fatalf("only %d tables are left: %v", len(out), out)
	}
	rows, err = b.e.Conn().Query(b.Context(), strings.Join(parts, " UNION ALL "))
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			b.Fatal(err)
		}
		out[name] = sum
	}
	return out
}

// changes runs something that may change the named tables only.
func (b *billed) changes(what string, run func(), tables ...string) {
	b.Helper()
	before := b.checksums()
	run()
	for name, sum := range b.checksums() {
		if sum != before[name] && !slices.Contains(tables, name) {
			b.Errorf("%s changed table %s: %s, it was %s", what, name, sum, before[name])
		}
	}
}

// quoteYAML writes text as a YAML scalar in double quotes, byte for byte.
func quoteYAML(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			out.WriteString(text[i : i+n])
		}
		i += n
	}
	out.WriteByte('"')
	return out.String()
}

func (b *billed) file(name, text string) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

// hostileRow is what is billed of one hostile text: usage whose every text it is.
type hostileRow struct{ scope, region, flavor, name, price string }

// Whatever usage and plans call things, it is billed under that name, byte for
// byte, at that name's price, and comes out of the files so; nothing else in the
// database changes.
func TestHostileNamesAreBilledAsTheyAre(t *testing.T) {
	b := newBilled(t)
	b.sql("TRUNCATE TABLE instance_metrics_hourly")
	b.sql("TRUNCATE TABLE rate_plans")
	texts := hostile()
	names := slices.Sorted(maps.Keys(texts))

	batch, err := b.e.Conn().PrepareBatch(t.Context(), "INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds)")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	for i, name := range names {
		x := texts[name]
		if err := batch.Append(begin, x, fmt.Sprintf("00000000-0000-4000-8000-%012d", i), x, x, x, uint16(1), x, x, x, uint32(60), uint32(60), decimal.NewFromInt(3600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	b.changes("a watermark of each name", func() {
		for _, name := range names {
			b.must("watermark", "--region", texts[name], "--until", "2026-12-01T02:00:00Z", "--note", texts[name])
		}
	}, "watermarks")

	// Every flavor that a plan takes has a price of its own, and every scope a
	// factor; the others are refused with their line and cost the fallback.
	want := map[string]hostileRow{}
	var values, scopes strings.Builder
	var refused []string // files
	for i, name := range names {
		x := texts[name]
		row := hostileRow{scope: x, region: x, flavor: x, name: x, price: "1"}
		if takenByPlans(x) {
			row.price = decimal.New(int64(100+i), 0).String()
			fmt.Fprintf(&values, "          - {value: %s, cost: \"%d\", type: flat, description: %s}\n", quoteYAML(x), 50+i/2, quoteYAML(x))
			fmt.Fprintf(&scopes, "      - {scope: %s, cost: \"%d\", type: flat, group: %s}\n", quoteYAML(x), 100+i-50-i/2, quoteYAML(x))
		} else {
			refused = append(refused, b.file("plan.yaml", "currency: EUR\nservices:\n  - name: instance\n    fields:\n      - name: flavor_name\n        mappings:\n          - {value: "+quoteYAML(x)+", cost: \"1\", type: flat}\n"))
		}
		want[x] = row
	}
	b.changes("plans with names that none takes", func() {
		for _, file := range refused {
			b.fails(ratebatch.ExitConfig, "plan.yaml:", "plan", "apply", file)
		}
	})
	groups := ""
	for _, name := range names {
		if takenByPlans(texts[name]) {
			groups += "  - " + quoteYAML(texts[name]) + "\n"
		}
	}
	text := "currency: EUR\ngroups:\n" + groups + "services:\n  - name: instance\n    mappings:\n" + scopes.String() + "    fields:\n      - name: flavor_name\n        mappings:\n" + values.String()
	unit := texts["quotes"] + texts["parameters"]
	metrics := b.file("metrics.yaml", "metrics:\n  instance:\n    unit: "+quoteYAML(unit)+"\n    description: "+quoteYAML(texts["every plane"]+texts["a second statement"])+"\n    table: instance_metrics\n    quantity: time\n    groupby: [user_id, flavor_name, image_id]\n    metadata: [instance_name]\n")
	b.changes("metrics apply", func() { b.must("metrics", "apply", metrics, "--note", texts["quotes"]) }, "metric_sets")
	plan := b.file("plan.yaml", text)
	b.changes("plan apply", func() { b.must("plan", "apply", plan, "--note", texts["newlines"]+texts["NUL"]) }, "rate_plans")
	if got := b.must("plan", "show"); got != text {
		t.Errorf("the plan comes back changed")
	}
	b.changes("rate", func() { b.rate() }, "rated_lines", "period_commits", "pass_periods", "pass_lines", "job_runs", "leases", "late_looks", "complete_months", "usage_months", "plain_months", "billing_settings", "scopes", "void_attempts", "carry_looks", "pass_carries", "retention_keys")

	got := map[string]hostileRow{}
	rows, err := b.e.Conn().Query(t.Context(), "SELECT scope, region, attributes['flavor_name'], attributes['instance_name'], attributes['user_id'], attributes['image_id'], unit, toString(price), bucket FROM rated")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var row hostileRow
		var user, image, u, bucket string
		if err := rows.Scan(&row.scope, &row.region, &row.flavor, &row.name, &user, &image, &u, &row.price, &bucket); err != nil {
			t.Fatal(err)
		}
		if user != row.scope || image != row.scope || u != unit {
			t.Errorf("%q: user %q, image %q, unit %q", short(row.scope), short(user), short(image), u)
		}
		if bucket == "unpriced" {
			row.price = "1" // no rule takes such a name
		}
		got[row.scope] = row
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	for name, x := range texts {
		if got[x] != want[x] {
			t.Errorf("%s: billed %.300v, want %.300v", name, got[x], want[x])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d scopes are billed, want %d", len(got), len(want))
	}
	b.hostileFiles(want)
	b.hostileStatements(names, texts)
}

func short(text string) string { return fmt.Sprintf("%.60s", text) }

// readable is how files write a text that may be no UTF-8.
func readable(text string) string {
	out := ""
	for i, r := range text {
		if out += string(r); r == utf8.RuneError {
			out += fmt.Sprintf("%02x", text[i])
		}
	}
	return out
}

// hostileFiles exports the month in every format and partition and reads it back.
// Text of Parquet, Arrow and JSON is UTF-8: bytes that are none are U+FFFD and their
// digits there, so that two scopes stay two.
func (b *billed) hostileFiles(want map[string]hostileRow) {
	b.Helper()
	expected := map[string]int{}
	for x, row := range want {
		price := row.price
		if price == "1" {
			price = "0"
		}
		expected[readable(x)+" at "+price]++
	}
	for partition, datasets := range map[string]string{"day": "lines,summary,focus", "scope": "lines,statement", "none": "lines,summary,statement"} {
		dir := b.TempDir()
		b.changes("export by "+partition, func() {
			b.must("export", "--month", "2026-11", "--to", dir, "--partition", partition, "--partial", "--dataset", datasets, "--first-period", "usage", "--operator", `O'Brien \ "Cloud"`)
		}, "exports", "job_runs", "leases")
		got := map[string]int{}
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".parquet") || !strings.Contains(path, "dataset=lines") {
				return err
			}
			type line struct {
				Scope      string `parquet:"scope"`
				Region     string `parquet:"region"`
				Attributes string `parquet:"attributes"`
				Unit       string `parquet:"unit"`
				Bucket     string `parquet:"bucket"`
			}
			lines, err := parquet.ReadFile[line](path)
			for _, l := range lines {
				row, ok := want[l.Scope]
				if !ok { // it is no UTF-8
					row.price = "1"
				}
				price := row.price
				if price == "1" {
					price = "0"
				}
				if l.Region != l.Scope {
					b.Errorf("%s: region %q of scope %q", path, short(l.Region), short(l.Scope))
				}
				got[l.Scope+" at "+price]++
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		if !maps.Equal(got, expected) {
			b.Errorf("by %s the files hold %d scopes, want %d", partition, len(got), len(expected))
		}
		b.must("export", "verify", dir)
		b.must("reconcile", "--month", "2026-11", "--files", dir)
	}
}

// hostileStatements gives each text to every command that takes a name or a
// reason. What is stored comes back, what is refused is refused in one sentence.
func (b *billed) hostileStatements(names []string, texts map[string]string) {
	b.Helper()
	var scopes []string
	for _, name := range names {
		scopes = append(scopes, "--scope="+texts[name])
	}
	all := strings.Join(names, " ") + strings.Join(slices.Collect(maps.Values(texts)), " ")
	jobsTables := []string{"job_runs", "leases"}
	span := []string{"--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z"}
	before := b.owes()
	b.changes("reprocess add", func() {
		b.must(slices.Concat([]string{"reprocess", "add", "--now", at, "--reason", all}, span, scopes)...)
	}, "reprocess_schedules")
	b.changes("reprocess run", func() { b.must("reprocess", "run", "--now", at) }, append(jobsTables, "reprocess_schedules", "rated_lines", "period_commits", "pass_periods", "pass_lines", "late_looks", "complete_months", "usage_months", "plain_months", "retention_keys", "carry_looks", "pass_carries")...)
	if got := b.text("SELECT toString(uniqExact(scope)) FROM current_commits WHERE revision > 0 AND reason = " + sqltext.String(all)); got == "0" {
		b.Errorf("the reason of the reprocess did not come back")
	}
	b.changes("reset", func() {
		b.must(slices.Concat([]string{"reset", "--to", "2026-11-30T20:00:00Z", "--yes", "--now", at, "--reason", all}, scopes)...)
	}, append(jobsTables, "period_commits", "plain_months", "complete_months", "late_looks")...)
	if got := b.owes(); got != "" {
		b.Errorf("after the reset %s is owed", short(got))
	}
	b.rate()
	if got := b.owes(); got != before {
		b.Errorf("after reprocess, reset and rate %s is owed, it was %s", short(got), short(before))
	}
	b.changes("scopes disable and enable", func() {
		for _, name := range names {
			x := texts[name]
			b.must("scopes", "disable", "--reason", x, "--", x)
			b.must("scopes", "show", "--", x)
			b.must("scopes", "enable", "--reason", x, "--", x)
		}
	}, "scopes")
	b.changes("reading and what is refused", func() {
		for n, name := range names {
			x := texts[name]
			for k, args := range [][]string{
				{"quote", "--metric", "instance", "--scope", x, "--attribute", "flavor_name=" + x}, {"quote", "--metric", x}, {"quote", "--metric", "instance", "--unit", x},
				{"explain", "--scope", x, "--begin", "2026-11-30T20:00:00Z"}, {"explain", "--scope", x, "--month", "2026-11", "--metric", x, "--resource", x}, {"explain", x}, {"explain", "--month", x},
				{"close", "--month", x}, {"reopen", "--month", x, "--reason", x}, {"reprocess", "cancel", x}, {"rate", "--first-period", x, "--now", at}, {"rate", "--late", x, "--now", at}, {"rate", "--shard", x},
				{"settings", "set", "zone", x, "--reason", x}, {"settings", "set", x, x, "--reason", x}, {"plan", "show", x}, {"plan", "diff", x, x},
				{"--database", x, "status"}, {"migrate", "--retention", x}, {"export", "verify", filepath.Join(b.TempDir(), "none", strconv.Itoa(len(x)))},
				{"reset", "--scope", "no " + x, "--to", "2026-11-30", "--reason", x, "--yes", "--now", at},
			} {
				// Each command takes a fifth of them, and all with RATEBATCH_TEST_FAULTS=all.
				if (n+k)%5 == 0 || os.Getenv(envFaults) == "all" {
					b.answers(name, args...)
				}
			}
		}
	})
}

// answers runs a command that must end in success or in a refusal of a sentence,
// never in the server's own complaint.
func (b *billed) answers(name string, args ...string) {
	b.Helper()
	code, stdout, stderr := cli(b.T, append(append([]string{}, b.flags...), args...)...)
	if code != ratebatch.ExitDone && code != ratebatch.ExitConfig && code != ratebatch.ExitHalted {
		b.Errorf("%s: ratebatch %.100q: exit %d\n%.500s%.500s", name, args, code, stdout, stderr)
	}
	for _, complaint := range []string{"DB::Exception", "code: 62", "Syntax error", "panic", "goroutine "} {
		if strings.Contains(stderr, complaint) {
			b.Errorf("%s: ratebatch %.100q: %.700s", name, args, stderr)
		}
	}
}
