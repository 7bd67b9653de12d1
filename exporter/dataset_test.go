package exporter_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/csv"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket/buckettest"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	buckets3 "github.com/ratebatch/ratebatch/exporter/bucket/s3"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const nasty = `a/b "c" d'é 🦊 =1+1`

// awkward is a month with everything that has broken an exporter somewhere.
func awkward(tb testing.TB) (*store.Store, uuid.UUID) {
	tb.Helper()
	s := openStore(tb)
	run := uuid.New()
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprintf("key%02d", i)] = strings.Repeat("v", i)
	}
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	exporttest.Insert(tb, s, run, 1,
		exporttest.Line{Scope: "alpha", Begin: hour(0), Price: "0.1", Qty: "0.1", Attributes: map[string]string{"flavor_name": "m1.small", "instance_name": "=HYPERLINK(1)", "user_id": "u"}},
		exporttest.Line{Scope: "alpha", Begin: hour(0), Resource: "vm-2", Price: "0.2", Qty: "3", Attributes: many},
		exporttest.Line{Scope: "alpha", Begin: hour(1), Resource: "vm-2", Price: "0.3", Qty: "0.3"},
		exporttest.Line{Scope: "alpha", Begin: hour(1), Metric: "network.outgoing", Unit: "MiB", Resource: "1234567890123456789", Price: "0.0000001", Qty: "123456.000000000000000001", Part: 0},
		exporttest.Line{Scope: "alpha", Begin: hour(1), Metric: "network.outgoing", Unit: "MiB", Resource: "1234567890123456789", Price: "0.333333333333333333", Qty: "0.7", Part: 1},
		exporttest.Line{Scope: "alpha", Begin: hour(30), Metric: "disk.capacity", Unit: "GiB", Price: "12.005", Qty: "10", Rule: "plan:disk"},
		exporttest.Line{Scope: "alpha", Begin: hour(31), Metric: "disk.capacity", Unit: "GiB", Price: "0", Qty: "10", Rule: "no mapping matched", Bucket: "unpriced"},
		exporttest.Line{Scope: nasty, Begin: hour(5), Price: "10000000000000000000", Attributes: map[string]string{"note": strings.Repeat("ä", 5000)}},
		exporttest.Line{Scope: nasty, Begin: hour(6), Price: "0.005"},
		exporttest.Line{Scope: nasty, Begin: hour(7), Price: "0.005", Metric: "vcpu"},
	)
	exporttest.Commit(tb, s, run, 1, "alpha", hour(0), hour(744))
	exporttest.Commit(tb, s, run, 1, nasty, hour(0), hour(744))
	return s, run
}

const (
	awkwardTotal = "10000000000000000012.948333433333333333"
	alphaTotal   = "12.938333433333333333"
)

func TestEveryDatasetAddsUpToTheCommits(t *testing.T) {
	s, _ := awkward(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	money := map[string]string{"lines": "price", "summary": "price", "focus": "BilledCost", "statement": "exact"}
	counts := map[string]int{"lines": 10, "summary": 6, "focus": 9, "statement": 3 + 1 + 1 + 2 + 1 + 1}
	for _, dataset := range exporter.Datasets() {
		t.Run(dataset, func(t *testing.T) {
			dir := t.TempDir()
			in := input(t, s, dir)
			in.Dataset, in.SignKey, in.RoundTo = dataset, private, 2
			result := export(t, in)
			if result.Totals["EUR"] != awkwardTotal {
				t.Errorf("total %s", result.Totals["EUR"])
			}
			got := rows(t, dir, result)
			if len(got) != counts[dataset] || result.Rows != uint64(len(got)) {
				t.Errorf("%d rows, result says %d, want %d", len(got), result.Rows, counts[dataset])
			}
			sum := decimal.Zero
			for _, row := range got {
				if dataset != "statement" || row["kind"] == "total" {
					sum = sum.Add(decimal.RequireFromString(row[money[dataset]].(string)))
				}
			}
			if sum.String() != awkwardTotal {
				t.Errorf("rows add up to %s", sum)
			}
			b, err := bucketfile.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			verified, err := exporter.Verify(t.Context(), b, public)
			if err != nil || len(verified) != 1 || len(verified[0].Problems) > 0 || !verified[0].Signed {
				t.Errorf("verified %+v (%v)", verified, err)
			}
			if dataset == "focus" {
				for _, f := range manifest(t, dir, result).Files {
					for _, version := range exporter.FocusVersions() {
						report, err := exporter.FocusCheck(t.Context(), filepath.Join(dir, filepath.Dir(result.Manifest), f.Path), version)
						if err != nil || len(report.Findings) > 0 {
							t.Errorf("focus check %s: %+v (%v)", version, report.Findings, err)
						}
					}
				}
			}
		})
	}
}

func TestAStatementIsRoundedOncePerPositionAndAddsUp(t *testing.T) {
	s, _ := awkward(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Dataset, in.RoundTo = "statement", 2
	result := export(t, in)
	sums, totals := map[any]decimal.Decimal{}, map[any]string{}
	kinds := map[any][]any{}
	for _, row := range rows(t, dir, result) {
		amount := decimal.RequireFromString(row["amount"].(string))
		if row["kind"] == "total" {
			totals[row["scope"]] = amount.String()
		} else {
			sums[row["scope"]] = sums[row["scope"]].Add(amount)
		}
		kinds[row["scope"]] = append(kinds[row["scope"]], row["kind"])
	}
	for scope, want := range map[string]string{"alpha": "12.94", nasty: "10000000000000000000.01"} {
		if totals[scope] != want || !sums[scope].Equal(decimal.RequireFromString(totals[scope])) {
			t.Errorf("%s: positions add up to %s, total %s, want %s", scope, sums[scope], totals[scope], want)
		}
	}
	// 0.005 + 0.005: each rounds to 0.00 (half-even), their total to 0.01.
	if got := fmt.Sprint(kinds[nasty]); got != "[usage usage rounding total]" {
		t.Errorf("positions %s", got)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "v1/dataset=statement/month=2026-03/delivery=*/pages/*/*.html"))
	if err != nil || len(pages) != 2 {
		t.Fatalf("pages %q (%v)", pages, err)
	}
	page, err := os.ReadFile(pages[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "12.94 EUR", "March 2026", "network.outgoing"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page of %s has no %q", pages[1], want)
		}
	}
	if strings.Contains(string(page), "<script") {
		t.Error("the page has a script")
	}
}

func TestCSVIsPlain(t *testing.T) {
	s, _ := awkward(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Format, in.Partition = exporter.CSV, exporter.Whole
	result := export(t, in)
	text, err := os.ReadFile(filepath.Join(dir, filepath.Dir(result.Manifest), manifest(t, dir, result).Files[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(records) != 11 {
		t.Fatalf("%d records (%v)", len(records), err)
	}
	if !bytes.Contains(text, []byte(",0.0000001,")) || !bytes.Contains(text, []byte(",10000000000000000000,")) || bytes.Contains(text, []byte("E-")) || bytes.Contains(text, []byte("e-0")) {
		t.Error("numbers are not plain")
	}
	if !bytes.Contains(text, []byte("'1234567890123456789,")) {
		t.Error("a spreadsheet would round the long number")
	}
	if !bytes.HasSuffix(text, []byte("\r\n")) {
		t.Error("lines do not end in CRLF")
	}
	in.Dataset = "focus"
	in.Bucket, err = bucketfile.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	focus := export(t, in)
	path := filepath.Join(strings.TrimPrefix(in.Bucket.Location(), "file://"), filepath.Dir(focus.Manifest), "delivery="+focus.Delivery, "part-00000.csv")
	if report, err := exporter.FocusCheck(t.Context(), path, "1.2"); err != nil || len(report.Findings) > 0 || report.Rows != 9 {
		t.Errorf("focus check of CSV: %+v (%v)", report, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("'=HYPERLINK(1)")) {
		t.Error("a formula is not defused")
	}
}

func TestArrowFilesAndStreamsHoldTheSameRows(t *testing.T) {
	s, _ := awkward(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Format, in.Partition = exporter.Arrow, exporter.Whole
	result := export(t, in)
	text, err := os.ReadFile(filepath.Join(dir, filepath.Dir(result.Manifest), manifest(t, dir, result).Files[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := ipc.NewFileReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	fromFile, err := reader.Record(0)
	if err != nil || fromFile.NumRows() != 10 {
		t.Fatalf("file: %v", err)
	}
	var pipe bytes.Buffer
	if _, err := exporter.Stream(t.Context(), in, &pipe); err != nil {
		t.Fatal(err)
	}
	stream, err := ipc.NewReader(&pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Release()
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	if got := stream.Record(); fmt.Sprint(got.Columns()) != fmt.Sprint(fromFile.Columns()) {
		t.Error("stream and file differ")
	}
	if field, _ := stream.Schema().FieldsByName("quantity"); len(field) != 1 || field[0].Metadata.FindKey("unit") < 0 {
		t.Error("the field has no unit")
	}
}

func TestWindowsWithHolesAreRefused(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: hour(3), Price: "1"})
	exporttest.Commit(t, s, run, 1, "alpha", hour(0), hour(10))
	exporttest.Commit(t, s, run, 1, "alpha", hour(11), hour(744))
	dir := t.TempDir()
	in := input(t, s, dir)
	_, err := exporter.Run(t.Context(), in)
	if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "scope alpha 1h0m0s") {
		t.Errorf("a hole: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "v1", "*")); len(files) > 0 {
		t.Errorf("files were written: %q", files)
	}
	in.Partial = true
	result := export(t, in)
	m := manifest(t, dir, result)
	if !m.State.Partial || !m.State.Open || !m.State.CompleteUntil.Equal(hour(10)) || len(m.State.Missing) != 1 || m.State.Missing[0].Seconds != 3600 {
		t.Errorf("the manifest says %+v", m.State)
	}
	if !result.Partial || !result.Open || !result.CompleteUntil.Equal(hour(10)) || len(result.Missing) != 1 {
		t.Errorf("the result says %+v", result)
	}
	exporttest.Commit(t, s, run, 1, "alpha", hour(10), hour(11))
	in.Partial = false
	if result := export(t, in); result.Unchanged || result.Partial || !result.Open || !result.CompleteUntil.Equal(hour(744)) {
		t.Errorf("after the hole was filled: %+v", result)
	}
	exporttest.Close(t, s, "2026-03", 1)
	if result := export(t, in); result.Partial || result.Open || !result.CompleteUntil.Equal(hour(744)) {
		t.Errorf("after the close: %+v", result)
	}
}

// While a month runs it is exported without --partial, and what is written says
// up to when it is complete; so does FOCUS's recency, hour by hour.
func TestARunningMonthSaysUpToWhenItIsComplete(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: hour(3), Price: "1"})
	exporttest.Commit(t, s, run, 1, "alpha", hour(0), hour(100))
	in := input(t, s, t.TempDir())
	in.Now, in.Dataset = hour(103), "focus"
	dir := strings.TrimPrefix(in.Bucket.Location(), "file://")
	complete := func(r exporter.Result) (hours int) {
		m := manifest(t, dir, r)
		if !m.State.Open || !m.State.Partial || !m.State.CompleteUntil.Equal(r.CompleteUntil) {
			t.Errorf("the manifest says %+v", m.State)
		}
		for _, sector := range m.Focus.Recency.TimeSectors {
			if sector.TimeSectorComplete {
				hours++
			}
		}
		return hours
	}
	r := export(t, in)
	if !r.Partial || !r.Open || len(r.Missing) != 0 || r.Rows != 1 || !r.CompleteUntil.Equal(hour(100)) || complete(r) != 100 {
		t.Errorf("%+v, %d hours complete", r, complete(r))
	}
	// A scope that lags behind the others is missed, unless it is disabled.
	exporttest.Commit(t, s, run, 1, "beta", hour(0), hour(90))
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "scope beta 10h0m0s") {
		t.Errorf("a scope that lags behind: %v", err)
	}
	in.Partial = true
	if r := export(t, in); !r.CompleteUntil.Equal(hour(90)) || len(r.Missing) != 1 || complete(r) != 90 {
		t.Errorf("%+v, %d hours complete", r, complete(r))
	}
	in.Partial = false
	if err := s.Conn().Exec(t.Context(), "INSERT INTO scopes (scope, active) VALUES ('beta', false)"); err != nil {
		t.Fatal(err)
	}
	if r := export(t, in); !r.CompleteUntil.Equal(hour(100)) || len(r.Missing) != 0 {
		t.Errorf("with beta disabled: %+v", r)
	}
	// A scope that has to be rated and was never is missed too.
	in.Expected = func(_ context.Context, month ratebatch.Month) ([]store.DueWindow, error) {
		return []store.DueWindow{{Scope: "alpha", First: month.From, Until: month.To}, {Scope: "gamma", First: hour(98), Until: month.To}}, nil
	}
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "scope gamma 2h0m0s") {
		t.Errorf("a scope that was never rated: %v", err)
	}
	// When the month is over, all of it should be there.
	in.Now, in.Expected = april, nil
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "scope alpha 644h0m0s") {
		t.Errorf("a month that is over: %v", err)
	}
}

func TestAnEmptyMonthIsAValidDataset(t *testing.T) {
	s := openStore(t)
	for _, dataset := range exporter.Datasets() {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Dataset = dataset
		var said bytes.Buffer
		in.Log = slog.New(slog.NewTextHandler(&said, nil))
		result := export(t, in)
		if got := rows(t, dir, result); len(got) != 0 || result.Files != 1 {
			t.Errorf("%s: %d rows in %d files", dataset, len(got), result.Files)
		}
		if !strings.Contains(said.String(), "there are no rated lines in this month: the dataset is empty") {
			t.Errorf("%s: no notice: %s", dataset, said.String())
		}
		b, _ := bucketfile.New(dir)
		if v, err := exporter.Verify(t.Context(), b, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 {
			t.Errorf("%s: %+v (%v)", dataset, v, err)
		}
	}
}

func TestAnyDifferenceBetweenCommitsAndRowsStopsTheExport(t *testing.T) {
	for name, change := range map[string]string{
		"a line is gone":             "ALTER TABLE rated_lines DELETE WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00'",
		"a line is there twice":      "INSERT INTO rated_lines SELECT * FROM rated_lines WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00'",
		"a price is another":         "ALTER TABLE rated_lines UPDATE price = price + 1 WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00'",
		"a line has another key":     "ALTER TABLE rated_lines UPDATE attributes = map('x', 'y') WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00'",
		"a commit without its lines": "INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, lines) VALUES ('alpha', '2026-03-05 00:00:00', '2026-03-05 01:00:00', 2, 'rated', generateUUIDv4(), 3)",
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := awkward(t)
			if err := s.Conn().Exec(t.Context(), change+map[bool]string{true: " SETTINGS mutations_sync = 2"}[strings.HasPrefix(change, "ALTER")]); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			in := input(t, s, dir)
			_, err := exporter.Run(t.Context(), in)
			if ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "alpha") {
				t.Errorf("%v", err)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "v1/*/*/_manifest.json")); len(files) > 0 {
				t.Errorf("published: %q", files)
			}
		})
	}
}

// What was delivered may be fine while its lines changed: the export looks, and
// does not say that nothing is to be done.
func TestAnExportThatWritesNothingComparesLinesWithCommits(t *testing.T) {
	for _, mechanism := range []exporter.Mechanism{exporter.Overwrite, exporter.Append} {
		t.Run(string(mechanism), func(t *testing.T) {
			s, _ := awkward(t)
			in := input(t, s, t.TempDir())
			in.Mechanism = mechanism
			export(t, in)
			if r := export(t, in); !r.Unchanged {
				t.Errorf("%s: %+v", mechanism, r)
			}
			if err := s.Conn().Exec(t.Context(), "ALTER TABLE rated_lines UPDATE price = price + 1 WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00' SETTINGS mutations_sync = 2"); err != nil {
				t.Fatal(err)
			}
			if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitHalted || !strings.Contains(err.Error(), "scope alpha") && !strings.Contains(err.Error(), "1 commits differ") {
				t.Errorf("%s: %v", mechanism, err)
			}
			// Retention removes the lines of closed and exported months: their files stand.
			exporttest.Close(t, s, "2026-03", 1)
			if err := s.Conn().Exec(t.Context(), "ALTER TABLE rated_lines UPDATE price = price - 1 WHERE scope = 'alpha' AND begin = '2026-03-02 06:00:00' SETTINGS mutations_sync = 2"); err != nil {
				t.Fatal(err)
			}
			export(t, in)
			if err := s.Conn().Exec(t.Context(), "TRUNCATE TABLE rated_lines"); err != nil {
				t.Fatal(err)
			}
			if r := export(t, in); !r.Unchanged {
				t.Errorf("%s, after retention: %+v", mechanism, r)
			}
		})
	}
}

// A scope's name of any length and kind has files of its own.
func TestLongNamesHaveFilesOfTheirOwn(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	hour := func(n int) time.Time { return exporttest.Hour("2026-03", n) }
	names := []string{strings.Repeat("a", 10_000), strings.Repeat("a", 10_001), strings.Repeat(`🦊/"'~ä`, 1200), strings.Repeat("🦊", 70), nasty, "..", "~"}
	for i, name := range names {
		exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: name, Begin: hour(i), Price: fmt.Sprint(i + 1)})
		exporttest.Commit(t, s, run, 1, name, hour(0), hour(744))
	}
	for _, dataset := range exporter.Datasets() {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Dataset, in.Partition = dataset, exporter.ByScope
		r := export(t, in)
		folders := map[string]string{}
		for _, f := range manifest(t, dir, r).Files {
			for element := range strings.SplitSeq(f.Path, "/") {
				if len(element) > 255 {
					t.Errorf("%s: an element of %d bytes", dataset, len(element))
				}
			}
			if before, ok := folders[filepath.Dir(f.Path)]; ok && before != f.Partition["scope"] {
				t.Errorf("%s: two scopes share %s", dataset, filepath.Dir(f.Path))
			}
			folders[filepath.Dir(f.Path)] = f.Partition["scope"]
			if !slices.Contains(names, f.Partition["scope"]) {
				t.Errorf("%s: the manifest names scope %q", dataset, f.Partition["scope"])
			}
			if strings.HasSuffix(f.Path, ".parquet") && (dataset == "lines" || dataset == "summary") {
				if got := parquetRows(t, filepath.Join(dir, filepath.Dir(r.Manifest), f.Path)); len(got) != 1 || got[0]["scope"] != f.Partition["scope"] {
					t.Errorf("%s: %s has %d rows", dataset, f.Path, len(got))
				}
			}
		}
		if r.Totals["EUR"] != "28" || len(folders) < len(names) {
			t.Errorf("%s: total %s in %d folders", dataset, r.Totals["EUR"], len(folders))
		}
		if v, err := exporter.Verify(t.Context(), in.Bucket, nil); err != nil || len(v) != 1 || len(v[0].Problems) > 0 {
			t.Errorf("%s: %+v (%v)", dataset, v, err)
		}
	}
}

func TestVerifyFindsWhatWasChanged(t *testing.T) {
	s, _ := awkward(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Partition = exporter.Whole
	result := export(t, in)
	b, _ := bucketfile.New(dir)
	path := filepath.Join(dir, filepath.Dir(result.Manifest), manifest(t, dir, result).Files[0].Path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	problems := func() int {
		v, err := exporter.Verify(t.Context(), b, nil)
		if err != nil || len(v) != 1 {
			t.Fatalf("%+v (%v)", v, err)
		}
		return len(v[0].Problems)
	}
	if n := problems(); n != 0 {
		t.Errorf("%d problems with what was just written", n)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if problems() == 0 {
		t.Error("a flipped bit was not found")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if problems() == 0 {
		t.Error("a missing file was not found")
	}
	public, _, _ := ed25519.GenerateKey(rand.Reader)
	if v, _ := exporter.Verify(t.Context(), b, public); len(v) != 1 || v[0].Signed || !strings.Contains(strings.Join(v[0].Problems, " "), "not signed") {
		t.Errorf("%+v", v)
	}
	// The export sees the missing file and writes the same one again.
	again := export(t, in)
	if again.Unchanged || again.Delivery != result.Delivery || problems() != 0 {
		t.Errorf("%+v, %d problems", again, problems())
	}
}

func TestTheGraceOfReplacedDeliveries(t *testing.T) {
	s, _ := awkward(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Now, in.Grace = time.Now(), time.Hour
	first := export(t, in)
	run := uuid.New()
	exporttest.Insert(t, s, run, 2, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Price: "7"})
	exporttest.Commit(t, s, run, 2, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-03", 1))
	second := export(t, in)
	if second.Delivery == first.Delivery {
		t.Fatal("another state has the same delivery")
	}
	deliveries := func() int {
		found, _ := filepath.Glob(filepath.Join(dir, "v1/dataset=lines/month=2026-03/delivery=*"))
		return len(found)
	}
	if n := deliveries(); n != 2 {
		t.Errorf("%d deliveries within the grace", n)
	}
	in.Now = time.Now().Add(2 * time.Hour)
	if again := export(t, in); !again.Unchanged || deliveries() != 1 {
		t.Errorf("after the grace: %d deliveries", deliveries())
	}

	// A delivery that was current for a day is read until a day after it was
	// replaced, whatever comes meanwhile; one that never was goes by its age.
	yesterday := time.Now().Add(-25 * time.Hour)
	age := func(delivery string) {
		err := filepath.WalkDir(filepath.Join(dir, "v1/dataset=lines/month=2026-03/delivery="+delivery), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return os.Chtimes(path, yesterday, yesterday)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	in.Now, in.Grace = time.Now(), 24*time.Hour
	age(second.Delivery)
	for i, price := range []string{"8", "9"} {
		killed := filepath.Join(dir, "v1/dataset=lines/month=2026-03/delivery=killed")
		if err := os.MkdirAll(killed, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(killed, "part-00000.parquet"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		age("killed")
		run := uuid.New()
		exporttest.Insert(t, s, run, uint32(3+i), exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Price: price})
		exporttest.Commit(t, s, run, uint32(3+i), "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-03", 1))
		if r := export(t, in); r.Unchanged || deliveries() != 2+i {
			t.Errorf("revision %d: unchanged %v, %d deliveries, want %d", 3+i, r.Unchanged, deliveries(), 2+i)
		}
	}
	in.Now = time.Now().Add(25 * time.Hour)
	if again := export(t, in); !again.Unchanged || deliveries() != 1 {
		t.Errorf("a day later: %d deliveries", deliveries())
	}
}

func TestExportToS3(t *testing.T) {
	server := buckettest.Start(t)
	s, _ := awkward(t)
	b, err := buckets3.New(t.Context(), buckets3.Options{Bucket: "finance", Prefix: "rated", Endpoint: server.Proxy, PathStyle: true, MaxAttempts: 3, MaxBackoff: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	dir := t.TempDir()
	in := input(t, s, dir)
	folder := export(t, in)
	in.Bucket = b
	server.SetFault(buckettest.Answer("put", 503, "SlowDown", -1))
	if _, err := exporter.Run(t.Context(), in); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
		t.Errorf("a store that refuses: %v", err)
	}
	server.SetFault(buckettest.LoseAnswer("put", 2))
	result := export(t, in)
	server.SetFault(nil)
	if result.Delivery != folder.Delivery || result.Bytes != folder.Bytes {
		t.Errorf("the store got %+v, the folder %+v", result, folder)
	}
	if again := export(t, in); !again.Unchanged {
		t.Errorf("written again: %+v", again)
	}
	verified, err := exporter.Verify(t.Context(), b, nil)
	if err != nil || len(verified) != 1 || len(verified[0].Problems) > 0 || verified[0].Totals["EUR"] != awkwardTotal {
		t.Errorf("%+v (%v)", verified, err)
	}
}
