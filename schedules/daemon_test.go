package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what daemons of a test share: a run log, whose turn it is, and which
// commands ran when.
type world struct {
	mu     sync.Mutex
	offset time.Duration // of the wall clock
	away   bool          // the server
	full   bool          // the run log's disk
	turn   *Daemon
	slots  map[string]time.Time
	runs   []string // "job 15:04" by the wall clock
	now    map[string]int
	most   map[string]int // runs of a job at once
	takes  func(job string, n int) (time.Duration, int)
	killed []string
}

func newWorld() *world {
	return &world{slots: map[string]time.Time{}, now: map[string]int{}, most: map[string]int{}}
}

func (w *world) wall() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.offset)
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) Run(ctx context.Context, j *Job) (int, error) {
	w.mu.Lock()
	w.runs = append(w.runs, j.Name+" "+time.Now().Add(w.offset).UTC().Format("02 15:04"))
	n := 0
	for _, r := range w.runs {
		if strings.HasPrefix(r, j.Name+" ") {
			n++
		}
	}
	w.now[j.Name]++
	w.most[j.Name] = max(w.most[j.Name], w.now[j.Name])
	takes, exit := time.Minute, 0
	if w.takes != nil {
		takes, exit = w.takes(j.Name, n)
	}
	w.mu.Unlock()
	defer w.set(func() { w.now[j.Name]-- })
	select {
	case <-time.After(takes):
		return exit, nil
	case <-ctx.Done():
		w.set(func() { w.killed = append(w.killed, j.Name) })
		time.Sleep(3 * time.Second) // it cleans up
		return 130, context.Cause(ctx)
	}
}

// state is a daemon's way to the world.
type state struct {
	*world
	d *Daemon
}

var errAway = errors.New("connection refused")

func (s state) Turn(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return false, errAway
	}
	if s.turn == nil {
		s.turn = s.d
	}
	return s.turn == s.d, nil
}

func (s state) LastSlots(context.Context) (map[string]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.slots), nil
}

func (s state) Note(_ context.Context, r *Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full || s.away {
		return errors.New("no space left on device")
	}
	if !r.End.IsZero() {
		s.slots[r.Job] = r.Slot
	}
	return nil
}

func (w *world) daemon(t *testing.T, text string) *Daemon {
	t.Helper()
	f, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{File: f, Runner: w, Log: slog.New(slog.DiscardHandler), Now: w.wall, Jitter: func(d time.Duration) time.Duration { return d / 2 }}
	d.State = state{w, d}
	return d
}

// run lets the daemon run in the background; stop ends it and waits.
func run(t *testing.T, d *Daemon) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

func (w *world) ran(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.runs, want) {
		t.Errorf("ran\n  %s\nwant\n  %s", strings.Join(w.runs, "\n  "), strings.Join(want, "\n  "))
	}
	for job, n := range w.most {
		if n > 1 {
			t.Errorf("%d runs of %s at once", n, job)
		}
	}
}

const hourly = "jobs: [{name: rate, cron: '7 * * * *', args: [rate], timeout: 50m}]\n"

// A bubble's clock begins at 2000-01-01T00:00:00Z.

func TestJobsRunAtTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		stop := run(t, w.daemon(t, hourly+"  "))
		time.Sleep(3*time.Hour + 30*time.Minute)
		stop()
		w.ran(t, "rate 01 00:07", "rate 01 01:07", "rate 01 02:07", "rate 01 03:07")
	})
}

func TestADaemonStoppedForFiveDaysMakesUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		text := `
jobs:
  - {name: rate, cron: '7 * * * *', args: [rate]}
  - {name: export, cron: '30 2 * * *', args: [export]}
  - {name: mail, cron: '0 5 * * *', args: [status], catch_up: false}
  - {name: close, cron: '0 6 4 * *', args: [close]}
`
		stop := run(t, w.daemon(t, text))
		time.Sleep(5*time.Hour + 30*time.Minute)
		stop()
		w.set(func() { w.runs, w.turn = nil, nil })
		time.Sleep(5 * 24 * time.Hour)
		// What was missed comes once, in the order of the file and one after another.
		w.takes = func(string, int) (time.Duration, int) { return 10 * time.Minute, 0 }
		d := w.daemon(t, text)
		stop = run(t, d)
		time.Sleep(35 * time.Minute)
		h := d.Health()
		stop()
		// 5:30 + 5 days = the 6th 5:30. close never ran, but its slot of the 4th is due
		// only for a daemon that knew of it: a new job does not run for its past.
		w.ran(t, "rate 06 05:30", "export 06 05:40")
		if i := slices.IndexFunc(h.Jobs, func(j JobHealth) bool { return j.Job == "rate" }); h.Jobs[i].Missed != 119 {
			t.Errorf("%d slots of rate are counted as missed, want 119 beside the one that was made up for", h.Jobs[i].Missed)
		}
	})
}

func TestAClockThatIsSetBack(t *testing.T) {
	for name, tt := range map[string]struct {
		by   time.Duration
		want []string
	}{
		"a correction repeats nothing": {-3 * time.Minute, []string{"rate 01 00:07", "rate 01 01:07", "rate 01 02:07"}},
		"a clock that was hours ahead": {-3 * time.Hour, []string{"rate 01 00:07", "rate 01 01:07", "rate 31 23:07"}},
		"a clock that jumps ahead":     {3*time.Hour + 10*time.Minute, []string{"rate 01 00:07", "rate 01 01:07", "rate 01 04:18", "rate 01 05:07"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				stop := run(t, w.daemon(t, hourly))
				// rate 01:07 has just ended; the daemon looks at the clock at whole
				// minutes, and which of the two comes first then is not said.
				time.Sleep(time.Hour + 8*time.Minute + 20*time.Second)
				w.set(func() { w.offset = tt.by })
				time.Sleep(time.Hour + 30*time.Minute)
				stop()
				w.ran(t, tt.want...)
			})
		})
	}
}

func TestAJobThatHangsIsEndedAndLeavesSlotsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = func(job string, n int) (time.Duration, int) {
			if job == "rate" && n == 1 {
				return 1000 * time.Hour, 0
			}
			return time.Minute, 0
		}
		d := w.daemon(t, `
jobs:
  - {name: rate, cron: '7 * * * *', args: [rate], timeout: 150m}
  - {name: export, cron: '30 * * * *', args: [export]}
`)
		stop := run(t, d)
		time.Sleep(2*time.Hour + 50*time.Minute)
		h := d.Health()
		if h.Jobs[0].Failed != 1 || h.Jobs[0].Skipped != 2 || h.Jobs[0].Running || !strings.Contains(h.Jobs[0].Error, "deadline") {
			t.Errorf("after the timeout: %+v", h.Jobs[0])
		}
		time.Sleep(30 * time.Minute)
		stop()
		// The other job is not held up.
		w.ran(t, "rate 01 00:07", "export 01 00:30", "export 01 01:30", "export 01 02:30", "rate 01 03:07")
	})
}

func TestReplaceEndsTheRunFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = func(string, int) (time.Duration, int) { return 90 * time.Minute, 0 }
		stop := run(t, w.daemon(t, "jobs: [{name: rate, cron: '7 * * * *', args: [rate], timeout: 3h, concurrency: replace}]"))
		time.Sleep(2*time.Hour + 8*time.Minute)
		stop()
		w.ran(t, "rate 01 00:07", "rate 01 01:07", "rate 01 02:07")
		if len(w.killed) != 2 {
			t.Errorf("%v were ended, want rate twice", w.killed)
		}
	})
}

func TestOfTwoDaemonsOneRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		first, second := w.daemon(t, hourly), w.daemon(t, hourly)
		stopFirst, stopSecond := run(t, first), run(t, second)
		time.Sleep(90 * time.Minute)
		if a, b := first.Health(), second.Health(); a.Turn == b.Turn || !a.Alive || !b.Alive {
			t.Errorf("turns %v and %v, alive %v and %v", a.Turn, b.Turn, a.Alive, b.Alive)
		}
		// The one whose turn it is goes away; the other one takes over, from the run log.
		w.mu.Lock()
		leader := w.turn
		w.mu.Unlock()
		stop, stopOther := stopFirst, stopSecond
		if leader == second {
			stop, stopOther = stopSecond, stopFirst
		}
		stop()
		time.Sleep(time.Hour) // 2:07 passes without a holder
		w.set(func() { w.turn = nil })
		time.Sleep(time.Hour)
		stopOther()
		w.ran(t, "rate 01 00:07", "rate 01 01:07", "rate 01 02:30", "rate 01 03:07")
	})
}

func TestTheServerIsAwayAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.away = true
		w.slots["rate"] = time.Now().Add(-54 * time.Minute)
		d := w.daemon(t, hourly)
		stop := run(t, d)
		time.Sleep(3 * time.Hour)
		if h := d.Health(); !h.Alive || h.Turn || h.Errors == 0 {
			t.Errorf("with the server away: %+v", h)
		}
		w.ran(t)
		w.set(func() { w.away = false })
		time.Sleep(10 * time.Minute)
		stop()
		w.ran(t, "rate 01 03:00", "rate 01 03:07")
	})
}

func TestARunLogThatCannotBeWrittenStopsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.full = true
		d := w.daemon(t, hourly)
		stop := run(t, d)
		time.Sleep(90 * time.Minute)
		stop()
		w.ran(t, "rate 01 00:07", "rate 01 01:07")
		if h := d.Health(); h.Errors != 4 || h.Jobs[0].Done != 2 {
			t.Errorf("%+v", h)
		}
	})
}

func TestPassingTroubleIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = func(_ string, n int) (time.Duration, int) {
			return time.Minute, map[int]int{1: 75, 2: 75, 3: 0, 4: 20, 5: 75, 6: 75, 7: 75}[n]
		}
		d := w.daemon(t, "jobs: [{name: rate, cron: '7 * * * *', args: [rate], jitter: 4m, retry: {times: 2, after: 5m}}]")
		stop := run(t, d)
		time.Sleep(3 * time.Hour)
		stop()
		w.ran(t, "rate 01 00:09", "rate 01 00:15", "rate 01 00:21", // 75, 75, then done
			"rate 01 01:09",                                   // 20: for a person
			"rate 01 02:09", "rate 01 02:15", "rate 01 02:21") // 75 to the end
		if h := d.Health(); h.Jobs[0].Done != 1 || h.Jobs[0].Failed != 2 || h.Jobs[0].LastExit != 75 {
			t.Errorf("%+v", h.Jobs[0])
		}
	})
}

func TestSIGTERMWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = func(string, int) (time.Duration, int) { return 20 * time.Minute, 0 }
		stop := run(t, w.daemon(t, hourly))
		time.Sleep(10 * time.Minute)
		began := time.Now()
		stop()
		if waited := time.Since(began); waited != 17*time.Minute || len(w.killed) > 0 {
			t.Errorf("waited %s, ended %v", waited, w.killed)
		}
	})
}

func TestASecondSignalEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = func(string, int) (time.Duration, int) { return 20 * time.Minute, 0 }
		d := w.daemon(t, hourly)
		hurry := make(chan struct{})
		d.Hurry = hurry
		stop := run(t, d)
		time.Sleep(10 * time.Minute)
		go func() {
			time.Sleep(time.Minute)
			close(hurry)
		}()
		began := time.Now()
		stop()
		if waited := time.Since(began); waited != 63*time.Second || len(w.killed) != 1 {
			t.Errorf("waited %s, ended %v", waited, w.killed)
		}
		if len(w.slots) != 1 {
			t.Errorf("the run that was ended is not in the run log: %v", w.slots)
		}
	})
}

func TestHealthAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.daemon(t, hourly)
		get := func(path string) (int, string) {
			r := httptest.NewRecorder()
			d.Handler().ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			return r.Code, r.Body.String()
		}
		if code, _ := get("/healthz"); code != 503 {
			t.Errorf("before it runs: %d", code)
		}
		stop := run(t, d)
		time.Sleep(2 * time.Hour)
		code, text := get("/healthz")
		var h Health
		if err := json.Unmarshal([]byte(text), &h); err != nil || code != 200 || !h.Turn || len(h.Jobs) != 1 {
			t.Errorf("%d %s %v", code, text, err)
		}
		_, text = get("/metrics")
		for _, want := range []string{
			`ratebatch_schedule_runs_total{name="rate",outcome="done"} 2`, `ratebatch_schedule_last_exit_code{name="rate"} 0`, "ratebatch_schedule_turn 1",
			`ratebatch_schedule_last_duration_seconds{name="rate"} 60`, fmt.Sprintf(`ratebatch_schedule_next_timestamp_seconds{name="rate"} %g`, float64(time.Now().Unix()+7*60)),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics lack %s:\n%s", want, text)
			}
		}
		stop()
		w.set(func() { w.offset = time.Hour })
		if code, _ := get("/healthz"); code != 503 {
			t.Errorf("a daemon whose loop stands still is healthy: %d", code)
		}
	})
}
