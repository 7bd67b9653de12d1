package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// A date is midnight in UTC, also by the native protocol from a server in another
// zone: months are told by it.
func TestDatesAreInUTCWhateverTheServersZone(t *testing.T) {
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "UTC"} {
		t.Run(zone, func(t *testing.T) {
			pool, err := clickhouse.Open(&clickhouse.Options{Addr: []string{nativeServer(t, zone, day)}})
			if err != nil {
				t.Fatal(err)
			}
			conn := &watchedConn{pool, &Engine{}}
			t.Cleanup(func() { _ = conn.Close() })
			var got time.Time
			if err := conn.QueryRow(t.Context(), "SELECT month FROM closed_months").Scan(&got); err != nil || !got.Equal(day) {
				t.Errorf("QueryRow: %v, %v; want %v", got, err, day)
			}
			rows, err := conn.Query(t.Context(), "SELECT month FROM closed_months")
			if err != nil {
				t.Fatal(err)
			}
			if got = (time.Time{}); !rows.Next() || rows.Scan(&got) != nil || !got.Equal(day) {
				t.Errorf("Query: %v, want %v", got, day)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			var all []struct {
				Month time.Time `ch:"month"`
			}
			if err := conn.Select(t.Context(), &all, "SELECT month FROM closed_months"); err != nil || len(all) != 1 || !all[0].Month.Equal(day) {
				t.Errorf("Select: %v, %v; want %v", all, err, day)
			}
		})
	}
}

// nativeServer speaks as much of the native protocol as answering every query
// with one day needs, with as many clients as come.
func nativeServer(t *testing.T, zone string, day time.Time) (address string) {
	t.Helper()
	const revision = 54429 // before the addendum to the greeting and the chunks
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			serving.Go(func() {
				defer conn.Close()
				if err := serveDay(conn, revision, zone, day); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
	})
	return listener.Addr().String()
}

func serveDay(conn net.Conn, revision int, zone string, day time.Time) error {
	in, out := chproto.NewReader(conn), new(chproto.Buffer)
	send := func() error {
		_, err := conn.Write(out.Buf)
		out.Reset()
		return err
	}
	for {
		code, err := in.UVarInt()
		if err != nil {
			return err
		}
		switch chproto.ClientCode(code) {
		case chproto.ClientCodeHello:
			var hello chproto.ClientHello
			if err := hello.Decode(in); err != nil {
				return err
			}
			server := chproto.ServerHello{Name: "test", Revision: revision, Timezone: zone, DisplayName: "test"}
			server.EncodeAware(out, revision)
			if err := send(); err != nil {
				return err
			}
		case chproto.ClientCodePing:
			chproto.ServerCodePong.Encode(out)
			if err := send(); err != nil {
				return err
			}
		case chproto.ClientCodeQuery:
			var q chproto.Query
			if err := q.DecodeAware(in, revision); err != nil {
				return err
			}
		case chproto.ClientCodeData: // the end of the query's data: empty
			var data chproto.ClientData
			if err := data.DecodeAware(in, revision); err != nil {
				return err
			}
			if err := new(chproto.Block).DecodeBlock(in, revision, nil); err != nil {
				return err
			}
			var month chproto.ColDate
			month.Append(day)
			chproto.ServerCodeData.Encode(out)
			out.PutString("") // no table's
			block := chproto.Block{Columns: 1, Rows: 1, Info: chproto.BlockInfo{BucketNum: -1}}
			if err := block.EncodeBlock(out, revision, []chproto.InputColumn{{Name: "month", Data: month}}); err != nil {
				return err
			}
			chproto.ServerCodeEndOfStream.Encode(out)
			if err := send(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the client sent packet %d", code)
		}
	}
}
