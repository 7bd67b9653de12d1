package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// MinVersion is the oldest ClickHouse the schema works on: refreshable
// materialized views with APPEND came with 24.10.
const MinVersion = "24.10"

// Retention says how long each tier keeps data, by the data's own time.
type Retention struct {
	Raw, FiveMin, Hourly time.Duration
}

// DefaultRetention keeps raw samples for the agent's spool (24 h), the topics'
// retention (24 h) and 6 h more, and the tiers as the pipeline's
// specification says.
var DefaultRetention = Retention{Raw: 54 * time.Hour, FiveMin: 7 * 24 * time.Hour, Hourly: 92 * 24 * time.Hour}

// minRaw is the specification's retention of raw samples; below it late
// samples would be deleted when they are inserted.
const minRaw = 6 * time.Hour

// maxRetention keeps DateTime arithmetic of 2026 within 2106, where DateTime ends.
const maxRetention = 50 * 366 * 24 * time.Hour

// or fills in what is not given.
func (r Retention) or(other Retention) Retention {
	return Retention{cmp.Or(r.Raw, other.Raw), cmp.Or(r.FiveMin, other.FiveMin), cmp.Or(r.Hourly, other.Hourly)}
}

// Validate reports every value that cannot work; what is zero is not given.
func (r Retention) Validate() error {
	var errs []error
	for _, tier := range []struct {
		name string
		keep time.Duration
		min  time.Duration
	}{{"raw", r.Raw, minRaw}, {"5min", r.FiveMin, 2 * time.Hour}, {"hourly", r.Hourly, 48 * time.Hour}} {
		if tier.keep != 0 && (tier.keep < tier.min || tier.keep > maxRetention) {
			errs = append(errs, fmt.Errorf("retention of the %s tier is %s: must lie between %s and %s", tier.name, tier.keep, tier.min, maxRetention))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// ParseRetention reads raw=54h,5min=7d,hourly=92d; a single duration such as
// 20y stands for all three. Tiers that are not named are zero.
func ParseRetention(text string) (Retention, error) {
	var r Retention
	if text == "" {
		return r, nil
	}
	if !strings.Contains(text, "=") {
		d, err := parseLong(text)
		if err != nil {
			return r, &ratebatch.ConfigError{Err: err}
		}
		if d == 0 {
			return r, &ratebatch.ConfigError{Err: errors.New("retention: nothing would be kept")}
		}
		return Retention{d, d, d}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		d, err := parseLong(value)
		if err != nil {
			return r, &ratebatch.ConfigError{Err: fmt.Errorf("retention %s: %w", name, err)}
		}
		if d == 0 {
			return r, &ratebatch.ConfigError{Err: fmt.Errorf("retention %s: nothing would be kept", name)}
		}
		switch name {
		case "raw":
			r.Raw = d
		case "5min":
			r.FiveMin = d
		case "hourly":
			r.Hourly = d
		default:
			return r, &ratebatch.ConfigError{Err: fmt.Errorf("retention: no tier is called %q", name), Hint: "tiers are raw, 5min and hourly"}
		}
	}
	return r, nil
}

// parseLong reads a Go duration or a whole number of days or years (365 days).
func parseLong(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "y": 365 * 24 * time.Hour} {
		if n, err := strconv.Atoi(strings.TrimSuffix(text, suffix)); err == nil && strings.HasSuffix(text, suffix) {
			return time.Duration(n) * unit, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write 54h, 7d or 20y", text)
	}
	return d, nil
}

// MigrateOptions says what the schema is rendered for.
type MigrateOptions struct {
	Retention    Retention // of new tables; what is zero is that of DefaultRetention
	SetRetention bool      // change existing tables too, but for tiers that are zero
	Cluster      string    // name of the ClickHouse cluster; empty: a single server
}

func (o MigrateOptions) onCluster() string {
	if o.Cluster == "" {
		return ""
	}
	return " ON CLUSTER " + sqltext.Name(o.Cluster)
}

// Migration is one numbered, forward-only, idempotent statement.
type Migration struct {
	Version    int
	Name       string   // file name without .sql
	Table      string   // what it makes or changes
	Statements []string // one, and on a cluster a second for the Distributed table
	Digest     string   // sha256 of the file

	view bool   // it makes a view, which holds nothing
	text string // of a view that refreshes itself: what tells it from one that another version made
}

var (
	migrationName = regexp.MustCompile(`^(\d{3})_([a-z0-9_]+)\.sql$`)
	tableHeader   = regexp.MustCompile(`(?m)^-- table: +([a-z0-9_]+)$`)
	refreshes     = regexp.MustCompile(`(?m)^REFRESH EVERY `)
	viewHeader    = regexp.MustCompile(`(?m)^CREATE (OR REPLACE |MATERIALIZED )?VIEW `)
)

// Migrations renders the schema, in order: by number, but the views that refresh
// themselves last, since their text may read what a later migration makes.
func Migrations(o MigrateOptions) ([]Migration, error) {
	o.Retention = o.Retention.or(DefaultRetention)
	entries, err := fs.ReadDir(files, "schema")
	if err != nil {
		return nil, err
	}
	var out []Migration
	for _, e := range entries {
		text, err := files.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, err
		}
		match := migrationName.FindStringSubmatch(e.Name())
		table := tableHeader.FindStringSubmatch(string(text))
		if match == nil || table == nil {
			return nil, fmt.Errorf("schema/%s: needs a name like 001_table.sql and a header '-- table: …'", e.Name())
		}
		version, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, err
		}
		statement, err := render(e.Name(), string(text), o)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		m := Migration{Version: version, Name: strings.TrimSuffix(e.Name(), ".sql"), Table: table[1], Statements: []string{statement}, Digest: hex.EncodeToString(sum[:]), view: viewHeader.MatchString(statement)}
		if refreshes.MatchString(statement) {
			// The file's digest says nothing about a text that Go filled in.
			m.text = textOf(statement)
			m.Statements[0] += "\nCOMMENT " + sqltext.String(m.text)
		}
		if o.Cluster != "" && strings.Contains(string(text), "{{table ") {
			m.Statements = append(m.Statements, distributed(table[1], o.Cluster))
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Migration) int { return a.Version - b.Version })
	for i := 1; i < len(out); i++ {
		if out[i].Version == out[i-1].Version {
			return nil, fmt.Errorf("schema: %s and %s have the same number", out[i-1].Name, out[i].Name)
		}
	}
	slices.SortStableFunc(out, func(a, b Migration) int { return cmp.Compare(min(len(a.text), 1), min(len(b.text), 1)) })
	return out, nil
}

// textOf is the comment of a view that is made anew when its text changes: it
// tells that from the statement, which the server keeps in its own words only.
func textOf(statement string) string {
	sum := sha256.Sum256([]byte(statement))
	return "ratebatch " + hex.EncodeToString(sum[:8])
}

// render fills in what differs between a single server and a cluster. Table
// names are constants of the files; nothing here comes from a user but the
// cluster's name, which is quoted.
func render(name, text string, o MigrateOptions) (string, error) {
	onCluster := o.onCluster()
	suffix := ""
	if o.Cluster != "" {
		suffix = "_local"
	}
	tmpl, err := template.New(name).Funcs(template.FuncMap{
		// table is the name in a CREATE TABLE; on a cluster the data lies in NAME_local.
		"table": func(t string) string { return t + suffix + onCluster },
		// view is the name in a CREATE VIEW.
		"view": func(t string) string { return t + onCluster },
		// local is the table that holds this server's rows, name the one that shows all.
		"local": func(t string) string { return t + suffix },
		"name":  func(t string) string { return t },
		"engine": func(engine, arguments string) string {
			if o.Cluster == "" {
				return engine + "(" + arguments + ")"
			}
			replica := "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'"
			if arguments != "" {
				replica += ", " + arguments
			}
			return "Replicated" + engine + "(" + replica + ")"
		},
		"seconds": func(d time.Duration) int64 { return int64(d / time.Second) },
		"query":   SQL,
	}).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("schema/%s: %w", name, err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, o); err != nil {
		return "", fmt.Errorf("schema/%s: %w", name, err)
	}
	statement := b.String()
	if o.Cluster != "" {
		// The window setting of plain tables has another name on replicated ones.
		statement = strings.ReplaceAll(statement, "non_replicated_deduplication_window", "replicated_deduplication_window")
	}
	return strings.TrimSpace(statement), nil
}

// shardKeys keep what is read together on one shard: a scope's lines and its
// commits, an instance's samples and its tiers. Small tables are sharded by
// name or version, which puts each logical row's versions on one shard.
var shardKeys = map[string]string{
	"rated_lines": "cityHash64(scope)", "period_commits": "cityHash64(scope)", "pass_periods": "cityHash64(scope)", "pass_lines": "cityHash64(scope)",
	"month_commits": "cityHash64(scope)", "scopes": "cityHash64(scope)",
	"port_samples": "cityHash64(instance_uuid)", "instance_samples": "cityHash64(instance_uuid)", "disk_samples": "cityHash64(instance_uuid)",
	"port_volume_5min": "cityHash64(instance_uuid)", "port_volume_hourly": "cityHash64(instance_uuid)",
	"instance_metrics_5min": "cityHash64(instance_uuid)", "instance_metrics_hourly": "cityHash64(instance_uuid)",
	"disk_metrics_5min": "cityHash64(instance_uuid)", "disk_metrics_hourly": "cityHash64(instance_uuid)",
	"instances": "cityHash64(instance_uuid)", "late_samples": "cityHash64(instance_uuid)",
}

func distributed(table, cluster string) string {
	key, ok := shardKeys[table]
	if !ok {
		key = "0" // all on the first shard: small tables that are read whole
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]s ON CLUSTER %[2]s AS %[1]s_local\nENGINE = Distributed(%[2]s, currentDatabase(), %[1]s_local, %[3]s)",
		table, sqltext.Name(cluster), key)
}

// MigrateResult says what Migrate did.
type MigrateResult struct {
	Applied []string // names, in order
	Version int      // of the schema now
}

// Migrate brings the schema to this program's version. It can be repeated, and
// interrupted: every statement is idempotent, and recorded after it was run, those
// of one call together; what was run and not recorded is run again. Views and tables
// of raw samples that are gone, as after a restore, it makes again, and views that
// refresh themselves where another version of the program made them. It refuses a
// server that is too old, a database that a newer program made, and one whose tables
// are a cluster's where o names none, or the other way round.
func (s *Store) Migrate(ctx context.Context, o MigrateOptions) (MigrateResult, error) {
	var result MigrateResult
	if err := o.Retention.Validate(); err != nil {
		return result, err
	}
	if err := s.checkServerVersion(ctx); err != nil {
		return result, err
	}
	if err := s.Exec(ctx, "create_schema_migrations", nil); err != nil {
		return result, err
	}
	applied, err := s.appliedMigrations(ctx)
	if err != nil {
		return result, err
	}
	migrations, err := Migrations(o)
	if err != nil {
		return result, err
	}
	there, err := s.tableComments(ctx)
	if err != nil {
		return result, err
	}
	if err := o.fits(migrations, there); err != nil {
		return result, err
	}
	known := map[int]bool{}
	for _, m := range migrations {
		known[m.Version] = true
		result.Version = max(result.Version, m.Version)
	}
	// Before anything is changed: the newer program's views are not ours to replace.
	if err := newerThan(known, applied); err != nil {
		return result, err
	}
	if err := s.noteLostRaw(ctx, migrations, there, applied); err != nil {
		return result, err
	}
	// What was run is recorded in one go, also before a statement that is refused.
	done, err := s.runMigrations(ctx, o, migrations, there, applied, &result)
	if err := errors.Join(err, s.recordMigrations(ctx, done, &result)); err != nil {
		return result, err
	}
	if o.SetRetention {
		if err := s.setRetention(ctx, o); err != nil {
			return result, err
		}
	}
	return result, s.keepNotesAsLong(ctx, o)
}

// fits refuses to mix the tables of a cluster with those of a single server: a
// statement for the one would make a second set of tables beside the other's.
func (o MigrateOptions) fits(migrations []Migration, there map[string]string) error {
	var plain, local bool
	for _, m := range migrations {
		_, isThere := there[m.Table]
		_, isLocal := there[m.Table+"_local"]
		plain, local = plain || isThere && !m.view, local || isLocal
	}
	switch {
	case o.Cluster == "" && local:
		return &ratebatch.ConfigError{Err: errors.New("the tables of this database are those of a cluster"), Hint: "name it: ratebatch migrate --cluster NAME"}
	case o.Cluster != "" && plain && !local:
		return &ratebatch.ConfigError{Err: fmt.Errorf("the tables of this database are those of a single server, not of the cluster %s", o.Cluster), Hint: "leave out --cluster, or name a database that has no tables yet"}
	}
	return nil
}

// runMigrations runs what is not there, and says which migrations have to be
// recorded; those that were recorded before and made again are in result.
func (s *Store) runMigrations(ctx context.Context, o MigrateOptions, migrations []Migration, there map[string]string, applied map[int]migrationRecord, result *MigrateResult) (done []Migration, err error) {
	// Of a view that is gone its newest text alone is run again: an older one that
	// an interruption left would pass for what it should be.
	newest := map[string]int{}
	for _, m := range migrations {
		newest[m.Table] = m.Version
	}
	for _, m := range migrations {
		comment, isThere := there[m.Table]
		record, recorded := applied[m.Version]
		if recorded {
			if record.digest != m.Digest {
				return done, &ratebatch.HaltError{Err: fmt.Errorf("migration %s was applied with another text", m.Name), Hint: "this database was made by a different build; use that build, or restore a backup made by this one"}
			}
			switch {
			case isThere && m.text != "" && comment != m.text:
				if err := s.conn.Exec(ctx, "DROP VIEW IF EXISTS "+m.Table+o.onCluster()+" SYNC"); err != nil {
					return done, fmt.Errorf("migration %s: %w", m.Name, describe(err))
				}
			case isThere || !m.remakes() || m.view && m.Version != newest[m.Table]:
				continue
			}
		}
		for _, statement := range m.Statements {
			if err := s.conn.Exec(ctx, statement); err != nil {
				return done, fmt.Errorf("migration %s: %w", m.Name, describe(err))
			}
		}
		if recorded {
			result.Applied = append(result.Applied, m.Name)
		} else {
			done = append(done, m)
		}
	}
	return done, nil
}

// recordMigrations records them, and adds to result those that nobody recorded
// before. One statement for each migration would take as long as running them.
func (s *Store) recordMigrations(ctx context.Context, done []Migration, result *MigrateResult) error {
	if len(done) == 0 {
		return nil
	}
	at, err := s.Now(ctx)
	if err != nil {
		return err
	}
	var versions, names, digests []string
	for _, m := range done {
		versions, names, digests = append(versions, strconv.Itoa(m.Version)), append(names, m.Name), append(digests, m.Digest)
	}
	if err := s.Exec(ctx, "insert_schema_migrations", Params{"versions": versions, "names": names, "digests": digests, "applied_at": at}); err != nil {
		return err
	}
	// Another migrate may have run at the same time, which is harmless: the
	// first record of each counts, and whose it is applied it.
	now, err := s.appliedMigrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range done {
		if now[m.Version] == (migrationRecord{m.Digest, at.UnixMicro()}) {
			result.Applied = append(result.Applied, m.Name)
		}
	}
	return nil
}

// migrationRecord is the first record of a migration that was applied.
type migrationRecord struct {
	digest string
	at     int64 // microseconds
}

func (s *Store) appliedMigrations(ctx context.Context) (map[int]migrationRecord, error) {
	rows, err := s.Rows(ctx, "list_schema_migrations", nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int]migrationRecord{}
	for rows.Next() {
		var version uint32
		var record migrationRecord
		if err := rows.Scan(&version, &record.digest, &record.at); err != nil {
			return nil, err
		}
		out[int(version)] = record
	}
	return out, rows.Err()
}

func (s *Store) checkServerVersion(ctx context.Context) error {
	var version string
	if err := s.Row(ctx, "server_version", nil, &version); err != nil {
		return err
	}
	if versionLess(version, MinVersion) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("the server is ClickHouse %s, the schema needs %s or newer", version, MinVersion), Hint: "upgrade the server, or leave out --clickhouse to use the embedded engine"}
	}
	return nil
}

// versionLess compares the leading numbers of dotted versions.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range bs {
		if i >= len(as) {
			return true
		}
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		if errX != nil || errY != nil {
			return false
		}
		if x != y {
			return x < y
		}
	}
	return false
}

// ErrNewerSchema says that a newer program migrated the database.
var ErrNewerSchema = errors.New("which this program does not know")

// newerThan halts where a migration was applied that this program does not know:
// its statements were written before, and can leave out what bills rest on now.
func newerThan(known map[int]bool, applied map[int]migrationRecord) error {
	newest := 0
	for version := range applied {
		if !known[version] {
			newest = max(newest, version)
		}
	}
	if newest == 0 {
		return nil
	}
	return &ratebatch.HaltError{Err: fmt.Errorf("the database has migration %d, %w", newest, ErrNewerSchema), Hint: "use the newer program that made it"}
}

// CheckSchema says in one sentence when the database's schema is not that of this
// program: a configuration error where it lacks a migration, a HaltError that is
// ErrNewerSchema where a newer program migrated it. Every job calls it before
// anything else.
func (s *Store) CheckSchema(ctx context.Context) error {
	migrations, err := Migrations(MigrateOptions{})
	if err != nil {
		return err
	}
	applied, err := s.appliedMigrations(ctx)
	if err != nil {
		if IsCode(err, codeUnknownTable) || IsCode(err, codeUnknownDatabase) {
			return &ratebatch.ConfigError{Err: fmt.Errorf("database %s has no Ratebatch schema", s.database), Hint: "run 'ratebatch migrate' first"}
		}
		return err
	}
	known := map[int]bool{}
	for _, m := range migrations {
		known[m.Version] = true
	}
	if err := newerThan(known, applied); err != nil {
		return err
	}
	for _, m := range migrations {
		if _, ok := applied[m.Version]; !ok {
			return &ratebatch.ConfigError{Err: fmt.Errorf("the schema of database %s lacks migration %s", s.database, m.Name), Hint: "run 'ratebatch migrate' first"}
		}
	}
	return nil
}
