package metric

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

var (
	numberPattern   = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$`)
	fractionPattern = regexp.MustCompile(`^[+-]?[0-9]+/[0-9]+$`)
)

// parseNumber reads a decimal number or a fraction of integers, exactly.
func parseNumber(text string) (*big.Rat, error) {
	text = strings.TrimSpace(text)
	if len(text) > 60 || !numberPattern.MatchString(text) && !fractionPattern.MatchString(text) {
		return nil, fmt.Errorf("%s is neither a decimal number nor a fraction like 1/1048576", ratebatch.Quote(text))
	}
	x, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%s divides by zero", text)
	}
	return x, nil
}

// tooLarge reports a factor or offset that cannot be meant and that would
// leave the arithmetic no room: at most 20 digits above and below the line.
func tooLarge(x *big.Rat) bool {
	const room = 66 // bits; 10^19 and 2^60 fit
	return x.Num().BitLen() > room || x.Denom().BitLen() > room
}

var ten18 = new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil)

// maxQty is the greatest quantity in units of 10^-18: what Decimal(38,18) holds.
var maxQty = new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil), big.NewInt(1))

// roundHalfEven gives x × 10^18 as an integer.
func roundHalfEven(x *big.Rat) *big.Int {
	num := new(big.Int).Mul(x.Num(), ten18)
	q, rem := new(big.Int).DivMod(num, x.Denom(), new(big.Int)) // Euclidean: rem >= 0
	switch new(big.Int).Lsh(rem, 1).Cmp(x.Denom()) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		if q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
	}
	return q
}

func floor(x *big.Rat) *big.Int {
	return new(big.Int).Div(x.Num(), x.Denom()) // Euclidean, and the denominator is positive
}

// toDecimal gives a decimal exactly, or an error when x has more than 18
// digits after the point or does not fit Decimal(38,18).
func toDecimal(x *big.Rat) (decimal.Decimal, error) {
	raw := new(big.Rat).Mul(x, new(big.Rat).SetInt(ten18))
	if !raw.IsInt() {
		return decimal.Decimal{}, fmt.Errorf("%s has more than 18 digits after the point", x.RatString())
	}
	if raw.Num().CmpAbs(maxQty) > 0 {
		return decimal.Decimal{}, fmt.Errorf("%s does not fit Decimal(38,18)", x.RatString())
	}
	return decimal.NewFromBigInt(raw.Num(), -18), nil
}
