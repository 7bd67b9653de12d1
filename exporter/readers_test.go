package exporter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// duckdbVersion is the npm package that the tests install into the user's
// cache, once.
const duckdbVersion = "1.5.6-r.1"

// envRequireReaders makes the matrix fail, not skip, where DuckDB cannot be had.
const envRequireReaders = "RATEBATCH_REQUIRE_READERS"

// duckdb runs a statement and returns its rows as JSON values.
func duckdb(t *testing.T, statement string) []map[string]any {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "ratebatch", "duckdb-"+duckdbVersion)
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@duckdb/node-api/package.json")); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		install := exec.Command("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", dir, "@duckdb/node-api@"+duckdbVersion)
		if out, err := install.CombinedOutput(); err != nil {
			if os.Getenv(envRequireReaders) != "" {
				t.Fatalf("%v: %s", err, out)
			}
			t.Skipf("no DuckDB to read with: %v: %s", err, out)
		}
	}
	script := `import { DuckDBInstance } from '@duckdb/node-api';
const connection = await (await DuckDBInstance.create(':memory:')).connect();
await connection.run("SET TimeZone = 'Asia/Shanghai'");
const reader = await connection.runAndReadAll(process.argv[2]);
console.log(JSON.stringify(reader.getRowObjectsJson()));`
	path := filepath.Join(dir, fmt.Sprintf("query-%d.mjs", os.Getpid()))
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	node := exec.CommandContext(t.Context(), "node", path, statement)
	var stderr bytes.Buffer
	node.Stderr = &stderr
	out, err := node.Output()
	if err != nil {
		t.Fatalf("DuckDB: %v\n%s", err, stderr.String())
	}
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return rows
}

// TestReaderMatrix reads the same files with the tools that finance uses: the
// same rows, sums, instants and types, and partitions that are pruned.
func TestReaderMatrix(t *testing.T) {
	s, _ := awkward(t)
	e := enginetest.Open(t) // an empty database of its own: it only reads files
	dir := t.TempDir()
	result := export(t, input(t, s, dir))
	folder := filepath.Join(dir, filepath.Dir(result.Manifest), "delivery="+result.Delivery)
	glob := folder + "/*/*.parquet"
	m := manifest(t, dir, result)

	t.Run("duckdb", func(t *testing.T) {
		got := duckdb(t, `SELECT count(*)::INT AS n, sum(price)::VARCHAR AS total, min("begin")::VARCHAR AS first, typeof(any_value(price)) AS price, typeof(any_value("begin")) AS begin,
			typeof(any_value(line_id)) AS id, max(length(attributes))::INT AS longest, count(DISTINCT scope)::INT AS scopes
			FROM read_parquet('`+glob+`', hive_partitioning = true)`)
		want := map[string]any{"n": 10.0, "total": "10000000000000000012.948333433333333333", "first": "2026-03-01 08:00:00+08", "price": "DECIMAL(38,18)",
			"begin": "TIMESTAMP WITH TIME ZONE", "id": "VARCHAR", "longest": 5011.0, "scopes": 2.0}
		for name, value := range want {
			if got[0][name] != value {
				t.Errorf("%s = %v, want %v", name, got[0][name], value)
			}
		}
		// What docs/howto/finance-files.md prints.
		text, err := os.ReadFile("../docs/howto/finance-files.md")
		if err != nil {
			t.Fatal(err)
		}
		printed := regexp.MustCompile(`duckdb -c "(.*)"\n`).FindStringSubmatch(string(text))
		if printed == nil {
			t.Fatal("docs/howto/finance-files.md shows no DuckDB")
		}
		const theirs = "'finance/v1/dataset=lines/month=2026-10/"
		if !strings.Contains(printed[1], theirs) {
			t.Fatalf("%s reads no files of %s", printed[1], theirs)
		}
		total := decimal.Zero
		for _, row := range duckdb(t, strings.ReplaceAll(printed[1], theirs, "'"+filepath.Join(dir, filepath.Dir(result.Manifest))+"/")) {
			price, err := decimal.NewFromString(fmt.Sprint(row["price"]))
			if err != nil || row["scope"] == "" || row["metric"] == "" {
				t.Fatalf("%v: %v", row, err)
			}
			total = total.Add(price)
		}
		if total.String() != want["total"] {
			t.Errorf("the document's statement sums to %s, want %s", total, want["total"])
		}
		plan := fmt.Sprint(duckdb(t, `EXPLAIN ANALYZE SELECT count(*) FROM read_parquet('`+glob+`', hive_partitioning = true) WHERE day = '2026-03-02'`))
		if !strings.Contains(strings.ReplaceAll(plan, " ", ""), "ScanningFiles:1/2") && !strings.Contains(strings.ReplaceAll(plan, " ", ""), "TotalFilesRead:1") {
			t.Errorf("the partitions are not pruned: %s", plan)
		}
	})
	t.Run("duckdb by scope", func(t *testing.T) {
		// One project's files are read alone, whatever its name; a name that was
		// cut is found by the column, which has all of it.
		s := storetest.Open(t) // the shared one is not free
		run := uuid.New()
		long := strings.Repeat("long/", 100)
		for i, scope := range []string{"alpha", nasty, long} {
			exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: scope, Begin: exporttest.Hour("2026-03", 0), Price: fmt.Sprint(i + 1)})
			exporttest.Commit(t, s, run, 1, scope, exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))
		}
		in := input(t, s, t.TempDir())
		in.Partition = exporter.ByScope
		r := export(t, in)
		glob := filepath.Join(strings.TrimPrefix(in.Bucket.Location(), "file://"), filepath.Dir(r.Manifest), "delivery="+r.Delivery) + "/*/*.parquet"
		for i, scope := range []string{"alpha", nasty} {
			query := `FROM read_parquet('` + glob + `', hive_partitioning = true) WHERE scope = '` + strings.ReplaceAll(scope, "'", "''") + `'`
			if got := duckdb(t, `SELECT sum(price)::INT AS total, count(*)::INT AS n `+query); got[0]["total"] != float64(i+1) || got[0]["n"] != 1.0 {
				t.Errorf("%q: %v", scope, got)
			}
			plan := strings.ReplaceAll(fmt.Sprint(duckdb(t, `EXPLAIN ANALYZE SELECT sum(price) `+query)), " ", "")
			if !strings.Contains(plan, "ScanningFiles:1/3") && !strings.Contains(plan, "TotalFilesRead:1") {
				t.Errorf("%q is not pruned: %s", scope, plan)
			}
		}
		if got := duckdb(t, `SELECT sum(price)::INT AS total FROM read_parquet('`+glob+`', hive_partitioning = false) WHERE scope = '`+long+`'`); got[0]["total"] != 3.0 {
			t.Errorf("the long name: %v", got)
		}
	})
	t.Run("clickhouse", func(t *testing.T) {
		var n uint64
		var total decimal.Decimal
		var first, price, begin, id string
		row := e.Conn().QueryRow(e.WithFileAccess(t.Context()), `SELECT count(), sum(toDecimal256(price, 18)), toString(min(begin), 'UTC'), any(toTypeName(price)), any(toTypeName(begin)), any(toTypeName(line_id))
			FROM file(`+sqltext.String(glob)+`, 'Parquet') SETTINGS schema_inference_make_columns_nullable = 0`)
		if err := row.Scan(&n, &total, &first, &price, &begin, &id); err != nil {
			t.Fatal(err)
		}
		if n != 10 || total.String() != awkwardTotal || first != "2026-03-01 00:00:00.000000" || price != "Decimal(38, 18)" || begin != "DateTime64(6, 'UTC')" || id != "String" {
			t.Errorf("%d rows, total %s, first %s, types %s, %s, %s", n, total, first, price, begin, id)
		}
	})
	t.Run("parquet-go", func(t *testing.T) {
		type line struct {
			ID       string   `parquet:"line_id"`
			Scope    string   `parquet:"scope"`
			Begin    int64    `parquet:"begin,timestamp(microsecond)"`
			Price    [16]byte `parquet:"price"`
			Corrects *string  `parquet:"corrects,optional"`
		}
		sum := decimal.Zero
		n := 0
		for _, f := range m.Files {
			got, err := parquet.ReadFile[line](filepath.Join(dir, filepath.Dir(result.Manifest), f.Path))
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range got {
				sum = sum.Add(bigEndian(l.Price))
				n++
				if l.Begin < exporttest.Hour("2026-03", 0).UnixMicro() || l.Corrects != nil {
					t.Errorf("%+v", l)
				}
			}
		}
		if n != 10 || sum.String() != awkwardTotal {
			t.Errorf("%d rows, total %s", n, sum)
		}
	})
	t.Run("arrow", func(t *testing.T) {
		sum := decimal.Zero
		all := rows(t, dir, result)
		for _, row := range all {
			sum = sum.Add(decimal.RequireFromString(row["price"].(string)))
		}
		if len(all) != 10 || sum.String() != awkwardTotal {
			t.Errorf("%d rows, total %s", len(all), sum)
		}
	})
	t.Run("footer", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(dir, filepath.Dir(result.Manifest), m.Files[0].Path))
		if err != nil {
			t.Fatal(err)
		}
		in, err := file.NewParquetReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		for key, want := range map[string]string{"ratebatch.schema": m.SchemaID, "ratebatch.version": m.Schema.Version, "ratebatch.dataset": "lines"} {
			if got := in.MetaData().KeyValueMetadata().FindValue(key); got == nil || *got != want {
				t.Errorf("%s is %v, want %s", key, got, want)
			}
		}
		if got := in.MetaData().KeyValueMetadata().FindValue("ratebatch.fields"); got == nil || !strings.Contains(*got, `"unit":"as in column unit"`) {
			t.Error("the fields have no units")
		}
		columns := in.MetaData().Schema
		price := columns.Column(columns.ColumnIndexByName("price"))
		if got := price.PhysicalType().String() + " " + price.LogicalType().String() + " " + price.ConvertedType().String(); got != "FIXED_LEN_BYTE_ARRAY Decimal(precision=38, scale=18) DECIMAL" {
			t.Errorf("price is %s", got)
		}
		begin := columns.Column(columns.ColumnIndexByName("begin"))
		if got := begin.PhysicalType().String() + " " + begin.LogicalType().String(); !strings.HasPrefix(got, "INT64 Timestamp(isAdjustedToUTC=true, timeUnit=microseconds") {
			t.Errorf("begin is %s", got)
		}
		chunk, err := in.MetaData().RowGroup(0).ColumnChunk(columns.ColumnIndexByName("price"))
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Compression().String() != "ZSTD" || !strings.Contains(fmt.Sprint(chunk.Encodings()), "DICT") {
			t.Errorf("price is %s, %v", chunk.Compression(), chunk.Encodings())
		}
		for _, name := range []string{"scope", "begin", "metric", "price", "corrects"} {
			chunk, err := in.MetaData().RowGroup(0).ColumnChunk(columns.ColumnIndexByName(name))
			if err != nil {
				t.Fatal(err)
			}
			if stats, err := chunk.Statistics(); err != nil || stats == nil || !stats.HasNullCount() || name != "corrects" && !stats.HasMinMax() {
				t.Errorf("%s has no statistics: %v", name, err)
			}
		}
		// arrow-go v17 writes no page index. Should a later one do so, this says it,
		// and README and docs/finance.md can say so too.
		parsed, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range parsed.Metadata().RowGroups[0].Columns {
			if c.ColumnIndexOffset != 0 || c.OffsetIndexOffset != 0 {
				t.Error("there is a page index: say so in exporter/README.md and docs/finance.md")
			}
		}
	})
}

func bigEndian(word [16]byte) decimal.Decimal {
	n := new(big.Int).SetBytes(word[:])
	if word[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	return decimal.NewFromBigInt(n, -exporter.Scale)
}
