package rate

import (
	"errors"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Repeats that FINAL left are worth the slow way, and a row that no metric can
// read stops its scope.
func TestWhatAGuardThrows(t *testing.T) {
	exception := func(text string) error { return &clickhouse.Exception{Code: 395, Message: text} }
	var repeats *errRepeats
	if err := thrown(exception("metric x: two rows with one key: deduplication by FINAL is not enough here")); !errors.As(err, &repeats) {
		t.Errorf("repeats = %v, want an attempt that removes them the slow way", err)
	}
	err := thrown(exception("metric x: a row of own is off its bucket: while executing 'FUNCTION throwIf'"))
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || err.Error() != "metric x: a row of own is off its bucket: correct the row or the metric that reads it; the next run rates the scope's periods" {
		t.Errorf("a bad row = %v (exit %d)", err, ratebatch.ExitCode(err))
	}
	if other := errors.New("other"); !errors.Is(thrown(other), other) {
		t.Error("another error must stay as it is")
	}
}
