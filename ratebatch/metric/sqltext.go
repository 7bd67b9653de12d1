package metric

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// column gives the name that a column of the table has inside the query.
func (q *query) column(name string) string {
	i := slices.Index(q.used, name)
	if i < 0 {
		i = len(q.used)
		q.used = append(q.used, name)
	}
	return fmt.Sprintf("c_%d", i)
}

func (q *query) kind(name string) (column, bool) {
	if q.m.tier == nil {
		return column{}, false
	}
	c, ok := q.m.tier.columns[name]
	return c, ok
}

// nilUUID is what the tiers hold where a network is not known.
const nilUUID = "00000000-0000-0000-0000-000000000000"

// plainText gives a column as String, or LowCardinality(String) where it is
// stored so; empty where it has no value.
func (q *query) plainText(name string) string {
	c := q.column(name)
	kind, ok := q.kind(name)
	switch {
	case !ok:
		return fmt.Sprintf("CAST(ifNull(toString(%s), '') AS String)", c)
	case kind.kind == lowText, kind.kind == text:
		return c
	case kind.kind == uuid:
		return fmt.Sprintf("if(%s = toUUID('%s'), '', toString(%[1]s))", c, nilUUID)
	}
	return fmt.Sprintf("toString(%s)", c)
}

// text is plainText, computed early for a table of the operator's, so that
// rows are grouped by what is shown of them.
func (q *query) text(name string) string {
	if q.m.tier != nil {
		return q.plainText(name)
	}
	i := slices.Index(q.texts, name)
	if i < 0 {
		i = len(q.texts)
		q.texts = append(q.texts, name)
		q.Derived = append(q.Derived, fmt.Sprintf("%s AS x_%d", q.plainText(name), i))
	}
	return fmt.Sprintf("x_%d", i)
}

// low gives a column as LowCardinality(String).
func (q *query) low(name string, text func(string) string) string {
	if kind, ok := q.kind(name); ok && kind.kind == lowText {
		return q.column(name)
	}
	return fmt.Sprintf("toLowCardinality(%s)", text(name))
}

func (q *query) resource() string {
	if q.m.tier == nil {
		if !q.hasResource {
			q.hasResource = true
			q.Derived = append(q.Derived, q.joined(q.plainText)+" AS r_")
		}
		return "r_"
	}
	return q.joined(func(name string) string {
		if kind, _ := q.kind(name); kind.kind == uuid {
			return fmt.Sprintf("toString(%s)", q.column(name)) // a resource is never absent
		}
		return q.plainText(name)
	})
}

func (q *query) joined(text func(string) string) string {
	parts := make([]string, len(q.m.Resource))
	for i, name := range q.m.Resource {
		parts[i] = text(name)
	}
	if len(parts) == 1 {
		return fmt.Sprintf("CAST(%s AS String)", parts[0])
	}
	return fmt.Sprintf("CAST(concat(%s) AS String)", strings.Join(parts, ", '/', "))
}

// group lists what tells usage rows apart.
func (q *query) group() []string {
	var out []string
	for _, a := range q.m.Attributes() {
		if q.m.tier != nil {
			out = append(out, q.column(a.Column))
		} else {
			out = append(out, q.text(a.Column))
		}
	}
	if q.m.tier != nil {
		for _, name := range q.m.Resource {
			out = append(out, q.column(name))
		}
	} else {
		out = append(out, q.resource())
	}
	slices.Sort(out)
	return append([]string{"region", "scope", "begin"}, slices.Compact(out)...)
}

// rowOrder lists what puts rows in order of time and key.
func (q *query) rowOrder() []string {
	out := []string{q.column(q.m.Time)}
	for _, name := range q.m.RowKey {
		if q.m.tier != nil {
			out = append(out, q.column(name))
		} else {
			out = append(out, q.text(name))
		}
	}
	return out
}

// attributes builds the map from constant names of type String and casts it:
// names of type LowCardinality make map() ten times as slow.
func (q *query) attributes() string {
	const typ = "Map(LowCardinality(String), String)"
	all := q.m.Attributes()
	if len(all) == 0 {
		return fmt.Sprintf("CAST(map() AS %s)", typ)
	}
	parts := make([]string, len(all))
	for i, a := range all {
		parts[i] = fmt.Sprintf("%s, %s", sqltext.String(a.Name), q.text(a.Column))
	}
	return fmt.Sprintf("CAST(mapFilter((k_, v_) -> v_ != '', map(%s)) AS %s)", strings.Join(parts, ", "), typ)
}

func (q *query) fields(names []string) {
	all := q.m.Attributes()
	for _, name := range names {
		i := slices.IndexFunc(all, func(a Attribute) bool { return a.Name == name })
		switch {
		case i >= 0:
			q.Fields = append(q.Fields, q.low(all[i].Column, q.text))
		case name == q.m.ScopeKey:
			q.Fields = append(q.Fields, "scope")
		case calendar[name] != "":
			q.Fields = append(q.Fields, "toLowCardinality("+calendar[name]+")")
		default:
			q.Fields = append(q.Fields, "CAST('' AS LowCardinality(String))")
		}
	}
}

// calendar has the attributes that CloudKitty's collectors add to every data
// point, from the period's begin; here always in UTC.
var calendar = map[string]string{
	"week_of_the_year": "leftPad(toString(toWeek(begin, 0)), 2, '0')", // Python's %U: weeks begin on Sunday
	"day_of_the_year":  "toString(toDayOfYear(begin))",
	"month":            "toString(toMonth(begin))",
	"year":             "toString(toYear(begin))",
}

// WithImplied adds to a usage row's attributes those that rules may look at
// although no column holds them: the scope under its key, and CloudKitty's
// calendar attributes. A name that the metric gives to a column is that column,
// where it is empty too. UsageSQL gives the same as fields.
func (m *Metric) WithImplied(attributes map[string]string, scope string, begin time.Time) map[string]string {
	begin = begin.UTC()
	sunday := (begin.YearDay() - int(begin.Weekday()) + 6) / 7
	out := map[string]string{
		m.ScopeKey: scope, "week_of_the_year": fmt.Sprintf("%02d", sunday), "day_of_the_year": fmt.Sprint(begin.YearDay()),
		"month": fmt.Sprint(int(begin.Month())), "year": fmt.Sprint(begin.Year()),
	}
	for _, a := range m.Attributes() {
		delete(out, a.Name)
	}
	maps.Copy(out, attributes)
	return out
}

//go:embed queries/*.sql
var queries embed.FS

var templates = parseTemplates()

// parseTemplates reads the queries. Their headers are for readers of the files
// and are not sent to the server.
func parseTemplates() *template.Template {
	t := template.New("").Funcs(template.FuncMap{
		"join": func(list []string) string { return strings.Join(list, ", ") },
	})
	for _, name := range []string{"collected", "usage"} {
		data, err := queries.ReadFile("queries/" + name + ".sql")
		if err != nil {
			panic(err) // the file is embedded
		}
		var body strings.Builder
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "--") {
				body.WriteString(line)
			}
		}
		text := strings.TrimSpace(body.String())
		if name == "collected" {
			template.Must(t.New("parts").Parse(text))
		} else {
			template.Must(t.New(name).Parse(text))
		}
	}
	return t
}

func render(name string, q *query) (string, error) {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, q); err != nil {
		return "", fmt.Errorf("metric %s: query %s: %w", q.m.Name, name, err)
	}
	return b.String(), nil
}
