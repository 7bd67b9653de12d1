package expr

import (
	"errors"
	"math/big"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Line is the number A·qty + B. While an expression is evaluated for one point
// the quantity itself is a plain number, so A is 0 throughout.
type Line struct{ A, B decimal.Decimal }

func (l Line) plain() bool { return l.A.IsZero() }

// value is one value of any kind; which field counts is known from checking.
type value struct {
	Line
	text  string
	truth bool
	time  time.Time
}

type node interface{ eval(*state) (value, error) }

// state is a point, or a stretch of quantities, under evaluation. It is nil
// while constants are evaluated.
type state struct {
	env        *Env
	qty, price Line
	stretch    *Stretch // nil for a single point
	digits     int
}

// Stretch is the quantities q with From <= q < To, as raw numbers of scale 18;
// nil means no bound.
type Stretch struct{ From, To *big.Int }

// split says that a comparison changes its answer at a raw quantity within the
// stretch, which must be cut there.
type split struct{ at *big.Int }

func (*split) Error() string { return "the stretch must be split" }

var errNotLinear = errors.New("not linear in the quantity")

// Number evaluates for one point. The only error is a *Reject.
func (e *Expr) Number(env *Env) (decimal.Decimal, error) {
	v, err := e.point(env)
	return v.B, err
}

// Condition evaluates for one point. The only error is a *Reject.
func (e *Expr) Condition(env *Env) (bool, error) {
	v, err := e.point(env)
	return v.truth, err
}

func (e *Expr) point(env *Env) (value, error) {
	v, err := e.root.eval(&state{env: env, qty: Line{B: env.Qty}, price: Line{B: env.Price}, digits: maxDigits})
	var r *Reject
	if err != nil && !errors.As(err, &r) {
		err = reject("expression %s: %v", e.text, err)
	}
	return v, err
}

// Piece is a stretch of quantities in which an expression is one line or one
// truth, or has no answer.
type Piece struct {
	Stretch
	Line   Line
	Truth  bool
	Reject string
}

// Fold evaluates for a whole stretch of quantities: env gives all but quantity
// and price, the price so far is a line. The pieces cover the stretch in
// rising order. It is an error if the expression does not fold.
func (e *Expr) Fold(env *Env, price Line, over Stretch) ([]Piece, error) {
	if e.perPoint != "" {
		return nil, errors.New(e.perPoint)
	}
	var out []Piece
	todo := []Stretch{over}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		v, err := e.root.eval(&state{
			env: env, qty: Line{A: decimal.New(1, 0)}, price: price, stretch: &s, digits: foldable,
		})
		var cut *split
		var r *Reject
		switch {
		case errors.As(err, &cut):
			if len(out)+len(todo) > maxPieces {
				return nil, errors.New("it has too many steps")
			}
			todo = append(todo, Stretch{cut.at, s.To}, Stretch{s.From, cut.at})
		case errors.As(err, &r):
			out = append(out, Piece{Stretch: s, Reject: r.Reason})
		case err != nil:
			return nil, err
		default:
			out = append(out, Piece{Stretch: s, Line: v.Line, Truth: v.truth})
		}
	}
	return out, nil
}

// number checks that a number stays within bounds. Coefficients that grow too
// long to fold are not an error of the plan: its points are priced one by one.
func (s *state) number(l Line) (value, error) {
	most := maxDigits
	if s != nil {
		most = s.digits
	}
	if digits(l.A) > most || digits(l.B) > most {
		if s != nil && s.stretch != nil {
			return value{}, errors.New("its numbers are too long")
		}
		return value{}, reject("a number of more than %d digits", most)
	}
	return value{Line: l}, nil
}

func digits(d decimal.Decimal) int {
	if d.IsZero() {
		return 1
	}
	return max(d.NumDigits()+max(0, int(d.Exponent())), -int(d.Exponent()))
}

type constant struct{ value }

func (c constant) eval(*state) (value, error) { return c.value, nil }

type variable string

func (v variable) eval(s *state) (value, error) {
	switch v {
	case "qty":
		return value{Line: s.qty}, nil
	case "price":
		return value{Line: s.price}, nil
	case "unit":
		return value{text: s.env.Unit}, nil
	case "scope":
		return value{text: s.env.Scope}, nil
	case "metric":
		return value{text: s.env.Metric}, nil
	default:
		return value{time: s.env.Begin}, nil
	}
}

// attribute reads an attribute; one that is absent reads as the empty text.
type attribute string

func (a attribute) eval(s *state) (value, error) {
	return value{text: s.env.Attributes[string(a)]}, nil
}

type has string

func (h has) eval(s *state) (value, error) {
	_, ok := s.env.Attributes[string(h)]
	return value{truth: ok}, nil
}

type not struct{ x node }

func (n not) eval(s *state) (value, error) {
	v, err := n.x.eval(s)
	return value{truth: !v.truth}, err
}

type logic struct {
	or   bool
	x, y node
}

func (n logic) eval(s *state) (value, error) {
	v, err := n.x.eval(s)
	if err != nil || v.truth == n.or {
		return v, err
	}
	return n.y.eval(s)
}

type choice struct{ cond, x, y node }

func (n choice) eval(s *state) (value, error) {
	c, err := n.cond.eval(s)
	switch {
	case err != nil:
		return value{}, err
	case c.truth:
		return n.x.eval(s)
	}
	return n.y.eval(s)
}

type negative struct{ x node }

func (n negative) eval(s *state) (value, error) {
	v, err := n.x.eval(s)
	return value{Line: Line{v.A.Neg(), v.B.Neg()}}, err
}

// both evaluates two operands, the left one first.
func both(s *state, x, y node) (left, right value, err error) {
	if left, err = x.eval(s); err != nil {
		return value{}, value{}, err
	}
	right, err = y.eval(s)
	return left, right, err
}

type arithmetic struct {
	op   byte
	x, y node
}

func (n arithmetic) eval(s *state) (value, error) {
	x, y, err := both(s, n.x, n.y)
	if err != nil {
		return value{}, err
	}
	switch n.op {
	case '+':
		return s.number(Line{x.A.Add(y.A), x.B.Add(y.B)})
	case '-':
		return s.number(Line{x.A.Sub(y.A), x.B.Sub(y.B)})
	case '*':
		if !x.plain() {
			x, y = y, x
		}
		if !x.plain() {
			return value{}, errNotLinear
		}
		return s.number(Line{x.B.Mul(y.A), x.B.Mul(y.B)})
	default:
		if !y.plain() {
			return value{}, errNotLinear
		}
		return s.divide(x.Line, y.B)
	}
}

// divideScale is the number of decimals of a quotient that has no end.
const divideScale = 28

func (s *state) divide(x Line, y decimal.Decimal) (value, error) {
	if y.IsZero() {
		return value{}, reject("division by zero")
	}
	if r, ok := reciprocal(y); ok {
		return s.number(Line{x.A.Mul(r), x.B.Mul(r)})
	}
	if !x.plain() {
		return value{}, errNotLinear // each quotient is rounded
	}
	num, den := x.B.Coefficient(), y.Coefficient()
	if shift := int64(divideScale) + int64(x.B.Exponent()) - int64(y.Exponent()); shift >= 0 {
		num.Mul(num, pow(10, shift))
	} else {
		den.Mul(den, pow(10, -shift))
	}
	if den.Sign() < 0 {
		num.Neg(num)
		den.Neg(den)
	}
	return s.number(Line{B: decimal.NewFromBigInt(halfEven(num, den), -divideScale)})
}

// reciprocal is 1/d if that has an end.
func reciprocal(d decimal.Decimal) (decimal.Decimal, bool) {
	c := d.Coefficient()
	negative := c.Sign() < 0
	c.Abs(c)
	twos := int64(c.TrailingZeroBits())
	c.Rsh(c, uint(twos))
	fives := int64(0)
	five, r := big.NewInt(5), new(big.Int)
	for q := new(big.Int); ; {
		q.QuoRem(c, five, r)
		if r.Sign() != 0 {
			break
		}
		c.Set(q)
		fives++
	}
	if !c.IsInt64() || c.Int64() != 1 {
		return decimal.Decimal{}, false
	}
	// 1/(2^t·5^f) = 5^(n-f)·2^(n-t) / 10^n for n = max(t, f)
	n := max(twos, fives)
	out := new(big.Int).Mul(pow(5, n-fives), pow(2, n-twos))
	// out is 5^(n-f)·2^(n-t): of the primes that are missing to make 10^n
	if negative {
		out.Neg(out)
	}
	return decimal.NewFromBigInt(out, int32(-n)-d.Exponent()), true
}

func pow(base, n int64) *big.Int { return new(big.Int).Exp(big.NewInt(base), big.NewInt(n), nil) }

// halfEven is x/d rounded half to even, for d > 0.
func halfEven(x, d *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(x, d, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if c := r.Cmp(d); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(int64(x.Sign())))
	}
	return q
}

type comparison struct {
	op   string
	x, y node
}

func (n comparison) eval(s *state) (value, error) {
	x, y, err := both(s, n.x, n.y)
	if err != nil {
		return value{}, err
	}
	truth, err := s.compare(n.op, x.Line, y.Line)
	return value{truth: truth}, err
}

func holds(op string, sign int) bool {
	switch op {
	case "==":
		return sign == 0
	case "!=":
		return sign != 0
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	default:
		return sign >= 0
	}
}

// compare says how two lines compare all over the stretch, or where to split
// it. Quantities are whole raw numbers, so the answer changes at one of them
// even if the lines cross between two.
func (s *state) compare(op string, x, y Line) (bool, error) {
	a, b := x.A.Sub(y.A), x.B.Sub(y.B)
	if a.IsZero() {
		return holds(op, b.Sign()), nil
	}
	// a·q + b = 0 at the raw quantity R = -b·10^18/a
	num, den := b.Neg().Coefficient(), a.Coefficient()
	if shift := 18 + int64(b.Exponent()) - int64(a.Exponent()); shift >= 0 {
		num.Mul(num, pow(10, shift))
	} else {
		den.Mul(den, pow(10, -shift))
	}
	if den.Sign() < 0 {
		num.Neg(num)
		den.Neg(den)
	}
	rest := new(big.Int)
	floor, _ := new(big.Int).DivMod(num, den, rest)
	above := new(big.Int).Add(floor, big.NewInt(1)) // the first beyond R
	at := above                                     // the first not below R
	if rest.Sign() == 0 {
		at = floor
	}
	below, equal, beyond := holds(op, -a.Sign()), holds(op, 0), holds(op, a.Sign())
	if at == above { // no quantity meets R
		equal = beyond
	}
	from, to := s.stretch.From, s.stretch.To
	reaches := func(c *big.Int) bool { return to == nil || c.Cmp(to) < 0 } // something from c on
	before := func(c *big.Int) bool { return from == nil || from.Cmp(c) < 0 }
	switch {
	case before(at) && reaches(at):
		if below != equal {
			return false, &split{at}
		}
		if equal != beyond && reaches(above) {
			return false, &split{above}
		}
		return below, nil
	case before(at):
		return below, nil
	case before(above) && reaches(above):
		if equal != beyond {
			return false, &split{above}
		}
		return equal, nil
	case before(above):
		return equal, nil
	}
	return beyond, nil
}

type same struct {
	differ bool
	x, y   node
}

func (n same) eval(s *state) (value, error) {
	x, y, err := both(s, n.x, n.y)
	return value{truth: (x.text == y.text && x.truth == y.truth) != n.differ}, err
}

// member evaluates its operand once: repeated operands would multiply when
// lists are nested.
type member struct {
	x     node
	kind  kind
	items []value
}

func (n member) eval(s *state) (value, error) {
	x, err := n.x.eval(s)
	if err != nil {
		return value{}, err
	}
	for _, y := range n.items {
		found := x.text == y.text && x.truth == y.truth && x.time.Equal(y.time)
		if n.kind == number {
			if found, err = s.compare("==", x.Line, y.Line); err != nil {
				return value{}, err
			}
		}
		if found {
			return value{truth: true}, nil
		}
	}
	return value{}, nil
}

type times struct {
	op   string
	x, y node
}

func (n times) eval(s *state) (value, error) {
	x, y, err := both(s, n.x, n.y)
	return value{truth: holds(n.op, x.time.Compare(y.time))}, err
}

type part struct {
	op   string
	x, y node
}

func (n part) eval(s *state) (value, error) {
	x, y, err := both(s, n.x, n.y)
	if err != nil {
		return value{}, err
	}
	f := map[string]func(string, string) bool{
		"contains": strings.Contains, "startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix,
	}[n.op]
	return value{truth: f(x.text, y.text)}, nil
}

type function struct {
	name string
	args []node
}

func (n function) eval(s *state) (value, error) {
	var args [20]value
	for i, a := range n.args {
		if n.name == "number" && i == 1 {
			break // only when it is needed
		}
		v, err := a.eval(s)
		if err != nil {
			return value{}, err
		}
		args[i] = v
	}
	x := args[0]
	switch n.name {
	case "abs":
		negative, err := s.compare("<", x.Line, Line{})
		if negative {
			x.Line = Line{x.A.Neg(), x.B.Neg()}
		}
		return x, err
	case "min", "max":
		op := map[string]string{"min": "<", "max": ">"}[n.name]
		for _, y := range args[1:len(n.args)] {
			better, err := s.compare(op, y.Line, x.Line)
			if err != nil {
				return value{}, err
			}
			if better {
				x = y
			}
		}
		return x, nil
	case "floor", "ceil", "round":
		if !x.plain() {
			return value{}, errNotLinear
		}
		return s.number(Line{B: roundTo(n.name, x.B, args[1].B)})
	case "number":
		d, exact, ok := AttributeNumber(x.text)
		switch {
		case ok && exact:
			return s.number(Line{B: d})
		case len(n.args) == 2:
			return n.args[1].eval(s)
		}
		return value{}, reject("number(%q): not a number", ratebatch.Shorten(x.text, 60))
	case "lower":
		return value{text: strings.ToLower(x.text)}, nil
	case "upper":
		return value{text: strings.ToUpper(x.text)}, nil
	}
	t, out := x.time.UTC(), 0
	switch n.name {
	case "hour":
		out = t.Hour()
	case "weekday":
		out = (int(t.Weekday())+6)%7 + 1
	case "day":
		out = t.Day()
	case "month":
		out = int(t.Month())
	case "year":
		out = t.Year()
	}
	return value{Line: Line{B: decimal.New(int64(out), 0)}}, nil
}

func roundTo(how string, x, places decimal.Decimal) decimal.Decimal {
	switch how {
	case "floor":
		return x.Floor()
	case "ceil":
		return x.Ceil()
	}
	n := int32(places.IntPart())
	drop := -int64(x.Exponent()) - int64(n)
	if drop <= 0 {
		return x
	}
	return decimal.NewFromBigInt(halfEven(x.Coefficient(), pow(10, drop)), -n)
}
