package expr

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

var attributePattern = regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?$`)

// AttributeNumber reads an attribute's value as a number: sign, digits, point,
// exponent, surrounding blanks. CloudKitty also takes 1_000, digits of other
// scripts and Infinity; those are no numbers here.
//
// A number beyond 1e60, below 1e-60 or of more than 120 digits is moved to one
// that compares alike with every level of a plan, so that 1e999999999 costs no
// memory. It is not exact then, and good for comparisons only.
func AttributeNumber(text string) (d decimal.Decimal, exact, ok bool) {
	text = strings.TrimFunc(text, blank)
	m := attributePattern.FindStringSubmatch(text)
	if m == nil || m[2] == "" && m[3] == "" {
		return decimal.Decimal{}, false, false
	}
	digits := strings.TrimLeft(m[2]+m[3], "0")
	if digits == "" {
		return decimal.Decimal{}, true, true
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
	switch magnitude := int64(len(digits)) + exp; {
	case magnitude > far:
		d = decimal.New(1, far)
	case magnitude < -far:
		d = decimal.New(1, -far)
	default:
		exact = len(digits) <= 2*far
		if !exact { // all these digits but the first decide nothing, bar that they are not zero
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
	return d, exact, true
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
