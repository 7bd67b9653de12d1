package expr

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/shopspring/decimal"
)

// checker turns a syntax tree into nodes of known types. It stops at the first
// mistake: what follows one is seldom worth reading.
type checker struct {
	text  []rune
	out   *Expr
	count int
	err   *Error
}

// checked is a typed node. The degree says how it depends on the quantity
// between steps: 0 not at all, 1 linearly, 2 otherwise.
type checked struct {
	node
	kind     kind
	degree   int
	constant bool   // the same for every point
	name     string // of a variable or attribute
}

func (c *checker) errorAt(n ast.Node, format string, args ...any) *Error {
	e := &Error{Line: 1, Column: 1, Text: fmt.Sprintf(format, args...)}
	for _, r := range c.text[:min(max(0, n.Location().From), len(c.text))] {
		if r == '\n' {
			e.Line++
			e.Column = 1
		} else {
			e.Column++
		}
	}
	return e
}

func (c *checker) fail(n ast.Node, format string, args ...any) checked {
	if c.err == nil {
		c.err = c.errorAt(n, format, args...)
	}
	return checked{}
}

func (c *checker) notFolding(why string) {
	if c.out.perPoint == "" {
		c.out.perPoint = why
	}
}

func (c *checker) check(n ast.Node, depth int) checked {
	c.count++
	switch {
	case c.err != nil:
		return checked{}
	case c.count > maxNodes || depth > maxDepth:
		return c.fail(n, "the expression is too complex")
	}
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return c.literal(n)
	case *ast.BoolNode:
		return checked{node: constant{value{truth: n.Value}}, kind: boolean, constant: true}
	case *ast.StringNode:
		return checked{node: constant{value{text: n.Value}}, kind: words, constant: true}
	case *ast.IdentifierNode:
		return c.variable(n)
	case *ast.MemberNode:
		return c.attribute(n)
	case *ast.UnaryNode:
		return c.unary(n, depth)
	case *ast.BinaryNode:
		return c.binary(n, depth)
	case *ast.ConditionalNode:
		return c.conditional(n, depth)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments, depth)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, callee.Value, n.Arguments, depth)
		}
		return c.fail(n, "values have no methods")
	case *ast.ArrayNode:
		return c.fail(n, "a list can only stand behind in")
	default:
		return c.fail(n, "this is not part of the language")
	}
}

var literalPattern = regexp.MustCompile(`^([0-9]{1,20}(\.[0-9]{0,28})?|\.[0-9]{1,28})$`)

// literal reads the number's text: the parser made a binary float of it.
func (c *checker) literal(n ast.Node) checked {
	at := n.Location()
	if at.From < 0 || at.To > len(c.text) || at.From >= at.To {
		return c.fail(n, "a number without text")
	}
	text := string(c.text[at.From:at.To])
	if !literalPattern.MatchString(text) {
		return c.fail(n, "%s: write plain decimals, with at most 20 digits before and 28 after the point", text)
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		return c.fail(n, "%s is not a decimal number", text)
	}
	return checked{node: constant{value{Line: Line{B: d}}}, kind: number, constant: true}
}

func (c *checker) variable(n *ast.IdentifierNode) checked {
	c.out.uses[n.Value] = true
	v := checked{node: variable(n.Value), name: n.Value}
	switch n.Value {
	case "qty", "price":
		v.kind, v.degree = number, 1
	case "unit", "scope", "metric":
		v.kind = words
	case "begin":
		v.kind = moment
	case "groupby", "metadata":
		return c.fail(n, "%s: name an attribute, as in %s.flavor", n.Value, n.Value)
	default:
		return c.fail(n, "unknown name %s: there are qty, price, unit, scope, metric, begin, groupby.x and metadata.x", n.Value)
	}
	return v
}

// attribute reads groupby.x or metadata["x"]. Usage has one set of attributes,
// and a metric cannot list a name in both, so both spellings mean the same.
func (c *checker) attribute(n *ast.MemberNode) checked {
	of, ok := n.Node.(*ast.IdentifierNode)
	name, ok2 := n.Property.(*ast.StringNode)
	if !ok || of.Value != "groupby" && of.Value != "metadata" {
		return c.fail(n, "only groupby and metadata have members")
	}
	if !ok2 || name.Value == "" || n.Optional {
		return c.fail(n, "write the attribute's name, as in %s.flavor or %s[\"os-type\"]", of.Value, of.Value)
	}
	c.out.attributes = append(c.out.attributes, name.Value)
	return checked{node: attribute(name.Value), kind: words, name: of.Value + "." + name.Value}
}

func (c *checker) want(n ast.Node, v checked, k kind) bool {
	if c.err == nil && v.kind != k {
		hint := ""
		if k == number && v.kind == words {
			hint = ": use number()"
		}
		c.fail(n, "expected %s, this is %s%s", k, v.kind, hint)
	}
	return c.err == nil
}

func (c *checker) unary(n *ast.UnaryNode, depth int) checked {
	x := c.check(n.Node, depth+1)
	switch n.Operator {
	case "!", "not":
		if !c.want(n.Node, x, boolean) {
			return checked{}
		}
		return checked{node: not{x.node}, kind: boolean, constant: x.constant}
	case "-", "+":
		if !c.want(n.Node, x, number) {
			return checked{}
		}
		if n.Operator == "+" {
			return x
		}
		return checked{node: negative{x.node}, kind: number, degree: x.degree, constant: x.constant}
	}
	return c.fail(n, "operator %s is not part of the language", n.Operator)
}

func (c *checker) binary(n *ast.BinaryNode, depth int) checked {
	if n.Operator == "in" {
		return c.in(n, depth)
	}
	x, y := c.check(n.Left, depth+1), c.check(n.Right, depth+1)
	if c.err != nil {
		return checked{}
	}
	out := checked{constant: x.constant && y.constant}
	switch n.Operator {
	case "&&", "and", "||", "or":
		if !c.want(n.Left, x, boolean) || !c.want(n.Right, y, boolean) {
			return checked{}
		}
		out.kind, out.node = boolean, logic{or: n.Operator == "||" || n.Operator == "or", x: x.node, y: y.node}
	case "+", "-", "*", "/":
		if !c.want(n.Left, x, number) || !c.want(n.Right, y, number) {
			return checked{}
		}
		out.kind, out.node, out.degree = number, arithmetic{n.Operator[0], x.node, y.node}, max(x.degree, y.degree)
		if n.Operator == "*" {
			out.degree = x.degree + y.degree
		}
		if n.Operator == "/" && y.degree > 0 {
			out.degree = 2
		}
	case "==", "!=", "<", "<=", ">", ">=":
		return c.comparison(n, n.Operator, n.Left, x, y)
	case "contains", "startsWith", "endsWith":
		if !c.want(n.Left, x, words) || !c.want(n.Right, y, words) {
			return checked{}
		}
		c.scopeIsFree(x, y)
		out.kind, out.node = boolean, part{n.Operator, x.node, y.node}
	default:
		return c.fail(n, "operator %s is not part of the language", n.Operator)
	}
	return out
}

func (c *checker) comparison(n ast.Node, op string, left ast.Node, x, y checked) checked {
	if x.kind != y.kind {
		hint := ""
		if x.kind+y.kind == number+words {
			hint = ": use number()"
		}
		return c.fail(n, "%s cannot be compared with %s%s", x.kind, y.kind, hint)
	}
	out := checked{kind: boolean, constant: x.constant && y.constant}
	switch x.kind {
	case number:
		if x.degree > 1 || y.degree > 1 {
			c.notFolding("it compares what is not linear in the quantity")
		}
		out.node = comparison{op, x.node, y.node}
	case moment:
		switch {
		case x.constant && y.name == "begin":
			c.out.times = append(c.out.times, boundaries(op, x)...)
		case y.constant && x.name == "begin":
			c.out.times = append(c.out.times, boundaries(op, y)...)
		case !x.constant || !y.constant:
			c.notFolding("it depends on the time within a window")
		}
		out.node = times{op, x.node, y.node}
	case boolean, words:
		if op != "==" && op != "!=" {
			return c.fail(n, "%s can only be compared by == and !=", x.kind)
		}
		switch {
		case x.name == "scope" && y.constant:
			c.compareScope(y)
		case y.name == "scope" && x.constant:
			c.compareScope(x)
		default:
			c.scopeIsFree(x, y)
		}
		out.node = same{op == "!=", x.node, y.node}
	default:
		return c.fail(left, "%s cannot be compared", x.kind)
	}
	return out
}

// boundaries are the instants at which a comparison of begin with t changes:
// t itself, and the instant after it for the operators that tell equality.
func boundaries(op string, t checked) []time.Time {
	v, err := t.eval(nil)
	if err != nil {
		return nil
	}
	if op == "<" || op == ">=" {
		return []time.Time{v.time}
	}
	return []time.Time{v.time, v.time.Add(time.Second)} // begins are whole seconds
}

func (c *checker) compareScope(with checked) {
	if v, err := with.eval(nil); err == nil {
		c.out.scopes = append(c.out.scopes, v.text)
	}
}

// scopeIsFree notes that a scope is used other than by comparing it with fixed
// names, so that scopes do not fold alike.
func (c *checker) scopeIsFree(operands ...checked) {
	for _, x := range operands {
		if x.name == "scope" {
			c.notFolding("it depends on every single scope")
		}
	}
}

func (c *checker) in(n *ast.BinaryNode, depth int) checked {
	array, ok := n.Right.(*ast.ArrayNode)
	if !ok {
		return c.fail(n.Right, `in takes a list, as in x in ["a", "b"]`)
	}
	x := c.check(n.Left, depth+1)
	set := member{x: x.node, kind: x.kind}
	for _, item := range array.Nodes {
		y := c.check(item, depth+1)
		if c.err != nil {
			return checked{}
		}
		if !y.constant {
			return c.fail(item, "a list holds fixed values")
		}
		c.comparison(item, "==", n.Left, x, y)
		if c.err != nil {
			return checked{}
		}
		v, err := y.eval(nil)
		if err != nil {
			return c.fail(item, "%s", err)
		}
		set.items = append(set.items, v)
	}
	return checked{node: set, kind: boolean, constant: x.constant}
}

func (c *checker) conditional(n *ast.ConditionalNode, depth int) checked {
	cond, x, y := c.check(n.Cond, depth+1), c.check(n.Exp1, depth+1), c.check(n.Exp2, depth+1)
	if c.err != nil || !c.want(n.Cond, cond, boolean) {
		return checked{}
	}
	if x.kind != y.kind {
		return c.fail(n.Exp2, "one side gives %s, the other %s", x.kind, y.kind)
	}
	c.scopeIsFree(x, y)
	if x.name == "begin" || y.name == "begin" {
		c.notFolding("it depends on the time within a window")
	}
	return checked{
		node: choice{cond.node, x.node, y.node}, kind: x.kind, degree: max(x.degree, y.degree),
		constant: cond.constant && x.constant && y.constant,
	}
}

func (c *checker) call(n ast.Node, name string, args []ast.Node, depth int) checked {
	arity := map[string][2]int{
		"abs": {1, 1}, "min": {1, 20}, "max": {1, 20}, "floor": {1, 1}, "ceil": {1, 1}, "round": {2, 2},
		"number": {1, 2}, "has": {1, 1}, "lower": {1, 1}, "upper": {1, 1}, "time": {1, 1},
		"hour": {1, 1}, "weekday": {1, 1}, "day": {1, 1}, "month": {1, 1}, "year": {1, 1},
	}
	count, ok := arity[name]
	if !ok {
		return c.fail(n, "unknown function %s: there are %s", name, functionList)
	}
	if len(args) < count[0] || len(args) > count[1] {
		return c.fail(n, "%s takes %d to %d values, found %d", name, count[0], count[1], len(args))
	}
	out := checked{constant: true}
	f := function{name: name}
	var of []checked
	for _, a := range args {
		v := c.check(a, depth+1)
		of = append(of, v)
		f.args = append(f.args, v.node)
		out.degree = max(out.degree, v.degree)
		out.constant = out.constant && v.constant
	}
	if c.err != nil {
		return checked{}
	}
	c.scopeIsFree(of...)
	out.node = f
	switch name {
	case "abs", "min", "max", "floor", "ceil", "round":
		for i := range args {
			if !c.want(args[i], of[i], number) {
				return checked{}
			}
		}
		if out.degree > 1 {
			c.notFolding("it compares what is not linear in the quantity")
		}
		if out.degree > 0 && (name == "floor" || name == "ceil" || name == "round") {
			out.degree = 2
		}
		if name == "round" {
			places, err := of[1].eval0()
			if err != nil || !of[1].constant || !places.B.IsInteger() || places.B.IsNegative() || places.B.GreaterThan(decimal.New(28, 0)) {
				return c.fail(args[1], "the decimals are a whole number from 0 to 28")
			}
		}
	case "number":
		if !c.want(args[0], of[0], words) || len(args) == 2 && !c.want(args[1], of[1], number) {
			return checked{}
		}
	case "has":
		if _, ok := args[0].(*ast.MemberNode); !ok {
			return c.fail(args[0], "has takes an attribute, as in has(groupby.flavor)")
		}
		return checked{node: has(of[0].node.(attribute)), kind: boolean}
	case "lower", "upper":
		if !c.want(args[0], of[0], words) {
			return checked{}
		}
		out.kind = words
	case "time":
		text, ok := args[0].(*ast.StringNode)
		if !ok {
			return c.fail(args[0], "time takes a text in quotes")
		}
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, text.Value); err == nil && t.Nanosecond() == 0 {
				return checked{node: constant{value{time: t.UTC()}}, kind: moment, constant: true}
			}
		}
		return c.fail(args[0], "expected a time such as 2026-03-01 or 2026-03-01T06:00:00Z")
	default: // parts of the time
		if !c.want(args[0], of[0], moment) {
			return checked{}
		}
		if !out.constant {
			c.notFolding("it depends on the time within a window")
		}
	}
	return out
}

// eval0 is the number of a constant.
func (v checked) eval0() (Line, error) {
	if !v.constant {
		return Line{}, nil
	}
	x, err := v.eval(nil)
	return x.Line, err
}

var functionList = func() string {
	text := ""
	for _, f := range slices.Sorted(slices.Values(Functions)) {
		if text != "" {
			text += ", "
		}
		text += f
	}
	return text
}()
