package exporter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/exporter/exporttest"
)

func TestAStatementHasNoCorrectionsOfUsageWithoutAPrice(t *testing.T) {
	s := corrected(t)
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Month, in.Dataset, in.RoundTo = exporttest.Hour("2026-02", 0), "statement", 2
	var got []string
	for _, row := range rows(t, dir, export(t, in)) {
		if row["kind"] == "correction" {
			got = append(got, strings.Join([]string{row["quantity"].(string), row["unit"].(string), row["exact"].(string)}, " "))
		}
	}
	if want := []string{"-2 GB -4", "3 GiB 5", "-1 instance -7"}; !slices.Equal(got, want) {
		t.Errorf("corrections %q, want %q", got, want)
	}
}
