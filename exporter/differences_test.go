package exporter_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// corrected is a closed January that is rated differently since, which February
// takes: vm-1 by another unit, vm-2 priced and then not, vm-3 unpriced and more
// of it, vm-4 of nothing and new.
func corrected(t *testing.T) *store.Store {
	t.Helper()
	s := openStore(t)
	january := exporttest.Hour("2026-01", 0)
	line := func(resource, unit, qty, price, bucket string) exporttest.Line {
		return exporttest.Line{Scope: "alpha", Begin: january, Resource: resource, Unit: unit, Qty: qty, Price: price, Bucket: bucket}
	}
	first, second := uuid.New(), uuid.New()
	exporttest.Insert(t, s, first, 1, line("vm-1", "GB", "2", "4", ""), line("vm-2", "instance", "1", "7", ""), line("vm-3", "instance", "1", "0", "unpriced"))
	exporttest.Commit(t, s, first, 1, "alpha", january, exporttest.Hour("2026-02", 0))
	exporttest.Close(t, s, "2026-01", 1)
	exporttest.Insert(t, s, second, 2, line("vm-1", "GiB", "3", "5", ""), line("vm-2", "instance", "1", "0", "unpriced"), line("vm-3", "instance", "3", "0", "unpriced"), line("vm-4", "instance", "0", "0", ""))
	exporttest.Commit(t, s, second, 2, "alpha", january, january.Add(time.Hour))
	rate(t, s, "2026-02", 1, map[string]string{"vm-1": "10.004", "vm-9": "0.003"})
	return s
}

func TestCorrectionsNeverAddTwoUnitsOrBuckets(t *testing.T) {
	s := corrected(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Month, in.Partition = exporttest.Hour("2026-02", 0), exporter.Whole
	r := export(t, in)
	var got []string
	ids := map[any]bool{}
	for _, row := range rows(t, dir, r) {
		if ids[row["line_id"]] {
			t.Errorf("line id %v is there twice", row["line_id"])
		}
		ids[row["line_id"]] = true
		if row["corrects"] == "(null)" {
			continue
		}
		id := exporter.LineID(exporter.LineKey{Region: "RegionOne", Scope: "alpha", Begin: exporttest.Hour("2026-01", 0), Metric: "instance", Resource: row["resource"].(string)})
		if row["corrects"] != id.String() {
			t.Errorf("%v corrects another line than %s", row, id)
		}
		var text []string
		for _, column := range []string{"resource", "quantity", "unit", "price", "bucket"} {
			text = append(text, row[column].(string))
		}
		got = append(got, strings.Join(text, " "))
	}
	want := []string{"vm-1 -2 GB -4 ", "vm-1 3 GiB 5 ", "vm-2 -1 instance -7 ", "vm-2 1 instance 0 unpriced", "vm-3 2 instance 0 unpriced", "vm-4 0 instance 0 "}
	if !slices.Equal(got, want) || r.Totals["EUR"] != "4.007" {
		t.Errorf("corrections %q, want %q; %v", got, want, r.Totals)
	}
}
