// Package dump copies all tables of a database into files and back: to another
// folder of the embedded engine, to a server, or from there. The manifest is
// written last and holds, for each table, the number of rows, a digest over
// them and the sums of its numeric columns; a load compares all three.
package dump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/endpoint"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Formats of the files.
const (
	Native  = "native"  // ClickHouse's own, compressed with zstd; every type, every protocol
	Parquet = "parquet" // for other tools; needs the embedded engine or an http(s) address
)

// ManifestFile is written last: without it a dump did not happen.
const ManifestFile = "manifest.json"

// Manifest says what a dump consists of.
type Manifest struct {
	Format   string    `json:"format"`
	Database string    `json:"database"`
	Version  string    `json:"clickhouse_version"`
	Made     time.Time `json:"made"`
	Tables   []Table   `json:"tables"`
}

// Table is one table or view.
type Table struct {
	Name   string            `json:"name"`
	Engine string            `json:"engine"`
	Create string            `json:"create"`
	File   string            `json:"file,omitempty"` // empty: a view, which has no rows of its own
	Bytes  int64             `json:"bytes,omitempty"`
	Rows   uint64            `json:"rows"`
	Digest string            `json:"digest,omitempty"` // sum of a hash of each row, so their order is moot
	Sums   map[string]string `json:"sums,omitempty"`   // of numeric columns
}

func (t *Table) isView() bool {
	return strings.HasSuffix(t.Engine, "View") || t.Engine == "Dictionary"
}

// Options of Dump and Load.
type Options struct {
	Engine *engine.Engine
	Dir    string
	Format string // of Dump; Load reads it from the manifest
	Tables []string
	Now    func() time.Time
	// Progress is called after each table; it may be nil.
	Progress func(done, total int, t Table)
}

// errChanged: rows came or went while their table was being copied.
var errChanged = errors.New("it changed while it was copied")

// Dump writes all tables into an empty or new folder.
func Dump(ctx context.Context, o Options) (*Manifest, error) {
	if o.Format == Parquet && o.Engine.ClientOptions().Protocol != clickhouse.HTTP {
		return nil, &ratebatch.ConfigError{Err: errors.New("a Parquet dump over the native protocol"), Hint: "use an http:// or https:// address, or --format native"}
	}
	dir, err := emptyFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	m := &Manifest{Format: o.Format, Database: o.Engine.Database(), Version: o.Engine.Version(), Made: o.Now().UTC()}
	if m.Tables, err = tables(ctx, o); err != nil {
		return nil, err
	}
	for i := range m.Tables {
		t := &m.Tables[i]
		if !t.isView() {
			if err := dumpTable(ctx, o, dir, t); err != nil {
				return nil, fmt.Errorf("dump table %s: %w", t.Name, err)
			}
		}
		o.tell(i+1, len(m.Tables), *t)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ManifestFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return nil, err
	}
	return m, os.Rename(path+".new", path)
}

func (o *Options) tell(done, total int, t Table) {
	if o.Progress != nil {
		o.Progress(done, total, t)
	}
}

func emptyFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &ratebatch.ConfigError{Err: err}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", &ratebatch.ConfigError{Err: err}
	}
	if len(entries) > 0 {
		return "", &ratebatch.ConfigError{Err: fmt.Errorf("folder %s is not empty", dir), Hint: "name a new one: a dump replaces nothing"}
	}
	return dir, nil
}

// tables lists what to dump, tables before views.
func tables(ctx context.Context, o Options) ([]Table, error) {
	rows, err := o.Engine.Conn().Query(ctx, `SELECT name, engine, create_table_query FROM system.tables
		WHERE database = currentDatabase() AND NOT is_temporary
		ORDER BY engine LIKE '%View' OR engine = 'Dictionary', name`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Table
	missing := slices.Clone(o.Tables)
	for rows.Next() {
		var t Table
		if err := rows.Scan(&t.Name, &t.Engine, &t.Create); err != nil {
			return nil, err
		}
		if len(o.Tables) > 0 && !slices.Contains(o.Tables, t.Name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == t.Name })
		switch {
		case strings.HasPrefix(t.Name, ".inner"):
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("a materialized view keeps its rows in a table of its own (%s), which a dump cannot name", t.Name), Hint: "create the view with TO a table"}
		case t.Engine == "Distributed":
			continue // its rows are those of the table behind it
		}
		out = append(out, t)
	}
	if len(missing) > 0 {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("database %s has no table %s", o.Engine.Database(), strings.Join(missing, ", "))}
	}
	return out, rows.Err()
}

// merging are engines that put rows of one key together whenever they like.
var merging = regexp.MustCompile(`(Replacing|Summing|Aggregating|Collapsing)MergeTree$`)

// final makes a SELECT read what the table says once all its rows are merged.
// Without it the same table has other rows before and after a merge, and a load
// merges what it inserts: equal tables would not compare as equal.
func (t *Table) final() string {
	if merging.MatchString(t.Engine) {
		return " FINAL"
	}
	return ""
}

func dumpTable(ctx context.Context, o Options, dir string, t *Table) error {
	before := *t
	if err := measure(ctx, o.Engine, &before); err != nil {
		return err
	}
	*t = before
	if strings.ContainsRune(t.Name, '/') || strings.HasPrefix(t.Name, ".") {
		return fmt.Errorf("%q is no name for a file", t.Name)
	}
	var err error
	switch o.Format {
	case Parquet:
		t.File = t.Name + ".parquet"
		err = dumpParquet(ctx, o.Engine, filepath.Join(dir, t.File), t)
	default:
		t.File = t.Name + ".native.zst"
		err = dumpNative(ctx, o.Engine, filepath.Join(dir, t.File), t)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(dir, t.File))
	if err != nil {
		return err
	}
	t.Bytes = info.Size()
	after := *t
	if err := measure(ctx, o.Engine, &after); err != nil {
		return err
	}
	if !sameRows(before, after) {
		return &ratebatch.TryAgainError{Err: errChanged, Hint: "dump again while no job writes"}
	}
	return nil
}

func sameRows(a, b Table) bool {
	return a.Rows == b.Rows && a.Digest == b.Digest && maps.Equal(a.Sums, b.Sums)
}

// measure fills in rows, digest and sums. The digest goes over the printed
// values, because a hash of NULL is NULL and would hide its row.
func measure(ctx context.Context, e *engine.Engine, t *Table) error {
	columns, err := columnsOf(ctx, e, t.Name)
	if err != nil {
		return err
	}
	query := "SELECT count(), toString(sum(cityHash64(toString(tuple(*)))))"
	var names []string
	for _, c := range columns {
		for _, p := range []string{"UInt", "Int", "Decimal"} {
			if strings.HasPrefix(c.typ, p) && !strings.HasPrefix(c.typ, "Interval") {
				names = append(names, c.name)
				query += ", toString(sum(" + sqltext.Name(c.name) + "))"
			}
		}
	}
	var rows uint64
	var digest string
	sums := make([]string, len(names))
	targets := []any{&rows, &digest}
	for i := range sums {
		targets = append(targets, &sums[i])
	}
	if err := e.Conn().QueryRow(ctx, query+" FROM "+sqltext.Name(t.Name)+t.final()).Scan(targets...); err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	t.Rows, t.Digest, t.Sums = rows, digest, nil
	if len(names) > 0 {
		t.Sums = make(map[string]string, len(names))
	}
	for i, n := range names {
		t.Sums[n] = sums[i]
	}
	return nil
}

type tableColumn struct{ name, typ string }

func columnsOf(ctx context.Context, e *engine.Engine, table string) ([]tableColumn, error) {
	rows, err := e.Conn().Query(ctx, `SELECT name, type FROM system.columns
		WHERE database = currentDatabase() AND table = {table:String} AND default_kind NOT IN ('ALIAS', 'MATERIALIZED', 'EPHEMERAL') ORDER BY position`,
		clickhouse.Named("table", table))
	if err != nil {
		return nil, fmt.Errorf("list the columns: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []tableColumn
	for rows.Next() {
		var c tableColumn
		if err := rows.Scan(&c.name, &c.typ); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// Load creates what is not there, fills the tables, which must be empty, and
// compares them with the manifest. Views come last, so that none of them fires
// on rows that were loaded.
func Load(ctx context.Context, o Options) (*Manifest, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if m.Format == Parquet && o.Engine.ClientOptions().Protocol != clickhouse.HTTP {
		return nil, &ratebatch.ConfigError{Err: errors.New("a Parquet dump over the native protocol"), Hint: "use an http:// or https:// address"}
	}
	var views []Table
	var wanted []Table
	for _, t := range m.Tables {
		switch {
		case len(o.Tables) > 0 && !slices.Contains(o.Tables, t.Name):
		case t.isView():
			views = append(views, t)
		default:
			wanted = append(wanted, t)
		}
	}
	for _, t := range wanted { // all checks before the first row
		if err := createTable(ctx, o.Engine, m, t); err != nil {
			return nil, err
		}
	}
	total := len(wanted) + len(views)
	for i, t := range wanted {
		if err := loadTable(ctx, o.Engine, m, dir, t); err != nil {
			return nil, fmt.Errorf("load table %s: %w", t.Name, err)
		}
		o.tell(i+1, total, t)
	}
	for i, t := range views {
		// A view may read another one that sorts behind it; those that exist
		// already stay.
		if err := createView(ctx, o.Engine, m, views, t, 0); err != nil {
			return nil, fmt.Errorf("create view %s: %w", t.Name, err)
		}
		o.tell(len(wanted)+i+1, total, t)
	}
	return m, nil
}

func readManifest(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s holds no complete dump (no %s)", dir, ManifestFile), Hint: "make one with 'ratebatch engine dump'"}
	}
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	return parseManifest(filepath.Join(dir, ManifestFile), text)
}

// parseManifest reads the manifest of a file of that name. It names no file outside
// the dump's folder.
func parseManifest(file string, text []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", file, err)}
	}
	for _, t := range m.Tables {
		if t.File != filepath.Base(t.File) && t.File != "" || t.File == "." || t.File == ".." {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: table %s is in %q, outside the dump", file, t.Name, t.File)}
		}
	}
	return m, nil
}

func exists(ctx context.Context, e *engine.Engine, table string) (bool, error) {
	var n uint64
	err := e.Conn().QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = {table:String}", clickhouse.Named("table", table)).Scan(&n)
	return n > 0, err
}

func createTable(ctx context.Context, e *engine.Engine, m *Manifest, t Table) error {
	there, err := exists(ctx, e, t.Name)
	if err != nil {
		return err
	}
	if !there {
		if e.Embedded() && strings.HasPrefix(t.Engine, "Replicated") {
			return &ratebatch.ConfigError{Err: fmt.Errorf("table %s is of engine %s, which the embedded engine lacks", t.Name, t.Engine), Hint: "load it into a server"}
		}
		if err := e.Conn().Exec(ctx, endpoint.RenameDatabase(t.Create, m.Database, e.Database())); err != nil {
			return fmt.Errorf("create table %s: %w", t.Name, err)
		}
		return nil
	}
	var rows uint64
	if err := e.Conn().QueryRow(ctx, "SELECT count() FROM "+sqltext.Name(t.Name)).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("table %s of database %s has %d rows already", t.Name, e.Database(), rows), Hint: "load into an empty database: a load replaces nothing"}
	}
	return nil
}

func createView(ctx context.Context, e *engine.Engine, m *Manifest, all []Table, t Table, depth int) error {
	there, err := exists(ctx, e, t.Name)
	if err != nil || there {
		return err
	}
	err = e.Conn().Exec(ctx, endpoint.RenameDatabase(t.Create, m.Database, e.Database()))
	var exception *clickhouse.Exception
	if errors.As(err, &exception) && exception.Code == 60 && depth < len(all) {
		for _, other := range all {
			if other.Name != t.Name && strings.Contains(exception.Message, other.Name) {
				if err := createView(ctx, e, m, all, other, depth+1); err != nil {
					return err
				}
				return createView(ctx, e, m, all, t, depth+1)
			}
		}
	}
	return err
}

func loadTable(ctx context.Context, e *engine.Engine, m *Manifest, dir string, t Table) error {
	path := filepath.Join(dir, t.File)
	var err error
	if m.Format == Parquet {
		err = loadParquet(ctx, e, path, t.Name)
	} else {
		err = loadNative(ctx, e, path, t.Name)
	}
	if err != nil {
		return err
	}
	got := t
	if err := measure(ctx, e, &got); err != nil {
		return err
	}
	if sameRows(got, t) {
		return nil
	}
	return &ratebatch.HaltError{
		Err:  fmt.Errorf("table %s has %d rows with digest %s and sums %v after the load, the dump has %d with %s and %v", t.Name, got.Rows, got.Digest, got.Sums, t.Rows, t.Digest, t.Sums),
		Hint: "do not use this database: the file is damaged, or a TTL or a merge removed rows that the dump has",
	}
}
