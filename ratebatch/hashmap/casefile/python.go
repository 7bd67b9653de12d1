package casefile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// pythonFloat writes a JSON number with a point or exponent as Python's repr
// of the float does: the shortest digits that read back to the same float,
// plain between 1e-4 and 1e16, otherwise with an exponent of two digits or
// more. It is the one place where a binary float is right, because CloudKitty
// has one there.
func pythonFloat(text string) (string, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", fmt.Errorf("%s does not fit a float", text)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, err := strconv.Atoi(exponent)
	if err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	if f == 0 || e >= -4 && e < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s, nil
	}
	return fmt.Sprintf("%se%+03d", mantissa, e), nil
}

// pythonOnlyNumber says whether Python's Decimal reads the text as a number
// and we do not: 1_000, digits of other scripts, Infinity.
func pythonOnlyNumber(text string) bool {
	text = strings.TrimSpace(text)
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '_':
			return -1
		case r > unicode.MaxASCII && unicode.IsDigit(r):
			return '0'
		}
		return r
	}, text)
	if plain == text {
		switch strings.ToLower(strings.TrimLeft(text, "+-")) {
		case "inf", "infinity":
			return true
		}
		return false
	}
	_, err := strconv.ParseFloat(plain, 64)
	return err == nil && !strings.ContainsAny(plain, "xXpPnN")
}
