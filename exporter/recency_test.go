package exporter_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter/exporttest"
)

func TestHoursWithoutCommitsWereNotUpdatedInTheYearOne(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Price: "1"})
	exporttest.Commit(t, s, run, 1, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-03", 10))
	dir := t.TempDir()
	in := input(t, s, dir)
	in.Dataset, in.Partial = "focus", true
	m := manifest(t, dir, export(t, in))
	if n := len(m.Focus.Recency.TimeSectors); n != 744 {
		t.Errorf("%d hours", n)
	}
	for _, sector := range m.Focus.Recency.TimeSectors {
		if sector.TimeSectorLastUpdated != m.Focus.Recency.RecencyLastUpdated {
			t.Errorf("%+v, the newest commit is of %s", sector, m.Focus.Recency.RecencyLastUpdated)
			break
		}
	}
	in.Month, in.Now = exporttest.Hour("2026-05", 0), exporttest.Hour("2026-05", 1) // no commits at all
	for _, sector := range manifest(t, dir, export(t, in)).Focus.Recency.TimeSectors {
		if sector.TimeSectorLastUpdated != "" {
			t.Errorf("no commits: %+v", sector)
			break
		}
	}
}
