package metric

import (
	"fmt"
	"math/big"

	"github.com/shopspring/decimal"
)

// Convert turns a raw value into a quantity: mutate(raw × factor + offset),
// computed exactly and rounded once, half-even, to 18 digits. The SQL of
// UsageSQL gives the same number. A quantity that Decimal(38,18) cannot hold
// is an error.
func (m *Metric) Convert(raw *big.Rat) (decimal.Decimal, error) {
	x := new(big.Rat).Mul(raw, m.Factor)
	x.Add(x, m.Offset)
	qty := new(big.Int)
	switch m.Mutate {
	case NumBool:
		if x.Sign() != 0 {
			qty.Set(ten18)
		}
	case NotNumBool:
		if x.Sign() == 0 {
			qty.Set(ten18)
		}
	case Floor:
		qty.Mul(floor(x), ten18)
	case Ceil:
		qty.Mul(floor(new(big.Rat).Neg(x)), ten18).Neg(qty)
	case Map:
		for _, e := range m.Map {
			if e.From.Cmp(x) == 0 {
				qty = roundHalfEven(e.To.Rat())
			}
		}
	case None:
		qty = roundHalfEven(x)
	}
	if qty.CmpAbs(maxQty) > 0 {
		return decimal.Decimal{}, fmt.Errorf("convert %s of metric %s: the quantity does not fit Decimal(38,18)", raw.RatString(), m.Name)
	}
	return decimal.NewFromBigInt(qty, -18), nil
}

// ConvertText is Convert for a raw value in text: a decimal number or a
// fraction. NaN and infinity are no numbers.
func (m *Metric) ConvertText(raw string) (decimal.Decimal, error) {
	x, err := parseNumber(raw)
	if err != nil {
		return decimal.Decimal{}, fmt.Errorf("convert a raw value of metric %s: %w", m.Name, err)
	}
	return m.Convert(x)
}
