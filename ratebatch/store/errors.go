package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Codes of ClickHouse exceptions that decide what happens next.
const (
	codeNoSuchColumn      = 16
	codeUnknownIdentifier = 47
	codeUnknownTable      = 60
	codeUnknownDatabase   = 81
	codeTooManyParts      = 252
	codeMemoryLimit       = 241
	codeTimeout           = 159
	codeReadonly          = 164
	codeNotEnoughSpace    = 243
	codeCannotWrite       = 75
	codeAccessDenied      = 497
	codeAuthFailed        = 516
)

// IsCode says whether err is a ClickHouse exception of this code.
func IsCode(err error, code int32) bool {
	var exception *clickhouse.Exception
	return errors.As(err, &exception) && exception.Code == code
}

// IsOutcomeKnown says whether the server answered: with an exception the
// statement is over; with a lost connection or a timeout of ours it may go on.
func IsOutcomeKnown(err error) bool {
	var exception *clickhouse.Exception
	return errors.As(err, &exception)
}

// describe gives the errors that an operator can act on their class and the
// next step; everything else stays as it is.
func describe(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %w", context.Canceled)
	}
	// The URL of an HTTP request holds the whole statement's parameters and
	// tells an operator nothing.
	var request *url.Error
	if errors.As(err, &request) {
		err = fmt.Errorf("ClickHouse over HTTP: %w", request.Err)
	}
	var exception *clickhouse.Exception
	if errors.As(err, &exception) {
		switch exception.Code {
		case codeUnknownTable, codeUnknownDatabase, codeUnknownIdentifier:
			if strings.Contains(exception.Message, "schema_migrations") || strings.Contains(exception.Message, "Database") {
				return &ratebatch.ConfigError{Err: err, Hint: "run 'ratebatch migrate' first"}
			}
		case codeTooManyParts, codeMemoryLimit, codeTimeout:
			return &ratebatch.TryAgainError{Err: err, Hint: "the server is overloaded; nothing half-written counts, run the same command again later"}
		case codeNotEnoughSpace, codeCannotWrite:
			return &ratebatch.TryAgainError{Err: err, Hint: "the ClickHouse disk is full; nothing half-written counts, free space and run the same command again"}
		case codeReadonly, codeAccessDenied, codeAuthFailed:
			return &ratebatch.ConfigError{Err: err, Hint: "the ClickHouse user lacks the rights for this"}
		}
		if strings.Contains(exception.Message, "No space left on device") {
			return &ratebatch.TryAgainError{Err: err, Hint: "the ClickHouse disk is full; nothing half-written counts, free space and run the same command again"}
		}
		return err
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("ClickHouse did not answer: %w", err), Hint: "nothing half-written counts, run the same command again"}
	}
	return err
}

// ShortException is the first sentence of a ClickHouse exception: what is
// wrong, without the statement it was found in.
func ShortException(err error) string {
	var exception *clickhouse.Exception
	if !errors.As(err, &exception) {
		return err.Error()
	}
	text, _, _ := strings.Cut(exception.Message, ". In scope ")
	text, _, _ = strings.Cut(text, ": while executing ")
	return text
}

// codesOfRows are the exceptions that a row's values can cause: a guard that
// threw, a number that does not fit, a text that is none.
var codesOfRows = []int32{6, 27, 38, 41, 69, 70, 72, 128, 131, 153, 321, 349, 376, 395, 407}

// IsOfRows says whether the statement failed by what it read: it fails again, but
// the same statement over other rows may succeed.
func IsOfRows(err error) bool {
	var exception *clickhouse.Exception
	return errors.As(err, &exception) && slices.Contains(codesOfRows, exception.Code)
}

// IsMemoryLimit says whether a statement needed more memory than it was given.
func IsMemoryLimit(err error) bool { return IsCode(err, codeMemoryLimit) }

// IsPassing says whether the same statement may succeed later: all but mistakes
// that a person has to mend, and a lost right to write, which servers also show
// while they have lost their keeper or their disk.
func IsPassing(err error) bool {
	var config *ratebatch.ConfigError
	if err == nil || IsCode(err, codeUnknownTable) || IsCode(err, codeUnknownDatabase) || IsCode(err, codeNoSuchColumn) {
		return false
	}
	return !errors.As(err, &config) || IsCode(err, codeReadonly)
}
