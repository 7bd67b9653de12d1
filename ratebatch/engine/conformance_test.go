package engine_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envClient); dir != "" {
		engine.ServeIfChild()
		os.Exit(runClient(dir))
	}
	enginetest.Main(m)
}

// conformance is what the product relies on from a ClickHouse endpoint. The
// suite runs on the embedded engine and, where RATEBATCH_TEST_CLICKHOUSE names
// one, on a real server, so that the two cannot drift apart unseen.
// docs/engine.md lists the names.
var conformance = []struct {
	name         string
	embeddedOnly bool // a limit of the embedded engine, or its own guard
	http         bool // needs the HTTP protocol: skipped on clickhouse:// addresses
	run          func(*testing.T, *endpointUnderTest)
}{
	{name: "types both ways", run: testTypes},
	{name: "types in every compression", http: true, run: testCompression},
	{name: "named parameters", run: testNamedParameters},
	{name: "positional parameters", run: testPositionalParameters},
	{name: "URL parameters", http: true, run: testURLParameters},
	{name: "sessions keep temporary tables and settings", http: true, run: testSessions},
	{name: "settings of one statement", run: testSettings},
	{name: "unknown setting is refused", run: testUnknownSetting},
	{name: "default settings", run: testDefaultSettings},
	{name: "database of the connection", run: testDatabase},
	{name: "exception before the stream", run: testExceptionBefore},
	{name: "exception during the stream", run: testExceptionDuring},
	{name: "exception at the end of the stream", run: testExceptionAfter},
	{name: "exception on preparing a batch", run: testExceptionPrepare},
	{name: "exception on sending a batch", run: testExceptionSend},
	{name: "exception with curl", http: true, run: testExceptionCurl},
	{name: "cancel ends the statement", run: testCancel},
	{name: "timeout ends the statement", run: testTimeout},
	{name: "cancel of a stream ends the statement", run: testCancelStream},
	{name: "cancel of INSERT SELECT ends the statement", run: testCancelInsertSelect},
	{name: "max_execution_time", run: testMaxExecutionTime},
	{name: "KILL QUERY by query_id", http: true, run: testKill},
	{name: "a body cut short inserts nothing", http: true, run: testCutBody},
	{name: "X-ClickHouse-Summary", http: true, run: testSummary},
	{name: "query_id is kept", http: true, run: testQueryID},
	{name: "empty result has its columns", run: testEmptyResult},
	{name: "empty result in text formats", http: true, run: testEmptyText},
	{name: "a statement without a result", run: testNoResult},
	{name: "formats in and out with curl", http: true, run: testFormats},
	{name: "request and response compressed with curl", http: true, run: testCurlCompression},
	{name: "VALUES with expressions", run: testValues},
	{name: "a statement of 1 MiB", run: testLongStatement},
	{name: "external tables", run: testExternalTables},
	{name: "deduplication token", run: testDeduplication},
	{name: "a refreshable view on demand", run: testRefreshableView},
	{name: "statements run in parallel", run: testParallel},
	{name: "several statements in one are refused", http: true, run: testMultiStatement},
	{name: "GET changes nothing", http: true, run: testGET},
	{name: "wrong password is refused", http: true, run: testWrongPassword},
	{name: "database/sql", run: testDatabaseSQL},
	{name: "input() is refused", embeddedOnly: true, http: true, run: testInput},
	{name: "JSON needs its setting", embeddedOnly: true, run: testJSON},
	{name: "large results in formats that cannot stream are refused", embeddedOnly: true, http: true, run: testBufferedLimit},
	{name: "statements that reach outside are refused", embeddedOnly: true, run: testGuard},
}

func TestConformance(t *testing.T) {
	for _, s := range enginetest.Servers(t) {
		for _, c := range conformance {
			t.Run(s.Name+"/"+c.name, func(t *testing.T) {
				e := s.Open(t)
				u := &endpointUnderTest{Engine: e, options: e.ClientOptions()}
				if c.embeddedOnly && !e.Embedded() {
					t.Skip("a limit of the embedded engine")
				}
				if c.http && u.options.Protocol != clickhouse.HTTP {
					t.Skip("this server is reached by the native protocol")
				}
				c.run(t, u)
			})
		}
	}
}

// docs/engine.md is where users read what the endpoint can do.
func TestConformanceIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conformance {
		if !strings.Contains(string(text), "- "+c.name+"\n") {
			t.Errorf("docs/engine.md does not list %q", c.name)
		}
	}
}

type endpointUnderTest struct {
	*engine.Engine
	options *clickhouse.Options
}

func (u *endpointUnderTest) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if err := u.Conn().Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// text runs a query of one value and gives it as the engine prints it.
func (u *endpointUnderTest) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	var s string
	if err := u.Conn().QueryRow(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

func (u *endpointUnderTest) count(t *testing.T, table string) uint64 {
	t.Helper()
	var n uint64
	if err := u.Conn().QueryRow(t.Context(), "SELECT count() FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (u *endpointUnderTest) httpURL(q url.Values) string {
	scheme := "http"
	if u.options.TLS != nil {
		scheme = "https"
	}
	if q == nil {
		q = url.Values{}
	}
	if !q.Has("database") {
		q.Set("database", u.options.Auth.Database)
	}
	return scheme + "://" + u.options.Addr[0] + "/?" + q.Encode()
}

// curl is the other client. The password goes in by standard input, because a
// command line is readable by everybody.
func (u *endpointUnderTest) curl(t *testing.T, q url.Values, body []byte, more ...string) (answer string, header http.Header, status string) {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("user = \"%s:%s\"\n", u.options.Auth.Username, u.options.Auth.Password)
	args := []string{"-sS", "--config", "-", "-D", filepath.Join(dir, "head"), "-o", filepath.Join(dir, "body"), "-w", "%{http_code}"}
	if body != nil {
		if err := os.WriteFile(filepath.Join(dir, "in"), body, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--data-binary", "@"+filepath.Join(dir, "in"))
	}
	args = append(args, more...)
	cmd := exec.CommandContext(t.Context(), "curl", append(args, u.httpURL(q))...)
	cmd.Stdin = strings.NewReader(config)
	code, err := cmd.CombinedOutput()
	if err != nil && len(code) > 3 {
		t.Logf("curl: %v: %s", err, code)
	}
	text, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(dir, "head"))
	if err != nil {
		t.Fatal(err)
	}
	header = http.Header{}
	for line := range strings.Lines(string(head)) {
		if k, v, ok := strings.Cut(line, ": "); ok {
			header.Add(k, strings.TrimSpace(v))
		}
	}
	return string(text), header, string(code[max(0, len(code)-3):])
}

// sql sends one statement with curl and gives its answer.
func (u *endpointUnderTest) sql(t *testing.T, statement string) string {
	t.Helper()
	answer, _, status := u.curl(t, nil, []byte(statement))
	if status != "200" {
		t.Fatalf("%s: %s %s", statement, status, answer)
	}
	return answer
}

// exception fails unless err is the typed exception of that code, and gives
// its message.
func exception(t *testing.T, err error, code int32) string {
	t.Helper()
	var e *clickhouse.Exception
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v, want an exception with code %d", err, err, code)
	}
	if e.Code != code {
		t.Fatalf("got code %d (%v), want %d", e.Code, e, code)
	}
	return e.Message
}

func ptr[T any](v T) *T { return &v }

// typeCases are the types that tables of Ratebatch use, and their neighbours.
var typeCases = []struct {
	typ    string
	values []any // appended and read back
	text   []string
}{
	{"UInt8", []any{uint8(0), uint8(255)}, []string{"0", "255"}},
	{"UInt64", []any{uint64(0), uint64(math.MaxUint64)}, []string{"0", "18446744073709551615"}},
	{"Int64", []any{int64(math.MinInt64), int64(math.MaxInt64)}, []string{"-9223372036854775808", "9223372036854775807"}},
	{"Float64", []any{1.5, math.Inf(1)}, []string{"1.5", "inf"}},
	{"Bool", []any{true, false}, []string{"true", "false"}},
	{"String", []any{"", "tab\tquote'\\\x00 ünïcödé"}, []string{"", "tab\tquote'\\\x00 ünïcödé"}},
	{"FixedString(4)", []any{"abcd", "ab\x00\x00"}, []string{"abcd", "ab"}}, // toString() drops the zeros
	{"LowCardinality(String)", []any{"a", "b", "a", ""}, []string{"a", "b", "a", ""}},
	{"LowCardinality(Nullable(String))", []any{ptr("a"), (*string)(nil), ptr("")}, []string{"a", "NULL", ""}},
	{"Nullable(String)", []any{ptr("x"), (*string)(nil)}, []string{"x", "NULL"}},
	{"Nullable(UInt32)", []any{ptr(uint32(7)), (*uint32)(nil)}, []string{"7", "NULL"}},
	{"Decimal(9, 2)", []any{dec("-1.25"), dec("9999999.99")}, []string{"-1.25", "9999999.99"}},
	{"Decimal(18, 6)", []any{dec("-0.000001"), dec("999999999999.999999")}, []string{"-0.000001", "999999999999.999999"}},
	{"Decimal(38, 18)", []any{dec("12345678901234567890.123456789012345678"), dec("-0.000000000000000001")}, []string{"12345678901234567890.123456789012345678", "-0.000000000000000001"}},
	{"Decimal(76, 36)", []any{dec("1234567890123456789012345678901234567890.123456789012345678901234567890123456"), dec("-1")}, []string{"1234567890123456789012345678901234567890.123456789012345678901234567890123456", "-1"}},
	{"Nullable(Decimal(38, 18))", []any{ptr(dec("0.1")), (*decimal.Decimal)(nil)}, []string{"0.1", "NULL"}},
	{"Date", []any{day(2013, 8, 12), day(2149, 6, 6)}, []string{"2013-08-12", "2149-06-06"}},
	{"Date32", []any{day(1900, 1, 1), day(2299, 12, 31)}, []string{"1900-01-01", "2299-12-31"}},
	{"DateTime('UTC')", []any{moment(0), moment(0).AddDate(10, 0, 0)}, []string{"2026-03-29 01:59:59", "2036-03-29 01:59:59"}},
	{"DateTime", []any{moment(0), moment(0).Add(time.Second)}, []string{"2026-03-29 01:59:59", "2026-03-29 02:00:00"}},
	{"DateTime64(3, 'UTC')", []any{moment(0), moment(123 * time.Millisecond)}, []string{"2026-03-29 01:59:59.000", "2026-03-29 01:59:59.123"}},
	{"DateTime64(9, 'UTC')", []any{moment(0), moment(123456789)}, []string{"2026-03-29 01:59:59.000000000", "2026-03-29 01:59:59.123456789"}},
	{"UUID", []any{uuid.Nil, uuid.MustParse("0193d6a8-7b7a-7c3e-8000-0123456789ab")}, []string{"00000000-0000-0000-0000-000000000000", "0193d6a8-7b7a-7c3e-8000-0123456789ab"}},
	{"UInt128", []any{big.NewInt(0), bigInt("340282366920938463463374607431768211455")}, []string{"0", "340282366920938463463374607431768211455"}},
	{"Int256", []any{bigInt("-1234567890123456789012345678901234567890"), big.NewInt(1)}, []string{"-1234567890123456789012345678901234567890", "1"}},
	{"Map(String, String)", []any{map[string]string{}, map[string]string{"flavor": "m1.small"}}, []string{"{}", "{'flavor':'m1.small'}"}},
	{"Map(LowCardinality(String), Array(UInt8))", []any{map[string][]uint8{"k": {1, 2}}, map[string][]uint8{}}, []string{"{'k':[1,2]}", "{}"}},
	{"Array(String)", []any{[]string{}, []string{"x", "", "y"}}, []string{"[]", "['x','','y']"}},
	{"Array(Array(Int32))", []any{[][]int32{{1}, {}, {2, 3}}, [][]int32{}}, []string{"[[1],[],[2,3]]", "[]"}},
	{"Array(Decimal(38, 18))", []any{[]decimal.Decimal{dec("0.5"), dec("-2")}, []decimal.Decimal{}}, []string{"[0.5,-2]", "[]"}},
	{"Array(LowCardinality(String))", []any{[]string{"p", "q", "p"}, []string{}}, []string{"['p','q','p']", "[]"}},
	{"Array(Nullable(Int64))", []any{[]*int64{ptr(int64(5)), nil}, []*int64{}}, []string{"[5,NULL]", "[]"}},
	{"Tuple(String, UInt8)", []any{[]any{"x", uint8(1)}, []any{"", uint8(0)}}, []string{"('x',1)", "('',0)"}},
	{"Tuple(name String, items Array(UInt8))", []any{map[string]any{"name": "n", "items": []uint8{1}}}, []string{"('n',[1])"}},
	{"Enum8('rated' = 1, 'reset' = 2)", []any{"rated", "reset"}, []string{"rated", "reset"}},
	{"Enum16('a' = -300, 'b, (c' = 300)", []any{"a", "b, (c"}, []string{"a", "b, (c"}},
	{"IPv4", []any{net.IPv4(10, 1, 2, 3).To4()}, []string{"10.1.2.3"}},
	{"IPv6", []any{net.ParseIP("2001:db8::1")}, []string{"2001:db8::1"}},
	{"SimpleAggregateFunction(sum, UInt64)", []any{uint64(3)}, []string{"3"}},
}

func dec(s string) decimal.Decimal { return decimal.RequireFromString(s) }
func bigInt(s string) *big.Int     { n, _ := new(big.Int).SetString(s, 10); return n }
func day(y int, m time.Month, d int) time.Time {
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// moment is just before clocks change in Europe.
func moment(d time.Duration) time.Time { return time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC).Add(d) }

var sameValue = cmp.Options{
	cmp.Comparer(func(a, b decimal.Decimal) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 }),
	cmp.Comparer(func(a, b net.IP) bool { return a.Equal(b) }),
}

func testTypes(t *testing.T, u *endpointUnderTest) {
	for i, c := range typeCases {
		t.Run(c.typ, func(t *testing.T) {
			table := fmt.Sprintf("t%d", i)
			u.exec(t, "CREATE TABLE "+table+" (n UInt32, v "+c.typ+") ENGINE = MergeTree ORDER BY n")
			roundTrip(t, u.Conn(), table, i)
		})
	}
}

// roundTrip inserts a case's values, reads them back, and has the engine print
// them: a value that only survives the round trip might still be stored wrong.
func roundTrip(t *testing.T, conn driver.Conn, table string, i int) {
	t.Helper()
	c := typeCases[i]
	b, err := conn.PrepareBatch(t.Context(), "INSERT INTO "+table)
	if err != nil {
		t.Fatal(err)
	}
	for n, v := range c.values {
		if err := b.Append(uint32(n), v); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Send(); err != nil {
		t.Fatal(err)
	}
	printed := "ifNull(toString(v), 'NULL')"
	if strings.HasPrefix(c.typ, "Tuple") {
		printed = "toString(tuple(v.1, v.2))"
	}
	rows, err := conn.Query(t.Context(), "SELECT v, "+printed+" FROM "+table+" ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	if got := rows.ColumnTypes()[0].DatabaseTypeName(); !sameType(got, c.typ) {
		t.Errorf("type %s, want %s", got, c.typ)
	}
	n := 0
	for rows.Next() {
		got := reflect.New(reflect.TypeOf(c.values[n]))
		if strings.HasPrefix(c.typ, "UInt128") || strings.HasPrefix(c.typ, "Int256") {
			got = reflect.ValueOf(new(*big.Int))
		}
		var text string
		if err := rows.Scan(got.Interface(), &text); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.values[n], got.Elem().Interface(), sameValue); diff != "" {
			t.Errorf("value %d: %s", n, diff)
		}
		if text != c.text[n] {
			t.Errorf("value %d is %q in the engine, want %q", n, text, c.text[n])
		}
		n++
	}
	if err := rows.Err(); err != nil || n != len(c.values) {
		t.Errorf("%d rows, want %d: %v", n, len(c.values), err)
	}
}

// sameType compares types as the client names them: it leaves the blanks and
// the time zone of a DateTime out.
func sameType(a, b string) bool {
	short := func(s string) string { return strings.NewReplacer(" ", "", "DateTime('UTC')", "DateTime").Replace(s) }
	return short(a) == short(b)
}

func testCompression(t *testing.T, u *endpointUnderTest) {
	for name, method := range map[string]clickhouse.CompressionMethod{
		"none": clickhouse.CompressionNone, "lz4": clickhouse.CompressionLZ4, "zstd": clickhouse.CompressionZSTD,
		"gzip": clickhouse.CompressionGZIP, "deflate": clickhouse.CompressionDeflate,
	} {
		t.Run(name, func(t *testing.T) {
			o := u.ClientOptions()
			o.Compression = &clickhouse.Compression{Method: method, Level: 1}
			conn, err := clickhouse.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			for i, c := range typeCases {
				table := fmt.Sprintf("%s%d", name, i)
				if err := conn.Exec(t.Context(), "CREATE TABLE "+table+" (n UInt32, v "+c.typ+") ENGINE = Memory"); err != nil {
					t.Fatal(err)
				}
				roundTrip(t, conn, table, i)
			}
			var n, sum uint64
			rows, err := conn.Query(t.Context(), "SELECT number, toString(number) FROM numbers(300000)")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			var v uint64
			var s string
			for rows.Next() {
				if err := rows.Scan(&v, &s); err != nil {
					t.Fatal(err)
				}
				n, sum = n+1, sum+v
			}
			if rows.Err() != nil || n != 300000 || sum != 300000*299999/2 {
				t.Errorf("%d rows, sum %d, %v", n, sum, rows.Err())
			}
			err = conn.Exec(t.Context(), "SELECT throwIf(1)")
			exception(t, err, 395)
		})
	}
}

func testNamedParameters(t *testing.T, u *endpointUnderTest) {
	at := moment(0)
	got := u.text(t, "SELECT concat({s:String}, '|', toString({d:Decimal(38, 18)}), '|', toString({a:Array(String)}), '|', toString({t:DateTime}), '|', toString({n:UInt64}))",
		clickhouse.Named("s", "it's\t\\ {x} ünï"), clickhouse.Named("d", "0.000000000000000001"), clickhouse.Named("a", []string{"x", "y'z"}),
		clickhouse.DateNamed("t", at, clickhouse.Seconds), clickhouse.Named("n", uint64(math.MaxUint64)))
	if want := `it's` + "\t" + `\ {x} ünï|0.000000000000000001|['x','y\'z']|2026-03-29 01:59:59|18446744073709551615`; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	ctx := clickhouse.Context(t.Context(), clickhouse.WithParameters(clickhouse.Parameters{"table": "one", "n": "42"}))
	var n uint32
	if err := u.Conn().QueryRow(ctx, "SELECT {n:UInt32} FROM system.{table:Identifier}").Scan(&n); err != nil || n != 42 {
		t.Errorf("%d, %v", n, err)
	}
	err := u.Conn().Exec(t.Context(), "SELECT {missing:String}", clickhouse.Named("other", "x"))
	exception(t, err, 456)
}

func testPositionalParameters(t *testing.T, u *endpointUnderTest) {
	if got := u.text(t, "SELECT concat(?, '|', toString(?), '|', toString(?))", "a'b?", 42, []int{1, 2}); got != "a'b?|42|[1,2]" {
		t.Errorf("got %q", got)
	}
	if got := u.text(t, "SELECT concat($1, $2, $1)", "x", "y"); got != "xyx" {
		t.Errorf("got %q", got)
	}
}

func testURLParameters(t *testing.T, u *endpointUnderTest) {
	got, _, _ := u.curl(t, url.Values{"param_a": {"41"}, "param_s": {"x\\ty"}, "query": {"SELECT {a:UInt32} + 1, {s:String} FORMAT CSV"}}, []byte{})
	if got != "42,\"x\ty\"\n" {
		t.Errorf("got %q", got)
	}
	// The statement may begin in the URL and go on in the body.
	got, _, _ = u.curl(t, url.Values{"query": {"SELECT 1 +"}}, []byte(" 2 FORMAT TSV"))
	if got != "3\n" {
		t.Errorf("got %q", got)
	}
}

func testSessions(t *testing.T, u *endpointUnderTest) {
	with := func(more clickhouse.Settings) context.Context {
		s := clickhouse.Settings{"session_id": t.Name()}
		for k, v := range more {
			s[k] = v
		}
		return clickhouse.Context(t.Context(), clickhouse.WithSettings(s))
	}
	for _, statement := range []string{"CREATE TEMPORARY TABLE mine (a Int32)", "INSERT INTO mine VALUES (1), (2)", "SET max_threads = 3"} {
		if err := u.Conn().Exec(with(nil), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var n, threads uint64
	if err := u.Conn().QueryRow(with(nil), "SELECT count(), toUInt64(getSetting('max_threads')) FROM mine").Scan(&n, &threads); err != nil || n != 2 || threads != 3 {
		t.Errorf("%d rows, max_threads %d, %v", n, threads, err)
	}
	exception(t, u.Conn().Exec(t.Context(), "SELECT * FROM mine"), 60)

	busy := make(chan error, 1)
	go func() { busy <- u.Conn().Exec(with(nil), "SELECT sleep(1)") }()
	time.Sleep(300 * time.Millisecond)
	exception(t, u.Conn().Exec(with(nil), "SELECT 1"), 373)
	if err := <-busy; err != nil {
		t.Error(err)
	}
	answer, _, _ := u.curl(t, url.Values{"session_id": {"nobody-" + t.Name()}, "session_check": {"1"}}, []byte("SELECT 1"))
	if !strings.Contains(answer, "Code: 372") {
		t.Errorf("session_check: %s", answer)
	}
}

func testSettings(t *testing.T, u *endpointUnderTest) {
	ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"max_threads": 7, "log_comment": "it's \\ mine"}))
	var threads uint64
	var comment string
	if err := u.Conn().QueryRow(ctx, "SELECT toUInt64(getSetting('max_threads')), toString(getSetting('log_comment'))").Scan(&threads, &comment); err != nil || threads != 7 || !strings.HasPrefix(comment, "it's \\ mine") {
		t.Errorf("max_threads %d, log_comment %q, %v", threads, comment, err)
	}
	if got := u.text(t, "SELECT toString(getSetting('max_threads') = 7)"); got != "0" {
		t.Error("a setting of one statement outlived it")
	}
	if got := u.text(t, "SELECT toString(getSetting('max_threads')) SETTINGS max_threads = 5"); got != "5" {
		t.Errorf("SETTINGS clause: %s", got)
	}
}

func testUnknownSetting(t *testing.T, u *endpointUnderTest) {
	ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"no_such_setting": 1}))
	exception(t, u.Conn().Exec(ctx, "SELECT 1"), 115)
}

func testDefaultSettings(t *testing.T, u *endpointUnderTest) {
	for name, want := range map[string]string{"async_insert": "false", "session_timezone": "UTC", "decimal_check_overflow": "true", "max_partitions_per_insert_block": "0"} {
		if got := u.text(t, "SELECT toString(getSetting('"+name+"'))"); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	exception(t, u.Conn().Exec(t.Context(), "SELECT toDecimal128('99999999999999999999', 18) + toDecimal128('99999999999999999999', 18)"), 407)
}

func testDatabase(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE here (a UInt8) ENGINE = Memory")
	if got := u.text(t, "SELECT database FROM system.tables WHERE name = 'here' AND database = currentDatabase()"); got != u.Database() {
		t.Errorf("the table is in %q, want %q", got, u.Database())
	}
	o := u.ClientOptions()
	o.Auth.Database = "no_such_database"
	conn, err := clickhouse.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Exec(t.Context(), "SELECT 1"); err == nil || !strings.Contains(err.Error(), "81") {
		t.Errorf("a missing database: %v", err)
	}
}

func testExceptionBefore(t *testing.T, u *endpointUnderTest) {
	e := exception(t, u.Conn().Exec(t.Context(), "SELECT * FROM nope"), 60)
	if !strings.Contains(e, "nope") {
		t.Errorf("message %q", e)
	}
	exception(t, u.Conn().Exec(t.Context(), "SELEC 1"), 62)
	var n uint64
	exception(t, u.Conn().QueryRow(t.Context(), "SELECT throwIf(1, 'boom')").Scan(&n), 395)
	_, err := u.Conn().Query(t.Context(), "SELECT nope")
	exception(t, err, 47)
}

// drain reads all rows of a query of UInt64 columns.
func drain(t *testing.T, u *endpointUnderTest, query string) (int, error) {
	t.Helper()
	rows, err := u.Conn().Query(t.Context(), query)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

func testExceptionDuring(t *testing.T, u *endpointUnderTest) {
	n, err := drain(t, u, "SELECT number, throwIf(number = 5000000, 'boom') FROM numbers(10000000) SETTINGS max_threads = 1")
	if e := exception(t, err, 395); !strings.Contains(e, "boom") {
		t.Errorf("message %q", e)
	}
	if n == 0 || n > 5000000 {
		t.Errorf("%d rows came before the error", n)
	}
}

func testExceptionAfter(t *testing.T, u *endpointUnderTest) {
	_, err := drain(t, u, "SELECT number, throwIf(number = 999999, 'boom') FROM numbers(1000000) SETTINGS max_threads = 1")
	exception(t, err, 395)
}

func testExceptionPrepare(t *testing.T, u *endpointUnderTest) {
	_, err := u.Conn().PrepareBatch(t.Context(), "INSERT INTO nope")
	exception(t, err, 60)
}

func testExceptionSend(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt32, CONSTRAINT positive CHECK a > 0) ENGINE = MergeTree ORDER BY a")
	b, err := u.Conn().PrepareBatch(t.Context(), "INSERT INTO t")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Append(uint32(0)); err != nil {
		t.Fatal(err)
	}
	if e := exception(t, b.Send(), 469); !strings.Contains(e, "positive") {
		t.Errorf("message %q", e)
	}
	if n := u.count(t, "t"); n != 0 {
		t.Errorf("%d rows are stored", n)
	}
}

func testExceptionCurl(t *testing.T, u *endpointUnderTest) {
	answer, header, status := u.curl(t, nil, []byte("SELECT * FROM nope"))
	if status != "404" || header.Get("X-ClickHouse-Exception-Code") != "60" || !strings.HasPrefix(answer, "Code: 60. DB::Exception: ") {
		t.Errorf("%s %v %s", status, header, answer)
	}
	answer, _, _ = u.curl(t, nil, []byte("SELECT number, throwIf(number = 3000000, 'boom') FROM numbers(10000000) SETTINGS max_threads = 1 FORMAT TSV"))
	if !strings.Contains(answer[max(0, len(answer)-2000):], "Code: 395") {
		t.Errorf("an error during the stream is not in the body: %q", answer[max(0, len(answer)-200):])
	}
}

// gone waits until no statement with the marker in its text runs any more.
func gone(t *testing.T, u *endpointUnderTest, marker string) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Second)
	for {
		var n uint64
		if err := u.Conn().QueryRow(t.Context(), "SELECT count() FROM system.processes WHERE position(query, {m:String}) > 0 AND position(query, 'system.processes') = 0", clickhouse.Named("m", marker)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the statement still runs in the engine 3 s later")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func testCancel(t *testing.T, u *endpointUnderTest) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var n uint64
	started := time.Now()
	err := u.Conn().QueryRow(ctx, "SELECT sum(sipHash64(number, 'cancelled')) FROM numbers(1000000000000)").Scan(&n)
	if !errors.Is(err, context.Canceled) || time.Since(started) > 2*time.Second {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
	gone(t, u, "'cancelled'")
}

func testTimeout(t *testing.T, u *endpointUnderTest) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	err := u.Conn().Exec(ctx, "SELECT sum(sipHash64(number, 'timed out')) FROM numbers(1000000000000)")
	if err == nil || time.Since(started) > 2*time.Second {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
	gone(t, u, "'timed out'")
}

func testCancelStream(t *testing.T, u *endpointUnderTest) {
	ctx, cancel := context.WithCancel(t.Context())
	rows, err := u.Conn().Query(ctx, "SELECT number, 'streamed' FROM numbers(100000000000)")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		rows.Next()
	}
	cancel()
	for rows.Next() {
	}
	_ = rows.Close() // cancelled
	gone(t, u, "'streamed'")
}

func testCancelInsertSelect(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY tuple()")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if err := u.Conn().Exec(ctx, "INSERT INTO t SELECT sipHash64(number, 'copied') FROM numbers(1000000000000)"); err == nil {
		t.Error("no error")
	}
	gone(t, u, "'copied'")
}

func testMaxExecutionTime(t *testing.T, u *endpointUnderTest) {
	ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"max_execution_time": 1}))
	exception(t, u.Conn().Exec(ctx, "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"), 159)
}

func testKill(t *testing.T, u *endpointUnderTest) {
	id := uuid.NewString()
	killed := make(chan error, 1)
	go func() {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithQueryID(id))
		killed <- u.Conn().Exec(ctx, "SELECT sum(sipHash64(number, 'killed')) FROM numbers(1000000000000)")
	}()
	time.Sleep(300 * time.Millisecond)
	if err := u.Conn().Exec(t.Context(), "KILL QUERY WHERE query_id = {id:String} SYNC", clickhouse.Named("id", id)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-killed:
		exception(t, err, 394)
	case <-time.After(3 * time.Second):
		t.Fatal("the statement still runs")
	}
	u.exec(t, "KILL QUERY WHERE query_id = 'nobody' SYNC")
}

func testCutBody(t *testing.T, u *endpointUnderTest) {
	u.exec(t, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.httpURL(url.Values{"query": {"INSERT INTO t FORMAT TSV"}}), in)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(u.options.Auth.Username, u.options.Auth.Password)
	go func() {
		_, _ = out.Write(bytes.Repeat([]byte("1\n"), 1000))
		time.Sleep(100 * time.Millisecond)
		_ = out.CloseWithError(errors.New("the client died"))
	}()
	if response, err := http.DefaultClient.Do(r); err == nil {
		_ = response.Body.Close()
		t.Errorf("the insert was answered: %s", response.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(200 * time.Millisecond)
	if n := u.count(t, "t"); n != 0 {
		t.Errorf("%d rows of a body cut short are stored", n)
	}
}

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
