package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
)

// quantityScale is the number of fractional digits of a quantity and a price.
const quantityScale = 18

// maxScale is the largest scale of a coefficient that the reciprocal form
// divides by: with 38 the remainder no longer fits Int128.
const maxScale = 37

// maxDense bounds the table that maps a combination's number to its
// coefficients; larger products of dimensions are looked up by hash instead.
const maxDense = 1 << 16

// ChangedMessage is the text of the exception that a pass statement throws when
// usage turned up that was not there when prices were folded.
const ChangedMessage = "usage changed under the pass"

// Combo is one combination of everything but the quantity that a price
// depends on, as found in the usage of a pass.
type Combo struct {
	Window   int      // number of the validity window, from 0
	Class    int      // 0 for scopes without rules of their own, else 1 + index into Input.Scopes
	Values   []string // one per field; empty: the attribute is absent
	Min, Max decimal.Decimal
	Folded   hashmap.Folded
}

// Input is what an Expression is made from.
type Input struct {
	Boundaries []time.Time // instants between windows, ascending; window i ends at Boundaries[i]
	Scopes     []string    // scopes with rules of their own, in the order of Combo.Class
	Fields     int         // number of rule fields; the usage has columns f_0, f_1, …
	Combos     []Combo
}

// Expression is a metric's price as SQL over columns scope, begin, qty and f_0,
// f_1, …. Names of helper columns end in an underscore because aliases are
// global in a query.
type Expression struct {
	// Inner defines q_ and c_, the raw quantity and the coefficient's number, in
	// a SELECT of its own below the one of Columns: ClickHouse writes an alias
	// out wherever it is used, and c_ can hold a hundred thousand constants.
	Inner string
	// Columns defines helper columns and, last, price, rule and bucket.
	Columns string
	// Guard is a condition that throws on usage that was not folded, and
	// leaves out rows that only Go can price.
	Guard string
	// GoGuard selects exactly the rows that Guard leaves out; empty when there
	// are none.
	GoGuard string
	// Known and GoKnown are Guard and GoGuard for who counts rows afterwards:
	// usage that was not folded is left out instead of stopping everybody.
	Known, GoKnown string
	// Form names the arithmetic: exact, int128 or reciprocal.
	Form string
	// Coefficients is the number of distinct coefficients.
	Coefficients int
	// Uses says what the coefficients came from, for reports.
	Uses []Use
}

// Use is one way in which usage was priced.
type Use struct {
	Rule   string // ids of the rules that made the price, "m3+t1"; not known of what is priced in Go
	Bucket string // empty: a price
	Zero   bool   // the price is 0 whatever the quantity
	InGo   bool
}

// coefficient is one distinct (a, b) with what a line says about it.
type coefficient struct {
	a, b   decimal.Decimal
	rule   string
	bucket string
	inGo   bool
	qmax   *big.Int // largest |raw quantity| seen for it
}

// Key is the text that tells coefficients apart.
func (c coefficient) key() string {
	return c.a.String() + "|" + c.b.String() + "|" + c.bucket + "|" + strconv.FormatBool(c.inGo) + "|" + c.rule
}

// Build writes the expression for one metric. Combos must be distinct.
func Build(in Input) (Expression, error) {
	levels, err := unionLevels(in.Combos)
	if err != nil {
		return Expression{}, err
	}
	plan := planForm(in.Combos, levels)
	var coefficients []coefficient
	index := map[string]int{}
	cells := map[uint64]int{} // mixed number → index into coefficients
	dims := newDimensions(in, len(levels))
	for _, combo := range in.Combos {
		for step := range len(levels) + 1 {
			c, seen := plan.coefficient(combo, levels, step)
			if !seen {
				continue
			}
			at, ok := index[c.key()]
			if !ok {
				at = len(coefficients)
				index[c.key()] = at
				coefficients = append(coefficients, c)
			} else if c.qmax.Cmp(coefficients[at].qmax) > 0 {
				coefficients[at].qmax = c.qmax
			}
			number, err := dims.number(combo, step)
			if err != nil {
				return Expression{}, err
			}
			if _, twice := cells[number]; twice {
				return Expression{}, fmt.Errorf("combination %v of window %d was folded twice", combo.Values, combo.Window)
			}
			cells[number] = at
		}
	}
	// Coefficients for Go get the highest numbers, so that one comparison
	// keeps them out of the statement; numbers start at 1, 0 is "not folded".
	order := make([]int, len(coefficients))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return boolInt(coefficients[x].inGo) - boolInt(coefficients[y].inGo)
	})
	numbers := make([]int, len(coefficients))
	sorted := make([]coefficient, len(coefficients))
	inSQL := 0
	for position, at := range order {
		numbers[at] = position + 1
		sorted[position] = coefficients[at]
		if !coefficients[at].inGo {
			inSQL++
		}
	}
	return write(in, dims, levels, plan, sorted, numbers, cells, inSQL), nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unionLevels are all levels at which some combination changes its price,
// ascending, as raw quantities.
func unionLevels(combos []Combo) ([]*big.Int, error) {
	seen := map[string]*big.Int{}
	for _, combo := range combos {
		for _, step := range combo.Folded.Steps {
			if step.From == nil {
				continue
			}
			raw := step.IntFrom()
			if raw.BitLen() > 127 {
				continue // beyond every Decimal(38,18): never reached, or always
			}
			seen[raw.String()] = raw
		}
	}
	out := make([]*big.Int, 0, len(seen))
	for _, raw := range seen {
		out = append(out, raw)
	}
	slices.SortFunc(out, func(a, b *big.Int) int { return a.Cmp(b) })
	if len(out) > 10000 {
		return nil, fmt.Errorf("%d distinct threshold levels for one metric: at most 10,000 are supported", len(out))
	}
	return out, nil
}

// raw is a quantity's integer at scale 18; quantities have no more digits.
func raw(d decimal.Decimal) *big.Int { return d.Shift(quantityScale).BigInt() }

// stepOf is the folded step that holds for raw quantities from level step on
// (step 0: below all levels).
func stepOf(f hashmap.Folded, levels []*big.Int, step int) hashmap.Step {
	chosen := f.Steps[0]
	for _, s := range f.Steps[1:] {
		if s.From == nil {
			continue
		}
		if step > 0 && s.IntFrom().Cmp(levels[step-1]) <= 0 {
			chosen = s
		}
	}
	return chosen
}

// form is how the statement multiplies and rounds.
type form struct {
	k    int32    // scale of the coefficients
	d    *big.Int // 10^k
	n    int      // exponent of the reciprocal form
	m    *big.Int // floor(2^n / d)
	name string
	max  *big.Int // largest |h| that the form holds, exclusive
}

var (
	two       = big.NewInt(2)
	int128Max = new(big.Int).Lsh(big.NewInt(1), 127)
	priceMax  = pow10(38) // raw prices stay below 10^38
)

func pow10(n int32) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// planForm chooses the scale and the cheapest arithmetic that holds for every
// combination that can be priced in SQL at all.
func planForm(combos []Combo, levels []*big.Int) form {
	var k int32
	each(combos, levels, func(s hashmap.Step, _ *big.Int) {
		if need := scaleOf(s); need <= maxScale && need > k {
			k = need
		}
	})
	f := form{k: k, d: pow10(k)}
	if k == 0 {
		f.name, f.max = "exact", int128Max
	} else {
		f.name, f.max = "int128", int128Max
	}
	fits := true
	each(combos, levels, func(s hashmap.Step, q *big.Int) {
		if scaleOf(s) <= maxScale && f.bound(s, q).Cmp(f.max) >= 0 {
			fits = false
		}
	})
	if fits {
		return f
	}
	if k == 0 {
		k = 1 // the reciprocal form rounds, so it needs a digit to round
		f.k, f.d = k, pow10(k)
	}
	f.name = "reciprocal"
	f.n = (255 + f.d.BitLen() - 1) / 2
	f.m = new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), uint(f.n)), f.d)
	f.max = new(big.Int).Lsh(big.NewInt(1), uint(f.n))
	return f
}

// each visits every step that quantities of the combination reach, with the
// largest |raw quantity| in it.
func each(combos []Combo, levels []*big.Int, visit func(hashmap.Step, *big.Int)) {
	for _, combo := range combos {
		if len(combo.Folded.Steps) == 0 {
			continue
		}
		for step := range len(levels) + 1 {
			if q, ok := reach(combo, levels, step); ok {
				visit(stepOf(combo.Folded, levels, step), q)
			}
		}
	}
}

// reach is the largest |raw quantity| of the combination between level step
// and the next, and whether it has any there.
func reach(combo Combo, levels []*big.Int, step int) (*big.Int, bool) {
	lo, hi := raw(combo.Min), raw(combo.Max)
	if step > 0 && lo.Cmp(levels[step-1]) < 0 {
		lo = levels[step-1]
	}
	if step < len(levels) {
		if below := new(big.Int).Sub(levels[step], big.NewInt(1)); hi.Cmp(below) > 0 {
			hi = below
		}
	}
	if lo.Cmp(hi) > 0 {
		return nil, false
	}
	a, b := new(big.Int).Abs(lo), new(big.Int).Abs(hi)
	if a.Cmp(b) > 0 {
		return a, true
	}
	return b, true
}

// scaleOf is the scale that makes the step's a, and its b at 18 more, integers.
func scaleOf(s hashmap.Step) int32 {
	return max(0, fraction(s.A), fraction(s.B)-quantityScale)
}

// fraction is the number of fractional digits that d needs.
func fraction(d decimal.Decimal) int32 {
	if d.IsZero() {
		return 0
	}
	coefficient, exponent := d.Coefficient(), d.Exponent()
	ten, remainder := big.NewInt(10), new(big.Int)
	for exponent < 0 {
		quotient := new(big.Int)
		if quotient.QuoRem(coefficient, ten, remainder); remainder.Sign() != 0 {
			break
		}
		coefficient = quotient
		exponent++
	}
	return max(0, -exponent)
}

// ints are the step's coefficients as integers: a at scale k, b at scale 18+k.
func (f form) ints(a, b decimal.Decimal) (*big.Int, *big.Int) {
	return a.Shift(f.k).BigInt(), b.Shift(f.k + quantityScale).BigInt()
}

// bound is |a·q + b| + d/2 + d at its largest for |raw quantity| ≤ q, in units
// of scale 18+k: what every intermediate number of the form stays below.
func (f form) bound(s hashmap.Step, q *big.Int) *big.Int {
	a, b := f.ints(s.A, s.B)
	out := new(big.Int).Mul(a.Abs(a), q)
	out.Add(out, b.Abs(b))
	out.Add(out, f.d)
	return out.Add(out, new(big.Int).Div(f.d, two))
}

// coefficient says how the combination's quantities in this step are priced,
// and whether there are any.
func (f form) coefficient(combo Combo, levels []*big.Int, step int) (coefficient, bool) {
	q, ok := reach(combo, levels, step)
	if !ok {
		return coefficient{}, false
	}
	switch {
	case combo.Folded.Reject != "":
		return coefficient{rule: combo.Folded.Reject, bucket: string(hashmap.Rejected), qmax: q}, true
	case combo.Folded.PerPoint != "":
		return coefficient{inGo: true, qmax: q}, true
	}
	s := stepOf(combo.Folded, levels, step)
	c := coefficient{a: s.A, b: s.B, rule: s.Rule, qmax: q}
	switch {
	case s.Reject != "":
		return coefficient{rule: s.Reject, bucket: string(hashmap.Rejected), qmax: q}, true
	case s.Skip:
		return coefficient{rule: s.Rule, bucket: string(hashmap.Skipped), qmax: q}, true
	case s.Unpriced:
		return coefficient{rule: s.Rule, bucket: string(hashmap.Unpriced), qmax: q}, true
	}
	if scaleOf(s) > maxScale {
		c.inGo = true
		return c, true
	}
	bound := f.bound(s, q)
	c.inGo = bound.Cmp(f.max) >= 0 || bound.Cmp(new(big.Int).Mul(priceMax, f.d)) >= 0
	if f.k > 0 && f.name == "int128" {
		c.inGo = c.inGo || bound.Cmp(int128Max) >= 0
	}
	return c, true
}

// dimensions number the combinations: window, scope class, each field's value,
// and the step; position 0 of a scope or value is "not folded".
type dimensions struct {
	windows, scopes, steps int
	values                 []map[string]int
	ordered                [][]string
}

func newDimensions(in Input, levels int) *dimensions {
	d := &dimensions{windows: len(in.Boundaries) + 1, scopes: len(in.Scopes) + 1, steps: levels + 1}
	for field := range in.Fields {
		positions := map[string]int{}
		var ordered []string
		for _, combo := range in.Combos {
			if v := combo.Values[field]; positions[v] == 0 {
				positions[v] = len(ordered) + 1
				ordered = append(ordered, v)
			}
		}
		d.values = append(d.values, positions)
		d.ordered = append(d.ordered, ordered)
	}
	return d
}

// size is how many numbers there are, and whether they fit a UInt64 safely.
func (d *dimensions) size() (uint64, bool) {
	size := big.NewInt(int64(d.windows))
	size.Mul(size, big.NewInt(int64(d.scopes)))
	for _, ordered := range d.ordered {
		size.Mul(size, big.NewInt(int64(len(ordered)+1)))
	}
	size.Mul(size, big.NewInt(int64(d.steps)))
	if size.BitLen() > 62 {
		return 0, false
	}
	return size.Uint64(), true
}

func (d *dimensions) number(combo Combo, step int) (uint64, error) {
	if _, ok := d.size(); !ok {
		return 0, fmt.Errorf("too many combinations of rule fields for one metric")
	}
	n := uint64(combo.Window)*uint64(d.scopes) + uint64(combo.Class)
	for field, positions := range d.values {
		n = n*uint64(len(d.ordered[field])+1) + uint64(positions[combo.Values[field]])
	}
	return n*uint64(d.steps) + uint64(step), nil
}
