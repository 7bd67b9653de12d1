package store_test

import (
	"context"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// valuesOnly is a connection that takes no ready-made blocks, like that of the
// native protocol.
type valuesOnly struct{ driver.Conn }

func (valuesOnly) InsertFormat(context.Context, string, string, io.Reader) error {
	return clickhouse.ErrFormatNativeUnsupported
}

// A server that is reached by the native protocol gets the same rows.
func TestBlocksAndValuesGiveTheSameRows(t *testing.T) {
	s := storetest.Fresh(t)
	w := randomWorld("r", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)).Example(7)
	for i := range w.Ports {
		w.Ports[i].IngestedAt = w.Ports[i].At.Add(time.Duration(i%2) * time.Hour).Truncate(time.Second)
	}
	read := func() (out [][]any) {
		t.Helper()
		for _, table := range []string{"port_samples", "instance_samples", "disk_samples"} {
			rows, err := s.Conn().Query(t.Context(), "SELECT * EXCEPT (ingested_at), if(toUnixTimestamp(ingested_at) > 1780000000, 0, toUnixTimestamp(ingested_at)) FROM "+table+" ORDER BY ALL")
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				row := make([]any, len(rows.ColumnTypes()))
				for i, c := range rows.ColumnTypes() {
					row[i] = reflect.New(c.ScanType()).Interface()
				}
				if err := rows.Scan(row...); err != nil {
					t.Fatal(err)
				}
				out = append(out, row)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	w.Insert(t, s)
	blocks := read()
	if err := storetest.Empty(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.Insert(t, store.New(valuesOnly{s.Conn()}, s.Database()))
	values := read()
	if len(blocks) != len(w.Ports)+len(w.Instances)+len(w.Disks) || len(blocks) < 10 {
		t.Errorf("%d rows were stored of %d samples", len(blocks), len(w.Ports)+len(w.Instances)+len(w.Disks))
	}
	if diff := gocmp.Diff(blocks, values); diff != "" {
		t.Errorf("(-blocks +values)\n%.2000s", diff)
	}
}
