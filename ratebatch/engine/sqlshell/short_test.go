package sqlshell

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

func TestExceptionsAreShort(t *testing.T) {
	for message, want := range map[string]string{
		"Unknown table expression identifier 'nowhere' in scope SELECT x FROM nowhere. (UNKNOWN_TABLE) (version 26.7.2.1)":                          "Unknown table expression identifier 'nowhere' (UNKNOWN_TABLE)",
		"Syntax error: failed at position 1 (SELEC): SELEC 1. Expected one of: Query, EXPLAIN, (a, b). (SYNTAX_ERROR) (version 26.7.2.1)":           "Syntax error: failed at position 1 (SELEC): SELEC 1 (SYNTAX_ERROR)",
		"Unknown expression identifier `scop` in scope SELECT scop FROM rated. Maybe you meant: ['scope']. (UNKNOWN_IDENTIFIER) (version 26.7.2.1)": "Unknown expression identifier `scop`. Maybe you meant: ['scope'] (UNKNOWN_IDENTIFIER)",
		"Division by zero: while executing 'FUNCTION intDiv'. (ILLEGAL_DIVISION) (version 26.7.2.1)":                                                "Division by zero (ILLEGAL_DIVISION)",
		"a message of another kind": "a message of another kind",
	} {
		err := fmt.Errorf("sendQuery: %w", &clickhouse.Exception{Code: 60, Message: message})
		if got := short(err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("short(%s)\n = %s\nwant %s", message, got, want)
		}
	}
	if got := short(io.EOF); !errors.Is(got, io.EOF) || got.Error() != io.EOF.Error() {
		t.Errorf("short(EOF) = %v", got)
	}
}
