package store

import (
	"context"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// rawTables hold what the brokers still have, or what is rated already: a backup
// of the state leaves them out (deploy/clickhouse/backup.sh).
var rawTables = []string{"port_samples", "instance_samples", "disk_samples"}

// remakes says whether a migration may run again where what it made is gone: a
// view, or a table of raw samples. Any other table is state; one that is gone is
// for a person, because an empty one in its place would look like nothing owed.
func (m *Migration) remakes() bool {
	return m.view || slices.Contains(rawTables, m.Table) && strings.Contains(m.Statements[0], "CREATE TABLE")
}

// Missing names the tables and views of the schema that the database lacks
// although their migrations were applied, and those among them that Migrate does
// not make again.
func (s *Store) Missing(ctx context.Context) (missing, lost []string, err error) {
	migrations, err := Migrations(MigrateOptions{})
	if err != nil {
		return nil, nil, err
	}
	applied, err := s.appliedMigrations(ctx)
	if err != nil {
		return nil, nil, err
	}
	there, err := s.tableNames(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range migrations {
		m := &migrations[i]
		if _, done := applied[m.Version]; !done || there[m.Table] || slices.Contains(missing, m.Table) {
			continue
		}
		missing = append(missing, m.Table)
		if !m.remakes() {
			lost = append(lost, m.Table)
		}
	}
	return missing, lost, nil
}

func (s *Store) tableNames(ctx context.Context) (map[string]bool, error) {
	names, err := Collect(ctx, s, "table_names", nil, func(rows driver.Rows) (string, error) {
		var name string
		err := rows.Scan(&name)
		return name, err
	})
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out, err
}
