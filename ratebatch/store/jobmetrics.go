package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// EndedJob is the last run of a job that ended.
type EndedJob struct {
	Job, State              string
	Start, End, LastSuccess time.Time // LastSuccess is 1970 if there was none
	Counts                  map[string]string
}

// EndedJobs lists, for each job, the last run that ended.
func (s *Store) EndedJobs(ctx context.Context) ([]EndedJob, error) {
	return Collect(ctx, s, "metrics_jobs", nil, func(rows driver.Rows) (EndedJob, error) {
		var j EndedJob
		err := rows.Scan(&j.Job, &j.State, &j.Start, &j.End, &j.LastSuccess, &j.Counts)
		return j, err
	})
}
