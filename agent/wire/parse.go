package wire

import (
	"bytes"
	"math"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
)

// parser reads one flat JSON object, member by member. It is written by hand
// because ingest reads every record of a cloud with it: encoding/json takes
// six times as long. It takes less than JSON has (no nesting, no escapes
// in names, no exponents), never more; the fuzz tests hold it to that.
//
// The first problem stays in reason and ends the reading.
type parser struct {
	data   []byte
	at     int
	name   []byte // of the member whose value comes next; part of data
	inside bool   // behind the opening brace
	seen   fields
	field  string // whose problem reason is
	reason string // empty: no problem so far
}

func (p *parser) space() {
	if p.at < len(p.data) && p.data[p.at] > ' ' {
		return // as good as always
	}
	p.spaces()
}

func (p *parser) spaces() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) eat(c byte) bool {
	if p.at < len(p.data) && p.data[p.at] == c {
		p.at++
		return true
	}
	return false
}

// next goes to the next member and leaves p in front of its value. It is false
// at the end of the object and after a problem.
func (p *parser) next() bool {
	if p.reason != "" {
		return false
	}
	p.name = nil
	p.space()
	if !p.inside {
		p.inside = true
		if !p.eat('{') {
			p.fail("is not a JSON object: %q", cut(p.data))
			return false
		}
		p.space()
		if p.eat('}') {
			return p.end()
		}
	} else {
		if p.eat('}') {
			return p.end()
		}
		if !p.eat(',') {
			p.broken("',' or '}'")
			return false
		}
		p.space()
	}
	if !p.eat('"') {
		p.broken("a field name")
		return false
	}
	// Names are short, so a loop of ours beats a call of IndexByte.
	begin, at := p.at, p.at
	for at < len(p.data) && p.data[at] != '"' {
		at++
	}
	if at == len(p.data) {
		p.fail("ends within a field name")
		return false
	}
	p.at = at + 1
	p.space()
	if !p.eat(':') {
		p.broken("':'")
		return false
	}
	p.space()
	p.name = p.data[begin:at]
	return true
}

// end sees to it that nothing follows the object.
func (p *parser) end() bool {
	p.space()
	if p.at < len(p.data) {
		p.fail("goes on behind the object: %q", cut(p.data[p.at:]))
	}
	return false
}

// broken says what should have come.
func (p *parser) broken(want string) {
	if p.at >= len(p.data) {
		p.fail("ends where %s should come", want)
		return
	}
	p.fail("has %q where %s should come", cut(p.data[p.at:]), want)
}

// once notes that a field came; a second time is a problem, since readers of
// JSON differ in which of the two counts.
func (p *parser) once(f fields) bool {
	if p.seen&f != 0 {
		p.fail("comes twice")
		return false
	}
	p.seen |= f
	return true
}

// token is the value at p as far as it can be shown: up to a comma or brace.
func (p *parser) token() string {
	rest := p.data[p.at:]
	if i := bytes.IndexAny(rest, ",} \t\r\n"); i >= 0 {
		rest = rest[:i]
	}
	if len(rest) == 0 {
		return "nothing"
	}
	return cut(rest)
}

// number reads the digits of a whole number; false after a problem.
func (p *parser) number() (n uint64, ok bool) {
	const safe = 19 // digits that cannot be too many
	begin, data := p.at, p.data
	at := begin
	for ; at < len(data); at++ {
		digit := uint64(data[at] - '0')
		if digit > 9 {
			break
		}
		if at-begin >= safe && (n > math.MaxUint64/10 || n*10 > math.MaxUint64-digit) {
			p.fail("%s does not fit into 64 bits", p.token())
			return 0, false
		}
		n = n*10 + digit
	}
	p.at = at
	var next byte
	if p.at < len(p.data) {
		next = p.data[p.at]
	}
	switch {
	case p.at > begin+1 && p.data[begin] == '0':
		p.at = begin
		p.fail("%s begins with 0", p.token())
	case p.at == begin && next == '-':
		p.fail("%s is negative", p.token())
	case p.at == begin:
		p.fail("%s is not a number", p.token())
	case next == '.' || next == 'e' || next == 'E':
		p.at = begin
		p.fail("%s is not a whole number", p.token())
	default:
		return n, true
	}
	return 0, false
}

// whole reads a whole number from 0 to 2^64-1.
func (p *parser) whole(f fields, into *uint64) {
	if p.once(f) {
		*into, _ = p.number()
	}
}

// optional is whole for a number that may be null; what it reads goes to
// *value, to which *into then points.
func (p *parser) optional(f fields, into **uint64, value *uint64) {
	if !p.once(f) {
		return
	}
	if bytes.HasPrefix(p.data[p.at:], []byte("null")) {
		p.at += len("null")
		*into = nil
		return
	}
	*value, _ = p.number()
	*into = value
}

// moment reads a whole number from least to most.
func (p *parser) moment(f fields, into *int64, least, most int64) {
	if !p.once(f) {
		return
	}
	n, ok := p.number()
	if ok && (n < uint64(least) || n > uint64(most)) {
		p.fail("%d lies outside %d to %d", n, least, most)
		return
	}
	*into = int64(n)
}

// percent reads a number from 0 to 100 with at most two digits that count
// after the point: 12, 12.3, 12.340. Rounding is the producer's matter.
func (p *parser) percent(into *Hundredths) {
	begin := p.at
	end := begin
	for end < len(p.data) && (p.data[end]-'0' <= 9 || p.data[end] == '.') {
		end++
	}
	whole, part, point := bytes.Cut(p.data[begin:end], []byte{'.'})
	problem := len(whole) == 0 || len(whole) > 1 && whole[0] == '0' || point && len(part) == 0 || bytes.IndexByte(part, '.') >= 0 ||
		end < len(p.data) && (p.data[end] == 'e' || p.data[end] == 'E')
	if problem {
		if end == begin && end < len(p.data) && p.data[end] == '-' {
			p.fail("%s is negative", p.token())
		} else {
			p.fail("%s is not a percentage such as 12.34", p.token())
		}
		return
	}
	n := Hundredths(0)
	for _, c := range whole {
		if n = n*10 + Hundredths(c-'0'); n > 1000 {
			break
		}
	}
	n *= 100
	for i, c := range part {
		switch {
		case i == 0:
			n += 10 * Hundredths(c-'0')
		case i == 1:
			n += Hundredths(c - '0')
		case c != '0':
			p.fail("%s has more than two digits after the point", p.token())
			return
		}
	}
	if n > maxPercent {
		p.fail("%s is more than 100", p.token())
		return
	}
	p.at = end
	*into = n
}

// nibbles maps a hexadecimal digit to its value, all else to 255.
var nibbles = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = byte(10+i), byte(10+i)
	}
	return t
}()

// uuidAt is where the two digits of each byte are in the hyphenated form.
var uuidAt = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// uuid reads a UUID in its hyphenated form, in either case.
func (p *parser) uuid(f fields, into *uuid.UUID) {
	if !p.once(f) {
		return
	}
	const length = 38 // 36 and the quotes
	if len(p.data)-p.at < length {
		p.fail("%s is not a UUID", p.token())
		return
	}
	text := p.data[p.at : p.at+length]
	good := text[0] == '"' && text[9] == '-' && text[14] == '-' && text[19] == '-' && text[24] == '-' && text[37] == '"'
	var bad byte
	for i, at := range uuidAt {
		high, low := nibbles[text[at+1]], nibbles[text[at+2]]
		bad |= high | low
		into[i] = high<<4 | low
	}
	if !good || bad > 15 {
		p.fail("%s is not a UUID", p.token())
		return
	}
	p.at += length
}

// text reads a string of up to MaxText bytes. A string that into already holds
// is kept as it is.
func (p *parser) text(f fields, into *string) {
	if !p.once(f) {
		return
	}
	if !p.eat('"') {
		p.fail("%s is not a text", p.token())
		return
	}
	begin, data, high := p.at, p.data, byte(0)
	at := begin
	for ; at < len(data); at++ {
		c := data[at]
		if c == '"' || c == '\\' || c < 0x20 {
			break
		}
		high |= c
	}
	if p.at = at; at == len(data) {
		p.fail("ends within a text")
		return
	}
	value := p.data[begin:p.at]
	if p.data[p.at] != '"' {
		var room [MaxText]byte
		if value = p.escaped(append(room[:0], value...)); value == nil {
			return
		}
		high = utf8.RuneSelf
	} else {
		p.at++
	}
	if len(value) > MaxText {
		p.fail("has %d bytes, more than %d", len(value), MaxText)
		return
	}
	if high >= utf8.RuneSelf && !utf8.Valid(value) {
		p.fail("%q is not UTF-8", cut(value))
		return
	}
	if *into != string(value) {
		*into = string(value)
	}
}

// escaped reads the rest of a string that has escapes, behind what value
// already holds; nil after a problem.
func (p *parser) escaped(value []byte) []byte {
	for p.at < len(p.data) {
		c := p.data[p.at]
		p.at++
		switch {
		case c == '"':
			return value
		case c < 0x20:
			p.fail("holds the control character %q", c)
			return nil
		case c != '\\':
			value = append(value, c)
			continue
		case p.at == len(p.data):
			continue // ends within a text
		}
		c = p.data[p.at]
		p.at++
		switch c {
		case '"', '\\', '/':
			value = append(value, c)
		case 'b':
			value = append(value, '\b')
		case 'f':
			value = append(value, '\f')
		case 'n':
			value = append(value, '\n')
		case 'r':
			value = append(value, '\r')
		case 't':
			value = append(value, '\t')
		case 'u':
			r := p.unit()
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if bytes.HasPrefix(p.data[p.at:], []byte(`\u`)) {
					p.at += 2
					second = p.unit()
				}
				if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
					p.fail("holds half of a surrogate pair")
					return nil
				}
			}
			if r < 0 {
				p.fail(`holds a \u without four hexadecimal digits`)
				return nil
			}
			value = utf8.AppendRune(value, r)
		default:
			p.fail("holds the unknown escape \\%c", c)
			return nil
		}
	}
	p.fail("ends within a text")
	return nil
}

// unit reads the four digits of a \u escape, -1 if they are not there.
func (p *parser) unit() rune {
	if len(p.data)-p.at < 4 {
		return -1
	}
	r := rune(0)
	for range 4 {
		digit := nibbles[p.data[p.at]]
		if digit > 15 {
			return -1
		}
		r = r<<4 | rune(digit)
		p.at++
	}
	return r
}
