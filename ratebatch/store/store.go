package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

//go:embed schema/*.sql queries/*.sql kafka/*.sql
var files embed.FS

// Store reads and writes one Ratebatch database. It is safe for concurrent use.
type Store struct {
	conn     driver.Conn
	database string
}

// New returns a Store over a connection whose current database is database.
func New(conn driver.Conn, database string) *Store {
	return &Store{conn: conn, database: database}
}

// Conn is the connection, for the few callers that stream rows themselves.
func (s *Store) Conn() driver.Conn { return s.conn }

// Database is the name of the database that all tables live in.
func (s *Store) Database() string { return s.database }

// SQL returns the text of queries/NAME.sql, with the texts of the queries that
// it names as /* query NAME */ in their places: what several statements read has
// one file. It panics on an unknown name: names are constants of this module and
// a test reads them all.
func SQL(name string) string {
	text, err := files.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("store: no query named %q", name))
	}
	return included.ReplaceAllStringFunc(string(text), func(mark string) string {
		return SQL(included.FindStringSubmatch(mark)[1])
	})
}

var included = regexp.MustCompile(`/\* query ([a-z_]+) \*/`)

// QueryNames lists the embedded queries, sorted.
func QueryNames() []string {
	entries, err := fs.ReadDir(files, "queries")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".sql"))
	}
	sort.Strings(names)
	return names
}

// Params are the values of a statement's {name:Type} parameters.
type Params map[string]any

// WithParams binds params to the statement that is sent with the context.
// Times become UTC text in the precision of DateTime64(6), lists become array
// literals; everything else is printed as ClickHouse reads it.
func WithParams(ctx context.Context, params Params) context.Context {
	bound := make(clickhouse.Parameters, len(params))
	for name, value := range params {
		bound[name] = formatParam(value)
	}
	return clickhouse.Context(ctx, clickhouse.WithParameters(bound))
}

func formatParam(value any) string {
	switch v := value.(type) {
	case string:
		return escapeParam(v)
	case time.Time:
		return formatTime(v)
	case []string:
		quoted := make([]string, len(v))
		for i, item := range v {
			quoted[i] = sqltext.String(item)
		}
		return "[" + strings.Join(quoted, ",") + "]"
	case []time.Time:
		quoted := make([]string, len(v))
		for i, item := range v {
			quoted[i] = "'" + formatTime(item) + "'"
		}
		return "[" + strings.Join(quoted, ",") + "]"
	case []uuid.UUID:
		quoted := make([]string, len(v))
		for i, item := range v {
			quoted[i] = "'" + item.String() + "'"
		}
		return "[" + strings.Join(quoted, ",") + "]"
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, sqltext.String(key)+":"+sqltext.String(v[key]))
		}
		return "{" + strings.Join(pairs, ",") + "}"
	case decimal.Decimal:
		return v.String()
	case fmt.Stringer:
		return escapeParam(v.String())
	case bool:
		return strconv.FormatBool(v)
	default:
		return fmt.Sprint(v)
	}
}

// formatTime writes an instant as ClickHouse reads it for DateTime('UTC') and,
// where there is a fraction, for DateTime64.
func formatTime(t time.Time) string {
	if t.Nanosecond() == 0 {
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	return t.UTC().Format("2006-01-02 15:04:05.000000")
}

var paramEscaper = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`, "\b", `\b`, "\f", `\f`)

// escapeParam writes a parameter's text the way the server's TSV-escaped form
// of a parameter expects it.
func escapeParam(text string) string { return paramEscaper.Replace(text) }

// Exec runs the named query, which returns no rows.
func (s *Store) Exec(ctx context.Context, name string, params Params) error {
	if err := s.conn.Exec(WithParams(ctx, params), SQL(name)); err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	return nil
}

// Rows runs the named query; the caller closes what it returns.
func (s *Store) Rows(ctx context.Context, name string, params Params) (driver.Rows, error) {
	rows, err := s.conn.Query(WithParams(ctx, params), SQL(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, describe(err))
	}
	return rows, nil
}

// Row runs the named query, which returns exactly one row, and scans it.
func (s *Store) Row(ctx context.Context, name string, params Params, dest ...any) error {
	rows, err := s.Rows(ctx, name, params)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return fmt.Errorf("%s: %w", name, describe(err))
		}
		return fmt.Errorf("%s: no row came back", name)
	}
	if err := rows.Scan(dest...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	return rows.Close()
}

// Collect runs the named query and turns each row into a value with scan.
func Collect[T any](ctx context.Context, s *Store, name string, params Params, scan func(driver.Rows) (T, error)) ([]T, error) {
	rows, err := s.Rows(ctx, name, params)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		value, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, value)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, describe(err))
	}
	return out, nil
}

type settingsKey struct{}

// Settings returns ctx with ClickHouse settings for the statements sent with
// it, on top of what the connection has and what ctx got here before; by itself
// the driver forgets those, and with them a job's time limit on the server.
func Settings(ctx context.Context, settings map[string]any) context.Context {
	all := map[string]any{}
	if before, ok := ctx.Value(settingsKey{}).(map[string]any); ok {
		maps.Copy(all, before)
	}
	maps.Copy(all, settings)
	return clickhouse.Context(context.WithValue(ctx, settingsKey{}, all), clickhouse.WithSettings(all))
}

// WithQueryID names the statement sent with the context, so that Kill can end it.
func WithQueryID(ctx context.Context, id string) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithQueryID(id))
}

// Kill ends the statement with this query id on the server and waits until it
// is gone. It is how an INSERT … SELECT of unknown outcome is made harmless.
func (s *Store) Kill(ctx context.Context, queryID string) error {
	return s.Exec(ctx, "kill_query", Params{"query_id": queryID})
}
