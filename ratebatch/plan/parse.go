package plan

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/yamldepth"
)

// MaxSize bounds a plan's file: its syntax tree takes about 130 times its size, 2
// GB for the longest, with a quarter of a million mappings. A plan with 100,000
// takes about 6 MB.
const MaxSize = 16 << 20

// Parse reads a plan. Every mistake of form is reported with its line and
// column, all of them together as Findings. A plan that parses may still
// contradict itself: see Validate.
func Parse(name string, data []byte) (*Plan, error) {
	p, found := parse(name, data)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// Check reads a plan and validates what could be read of it, so that one look
// shows mistakes of form and of content. The plan is nil if there are mistakes.
func Check(name string, data []byte, metrics Metrics) (*Plan, Findings) {
	p, found := parse(name, data)
	if p != nil {
		found = append(found, p.Validate(metrics)...).sorted()
	}
	if len(found.Mistakes()) > 0 {
		return nil, found
	}
	return p, found
}

// parse gives what could be read; the plan is nil only if the file is no YAML
// at all.
func parse(name string, data []byte) (*Plan, Findings) {
	d := &reader{report: report{file: name}}
	if len(data) > MaxSize {
		d.mistake(Position{}, "the plan has %d bytes: at most %d are read", len(data), MaxSize)
		return nil, d.list
	}
	if text := encoding(data); text != "" {
		d.mistake(Position{1, 1}, "%s", text)
		return nil, d.list
	}
	file, err := parseYAML(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	if err != nil {
		at, text := Position{}, err.Error()
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			text = syntax.GetMessage()
			if t := syntax.GetToken(); t != nil && t.Position != nil {
				at = Position{t.Position.Line, t.Position.Column}
			}
		}
		d.mistake(at, "%s", text)
		return nil, d.list
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			d.mistake(at(doc.Body), "a second YAML document: a plan is one document")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		d.mistake(Position{1, 1}, "the plan is empty")
		return nil, d.list
	}
	p := &Plan{file: name}
	d.plan(body, p)
	p.assignIDs()
	return p, d.list.sorted()
}

// byteOrderMark is what some editors put in front of UTF-8; it says nothing.
const byteOrderMark = "\uFEFF"

// encoding says what is wrong with a file that is not UTF-8; empty if it is.
func encoding(data []byte) string {
	if bytes.HasPrefix(data, []byte{0xFF, 0xFE}) || bytes.HasPrefix(data, []byte{0xFE, 0xFF}) {
		return "the file is in UTF-16: save it as UTF-8"
	}
	if !utf8.Valid(data) {
		return "the file is not in UTF-8: save it as UTF-8"
	}
	return ""
}

// parseYAML contains the parser's panics: a plan may come from anybody.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML parser gave up: %v", r)
		}
	}()
	if depth := nesting(data); depth > maxNesting {
		return nil, fmt.Errorf("brackets are nested %d deep: a plan needs no more than %d", depth, maxNesting)
	}
	if line := yamldepth.Crowded(data, maxNesting); line > 0 {
		return nil, fmt.Errorf("line %d nests lists or keys more than %d deep: a plan needs no more", line, maxNesting)
	}
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

const maxNesting = 64

// nesting is an upper bound of how deep flow collections are nested, so that
// the recursive parser is not led into a deep stack.
func nesting(data []byte) int {
	depth, most := 0, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			depth = max(0, depth-maxNesting) // brackets in running text do not add up
		}
	}
	return most
}

func at(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return at(m.Values[0].Key) // the token of a block mapping is its first colon
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return at(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return Position{t.Position.Line, t.Position.Column}
	}
	return Position{}
}

// reader turns YAML nodes into a plan. It goes on after a mistake, so that all
// of them are reported together.
type reader struct{ report }

// keys maps the keys that a mapping may have to what reads their value.
type keys map[string]func(ast.Node)

// mapping reads a YAML mapping: unknown and repeated keys are mistakes, so are
// absent required ones. A key with no value counts as absent.
func (d *reader) mapping(what string, n ast.Node, known keys, required ...string) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.mistake(at(n), "%s: expected keys and values, found %s", what, kind(n))
		return
	}
	seen := map[string]Position{}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.mistake(at(v.Key), "%s: %s cannot be a key here", what, kind(v.Key))
			continue
		}
		read, ok := known[key.Value]
		if !ok {
			d.mistake(at(key), "%s: unknown key %s%s", what, ratebatch.Quote(key.Value), suggest(key.Value, known))
			continue
		}
		if first, ok := seen[key.Value]; ok {
			d.mistake(at(key), "%s: key %q is already given at line %d", what, key.Value, first.Line)
			continue
		}
		if _, null := v.Value.(*ast.NullNode); null || v.Value == nil {
			continue
		}
		seen[key.Value] = at(key)
		read(v.Value)
	}
	for _, key := range required {
		if _, ok := seen[key]; !ok {
			d.mistake(at(n), "%s: %q is missing", what, key)
		}
	}
}

func (d *reader) sequence(what string, n ast.Node, item func(ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.mistake(at(n), "%s: expected a list, found %s", what, kind(n))
		return
	}
	for _, v := range s.Values {
		item(v)
	}
}

// kind names what a node is, in messages.
func kind(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode:
		return "an anchor or alias (not used in plans)"
	case *ast.TagNode:
		return "a YAML tag (not used in plans)"
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode, *ast.InfinityNode, *ast.NanNode:
		return ratebatch.Quote(n.GetToken().Value)
	default:
		return "something else"
	}
}

// suggest names the known key that was probably meant.
func suggest(key string, known keys) string {
	best, distance := "", 3
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range known {
			if !yield(k) {
				return
			}
		}
	}) {
		if d := editDistance(key, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

func editDistance(a, b string) int {
	if len(a) > 32 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// text reads a string. A number keeps its text (1.0 stays "1.0"); true and
// null must be quoted, since nobody knows which spelling was meant.
func (d *reader) text(what string, to *string) func(ast.Node) {
	return func(n ast.Node) {
		switch n := n.(type) {
		case *ast.StringNode:
			*to = n.Value
		case *ast.LiteralNode:
			*to = n.Value.Value
		case *ast.IntegerNode, *ast.FloatNode:
			*to = n.GetToken().Value
		case *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
			d.mistake(at(n), "%s: write %s in quotes if this text is meant", what, n.GetToken().Value)
			return
		default:
			d.mistake(at(n), "%s: expected a text, found %s", what, kind(n))
			return
		}
		d.checkText(what, at(n), *to)
	}
}

// name reads a text that must not be empty.
func (d *reader) name(what string, to *string) func(ast.Node) {
	read := d.text(what, to)
	return func(n ast.Node) {
		before := len(d.list)
		read(n)
		if *to == "" && len(d.list) == before {
			d.mistake(at(n), "%s is empty", what)
		}
	}
}

func (d *reader) checkText(what string, p Position, s string) {
	const longest = 4096
	switch {
	case len(s) > longest:
		d.mistake(p, "%s has %d bytes: at most %d", what, len(s), longest)
	case strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || r == unicode.ReplacementChar
	}):
		d.mistake(p, "%s holds a control or broken character", what)
	}
}

func (d *reader) number(what string, to *decimal.Decimal, read func(string) (decimal.Decimal, error)) func(ast.Node) {
	return func(n ast.Node) {
		var text string
		switch n := n.(type) {
		case *ast.StringNode:
			text = n.Value
		case *ast.IntegerNode, *ast.FloatNode:
			text = n.GetToken().Value
		default:
			d.mistake(at(n), "%s: expected a decimal number, found %s", what, kind(n))
			return
		}
		v, err := read(text)
		if err != nil {
			d.mistake(at(n), "%s: %s", what, err)
			return
		}
		*to = v
	}
}

func (d *reader) integer(what string, to *int, least, most int) func(ast.Node) {
	return func(n ast.Node) {
		v, err := strconv.Atoi(n.GetToken().Value)
		if _, ok := n.(*ast.IntegerNode); !ok || err != nil || v < least || v > most {
			d.mistake(at(n), "%s: expected a whole number from %d to %d, found %s", what, least, most, kind(n))
			return
		}
		*to = v
	}
}

func (d *reader) boolean(what string, to **bool) func(ast.Node) {
	return func(n ast.Node) {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.mistake(at(n), "%s: expected true or false, found %s", what, kind(n))
			return
		}
		*to = &b.Value
	}
}

// moment reads a time; without an offset it is UTC, a bare date is its
// midnight.
func (d *reader) moment(what string, to *time.Time) func(ast.Node) {
	return func(n ast.Node) {
		s, ok := n.(*ast.StringNode)
		if ok {
			t, err := ParseTime(s.Value)
			if err == nil {
				*to = t
				return
			}
		}
		d.mistake(at(n), "%s: expected a time such as 2026-03-01 or 2026-03-01T06:00:00Z, found %s", what, kind(n))
	}
}

// ParseTime reads a time as plans write it: RFC 3339, or without an offset for
// UTC, or a bare date for its midnight UTC. Whole seconds, years 1970 to 2105:
// what ClickHouse's DateTime holds.
func ParseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		t = t.UTC()
		if t.Nanosecond() != 0 {
			return time.Time{}, fmt.Errorf("%s has a fraction of a second", ratebatch.Quote(text))
		}
		if t.Year() < 1970 || t.Year() > 2105 {
			return time.Time{}, fmt.Errorf("%s is not between 1970 and 2105", ratebatch.Quote(text))
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s is not a time", ratebatch.Quote(text))
}

func (d *reader) ruleType(what string, to *Type) func(ast.Node) {
	return func(n ast.Node) {
		if s, ok := n.(*ast.StringNode); ok && (s.Value == string(Flat) || s.Value == string(Rate)) {
			*to = Type(s.Value)
			return
		}
		d.mistake(at(n), "%s: expected flat or rate, found %s", what, kind(n))
	}
}

var (
	idPattern       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)
	currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)
)

func (d *reader) id(what string, to *string) func(ast.Node) {
	read := d.text(what, to)
	return func(n ast.Node) {
		before := len(d.list)
		read(n)
		if len(d.list) == before && !idPattern.MatchString(*to) {
			d.mistake(at(n), "%s: %s: up to 64 letters, digits, '.', '_', ':' or '-'", what, ratebatch.Quote(*to))
			*to = ""
		}
	}
}

func (d *reader) plan(n ast.Node, p *Plan) {
	d.mapping("plan", n, keys{
		"version": d.integer("version", &p.Version, 1, 1),
		"currency": func(n ast.Node) {
			d.text("currency", &p.Currency)(n)
			if p.Currency != "" && !currencyPattern.MatchString(p.Currency) {
				d.mistake(at(n), "currency: expected an ISO 4217 code such as EUR, found %s", ratebatch.Quote(p.Currency))
			}
		},
		"description": d.text("description", &p.Description),
		"groups": func(n ast.Node) {
			d.sequence("groups", n, func(n ast.Node) {
				var name string
				d.name("group", &name)(n)
				switch {
				case name == "":
				case slices.Contains(p.Groups, name):
					d.mistake(at(n), "group %q is listed twice", name)
				default:
					p.Groups = append(p.Groups, name)
				}
			})
		},
		"modules": func(n ast.Node) {
			d.sequence("modules", n, func(n ast.Node) {
				m := Module{at: at(n)}
				d.mapping("module", n, keys{
					"module": func(n ast.Node) {
						var name string
						d.text("module", &name)(n)
						m.Module = ModuleName(name)
						switch m.Module {
						case Hashmap, Expressions, None, "":
						default:
							d.mistake(at(n), "module: expected hashmap, expressions or none, found %s", ratebatch.Quote(name))
						}
					},
					"scope":    d.name("scope", &m.Scope),
					"enabled":  d.boolean("enabled", &m.Enabled),
					"priority": d.integer("priority", &m.Priority, 0, 1_000_000),
				}, "module")
				p.Modules = append(p.Modules, m)
			})
		},
		"skip": func(n ast.Node) {
			p.skipAt = textAt(n)
			d.text("skip", &p.Skip)(n)
		},
		"services":    func(n ast.Node) { d.sequence("services", n, func(n ast.Node) { d.service(n, p) }) },
		"discounts":   d.discounts(p),
		"charges":     d.charges(p),
		"expressions": func(n ast.Node) { d.sequence("expressions", n, func(n ast.Node) { d.expression(n, p) }) },
	})
	if p.Version == 0 {
		p.Version = 1
	}
}

// textAt is where the characters of a text begin, behind a quotation mark, so
// that a place in an expression can be told as a place in the file. Of block
// texts it is only the block's place.
func textAt(n ast.Node) Position {
	p := at(n)
	if t := n.GetToken(); t != nil && strings.HasPrefix(strings.TrimLeft(t.Origin, " \n"), "\"") || t != nil && strings.HasPrefix(strings.TrimLeft(t.Origin, " \n"), "'") {
		p.Column++
	}
	return p
}

func (d *reader) service(n ast.Node, p *Plan) {
	s := Service{at: at(n)}
	what := "service " + nameOf(n)
	d.mapping(what, n, keys{
		"name":        d.name("name of a service", &s.Name),
		"description": d.text("description", &s.Description),
		"skip": func(n ast.Node) {
			s.skipAt = textAt(n)
			d.text("skip", &s.Skip)(n)
		},
		"mappings":   func(n ast.Node) { s.Mappings = d.mappings(what, n, false) },
		"thresholds": func(n ast.Node) { s.Thresholds = d.thresholds(what, n) },
		"tiers":      func(n ast.Node) { s.Tiers = d.tiers(what, n) },
		"fields": func(n ast.Node) {
			d.sequence(what+", fields", n, func(n ast.Node) {
				f := Field{at: at(n)}
				what := what + ", field " + nameOf(n)
				d.mapping(what, n, keys{
					"name":        d.name("name of a field", &f.Name),
					"description": d.text("description", &f.Description),
					"mappings":    func(n ast.Node) { f.Mappings = d.mappings(what, n, true) },
					"thresholds":  func(n ast.Node) { f.Thresholds = d.thresholds(what, n) },
				}, "name")
				s.Fields = append(s.Fields, f)
			})
		},
	}, "name")
	p.Services = append(p.Services, s)
}

// nameOf looks ahead for a node's name, for messages.
func nameOf(n ast.Node) string {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return "without a name"
	}
	for _, v := range m.Values {
		if k, ok := v.Key.(*ast.StringNode); ok && k.Value == "name" && v.Value != nil {
			if s, ok := v.Value.(*ast.StringNode); ok {
				return s.Value
			}
			return kind(v.Value)
		}
	}
	return "without a name"
}
