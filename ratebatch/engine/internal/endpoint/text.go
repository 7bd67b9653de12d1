package endpoint

import (
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// Split cuts a text into statements at ';' and \G. It gives the statements
// that are complete, each with what ended it, and the rest.
func Split(text string) (complete []Piece, rest string) {
	depth, begin := 0, 0
	for i := 0; ; {
		t := nextToken(text, i)
		if t.kind == endOfSQL {
			rest = text[begin:]
			if nextToken(rest, 0).kind == endOfSQL {
				rest = strings.TrimSpace(rest)
				if !strings.HasPrefix(rest, "/*") { // an open comment goes on
					rest = ""
				}
			}
			return complete, rest
		}
		i = t.end
		if (t.kind == literal || t.kind == quoted) && !closed(text[t.start:t.end]) {
			return complete, text[begin:]
		}
		if t.kind != symbol {
			continue
		}
		switch c := text[t.start]; {
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == ';' && depth <= 0:
			if s := strings.TrimSpace(text[begin:t.start]); nextToken(s, 0).kind != endOfSQL {
				complete = append(complete, Piece{Statement: s})
			}
			begin, depth = t.end, 0
		case c == '\\' && strings.HasPrefix(text[t.start:], `\G`):
			if s := strings.TrimSpace(text[begin:t.start]); nextToken(s, 0).kind != endOfSQL {
				complete = append(complete, Piece{Statement: s, Vertical: true})
			}
			begin, i, depth = t.start+2, t.start+2, 0
		}
	}
}

// Piece is one statement of a text.
type Piece struct {
	Statement string
	Vertical  bool // it ended with \G
}

func closed(quote string) bool {
	if quote[0] == '$' {
		return true // a heredoc without an end is no literal
	}
	_, ok := closeQuote(quote, 0)
	return ok
}

// Kind is a statement's first keyword in upper case.
func Kind(statement string) string {
	s := parse(statement)
	return s.kind
}

// RenameDatabase replaces a database's name in front of a '.', wherever it
// stands as an identifier.
func RenameDatabase(statement, from, to string) string {
	var b strings.Builder
	done := 0
	for i := 0; ; {
		t := nextToken(statement, i)
		if t.kind == endOfSQL {
			b.WriteString(statement[done:])
			return b.String()
		}
		i = t.end
		if t.kind != word && t.kind != quoted || t.end >= len(statement) || statement[t.end] != '.' || unquote(statement[t.start:t.end]) != from {
			continue
		}
		b.WriteString(statement[done:t.start])
		b.WriteString(sqltext.Name(to))
		done = t.end
	}
}
