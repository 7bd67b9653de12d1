package exporter_test

import (
	"bytes"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
)

// A stream of what would be several files has one schema and one end mark.
func TestAStreamHoldsCorrectionsAndRoundingToo(t *testing.T) {
	s := corrected(t)
	exporttest.Close(t, s, "2026-02", 1)
	money := map[string]string{"lines": "price", "summary": "price", "focus": "BilledCost"}
	for _, dataset := range exporter.Datasets() {
		in := exporter.Input{Store: s, Dataset: dataset, Month: exporttest.Hour("2026-02", 0), Now: april, RoundTo: 2, Version: "test"}
		var pipe bytes.Buffer
		r, err := exporter.Stream(t.Context(), in, &pipe)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := ipc.NewReader(&pipe)
		if err != nil {
			t.Fatal(err)
		}
		sum, count := decimal.Zero, int64(0)
		for stream.Next() {
			record := stream.Record()
			count += record.NumRows()
			at := stream.Schema().FieldIndices(money[dataset])
			for row := range int(record.NumRows()) {
				if len(at) == 1 {
					column := record.Column(at[0]).(*array.Decimal128)
					sum = sum.Add(decimal.NewFromBigInt(column.Value(row).BigInt(), -18))
				}
			}
		}
		if err := stream.Err(); err != nil || pipe.Len() != 0 || count != int64(r.Rows) {
			t.Errorf("%s: %d of %d rows, then %d bytes more (%v)", dataset, count, r.Rows, pipe.Len(), err)
		}
		if money[dataset] != "" && sum.String() != r.Totals["EUR"] {
			t.Errorf("%s: the rows add up to %s, not %s", dataset, sum, r.Totals["EUR"])
		}
		stream.Release()
	}
}
