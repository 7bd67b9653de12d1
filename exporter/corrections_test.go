package exporter_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// rate commits one revision of the first hour of a month.
func rate(tb testing.TB, s *store.Store, month string, revision uint32, prices map[string]string) {
	tb.Helper()
	run := uuid.New()
	var lines []exporttest.Line
	for resource, price := range prices {
		lines = append(lines, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour(month, 0), Resource: resource, Price: price})
	}
	exporttest.Insert(tb, s, run, revision, lines...)
	until := 1
	if revision == 1 {
		until = int(exporttest.Hour(month, 0).AddDate(0, 1, 0).Sub(exporttest.Hour(month, 0)) / time.Hour)
	}
	exporttest.Commit(tb, s, run, revision, "alpha", exporttest.Hour(month, 0), exporttest.Hour(month, until))
}

func TestChargesOfAnInvoiceAddUpToWhatIsPayable(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-01", 1, map[string]string{"vm-1": "10.004", "vm-2": "0.003"})
	exporttest.Close(t, s, "2026-01", 1)
	for _, partition := range []exporter.Partition{exporter.ByDay, exporter.ByScope, exporter.Whole} {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Month, in.Dataset, in.RoundTo, in.Partition = exporttest.Hour("2026-01", 0), "focus", 2, partition
		r := export(t, in)
		sum, adjustments := decimal.Zero, 0
		for _, row := range rows(t, dir, r) {
			if row["InvoiceId"] != exporter.StatementID(in.Month, "alpha", "EUR").String() {
				t.Errorf("invoice %v", row["InvoiceId"])
			}
			sum = sum.Add(decimal.RequireFromString(row["BilledCost"].(string)))
			if row["ChargeCategory"] == "Adjustment" {
				adjustments++
			}
		}
		if sum.String() != "10.01" || adjustments != 1 || r.Totals["EUR"] != "10.01" {
			t.Errorf("%s: charges add up to %s with %d adjustments, manifest %s", partition, sum, adjustments, r.Totals["EUR"])
		}
		m := manifest(t, dir, r)
		for _, f := range m.Files {
			if report, err := exporter.FocusCheck(t.Context(), filepath.Join(dir, filepath.Dir(r.Manifest), f.Path), "1.3"); err != nil || len(report.Findings) > 0 {
				t.Errorf("focus check: %+v (%v)", report.Findings, err)
			}
		}
		b, _ := bucketfile.New(dir)
		if v, err := exporter.Verify(t.Context(), b, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 {
			t.Errorf("%+v (%v)", v, err)
		}
	}
}

func TestCorrectionsOfClosedMonths(t *testing.T) {
	s := openStore(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.RoundTo = 2
	of := func(month, dataset string) exporter.Input {
		in := in
		in.Month, in.Dataset = exporttest.Hour(month, 0), dataset
		return in
	}
	rate(t, s, "2026-01", 1, map[string]string{"vm-1": "10", "vm-2": "5"})
	exporttest.Close(t, s, "2026-01", 1)
	january := export(t, of("2026-01", "lines"))
	before := manifest(t, dir, january)
	if before.State.Close != 1 || january.Totals["EUR"] != "15" {
		t.Errorf("January: %+v", january)
	}

	// What is rated differently afterwards leaves January's files alone, even
	// when they are asked for in another form.
	rate(t, s, "2026-01", 2, map[string]string{"vm-1": "12", "vm-3": "1"})
	for _, partition := range []exporter.Partition{exporter.ByDay, exporter.Whole} {
		again := of("2026-01", "lines")
		again.Partition = partition
		if r := export(t, again); !r.Unchanged || r.Delivery != january.Delivery {
			t.Errorf("January was exported again: %+v", r)
		}
	}
	// A closed month that was never exported gives the frozen state.
	if r := export(t, of("2026-01", "summary")); r.Totals["EUR"] != "15" {
		t.Errorf("summary of January: %+v", r)
	}

	rate(t, s, "2026-02", 1, map[string]string{"vm-1": "100"})
	for _, dataset := range exporter.Datasets() {
		r := export(t, of("2026-02", dataset))
		if r.Totals["EUR"] != "98" { // 100 + (12 - 10) - 5 + 1
			t.Errorf("%s of February: total %s", dataset, r.Totals["EUR"])
		}
		m := manifest(t, dir, r)
		if len(m.Corrections) != 1 || m.Corrections[0].Month != "2026-01" || m.Corrections[0].Rows != 3 || m.Corrections[0].Totals["EUR"] != "-2" || m.State.Totals["EUR"] != "100" {
			t.Errorf("%s: corrections %+v of %+v", dataset, m.Corrections, m.State.Totals)
		}
		got := rows(t, dir, r)
		switch dataset {
		case "lines":
			prices := map[any]any{}
			for _, row := range got {
				if row["corrects"] != "(null)" {
					prices[row["resource"]] = row["price"]
					id := exporter.LineID(exporter.LineKey{Region: "RegionOne", Scope: "alpha", Begin: exporttest.Hour("2026-01", 0), Metric: "instance", Resource: row["resource"].(string)})
					if row["corrects"] != id.String() || row["line_id"] != uuid.NewSHA1(id, []byte("correction/2026-02")).String() || row["begin"] != "2026-01-01 00:00:00Z" {
						t.Errorf("correction %v", row)
					}
				}
			}
			if len(prices) != 3 || prices["vm-1"] != "2" || prices["vm-2"] != "-5" || prices["vm-3"] != "1" {
				t.Errorf("corrections %v", prices)
			}
		case "focus":
			corrections := 0
			for _, row := range got {
				if row["ChargeClass"] == "Correction" {
					corrections++
					if row["BillingPeriodStart"] != "2026-02-01 00:00:00Z" || row["ChargePeriodStart"] != "2026-01-01 00:00:00Z" || row["x_CorrectsLineId"] == "(null)" {
						t.Errorf("correction %v", row)
					}
				}
			}
			if corrections != 3 {
				t.Errorf("%d corrections in FOCUS", corrections)
			}
			for _, f := range m.Files {
				if report, err := exporter.FocusCheck(t.Context(), filepath.Join(dir, filepath.Dir(r.Manifest), f.Path), "1.3"); err != nil || len(report.Findings) > 0 {
					t.Errorf("focus check: %+v (%v)", report.Findings, err)
				}
			}
		case "statement":
			total := got[len(got)-1]
			if total["kind"] != "total" || total["amount"] != "98" || got[1]["kind"] != "correction" || got[1]["amount"] != "-2" {
				t.Errorf("statement %v", got)
			}
		}
	}

	// Once February is closed it keeps its corrections, and the next one in
	// January goes to March, without what February has billed already.
	open := export(t, of("2026-02", "lines"))
	exporttest.Close(t, s, "2026-02", 1)
	rate(t, s, "2026-01", 3, map[string]string{"vm-1": "12.5", "vm-3": "1"})
	rate(t, s, "2026-02", 2, map[string]string{"vm-1": "90"})
	// Retention keeps January's second revision: February has billed up to it.
	if err := s.DeleteSuperseded(t.Context(), uuid.New(), time.Now().Add(time.Hour), false); err != nil {
		t.Fatal(err)
	}
	february := export(t, of("2026-02", "lines"))
	if february.Totals["EUR"] != "98" || february.Rows != open.Rows {
		t.Errorf("February after its close: %+v", february)
	}
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "7"})
	march := export(t, of("2026-03", "lines"))
	if march.Totals["EUR"] != "-2.5" { // 7 + 0.5 of January - 10 of February
		t.Errorf("March: %+v", march)
	}
	// April takes none of them.
	rate(t, s, "2026-04", 1, map[string]string{"vm-1": "1"})
	later := of("2026-04", "lines")
	later.Now = exporttest.Hour("2026-06", 0)
	if r := export(t, later); r.Totals["EUR"] != "1" {
		t.Errorf("April: %+v", r)
	}
	b, err := bucketfile.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	verified, err := exporter.Verify(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := decimal.Zero
	for _, v := range verified {
		if len(v.Problems) > 0 {
			t.Errorf("%s: %v", v.Manifest, v.Problems)
		}
		if v.Dataset == "lines" {
			sum = sum.Add(decimal.RequireFromString(v.Totals["EUR"]))
		}
	}
	// Everything billed is everything that counts: 13.5 + 90 + 7 + 1.
	if sum.String() != "111.5" {
		t.Errorf("all months add up to %s", sum)
	}
}

// A month that has nothing but corrections which amount to nothing has rows in a
// currency that its totals do not name.
func TestCorrectionsThatAmountToNothingAreVerified(t *testing.T) {
	s := openStore(t)
	rate(t, s, "2026-01", 1, map[string]string{"vm-1": "10", "vm-2": "5"})
	exporttest.Close(t, s, "2026-01", 1)
	rate(t, s, "2026-01", 2, map[string]string{"vm-1": "5", "vm-2": "10"})
	for _, dataset := range exporter.Datasets() {
		in := input(t, s, t.TempDir())
		in.Month, in.Dataset, in.Partial = exporttest.Hour("2026-02", 0), dataset, true
		if r := export(t, in); dataset == "lines" && (r.Rows != 2 || len(r.Totals) != 0) {
			t.Errorf("%d rows, totals %v; want the correction's rows and no total", r.Rows, r.Totals)
		}
		if v, err := exporter.Verify(t.Context(), in.Bucket, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 {
			t.Errorf("%s: %+v (%v)", dataset, v, err)
		}
	}
}
