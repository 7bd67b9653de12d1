package endpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
)

// Error is an answer in the form that ClickHouse's clients parse.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// CodeLeaving is ABORTED, which a server that shuts down answers.
const CodeLeaving = 236

func errorf(code int, name, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf("Code: %d. DB::Exception: %s. (%s)", code, fmt.Sprintf(format, args...), name)}
}

var errCancelled = errorf(394, "QUERY_WAS_CANCELLED", "Query was cancelled")

// asError puts any error into that form.
func asError(err error) *Error {
	var own *Error
	var engine *chdb.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &engine):
		return &Error{engine.Code, engine.Message}
	case errors.Is(err, context.Canceled):
		return errCancelled
	default:
		return errorf(1002, "UNKNOWN_EXCEPTION", "%v", err)
	}
}
