package jobs

import (
	"context"
	"errors"
	"os"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Keys of log lines, the same in every job.
const (
	KeyRunID  = "run_id"
	KeyJob    = "job"
	KeyScope  = "scope"
	KeyPeriod = "period"
)

// Run is one execution of a job, as the run log keeps it.
type Run struct {
	ID        uuid.UUID
	Job       string
	Arguments []string
	Version   string
	StartedAt time.Time

	store *store.Store
}

// Start writes the run log's first line for a run.
func Start(ctx context.Context, s *store.Store, job string, arguments []string, version string, now time.Time) (*Run, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	r := &Run{ID: id, Job: job, Arguments: withoutSecrets(arguments), Version: version, StartedAt: now, store: s}
	return r, r.write(ctx, "running", nil, nil)
}

var (
	urlPassword   = regexp.MustCompile(`(^|//)([^:/@?\s]*):[^/\s]*@`) // up to the last @, as URLs are read
	queryPassword = regexp.MustCompile(`(?i)([?&](?:password|user|secret|token)=)[^&\s]*`)
)

// withoutSecrets masks passwords that stand in URLs: the run log can be read by
// many.
func withoutSecrets(arguments []string) []string {
	out := make([]string, len(arguments))
	for i, a := range arguments {
		a = urlPassword.ReplaceAllString(a, "$1$2:***@")
		out[i] = queryPassword.ReplaceAllString(a, "$1***")
	}
	return out
}

// End writes the run log's last line: done, failed or, when the context has
// ended before the job, interrupted, with its counts.
func (r *Run) End(ctx context.Context, counts map[string]string, cause error) error {
	state := "done"
	var halt *ratebatch.HaltError
	switch {
	case cause == nil || errors.Is(cause, ratebatch.ErrRejected):
	case ctx.Err() != nil && !errors.As(cause, &halt):
		state = "interrupted"
	default:
		state = "failed"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return r.write(ctx, state, counts, cause)
}

func (r *Run) write(ctx context.Context, state string, counts map[string]string, cause error) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text, hint := "", ""
	if cause != nil {
		text = cause.Error()
		var halt *ratebatch.HaltError
		var again *ratebatch.TryAgainError
		var config *ratebatch.ConfigError
		switch {
		case errors.As(cause, &halt):
			hint = halt.Hint
		case errors.As(cause, &again):
			hint = again.Hint
		case errors.As(cause, &config):
			hint = config.Hint
		}
	}
	return r.store.Exec(ctx, "insert_job_run", store.Params{
		"run_id": r.ID, "job": r.Job, "state": state, "host": host, "pid": os.Getpid(), "arguments": r.Arguments, "version": r.Version,
		"counts": counts, "error": text, "hint": hint, "started_at": r.StartedAt,
	})
}
