package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// The reference, which is read from the migrations' text, is what the server
// has: tables, views, columns, their order and types. Every column has a meaning.
func TestReferenceIsWhatTheServerHas(t *testing.T) {
	s := storetest.Open(t)
	tables, err := store.Reference()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.Conn().Query(t.Context(), "SELECT table, name, type FROM system.columns WHERE database = currentDatabase() ORDER BY table, position")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	there := map[string][]string{}
	for rows.Next() {
		var table, name, kind string
		if err := rows.Scan(&table, &name, &kind); err != nil {
			t.Fatal(err)
		}
		there[table] = append(there[table], name+" "+kind)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"schema_migrations": true} // which migrate makes for itself
	for _, x := range tables {
		seen[x.Name] = true
		if x.Purpose == "" {
			t.Errorf("%s: the migration says no purpose", x.Name)
		}
		if x.Kind != "table" {
			continue
		}
		var written []string
		for _, c := range x.Columns {
			written = append(written, c.Name+" "+c.Type)
			if c.Text == "" {
				t.Errorf("%s.%s: no COMMENT in its migration and no line in columns.txt", x.Name, c.Name)
			}
		}
		if !slices.Equal(written, there[x.Name]) {
			t.Errorf("%s: the reference has\n%s\nthe server\n%s", x.Name, strings.Join(written, "\n"), strings.Join(there[x.Name], "\n"))
		}
	}
	for name := range there {
		if !seen[name] && !strings.HasPrefix(name, ".") {
			t.Errorf("the server has %s, the reference does not", name)
		}
	}
	// A text of no column is a leftover or a typing error.
	for _, name := range store.ColumnTexts() {
		table, column, qualified := strings.Cut(name, ".")
		found := false
		for _, x := range tables {
			found = found || (!qualified || x.Name == table) && slices.ContainsFunc(x.Columns, func(c store.ColumnDoc) bool { return c.Name == column || !qualified && c.Name == name })
		}
		if !found {
			t.Errorf("columns.txt has %s, which no table has", name)
		}
	}
}
