// Package expr is the small language of expression rules and skip conditions:
// formulas over a point's quantity, unit, price so far, scope, attributes and
// period begin. expr-lang/expr reads the text; everything behind the syntax
// tree is ours, because its numbers are binary floats and ours are decimals.
//
//	price * (groupby.flavor startsWith "gpu." ? 1.25 : 1)
//	max(0, qty - 100) * 0.02
//	qty == 0 || metadata.state in ["stopped", "error"]
//
// Types are checked when an expression is parsed, so a plan that was accepted
// cannot fail on a misspelt name. There are no loops, no subqueries and no
// functions but those listed at Functions, and length, nesting and digits are
// bounded: a plan can neither read anything nor take long.
//
// Numbers are exact. Division is exact if the divisor has only the prime
// factors 2 and 5 and otherwise rounds half-even to 28 decimals.
//
// An expression that is linear in the quantity between some steps can be
// folded like a rule (Fold); any other is evaluated point by point.
//
// The package performs no I/O and never reads the clock.
package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/shopspring/decimal"
)

// Bounds of an expression.
const (
	MaxLength = 4096 // characters
	maxNodes  = 400
	maxDepth  = 100
	maxDigits = 300 // of any number that comes up
	foldable  = 120 // digits of coefficients; with a quantity's 38 they stay below maxDigits
	maxPieces = 64  // steps of a folded expression
)

// Functions lists what an expression may call.
var Functions = []string{
	"abs(x)", "min(x, y, …)", "max(x, y, …)", // numbers
	"floor(x)", "ceil(x)", "round(x, decimals)", // round is half-even
	"number(text)", "number(text, otherwise)", // an attribute's value as a number
	"has(groupby.x)",             // whether the usage has the attribute
	"lower(text)", "upper(text)", // texts
	`time("2026-03-01T00:00:00Z")`,                // to compare begin with
	"hour(begin)", "weekday(begin)", "day(begin)", // weekday: Monday is 1; all UTC
	"month(begin)", "year(begin)",
}

// Error is a mistake in an expression, with its place in the text.
type Error struct {
	Line, Column int // counted from 1, in characters
	Text         string
}

func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Text) }

// Reject is the reason why an expression has no answer for a point, such as
// number() of a text that is none. The line is rejected with it.
type Reject struct{ Reason string }

func (e *Reject) Error() string { return e.Reason }

func reject(format string, args ...any) error { return &Reject{fmt.Sprintf(format, args...)} }

// Env is the point that an expression is evaluated for.
type Env struct {
	Qty, Price          decimal.Decimal
	Metric, Unit, Scope string
	Attributes          map[string]string // groupby and metadata together
	Begin               time.Time
}

// Expr is a checked expression.
type Expr struct {
	text       string
	root       node
	attributes []string
	times      []time.Time // begin is compared with
	scopes     []string    // scope is compared with
	uses       map[string]bool
	perPoint   string // why it does not fold
}

// Number parses an expression that gives a number.
func Number(text string) (*Expr, error) { return parse(text, number) }

// Condition parses an expression that is true or false.
func Condition(text string) (*Expr, error) { return parse(text, boolean) }

// String is the expression's text.
func (e *Expr) String() string { return e.text }

// Attributes lists the attributes that the expression looks at, sorted.
func (e *Expr) Attributes() []string { return e.attributes }

// Boundaries lists the instants that the period's begin is compared with.
func (e *Expr) Boundaries() []time.Time { return e.times }

// Scopes lists the scopes that the expression compares the point's with.
func (e *Expr) Scopes() []string { return e.scopes }

// Uses says whether the expression looks at a variable: qty, price, unit,
// scope, metric or begin.
func (e *Expr) Uses(variable string) bool { return e.uses[variable] }

// Folds says whether the expression is linear in the quantity between steps,
// for fixed attributes and a time between boundaries, and if not, why.
func (e *Expr) Folds() (bool, string) { return e.perPoint == "", e.perPoint }

func parse(text string, want kind) (e *Expr, err error) {
	if n := utf8.RuneCountInString(text); n > MaxLength {
		return nil, &Error{1, 1, fmt.Sprintf("the expression has %d characters: at most %d", n, MaxLength)}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{1, 1, "the expression is not valid UTF-8"}
	}
	if strings.Count(text, "(")+strings.Count(text, "[")+strings.Count(text, "{")+strings.Count(text, "?") > maxNodes {
		return nil, &Error{1, 1, "the expression is too complex"}
	}
	defer func() { // the parser is somebody else's and plans come from anybody
		if r := recover(); r != nil {
			e, err = nil, &Error{1, 1, fmt.Sprintf("the parser gave up: %v", r)}
		}
	}()
	config := &conf.Config{MaxNodes: maxNodes, DisableIfOperator: true}
	tree, err := parser.ParseWithConfig(text, config)
	if err != nil {
		var at *file.Error
		if errors.As(err, &at) {
			return nil, &Error{at.Line, at.Column + 1, at.Message}
		}
		return nil, &Error{1, 1, err.Error()}
	}
	c := &checker{text: []rune(text), out: &Expr{text: text, uses: map[string]bool{}}}
	root := c.check(tree.Node, 0)
	if c.err != nil {
		return nil, c.err
	}
	if root.kind != want {
		return nil, c.errorAt(tree.Node, "expected %s, this is %s", want, root.kind)
	}
	if root.degree > 1 && want == number {
		c.notFolding("it is not linear in the quantity")
	}
	e = c.out
	e.root = root.node
	slices.Sort(e.attributes)
	e.attributes = slices.Compact(e.attributes)
	slices.Sort(e.scopes)
	e.scopes = slices.Compact(e.scopes)
	return e, nil
}

type kind int

const (
	number kind = iota
	boolean
	words
	moment
	list
)

func (k kind) String() string {
	return [...]string{"a number", "true or false", "a text", "a time", "a list"}[k]
}
