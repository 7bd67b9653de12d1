package endpoint

import "strings"

// statement is what the endpoint needs to know of a statement's text. The
// engine parses it; the endpoint only has to find the data of an INSERT, the
// output format, and what it must refuse.
type statement struct {
	text   string
	tokens []token // up to the data of an INSERT, else all
	kind   string  // the first keyword, in upper case; "(" for a parenthesis

	format                 string // the name after the last FORMAT at depth 0
	formatStart, formatEnd int    // offsets of the FORMAT clause; -1 if there is none

	selects   bool // an INSERT that has a SELECT or WITH of its own
	fromFile  bool // an INSERT … FROM INFILE
	values    int  // offset of VALUES at depth 0 of an INSERT, or -1
	dataStart int  // offset where the data of an INSERT begins, or -1
	second    int  // offset of a second statement after a ';', or -1
	end       int  // offset of the terminating ';', or the text's length
}

// parse reads a statement's tokens. For an INSERT with data it stops where the
// data begins, because what follows is no SQL.
func parse(text string) statement {
	s := statement{text: text, formatStart: -1, formatEnd: -1, values: -1, dataStart: -1, second: -1, end: len(text)}
	depth, ended := 0, false
	for i := 0; ; {
		t := nextToken(text, i)
		if t.kind == endOfSQL {
			return s
		}
		i = t.end
		if t.kind == symbol && text[t.start] == ';' && depth == 0 {
			if !ended {
				s.end, ended = t.start, true
			}
			continue
		}
		if ended {
			s.second = t.start
			return s
		}
		s.tokens = append(s.tokens, t)
		switch t.kind {
		case symbol:
			switch text[t.start] {
			case '(', '[', '{':
				if s.kind == "" {
					s.kind = "("
				}
				depth++
			case ')', ']', '}':
				depth--
			}
		case word:
			upper := strings.ToUpper(text[t.start:t.end])
			if s.kind == "" {
				s.kind = upper
			}
			if depth != 0 {
				continue
			}
			switch upper {
			case "SELECT", "WITH":
				s.selects = s.selects || s.kind == "INSERT"
			case "INSERT":
				if s.kind == "WITH" {
					s.kind, s.selects = "INSERT", true
				}
			case "INFILE":
				s.fromFile = s.kind == "INSERT"
			case "VALUES":
				if s.kind == "INSERT" && !s.selects {
					s.values, s.dataStart = t.start, t.end
					return s
				}
			case "FORMAT":
				name := nextToken(text, t.end)
				if name.kind != word {
					continue
				}
				s.format, s.formatStart, s.formatEnd = text[name.start:name.end], t.start, name.end
				i = name.end
				if s.kind == "INSERT" && !s.selects {
					s.dataStart = s.formatEnd
					return s
				}
			}
		case quoted, literal, endOfSQL:
			if s.kind == "" {
				s.kind = "?"
			}
		}
	}
}

// reads says whether the statement is a query whose result may be streamed.
func (s *statement) reads() bool {
	switch s.kind {
	case "SELECT", "WITH", "FROM", "(":
		return true
	}
	return false
}

// withoutFormat is the text without its FORMAT clause and without a closing ';'.
func (s *statement) withoutFormat() string {
	if s.formatStart < 0 {
		return s.text[:s.end]
	}
	return s.text[:s.formatStart] + " " + s.text[s.formatEnd:s.end]
}

// words gives the first n tokens in upper case, with identifiers unquoted.
func (s *statement) words(n int) []string {
	out := make([]string, 0, n)
	for _, t := range s.tokens[:min(n, len(s.tokens))] {
		out = append(out, strings.ToUpper(s.name(t)))
	}
	return out
}

func (s *statement) name(t token) string {
	text := s.text[t.start:t.end]
	if t.kind == quoted {
		return unquote(text)
	}
	return text
}

// skipDataStart gives the offset at which an INSERT's data begins after its
// format's name: blanks and one line end are skipped, as a server does.
func skipDataStart(text string) int {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	if i < len(text) && text[i] == ';' {
		i++
	}
	if i < len(text) && text[i] == '\n' {
		i++
	}
	return i
}
