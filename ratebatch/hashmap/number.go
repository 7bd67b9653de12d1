package hashmap

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

var fieldNumberPattern = regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?$`)

// fieldNumber reads an attribute's value as a number to compare with levels:
// sign, digits, point, exponent, surrounding blanks. CloudKitty also takes
// 1_000, digits of other scripts and Infinity; those are refused here.
//
// Levels lie between 1e-18 and 1e20. Numbers far outside are moved to a number
// that compares alike, so that 1e999999999 costs no memory.
func fieldNumber(text string) (decimal.Decimal, bool) {
	text = strings.TrimFunc(text, blank)
	m := fieldNumberPattern.FindStringSubmatch(text)
	if m == nil || m[2] == "" && m[3] == "" {
		return decimal.Decimal{}, false
	}
	digits := strings.TrimLeft(m[2]+m[3], "0")
	if digits == "" {
		return decimal.Decimal{}, true
	}
	exp := -int64(len(m[3]))
	if m[4] != "" {
		e, err := strconv.ParseInt(m[4], 10, 64)
		if err != nil { // beyond int64, still either very large or very small
			e = 1 << 40
			if strings.HasPrefix(m[4], "-") {
				e = -e
			}
		}
		exp += max(-(1 << 41), min(e, 1<<41))
	}
	const far = 60
	var d decimal.Decimal
	switch magnitude := int64(len(digits)) + exp; {
	case magnitude > far:
		d = decimal.New(1, far)
	case magnitude < -far:
		d = decimal.New(1, -far)
	default:
		if len(digits) > 2*far { // all these digits but the first decide nothing, bar that they are not zero
			exp += int64(len(digits) - 2*far)
			rest := digits[2*far:]
			digits = digits[:2*far]
			if strings.Trim(rest, "0") != "" {
				digits += "1"
				exp--
			}
		}
		c, _ := new(big.Int).SetString(digits, 10)
		d = decimal.NewFromBigInt(c, int32(exp))
	}
	if m[1] == "-" {
		d = d.Neg()
	}
	return d, true
}

// blank is what Python's strip takes away, which CloudKitty applies.
func blank(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}
