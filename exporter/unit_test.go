package exporter

import (
	"fmt"
	"testing"
	"time"

	"github.com/shopspring/decimal"
)

func TestUnitsKeepTheirLetters(t *testing.T) {
	for unit, want := range map[string]string{"µs": "µs", "Ωm": "Ωm", "instance": "Instances", "GiB": "GiB", "hour": "Hour", "": "Units"} {
		if got := focusUnit(unit); got != want {
			t.Errorf("%q is %q, want %q", unit, got, want)
		}
	}
}

// A column of so many words that it spelled them out takes a row without one.
func TestAProjectWithoutANameComesAfterManyNamedOnes(t *testing.T) {
	names := map[string]ScopeName{}
	scope := func(i int) string { return fmt.Sprintf("scope-%04d", i) }
	const named = directFrom
	for i := range named {
		names[scope(i)] = ScopeName{Name: "name of " + scope(i)}
	}
	s := focusSink{table: newTable(focusSchema("1.2")), names: names, month: time.Unix(0, 0), over: time.Unix(0, 0)}
	for i := range named + 2 {
		if i == named+1 { // and one with a name behind it
			names[scope(i)] = ScopeName{Name: "name of " + scope(i)}
		}
		if err := s.adjust(scope(i), "EUR", decimal.New(int64(i), -Scale)); err != nil {
			t.Fatal(err)
		}
	}
	for at, f := range s.table.schema.Fields {
		if f.Name != "SubAccountName" {
			continue
		}
		for i := range named + 2 {
			word, ok := s.table.cols[at].word(i)
			if ok != (i != named) || ok && string(word) != "name of "+scope(i) {
				t.Fatalf("row %d has the name %q (%v)", i, word, ok)
			}
		}
		return
	}
	t.Error("no column SubAccountName")
}
