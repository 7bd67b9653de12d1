package sqlshell

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Formats are how results can be printed.
var Formats = []string{"table", "vertical", "json", "jsonl", "csv", "tsv"}

// printer writes one result, row by row.
type printer interface {
	row(values []any) error
	end() error
}

func newPrinter(w io.Writer, format string, rows driver.Rows) printer {
	columns := rows.ColumnTypes()
	switch format {
	case "vertical":
		return &vertical{w: w, columns: rows.Columns()}
	case "json":
		return &jsonArray{w: w, columns: rows.Columns()}
	case "jsonl":
		return &jsonLines{w: w, columns: rows.Columns()}
	case "csv":
		return newSeparated(w, rows.Columns(), ',')
	case "tsv":
		return &tabbed{w: w, columns: rows.Columns()}
	default:
		return &table{w: w, columns: rows.Columns(), right: numeric(columns)}
	}
}

func numeric(columns []driver.ColumnType) []bool {
	right := make([]bool, len(columns))
	for i, c := range columns {
		name := strings.TrimPrefix(strings.TrimPrefix(c.DatabaseTypeName(), "LowCardinality("), "Nullable(")
		for _, p := range []string{"UInt", "Int", "Float", "Decimal"} {
			right[i] = right[i] || strings.HasPrefix(name, p)
		}
	}
	return right
}

// printRows sends a result to a printer and counts its rows.
func printRows(rows driver.Rows, p printer) (n int, err error) {
	types := rows.ColumnTypes()
	targets := make([]any, len(types))
	values := make([]any, len(types))
	for rows.Next() {
		for i, t := range types {
			targets[i] = reflect.New(t.ScanType()).Interface()
		}
		if err := rows.Scan(targets...); err != nil {
			return n, err
		}
		for i, t := range targets {
			values[i] = reflect.ValueOf(t).Elem().Interface()
		}
		if err := p.row(values); err != nil {
			return n, err
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	return n, p.end()
}

// text is a value for people and for CSV; NULL is what the engine prints.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return "NULL"
	case string:
		return x
	case time.Time:
		return timeText(x)
	case fmt.Stringer:
		if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && r.IsNil() {
			return "NULL"
		}
		return x.String()
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(x), 'g', -1, 32)
	}
	r := reflect.ValueOf(v)
	switch r.Kind() { //nolint:exhaustive // the rest prints as it is
	case reflect.Pointer:
		if r.IsNil() {
			return "NULL"
		}
		return text(r.Elem().Interface())
	case reflect.Slice, reflect.Array:
		parts := make([]string, r.Len())
		for i := range parts {
			parts[i] = quoted(r.Index(i).Interface())
		}
		return "[" + strings.Join(parts, ",") + "]"
	case reflect.Map:
		parts := make([]string, 0, r.Len())
		for _, k := range r.MapKeys() {
			parts = append(parts, quoted(k.Interface())+":"+quoted(r.MapIndex(k).Interface()))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return fmt.Sprint(v)
}

func quoted(v any) string {
	if s, ok := v.(string); ok {
		return sqltext.String(s)
	}
	return text(v)
}

func timeText(t time.Time) string {
	switch {
	case t.Nanosecond() != 0:
		return t.UTC().Format("2006-01-02 15:04:05.999999999")
	default:
		return t.UTC().Format("2006-01-02 15:04:05")
	}
}

// jsonValue keeps what JSON has and makes text of the rest. Decimals become
// strings, because many readers of JSON would make floats of them.
func jsonValue(v any) any {
	switch x := v.(type) {
	case nil, bool, string, int8, int16, int32, int64, int, uint8, uint16, uint32, uint64, uint:
		return v
	case float32, float64:
		if _, err := json.Marshal(v); err != nil { // NaN, infinity
			return text(v)
		}
		return v
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case fmt.Stringer:
		if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && r.IsNil() {
			return nil
		}
		return x.String()
	}
	r := reflect.ValueOf(v)
	switch r.Kind() { //nolint:exhaustive // the rest prints as it is
	case reflect.Pointer:
		if r.IsNil() {
			return nil
		}
		return jsonValue(r.Elem().Interface())
	case reflect.Slice, reflect.Array:
		out := make([]any, r.Len())
		for i := range out {
			out[i] = jsonValue(r.Index(i).Interface())
		}
		return out
	case reflect.Map:
		out := make(map[string]any, r.Len())
		for _, k := range r.MapKeys() {
			out[text(k.Interface())] = jsonValue(r.MapIndex(k).Interface())
		}
		return out
	}
	return text(v)
}

// visible keeps a cell on its line: control characters would break the table,
// or do things to a terminal.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError:
			b.WriteRune('\uFFFD')
		case r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0:
			b.WriteString(`\x` + hex.EncodeToString([]byte{byte(r)}))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// table lines columns up. It looks at the first rows for the widths; a longer
// result streams on with those.
type table struct {
	w       io.Writer
	columns []string
	right   []bool
	widths  []int
	held    [][]string
	begun   bool
}

const tableLook = 1000

func (t *table) row(values []any) error {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = visible(text(v))
	}
	if t.begun {
		return t.line(cells, t.right)
	}
	if t.held = append(t.held, cells); len(t.held) >= tableLook {
		return t.begin()
	}
	return nil
}

func (t *table) begin() error {
	t.begun = true
	t.widths = make([]int, len(t.columns))
	for _, cells := range append(t.held, t.columns) {
		for i, c := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
		}
	}
	if err := t.line(t.columns, t.right); err != nil {
		return err
	}
	rule := make([]string, len(t.widths))
	for i, n := range t.widths {
		rule[i] = strings.Repeat("-", n)
	}
	if err := t.line(rule, t.right); err != nil {
		return err
	}
	for _, cells := range t.held {
		if err := t.line(cells, t.right); err != nil {
			return err
		}
	}
	t.held = nil
	return nil
}

func (t *table) line(cells []string, right []bool) error {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(c)))
		switch {
		case right[i]:
			b.WriteString(pad + c)
		case i == len(cells)-1:
			b.WriteString(c)
		default:
			b.WriteString(c + pad)
		}
	}
	b.WriteByte('\n')
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *table) end() error {
	if t.begun || len(t.columns) == 0 {
		return nil
	}
	return t.begin()
}

// vertical gives each value a line, for wide rows.
type vertical struct {
	w       io.Writer
	columns []string
	n       int
}

func (v *vertical) row(values []any) error {
	v.n++
	width := 0
	for _, c := range v.columns {
		width = max(width, utf8.RuneCountInString(c))
	}
	if _, err := fmt.Fprintf(v.w, "Row %d:\n", v.n); err != nil {
		return err
	}
	for i, c := range v.columns {
		if _, err := fmt.Fprintf(v.w, "%s:%s %s\n", c, strings.Repeat(" ", width-utf8.RuneCountInString(c)), visible(text(values[i]))); err != nil {
			return err
		}
	}
	_, err := io.WriteString(v.w, "\n")
	return err
}

func (v *vertical) end() error { return nil }

func object(columns []string, values []any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	put := func(v any) error {
		if err := encoder.Encode(v); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // Encode ends with a line end
		return nil
	}
	b.WriteByte('{')
	for i, c := range columns { // in the result's order, which a map would lose
		if i > 0 {
			b.WriteString(", ")
		}
		if err := put(c); err != nil {
			return nil, err
		}
		b.WriteString(": ")
		if err := put(jsonValue(values[i])); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// jsonArray is one JSON document: an array of objects.
type jsonArray struct {
	w       io.Writer
	columns []string
	n       int
}

func (j *jsonArray) row(values []any) error {
	o, err := object(j.columns, values)
	if err != nil {
		return err
	}
	lead := ",\n  "
	if j.n == 0 {
		lead = "[\n  "
	}
	j.n++
	_, err = fmt.Fprintf(j.w, "%s%s", lead, o)
	return err
}

func (j *jsonArray) end() error {
	tail := "\n]\n"
	if j.n == 0 {
		tail = "[]\n"
	}
	_, err := io.WriteString(j.w, tail)
	return err
}

// jsonLines is an object per line.
type jsonLines struct {
	w       io.Writer
	columns []string
}

func (j *jsonLines) row(values []any) error {
	o, err := object(j.columns, values)
	if err != nil {
		return err
	}
	_, err = j.w.Write(append(o, '\n'))
	return err
}

func (j *jsonLines) end() error { return nil }

// separated is CSV with a header; NULL is an empty field.
type separated struct {
	w      *csv.Writer
	header []string
}

func newSeparated(w io.Writer, columns []string, comma rune) *separated {
	c := csv.NewWriter(w)
	c.Comma = comma
	return &separated{c, columns}
}

func (s *separated) head() error {
	if s.header == nil {
		return nil
	}
	header := s.header
	s.header = nil
	return s.w.Write(header)
}

func (s *separated) row(values []any) error {
	if err := s.head(); err != nil {
		return err
	}
	cells := make([]string, len(values))
	for i, v := range values {
		if jsonValue(v) != nil {
			cells[i] = text(v)
		}
	}
	return s.w.Write(cells)
}

func (s *separated) end() error {
	if err := s.head(); err != nil {
		return err
	}
	s.w.Flush()
	return s.w.Error()
}

// tabbed is tab-separated with ClickHouse's escapes and a header.
type tabbed struct {
	w       io.Writer
	columns []string
	begun   bool
}

var tabEscapes = strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`)

func (t *tabbed) line(cells []string) error {
	_, err := io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
	return err
}

func (t *tabbed) row(values []any) error {
	if !t.begun {
		t.begun = true
		if err := t.line(t.columns); err != nil {
			return err
		}
	}
	cells := make([]string, len(values))
	for i, v := range values {
		if cells[i] = `\N`; jsonValue(v) != nil {
			cells[i] = tabEscapes.Replace(text(v))
		}
	}
	return t.line(cells)
}

func (t *tabbed) end() error {
	if t.begun || len(t.columns) == 0 {
		return nil
	}
	return t.line(t.columns)
}
