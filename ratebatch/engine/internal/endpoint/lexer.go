package endpoint

import "strings"

// A token is a piece of a statement's text. Comments and blanks are no tokens.
type token struct {
	kind       tokenKind
	start, end int
}

type tokenKind byte

const (
	word     tokenKind = iota // a bare identifier, keyword or number
	quoted                    // an identifier in `` or ""
	literal                   // a string in '' or a heredoc
	symbol                    // one other character
	endOfSQL                  // nothing is left
)

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == 0
}

// nextToken reads the token at or after offset i. It follows ClickHouse's lexer
// where that matters for finding a statement's end and its functions' names:
// comments, quotes with both ways of escaping, heredocs.
func nextToken(q string, i int) token {
	n := len(q)
	for i < n {
		c := q[i]
		switch {
		case isBlank(c):
			i++
		case c == 0xC2 && i+1 < n && q[i+1] == 0xA0: // no-break space
			i += 2
		case c == '-' && i+1 < n && q[i+1] == '-', c == '#' && i+1 < n && (q[i+1] == ' ' || q[i+1] == '!'):
			for i < n && q[i] != '\n' {
				i++
			}
		case c == '/' && i+1 < n && q[i+1] == '/':
			for i < n && q[i] != '\n' {
				i++
			}
		case c == '/' && i+1 < n && q[i+1] == '*':
			e := strings.Index(q[i+2:], "*/")
			if e < 0 {
				return token{endOfSQL, n, n}
			}
			i += e + 4
		case c == '\'':
			return token{literal, i, endOfQuote(q, i)}
		case c == '"' || c == '`':
			return token{quoted, i, endOfQuote(q, i)}
		case c == '$':
			if e := endOfHeredoc(q, i); e > 0 {
				return token{literal, i, e}
			}
			return token{symbol, i, i + 1}
		case isWordByte(c):
			j := i
			for j < n && (isWordByte(q[j]) || q[j] == '$') {
				j++
			}
			return token{word, i, j}
		default:
			return token{symbol, i, i + 1}
		}
	}
	return token{endOfSQL, n, n}
}

// endOfQuote gives the offset after the closing quote of the one at i. A quote
// is escaped by a backslash or by doubling it.
func endOfQuote(q string, i int) int {
	end, _ := closeQuote(q, i)
	return end
}

// closeQuote is endOfQuote that also says whether there is a closing quote.
func closeQuote(q string, i int) (end int, closed bool) {
	mark, n := q[i], len(q)
	for i++; i < n; i++ {
		switch q[i] {
		case '\\':
			i++
		case mark:
			if i+1 < n && q[i+1] == mark {
				i++
				continue
			}
			return i + 1, true
		}
	}
	return n, false
}

// endOfHeredoc gives the offset after $tag$ … $tag$ at i, or 0.
func endOfHeredoc(q string, i int) int {
	e := strings.IndexByte(q[i+1:], '$')
	if e < 0 {
		return 0
	}
	tag := q[i : i+e+2]
	for _, c := range []byte(tag[1 : len(tag)-1]) {
		if !isWordByte(c) {
			return 0
		}
	}
	from := i + len(tag)
	end := strings.Index(q[from:], tag)
	if end < 0 {
		return 0
	}
	return from + end + len(tag)
}

// unquote gives an identifier's or a literal's content.
func unquote(text string) string {
	if len(text) < 2 {
		return text
	}
	mark := text[0]
	if mark != '`' && mark != '"' && mark != '\'' {
		return text
	}
	text = text[1 : len(text)-1]
	if strings.IndexByte(text, '\\') < 0 && strings.IndexByte(text, mark) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if i+1 < len(text) && (c == '\\' || c == mark && text[i+1] == mark) {
			i++
			c = unescape(text[i:], &i)
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unescape gives the character that stands after a backslash; \x41 moves at.
func unescape(s string, at *int) byte {
	switch s[0] {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case '0':
		return 0
	case 'x':
		if len(s) >= 3 {
			hi, lo := strings.IndexByte("0123456789abcdef", s[1]|0x20), strings.IndexByte("0123456789abcdef", s[2]|0x20)
			if hi >= 0 && lo >= 0 {
				*at += 2
				return byte(hi<<4 | lo)
			}
		}
	}
	return s[0]
}
