package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ScheduleJob is what the run log calls a job of the schedule; the command that
// it runs has an entry of its own.
func ScheduleJob(name string) string { return "schedule " + name }

// ScheduleSlots gives the last slot of each job of the schedule that was run.
func (s *Store) ScheduleSlots(ctx context.Context) (map[string]time.Time, error) {
	type slot struct {
		job string
		at  time.Time
	}
	list, err := Collect(ctx, s, "schedule_slots", nil, func(rows driver.Rows) (slot, error) {
		var x slot
		err := rows.Scan(&x.job, &x.at)
		return x, err
	})
	out := map[string]time.Time{}
	for _, x := range list {
		out[x.job] = x.at.UTC()
	}
	return out, err
}
