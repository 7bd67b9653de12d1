package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// page is a page of the reference that is being written.
type page struct{ bytes.Buffer }

func newPage(title, about string) *page {
	w := &page{}
	w.line("<!-- Made by `ratebatch docs reference`; a test compares it with the program. -->\n# %s\n\n%s", title, about)
	return w
}

func (w *page) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// row writes one row of a table; bars in the cells are escaped.
func (w *page) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(c)
	}
	w.line("| %s |", strings.Join(cells, " | "))
}

func (w *page) table(columns ...string) {
	w.line("")
	w.row(columns...)
	w.line("|%s", strings.Repeat("---|", len(columns)))
}

// referencePages are the pages of docs/reference by their file names.
func referencePages(root *cobra.Command) (map[string][]byte, error) {
	tables, err := tablesPage()
	if err != nil {
		return nil, err
	}
	api, err := apiPage()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"commands.md": commandsPage(root), "exit-codes.md": exitCodesPage(), "tables.md": tables,
		"records.md": recordsPage(), "files.md": filesPage(), "api.md": api,
	}, nil
}

func exitCodesPage() []byte {
	w := newPage("Exit codes", "Of every command, by the gravest thing that happened. Cron reads nothing else.\nSome commands answer a question by their code: `plan test` exits 1 where a case has another price, `focus check` 3 where a file breaks a rule,\n`doctor`, `reconcile`, `status --check` and `compare-cloudkitty` 20 where something is wrong.")
	w.table("code", "means", "what to do")
	for _, c := range ratebatch.ExitCodes() {
		w.row(fmt.Sprint(c.Code), c.Means, c.Action)
	}
	return w.Bytes()
}

func commandsPage(root *cobra.Command) []byte {
	w := newPage("Commands", "What `--help` says, in one place. Flags that can stand in the configuration or the environment as well are in\n[configuration.md](../configuration.md); the rest say what one run does (`--now`, `--month`, `--yes`, …) or belong to commands that nobody schedules\n(`explain`, `plan`, `reset`, …), and are given each time.\nExit codes: [exit-codes.md](exit-codes.md).")
	w.line("\n## Flags of all commands")
	w.flags(root.PersistentFlags())
	w.command(root)
	return w.Bytes()
}

func (w *page) command(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		w.line("\n## %s", sub.CommandPath())
		w.line("\n%s.", strings.TrimSuffix(sub.Short, "."))
		if long := strings.TrimSpace(strings.ReplaceAll(sub.Long, exitCodesHelp, "")); long != "" {
			w.line("\n%s", paragraphs(long))
		}
		if sub.Runnable() && !sub.HasSubCommands() || sub.Flags().HasFlags() {
			w.line("\n    %s", sub.UseLine())
		}
		if sub.Example != "" {
			w.line("\n```text\n%s\n```", unindent(sub.Example))
		}
		w.flags(sub.LocalNonPersistentFlags(), sub.PersistentFlags())
		w.command(sub)
	}
}

// paragraphs keeps what is indented in a help text as a block of its own.
func paragraphs(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			lines[i] = "  " + l
		} else {
			lines[i] = angles.Replace(l)
		}
	}
	return strings.Join(lines, "\n")
}

// angles keeps <…> of a text from being taken for HTML.
var angles = strings.NewReplacer("<", "&lt;", ">", "&gt;")

func unindent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func (w *page) flags(sets ...*pflag.FlagSet) {
	any := false
	for _, set := range sets {
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || f.Name == "version" {
				return
			}
			if !any {
				w.table("flag", "default", "what")
				any = true
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name += ", `-" + f.Shorthand + "`"
			}
			fallback := ""
			if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
				fallback = "`" + f.DefValue + "`"
			}
			w.row(name, fallback, angles.Replace(f.Usage))
		})
	}
}

func tablesPage() ([]byte, error) {
	tables, err := store.Reference()
	if err != nil {
		return nil, err
	}
	w := newPage("Tables", "All of them are in one database, made by `ratebatch migrate`. Read them with `ratebatch engine sql` or any client; to see\nwhat counts, read the view [rated](#rated) and never `rated_lines` itself. Only jobs write.\n\nTimes are UTC. Amounts and quantities are exact decimals: sum them as `Decimal256` (`sum(toDecimal256(price, 18))`).\n\nOn a cluster each table has its rows in `NAME_local`, and `NAME` shows all of them.")
	for _, t := range tables {
		w.line("\n## %s\n\n%s", t.Name, sentence(t.Kind+": "+t.Purpose))
		if t.Why != "" {
			w.line("\n%s", angles.Replace(sentence(t.Why)))
		}
		if t.Params != "" {
			w.line("\nParameters: %s", t.Params)
		}
		if len(t.Columns) > 0 {
			w.table("column", "type", "what")
			for _, c := range t.Columns {
				w.row("`"+c.Name+"`", "`"+c.Type+"`", c.Text)
			}
		}
		if t.OrderBy != "" {
			w.line("\nSorted by `%s`.", strings.Trim(t.OrderBy, "()"))
		}
	}
	return w.Bytes(), nil
}

// sentence begins a text with a capital letter.
func sentence(text string) string {
	return strings.ToUpper(text[:1]) + text[1:]
}

func recordsPage() []byte {
	common, ours, kinds := wire.Reference()
	w := newPage("Records", "What agents send to Kafka: one JSON object a record. How they are judged: [agent/wire](../../agent/wire/README.md).\nA record with any field that is not listed here is refused, and so is one that lacks a field of its kind.")
	fields := func(list []wire.FieldDoc) {
		w.table("field", "type", "what")
		for _, f := range list {
			w.row("`"+f.Name+"`", f.Type, f.Text)
		}
	}
	w.line("\n## In every record")
	fields(common)
	w.line("\n## In every record of our agent")
	fields(ours)
	for _, k := range kinds {
		w.line("\n## %s\n\nKafka key: %s.", k.Topic, k.Key)
		fields(k.Fields)
	}
	return w.Bytes()
}

func filesPage() []byte {
	w := newPage("Files of an export", "The columns of each dataset, the same in Parquet, Arrow and CSV. How files lie and change: [finance.md](../finance.md). The\nmanifest's form: `ratebatch export schema`.\n\nDECIMAL has "+fmt.Sprint(exporter.Precision)+" digits, "+fmt.Sprint(exporter.Scale)+" of them after the point. DATETIME is an instant in UTC, in microseconds.")
	for _, s := range exporter.Schemas() {
		title := s.Dataset
		if title == "focus" {
			title = "focus (FOCUS " + strings.Join(exporter.FocusVersions(), " and ") + ")"
		}
		w.line("\n## %s", title)
		w.table("column", "type", "null", "what")
		for _, f := range s.Fields {
			null, text := "", f.Doc
			if f.Nullable {
				null = "yes"
			}
			if f.Unit != "" {
				text += " (" + f.Unit + ")"
			}
			w.row("`"+f.Name+"`", string(f.Kind), null, text)
		}
	}
	return w.Bytes()
}

// apiPage lists the operations of openapi.yaml and the fields of what they take
// and answer.
func apiPage() ([]byte, error) {
	var spec struct {
		Info struct {
			Description string `yaml:"description"`
		} `yaml:"info"`
		Paths      yaml.MapSlice `yaml:"paths"`
		Components struct {
			Parameters map[string]yaml.MapSlice `yaml:"parameters"`
			Schemas    yaml.MapSlice            `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.UnmarshalWithOptions(web.OpenAPI, &spec, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	w := newPage("API", "Every operation of `ratebatch serve` below `/api/v1`, made from [openapi.yaml](../../jobs/web/openapi.yaml), which has all that\nprograms need. Who sees what, and CloudKitty's API: [api.md](../api.md).\n\n"+strings.TrimSpace(spec.Info.Description))
	for _, path := range spec.Paths {
		for _, operation := range asMap(path.Value) {
			method, o := fmt.Sprint(operation.Key), asMap(operation.Value)
			w.line("\n## %s %s\n\n%s", strings.ToUpper(method), path.Key, angles.Replace(str(get(o, "summary"))))
			if d := str(get(o, "description")); d != "" {
				w.line("\n%s", strings.TrimSpace(d))
			}
			first := true
			for _, item := range asList(get(o, "parameters")) {
				parameter := asMap(item)
				if ref := str(get(parameter, "$ref")); ref != "" {
					parameter = spec.Components.Parameters[last(ref)]
				}
				if first {
					w.table("parameter", "in", "type", "what")
					first = false
				}
				what := str(get(parameter, "description"))
				if fmt.Sprint(get(parameter, "required")) == "true" {
					what = strings.TrimSuffix("must be given; "+what, "; ")
				}
				w.row("`"+str(get(parameter, "name"))+"`", str(get(parameter, "in")), schemaText(asMap(get(parameter, "schema"))), what)
			}
			if body := bodyOf(get(o, "requestBody")); body != "" {
				w.line("\nTakes %s.", body)
			}
			for _, r := range asMap(get(o, "responses")) {
				if code := fmt.Sprint(r.Key); strings.HasPrefix(code, "2") {
					if answer := bodyOf(r.Value); answer != "" {
						w.line("\nAnswers %s.", answer)
					}
				}
			}
		}
	}
	w.line("\n## What goes over the wire")
	for _, s := range spec.Components.Schemas {
		w.line("\n### %s", s.Key)
		schema := asMap(s.Value)
		if d := str(get(schema, "description")); d != "" {
			w.line("\n%s", strings.TrimSpace(angles.Replace(d)))
		}
		properties := asMap(get(schema, "properties"))
		if len(properties) == 0 {
			w.line("\n%s", sentence(schemaText(schema)))
			continue
		}
		w.table("field", "type", "what")
		for _, p := range properties {
			field := asMap(p.Value)
			w.row(fmt.Sprintf("`%v`", p.Key), schemaText(field), str(get(field, "description")))
		}
	}
	return w.Bytes(), nil
}

// bodyOf names the schema of a request's or an answer's content.
func bodyOf(value any) string {
	var out []string
	for _, c := range asMap(get(asMap(value), "content")) {
		kind := schemaText(asMap(get(asMap(c.Value), "schema")))
		if name := fmt.Sprint(c.Key); name != "application/json" {
			kind = "`" + name + "`"
		}
		out = append(out, kind)
	}
	return strings.Join(out, " or ")
}

// schemaText says a JSON schema in a few words.
func schemaText(s yaml.MapSlice) string {
	if ref := str(get(s, "$ref")); ref != "" {
		return fmt.Sprintf("[%s](#%s)", last(ref), strings.ToLower(last(ref)))
	}
	for _, many := range []string{"oneOf", "anyOf", "allOf"} {
		if list := asList(get(s, many)); len(list) > 0 {
			var out []string
			for _, x := range list {
				out = append(out, schemaText(asMap(x)))
			}
			return strings.Join(out, map[bool]string{true: " and ", false: " or "}[many == "allOf"])
		}
	}
	if values := asList(get(s, "enum")); len(values) > 0 {
		var out []string
		for _, v := range values {
			out = append(out, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(out, ", ") + fallback(s)
	}
	kind := str(get(s, "type"))
	if list := asList(get(s, "type")); len(list) > 0 {
		var out []string
		for _, x := range list {
			out = append(out, fmt.Sprint(x))
		}
		kind = strings.Join(out, " or ")
	}
	if kind == "" {
		kind = "anything"
	}
	if items := asMap(get(s, "items")); len(items) > 0 {
		kind = "list of " + schemaText(items)
	}
	if values := asMap(get(s, "additionalProperties")); len(values) > 0 {
		kind = "object of " + schemaText(values)
	}
	if format := str(get(s, "format")); format != "" {
		kind += ", " + format
	}
	if low, high := get(s, "minimum"), get(s, "maximum"); low != nil && high != nil {
		kind += fmt.Sprintf(", %v to %v", low, high)
	}
	return kind + fallback(s)
}

func fallback(s yaml.MapSlice) string {
	if v := get(s, "default"); v != nil {
		return fmt.Sprintf(" (`%v`)", v)
	}
	return ""
}

func last(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

func get(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func asMap(v any) yaml.MapSlice {
	m, _ := v.(yaml.MapSlice)
	return m
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

func str(v any) string {
	s, _ := v.(string)
	return s
}
