package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// States of a reprocessing schedule.
const (
	SchedulePending   = "pending"
	ScheduleRunning   = "running"
	ScheduleDone      = "done"
	ScheduleCancelled = "cancelled"
	ScheduleFailed    = "failed"
)

// Schedule is a request to rate periods again, and how far it is.
type Schedule struct {
	ID        uuid.UUID `json:"id"`
	Scopes    []string  `json:"scopes"` // empty: all that are active when it runs
	Begin     time.Time `json:"begin"`
	End       time.Time `json:"end"`
	State     string    `json:"state"`
	StartedAt time.Time `json:"started_at"` // 1970 before its first run
	DoneUntil time.Time `json:"done_until"`
	Waiting   string    `json:"waiting,omitempty"`
	Reason    string    `json:"reason"`
	Author    string    `json:"author"`
	Error     string    `json:"error,omitempty"`
	RunID     uuid.UUID `json:"-"` // of the run that executes it, or did so last
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}

// Open says whether the schedule still has something to do.
func (x Schedule) Open() bool { return x.State == SchedulePending || x.State == ScheduleRunning }

// Schedules lists every schedule as it was written, oldest first; jobs.Schedules
// says which of them still run.
func (s *Store) Schedules(ctx context.Context) ([]Schedule, error) {
	return Collect(ctx, s, "schedules", nil, func(rows driver.Rows) (Schedule, error) {
		var x Schedule
		err := rows.Scan(&x.ID, &x.Scopes, &x.Begin, &x.End, &x.State, &x.StartedAt, &x.DoneUntil, &x.Waiting, &x.Reason, &x.Author, &x.Error, &x.RunID, &x.CreatedAt, &x.ChangedAt)
		x.Begin, x.End, x.DoneUntil = x.Begin.UTC(), x.End.UTC(), x.DoneUntil.UTC()
		x.StartedAt, x.CreatedAt, x.ChangedAt = x.StartedAt.UTC(), x.CreatedAt.UTC(), x.ChangedAt.UTC()
		return x, err
	})
}

// PutSchedule stores what is now true of a schedule.
func (s *Store) PutSchedule(ctx context.Context, x Schedule) error {
	if x.StartedAt.IsZero() {
		x.StartedAt = time.Unix(0, 0)
	}
	return s.Exec(ctx, "insert_schedule", Params{"id": x.ID, "scopes": append([]string{}, x.Scopes...), "begin": x.Begin, "end": x.End, "state": x.State,
		"started_at": x.StartedAt, "done_until": x.DoneUntil, "waiting": x.Waiting, "reason": x.Reason, "author": x.Author, "error": x.Error, "run_id": x.RunID, "created_at": x.CreatedAt})
}

// Now is the server's time, the one that commits are timed by.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.Row(ctx, "server_time", nil, &now)
	return now.UTC(), err
}
