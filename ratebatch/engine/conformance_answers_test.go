package engine_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// What answers and requests look like: TestConformance runs these.

func testSummary(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
	for statement, want := range map[string][2]string{
		"INSERT INTO t SELECT number FROM numbers(1000)": {"written_rows", "1000"},
		"INSERT INTO t FORMAT TSV\n1\n2\n3\n":            {"written_rows", "3"},
		"SELECT number FROM numbers(5) FORMAT TSV":       {"result_rows", "5"},
		"SELECT sum(a) FROM t WHERE a >= 0":              {"read_rows", ""},
	} {
		_, header, status := u.curl(t, url.Values{"wait_end_of_query": {"1"}}, []byte(statement))
		summary := map[string]string{}
		if err := json.Unmarshal([]byte(header.Get("X-ClickHouse-Summary")), &summary); err != nil {
			t.Fatalf("%s: %s %v", statement, status, err)
		}
		if got := summary[want[0]]; got != want[1] && want[1] != "" || got == "" {
			t.Errorf("%s: %s = %q, want %s (%v)", statement, want[0], got, want[1], summary)
		}
	}
}

func testQueryID(t *testing.T, u *endpointUnderTest) {
	id := uuid.NewString()
	if _, header, _ := u.curl(t, url.Values{"query_id": {id}}, []byte("SELECT 1")); header.Get("X-ClickHouse-Query-Id") != id {
		t.Errorf("got %q, want %q", header.Get("X-ClickHouse-Query-Id"), id)
	}
	if _, header, _ := u.curl(t, nil, []byte("SELECT 1")); header.Get("X-ClickHouse-Query-Id") == "" {
		t.Error("no query_id is given when none was sent")
	}
}

func testEmptyResult(t *testing.T, u *endpointUnderTest) {
	columns := make([]string, 0, len(typeCases))
	for i, c := range typeCases {
		columns = append(columns, fmt.Sprintf("c%d %s", i, c.typ))
	}
	u.exec(t, "CREATE TABLE t ("+strings.Join(columns, ", ")+") ENGINE = MergeTree ORDER BY tuple()")
	rows, err := u.Conn().Query(t.Context(), "SELECT *, {p:String} AS p FROM t WHERE c0 = 1 SETTINGS max_threads = 1", clickhouse.Named("p", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	if got := len(rows.Columns()); got != len(typeCases)+1 {
		t.Fatalf("%d columns, want %d", got, len(typeCases)+1)
	}
	for i, c := range typeCases {
		if got := rows.ColumnTypes()[i].DatabaseTypeName(); !sameType(got, c.typ) {
			t.Errorf("column %d: type %s, want %s", i, got, c.typ)
		}
	}
	if rows.Next() || rows.Err() != nil {
		t.Errorf("a row, or %v", rows.Err())
	}
	var n uint8
	if err := u.Conn().QueryRow(t.Context(), "SELECT c0 FROM t").Scan(&n); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("QueryRow without a row: %v", err)
	}
}

func testEmptyText(t *testing.T, u *endpointUnderTest) {
	for format, want := range map[string]string{"CSVWithNames": "\"n\"\n", "TSVWithNamesAndTypes": "n\nUInt64\n", "TSV": "", "JSONEachRow": ""} {
		if got := u.sql(t, "SELECT number AS n FROM numbers(3) WHERE n > 5 FORMAT "+format); got != want {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
	var answer struct {
		Meta []struct{ Name, Type string }
		Rows int
	}
	if err := json.Unmarshal([]byte(u.sql(t, "SELECT number AS n FROM numbers(3) WHERE n > 5 FORMAT JSON")), &answer); err != nil || len(answer.Meta) != 1 || answer.Meta[0].Type != "UInt64" {
		t.Errorf("JSON: %v, %v", answer, err)
	}
}

func testNoResult(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt8) ENGINE = Memory")
	rows, err := u.Conn().Query(t.Context(), "INSERT INTO t SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	if rows.Next() || rows.Err() != nil {
		t.Errorf("a row, or %v", rows.Err())
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	if n := u.count(t, "t"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func testFormats(t *testing.T, u *endpointUnderTest) {
	const fields = "n UInt64, s LowCardinality(String), d Decimal(38, 18), m Map(String, String), a Array(UInt8), t DateTime64(3, 'UTC')"
	u.exec(t, "CREATE TABLE source ("+fields+") ENGINE = MergeTree ORDER BY n")
	u.exec(t, "INSERT INTO source SELECT number, toString(number % 7), number / 3, map('k', toString(number)), [1, 2], toDateTime64(number, 3, 'UTC') FROM numbers(20000)")
	digest := func(table string) string {
		return u.text(t, "SELECT toString((count(), sum(d), sum(sipHash64(n, s, d, m, a, t)))) FROM "+table)
	}
	for _, format := range []string{"Native", "RowBinary", "CSV", "CSVWithNames", "TSV", "TSVWithNames", "JSONEachRow", "JSONCompactEachRow", "Parquet", "ArrowStream", "JSON"} {
		table := "copy_" + format
		u.exec(t, "CREATE TABLE "+table+" ("+fields+") ENGINE = MergeTree ORDER BY n")
		body, header, status := u.curl(t, nil, []byte("SELECT * FROM source ORDER BY n FORMAT "+format))
		if status != "200" || header.Get("X-ClickHouse-Format") != format {
			t.Fatalf("%s: %s %v", format, status, header)
		}
		if answer, _, status := u.curl(t, url.Values{"query": {"INSERT INTO " + table + " FORMAT " + format}}, []byte(body)); status != "200" {
			t.Errorf("%s: %s", format, answer)
			continue
		}
		if got, want := digest(table), digest("source"); got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
	// The statement and its data in one body.
	u.exec(t, "CREATE TABLE small (a UInt32, b String) ENGINE = Memory")
	u.sql(t, "INSERT INTO small (a, b) FORMAT JSONEachRow\n{\"a\": 1, \"b\": \"x; FORMAT\"}\n")
	u.sql(t, "INSERT INTO small VALUES (2, 'y; SELECT')")
	u.sql(t, "INSERT INTO small SELECT 3, 'FORMAT CSV'")
	u.sql(t, "INSERT INTO small FORMAT CSV 4,z\n")
	if got := u.text(t, "SELECT toString(groupArray((a, b))) FROM (SELECT * FROM small ORDER BY a)"); got != `[(1,'x; FORMAT'),(2,'y; SELECT'),(3,'FORMAT CSV'),(4,'z')]` {
		t.Errorf("got %s", got)
	}
}

func testCurlCompression(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt64) ENGINE = Memory")
	gz := exec.CommandContext(t.Context(), "gzip", "-c")
	gz.Stdin = strings.NewReader(strings.Repeat("7\n", 100000))
	body, err := gz.Output()
	if err != nil {
		t.Fatal(err)
	}
	if answer, _, status := u.curl(t, url.Values{"query": {"INSERT INTO t FORMAT TSV"}}, body, "-H", "Content-Encoding: gzip"); status != "200" {
		t.Fatalf("%s %s", status, answer)
	}
	answer, header, _ := u.curl(t, url.Values{"enable_http_compression": {"1"}}, []byte("SELECT a FROM t FORMAT TSV"), "--compressed")
	if header.Get("Content-Encoding") != "gzip" || len(answer) != 200000 {
		t.Errorf("%v, %d bytes", header, len(answer))
	}
}

func testValues(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a DateTime('UTC'), b Decimal(38, 18), c Array(String)) ENGINE = Memory")
	u.exec(t, "INSERT INTO t (a, b, c) VALUES (toDateTime('2026-01-01 00:00:00', 'UTC') + 60, toDecimal128('0.1', 18) * 3, splitByChar(',', 'x,y')), ('2026-01-02 00:00:00', '2', [])")
	if got := u.text(t, "SELECT toString(groupArray((a, b, c))) FROM (SELECT * FROM t ORDER BY a)"); got != `[('2026-01-01 00:01:00',0.3,['x','y']),('2026-01-02 00:00:00',2,[])]` {
		t.Errorf("got %s", got)
	}
	u.exec(t, "CREATE TABLE many (a UInt64, b String) ENGINE = Memory")
	u.exec(t, "INSERT INTO many VALUES "+strings.Repeat("(1, 'it''s'), ", 200000)+"(2, '')")
	if n := u.count(t, "many"); n != 200001 {
		t.Errorf("%d rows", n)
	}
}

func testLongStatement(t *testing.T, u *endpointUnderTest) {
	ids := make([]string, 0, 120000)
	for i := range cap(ids) {
		ids = append(ids, fmt.Sprint(1000000+i))
	}
	var n uint64
	if err := u.Conn().QueryRow(t.Context(), "SELECT count() FROM numbers(2000000) WHERE number IN ("+strings.Join(ids, ", ")+")").Scan(&n); err != nil || n != 120000 {
		t.Errorf("%d, %v", n, err)
	}
}

func testExternalTables(t *testing.T, u *endpointUnderTest) {
	table, err := ext.NewTable("wanted", ext.Column("n", "UInt64"), ext.Column("s", "String"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := table.Append(uint64(i*2), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := clickhouse.Context(t.Context(), clickhouse.WithExternalTable(table))
	var n uint64
	if err := u.Conn().QueryRow(ctx, "SELECT count() FROM numbers(10) WHERE number IN (SELECT n FROM wanted)").Scan(&n); err != nil || n != 5 {
		t.Errorf("%d, %v", n, err)
	}
}

func testDeduplication(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 1000")
	for range 3 {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"insert_deduplication_token": "once"}))
		b, err := u.Conn().PrepareBatch(ctx, "INSERT INTO t")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := b.Append(uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Send(); err != nil {
			t.Fatal(err)
		}
	}
	if n := u.count(t, "t"); n != 100 {
		t.Errorf("%d rows after three inserts with one token, want 100", n)
	}
}

func testRefreshableView(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE raw (a UInt64) ENGINE = MergeTree ORDER BY a")
	u.exec(t, "CREATE TABLE tier (n UInt64) ENGINE = MergeTree ORDER BY n")
	u.exec(t, "CREATE MATERIALIZED VIEW refresher REFRESH EVERY 1 YEAR APPEND TO tier AS SELECT count() AS n FROM raw")
	u.exec(t, "SYSTEM WAIT VIEW refresher")
	u.exec(t, "INSERT INTO raw SELECT number FROM numbers(17)")
	u.exec(t, "SYSTEM REFRESH VIEW refresher")
	u.exec(t, "SYSTEM WAIT VIEW refresher")
	if got := u.text(t, "SELECT toString(max(n)) FROM tier"); got != "17" {
		t.Errorf("got %s", got)
	}
}

func testParallel(t *testing.T, u *endpointUnderTest) {
	started := time.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := u.Conn().Exec(t.Context(), "SELECT sleep(0.5)"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(started); took > 2500*time.Millisecond {
		t.Errorf("eight statements of 0.5 s took %s", took)
	}
}

func testMultiStatement(t *testing.T, u *endpointUnderTest) {
	if answer, _, status := u.curl(t, nil, []byte("SELECT 1; SELECT 2")); status != "400" || !strings.Contains(answer, "Code: 62") {
		t.Errorf("%s %s", status, answer)
	}
	if got := u.sql(t, "SELECT 1;\n-- the end\n"); got != "1\n" {
		t.Errorf("a closing semicolon: %q", got)
	}
}

func testGET(t *testing.T, u *endpointUnderTest) {
	if answer, _, _ := u.curl(t, url.Values{"query": {"CREATE TABLE t (a UInt8) ENGINE = Memory"}}, nil); !strings.Contains(answer, "Code: 164") {
		t.Errorf("got %s", answer)
	}
	if answer, _, _ := u.curl(t, url.Values{"query": {"SELECT 1"}}, nil); answer != "1\n" {
		t.Errorf("got %s", answer)
	}
}

func testWrongPassword(t *testing.T, u *endpointUnderTest) {
	for name, more := range map[string][]string{
		"none":         {"-H", "Authorization:"},
		"a wrong one":  {"-H", "Authorization:", "-H", "X-ClickHouse-User: default", "-H", "X-ClickHouse-Key: wrong"},
		"a wrong user": {"-H", "Authorization:", "-H", "X-ClickHouse-User: root", "-H", "X-ClickHouse-Key: " + u.options.Auth.Password},
	} {
		if name == "none" && !u.Embedded() {
			continue // a server may let the default user in
		}
		if answer, _, _ := u.curl(t, nil, []byte("SELECT 1"), more...); !strings.Contains(answer, "Code: 516") && !strings.Contains(answer, "Code: 194") {
			t.Errorf("%s: %s", name, answer)
		}
	}
}

func testDatabaseSQL(t *testing.T, u *endpointUnderTest) {
	db := clickhouse.OpenDB(u.ClientOptions())
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (a UInt8, b Nullable(String)) ENGINE = Memory"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (?, ?)", 1, nil); err != nil {
		t.Fatal(err)
	}
	var a int
	var b sql.NullString
	if err := db.QueryRowContext(t.Context(), "SELECT a, b FROM t WHERE a = ?", 1).Scan(&a, &b); err != nil || a != 1 || b.Valid {
		t.Errorf("%d %v %v", a, b, err)
	}
}

func testInput(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt8) ENGINE = Memory")
	answer, _, status := u.curl(t, url.Values{"query": {"INSERT INTO t SELECT a + 1 FROM input('a UInt8') FORMAT TSV"}}, []byte("1\n"))
	if status != "501" || !strings.Contains(answer, "cannot INSERT … SELECT FROM input()") {
		t.Errorf("%s %s", status, answer)
	}
}

func testJSON(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (j JSON) ENGINE = MergeTree ORDER BY tuple()")
	u.exec(t, `INSERT INTO t VALUES ('{"a": 1}')`)
	_, err := drain(t, u, "SELECT j FROM t")
	if err == nil || !strings.Contains(err.Error(), "output_format_native_write_json_as_string") {
		t.Errorf("without the setting: %v", err)
	}
	ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"output_format_native_write_json_as_string": 1}))
	var s string
	if err := u.Conn().QueryRow(ctx, "SELECT j FROM t").Scan(&s); err != nil || s != `{"a":1}` {
		t.Errorf("with the setting: %q %v", s, err)
	}
}

func testBufferedLimit(t *testing.T, u *endpointUnderTest) {
	answer, _, _ := u.curl(t, nil, []byte("SELECT number, toString(number) FROM numbers(3000000) FORMAT JSON"))
	if !strings.Contains(answer, "Code: 396") || !strings.Contains(answer, "use a format that streams") {
		t.Errorf("got %.300s", answer)
	}
	if got := u.sql(t, "SELECT number FROM numbers(1000000) FORMAT Parquet"); !strings.HasPrefix(got, "PAR1") {
		t.Errorf("a small Parquet file: %.100q", got)
	}
}

func named(name string, value any) driver.NamedValue { return clickhouse.Named(name, value) }
