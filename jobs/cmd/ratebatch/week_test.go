package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/schedules"
)

// cronLine is a line of the rendered crontab.
type cronLine struct {
	cron schedules.Cron
	args []string
}

// crontab reads the rendered crontab as cron does: five fields, the user, and a
// command, of which what follows ratebatch is taken.
func crontab(t *testing.T, schedule string) []cronLine {
	t.Helper()
	var out []cronLine
	for line := range strings.SplitSeq(must(t, "schedule", "render", "crontab", "--file", schedule), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 7 || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := schedules.ParseCron(strings.Join(fields[:5], " "), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(fields, "/usr/bin/ratebatch")
		if i < 0 {
			t.Fatalf("no command in %s", line)
		}
		out = append(out, cronLine{c, fields[i+1:]})
	}
	return out
}

// A week in which cron runs what was rendered and nobody does anything, but that
// the machine is off for two days: at its end the last month is closed, exported
// and reconciled.
func TestAWeekOfTheCrontab(t *testing.T) {
	withoutVariables(t)
	lines := crontab(t, "../../../deploy/compose/schedule.yaml") // ingest is a service of its own there
	if len(lines) != 6 {
		t.Fatalf("%d lines", len(lines))
	}
	b := newBilled(t)
	b.usage("gamma", "2026-11-29 00:00:00", 9*24, "3600", "2026-11-28 00:00:00")
	b.must("watermark", "--region", "one", "--until", "2026-12-08")
	files := t.TempDir()
	t.Setenv("RATEBATCH_DATA", enginetest.Options(t).DataDir)
	t.Setenv("RATEBATCH_DATABASE", b.e.Database())
	t.Setenv("RATEBATCH_EXPORT_TO", files)

	begin, end := time.Date(2026, 11, 30, 0, 30, 0, 0, time.UTC), time.Date(2026, 12, 7, 0, 30, 0, 0, time.UTC)
	ran := map[string]int{}
	for at := begin; ; {
		next, due := end, cronLine{}
		for _, l := range lines {
			if n := l.cron.Next(at); n.Before(next) {
				next, due = n, l
			}
		}
		if due.args == nil {
			break
		}
		at = next
		if off := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC); at.After(off) && at.Before(off.AddDate(0, 0, 2)) {
			continue
		}
		var stdout, stderr bytes.Buffer
		p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: func() time.Time { return at }}
		code := p.run(t.Context(), due.args)
		ran[strings.Join(due.args, " ")]++
		if code != 0 {
			t.Errorf("%s ratebatch %s: exit %d\n%s%s", at.Format(time.RFC3339), strings.Join(due.args, " "), code, stdout.String(), stderr.String())
			if ran["rate"] > 60 {
				t.FailNow() // enough was seen
			}
		}
	}
	if ran["rate"] != 5*24 || ran["close --month last"] != 1 || ran["export --month last"] != 1 || ran["retention"] != 5 {
		t.Errorf("ran %v", ran)
	}

	var closes closesList
	if err := json.Unmarshal([]byte(must(t, "close", "--list", "--output", "json")), &closes); err != nil {
		t.Fatal(err)
	}
	// gamma 48 hours, alpha 4 and beta 4 halves, at 1 EUR an instance hour.
	if len(closes.Closes) != 1 || closes.Closes[0].Month.Format("2006-01") != "2026-11" || closes.Closes[0].Total.String() != "54" || len(closes.Corrections) != 0 {
		t.Errorf("closes: %+v", closes)
	}
	out := must(t, "export", "verify", files)
	if !strings.Contains(out, "2026-11") || !strings.Contains(out, "54 EUR") {
		t.Errorf("the exported month:\n%s", out)
	}
	// December goes on: its last export is of the night, so it is reconciled by
	// the schedule right after that, and here without its files.
	must(t, "reconcile", "--month", "2026-11", "--files", files)
	must(t, "status", "--check", "--max-lag", "6h", "--now", end.Format(time.RFC3339))
}
