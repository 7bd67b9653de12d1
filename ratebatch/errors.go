package ratebatch

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes, the contract with cron, systemd and Kubernetes, which read
// nothing else of a command.
const (
	ExitDone        = 0   // done, or nothing was due
	ExitUnexpected  = 1   // anything else
	ExitConfig      = 2   // bad flag, configuration or plan; nothing was touched
	ExitRejected    = 3   // done, with rejected lines
	ExitLeaseHeld   = 11  // another run holds the lease
	ExitHalted      = 20  // stopped until a person acts
	ExitTryAgain    = 75  // a passing trouble; the same command may succeed later
	ExitInterrupted = 130 // cancelled by a signal
)

// ExitCodeDoc says what an exit code means and what to do about it.
type ExitCodeDoc struct {
	Code          int
	Means, Action string
}

// ExitCodes lists every code that a command exits with, in the order of their
// numbers, for the reference.
func ExitCodes() []ExitCodeDoc {
	return []ExitCodeDoc{
		{ExitDone, "done, or nothing was due", "nothing"},
		{ExitUnexpected, "anything else", "read the message; run it again once, then report it at https://github.com/ratebatch/ratebatch/issues"},
		{ExitConfig, "a flag, the configuration, metrics or a plan is wrong; nothing was touched", "correct what the message names; running it again cannot help"},
		{ExitRejected, "done, but lines or records were rejected; they are kept with their reasons", "look at them (`ratebatch status`); the rest counts"},
		{ExitLeaseHeld, "another run does the same work", "nothing: the other run does it; `--wait` waits for it"},
		{ExitHalted, "stopped until a person acts: going on might bill wrongly", "do what the message's last part says; nothing else mends it"},
		{ExitTryAgain, "a passing trouble: the server, the brokers or the bucket are away, periods are missing, or another job is at what this one changes", "run it again, as a schedule does by itself"},
		{ExitInterrupted, "ended by a signal; what was committed stays", "nothing: the next run goes on"},
	}
}

// ErrRejected says that a job is done but some lines were rejected.
var ErrRejected = errors.New("some lines were rejected")

// ErrLeaseHeld says that another run holds the lease of this job.
var ErrLeaseHeld = errors.New("another run holds the lease")

// ConfigError is a mistake in flags, configuration, metrics or a plan, found
// before anything was written.
type ConfigError struct {
	Hint string // what to do next; may be empty
	Err  error
}

func (e *ConfigError) Error() string { return withHint(e.Err.Error(), e.Hint) }

// Unwrap gives the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// HaltError stops a job until a person acts: running it again cannot help and
// might bill someone twice. The run log keeps Hint beside the cause.
type HaltError struct {
	Scope  string // empty when no single scope is meant
	Period Period // zero when no single period is meant
	Hint   string // what the operator can do next, as a command if there is one
	Err    error
}

func (e *HaltError) Error() string {
	text := e.Err.Error()
	if !e.Period.Begin.IsZero() {
		text = fmt.Sprintf("%s: %s", e.Period, text)
	}
	if e.Scope != "" {
		text = fmt.Sprintf("scope %s: %s", e.Scope, text)
	}
	return withHint(text, e.Hint)
}

// Unwrap gives the cause.
func (e *HaltError) Unwrap() error { return e.Err }

// TryAgainError is a passing trouble: the server is away, or usage changed
// under a pass more often than it retries.
type TryAgainError struct {
	Hint string
	Err  error
}

func (e *TryAgainError) Error() string { return withHint(e.Err.Error(), e.Hint) }

// Unwrap gives the cause.
func (e *TryAgainError) Unwrap() error { return e.Err }

func withHint(text, hint string) string {
	if hint == "" {
		return text
	}
	return text + ": " + hint
}

// ExitCode maps an error to the code that a command exits with. An error that
// joins several takes the gravest: halted, then configuration, unexpected, try
// again, lease, rejected.
func ExitCode(err error) int {
	var halt *HaltError
	var config *ConfigError
	var again *TryAgainError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &halt):
		return ExitHalted
	case errors.As(err, &config):
		return ExitConfig
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &again):
		return ExitTryAgain
	case errors.Is(err, ErrLeaseHeld):
		return ExitLeaseHeld
	case errors.Is(err, ErrRejected):
		return ExitRejected
	default:
		return ExitUnexpected
	}
}
