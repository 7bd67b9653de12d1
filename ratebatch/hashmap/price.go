package hashmap

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"sync"
	"time"

	"github.com/shopspring/decimal"
)

// Point is one quantity to be priced.
type Point struct {
	Metric     string
	Scope      string
	Unit       string
	Qty        decimal.Decimal
	Attributes map[string]string // groupby over metadata: on equal keys groupby wins
	Begin      time.Time         // of the period; the rules in force then apply
	PriceIn    decimal.Decimal   // the price before rating, for CloudKitty's recorded cases; otherwise 0
	Before     decimal.Decimal   // what its account has used in the month before it; of metrics with tiers
}

// Bucket is the named place for a point that is not an ordinary line.
type Bucket string

const (
	Priced   Bucket = ""         // an ordinary line
	Unpriced Bucket = "unpriced" // no rule matched: price 0, but not silently
	Rejected Bucket = "rejected" // it cannot be priced; see the reason
	Skipped  Bucket = "skipped"  // the plan's skip expression says so
)

// Result is the answer for one point.
type Result struct {
	Price  decimal.Decimal // rounded half-even to 18 decimals; 0 when rejected or skipped
	Rule   string          // ids of the rules that made the price
	Bucket Bucket
	Reason string // of a rejected point

	step    *Step
	qty, in decimal.Decimal
}

// Exact is the price before rounding.
func (r *Result) Exact() decimal.Decimal {
	if r.step == nil {
		return r.Price
	}
	return r.step.A.Mul(r.qty).Add(r.step.B).Add(r.in)
}

// OutOfRange is the reason for rejecting a price that no rated line can hold.
const OutOfRange = "price out of range: 1e20 or more"

// Price prices one point. What the point's attributes come to is worked out
// once per combination and kept, so that many points cost one multiplication
// each. A point of a metric with tiers is priced as the only usage of its period,
// after what Before says; PriceTiers prices those that share an account.
func (e *Evaluator) Price(p *Point) Result {
	s := e.lookup(p.Metric)
	if len(s.tiers) > 0 {
		r, _ := e.priceTiers(p)
		return r
	}
	found := e.prepared(s, p, e.window(p.Begin))
	if s.hasExpressions() && (found.folded.PerPoint != "" || !p.PriceIn.IsZero() || p.Qty.Exponent() < -PriceScale) {
		// Folded expressions are cut at raw quantities of scale 18 and begin
		// with a price of 0.
		return e.evaluate(s, p, found.hashmap, func(string, ...any) {})
	}
	return found.price(p)
}

// maxCached bounds the combinations that a metric keeps. Beyond it all are
// forgotten and collected anew, which costs time and no memory.
const maxCached = 1 << 16

func (e *Evaluator) prepared(s *service, p *Point, window int) *prepared {
	var buffer [256]byte
	key := binary.AppendUvarint(buffer[:0], uint64(window))
	key = appendText(key, p.Scope, s.scopes[p.Scope])
	for _, f := range s.fields {
		value, ok := p.Attributes[f.name]
		if len(f.thresholds) == 0 { // only values that some mapping names make a difference
			key = binary.AppendUvarint(key, uint64(f.values[value]))
			continue
		}
		key = appendText(key, value, ok)
	}
	for _, name := range s.extra {
		value, ok := p.Attributes[name]
		key = appendText(key, value, ok)
	}
	if s.usesMetric {
		key = appendText(key, p.Metric, true)
	}
	if s.usesUnit {
		key = appendText(key, p.Unit, true)
	}
	s.mu.RLock()
	found := s.cache[string(key)]
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	hashmap := sync.OnceValue(func() Folded {
		return s.fold(p.Scope, p.Begin, func(f *field) (string, bool) {
			v, ok := p.Attributes[f.name]
			return v, ok
		})
	})
	found = prepare(e.foldWith(s, p.env(), hashmap))
	if s.hasExpressions() {
		h := hashmap()
		found.hashmap = func(p *Point) hashmapPart { return h.part(p.Qty) }
	}
	s.mu.Lock()
	if len(s.cache) >= maxCached {
		clear(s.cache)
	}
	s.cache[string(key)] = found
	s.mu.Unlock()
	return found
}

func appendText(key []byte, text string, present bool) []byte {
	if !present {
		return append(key, 0)
	}
	key = binary.AppendUvarint(key, uint64(len(text))+1)
	return append(key, text...)
}

// prepared is a Folded with its numbers laid out for fast arithmetic.
type prepared struct {
	folded  Folded
	fast    []fastStep
	hashmap func(*Point) hashmapPart // for expressions that are evaluated point by point
}

// fastStep holds a step's numbers as machine integers where they fit.
type fastStep struct {
	from   int128 // at scale 18
	a, b   int64
	as, bs int32 // scales of a and b
	ok     bool  // a and b fit

	abig, bbig *big.Int // the same without a limit, at these scales
	abs, bbs   int32
}

func prepare(f Folded) *prepared {
	p := &prepared{folded: f, fast: make([]fastStep, len(f.Steps))}
	for i := range f.Steps {
		s, q := &f.Steps[i], &p.fast[i]
		if s.From != nil {
			from, ok := rawAt18(*s.From)
			if !ok {
				p.fast = nil // a level with more than 18 decimals: compare decimals
				return p
			}
			q.from = from
		}
		var aok, bok bool
		q.a, q.as, aok = small(s.A)
		q.b, q.bs, bok = small(s.B)
		q.ok = aok && bok
		q.abig, q.abs = s.A.Coefficient(), -s.A.Exponent()
		q.bbig, q.bbs = s.B.Coefficient(), -s.B.Exponent()
	}
	return p
}

// small takes a decimal apart if coefficient and scale are within 18 digits.
func small(d decimal.Decimal) (coefficient int64, scale int32, ok bool) {
	scale = -d.Exponent()
	if scale < 0 || scale > 28 || d.NumDigits() > 18 {
		return 0, 0, false
	}
	return d.CoefficientInt64(), scale, true
}

func (p *prepared) price(pt *Point) Result {
	if p.folded.Reject != "" {
		return Result{Bucket: Rejected, Reason: p.folded.Reject}
	}
	if p.fast != nil && pt.PriceIn.IsZero() {
		if q, scale, ok := small(pt.Qty); ok && scale <= PriceScale {
			raw := mul64(q, pow10[PriceScale-scale])
			i := len(p.fast) - 1
			for i > 0 && raw.less(p.fast[i].from) {
				i--
			}
			if price, ok := p.fast[i].price(q, scale); ok {
				return p.result(&p.folded.Steps[i], pt, price)
			}
			return p.result(&p.folded.Steps[i], pt, p.fast[i].priceBig(q, scale))
		}
	}
	if !reasonable(pt.Qty) || !reasonable(pt.PriceIn) {
		return Result{Bucket: Rejected, Reason: QtyOutOfRange}
	}
	step := p.folded.At(pt.Qty)
	return p.result(step, pt, Round(exact(step, pt)))
}

// QtyOutOfRange is the reason for rejecting a quantity that is far beyond what
// any table holds. It bounds the work that a hostile case file can ask for.
const QtyOutOfRange = "quantity out of range"

func reasonable(d decimal.Decimal) bool {
	const most = 200
	return d.Exponent() >= -most && d.NumDigits()+max(0, int(d.Exponent())) <= 2*most
}

func exact(s *Step, pt *Point) decimal.Decimal {
	return s.A.Mul(pt.Qty).Add(s.B).Add(pt.PriceIn)
}

func (p *prepared) result(s *Step, pt *Point, price decimal.Decimal) Result {
	r := Result{Price: price, Rule: s.Rule, step: s, qty: pt.Qty, in: pt.PriceIn}
	switch {
	case s.Reject != "":
		return Result{Bucket: Rejected, Reason: s.Reject}
	case s.Skip:
		return Result{Bucket: Skipped}
	case s.Unpriced:
		r.Bucket = Unpriced
	}
	if outOfRange(price) {
		r.Bucket, r.Reason, r.Price = Rejected, OutOfRange, decimal.Decimal{}
	}
	return r
}

func outOfRange(price decimal.Decimal) bool {
	return price.NumDigits()+int(price.Exponent()) > 20 && !price.IsZero()
}

// price is a·q + b rounded, as long as 128 bits hold what comes in between.
func (s *fastStep) price(q int64, scale int32) (decimal.Decimal, bool) {
	if !s.ok {
		return decimal.Decimal{}, false
	}
	x, xs := mul64(s.a, q), s.as+scale
	if s.b != 0 {
		shift := xs - s.bs
		if shift < 0 || shift > 18 {
			return decimal.Decimal{}, false
		}
		x = x.add(mul64(s.b, pow10[shift]))
	}
	drop := xs - PriceScale
	if drop <= 0 {
		return x.decimal(-xs), true
	}
	if drop > 18 {
		return decimal.Decimal{}, false
	}
	return x.divRound(uint64(pow10[drop])).decimal(-PriceScale), true
}

// priceBig is the same for coefficients of any length.
func (s *fastStep) priceBig(q int64, scale int32) decimal.Decimal {
	x := big.NewInt(q)
	x.Mul(x, s.abig)
	xs := s.abs + scale
	if s.bbig.Sign() != 0 {
		if xs < s.bbs {
			x.Mul(x, bigPow10(int64(s.bbs-xs)))
			xs = s.bbs
		}
		x.Add(x, new(big.Int).Mul(s.bbig, bigPow10(int64(xs-s.bbs))))
	}
	if xs <= PriceScale {
		return decimal.NewFromBigInt(x, -xs)
	}
	return decimal.NewFromBigInt(divRound(x, bigPow10(int64(xs-PriceScale))), -PriceScale)
}

// Round is the one rounding of a price: to 18 decimals, half to even.
func Round(d decimal.Decimal) decimal.Decimal {
	drop := -int64(d.Exponent()) - PriceScale
	if drop <= 0 {
		return d
	}
	return decimal.NewFromBigInt(divRound(d.Coefficient(), bigPow10(drop)), -PriceScale)
}

// divRound is x/d rounded half to even, for d > 0.
func divRound(x, d *big.Int) *big.Int {
	var q, r big.Int
	q.QuoRem(x, d, &r)
	r.Abs(&r).Lsh(&r, 1)
	if c := r.Cmp(d); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(&q, big.NewInt(int64(x.Sign())))
	}
	return &q
}

// bigPow10 is 10^n. The caller must not change it.
func bigPow10(n int64) *big.Int {
	if n < int64(len(bigPows)) {
		return bigPows[n]
	}
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil)
}

var bigPows = func() (p [100]*big.Int) {
	for i := range p {
		p[i] = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(i)), nil)
	}
	return p
}()

var pow10 = func() (p [19]int64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// int128 is a signed 128-bit integer in two's complement. Products of two
// 18-digit numbers stay below 2^120, so sums of two cannot overflow.
type int128 struct {
	hi int64
	lo uint64
}

func mul64(a, b int64) int128 {
	hi, lo := bits.Mul64(abs64(a), abs64(b))
	x := int128{int64(hi), lo}
	if (a < 0) != (b < 0) {
		return x.neg()
	}
	return x
}

func abs64(a int64) uint64 {
	if a < 0 {
		return uint64(-a)
	}
	return uint64(a)
}

func (x int128) neg() int128 {
	lo, carry := bits.Add64(^x.lo, 1, 0)
	return int128{int64(^uint64(x.hi) + carry), lo}
}

func (x int128) add(y int128) int128 {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	hi, _ := bits.Add64(uint64(x.hi), uint64(y.hi), carry)
	return int128{int64(hi), lo}
}

func (x int128) less(y int128) bool { return x.hi < y.hi || x.hi == y.hi && x.lo < y.lo }

// divRound is x/d rounded half to even, for 0 < d <= 10^18.
func (x int128) divRound(d uint64) int128 {
	negative := x.hi < 0
	if negative {
		x = x.neg()
	}
	hi, r := bits.Div64(0, uint64(x.hi), d)
	lo, r := bits.Div64(r, x.lo, d)
	q := int128{int64(hi), lo}
	if twice := r * 2; twice > d || twice == d && lo&1 == 1 { // r < 10^18, so 2r fits
		q = q.add(int128{0, 1})
	}
	if negative {
		return q.neg()
	}
	return q
}

func (x int128) decimal(exp int32) decimal.Decimal {
	if x.hi == 0 && x.lo < 1<<63 || x.hi == -1 && x.lo >= 1<<63 {
		return decimal.New(int64(x.lo), exp)
	}
	return decimal.NewFromBigInt(x.big(), exp)
}

func (x int128) big() *big.Int {
	negative := x.hi < 0
	if negative {
		x = x.neg()
	}
	b := new(big.Int).SetUint64(uint64(x.hi))
	b.Lsh(b, 64).Or(b, new(big.Int).SetUint64(x.lo))
	if negative {
		b.Neg(b)
	}
	return b
}

// rawAt18 is d·10^18 if that is whole and fits.
func rawAt18(d decimal.Decimal) (int128, bool) {
	if d.NumDigits()+int(d.Exponent())+18 > 38 || d.Exponent() < -18 {
		return int128{}, d.IsZero()
	}
	raw := d.Shift(18).BigInt()
	abs := new(big.Int).Abs(raw)
	x := int128{int64(new(big.Int).Rsh(abs, 64).Uint64()), new(big.Int).And(abs, new(big.Int).SetUint64(1<<64-1)).Uint64()}
	if raw.Sign() < 0 {
		return x.neg(), true
	}
	return x, true
}
