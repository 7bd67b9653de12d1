package metric

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// raw is a metric's raw value in SQL: integer ÷ denominator. The integer is an
// expression of type Int128 or Int256 that is cheap to repeat.
type raw struct {
	sql string
	in  integer // its type
	// bound is what |sql| cannot exceed, by types or by a guard on rows.
	bound *big.Int
	// sane is what |sql| exceeds only in damaged data: the arithmetic must hold
	// up to here, and a guard fails the query where it does not hold. nil: up to
	// the greatest quantity.
	sane *big.Int
	// signed is set unless sql is proven not to be negative.
	signed      bool
	denominator *big.Int
	// weight is a further divisor that varies from row to row: an Int256
	// expression in [1, 2^62], or empty.
	weight string
}

// linear is mutate's argument as an integer fraction: (a·N + b) ÷ d in lowest
// terms, where N is the raw integer.
type linear struct{ a, b, d *big.Int }

// linear scales raw × factor + offset by 10^digits.
func (m *Metric) linear(den *big.Int, digits int64) linear {
	x := new(big.Rat).Quo(m.Factor, new(big.Rat).SetInt(den))
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil))
	x.Mul(x, scale)
	y := new(big.Rat).Mul(m.Offset, scale)
	g := new(big.Int).GCD(nil, nil, x.Denom(), y.Denom())
	d := new(big.Int).Mul(new(big.Int).Quo(x.Denom(), g), y.Denom()) // least common multiple
	return linear{
		a: new(big.Int).Mul(x.Num(), new(big.Int).Quo(d, x.Denom())),
		b: new(big.Int).Mul(y.Num(), new(big.Int).Quo(d, y.Denom())),
		d: d,
	}
}

var (
	one    = big.NewInt(1)
	max128 = pow2minus1(127)
	max256 = pow2minus1(255)
	// maxWhole is the greatest whole quantity.
	maxWhole = new(big.Int).Quo(maxQty, ten18)
)

// room gives the greatest |N| for which |a·N + b| + extra stays within most.
func (l linear) room(most, extra *big.Int) *big.Int {
	left := new(big.Int).Sub(most, extra)
	left.Sub(left, new(big.Int).Abs(l.b))
	if left.Sign() < 0 {
		return big.NewInt(-1)
	}
	if l.a.Sign() == 0 {
		return max256
	}
	return left.Quo(left, new(big.Int).Abs(l.a))
}

// quantity gives an Int128 expression for mutate(raw × factor + offset) in
// units of 10^-18, rounded once, half-even.
func (m *Metric) quantity(r raw) (string, error) {
	var sql string
	var err error
	switch m.Mutate {
	case NumBool, NotNumBool:
		sql, err = m.boolean(r)
	case Map:
		sql, err = m.lookup(r)
	case Floor, Ceil:
		sql, err = m.rounded(r, 0, maxWhole)
		sql = fmt.Sprintf("(%s) * %s", sql, int128.literal(ten18))
	case None:
		sql, err = m.rounded(r, 18, maxQty)
	}
	return sql, err
}

// rounded gives an Int128 expression for x × 10^digits rounded as the metric
// says; |x × 10^digits| is at most most, or the query fails.
func (m *Metric) rounded(r raw, digits int64, most *big.Int) (string, error) {
	if r.weight != "" {
		return m.roundedMean(r, digits, most)
	}
	l := m.linear(r.denominator, digits)
	fits := l.room(new(big.Int).Mul(most, l.d), l.d) // the quantity fits
	sane := r.sane
	if sane == nil || sane.Cmp(fits) > 0 {
		sane = fits
	}
	in, limit := int128, least(fits, l.room(max128, l.d))
	if fits.Sign() < 0 {
		return "", fmt.Errorf("metric %s: the offset alone does not fit Decimal(38,18)", m.Name)
	}
	if limit.Cmp(sane) < 0 {
		in, limit = int256, least(fits, l.room(max256, l.d))
	}
	if limit.Cmp(sane) < 0 {
		return "", m.tooPrecise()
	}
	n := in.cast(r.sql, r.in)
	if r.bound.Cmp(limit) > 0 {
		n = fmt.Sprintf("(%s + %s)", n, m.outOfRange(r, limit))
	}
	signed := r.signed || l.a.Sign() < 0 || l.b.Sign() < 0
	return int128.cast(m.divide(n, l, signed, in), in), nil
}

func (m *Metric) tooPrecise() error {
	return fmt.Errorf("metric %s: factor and offset have too many digits for exact arithmetic in 256 bits", m.Name)
}

// divide writes (a·n + b) ÷ d rounded as mutate says. Adding half the divisor
// first makes one division enough; a tie is then a division without rest, to
// be made even, and only an even divisor has ties.
func (m *Metric) divide(n string, l linear, signed bool, in integer) string {
	b := new(big.Int).Set(l.b)
	ties := false
	if l.d.Cmp(one) != 0 {
		switch m.Mutate {
		case Floor:
		case Ceil:
			b.Add(b, l.d).Sub(b, one)
		case None, NumBool, NotNumBool, Map:
			b.Add(b, new(big.Int).Rsh(l.d, 1))
			ties = l.d.Bit(0) == 0
		}
	}
	h := n
	if l.a.Cmp(one) != 0 {
		h = fmt.Sprintf("%s * %s", n, in.literal(l.a))
	}
	if b.Sign() != 0 {
		h = fmt.Sprintf("%s + %s", h, in.literal(b))
	}
	if l.d.Cmp(one) == 0 {
		return h
	}
	return floorDiv(h, in.literal(l.d), signed, ties, in)
}

// floorDiv divides. intDiv cuts towards zero, so a negative rest means that
// the floor is one lower. With even set, a quotient without rest is made even.
func floorDiv(h, d string, signed, even bool, in integer) string {
	c := fmt.Sprintf("intDiv((%s) AS h_, %s) AS c_", h, d)
	if signed {
		c = fmt.Sprintf("(intDiv((%s) AS h_, %s) AS e_) - (h_ < e_ * %s) AS c_", h, d, d)
	}
	if even {
		return fmt.Sprintf("(%s) - bitAnd(c_, to%s(h_ = c_ * %s))", c, in, d)
	}
	return fmt.Sprintf("(%s)", c)
}

// heaviest is the greatest sum of weights: 2^40 rows of a day in milliseconds.
var heaviest = new(big.Int).Lsh(one, 67)

// roundedMean is rounded for a divisor that varies from row to row: a mean.
// Everything is Int256: the time goes into that one division anyway.
func (m *Metric) roundedMean(r raw, digits int64, most *big.Int) (string, error) {
	l := m.linear(r.denominator, digits)
	// |2·(a·V + b·W)| + 2·d·W must fit.
	extra := new(big.Int).Add(new(big.Int).Abs(l.b), l.d)
	extra.Mul(extra, heaviest)
	limit := linear{l.a, new(big.Int), l.d}.room(new(big.Int).Rsh(max256, 1), extra)
	if limit.Cmp(r.sane) < 0 {
		return "", m.tooPrecise()
	}
	h := fmt.Sprintf("(%s + %s) * %s", int256.cast(r.sql, r.in), m.outOfRange(r, limit), int256.literal(l.a))
	if l.b.Sign() != 0 {
		h += fmt.Sprintf(" + %s * %s", r.weight, int256.literal(l.b))
	}
	d := fmt.Sprintf("(%s * %s)", r.weight, int256.literal(l.d))
	even := false
	switch m.Mutate {
	case Floor:
	case Ceil:
		h = fmt.Sprintf("%s + %s - 1", h, d)
	case None, NumBool, NotNumBool, Map:
		h, even = fmt.Sprintf("2 * (%s) + %s", h, d), true
		d = fmt.Sprintf("(%s * %s)", r.weight, int256.literal(new(big.Int).Lsh(l.d, 1)))
	}
	q := fmt.Sprintf("(%s) AS q_", floorDiv(h, d, true, even, int256))
	return fmt.Sprintf("toInt128(%s) + %s", q, m.fail(
		fmt.Sprintf("q_ > %s OR q_ < %s", int256.literal(most), int256.literal(new(big.Int).Neg(most))), beyondExact)), nil
}

const beyondExact = "a quantity beyond what can be computed exactly"

// outOfRange is an expression that is 0, or fails the query when the raw
// integer is beyond the limit.
func (m *Metric) outOfRange(r raw, limit *big.Int) string {
	in := r.in
	if limit.Cmp(max128) > 0 {
		in = int256
	}
	beyond := fmt.Sprintf("%s > %s", r.sql, in.literal(limit))
	if r.signed {
		beyond += fmt.Sprintf(" OR %s < %s", r.sql, in.literal(new(big.Int).Neg(limit)))
	}
	return m.fail(beyond, beyondExact)
}

// fail is an expression that is 0 unless the condition holds; then the query fails.
func (m *Metric) fail(condition, text string) string {
	return fmt.Sprintf("throwIf(%s, %s)", condition, sqltext.String(fmt.Sprintf("metric %s: %s", m.Name, text)))
}

// boolean asks whether raw × factor + offset is 0.
func (m *Metric) boolean(r raw) (string, error) {
	zero, err := m.equals(r, new(big.Rat))
	if err != nil {
		return "", err
	}
	if m.Mutate == NumBool {
		zero = fmt.Sprintf("NOT (%s)", zero)
	}
	return fmt.Sprintf("toInt128(%s) * %s", zero, int128.literal(ten18)), nil
}

// lookup is mutate_map: keys are turned into the raw integers that give them,
// so that they match exactly.
func (m *Metric) lookup(r raw) (string, error) {
	var b strings.Builder
	b.WriteString("multiIf(")
	for _, e := range m.Map {
		is, err := m.equals(r, e.From)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s, %s, ", is, int128.literal(roundHalfEven(e.To.Rat())))
	}
	b.WriteString("toInt128(0))")
	return b.String(), nil
}

// equals is a condition for raw × factor + offset = x.
func (m *Metric) equals(r raw, x *big.Rat) (string, error) {
	l := m.linear(r.denominator, 0)
	// (a·N + b) ÷ d = x  ⇔  N = (x·d − b) ÷ a; for a mean, N is V ÷ W.
	want := new(big.Rat).Mul(x, new(big.Rat).SetInt(l.d))
	want.Sub(want, new(big.Rat).SetInt(l.b))
	if l.a.Sign() == 0 {
		if want.Sign() == 0 {
			return "1", nil
		}
		return "0", nil
	}
	want.Quo(want, new(big.Rat).SetInt(l.a))
	if r.weight != "" {
		// V·denominator = numerator·W, all of it below 2^255.
		if want.Denom().BitLen() > 80 || want.Num().BitLen() > 187 {
			return "", m.tooPrecise()
		}
		v := fmt.Sprintf("(%s + %s)", int256.cast(r.sql, r.in), m.outOfRange(r, pow2minus1(174)))
		return fmt.Sprintf("%s * %s = %s * %s", v, int256.literal(want.Denom()), r.weight, int256.literal(want.Num())), nil
	}
	limit := map[integer]*big.Int{int128: max128, int256: max256}[r.in]
	if !want.IsInt() || want.Num().CmpAbs(limit) > 0 {
		return "0", nil
	}
	return fmt.Sprintf("%s = %s", r.sql, r.in.literal(want.Num())), nil
}

func least(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// integer is one of ClickHouse's types for exact arithmetic.
type integer string

const (
	int128 integer = "Int128"
	int256 integer = "Int256"
)

// literal writes a constant. Its text is quoted because a bare number above
// 64 bits would be a float.
func (i integer) literal(x *big.Int) string { return fmt.Sprintf("to%s('%s')", i, x) }

func (i integer) cast(sql string, from integer) string {
	if i == from {
		return sql
	}
	return fmt.Sprintf("to%s(%s)", i, sql)
}
