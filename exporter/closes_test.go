package exporter_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func calendarMonth(month string) ratebatch.Month {
	return ratebatch.Calendar{}.Named(exporttest.Hour(month, 0))
}

// january is closed with 10 EUR and rated again with 12; the months after it are
// rated with 100, 1000 and 10000.
func january(tb testing.TB, s *store.Store, months ...string) {
	tb.Helper()
	rate(tb, s, "2026-01", 1, map[string]string{"vm-1": "10"})
	exporttest.Close(tb, s, "2026-01", 1)
	rate(tb, s, "2026-01", 2, map[string]string{"vm-1": "12"})
	for i, month := range months {
		rate(tb, s, month, 1, map[string]string{"vm-1": "100" + strings.Repeat("0", i)})
	}
}

// monthTotals exports the lines of months to a place, and gives each total.
func monthTotals(tb testing.TB, in exporter.Input, months ...string) []string {
	tb.Helper()
	var out []string
	for _, month := range months {
		in.Month, in.Now = exporttest.Hour(month, 0), exporttest.Hour("2026-12", 0)
		out = append(out, export(tb, in).Totals["EUR"])
	}
	return out
}

func wantTotals(tb testing.TB, what string, got []string, want ...string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s: the months amount to %v, want %v", what, got, want)
	}
}

// A month that was closed before its turn (which close refuses, and has not
// always refused) takes no corrections away from the one whose turn it was.
func TestAMonthClosedBeforeItsTurnTakesNoCorrections(t *testing.T) {
	s := openStore(t)
	in := input(t, s, t.TempDir())
	all := []string{"2026-01", "2026-02", "2026-03", "2026-04"}
	january(t, s, all[1:]...)
	exporttest.Close(t, s, "2026-03", 1)
	wantTotals(t, "February is open, March closed", monthTotals(t, in, all...), "10", "102", "1000", "10000")
	exporttest.Close(t, s, "2026-02", 1)
	rate(t, s, "2026-01", 3, map[string]string{"vm-1": "13"})
	wantTotals(t, "both are closed", monthTotals(t, in, all...), "10", "102", "1000", "10001")

	// What an earlier version delivered without them is not called delivered.
	manifest, err := os.ReadFile(in.Bucket.Location()[len("file://"):] + "/" + exporter.Folder("lines", "2026-02") + exporter.ManifestName)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(manifest), `"EUR": "2"`, `"EUR": "1"`, 1)
	if changed == string(manifest) {
		t.Fatalf("no correction of 2 EUR in %s", manifest)
	}
	if err := os.WriteFile(in.Bucket.Location()[len("file://"):]+"/"+exporter.Folder("lines", "2026-02")+exporter.ManifestName, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	in.Month = exporttest.Hour("2026-02", 0)
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "corrects 2026-01 by [1 EUR], not by [2 EUR]") {
		t.Errorf("a closed delivery with other corrections: %v", err)
	}
}

// Corrections pass over months in which nothing was ever rated, and stay where
// they were billed when such a month is rated after all.
func TestCorrectionsPassOverMonthsWithoutCommits(t *testing.T) {
	s := openStore(t)
	in := input(t, s, t.TempDir())
	in.Partial = true // other months are rated, February is not
	january(t, s)
	wantTotals(t, "nothing is rated after January", monthTotals(t, in, "2026-02", "2026-03"), "2", "")
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "1000"})
	wantTotals(t, "nothing is rated in February", monthTotals(t, in, "2026-02", "2026-03"), "", "1002")
	exporttest.Close(t, s, "2026-03", 1)
	rate(t, s, "2026-02", 1, map[string]string{"vm-1": "100"})
	rate(t, s, "2026-01", 3, map[string]string{"vm-1": "13"})
	rate(t, s, "2026-04", 1, map[string]string{"vm-1": "10000"})
	wantTotals(t, "February is rated late", monthTotals(t, in, "2026-02", "2026-03", "2026-04"), "101", "1002", "10000")
}

// Where a month was reopened under one that bills its corrections (which reopen
// refuses, and has not always refused), nothing is exported until it is undone.
func TestAReopenedMonthUnderAClosedOneHaltsExports(t *testing.T) {
	s := openStore(t)
	in := input(t, s, t.TempDir())
	january(t, s, "2026-02", "2026-03")
	rate(t, s, "2025-12", 1, map[string]string{"vm-1": "1"})
	exporttest.Close(t, s, "2026-02", 1)
	wantTotals(t, "before", monthTotals(t, in, "2026-01", "2026-02", "2026-03"), "10", "102", "1000")
	exporttest.Reopen(t, s, calendarMonth("2026-01"), 1)
	exporttest.Close(t, s, "2026-01", 2)
	for _, month := range []string{"2026-01", "2026-02", "2026-03"} {
		in.Month = exporttest.Hour(month, 0)
		if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "month 2026-01 was reopened while 2026-02, closed after it, stayed closed") {
			t.Errorf("%s: %v", month, err)
		}
	}
	wantTotals(t, "months before are not concerned", monthTotals(t, in, "2025-12"), "1")
	exporttest.Reopen(t, s, calendarMonth("2026-01"), 2)
	exporttest.Reopen(t, s, calendarMonth("2026-02"), 1)
	exporttest.Close(t, s, "2026-01", 3)
	exporttest.Close(t, s, "2026-02", 2)
	wantTotals(t, "after", monthTotals(t, in, "2026-01", "2026-02", "2026-03"), "12", "100", "1000")
}

// Corrections that amount to the same and are of other lines are another
// delivery.
func TestCorrectionsOfTheSameTotalAreToldApart(t *testing.T) {
	s := openStore(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Month = exporttest.Hour("2026-02", 0)
	rate(t, s, "2026-01", 1, map[string]string{"vm-1": "10", "vm-2": "10"})
	exporttest.Close(t, s, "2026-01", 1)
	rate(t, s, "2026-02", 1, map[string]string{"vm-1": "100"})
	for i, want := range []string{"vm-1", "vm-2", "vm-1"} {
		prices := map[string]string{"vm-1": "10", "vm-2": "10"}
		prices[want] = "12"
		revision := uint32(i + 2)
		rate(t, s, "2026-01", revision, prices)
		r := export(t, in)
		var got []any
		for _, row := range rows(t, dir, r) {
			if row["corrects"] != "(null)" {
				got = append(got, row["resource"], row["price"])
			}
		}
		if r.Unchanged || !slices.Equal(got, []any{want, "2"}) {
			t.Errorf("revision %d: unchanged %v, corrections %v, want 2 of %s", revision, r.Unchanged, got, want)
		}
		if again := export(t, in); !again.Unchanged {
			t.Errorf("revision %d was exported again", revision)
		}
	}
}

// Append deliveries go on after the month was closed and reopened, also where
// its first instant is in another month of UTC.
func TestAppendDeliveriesGoOnAfterAReopen(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	in := input(t, s, t.TempDir())
	in.Calendar, in.Mechanism = ratebatch.NewCalendar(berlin), exporter.Append
	march := in.Calendar.Named(in.Month)
	commit := func(revision uint32, price string, until time.Time) {
		run := uuid.New()
		exporttest.Insert(t, s, run, revision, exporttest.Line{Scope: "alpha", Begin: march.From, Price: price})
		exporttest.Commit(t, s, run, revision, "alpha", march.From, until)
	}
	commit(1, "10", march.To)
	if r := export(t, in); r.Totals["EUR"] != "10" {
		t.Errorf("first: %+v", r)
	}
	exporttest.CloseMonth(t, s, march, 1)
	if r := export(t, in); r.Totals["EUR"] != "10" || r.Increment.Close != 1 {
		t.Errorf("closed: %+v", r)
	}
	exporttest.Reopen(t, s, march, 1)
	commit(2, "11", march.From.Add(time.Hour))
	if r := export(t, in); r.Totals["EUR"] != "11" || r.Increment.Close != 0 || r.Increment.Totals["EUR"] != "1" {
		t.Errorf("reopened: %+v", r)
	}
}

// A delivery whose manifest was written and whose record was not is recorded by
// the next run, which finds nothing else to do.
func TestADeliveryThatWasNotRecordedIsRecordedByTheNextRun(t *testing.T) {
	for _, mechanism := range []exporter.Mechanism{exporter.Overwrite, exporter.Append} {
		t.Run(string(mechanism), func(t *testing.T) {
			s := openStore(t)
			in := input(t, s, t.TempDir())
			in.Mechanism = mechanism
			records := func() (n uint64) {
				if err := s.Conn().QueryRow(t.Context(), "SELECT count() FROM exports WHERE mechanism = '"+string(mechanism)+"' AND totals['EUR'] = 10").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
			rename := func(from, to string) {
				if err := s.Conn().Exec(t.Context(), "RENAME TABLE "+from+" TO "+to); err != nil {
					t.Fatal(err)
				}
			}
			rename("exports", "exports_away")
			var problem *ratebatch.HaltError
			if _, err := exporter.Run(t.Context(), in); err == nil || errors.As(err, &problem) {
				t.Fatalf("%s without the table exports: %v", mechanism, err)
			}
			rename("exports_away", "exports")
			dry := in
			dry.DryRun = true
			if r := export(t, dry); !r.Unchanged || records() != 0 {
				t.Errorf("%s, dry run: %+v, %d records", mechanism, r, records())
			}
			for range 2 {
				if r := export(t, in); !r.Unchanged || records() != 1 {
					t.Errorf("%s: %+v, %d records, want 1", mechanism, r, records())
				}
			}
		})
	}
}

// during is a place at whose first write something else happens.
type during struct {
	bucket.Bucket

	do func()
}

func (b *during) Create(ctx context.Context, name string) (bucket.Writer, error) {
	if b.do != nil {
		b.do()
		b.do = nil
	}
	return b.Bucket.Create(ctx, name)
}

// What is committed or closed while an export runs is not in it, and does not
// count as exported.
func TestWhatHappensDuringAnExportIsNotExported(t *testing.T) {
	s := openStore(t)
	in := input(t, s, t.TempDir())
	rate(t, s, "2026-03", 1, map[string]string{"vm-1": "10"})
	export(t, in)
	rate(t, s, "2026-03", 2, map[string]string{"vm-1": "11"})
	in.Bucket = &during{in.Bucket, func() {
		rate(t, s, "2026-03", 3, map[string]string{"vm-1": "12"})
		exporttest.Close(t, s, "2026-03", 1)
	}}
	if r := export(t, in); r.Totals["EUR"] != "11" {
		t.Errorf("%+v", r)
	}
	months, err := s.LineMonths(t.Context())
	if err != nil || len(months) != 1 || !months[0].Closed {
		t.Errorf("%+v (%v), want one closed month", months, err)
	}
	deliveries, err := s.MonthDeliveries(t.Context())
	if err != nil || len(deliveries) != 1 || !deliveries[0].AsOf.Before(months[0].ClosedAt) {
		t.Errorf("the close counts as exported: %+v (%v)", deliveries, err)
	}
	// The place shows revision 2, which revision 3 superseded.
	if x, err := s.Superseded(t.Context(), time.Now().Add(time.Hour), true); err != nil || x.Removable != 0 {
		t.Errorf("%d commits may be removed (%v)", x.Removable, err)
	}
}
