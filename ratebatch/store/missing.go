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
	there, err := s.tableComments(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range migrations {
		m := &migrations[i]
		_, isThere := there[m.Table]
		if _, done := applied[m.Version]; !done || isThere || slices.Contains(missing, m.Table) {
			continue
		}
		missing = append(missing, m.Table)
		if !m.remakes() {
			lost = append(lost, m.Table)
		}
	}
	return missing, lost, nil
}

// tableComments are the database's tables and views with their comments.
func (s *Store) tableComments(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := s.each(ctx, "table_names", SQL("table_names"), func(rows driver.Rows) error {
		var name, comment string
		err := rows.Scan(&name, &comment)
		out[name] = comment
		return err
	})
	return out, err
}
