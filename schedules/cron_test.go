package schedules

import (
	"os/exec"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSlotsAtClockChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"in UTC there is no clock change":                       {"30 2 * * *", "UTC", "2026-03-28T12:00:00Z", []string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"}},
		"spring: a time that is left out comes at the jump":     {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		"spring: a time just before the jump is as usual":       {"59 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T00:59:00Z", "2026-03-29T23:59:00Z"}},
		"spring: two times that are left out come once":         {"10,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:10:00Z"}},
		"autumn: a time that comes twice counts once":           {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"autumn: from within the second coming the next day is": {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30:00Z"}},
		"autumn: an hourly job runs in both hours":              {"7 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:07:00Z", "2026-10-25T01:07:00Z", "2026-10-25T02:07:00Z"}},
		"spring: an hourly job runs every hour that there is":   {"7 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:07:00Z", "2026-03-29T01:07:00Z", "2026-03-29T02:07:00Z"}},
		"New York in spring":                                    {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		"New York in autumn":                                    {"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		"Lord Howe's half hour in spring":                       {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		"Lord Howe's half hour in autumn":                       {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		"a midnight that does not exist (Santiago)":             {"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", []string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		"a zone off by 45 minutes without changes":              {"0 3 * * *", "Asia/Kathmandu", "2026-03-28T00:00:00Z", []string{"2026-03-28T21:15:00Z", "2026-03-29T21:15:00Z"}},
		"the fourth of each month":                              {"0 6 4 * *", "UTC", "2026-11-04T06:00:00Z", []string{"2026-12-04T06:00:00Z", "2027-01-04T06:00:00Z"}},
		"a leap day":                                            {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseCron(tt.cron, zone(t, tt.zone))
			if err != nil {
				t.Fatal(err)
			}
			now := at(t, tt.after)
			for _, want := range tt.want {
				if now = c.Next(now); !now.Equal(at(t, want)) {
					t.Fatalf("next is %s, want %s", now, want)
				}
			}
		})
	}
}

// However time passes, a slot is later than the moment it is asked for, and
// asking from anywhere between two slots gives the same one.
func TestSlotsDoNotDependOnWhereOneAsks(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"}
	crons := []string{"30 2 * * *", "7 * * * *", "*/10 * * * *", "0 0 * * 0", "15 1,2,3 * * *", "0 6 4 * 1"}
	rapid.Check(t, func(r *rapid.T) {
		c, err := ParseCron(rapid.SampledFrom(crons).Draw(r, "cron"), zone(t, rapid.SampledFrom(zones).Draw(r, "zone")))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, 365*86400).Draw(r, "second")) * time.Second)
		next := c.Next(now)
		if !next.After(now) {
			r.Fatalf("next after %s is %s", now, next)
		}
		between := now.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(now))-1).Draw(r, "later")))
		if got := c.Next(between); !got.Equal(next) {
			r.Fatalf("next after %s is %s, but after %s it is %s", now, next, between, got)
		}
	})
}

func TestCronMistakes(t *testing.T) {
	for name, text := range map[string]string{
		"too few fields":        "7 * * *",
		"seconds":               "0 7 * * * *",
		"a descriptor":          "@hourly",
		"minute 60":             "60 * * * *",
		"a day that never is":   "0 0 30 2 *",
		"a zone within":         "CRON_TZ=Europe/Berlin 0 0 * * *",
		"words":                 "every hour",
		"an empty expression":   "",
		"a step of nothing":     "*/0 * * * *",
		"a range backwards":     "0 9-5 * * *",
		"an unknown day's name": "0 0 * * moonday",
	} {
		if _, err := ParseCron(text, time.UTC); err == nil {
			t.Errorf("%s: %q was taken", name, text)
		}
	}
}

// systemd reads what is rendered as cron means it.
func TestOnCalendarMeansTheSame(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	for _, text := range []string{"7 * * * *", "*/5 * * * *", "30 2 * * *", "0 6 4 * *", "15,45 8-18/2 * 1-6 1-5", "0 0 1 1 *", "0 12 * * 0", "10-20/3 0 * * *", "0 3 13 * 5"} {
		c, err := ParseCron(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 11, 29, 22, 50, 0, 0, time.UTC)
		args := append([]string{"calendar", "--iterations=6", "--base-time=2026-11-29 22:50:00 UTC"}, c.onCalendar()...)
		out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
		got := map[string]bool{}
		for line := range strings.SplitSeq(string(out), "\n") {
			for _, mark := range []string{"Next elapse: ", "(in UTC): ", "Iter. #"} {
				if _, rest, ok := strings.Cut(line, mark); ok {
					if _, after, ok := strings.Cut(rest, ": "); ok && mark == "Iter. #" {
						rest = after
					}
					if f := strings.Fields(rest); len(f) == 4 && f[3] == "UTC" {
						got[f[1]+"T"+f[2]+"Z"] = true
					}
				}
			}
		}
		for range 5 {
			now = c.Next(now)
			if !got[now.Format(time.RFC3339)] {
				t.Errorf("%s: %v: systemd lacks %s\n%s", text, c.onCalendar(), now.Format(time.RFC3339), out)
				break
			}
		}
	}
}
