package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Change is one thing that differs between two plans.
type Change struct {
	Mark string // "-" is gone, "+" is new, "~" has changed
	Text string // one line
}

// Diff says in text what changes from a to b, one rule a line with its mark. It is
// empty if nothing that can change a price has changed.
func Diff(a, b *Plan) string {
	var out strings.Builder
	for _, c := range Changes(a, b) {
		fmt.Fprintf(&out, "%s %s\n", c.Mark, c.Text)
	}
	return out.String()
}

// Changes lists what changes from a to b. Moved rules are not listed unless their
// order can matter: that of fields decides between thresholds of equal level, and
// expressions apply one after the other.
func Changes(a, b *Plan) []Change {
	var out []Change
	for _, x := range []struct{ what, a, b string }{
		{"currency", a.Currency, b.Currency},
		{"description", a.Description, b.Description},
		{"skip", a.Skip, b.Skip},
	} {
		if x.a != x.b {
			out = append(out, Change{"~", fmt.Sprintf("%s: %q -> %q", x.what, x.a, x.b)})
		}
	}
	out = append(out, diffLists(entries(a), entries(b))...)
	for _, x := range []struct {
		what string
		a, b []string
	}{{"fields", fieldNames(a), fieldNames(b)}, {"expressions", expressionNames(a), expressionNames(b)}} {
		// What is only in one of them is listed by itself.
		if before, after := common(x.a, x.b), common(x.b, x.a); !slices.Equal(before, after) {
			out = append(out, Change{"~", fmt.Sprintf("order of %s: %s -> %s", x.what, strings.Join(before, ", "), strings.Join(after, ", "))})
		}
	}
	return out
}

// common gives what list has of other, in its order.
func common(list, other []string) []string {
	in := map[string]bool{}
	for _, x := range other {
		in[x] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return !in[x] })
}

// entry is one line of a plan: what it is found by, what it says, and when it
// holds.
type entry struct {
	key, body  string
	start, end time.Time
}

// during is a line that holds for a time, which its text says.
func during(key, body string, start, end time.Time) entry {
	return entry{key, strings.TrimSpace(body + validity(FormatTime(start), FormatTime(end))), start, end}
}

// line is the entry as text.
func (e entry) line() string {
	if e.body == "" {
		return e.key
	}
	return e.key + ": " + e.body
}

func entries(p *Plan) []entry {
	var out []entry
	for _, g := range p.Groups {
		out = append(out, entry{key: "group " + g})
	}
	for i := range p.Modules {
		m := &p.Modules[i]
		key := "module " + string(m.Module)
		if m.Scope != "" {
			key += ", scope " + m.Scope
		}
		out = append(out, entry{key: key, body: fmt.Sprintf("enabled %v, priority %d", m.Enabled == nil || *m.Enabled, m.Priority)})
	}
	for i := range p.Services {
		s := &p.Services[i]
		body := ""
		if s.Skip != "" {
			body = "skip " + inOneLine(s.Skip)
		}
		out = append(out, entry{key: "service " + s.Name, body: body})
		for j := range s.Fields {
			out = append(out, entry{key: "service " + s.Name + ", field " + s.Fields[j].Name})
		}
	}
	for r := range p.Rules() {
		out = append(out, during(r.describe(""), fmt.Sprintf("%s %s", r.Type, r.Cost), r.Start, r.End))
	}
	out = append(out, tierEntries(p)...)
	for i := range p.Expressions {
		e := &p.Expressions[i]
		key := "expression " + e.ID
		body := inOneLine(e.Price)
		if e.When != "" {
			body += " when " + inOneLine(e.When)
		}
		if e.Metric != "" {
			body += ", metric " + e.Metric
		}
		if e.Scope != "" {
			body += ", scope " + e.Scope
		}
		out = append(out, during(key, body, e.Start, e.End))
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
func diffLists(a, b []entry) []Change {
	var out []Change
	bodies := func(list []entry) map[string][]string {
		m := map[string][]string{}
		for _, e := range list {
			m[e.key] = append(m[e.key], e.body)
		}
		return m
	}
	before, after := bodies(a), bodies(b)
	done := map[string]bool{}
	line := func(mark string, e entry) { out = append(out, Change{mark, e.line()}) }
	for _, e := range a {
		if done[e.key] {
			continue
		}
		done[e.key] = true
		old, now := without(before[e.key], after[e.key]), without(after[e.key], before[e.key])
		if len(old) == 1 && len(now) == 1 {
			out = append(out, Change{"~", fmt.Sprintf("%s: %s -> %s", e.key, nothingAs(old[0]), nothingAs(now[0]))})
			continue
		}
		for _, body := range old {
			line("-", entry{key: e.key, body: body})
		}
		for _, body := range now {
			line("+", entry{key: e.key, body: body})
		}
	}
	for _, e := range b {
		if !done[e.key] {
			line("+", e)
		}
	}
	return out
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

func fieldNames(p *Plan) []string {
	var names []string
	for i := range p.Services {
		for j := range p.Services[i].Fields {
			names = append(names, p.Services[i].Name+"."+p.Services[i].Fields[j].Name)
		}
	}
	return names
}

func expressionNames(p *Plan) []string {
	var names []string
	for _, e := range p.Expressions {
		names = append(names, e.ID)
	}
	return names
}

// inOneLine writes a formula of several lines in one. Where a line's end is more
// than white space, in a raw text or behind a comment, it is written as \n in a
// quoted string.
func inOneLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > 1 && (strings.ContainsAny(text, "`#") || strings.Contains(text, "//")) {
		return strconv.Quote(text)
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ")
}
