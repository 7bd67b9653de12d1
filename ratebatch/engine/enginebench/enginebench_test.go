package enginebench

import (
	"os"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// Not enginetest.Main: the library, once in this process, keeps its threads.
func TestMain(m *testing.M) {
	engine.ServeIfChild()
	os.Exit(m.Run())
}

// CI runs the benchmark once with few rows, so that it does not rot; the limits
// are judged by make bench on a million.
func TestRun(t *testing.T) {
	o := Options{Dir: t.TempDir(), Rows: 50_000, Runs: 1}
	if os.Getenv("RATEBATCH_BENCH") != "" {
		o.Rows, o.Runs = 0, 0
	}
	figures, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		t.Logf("%+v", f)
		if f.Value <= 0 || f.Runs == 0 {
			t.Errorf("%s was not measured", f.Name)
		}
	}
}
