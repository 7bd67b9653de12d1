package schedules

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Clocks change while the daemon runs: a job at a local time of day runs once for
// each day, an hourly one once in each hour that passes.
func TestTheDaemonRunsThroughClockChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		zone, cron, change string // when the clock changes
		daily              []string
		hourly             int // 0: the change is no whole hour
	}{
		"Berlin in spring: 02:30 comes at the jump":    {"Europe/Berlin", "30 2 * * *", "2026-03-29T01:00:00Z", []string{"29 01:00", "30 00:30"}, 36},
		"Berlin in autumn: 02:30 comes once":           {"Europe/Berlin", "30 2 * * *", "2026-10-25T01:00:00Z", []string{"25 00:30"}, 36},
		"New York in spring":                           {"America/New_York", "30 2 * * *", "2026-03-08T07:00:00Z", []string{"08 07:00", "09 06:30"}, 36},
		"New York in autumn":                           {"America/New_York", "30 1 * * *", "2026-11-01T06:00:00Z", []string{"01 05:30"}, 36},
		"Lord Howe's half hour in spring":              {"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:30:00Z", []string{"03 15:30", "04 15:15"}, 0},
		"Lord Howe's half hour in autumn":              {"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T15:00:00Z", []string{"04 14:45"}, 0},
		"Santiago's midnight that does not exist":      {"America/Santiago", "0 0 * * *", "2026-09-06T04:00:00Z", []string{"06 04:00", "07 03:00"}, 36},
		"Kathmandu, where nothing changes":             {"Asia/Kathmandu", "0 3 * * *", "2026-03-29T01:00:00Z", []string{"28 21:15", "29 21:15"}, 36},
		"UTC, the default: nothing changes there ever": {"UTC", "30 2 * * *", "2026-03-29T01:00:00Z", []string{"29 02:30"}, 36},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.offset = time.Until(at(t, tt.change)) - 12*time.Hour
				stop := run(t, w.daemon(t, `
timezone: `+tt.zone+`
jobs:
  - {name: rate, cron: '7 * * * *', args: [rate]}
  - {name: export, cron: '`+tt.cron+`', args: [export]}
`))
				time.Sleep(36 * time.Hour)
				stop()
				var daily []string
				hourly := 0
				for _, r := range w.runs {
					if moment, ok := strings.CutPrefix(r, "export "); ok {
						daily = append(daily, moment)
					} else {
						hourly++
					}
				}
				if strings.Join(daily, ",") != strings.Join(tt.daily, ",") {
					t.Errorf("the daily job ran at %v, want %v", daily, tt.daily)
				}
				if tt.hourly != 0 && hourly != tt.hourly {
					t.Errorf("the hourly job ran %d times, want %d", hourly, tt.hourly)
				}
			})
		})
	}
}
