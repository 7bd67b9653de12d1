package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// places are the databases that the jobs of TestEveryStatementMayBreak take
// turns at: one that the tests share and one more, as two jobs at once make the
// best of two cores.
func places(t *testing.T) chan *billed {
	t.Helper()
	first := newBilled(t)
	e := enginetest.Open(t)
	second := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}}
	if _, err := second.s.Migrate(t.Context(), store.MigrateOptions{Retention: storetest.Forever}); err != nil {
		t.Fatal(err)
	}
	second.must("watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")
	out := make(chan *billed, 2)
	out <- first
	out <- second
	return out
}

// kept is a copy of a prepared database in another one of the engine. Parts are
// linked and not written, so it comes back in the time of a few statements,
// where preparing it anew would rate once more.
type kept struct {
	database string
	tables   []string
}

// filled lists the tables with rows, but for the schema's own and those named.
func (b *billed) filled(but ...string) []string {
	b.Helper()
	all := strings.Fields(b.text("SELECT arrayStringConcat(groupArray(name), ' ') FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 AND name != 'schema_migrations'"))
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(but, name) })
}

func (b *billed) empty(but ...string) {
	b.Helper()
	for _, table := range b.filled(but...) {
		b.sql("TRUNCATE TABLE " + table)
	}
}

// keep copies the database; the copy goes with the test whose options are given.
func (b *billed) keep(o engine.Options) kept {
	b.Helper()
	k := kept{o.Database, b.filled()}
	b.sql("CREATE DATABASE " + k.database)
	for _, table := range k.tables {
		b.sql("CREATE TABLE " + k.database + "." + table + " AS " + table)
		b.sql("ALTER TABLE " + k.database + "." + table + " ATTACH PARTITION ALL FROM " + table)
	}
	return k
}

// restore makes the database what it was when it was copied.
func (b *billed) restore(k kept) {
	b.Helper()
	b.empty()
	for _, table := range k.tables {
		b.sql("ALTER TABLE " + table + " ATTACH PARTITION ALL FROM " + k.database + "." + table)
	}
}
