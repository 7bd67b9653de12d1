package hashmap

import (
	"math/big"

	"github.com/shopspring/decimal"
)

// A step's price in SQL is integer arithmetic. With the quantity's raw number
// q (scale 18), A as an integer a of scale k and B as an integer b of scale
// 18+k, a·q + b is the price at scale 18+k, and what is left is to divide by
// d = 10^k, half to even. Three forms do that, the faster the less they hold:
//
//	Int128      h = a*q + b + d/2; e = intDiv(h, d); e -= (h - e*d < 0);
//	            price = e, less its lowest bit if h - e*d = 0 (a tie)
//	Reciprocal  h as Int256; e = h*M >> N; r = h - e*d (in Int128);
//	            c = e + (r >= d) - (r < 0); less the lowest bit if r = 0 or r = d
//	Wide        x = a*q + b as Int256; e = intDiv(x, d); r = x - e*d;
//	            e moves away from zero if 2|r| > d, or 2|r| = d and e is odd
//
// Overflow is silent in ClickHouse, so each pair of coefficients has a largest
// |q| up to which a form is exact; beyond it a line is priced in Go.
//
// k is never 0: the tie test would take every product for a tie.

// Largest k of each form.
const (
	Int128MaxK     = 37 // 2d must fit Int128
	ReciprocalMaxK = 37
	WideMaxK       = 58
)

// Bound of every quantity: the largest raw number of Decimal(38,18).
var maxRaw = new(big.Int).Sub(bigPow10(38), big.NewInt(1))

// Scale is the least k at which all coefficients are integers: A at scale k, B
// at scale 18+k. It is at least 1.
func Scale(folded ...Folded) int {
	k := 1
	for i := range folded {
		for j := range folded[i].Steps {
			s := &folded[i].Steps[j]
			k = max(k, -int(normalZero(s.A).Exponent()), -int(normalZero(s.B).Exponent())-PriceScale)
		}
	}
	return k
}

// normalZero is d, or 0 without an exponent.
func normalZero(d decimal.Decimal) decimal.Decimal {
	if d.IsZero() {
		return decimal.Decimal{}
	}
	return d
}

// IntA is A as an integer of scale k.
func (s *Step) IntA(k int) *big.Int { return atScale(s.A, k) }

// IntB is B as an integer of scale 18+k.
func (s *Step) IntB(k int) *big.Int { return atScale(s.B, PriceScale+k) }

// IntFrom is From as a raw quantity: the least one of the step. A level with
// more than 18 decimals is met by the raw quantity above it.
func (s *Step) IntFrom() *big.Int {
	if s.From == nil {
		return nil
	}
	drop := -s.From.Exponent() - PriceScale
	if drop <= 0 {
		return atScale(*s.From, PriceScale)
	}
	q, r := new(big.Int).QuoRem(s.From.Coefficient(), bigPow10(int64(drop)), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// atScale panics if d has more decimals, since k comes from Scale.
func atScale(d decimal.Decimal, k int) *big.Int {
	d = normalZero(d)
	n := int64(k) + int64(d.Exponent())
	if n < 0 {
		panic("hashmap: " + d.String() + " has more decimals than its SQL form")
	}
	return new(big.Int).Mul(d.Coefficient(), bigPow10(n))
}

// Reciprocal gives the constants of the reciprocal form for a scale k from 1
// to ReciprocalMaxK: d = 10^k, M = floor(2^N/d), and the shift N, the largest
// with 2^N·M below 2^255.
func Reciprocal(k int) (d, m *big.Int, n uint) {
	d = new(big.Int).Set(bigPow10(int64(k)))
	n = uint(255+d.BitLen()-1) / 2
	m = new(big.Int).Lsh(big.NewInt(1), n)
	return d, m.Quo(m, d), n
}

// QMax is the largest |q| for which the reciprocal form is exact with these
// coefficients: floor((min(2^N, 10^(38+k)) − d − |b|) / |a|), at most what
// Decimal(38,18) holds; −1 if not even q = 0 can be computed.
func QMax(a, b *big.Int, k int) *big.Int {
	if k < 1 || k > ReciprocalMaxK || a.BitLen() > 254 || b.BitLen() > 254 {
		return big.NewInt(-1)
	}
	_, _, n := Reciprocal(k)
	return qmax(a, b, k, new(big.Int).Lsh(big.NewInt(1), n))
}

// QMaxInt128 is the same for the Int128 form.
func QMaxInt128(a, b *big.Int, k int) *big.Int {
	if k < 1 || k > Int128MaxK || !WithinInt128(a) || !WithinInt128(b) {
		return big.NewInt(-1)
	}
	return qmax(a, b, k, maxInt128)
}

// QMaxWide is the same for the wide form.
func QMaxWide(a, b *big.Int, k int) *big.Int {
	if k < 1 || k > WideMaxK || a.BitLen() > 254 || b.BitLen() > 254 {
		return big.NewInt(-1)
	}
	return qmax(a, b, k, maxInt256)
}

var (
	maxInt128 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), big.NewInt(1))
	maxInt256 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(1))
)

func qmax(a, b *big.Int, k int, holds *big.Int) *big.Int {
	room := new(big.Int).Set(bigPow10(int64(38 + k)))
	if holds.Cmp(room) < 0 {
		room.Set(holds)
	}
	room.Sub(room, bigPow10(int64(k)))
	room.Sub(room, new(big.Int).Abs(b))
	switch {
	case room.Sign() < 0:
		return big.NewInt(-1)
	case a.Sign() == 0:
		return new(big.Int).Set(maxRaw)
	}
	room.Quo(room, new(big.Int).Abs(a))
	if room.Cmp(maxRaw) > 0 {
		room.Set(maxRaw)
	}
	return room
}

// WithinInt128 says whether an Int128 literal can hold x. The most negative
// Int128 is left out, so that the answer is the same for −x.
func WithinInt128(x *big.Int) bool { return x.BitLen() <= 127 }

// Bounds are the largest |q| of the three forms for one step.
type Bounds struct {
	Int128, Reciprocal, Wide *big.Int
}

// Bounds gives the step's bounds at scale k, which must be at least the
// step's own.
func (s *Step) Bounds(k int) Bounds {
	a, b := s.IntA(k), s.IntB(k)
	return Bounds{QMaxInt128(a, b, k), QMax(a, b, k), QMaxWide(a, b, k)}
}
