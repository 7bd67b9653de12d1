package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// What the first run settled holds for every later command.
func TestTheFirstRunSettlesPeriods(t *testing.T) {
	b := newBilled(t)
	b.rate()
	if out := b.must("settings"); !strings.Contains(out, "first_period") || !strings.Contains(out, "usage") || !strings.Contains(out, "1h0m0s") {
		t.Errorf("settings:\n%s", out)
	}
	if out := b.must("status", "--now", at); !strings.Contains(out, "0 periods are due") {
		t.Errorf("a plain status forgets where the first periods are:\n%s", out)
	}
	if out := b.must("rate", "--dry-run", "--now", at); !strings.Contains(out, "nothing is due") {
		t.Errorf("a plain rate likewise: %s", out)
	}
	for _, command := range [][]string{{"rate"}, {"status"}, {"close", "--month", "2026-11"}, {"reconcile", "--month", "2026-11"}, {"reset", "--all", "--to", "2026-12-01", "--reason", "x", "--yes"}} {
		b.fails(ratebatch.ExitConfig, "another length would bill at another rate", append(command, "--period", "5m")...)
	}
	b.fails(ratebatch.ExitHalted, "both would bill the same time twice", "settings", "set", "period", "5m", "--reason", "finer")
	b.fails(ratebatch.ExitConfig, "--reason is missing", "settings", "set", "period", "1h")
	b.fails(ratebatch.ExitConfig, "no setting is called", "settings", "set", "perod", "1h", "--reason", "x")
	b.must("reset", "--all", "--to", "2026-01-01", "--reason", "finer periods", "--yes")
	b.must("settings", "set", "period", "24h", "--reason", "coarser")
	if r := b.rate("--wait-periods", "0"); r.Periods != 2 {
		t.Errorf("rated %d periods of a day, want 30 November of both scopes", r.Periods)
	}
}

// A closed month keeps the length of the periods that it was rated in: whoever
// asks for them again after the length changed is refused, nobody is charged twice.
func TestAClosedMonthKeepsItsPeriodLength(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.must("reprocess", "add", "--scope", "beta", "--from", "2026-11-30T21:00:00Z", "--to", "2026-11-30T22:00:00Z", "--reason", "x", "--now", at)
	b.must("close", "--month", "2026-11", "--now", at)
	b.must("reset", "--all", "--to", "2026-12-01", "--reason", "longer periods", "--yes", "--now", at)
	b.must("settings", "set", "period", "4h", "--reason", "longer periods")
	b.plan("4.00", "--from", "2026-11-30", "--force", "--reason", "a period has four hours")
	b.usage("alpha", "2026-12-01 02:00:00", 6, "3600", "2026-11-28 00:00:00")
	b.must("watermark", "--region", "one", "--until", "2026-12-01T08:00:00Z")
	const later = "2026-12-01T18:00:00Z"
	b.must("rate", "--now", later)
	b.owe("alpha 12, beta 3") // four hours of November at 1, and two periods of four hours; beta's half the time, up to 02:00
	b.fails(ratebatch.ExitHalted, "scope alpha: 2026-11-30T20:00:00Z/2026-11-30T21:00:00Z: rated as a period of 1h0m0s, not 4h0m0s",
		"backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T00:00:00Z", "--reason", "y", "--now", later)
	b.fails(ratebatch.ExitHalted, "not made of whole periods of 4h0m0s", "reprocess", "run", "--now", later)
	b.owe("alpha 12, beta 3")
	if out := b.must("reprocess", "list", "--all"); strings.Count(out, "failed") != 2 {
		t.Errorf("schedules:\n%s", out)
	}
	b.must("backfill", "--scope", "alpha", "--from", "2026-12-01", "--to", "2026-12-01T08:00:00Z", "--reason", "y", "--now", later)
	b.owe("alpha 12, beta 3")

	// Usage cannot be compared with periods of another length; the rest can.
	if out := b.must("reconcile", "--month", "2026-11"); !strings.Contains(out, "was rated by another length of the period than 4h0m0s") {
		t.Errorf("November, rated in hours and in four hours:\n%s", out)
	}

	// A longer period that only reaches into what is asked for is found too.
	b.sql("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id) SELECT 'gamma', '2026-11-28 00:00:00', '2026-11-29 00:00:00', 1, 'rated', generateUUIDv4()")
	from := time.Date(2026, 11, 28, 20, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		from   time.Time
		scopes []string
		want   string
	}{{from, nil, "gamma"}, {from, []string{"alpha", "gamma"}, "gamma"}, {from, []string{"alpha"}, ""}, {from.Add(4 * time.Hour), []string{"gamma"}, ""}} {
		if scope, p, err := b.s.OtherPeriod(t.Context(), 4*time.Hour, tt.from, tt.from.Add(4*time.Hour), tt.scopes...); err != nil || scope != tt.want {
			t.Errorf("of another length from %s on, of %v: %q %s (%v), want %q", tt.from, tt.scopes, scope, p, err, tt.want)
		}
	}
}

// How many scopes a dry run names: those that have something due.
func TestDryRunCountsScopesThatAreDue(t *testing.T) {
	b := newBilled(t)
	b.must("scopes", "disable", "beta", "--reason", "x")
	b.rate()
	b.must("scopes", "enable", "beta", "--reason", "x")
	if out := b.must("rate", "--dry-run", "--now", at); !strings.Contains(out, "6 periods of 1 scope are due") || !strings.Contains(out, "in 1 pass\n") {
		t.Errorf("dry run: %s", out)
	}
	b.must("reset", "--scope", "alpha", "--to", "2026-12-01T01:00:00Z", "--reason", "x", "--yes")
	b.must("scopes", "disable", "beta", "--reason", "x")
	if out := b.must("rate", "--dry-run", "--now", at); !strings.Contains(out, "1 period of 1 scope is due") {
		t.Errorf("dry run: %s", out)
	}
	if out := b.must("status", "--now", at); !strings.Contains(out, "1 period is due") {
		t.Errorf("status: %s", out)
	}
}

// Usage before a scope's first period has a name and a size.
func TestUsageBeforeTheFirstPeriodIsNamed(t *testing.T) {
	b := newBilled(t)
	b.rate("--first-period", "2026-12-01")
	b.owe("alpha 2, beta 1")
	status := b.must("status", "--now", at)
	for _, scope := range []string{"alpha", "beta"} {
		// Four hours of 30 November, three metrics each.
		if want := "before_first: 12 usage rows of scope " + scope + " in 4 periods from 2026-11-30T20:00:00Z on lie before its first period 2026-12-01T00:00:00Z"; !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	out := b.must("reconcile", "--month", "2026-11")
	if !strings.Contains(out, "before_first") || !strings.Contains(out, "12") || !strings.Contains(out, "scope alpha") || strings.Contains(out, "\nno commit") {
		t.Errorf("reconcile:\n%s", out)
	}
	// A scope that turns up with usage in a closed month.
	b.must("rate", "--now", at, "--first-period", "usage")
	b.owe("alpha 6, beta 3")
	if status := b.must("status", "--now", at); strings.Contains(status, "before_first") {
		t.Errorf("what is rated now is still named:\n%s", status)
	}
	b.must("close", "--month", "2026-11", "--now", at)
	b.usage("gamma", "2026-11-30 22:00:00", 3, "3600", "2026-11-28 00:00:00")
	b.must("rate", "--now", at)
	b.owe("alpha 6, beta 3, gamma 1")
	if status := b.must("status", "--now", at); !strings.Contains(status, "before_first: 6 usage rows of scope gamma in 2 periods from 2026-11-30T22:00:00Z on lie before its first period 2026-12-01T00:00:00Z") {
		t.Errorf("status:\n%s", status)
	}
}

// Months of a billing time zone: an hour belongs to one month only, also to
// readers, at clock changes too.
func TestBillingTimeZone(t *testing.T) {
	b := newBilled(t)
	b.fails(ratebatch.ExitConfig, "not known", "settings", "set", "billing_timezone", "Europe/Berln", "--reason", "x")
	b.fails(ratebatch.ExitConfig, "its offset from UTC, 5h30m0s, is no multiple of the period 1h0m0s", "settings", "set", "billing_timezone", "Asia/Kolkata", "--reason", "x")
	b.must("settings", "set", "period", "30m", "--reason", "half hours")
	b.must("settings", "set", "billing_timezone", "Asia/Kolkata", "--reason", "x")
	b.fails(ratebatch.ExitConfig, "Asia/Kolkata", "settings", "set", "period", "1h", "--reason", "x")
	b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "local invoices")
	b.must("settings", "set", "period", "1h", "--reason", "hours")

	// 30 November 20:00 to 1 December 02:00 UTC: November ends at 23:00 UTC.
	b.rate()
	b.owe("alpha 6, beta 3")
	if out := b.must("close", "--month", "2026-11", "--now", at); !strings.Contains(out, "4.5 EUR") {
		t.Errorf("close of November in Berlin: %s", out)
	}
	b.fails(ratebatch.ExitHalted, "2026-11 is closed by the zone Europe/Berlin", "settings", "set", "billing_timezone", "UTC", "--reason", "x")
	b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "the same")
	// The hour from 23:00 to 24:00 UTC is December's: it may be rated again, and readers see it once.
	b.plan("2.00", "--from", "2026-11-30T22:00:00Z", "--force", "--reason", "price")
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T22:00:00Z", "--to", "2026-12-01", "--reason", "price", "--now", at)
	b.owe("alpha 7, beta 3") // 22:00 is frozen, 23:00 is not
	if list := b.must("close", "--list"); !strings.Contains(list, "scope alpha: 4 instead of 3") {
		t.Errorf("close --list:\n%s", list)
	}
	b.fails(ratebatch.ExitHalted, "month 2026-11 is closed: 2 of the periods", "reset", "--all", "--to", "2026-11-30T22:00:00Z", "--reason", "x", "--yes")
	b.must("reset", "--all", "--to", "2026-11-30T23:00:00Z", "--reason", "x", "--yes")
	b.owe("alpha 3, beta 1.5")
	if r := b.rate(); r.Periods != 6 {
		t.Errorf("rated %d periods, want the six of December", r.Periods)
	}
	b.owe("alpha 9, beta 4.5")
	to := t.TempDir()
	b.must("export", "--month", "2026-11", "--to", to, "--dataset", "lines,statement")
	if out := b.must("reconcile", "--month", "2026-11", "--files", to); strings.Contains(out, "FAILS") {
		t.Errorf("reconcile of November:\n%s", out)
	}
	if out := b.must("export", "--month", "2026-11", "--to", to, "--output", "json"); !strings.Contains(out, `"EUR": "4.5"`) {
		t.Errorf("November's files: %s", out)
	}
	if out := b.must("export", "--month", "2026-12", "--to", to, "--partial", "--output", "json"); !strings.Contains(out, `"EUR": "10"`) { // 9 and the correction of 1
		t.Errorf("December's files: %s", out)
	}
	if out := b.must("reopen", "--month", "2026-11", "--reason", "x"); !strings.Contains(out, "is open") {
		t.Errorf("reopen: %s", out)
	}
	b.owe("alpha 10, beta 4.5")
	b.must("settings", "set", "billing_timezone", "UTC", "--reason", "nothing is closed any more")
}

// October has 745 hours in Berlin: all of them are rated, from its first
// instant on, and closed as one month.
func TestClockChangesInABillingMonth(t *testing.T) {
	for month, tt := range map[string]struct {
		first, last, until string
		hours              string
	}{
		"2026-10": {"2026-10-24 22:00:00", "2026-10-31 22:00:00", "2026-11-01T12:00:00Z", "745"},
		"2026-03": {"2026-03-27 23:00:00", "2026-03-31 21:00:00", "2026-04-01T12:00:00Z", "743"},
	} {
		t.Run(month, func(t *testing.T) {
			b := newBilled(t)
			b.sql("TRUNCATE TABLE instance_metrics_hourly")
			b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "x")
			b.must("watermark", "--region", "one", "--until", tt.until)
			b.usage("alpha", tt.first, 1, "3600", "2026-01-01 00:00:00")
			b.usage("alpha", tt.last, 2, "3600", "2026-01-01 00:00:00") // the month's last hour and the next one's first
			now, err := time.Parse(time.RFC3339, tt.until)
			if err != nil {
				t.Fatal(err)
			}
			at := now.AddDate(0, 0, 1).Format(time.RFC3339)
			b.must("rate", "--now", at, "--first-period", "month")
			b.owe("alpha 3")
			if out := b.must("close", "--month", month, "--now", at); !strings.Contains(out, "2 EUR") || !strings.Contains(out, tt.hours) {
				t.Errorf("close: %s, want %s periods and 2 EUR", out, tt.hours)
			}
		})
	}
}

// Closing a closed month again is no mistake when it is the same month still.
func TestClosingTwiceSaysSo(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.must("close", "--month", "2026-11", "--now", at)
	if out := b.must("close", "--month", "2026-11", "--now", at); !strings.Contains(out, "month 2026-11 is closed already, and nothing has changed since") || !strings.Contains(out, "6 EUR") {
		t.Errorf("second close: %s", out)
	}
	b.plan("2.00", "--from", "2026-11-30", "--force", "--reason", "price")
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z", "--reason", "price", "--now", at)
	b.fails(ratebatch.ExitConfig, "was rated differently since", "close", "--month", "2026-11", "--now", at)
}

// Late usage and a changed plan are told apart.
func TestLateUsageUnderAChangedPlan(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.plan("3.00", "--from", "2026-11-30", "--force", "--reason", "price")
	// A second instance of beta turns up for 23:00, at 1 EUR then and 3 EUR now.
	b.sql(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, samples, covered_seconds)
		VALUES ('2026-11-30 23:00:00', 'one', '00000000-0000-0000-0000-00000000000b', 'beta', 'm1', 1, 60, 3600)`)
	var r struct {
		Late struct{ Difference map[string]string }
	}
	b.json(&r, "rate", "--now", at)
	if r.Late.Difference["EUR"] != "1" {
		t.Errorf("rate says the late usage is worth %v, want 1 EUR", r.Late.Difference)
	}
	out := b.must("status", "--late", "--now", at)
	// Committed 0.5; by the plan of then 1.5, by the plan of now 4.5.
	line := ""
	for l := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(l, "beta") && strings.Contains(l, "late") {
			line = strings.Join(strings.Fields(l), " ")
		}
	}
	if !strings.Contains(line, "late 3 6 1 EUR 3 EUR hold") {
		t.Errorf("status --late: %q in\n%s", line, out)
	}
	if !strings.Contains(out, "12 periods from 2026-11-30T00:00:00Z on were rated by another rate plan") {
		t.Errorf("status does not list the outdated periods:\n%s", out)
	}
	b.owe("alpha 6, beta 3")
}

// A first period that is set behind what was rated leaves usage that is due for
// nobody: it is told.
func TestAFirstPeriodBehindRatedOnesTellsWhatItLeavesOut(t *testing.T) {
	b := newBilled(t)
	b.must("rate", "--first-period", "usage", "--now", "2026-11-30T23:30:00Z")
	b.owe("alpha 2, beta 1")
	b.must("settings", "set", "first_period", "2026-12-01", "--reason", "x")
	var x struct {
		Before []store.BeforeFirst `json:"before_first"`
	}
	b.json(&x, "status", "--now", at)
	rows := uint64(0)
	for _, f := range x.Before {
		rows += f.Rows
	}
	if rows == 0 || len(x.Before) != 2 || x.Before[0].Periods != 2 || x.Before[0].First.Format(time.RFC3339) != "2026-12-01T00:00:00Z" {
		t.Errorf("before the first period: %+v", x.Before)
	}
}

// Settings wait for whoever rates or closes by those of before.
func TestSettingsAreNotSetWhileARunGoesOn(t *testing.T) {
	b := newBilled(t)
	held := store.Params{"name": "rate", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitTryAgain, "nothing was set", "settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "x")
	held["state"] = "released"
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	b.must("settings", "set", "billing_timezone", "Europe/Berlin", "--reason", "x")
}
