package store

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// FoundLine is a rated line that counts, with the attempt that wrote it.
type FoundLine struct {
	Line
	End   time.Time
	RunID uuid.UUID
}

// LineFilter narrows FindLines to a window of one scope; an empty metric or
// resource means any.
type LineFilter struct {
	CostWindow
	Scope, Metric, Resource string
}

// FindLines hands each line of the filter to found until it returns false.
func (s *Store) FindLines(ctx context.Context, f LineFilter, found func(FoundLine) bool) error {
	p := f.params()
	p["scope"], p["metric"], p["resource"] = f.Scope, f.Metric, f.Resource
	rows, err := s.Rows(ctx, "find_lines", p)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var l FoundLine
		if err := rows.Scan(&l.Region, &l.Scope, &l.Begin, &l.End, &l.Metric, &l.Resource, &l.Attributes, &l.Unit, &l.Qty, &l.Price, &l.Rule, &l.Bucket, &l.Part, &l.Revision, &l.RunID); err != nil {
			return err
		}
		if !found(l) {
			return nil
		}
	}
	return rows.Err()
}

// ScopesWithLines lists the scopes that have rated lines in [from, to).
func (s *Store) ScopesWithLines(ctx context.Context, from, to time.Time) ([]string, error) {
	return Collect(ctx, s, "scopes_with_lines", Params{"from": from, "to": to}, func(rows driver.Rows) (string, error) {
		var scope string
		err := rows.Scan(&scope)
		return scope, err
	})
}

// Record is one row of a table as text, in the order of its columns.
type Record struct {
	Columns []string `json:"columns"`
	Values  []string `json:"values"`
}

// Records runs a SELECT that the program wrote and returns its rows as text.
func (s *Store) Records(ctx context.Context, text string, params Params) ([]Record, error) {
	rows, err := s.conn.Query(WithParams(ctx, params), text)
	if err != nil {
		return nil, describe(err)
	}
	defer rows.Close()
	columns := rows.Columns()
	dest := make([]any, len(columns))
	for i, t := range rows.ColumnTypes() {
		dest[i] = reflect.New(t.ScanType()).Interface()
	}
	var out []Record
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		r := Record{Columns: columns, Values: make([]string, len(columns))}
		for i := range dest {
			r.Values[i] = recordText(reflect.ValueOf(dest[i]).Elem())
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func recordText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "null"
		}
		return recordText(v.Elem())
	}
	if t, ok := v.Interface().(time.Time); ok {
		return t.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}
