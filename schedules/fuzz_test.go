package schedules

import (
	"testing"
	"time"
)

// A schedule that is accepted can be run and rendered: its slots go forward, and
// every target writes it or says what it cannot express.
func FuzzParse(f *testing.F) {
	f.Add(Default)
	f.Add([]byte("timezone: Europe/Berlin\njobs:\n  - {name: a, cron: \"*/5 1-3 * * 1\", args: [rate], timeout: 1m, jitter: 5s, retry: 2}\n"))
	f.Add([]byte("jobs: [{name: \"x y\", cron: \"0 0 31 2 *\", args: [\"'\", \"%\", \"$(id)\", \"\\n\"]}]"))
	f.Add([]byte("jobs:\n  - &a {name: a, cron: 0 0 * * *, args: [rate]}\n  - *a\n"))
	f.Add([]byte("a: [[[[[[[["))
	from := time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4000 {
			return
		}
		file, err := Parse("fuzz", text)
		if err != nil {
			return
		}
		for i := range file.Jobs {
			at := from
			for range 5 {
				next := file.Jobs[i].Next(at)
				if next.IsZero() {
					break // none for five years
				}
				if !next.After(at) {
					t.Fatalf("after %s comes %s in %q", at, next, text)
				}
				at = next
			}
		}
		for _, target := range Targets() {
			files, err := file.Render(target)
			for _, x := range files {
				if err == nil && (x.Name == "" || len(x.Text) == 0) {
					t.Fatalf("%s writes an empty file of %q", target, text)
				}
			}
		}
	})
}

// Cron expressions that are accepted have slots that go forward at clock changes.
func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "30 2 * * *", "*/7 */3 1,15 1-6 MON-FRI", "0 0 29 2 *", "59 23 31 12 7", "@hourly", "TZ=UTC * * * * *"} {
		f.Add(s, int64(1_793_000_000))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Skip(err)
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		if len(text) > 200 || at < 0 || at > 4_000_000_000 {
			return
		}
		c, err := ParseCron(text, berlin)
		if err != nil {
			return
		}
		now := time.Unix(at, 0).UTC()
		for range 10 {
			next := c.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) {
				t.Fatalf("%q: after %s comes %s", text, now, next)
			}
			now = next
		}
		_ = c.onCalendar()
	})
}
