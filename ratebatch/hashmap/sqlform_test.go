package hashmap

import (
	"math/big"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

// The emulations below compute as ClickHouse does: every intermediate result
// wraps around at its type's width, so an overflow gives a wrong answer here
// too instead of an error.

func wrap(x *big.Int, width uint) *big.Int {
	mod := new(big.Int).Lsh(big.NewInt(1), width)
	x = new(big.Int).Mod(x, mod)
	if x.Bit(int(width-1)) == 1 {
		x.Sub(x, mod)
	}
	return x
}

func i128(x *big.Int) *big.Int     { return wrap(x, 128) }
func i256(x *big.Int) *big.Int     { return wrap(x, 256) }
func mul(a, b *big.Int) *big.Int   { return new(big.Int).Mul(a, b) }
func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }

func truth(b bool) *big.Int {
	if b {
		return big.NewInt(1)
	}
	return new(big.Int)
}

func makeEven(c *big.Int, tie bool) *big.Int {
	return minus(c, new(big.Int).And(c, truth(tie)))
}

func reciprocalForm(a, b, q *big.Int, k int) *big.Int {
	d, m, n := Reciprocal(k)
	h := i256(plus(plus(i256(mul(a, q)), b), new(big.Int).Rsh(d, 1)))
	e := i128(new(big.Int).Rsh(i256(mul(h, m)), n))
	r := i128(minus(i128(h), i128(mul(e, d))))
	c := i128(minus(plus(e, truth(r.Cmp(d) >= 0)), truth(r.Sign() < 0)))
	return makeEven(c, r.Sign() == 0 || r.Cmp(d) == 0)
}

func int128Form(a, b, q *big.Int, k int) *big.Int {
	d := bigPow10(int64(k))
	h := i128(plus(i128(plus(i128(mul(a, q)), b)), new(big.Int).Rsh(d, 1)))
	e := new(big.Int).Quo(h, d)
	r := i128(minus(h, i128(mul(e, d))))
	e = minus(e, truth(r.Sign() < 0))
	return makeEven(e, r.Sign() == 0)
}

func wideForm(a, b, q *big.Int, k int) *big.Int {
	d := bigPow10(int64(k))
	x := i256(plus(i256(mul(a, q)), b))
	e := new(big.Int).Quo(x, d)
	r := i256(minus(x, i256(mul(e, d))))
	twice := i256(mul(new(big.Int).Abs(r), big.NewInt(2)))
	if c := twice.Cmp(d); c > 0 || c == 0 && e.Bit(0) == 1 {
		e.Add(e, big.NewInt(int64(x.Sign())))
	}
	return e
}

// drawBig draws integers of all magnitudes up to a number of bits.
func drawBig(t *rapid.T, name string, bits int) *big.Int {
	n := rapid.IntRange(0, bits).Draw(t, name+" bits")
	x := new(big.Int)
	for _, b := range rapid.SliceOfN(rapid.Byte(), (n+7)/8, (n+7)/8).Draw(t, name) {
		x.Lsh(x, 8).Or(x, big.NewInt(int64(b)))
	}
	x.Rsh(x, uint((n+7)/8*8-n))
	if rapid.Bool().Draw(t, name+" negative") {
		x.Neg(x)
	}
	return x
}

func TestSQLFormsRoundExactly(t *testing.T) {
	t.Parallel()
	forms := []struct {
		name  string
		maxK  int
		qmax  func(a, b *big.Int, k int) *big.Int
		price func(a, b, q *big.Int, k int) *big.Int
	}{
		{"int128", Int128MaxK, QMaxInt128, int128Form},
		{"reciprocal", ReciprocalMaxK, QMax, reciprocalForm},
		{"wide", WideMaxK, QMaxWide, wideForm},
	}
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			within := 0
			rapid.Check(t, func(t *rapid.T) {
				for range 100 {
					k := rapid.IntRange(1, form.maxK).Draw(t, "k")
					a, b := drawBig(t, "a", 200), drawBig(t, "b", 160)
					qmax := form.qmax(a, b, k)
					if qmax.Sign() < 0 {
						continue
					}
					d := bigPow10(int64(k))
					q := drawBig(t, "q", 128)
					switch rapid.IntRange(0, 4).Draw(t, "q at") {
					case 0: // the edge, where an overflow would show first
						q.Set(qmax)
					case 1:
						q.Neg(qmax)
					case 2: // an exact tie: a·q + b = (2n+1)·d/2
						odd := big.NewInt(int64(rapid.IntRange(-1000, 1000).Draw(t, "n"))*2 + 1)
						b = minus(new(big.Int).Quo(mul(odd, d), big.NewInt(2)), mul(a, q))
						qmax = form.qmax(a, b, k)
					}
					if new(big.Int).Abs(q).Cmp(qmax) > 0 {
						continue
					}
					within++
					want := divRound(plus(mul(a, q), b), d)
					if got := form.price(a, b, q, k); got.Cmp(want) != 0 {
						t.Fatalf("a %s, b %s, q %s, k %d: %s, want %s", a, b, q, k, got, want)
					}
					if want.CmpAbs(maxRaw) > 0 {
						t.Fatalf("a %s, b %s, q %s, k %d: %s does not fit Decimal(38,18)", a, b, q, k, want)
					}
				}
			})
			if within < 1000 {
				t.Errorf("only %d draws were within bounds", within)
			}
		})
	}
}

func TestDivRoundIsHalfEven(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ x, d, want int64 }{
		{5, 10, 0}, {15, 10, 2}, {25, 10, 2}, {-5, 10, 0}, {-15, 10, -2}, {-25, 10, -2},
		{14, 10, 1}, {16, 10, 2}, {-14, 10, -1}, {-16, 10, -2}, {0, 10, 0},
	} {
		if got := divRound(big.NewInt(tt.x), big.NewInt(tt.d)); got.Int64() != tt.want {
			t.Errorf("divRound(%d, %d) = %s, want %d", tt.x, tt.d, got, tt.want)
		}
	}
}

func TestReciprocalConstants(t *testing.T) {
	t.Parallel()
	for k, want := range map[int]uint{18: 157, 28: 174} { // as measured in the lab
		if _, _, n := Reciprocal(k); n != want {
			t.Errorf("Reciprocal(%d): N = %d, want %d", k, n, want)
		}
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 255)
	for k := 1; k <= ReciprocalMaxK; k++ {
		_, m, n := Reciprocal(k)
		if new(big.Int).Lsh(m, n).Cmp(limit) > 0 {
			t.Errorf("Reciprocal(%d): 2^N·M is not below 2^255", k)
		}
	}
}

func TestScaleIsTheLeastThatHoldsAllCoefficients(t *testing.T) {
	t.Parallel()
	step := func(a, b string) Step {
		return Step{A: decimal.RequireFromString(a), B: decimal.RequireFromString(b)}
	}
	for name, tt := range map[string]struct {
		steps []Step
		want  int
	}{
		"whole costs still have one decimal":     {[]Step{step("2", "1")}, 1},
		"the finest A counts":                    {[]Step{step("2.25", "1"), step("0.001", "0")}, 3},
		"a B within 18 decimals costs nothing":   {[]Step{step("2", "0.000000000000000001")}, 1},
		"beyond 18 decimals the finest B counts": {[]Step{step("2", "0.0000000000000000000000000001")}, 10},
		"zero has no scale":                      {[]Step{{A: decimal.New(0, -28), B: decimal.New(0, -60)}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Scale(Folded{Steps: tt.steps}); got != tt.want {
				t.Errorf("Scale = %d, want %d", got, tt.want)
			}
			for i := range tt.steps {
				s := &tt.steps[i]
				a := decimal.NewFromBigInt(s.IntA(tt.want), int32(-tt.want))
				b := decimal.NewFromBigInt(s.IntB(tt.want), int32(-tt.want-18))
				if !a.Equal(s.A) || !b.Equal(s.B) {
					t.Errorf("integers %s and %s of %s and %s", a, b, s.A, s.B)
				}
			}
		})
	}
}
