package engine_test

import (
	"context"
	"errors"
	"fmt"
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
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
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
