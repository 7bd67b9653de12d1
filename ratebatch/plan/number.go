package plan

import (
	"fmt"
	"regexp"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

var numberPattern = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$`)

// ParseNumber reads a decimal number from its text, exactly. It may have that
// many digits before and after the point, zeros at either end not counted.
func ParseNumber(text string, integerDigits, scale int) (decimal.Decimal, error) {
	const longest = 200 // far beyond any number that fits; bounds the work
	if len(text) > longest || !numberPattern.MatchString(text) {
		return decimal.Decimal{}, fmt.Errorf("%s is not a decimal number", ratebatch.Quote(text))
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		return decimal.Decimal{}, fmt.Errorf("%s is not a decimal number", ratebatch.Quote(text))
	}
	d = Normal(d)
	integer := d.NumDigits() + int(d.Exponent())
	switch {
	case d.IsZero():
		return d, nil
	case -int(d.Exponent()) > scale:
		return decimal.Decimal{}, fmt.Errorf("%s has %d digits after the point: at most %d are exact", text, -d.Exponent(), scale)
	case integer > integerDigits:
		return decimal.Decimal{}, fmt.Errorf("%s has %d digits before the point: at most %d fit", text, integer, integerDigits)
	}
	return d, nil
}

// ParseCost reads the cost of a rule.
func ParseCost(text string) (decimal.Decimal, error) {
	return ParseNumber(text, CostIntegerDigits, CostScale)
}

// ParseLevel reads the level of a threshold.
func ParseLevel(text string) (decimal.Decimal, error) {
	return ParseNumber(text, LevelIntegerDigits, LevelScale)
}

// Normal gives the same number without zeros at its end, so that equal
// numbers look equal. Its exponent is never positive.
func Normal(d decimal.Decimal) decimal.Decimal {
	out, err := decimal.NewFromString(d.String()) // plain notation, zeros at the end trimmed
	if err != nil {
		return d
	}
	return out
}
