// Package storetest gives tests a migrated Ratebatch database.
package storetest

import (
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Forever keeps data of any year, so that tests may use fixed dates.
var Forever = store.Retention{Raw: 40 * 365 * 24 * time.Hour, FiveMin: 40 * 365 * 24 * time.Hour, Hourly: 40 * 365 * 24 * time.Hour}

// Open returns a store over a fresh, migrated database on the embedded engine.
func Open(tb testing.TB) *store.Store {
	tb.Helper()
	e := enginetest.Open(tb)
	s := store.New(e.Conn(), e.Database())
	if _, err := s.Migrate(tb.Context(), store.MigrateOptions{Retention: Forever}); err != nil {
		tb.Fatal(err)
	}
	return s
}
