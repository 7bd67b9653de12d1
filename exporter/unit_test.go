package exporter

import "testing"

func TestUnitsKeepTheirLetters(t *testing.T) {
	for unit, want := range map[string]string{"µs": "µs", "Ωm": "Ωm", "instance": "Instances", "GiB": "GiB", "hour": "Hour", "": "Units"} {
		if got := focusUnit(unit); got != want {
			t.Errorf("%q is %q, want %q", unit, got, want)
		}
	}
}
