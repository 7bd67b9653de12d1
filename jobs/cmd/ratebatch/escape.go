package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable is a writer for people: what is not printable in what goes through
// it shows as an escape. Names of projects, rules and reasons come from others,
// and one with an escape sequence in it could clear a terminal or forge a line
// of a table. Line ends stay; a name's own are escaped where it is printed
// (plain).
type printable struct{ w io.Writer }

// Write escapes and passes on. It reports the bytes it was given.
func (p printable) Write(text []byte) (int, error) {
	clean := text
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || r == utf8.RuneError && size == 1) {
			clean = []byte(escape(string(text), "\n\t"))
			break
		}
		i += size
	}
	if _, err := p.w.Write(clean); err != nil {
		return 0, err
	}
	return len(text), nil
}

// plain makes a name that others gave fit for a cell of a table: one line, no
// control characters.
func plain(name string) string { return escape(name, "") }

// escape writes every rune that is not printable and not in keep as \n, \t,
// \x1b or \u202e.
func escape(text, keep string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + hexDigits(uint32(text[i]), 2))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x100:
			b.WriteString(`\x` + hexDigits(uint32(r), 2))
		case r > 0xffff:
			b.WriteString(`\U` + hexDigits(uint32(r), 8))
		default:
			b.WriteString(`\u` + hexDigits(uint32(r), 4))
		}
		i += size
	}
	return b.String()
}

func hexDigits(n uint32, digits int) string {
	const all = "0123456789abcdef"
	out := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		out[i] = all[n&15]
		n >>= 4
	}
	return string(out)
}

// rowf prints for people: texts among the arguments are made plain, so that a
// name never is more than a part of its cell.
func rowf(w io.Writer, format string, args ...any) {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = plain(v)
		case error:
			args[i] = plain(v.Error())
		case []string:
			clean := make([]string, len(v))
			for k, text := range v {
				clean[k] = plain(text)
			}
			args[i] = clean
		}
	}
	fmt.Fprintf(w, format, args...)
}
