package plan

import (
	"fmt"
	"strings"
)

// Diff says in text what changes from a to b, one rule a line: "-" is gone,
// "+" is new, "~" has changed. It is empty if nothing that can change a price
// has changed. Moved rules are not listed unless their order can matter.
func Diff(a, b *Plan) string {
	var out strings.Builder
	for _, x := range []struct{ what, a, b string }{
		{"currency", a.Currency, b.Currency},
		{"description", a.Description, b.Description},
		{"skip", a.Skip, b.Skip},
	} {
		if x.a != x.b {
			fmt.Fprintf(&out, "~ %s: %q -> %q\n", x.what, x.a, x.b)
		}
	}
	diffLists(&out, entries(a), entries(b))
	if before, after := fieldOrder(a), fieldOrder(b); before != after && out.Len() == 0 {
		// Only the order is left, and it decides between thresholds of equal level.
		fmt.Fprintf(&out, "~ order of fields: %s -> %s\n", before, after)
	}
	return out.String()
}

// entry is one line of a plan: what it is found by and what it says.
type entry struct{ key, body string }

func entries(p *Plan) []entry {
	var out []entry
	for _, g := range p.Groups {
		out = append(out, entry{"group " + g, ""})
	}
	for i := range p.Modules {
		m := &p.Modules[i]
		key := "module " + string(m.Module)
		if m.Scope != "" {
			key += ", scope " + m.Scope
		}
		out = append(out, entry{key, fmt.Sprintf("enabled %v, priority %d", m.Enabled == nil || *m.Enabled, m.Priority)})
	}
	for i := range p.Services {
		s := &p.Services[i]
		body := ""
		if s.Skip != "" {
			body = "skip " + s.Skip
		}
		out = append(out, entry{"service " + s.Name, body})
		for j := range s.Fields {
			out = append(out, entry{"service " + s.Name + ", field " + s.Fields[j].Name, ""})
		}
	}
	for r := range p.Rules() {
		out = append(out, entry{r.describe(""), strings.TrimSpace(fmt.Sprintf("%s %s%s", r.Type, r.Cost, validity(FormatTime(r.Start), FormatTime(r.End))))})
	}
	out = append(out, tierEntries(p)...)
	for i := range p.Expressions {
		e := &p.Expressions[i]
		key := "expression " + e.ID
		body := e.Price
		if e.When != "" {
			body += " when " + e.When
		}
		if e.Metric != "" {
			body += ", metric " + e.Metric
		}
		if e.Scope != "" {
			body += ", scope " + e.Scope
		}
		out = append(out, entry{key, body + validity(FormatTime(e.Start), FormatTime(e.End))})
	}
	return out
}

func validity(start, end string) string {
	switch {
	case start != "" && end != "":
		return " from " + start + " to " + end
	case start != "":
		return " from " + start
	case end != "":
		return " to " + end
	}
	return ""
}

// diffLists compares entry by entry. Entries of one key (a price that changes
// with time) are compared as lists.
func diffLists(out *strings.Builder, a, b []entry) {
	bodies := func(list []entry) map[string][]string {
		m := map[string][]string{}
		for _, e := range list {
			m[e.key] = append(m[e.key], e.body)
		}
		return m
	}
	before, after := bodies(a), bodies(b)
	done := map[string]bool{}
	line := func(sign string, e entry) {
		fmt.Fprintf(out, "%s %s", sign, e.key)
		if e.body != "" {
			fmt.Fprintf(out, ": %s", e.body)
		}
		out.WriteByte('\n')
	}
	for _, e := range a {
		if done[e.key] {
			continue
		}
		done[e.key] = true
		old, now := without(before[e.key], after[e.key]), without(after[e.key], before[e.key])
		if len(old) == 1 && len(now) == 1 {
			fmt.Fprintf(out, "~ %s: %s -> %s\n", e.key, nothingAs(old[0]), nothingAs(now[0]))
			continue
		}
		for _, body := range old {
			line("-", entry{e.key, body})
		}
		for _, body := range now {
			line("+", entry{e.key, body})
		}
	}
	for _, e := range b {
		if !done[e.key] {
			line("+", e)
		}
	}
}

func nothingAs(body string) string {
	if body == "" {
		return "(none)"
	}
	return body
}

// without gives what list has beyond other, counting repetitions.
func without(list, other []string) []string {
	have := map[string]int{}
	for _, x := range other {
		have[x]++
	}
	var out []string
	for _, x := range list {
		if have[x] > 0 {
			have[x]--
			continue
		}
		out = append(out, x)
	}
	return out
}

func fieldOrder(p *Plan) string {
	var names []string
	for i := range p.Services {
		for j := range p.Services[i].Fields {
			names = append(names, p.Services[i].Name+"."+p.Services[i].Fields[j].Name)
		}
	}
	return strings.Join(names, ", ")
}
