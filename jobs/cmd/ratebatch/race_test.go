package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/fixtures/fault"
	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/retention"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// race runs n jobs at once, without a lease to keep them apart, each with
// connections and a store of its own.
func (b *billed) race(n int, late string) {
	b.Helper()
	var wait sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wait.Go(func() {
			job := &rate.Job{Store: b.s, Log: b.log(), Options: faultOptions(late)}
			_, errs[i] = rateWithoutLease(b, job)
		})
	}
	wait.Wait()
	for i, err := range errs {
		// Usage that arrives all the time may void a run's attempts: it says so.
		if code := ratebatch.ExitCode(err); code != 0 && code != ratebatch.ExitTryAgain {
			b.Errorf("run %d of %d: %v", i, n, err)
		}
	}
}

// Two, four and eight jobs at once, with usage arriving meanwhile: in the end
// each usage row is billed exactly once.
func TestRunsAtOnceBillEachRowOnce(t *testing.T) {
	b := newBilled(t)
	for _, n := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := &billed{T: t, e: b.e, s: b.s, flags: b.flags}
			b.begin(faultJob{prepare: func(*billed) {}})
			random := rand.New(rand.NewPCG(uint64(n), 1))
			arrived := 0
			stop := make(chan struct{})
			var arriving sync.WaitGroup
			arriving.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						// An instance of beta that nobody has seen yet, in some hour.
						arrived++
						b.sql(fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, samples, covered_seconds)
							VALUES (toDateTime('2026-11-30 20:00:00', 'UTC') + 3600 * %d, 'one', '00000000-0000-0000-0001-%012d', 'beta', 'm1', 1, 60, 3600)`, random.IntN(6), arrived))
					}
				}
			})
			b.race(n, "reprocess")
			b.race(min(n, 4), "reprocess") // over what has arrived
			close(stop)
			arriving.Wait()
			// Usage has stopped arriving: one run, and everything is billed.
			b.rateWhole("reprocess")
			want := fmt.Sprintf("alpha 6, beta %d", 3+arrived)
			if got := b.text("SELECT arrayStringConcat(groupArray(concat(scope, ' ', toString(price))), ', ') FROM (SELECT scope, sum(price) AS price FROM rated WHERE metric = 'instance' GROUP BY scope ORDER BY scope)"); got != want {
				t.Errorf("%d runs at once: owed %s, want %s", n, got, want)
			}
			if got := b.text("SELECT toString(count() - uniqExact(scope, begin, metric, resource, attributes)) FROM rated"); got != "0" {
				t.Errorf("%s lines count twice", got)
			}
			t.Logf("%d runs at once, %d rows arrived meanwhile, %s attempts wrote lines", n, arrived, b.text("SELECT toString(uniqExact(run_id)) FROM rated_lines"))
		})
	}
}

// stall is a connection on which one statement waits until it is let go.
type stall struct {
	*fault.Conn
	text    string
	reached chan struct{}
	goOn    chan struct{}
	once    sync.Once
}

func (s *stall) wait(query string) {
	if strings.Contains(query, s.text) {
		s.once.Do(func() {
			close(s.reached)
			<-s.goOn
		})
	}
}

// Exec waits when it is the statement to stall at.
func (s *stall) Exec(ctx context.Context, query string, args ...any) error {
	s.wait(query)
	return s.Conn.Exec(ctx, query, args...)
}

// Query likewise.
func (s *stall) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	s.wait(query)
	return s.Conn.Query(ctx, query, args...)
}

func newStall(b *billed, text string) *stall {
	return &stall{Conn: fault.New(b.e.Conn(), 0, ""), text: text, reached: make(chan struct{}), goOn: make(chan struct{})}
}

// A run that stalls at any step of its pass and wakes up after others have
// rated, reset and rated again, or after retention took it for dead, changes
// nothing. What could count is written by the last step, so everything happens
// before that one; before the others what changes most, and with
// RATEBATCH_TEST_FAULTS=all everything too.
func TestAStalledRunChangesNothing(t *testing.T) {
	b := newBilled(t)
	meanwhile := map[string]func(b *billed){
		"others rated": func(b *billed) { b.rateWhole("hold") },
		"others rated, reset and rated again": func(b *billed) {
			b.rateWhole("hold")
			b.must("reset", "--all", "--to", "2026-11-30", "--reason", "x", "--yes")
			b.apply("2.00")
			b.rateWhole("hold")
		},
		"others rated and closed the month": func(b *billed) {
			b.rateWhole("hold")
			b.must("close", "--month", "2026-11", "--now", at, "--first-period", "usage")
		},
		"retention took it for dead": func(b *billed) {
			job := &retention.Job{Store: b.s, Log: b.log(), Options: retention.Options{Dead: time.Hour, Superseded: time.Hour, Runs: 24 * time.Hour, Now: time.Now().Add(2 * time.Hour)}}
			plan, err := job.Plan(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if plan.DeadAttempts != 1 {
				b.Errorf("retention sees %d dead attempts, want the stalled one", plan.DeadAttempts)
			}
			if err := job.Run(b.Context(), plan, uuid.New()); err != nil {
				b.Fatal(err)
			}
			b.rateWhole("hold")
		},
	}
	for _, step := range []string{"INSERT INTO rated_lines", "INSERT INTO pass_lines", "INSERT INTO period_commits"} {
		for name, do := range meanwhile {
			if step != "INSERT INTO period_commits" && name != "others rated, reset and rated again" && os.Getenv(envFaults) != "all" {
				continue
			}
			t.Run(step+", "+name, func(t *testing.T) {
				b := &billed{T: t, e: b.e, s: b.s, flags: b.flags}
				b.begin(faultJob{prepare: func(*billed) {}})
				conn := newStall(b, step)
				done := make(chan error, 1)
				go func() {
					_, err := rateWithoutLease(b, &rate.Job{Store: store.New(conn, b.e.Database()), Log: b.log(), Options: faultOptions("hold")})
					done <- err
				}()
				<-conn.reached
				do(b)
				want := b.outcome()
				close(conn.goOn)
				if err := <-done; ratebatch.ExitCode(err) != 0 && ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
					t.Errorf("the stalled run: %v", err)
				}
				if got := b.outcome(); got != want {
					t.Errorf("the stalled run changed what counts from\n%s\nto\n%s", want, got)
				}
			})
		}
	}
}

// rateWithoutLease is one run of the job with nothing to keep others away.
func rateWithoutLease(b *billed, job *rate.Job) (rate.Result, error) {
	run := &jobs.Run{ID: uuid.New()}
	plan, err := job.Plan(b.Context())
	if err != nil {
		return rate.Result{}, err
	}
	result, err := job.Run(b.Context(), plan, run)
	if err != nil {
		return result, err
	}
	_, err = job.Look(b.Context(), run)
	return result, err
}
