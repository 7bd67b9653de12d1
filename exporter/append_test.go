package exporter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// state adds up rows by line and by everything that a sum is made by, those of
// February (corrections in the exported month, March) by all but the rule; what
// adds up to nothing is not there.
func state(tb testing.TB, all []map[string]any) map[string]string {
	tb.Helper()
	type sum struct{ quantity, price decimal.Decimal }
	sums := map[string]*sum{}
	ids := map[any]bool{}
	for _, row := range all {
		if ids[row["line_id"]] {
			tb.Errorf("line id %v is there twice", row["line_id"])
		}
		ids[row["line_id"]] = true
		line := row["line_id"]
		if row["corrects"] != "(null)" {
			line = row["corrects"]
		}
		key := fmt.Sprint(line, row["scope"], row["begin"], row["end"], row["metric"], row["resource"], row["attributes"], row["part"], row["currency"])
		key += fmt.Sprint(row["unit"], row["bucket"])
		if begin := fmt.Sprint(row["begin"]); strings.HasPrefix(begin, "2026-03") {
			// A complete delivery names the rule that holds now for the whole of a
			// correction; append deliveries take back what was by the other rule.
			key += fmt.Sprint(row["rule"])
		}
		if sums[key] == nil {
			sums[key] = &sum{}
		}
		sums[key].quantity = sums[key].quantity.Add(decimal.RequireFromString(row["quantity"].(string)))
		sums[key].price = sums[key].price.Add(decimal.RequireFromString(row["price"].(string)))
	}
	out := map[string]string{}
	for key, s := range sums {
		if !s.quantity.IsZero() || !s.price.IsZero() {
			out[key] = s.quantity.String() + " for " + s.price.String()
		}
	}
	return out
}

// ledger is a small cloud whose months are rated in any order.
type ledger struct {
	tb    testing.TB
	s     *store.Store
	rnd   *rand.Rand
	rated map[string]int // scope and month -> hours committed
	revs  map[string]uint32
}

func (l *ledger) lines(scope string, begin time.Time) []exporttest.Line {
	var lines []exporttest.Line
	for vm := range 1 + l.rnd.IntN(3) {
		line := exporttest.Line{Scope: scope, Begin: begin, Resource: fmt.Sprintf("vm-%d", vm), Qty: fmt.Sprint(1 + l.rnd.IntN(3)), Price: fmt.Sprintf("%d.%018d", l.rnd.IntN(5), l.rnd.IntN(1000)), Rule: fmt.Sprintf("rule-%d", l.rnd.IntN(2))}
		switch l.rnd.IntN(6) {
		case 0:
			line.Price, line.Bucket, line.Rule = "0", "unpriced", "no mapping matched"
			line.Unit = []string{"instance", "vcpu"}[l.rnd.IntN(2)]
		case 1:
			line.Price = "-" + line.Price
		}
		lines = append(lines, line)
	}
	return lines
}

// step changes the month somehow and says how.
func (l *ledger) step(month string) string {
	scope := []string{"alpha", nasty}[l.rnd.IntN(2)]
	key := scope + month
	if l.rated[key] == 0 || l.rnd.IntN(3) == 0 {
		n := 1 + l.rnd.IntN(30)
		from := exporttest.Hour(month, l.rated[key])
		run := uuid.New()
		for i := range n {
			if l.rnd.IntN(4) > 0 {
				exporttest.Insert(l.tb, l.s, run, 1, l.lines(scope, from.Add(time.Duration(i)*time.Hour))...)
			}
		}
		exporttest.Commit(l.tb, l.s, run, 1, scope, from, from.Add(time.Duration(n)*time.Hour))
		l.rated[key] += n
		return fmt.Sprintf("rate %d hours of %s", n, key)
	}
	at := exporttest.Hour(month, l.rnd.IntN(l.rated[key]))
	l.revs[key+at.String()]++
	revision := 1 + l.revs[key+at.String()]
	run := uuid.New()
	kind, currency := "rated", "EUR"
	switch l.rnd.IntN(5) {
	case 0:
		kind = "reset"
	case 1:
		currency = "USD"
	}
	if kind == "rated" && l.rnd.IntN(5) > 0 {
		exporttest.Insert(l.tb, l.s, run, revision, l.lines(scope, at)...)
	}
	exporttest.CommitAs(l.tb, l.s, run, revision, scope, currency, kind, at, at.Add(time.Hour))
	return fmt.Sprintf("%s %s of %s in %s, revision %d", kind, at.Format(time.RFC3339), key, currency, revision)
}

// The sum of all append deliveries is the complete delivery, at any moment:
// after rating, reprocess, reset, late usage, another price or currency, and
// corrections of months that are closed meanwhile.
func TestAppendDeliveriesAddUpToTheCompleteOne(t *testing.T) {
	for i, partition := range []exporter.Partition{exporter.ByDay, exporter.ByScope, exporter.Whole} {
		t.Run(string(partition), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			s := openStore(t)
			l := &ledger{tb: t, s: s, rnd: rand.New(rand.NewPCG(seed, uint64(i))), rated: map[string]int{}, revs: map[string]uint32{}}
			dir := t.TempDir()
			in := input(t, s, dir)
			in.Partition, in.Partial, in.Mechanism = partition, true, exporter.Append
			var done []string
			sequence := 0
			for step := range 12 {
				done = append(done, l.step("2026-03"))
				switch {
				case step == 5:
					exporttest.Close(t, s, "2026-02", 1)
					done = append(done, "close February")
				case step == 10:
					exporttest.Close(t, s, "2026-03", 1)
					done = append(done, "close March")
				case l.rnd.IntN(2) == 0:
					done = append(done, l.step("2026-02"))
				}
				if l.rnd.IntN(4) == 0 {
					continue // two steps in one delivery
				}
				r := export(t, in)
				complete := in
				complete.Mechanism = exporter.Overwrite
				fresh := t.TempDir()
				complete.Bucket, _ = bucketfile.New(fresh)
				whole := export(t, complete)
				got, want := state(t, rows(t, dir, r)), state(t, rows(t, fresh, whole))
				for key := range want {
					if got[key] != want[key] {
						t.Errorf("%s: append deliveries have %q, the complete one %q", key, got[key], want[key])
					}
				}
				for key := range got {
					if _, ok := want[key]; !ok {
						t.Errorf("%s: append deliveries have %q, the complete one nothing", key, got[key])
					}
				}
				for currency, total := range r.Totals {
					if total != whole.Totals[currency] {
						t.Errorf("total %s %s, complete %s", total, currency, whole.Totals[currency])
					}
				}
				if !r.Unchanged {
					sequence++
				}
				m := manifest(t, dir, r)
				if m.Mechanism != exporter.Append || len(m.Increments) != sequence || m.State.CommitDigest != manifest(t, fresh, whole).State.CommitDigest {
					t.Errorf("manifest: %s, %d increments of %d, %+v", m.Mechanism, len(m.Increments), sequence, m.State)
				}
				if again := export(t, in); !again.Unchanged {
					t.Errorf("the same state was appended again: %+v", again)
				}
				if t.Failed() {
					t.Fatalf("after %s", strings.Join(done, "; "))
				}
			}
			verified, err := exporter.Verify(t.Context(), in.Bucket, nil)
			if err != nil || len(verified) != 1 || len(verified[0].Problems) > 0 {
				t.Errorf("%+v (%v)", verified, err)
			}
			if sequence < 5 {
				t.Errorf("only %d deliveries: %q", sequence, done)
			}
		})
	}
}

func TestAnAppendDeliveryHoldsWhatIsNewAndNothingElse(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10", "vm-2": "5"})
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Mechanism, in.Partition = exporter.Append, exporter.Whole
	if r := export(t, in); r.Rows != 2 || r.Increment.Sequence != 1 || r.Increment.NewPeriods != 744 {
		t.Errorf("first: %+v %+v", r, r.Increment)
	}
	// vm-1 costs more, vm-2 went, vm-3 is late usage; then a run that changes nothing.
	rate(t, s, "2026-03", 2, map[string]string{"vm-1": "12", "vm-3": "1"})
	// Retention keeps the first revision, which the append delivery still shows,
	// although the month was exported to another place meanwhile.
	removable := func() uint64 {
		x, err := s.Superseded(t.Context(), time.Now().Add(time.Hour), true)
		if err != nil {
			t.Fatal(err)
		}
		return x.Removable
	}
	other := input(t, s, t.TempDir())
	export(t, other)
	if n := removable(); n != 0 {
		t.Errorf("retention would remove %d commits that the next append delivery needs", n)
	}
	dry := in
	dry.DryRun = true
	if r := export(t, dry); !r.DryRun || r.Increment.Sequence != 2 || r.Increment.Adjusted != 1 {
		t.Errorf("dry run: %+v", r)
	}
	second := export(t, in)
	if n := removable(); n != 1 {
		t.Errorf("retention would remove %d commits after all places have what took their place", n)
	}
	prices := map[any]any{}
	for _, f := range manifest(t, dir, second).Files {
		if !strings.HasPrefix(f.Path, "delivery="+second.Delivery+"/") {
			continue
		}
		for _, row := range parquetRows(t, filepath.Join(dir, filepath.Dir(second.Manifest), f.Path)) {
			prices[row["resource"]] = row["price"]
			id := exporter.LineID(exporter.LineKey{Region: "RegionOne", Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Metric: "instance", Resource: row["resource"].(string)})
			if row["corrects"] != id.String() || row["line_id"] == id.String() {
				t.Errorf("adjustment %v", row)
			}
		}
	}
	if len(prices) != 3 || prices["vm-1"] != "2" || prices["vm-2"] != "-5" || prices["vm-3"] != "1" || second.Totals["EUR"] != "13" || second.Increment.Totals["EUR"] != "-2" {
		t.Errorf("adjustments %v, %+v", prices, second)
	}
	rate(t, s, "2026-03", 3, map[string]string{"vm-1": "12", "vm-3": "1"})
	if r := export(t, in); r.Unchanged || r.Rows != 0 || r.Files != 0 || r.Increment.Adjusted != 1 {
		t.Errorf("a revision that changes nothing: %+v", r)
	}
	var places []string
	if err := s.Conn().QueryRow(t.Context(), "SELECT groupArray(concat(mechanism, ' ', toString(rows), ' ', toString(totals['EUR']))) FROM (SELECT * FROM exports ORDER BY exported_at)").Scan(&places); err != nil || !slices.Equal(places, []string{"append 2 15", "overwrite 2 13", "append 3 -2", "append 0 0"}) {
		t.Errorf("table exports: %q (%v)", places, err)
	}

	refused := func(name string, want int, text string, change func(*exporter.Input)) {
		t.Helper()
		in := in
		change(&in)
		if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != want || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("complete deliveries to the same place", ratebatch.ExitConfig, "holds append deliveries", func(in *exporter.Input) { in.Mechanism = exporter.Overwrite })
	refused("another format", ratebatch.ExitConfig, "have format parquet", func(in *exporter.Input) { in.Format = exporter.CSV })
	refused("another partition", ratebatch.ExitConfig, "have partition none", func(in *exporter.Input) { in.Partition = exporter.ByDay })
	// Another program may describe the columns otherwise, but they must be the same.
	path := filepath.Join(dir, second.Manifest)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{`"description": "region of the cloud"`: "", `"name": "region"`: "have columns line_id STRING, area STRING"} {
		changed := strings.Replace(string(text), from, strings.NewReplacer("region of", "part of", `"region"`, `"area"`).Replace(from), 1)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if to != "" {
			refused("other columns", ratebatch.ExitConfig, to, func(*exporter.Input) {})
		} else if r := export(t, in); !r.Unchanged {
			t.Errorf("another description: %+v", r)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a dataset of sums", ratebatch.ExitConfig, "append deliveries of the dataset summary", func(in *exporter.Input) { in.Dataset = "summary" })
	refused("a mechanism that is none", ratebatch.ExitConfig, "delivery \"both\"", func(in *exporter.Input) { in.Mechanism = "both" })

	// Retention removed a revision that was delivered: what to adjust is unknown.
	if err := s.Conn().Exec(t.Context(), "ALTER TABLE period_commits DELETE WHERE revision = 3 SETTINGS mutations_sync = 2"); err != nil {
		t.Fatal(err)
	}
	refused("a state that is gone", ratebatch.ExitHalted, "cannot be told any more", func(*exporter.Input) {})
}

// Files of append deliveries keep the lines of a currency that is used no more;
// the manifest names it no longer, and that is no problem.
func TestACurrencyThatWasTakenBackVerifies(t *testing.T) {
	s := openStore(t)
	hour := exporttest.Hour("2026-03", 0)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Mechanism, in.Partition, in.Partial = exporter.Append, exporter.Whole, true
	for i, currency := range []string{"USD", "EUR"} {
		run, revision := uuid.New(), uint32(i+1)
		exporttest.Insert(t, s, run, revision, exporttest.Line{Scope: "alpha", Begin: hour, Price: "10"})
		exporttest.CommitAs(t, s, run, revision, "alpha", currency, "rated", hour, hour.Add(time.Hour))
		if r := export(t, in); len(r.Totals) != 1 || r.Totals[currency] != "10" {
			t.Errorf("delivery %d amounts to %v", i+1, r.Totals)
		}
	}
	verified, err := exporter.Verify(t.Context(), in.Bucket, nil)
	if err != nil || len(verified) != 1 || len(verified[0].Problems) > 0 || verified[0].Totals["USD"] != "0" || verified[0].Totals["EUR"] != "10" {
		t.Errorf("%+v (%v)", verified, err)
	}
}

func TestAnAppendDeliveryWhoseFilesAreGoneHalts(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Mechanism, in.Partition = exporter.Append, exporter.Whole
	r := export(t, in)
	path := filepath.Join(dir, filepath.Dir(r.Manifest), manifest(t, dir, r).Files[0].Path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "missing or damaged") {
		t.Errorf("%v", err)
	}
}

// Whatever step an append delivery breaks at, the deliveries before it stand
// and are all that readers see; the next run adds everything once.
func TestAFailureAtAnyStepLeavesTheAppendDeliveriesBefore(t *testing.T) {
	s := openStore(t)
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	first := uuid.New()
	exporttest.Insert(t, s, first, 1, exporttest.Line{Scope: "alpha", Begin: hour(0), Price: "10"})
	exporttest.Commit(t, s, first, 1, "alpha", hour(0), hour(10))
	started := t.TempDir()
	in := input(t, s, started)
	in.Mechanism, in.Partition, in.Partial, in.Workers = exporter.Append, exporter.Whole, true, 1
	before := export(t, in)
	// A new line, and another price of the old one: two files.
	second, third := uuid.New(), uuid.New()
	exporttest.Insert(t, s, second, 1, exporttest.Line{Scope: "alpha", Begin: hour(10), Price: "3"})
	exporttest.Commit(t, s, second, 1, "alpha", hour(10), hour(12))
	exporttest.Insert(t, s, third, 2, exporttest.Line{Scope: "alpha", Begin: hour(0), Price: "12"})
	exporttest.Commit(t, s, third, 2, "alpha", hour(0), hour(1))
	old := files(t, started)[before.Manifest]
	var sums []string // of the files: the same way of states gives the same bytes
	for n := int64(1); ; n++ {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(started)); err != nil {
			t.Fatal(err)
		}
		whole, err := bucketfile.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		in := in
		b := &broken{Bucket: whole}
		b.left.Store(n)
		in.Bucket = b
		_, failed := exporter.Run(t.Context(), in)
		if failed == nil {
			if n < 8 {
				t.Errorf("an append delivery has only %d steps", n-1)
			}
			return // every step was tried
		}
		if !errors.Is(failed, errBroken) {
			t.Fatalf("step %d: %v", n, failed)
		}
		if files(t, dir)[before.Manifest] != old {
			t.Errorf("step %d: the manifest is another", n)
		}
		in.Bucket = whole
		again := export(t, in)
		var now []string
		for _, f := range manifest(t, dir, again).Files {
			now = append(now, f.Path+" "+f.SHA256)
		}
		if n == 1 {
			sums = now
		}
		if !slices.Equal(now, sums) {
			t.Errorf("step %d, the rerun: files %q, not %q", n, now, sums)
		}
		if again.Increment.Sequence != 2 || again.Rows != 2 || again.Totals["EUR"] != "15" {
			t.Errorf("step %d, the rerun: %+v", n, again)
		}
		if v, err := exporter.Verify(t.Context(), whole, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 || v[0].Totals["EUR"] != "15" {
			t.Errorf("step %d, the rerun: %+v (%v)", n, v, err)
		}
	}
}
