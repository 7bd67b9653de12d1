package rate

import (
	"errors"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
)

// Usage that changed is worth another attempt, repeats that FINAL left are
// worth the slow way, and a row that no metric can read stops the run.
func TestWhatAGuardThrows(t *testing.T) {
	thrown := func(text string) error { return &clickhouse.Exception{Code: codeThrowIf, Message: text} }
	var void *errVoid
	if err := voidIfThrown(thrown(pricing.ChangedMessage + ": while executing 'FUNCTION throwIf'")); !errors.As(err, &void) || void.repeated {
		t.Errorf("changed usage = %v, want a void attempt", err)
	}
	if err := voidIfThrown(thrown("metric x: two rows with one key: deduplication by FINAL is not enough here")); !errors.As(err, &void) || !void.repeated {
		t.Errorf("repeats = %v, want a void attempt that removes them the slow way", err)
	}
	err := voidIfThrown(thrown("metric x: a row of own is off its bucket: while executing 'FUNCTION throwIf'"))
	if ratebatch.ExitCode(err) != ratebatch.ExitHalted || err.Error() != "metric x: a row of own is off its bucket: correct the row or the metric that reads it; nothing was committed" {
		t.Errorf("a bad row = %v (exit %d)", err, ratebatch.ExitCode(err))
	}
	if other := errors.New("other"); !errors.Is(voidIfThrown(other), other) {
		t.Error("another error must stay as it is")
	}
}
