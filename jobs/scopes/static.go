package scopes

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Static reads a list from a file: one scope a line as ID,NAME,DOMAIN, of which
// only the first is needed.
type Static struct{ File string }

// Name is static.
func (Static) Name() string { return "static" }

// Fetch reads the file.
func (s Static) Fetch(context.Context) ([]Scope, error) {
	f, err := os.Open(s.File)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	defer f.Close()
	return parse(s.File, f)
}

// parse reads the list of a file of that name.
func parse(file string, in io.Reader) ([]Scope, error) {
	text := bufio.NewReader(in)
	// Spreadsheets write a byte order mark, which would be part of the first ID.
	if mark, _ := text.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = text.Discard(3) // they were just seen
	}
	reader := csv.NewReader(text)
	reader.FieldsPerRecord, reader.Comment, reader.TrimLeadingSpace = -1, '#', true
	var out []Scope
	seen := map[string]bool{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", file, err)}
		}
		line, _ := reader.FieldPos(0)
		if record[0] == "" || len(record) > 3 || seen[record[0]] {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s:%d: %q", file, line, strings.Join(record, ",")), Hint: "write one scope a line, once, as ID,NAME,DOMAIN"}
		}
		seen[record[0]] = true
		record = append(record, "", "")
		out = append(out, Scope{ID: record[0], Name: record[1], Domain: record[2]})
	}
}
