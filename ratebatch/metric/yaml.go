package metric

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/yamldepth"
)

// Problem is one mistake in metrics.yaml.
type Problem struct {
	File         string
	Line, Column int // from 1; 0 when the whole file is meant
	Text         string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// MaxSize bounds a file of metrics, in bytes.
const MaxSize = 4 << 20

const maxNesting = 64

// reader walks the syntax tree itself, because a decoder stops at the first
// mistake and turns 0.1 into a binary float.
type reader struct {
	file     string
	problems []*Problem
	anchors  map[string]ast.Node
}

func (r *reader) problem(n ast.Node, format string, args ...any) {
	p := &Problem{File: r.file, Text: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = position(n)
	}
	r.problems = append(r.problems, p)
}

func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(a, b *Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	errs := make([]error, len(r.problems))
	for i, p := range r.problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// position of a block mapping is that of its first key: its own token is the
// first colon.
func position(n ast.Node) (line, column int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return position(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}

// document gives the one document's body, or nil after noting why there is none.
func (r *reader) document(data []byte) (body ast.Node) {
	if len(data) > MaxSize {
		r.problem(nil, "the file has %d bytes: at most %d are read", len(data), MaxSize)
		return nil
	}
	if bytes.HasPrefix(data, []byte{0xFF, 0xFE}) || bytes.HasPrefix(data, []byte{0xFE, 0xFF}) || !utf8.Valid(data) {
		r.problem(nil, "the file is not in UTF-8: save it as UTF-8")
		return nil
	}
	file, err := parseYAML(bytes.TrimPrefix(data, []byte("\uFEFF"))) // which some editors put in front
	if err != nil {
		p := &Problem{File: r.file, Text: err.Error()}
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			p.Text = syntax.GetMessage()
			if t := syntax.GetToken(); t != nil && t.Position != nil {
				p.Line, p.Column = t.Position.Line, t.Position.Column
			}
		}
		r.problems = append(r.problems, p)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			r.problem(doc.Body, "a second YAML document: metrics are one document")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		if len(r.problems) == 0 {
			r.problem(nil, "the file is empty: it needs metrics")
		}
		return nil
	}
	r.anchors = map[string]ast.Node{}
	ast.Walk(collector(r.anchors), body)
	return body
}

type collector map[string]ast.Node

// Visit notes anchors, so that aliases may be resolved in any order.
func (c collector) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		c[a.Name.String()] = a.Value
	}
	return c
}

// parseYAML contains the parser's panics and its recursion.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the YAML parser gave up: %v", v)
		}
	}()
	depth := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > maxNesting {
				return nil, fmt.Errorf("brackets are nested more than %d deep", maxNesting)
			}
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			depth = max(0, depth-1) // a bracket in running text is not nesting
		}
	}
	if line := yamldepth.Crowded(data, maxNesting); line > 0 {
		return nil, fmt.Errorf("line %d nests lists or keys more than %d deep", line, maxNesting)
	}
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// plain looks through anchors and aliases.
func (r *reader) plain(n ast.Node) ast.Node {
	for range 8 {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := r.anchors[v.Value.String()]
			if !ok {
				r.problem(v, "alias %s has no anchor", v.Value)
				return nil
			}
			n = target
		case *ast.TagNode:
			r.problem(v, "tags are not supported")
			return nil
		default:
			return n
		}
	}
	r.problem(n, "aliases refer to one another")
	return nil
}

type pair struct {
	name  string
	key   ast.Node
	value ast.Node // never nil; looked through
}

// pairs lists a mapping's entries with text keys; what is no such entry is
// noted. what names the mapping in messages.
func (r *reader) pairs(n ast.Node, what string) []pair {
	var values []*ast.MappingValueNode
	switch m := r.plain(n).(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	case nil:
		return nil
	default:
		r.problem(n, "%s must be a mapping of names", what)
		return nil
	}
	seen := map[string]bool{}
	var out []pair
	for _, v := range values {
		key, ok := v.Key.(ast.Node)
		if _, merge := key.(*ast.MergeKeyNode); merge || !ok {
			r.problem(v.Key, "merge keys are not supported")
			continue
		}
		name, ok := scalar(r.plain(key))
		if !ok {
			r.problem(v.Key, "a key of %s must be plain text", what)
			continue
		}
		if seen[name] {
			r.problem(v.Key, "%s is given twice", ratebatch.Quote(name))
			continue
		}
		seen[name] = true
		if value := r.plain(v.Value); value != nil {
			out = append(out, pair{name, v.Key, value})
		}
	}
	return out
}

// scalar gives the text of a scalar as it was written, so that numbers keep
// their digits.
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return v.GetToken().Value, true
	}
	return "", false
}

// text reads a string.
func (r *reader) text(n ast.Node, what string) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	r.problem(n, "%s must be text", what)
	return "", false
}

// list reads one string or a list of strings.
func (r *reader) list(n ast.Node, what string) []string {
	nodes := []ast.Node{n}
	if s, ok := n.(*ast.SequenceNode); ok {
		nodes = s.Values
	}
	var out []string
	for _, v := range nodes {
		v = r.plain(v)
		if v == nil {
			continue
		}
		text, ok := r.text(v, what)
		switch {
		case !ok:
		case slices.Contains(out, text):
			r.problem(v, "%s names %s twice", what, ratebatch.Quote(text))
		default:
			out = append(out, text)
		}
	}
	return out
}
