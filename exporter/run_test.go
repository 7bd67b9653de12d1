package exporter_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// april is long after the months that tests export.
var april = time.Date(2026, 4, 15, 0, 0, 0, 0, time.UTC)

func openStore(tb testing.TB) *store.Store {
	tb.Helper()
	return storetest.Fresh(tb)
}

func input(tb testing.TB, s *store.Store, dir string) exporter.Input {
	tb.Helper()
	b, err := bucketfile.New(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return exporter.Input{Store: s, Bucket: b, Month: exporttest.Hour("2026-03", 0), Now: april, Version: "test", RunID: uuid.New()}
}

func export(tb testing.TB, in exporter.Input) exporter.Result {
	tb.Helper()
	result, err := exporter.Run(tb.Context(), in)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// rows reads all Parquet files of a delivery with Arrow's reader.
func rows(tb testing.TB, dir string, r exporter.Result) []map[string]any {
	tb.Helper()
	var out []map[string]any
	for _, f := range manifest(tb, dir, r).Files {
		if !strings.HasSuffix(f.Path, ".parquet") {
			continue // a statement's page
		}
		out = append(out, parquetRows(tb, filepath.Join(dir, filepath.Dir(r.Manifest), f.Path))...)
	}
	return out
}

func manifest(tb testing.TB, dir string, r exporter.Result) exporter.Manifest {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, r.Manifest))
	if err != nil {
		tb.Fatal(err)
	}
	validate(tb, text)
	var m exporter.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		tb.Fatal(err)
	}
	return m
}

func parquetRows(tb testing.TB, path string) []map[string]any {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	in, err := file.NewParquetReader(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	reader, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := reader.ReadTable(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer t.Release()
	chunks := array.NewTableReader(t, -1)
	defer chunks.Release()
	var out []map[string]any
	for chunks.Next() {
		record := chunks.Record()
		for i := range int(record.NumRows()) {
			row := map[string]any{}
			for c, f := range record.Schema().Fields() {
				row[f.Name] = record.Column(c).ValueStr(i)
			}
			out = append(out, row)
		}
	}
	return out
}

func TestLinesArriveAsTheyWereRated(t *testing.T) {
	s := openStore(t)
	run, crashed := uuid.New(), uuid.New()
	exporttest.Insert(t, s, run, 1,
		exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Qty: "1", Price: "0.0000000000000000010", Attributes: map[string]string{"vcpus": "2", "flavor_name": "m1.small"}},
		exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Resource: "vm-2", Qty: "0.5", Price: "12.345678901234567890"},
		exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 700), Resource: "vm-2", Qty: "1", Price: "0", Bucket: "unpriced", Rule: "no mapping matched"},
		exporttest.Line{Scope: "beta", Begin: exporttest.Hour("2026-03", 1), Qty: "1", Price: "-3"},
	)
	exporttest.Insert(t, s, crashed, 1, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Resource: "vm-3", Price: "99"})
	exporttest.Commit(t, s, run, 1, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))
	exporttest.Commit(t, s, run, 1, "beta", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))

	for _, partition := range []exporter.Partition{exporter.ByDay, exporter.ByScope, exporter.Whole} {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Partition = partition
		result := export(t, in)
		if result.Rows != 4 || result.Commits != 2*744 || result.Totals["EUR"] != "9.345678901234567891" {
			t.Errorf("%s: %d rows, %d commits, total %s", partition, result.Rows, result.Commits, result.Totals["EUR"])
		}
		got := rows(t, dir, result)
		if len(got) != 4 {
			t.Fatalf("%s: %d rows in the files", partition, len(got))
		}
		want := map[string]any{
			"line_id": exporter.LineID(exporter.LineKey{Region: "RegionOne", Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Metric: "instance", Resource: "vm-1",
				Attributes: map[string]string{"vcpus": "2", "flavor_name": "m1.small"}}).String(),
			"region": "RegionOne", "scope": "alpha", "begin": "2026-03-01 00:00:00Z", "end": "2026-03-01 01:00:00Z", "metric": "instance", "resource": "vm-1",
			"attributes": `{"flavor_name":"m1.small","vcpus":"2"}`, "unit": "instance", "quantity": "1", "price": "1e-18", "currency": "EUR",
			"rule": "", "bucket": "", "part": "0", "revision": "1",
		}
		for name, value := range want {
			if got[0][name] != value {
				t.Errorf("%s: %s = %q, want %q", partition, name, got[0][name], value)
			}
		}
	}
}

func TestTheSameStateIsNotWrittenAgain(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 5), Price: "2"})
	exporttest.Commit(t, s, run, 1, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))
	first, second := t.TempDir(), t.TempDir()
	a := export(t, input(t, s, first))
	if again := export(t, input(t, s, first)); !again.Unchanged || again.Delivery != a.Delivery {
		t.Errorf("the second export gave %+v", again)
	}
	b := export(t, input(t, s, second))
	ma, mb := manifest(t, first, a), manifest(t, second, b)
	if len(ma.Files) != 1 || ma.Files[0].SHA256 != mb.Files[0].SHA256 {
		t.Errorf("files differ: %+v and %+v", ma.Files, mb.Files)
	}
	var exports uint64
	if err := s.Conn().QueryRow(t.Context(), "SELECT count() FROM exports").Scan(&exports); err != nil || exports != 2 {
		t.Errorf("%d exports recorded, want 2 (%v)", exports, err)
	}
}
