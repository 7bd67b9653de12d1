package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs/reprocess"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A month that was reopened while a later one stays closed is open: what lacks a
// commit in it is due. (reopen refuses this now; databases have it from before.)
func TestAnOpenMonthBeforeAClosedOneIsDue(t *testing.T) {
	b := newBilled(t)
	b.sql("TRUNCATE TABLE instance_metrics_hourly")
	b.usage("alpha", "2026-10-31 22:00:00", 6, "3600", "2026-10-28 00:00:00")
	const now = "2026-12-01T06:00:00Z"
	b.rate()
	b.must("close", "--month", "2026-10", "--now", now)
	b.must("close", "--month", "2026-11", "--now", now)
	b.sql("INSERT INTO month_commits (month, closed, kind, begin, until, reason) VALUES ('2026-10-01', 1, 'reopen', '2026-10-01 00:00:00', '2026-11-01 00:00:00', 'x')")
	before := b.owes()
	b.sql("INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, reason) SELECT 'alpha', '2026-10-31 22:00:00', '2026-10-31 23:00:00', 2, 'reset', generateUUIDv4(), 'x'")
	if b.owes() == before {
		t.Fatal("the period still counts")
	}
	b.fails(ratebatch.ExitTryAgain, "", "close", "--month", "2026-10", "--now", now)
	if got := b.rate(); got.Periods != 1 {
		t.Errorf("%d periods were rated, want the one that lacks a commit", got.Periods)
	}
	b.owe(before)
	b.must("close", "--month", "2026-10", "--now", now)
}

// A disabled scope is not rated again: a reset of all leaves alone what it owes,
// and one of it by name is refused.
func TestResetLeavesDisabledScopesWhatTheyOwe(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.owe("alpha 6, beta 3")
	b.must("scopes", "disable", "beta", "--reason", "left")
	b.fails(ratebatch.ExitHalted, "it is disabled", "reset", "--scope", "beta", "--to", "2026-11-30T20:00:00Z", "--reason", "x", "--yes", "--now", at)
	said := b.must("reset", "--all", "--to", "2026-11-30T20:00:00Z", "--reason", "x", "--yes", "--now", at)
	if !strings.Contains(said, "forgot 6 periods") || !strings.Contains(said, "left alone, because disabled scopes are not rated again: beta") {
		t.Errorf("reset said %q", said)
	}
	b.owe("beta 3")
	b.rate()
	b.must("close", "--month", "2026-11", "--now", at)
	b.owe("alpha 6, beta 3")
}

// What was rated once can be rated again, also before a first period that was set
// since; a stretch without a plan keeps a schedule waiting.
func TestAScheduleBeforeTheFirstPeriodIsDone(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.must("rate", "--now", at, "--first-period", "2026-12-01")
	b.plan("2.00", "--from", "2026-11-30T20:00:00Z", "--force", "--reason", "a mistake")
	b.must("backfill", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T22:00:00Z", "--reason", "y", "--now", at)
	b.owe("alpha 8, beta 3")
}

// A schedule that is cancelled while another one of the same run is executed is
// not run.
func TestACancelledScheduleIsNotRun(t *testing.T) {
	b := newBilled(t)
	b.rate()
	for _, reason := range []string{"one", "two"} {
		b.must("reprocess", "add", "--scope", map[string]string{"one": "alpha", "two": "beta"}[reason], "--from", "2026-11-30T20:00:00Z", "--to", "2026-11-30T21:00:00Z", "--reason", reason, "--now", at)
	}
	ran := ""
	var job *reprocess.Job
	job = &reprocess.Job{Store: b.s, Log: slog.New(slog.DiscardHandler), Period: time.Hour, RunID: uuid.New(),
		Rate: func(ctx context.Context, x store.Schedule, done func(context.Context, time.Time) error) (reprocess.Outcome, error) {
			ran += x.Reason + " "
			all, err := b.s.Schedules(ctx)
			if err != nil {
				return reprocess.Outcome{}, err
			}
			for _, other := range all {
				if other.Reason == "two" && other.Open() {
					if _, err := job.Cancel(ctx, other.ID.String()); err != nil {
						return reprocess.Outcome{}, err
					}
				}
			}
			return reprocess.Outcome{}, done(ctx, x.End)
		}}
	if _, err := job.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := b.s.Schedules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, x := range all {
		states[x.Reason] = x.State
	}
	if ran != "one " || states["one"] != store.ScheduleDone || states["two"] != store.ScheduleCancelled {
		t.Errorf("run: %s; states: %v; want only one of them run, the other cancelled", ran, states)
	}
}

// A look for late usage prices by an attempt that is void from its begin: hints of
// months stay, or every read and every run would look at all of history again.
func TestALookTakesNoHintBack(t *testing.T) {
	b := newBilled(t)
	b.sql("TRUNCATE TABLE instance_metrics_hourly")
	b.usage("alpha", "2026-11-30 20:00:00", 4, "3600", time.Now().UTC().Format(time.DateTime))
	b.rate()
	for range 2 {
		voids := b.text("SELECT toString(count()) FROM void_attempts")
		b.rate()
		if b.text("SELECT toString(count()) FROM void_attempts") == voids {
			t.Fatal("the look priced nothing")
		}
		if got := b.text("SELECT toString(groupArray(month)) FROM plain_now"); got != "[202611]" {
			t.Errorf("plain months after a look: %s, want November", got)
		}
	}
	b.sql("INSERT INTO void_attempts (run_id, reason) SELECT any(run_id), 'test' FROM period_commits")
	if got := b.text("SELECT toString(groupArray(month)) FROM plain_now"); got != "[]" {
		t.Errorf("plain months after an attempt with commits was voided: %s, want none", got)
	}
}

// killedBeforeCarries is a connection of a run that dies before it settles what
// its commits have changed behind them.
type killedBeforeCarries struct {
	driver.Conn
	asked int
}

func (c *killedBeforeCarries) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	if strings.Contains(query, "-- name:    carry_since\n") {
		if c.asked++; c.asked > 1 { // the first is before late usage is rated
			return nil, errors.New("killed")
		}
	}
	return c.Conn.Query(ctx, query, args...)
}

// A month is not frozen with tiers that are not settled.
func TestCloseWaitsForCarriesToBeSettled(t *testing.T) {
	b := newBilled(t)
	b.begin(faultJob{plan: shardPlan, prepare: func(b *billed) {
		b.rateWhole("hold")
		b.usage("beta", "2026-11-30 21:00:00", 1, "3600", "2099-01-01 00:00:00")
		b.usage("gamma", "2026-11-30 21:00:00", 2, "3600", "2026-11-28 00:00:00")
	}})
	err := rateOnce("reprocess")(t.Context(), b.program(), store.New(&killedBeforeCarries{Conn: b.e.Conn()}, b.e.Database()))
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the run did not die: %v", err)
	}
	b.sql("TRUNCATE TABLE leases")
	before := b.owes()
	b.fails(ratebatch.ExitTryAgain, "are not settled", "close", "--month", "2026-11", "--now", at, "--first-period", "usage")
	b.rateWhole("reprocess")
	if b.owes() == before {
		t.Error("there was nothing to settle")
	}
	b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
}
