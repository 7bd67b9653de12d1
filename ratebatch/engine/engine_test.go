package engine_test

import (
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestOpen(t *testing.T) {
	e := enginetest.Open(t)
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE t (a UInt32, s LowCardinality(String)) ENGINE=MergeTree ORDER BY a"); err != nil {
		t.Fatal(err)
	}
	b, err := e.Conn().PrepareBatch(t.Context(), "INSERT INTO t")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Append(uint32(1), "x"); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(); err != nil {
		t.Fatal(err)
	}
	var n uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT count() FROM t").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	rows, err := e.Conn().Query(t.Context(), "SELECT * FROM t WHERE a > 10")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(rows.Columns(), rows.Next(), rows.Err(), rows.Close(), e.Version(), e.Address())
}
