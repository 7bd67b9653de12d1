// Package storetest gives tests a migrated Ratebatch database.
package storetest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
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

var shared struct {
	sync.Mutex
	migrated bool
	holder   atomic.Value // string, the test whose turn it is
}

// Shared returns an engine over one database that the tests of a binary take
// turns at: it is migrated once, without the views that refresh by themselves,
// and emptied for each test. Creating forty tables takes longer than most tests.
func Shared(tb testing.TB) *engine.Engine {
	tb.Helper()
	if holder, _ := shared.holder.Load().(string); holder != "" && strings.HasPrefix(tb.Name()+"/", holder+"/") {
		tb.Fatal("this test has the shared database already: take Open for a second one, or a subtest for each")
	}
	o := enginetest.Options(tb)
	o.Database, o.Create = "shared", true
	e, err := engine.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	shared.Lock()
	shared.holder.Store(tb.Name())
	tb.Cleanup(func() {
		shared.holder.Store("")
		shared.Unlock()
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	s := store.New(e.Conn(), e.Database())
	if !shared.migrated {
		if _, err := s.Migrate(tb.Context(), store.MigrateOptions{Retention: Forever}); err != nil {
			tb.Fatal(err)
		}
		stopViews(tb, s)
		shared.migrated = true
	}
	if err := Empty(tb.Context(), s); err != nil {
		tb.Fatal(err)
	}
	return e
}

// Fresh is a store over Shared.
func Fresh(tb testing.TB) *store.Store {
	tb.Helper()
	e := Shared(tb)
	return store.New(e.Conn(), e.Database())
}

// Empty removes the rows of every table but the schema's own.
func Empty(ctx context.Context, s *store.Store) error {
	return each(ctx, s, "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 AND name != 'schema_migrations'", "TRUNCATE TABLE ")
}

func stopViews(tb testing.TB, s *store.Store) {
	tb.Helper()
	if err := each(tb.Context(), s, "SELECT view FROM system.view_refreshes WHERE database = currentDatabase()", "SYSTEM STOP VIEW "); err != nil {
		tb.Fatal(err)
	}
}

// each runs a statement for each name that the query lists.
func each(ctx context.Context, s *store.Store, query, statement string) error {
	var names []string
	rows, err := s.Conn().Query(ctx, query)
	if err != nil {
		return err
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.Conn().Exec(ctx, statement+name); err != nil {
			return err
		}
	}
	return nil
}
