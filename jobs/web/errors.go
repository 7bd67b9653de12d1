package web

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// apiError is an answer that is no success.
type apiError struct {
	status  int
	code    string
	message string
	hint    string
	cause   error // for the log only

	scope   string // that message names; empty: none
	unnamed string // message without it
}

// to is the error as one may see it: a project's token sees no other's name.
func (e *apiError) to(id Identity) *apiError {
	if id.Project == "" || e.scope == "" || e.scope == id.Project {
		return e
	}
	out := *e
	out.message = e.unnamed
	return &out
}

func (e *apiError) Error() string {
	if e.cause != nil {
		return e.message + ": " + e.cause.Error()
	}
	return e.message
}

// Unwrap gives the cause.
func (e *apiError) Unwrap() error { return e.cause }

func badRequest(message, hint string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "bad_request", message: message, hint: hint}
}

func notFound(message string) *apiError {
	return &apiError{status: http.StatusNotFound, code: "not_found", message: message}
}

func conflict(message, hint string) *apiError {
	return &apiError{status: http.StatusConflict, code: "changed", message: message, hint: hint}
}

var errForbidden = &apiError{status: http.StatusForbidden, code: "forbidden", message: "this is not shown to a token of one project"}

func errUnavailable(cause error) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, code: "unavailable", message: "ClickHouse does not answer", hint: "figures are shown again as soon as it does", cause: cause}
}

// errorBody is how an error looks on the wire.
type errorBody struct {
	Error errorText `json:"error"`
}

type errorText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *apiError) body() errorBody { return errorBody{errorText{e.code, e.message, e.hint}} }

// asAPIError says in public words what an error is; the cause stays in the log.
func asAPIError(ctx context.Context, err error) *apiError {
	var known *apiError
	var again *ratebatch.TryAgainError
	var config *ratebatch.ConfigError
	var halt *ratebatch.HaltError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return &apiError{status: http.StatusServiceUnavailable, code: "timeout", message: "ClickHouse took too long to answer", hint: "ask for less, or again later", cause: err}
	case errors.As(err, &config) && strings.Contains(config.Hint, "migrate"):
		return &apiError{status: http.StatusServiceUnavailable, code: "not_migrated", message: "the database has no tables of this version yet", hint: "run 'ratebatch migrate'", cause: err}
	case errors.Is(err, store.ErrNewerSchema):
		return &apiError{status: http.StatusServiceUnavailable, code: "not_migrated", message: "a newer version of Ratebatch has migrated the database", hint: "install that version and start it again", cause: err}
	case errors.As(err, &halt): // lines and commits differ, or a plan is missing: what it says is for people
		return &apiError{status: http.StatusInternalServerError, code: "state_differs", message: halt.Error(), hint: "no figure is shown; look with 'ratebatch reconcile'", cause: err}
	case errors.As(err, &again) || isNetwork(err):
		return errUnavailable(err)
	}
	return &apiError{status: http.StatusInternalServerError, code: "internal", message: "something went wrong", hint: "the server's log has it under the X-Request-Id of this answer", cause: err}
}

func isNetwork(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
