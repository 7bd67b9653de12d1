package store

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed columns.txt
var columnTexts string

// TableDoc describes a table or view of the schema, as its migrations say it.
type TableDoc struct {
	Name    string
	Kind    string      // table, view or materialized view
	Purpose string      // one sentence or two
	Why     string      // may be empty
	Params  string      // of a parameterized view; may be empty
	Columns []ColumnDoc // of tables, in the server's order; views have none
	OrderBy string      // sort key of a table
}

// ColumnDoc is one column of a table.
type ColumnDoc struct{ Name, Type, Text string }

var (
	createRE  = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?(MATERIALIZED VIEW|VIEW|TABLE)`)
	columnRE  = regexp.MustCompile(`(?m)^    ([a-z_0-9]+) (.*)$`)
	addedRE   = regexp.MustCompile(`ADD COLUMN IF NOT EXISTS ([a-z_]+) (.+) AFTER ([a-z_]+)`)
	modifyRE  = regexp.MustCompile(`MODIFY COLUMN ([a-z_]+) (.+)`)
	commentRE = regexp.MustCompile(` COMMENT '([^']*)'`)
	orderRE   = regexp.MustCompile(`(?m)^ORDER BY (.*)$`)
	// typeEnd is where a column's type ends and its default, codec or comment begins.
	typeEnd = regexp.MustCompile(` (?:DEFAULT|CODEC|COMMENT|MATERIALIZED|ALIAS)\b`)
)

// Reference describes every table and view of the schema on a single server, in
// the order of their migrations. It reads the migrations' text and needs no
// server; a test compares it with system.columns.
func Reference() ([]TableDoc, error) {
	migrations, err := Migrations(MigrateOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(migrations, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	texts := columnMeanings()
	var out []TableDoc
	for _, m := range migrations {
		raw, err := files.ReadFile("schema/" + m.Name + ".sql")
		if err != nil {
			return nil, err
		}
		name := tableHeader.FindStringSubmatch(string(raw))[1]
		at := slices.IndexFunc(out, func(t TableDoc) bool { return t.Name == name })
		statement := m.Statements[0]
		if create := createRE.FindStringSubmatch(statement); create != nil {
			t := TableDoc{Name: name, Kind: strings.ToLower(create[1]), Purpose: header(string(raw), "purpose"), Why: header(string(raw), "why"), Params: header(string(raw), "params")}
			if t.Kind == "table" {
				t.columns(statement, texts)
			}
			if at >= 0 { // made anew by a later migration
				out[at] = t
			} else {
				out = append(out, t)
			}
			continue
		}
		if at < 0 {
			return nil, fmt.Errorf("schema/%s: alters %s, which no migration before it makes", m.Name, name)
		}
		out[at].alter(statement, texts)
	}
	return out, nil
}

func (t *TableDoc) columns(statement string, texts map[string]string) {
	body, rest, _ := strings.Cut(statement, "\n)\n")
	for _, m := range columnRE.FindAllStringSubmatch(body, -1) {
		t.Columns = append(t.Columns, t.column(m[1], strings.TrimSuffix(m[2], ","), texts))
	}
	if m := orderRE.FindStringSubmatch(rest); m != nil {
		t.OrderBy = m[1]
	}
}

func (t *TableDoc) column(name, rest string, texts map[string]string) ColumnDoc {
	c := ColumnDoc{Name: name, Type: rest}
	if at := typeEnd.FindStringIndex(rest); at != nil {
		c.Type = rest[:at[0]]
	}
	for _, text := range []string{texts[t.Name+"."+name], texts[name]} {
		if c.Text == "" {
			c.Text = text
		}
	}
	if m := commentRE.FindStringSubmatch(rest); m != nil {
		c.Text = m[1]
	}
	return c
}

func (t *TableDoc) alter(statement string, texts map[string]string) {
	if m := addedRE.FindStringSubmatch(statement); m != nil && !slices.ContainsFunc(t.Columns, func(c ColumnDoc) bool { return c.Name == m[1] }) {
		at := slices.IndexFunc(t.Columns, func(c ColumnDoc) bool { return c.Name == m[3] })
		t.Columns = slices.Insert(t.Columns, at+1, t.column(m[1], m[2], texts))
	}
	if m := modifyRE.FindStringSubmatch(statement); m != nil {
		for i, c := range t.Columns {
			if c.Name == m[1] {
				t.Columns[i] = t.column(m[1], m[2], texts)
			}
		}
	}
}

// columnMeanings reads columns.txt: "column" or "table.column" to its text.
func columnMeanings() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(columnTexts) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			out[name] = text
		}
	}
	return out
}

// header reads one entry of a file's header, with its continued lines.
func header(text, name string) string {
	var out []string
	inside := false
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "--")
		if !ok {
			break
		}
		switch {
		case strings.HasPrefix(comment, " "+name+":"):
			inside = true
			out = append(out, strings.TrimSpace(strings.TrimPrefix(comment, " "+name+":")))
		case inside && strings.HasPrefix(comment, "     "):
			out = append(out, strings.TrimSpace(comment))
		default:
			inside = false
		}
	}
	return strings.Join(out, " ")
}

// TableColumns lists the columns of a table, in its order; a name may have its
// database in front. None if there is no such table.
func (s *Store) TableColumns(ctx context.Context, table string) ([]string, error) {
	database, name, qualified := strings.Cut(table, ".")
	if !qualified {
		database, name = "", table
	}
	return Collect(ctx, s, "table_columns", Params{"database": database, "table": name}, func(rows driver.Rows) (string, error) {
		var column string
		err := rows.Scan(&column)
		return column, err
	})
}
