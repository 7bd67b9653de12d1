package exportbench_test

import (
	"os"
	"testing"

	"github.com/ratebatch/ratebatch/exporter/exportbench"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// The figures themselves come from make bench; here each runs once, so that
// none rots. RATEBATCH_BENCH=full measures the whole month.
func TestMeasure(t *testing.T) {
	cloud, runs := exportbench.Cloud{Month: "2026-03", Scopes: 3, Resources: 5, Hours: 48}, 1
	switch os.Getenv("RATEBATCH_BENCH") {
	case "quick":
		cloud, runs = exportbench.MonthQuick, 3
	case "full":
		cloud, runs = exportbench.Month, 3
	}
	e := enginetest.Open(t)
	if _, err := store.New(e.Conn(), e.Database()).Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	figures, err := exportbench.Measure(t.Context(), e, t.TempDir(), cloud, runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		t.Logf("%s %.3f %s, ratio %.2f (limit %.2f), spread %.2f", f.Name, f.Value, f.Unit, f.Ratio, f.Limit, f.Spread)
	}
}
