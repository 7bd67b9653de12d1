package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
)

// How statements fail and are stopped: TestConformance runs these.

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
