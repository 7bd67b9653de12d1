package store_test

import (
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// A statement that needs a setting of its own keeps the job's time limit.
func TestSettingsAddUp(t *testing.T) {
	s := storetest.Open(t)
	ctx := store.Settings(t.Context(), map[string]any{"max_execution_time": 77, "max_insert_threads": 1})
	ctx = store.WithQueryID(store.WithParams(ctx, store.Params{"x": 5}), "settings-add-up")
	ctx = store.Settings(ctx, map[string]any{"max_insert_threads": 3})
	var limit, threads, x uint64
	err := s.Conn().QueryRow(ctx, "SELECT toUInt64(getSetting('max_execution_time')), toUInt64(getSetting('max_insert_threads')), {x:UInt64}").Scan(&limit, &threads, &x)
	if err != nil || limit != 77 || threads != 3 || x != 5 {
		t.Errorf("the statement ran with max_execution_time %d, max_insert_threads %d, x %d, %v; want 77, 3, 5", limit, threads, x, err)
	}
}
