package sqlshell

import (
	"errors"
	"regexp"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// statementError is an exception of ClickHouse in as many words as it needs. The
// server repeats the statement, lists all that it would have taken instead, and
// names its version; whoever typed the statement has it before their eyes.
type statementError struct {
	text string
	err  error
}

func (e *statementError) Error() string { return e.text }

func (e *statementError) Unwrap() error { return e.err }

var (
	meant    = regexp.MustCompile(`Maybe you meant: [^\]]*\]`)
	codeName = regexp.MustCompile(`\(([A-Z_0-9]+)\)( \(version [^)]*\))?\s*$`)
	// rest is where an exception begins to repeat the statement.
	rest = regexp.MustCompile(`(?is)(\.? (in scope |while executing |while processing |expected one of:|expected: )|: while executing ).*$`)
)

// longest is how much of an exception is shown.
const longest = 400

// short leaves out of an exception what its reader knows.
func short(err error) error {
	var exception *clickhouse.Exception
	if !errors.As(err, &exception) {
		return err
	}
	name := codeName.FindStringSubmatch(exception.Message)
	text := strings.TrimSpace(codeName.ReplaceAllString(exception.Message, ""))
	hint := meant.FindString(text)
	text = strings.TrimRight(rest.ReplaceAllString(text, ""), ". ")
	text = ratebatch.Shorten(text, longest)
	if hint != "" && !strings.Contains(text, hint) {
		text += ". " + hint
	}
	if name != nil {
		text += " (" + name[1] + ")"
	}
	return &statementError{text, err}
}
