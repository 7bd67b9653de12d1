package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// YAML writes the plan as a file that Parse reads back to an equal plan. Costs
// and levels are quoted, so that no other YAML reader makes floats of them.
func (p *Plan) YAML() []byte {
	w := &writer{}
	w.line(0, "version: %d", max(1, p.Version))
	w.text(0, "currency", p.Currency)
	w.text(0, "description", p.Description)
	w.text(0, "skip", p.Skip)
	if len(p.Groups) > 0 {
		w.line(0, "groups:")
		for _, g := range p.Groups {
			w.line(1, "- %s", scalar(g))
		}
	}
	if len(p.Modules) > 0 {
		w.line(0, "modules:")
		for i := range p.Modules {
			m := &p.Modules[i]
			item := "{module: " + string(m.Module)
			if m.Scope != "" {
				item += ", scope: " + scalar(m.Scope)
			}
			if m.Enabled != nil {
				item += ", enabled: " + strconv.FormatBool(*m.Enabled)
			}
			if m.Priority != 0 {
				item += ", priority: " + strconv.Itoa(m.Priority)
			}
			w.line(1, "- %s}", item)
		}
	}
	if len(p.Services) > 0 {
		w.line(0, "services:")
	}
	for i := range p.Services {
		s := &p.Services[i]
		w.line(1, "- name: %s", scalar(s.Name))
		w.text(2, "description", s.Description)
		w.text(2, "skip", s.Skip)
		w.rules(2, s.Mappings, s.Thresholds)
		if len(s.Fields) > 0 {
			w.line(2, "fields:")
		}
		for j := range s.Fields {
			f := &s.Fields[j]
			w.line(3, "- name: %s", scalar(f.Name))
			w.text(4, "description", f.Description)
			w.rules(4, f.Mappings, f.Thresholds)
		}
		w.tiers(s.Tiers)
	}
	if len(p.Expressions) > 0 {
		w.line(0, "expressions:")
	}
	for i := range p.Expressions {
		e := &p.Expressions[i]
		w.line(1, "- id: %s", scalar(e.ID))
		w.text(2, "metric", e.Metric)
		w.text(2, "scope", e.Scope)
		w.text(2, "when", e.When)
		w.text(2, "price", e.Price)
		w.text(2, "start", FormatTime(e.Start))
		w.text(2, "end", FormatTime(e.End))
		w.text(2, "description", e.Description)
	}
	w.charges(p)
	return []byte(w.String())
}

type writer struct{ strings.Builder }

func (w *writer) line(depth int, format string, args ...any) {
	w.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *writer) text(depth int, key, value string) {
	if value != "" {
		w.line(depth, "%s: %s", key, scalar(value))
	}
}

func (w *writer) rules(depth int, mappings []Mapping, thresholds []Threshold) {
	if len(mappings) > 0 {
		w.line(depth, "mappings:")
	}
	for i := range mappings {
		m := &mappings[i]
		item := ""
		if m.Value != "" {
			item = "value: " + scalar(m.Value) + ", "
		}
		item += fmt.Sprintf("cost: %q", m.Cost)
		w.line(depth+1, "- {%s%s}", item, tail(m.ID, m.Type, m.Group, m.Scope, m.Start, m.End, m.Description))
	}
	if len(thresholds) > 0 {
		w.line(depth, "thresholds:")
	}
	for i := range thresholds {
		t := &thresholds[i]
		w.line(depth+1, "- {level: %q, cost: %q%s}", t.Level, t.Cost, tail(t.ID, t.Type, t.Group, t.Scope, t.Start, t.End, t.Description))
	}
}

func tail(id string, typ Type, group, scope string, start, end time.Time, description string) string {
	out := ""
	add := func(key, value string) {
		if value != "" {
			out += ", " + key + ": " + scalar(value)
		}
	}
	if typ != Flat {
		add("type", string(typ))
	}
	add("group", group)
	add("scope", scope)
	add("start", FormatTime(start))
	add("end", FormatTime(end))
	add("id", id)
	add("description", description)
	return out
}

// FormatTime writes when a rule begins or ends to hold; an open end is empty.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// plainText is what needs no quotation marks anywhere in YAML and cannot be
// taken for a number, a truth or nothing.
var plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

func scalar(s string) string {
	if plainText.MatchString(s) {
		switch strings.ToLower(s) {
		case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		default:
			return s
		}
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
