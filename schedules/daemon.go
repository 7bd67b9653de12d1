package schedules

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Daemon starts the jobs of a schedule at their slots. There is never more than
// one run of a job, and of several daemons only the one whose turn it is starts
// any.
type Daemon struct {
	File   *File
	Runner Runner
	State  State
	Log    *slog.Logger
	Now    func() time.Time                  // the wall clock
	Jitter func(time.Duration) time.Duration // a random time up to the given one

	// Tick is how often the wall clock is looked at, whatever timers say: 15 s if 0.
	Tick time.Duration
	// Drain is how long runs may go on after the daemon was told to end; 0: as
	// long as their timeouts let them.
	Drain time.Duration
	// Hurry ends what runs, for a second signal; may be nil.
	Hurry <-chan struct{}

	mu   sync.Mutex
	jobs map[string]*jobState
	turn bool
	beat time.Time
	errs uint64 // of State
	runs sync.WaitGroup
	wake chan struct{}
}

// Runner executes a job's command line and returns its exit code. When ctx ends
// it ends the command: first kindly, then for certain. err is for commands that
// could not be run or had to be killed.
type Runner interface {
	Run(ctx context.Context, j *Job) (exit int, err error)
}

// State is what outlives a daemon.
type State interface {
	// Turn says whether this daemon is the one that runs jobs now.
	Turn(context.Context) (bool, error)
	// LastSlots is the last slot of each job that was run, by any daemon.
	LastSlots(context.Context) (map[string]time.Time, error)
	// Note writes down that a run began or, with an end, how it ended.
	Note(context.Context, *Record) error
}

// Record is one run of a job.
type Record struct {
	Job    string
	Args   []string
	Slot   time.Time
	Missed int // further slots that this run stands for
	Start  time.Time
	End    time.Time // zero while it goes on
	Tries  int
	Exit   int
	Err    error
	ID     any // for State to recognise it by
}

type jobState struct {
	last    time.Time // the last slot that was handled
	record  *Record   // the run that goes on, or the last one
	running bool
	stop    context.CancelFunc
	again   *Record // replaces the run that goes on

	success         time.Time
	done, failed    uint64
	skipped, missed uint64
}

const (
	defaultTick = 15 * time.Second
	// setBack is how far the clock may be set back before slots that were run
	// already count again: less is a correction, more means that it was wrong.
	setBack = 5 * time.Minute
	// tooLate is when a job that makes up for nothing misses its slot.
	tooLate = 2 * time.Minute
	// stateTimeout bounds every look at State: a server that hangs must not stop
	// the clock.
	stateTimeout = 20 * time.Second
)

// Run follows the schedule until ctx ends, then waits for what runs.
func (d *Daemon) Run(ctx context.Context) error {
	if d.Tick == 0 {
		d.Tick = defaultTick
	}
	d.mu.Lock()
	d.jobs, d.wake = map[string]*jobState{}, make(chan struct{}, 1)
	for i := range d.File.Jobs {
		d.jobs[d.File.Jobs[i].Name] = &jobState{last: d.Now()}
	}
	d.mu.Unlock()
	for ctx.Err() == nil {
		timer := time.NewTimer(d.step(ctx))
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return d.drain(ctx)
}

// step starts what is due and says how long to wait for the next look.
func (d *Daemon) step(ctx context.Context) time.Duration {
	now := d.Now()
	d.clockSetBack(ctx, now)
	d.mu.Lock()
	d.beat = now
	d.mu.Unlock()
	if !d.myTurn(ctx) {
		return d.Tick
	}
	wait := d.Tick
	var before <-chan struct{} // ends with the run that this one waits for
	for i := range d.File.Jobs {
		j := &d.File.Jobs[i]
		if ended := d.start(ctx, j, now, before); ended != nil {
			before = ended
		}
		d.mu.Lock()
		if next := j.Next(d.jobs[j.Name].last); !next.IsZero() {
			wait = min(wait, max(0, next.Sub(now)))
		}
		d.mu.Unlock()
	}
	return max(wait, 10*time.Millisecond)
}

// clockSetBack lets the slots of a clock that was far ahead count again: waiting
// until it is that late once more could take years, a run too many is harmless.
func (d *Daemon) clockSetBack(ctx context.Context, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.beat.IsZero() || d.beat.Sub(now) < setBack {
		return
	}
	d.Log.WarnContext(ctx, "the clock was set back: going on from the new time", "from", d.beat, "to", now)
	for _, s := range d.jobs {
		if s.last.After(now) {
			s.last = now
		}
	}
}

// myTurn asks State. When the turn is new, what earlier daemons ran is read, so
// that slots missed since are made up for, once.
func (d *Daemon) myTurn(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	turn, err := d.State.Turn(ctx)
	var last map[string]time.Time
	d.mu.Lock()
	gained := turn && err == nil && !d.turn
	d.mu.Unlock()
	if gained {
		last, err = d.State.LastSlots(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			d.Log.WarnContext(ctx, "the schedule's state cannot be read; runs wait", "error", err)
			d.errs++
		}
		d.turn = false
		return false
	}
	if gained {
		now := d.Now()
		for name, at := range last {
			if s, ok := d.jobs[name]; ok && (s.record == nil || at.After(s.last)) {
				s.last = at
				if at.After(now) { // by a clock that was ahead
					s.last = now
				}
			}
		}
		d.Log.InfoContext(ctx, "this daemon runs the schedule now")
	} else if d.turn && !turn {
		d.Log.InfoContext(ctx, "another daemon runs the schedule; standing by")
	}
	d.turn = turn
	return turn
}

// start starts the job if a slot of it came. It returns a channel that closes
// with the run if the run makes up for missed slots: those go one after another,
// in the order of the file.
func (d *Daemon) start(ctx context.Context, j *Job, now time.Time, before <-chan struct{}) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.jobs[j.Name]
	slot, slots := time.Time{}, 0
	for at := j.Next(s.last); !at.IsZero() && !at.After(now); at = j.Next(at) {
		slot = at
		if slots++; slots == 10_000 { // it does not matter how many more
			slot = now
			break
		}
	}
	if slots == 0 {
		return nil
	}
	s.last = slot
	late := now.Sub(slot) > tooLate || slots > 1
	if late && !j.catchesUp() {
		s.missed += uint64(slots)
		d.Log.WarnContext(ctx, "missed", "job", j.Name, "slot", slot, "slots", slots)
		return nil
	}
	s.missed += uint64(slots - 1)
	r := &Record{Job: j.Name, Args: j.Args, Slot: slot, Missed: slots - 1}
	if s.running {
		if j.Concurrency == Replace {
			s.again = r
			s.stop()
			return nil
		}
		s.skipped++
		d.Log.WarnContext(ctx, "left out: the last run goes on", "job", j.Name, "slot", slot, "since", s.record.Start)
		return nil
	}
	if !late {
		before = nil
	}
	ended := make(chan struct{})
	d.launch(ctx, j, s, r, before, ended)
	if !late {
		return nil
	}
	d.Log.InfoContext(ctx, "making up for missed runs", "job", j.Name, "slots", slots)
	return ended
}

// launch starts the goroutine of a run; d.mu is held.
func (d *Daemon) launch(ctx context.Context, j *Job, s *jobState, r *Record, before <-chan struct{}, ended chan struct{}) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.running, s.record, s.stop = true, r, stop
	r.Start = d.Now()
	d.runs.Go(func() {
		defer close(ended)
		defer stop()
		d.run(ctx, run, j, s, r, before)
		d.mu.Lock()
		defer d.mu.Unlock()
		s.running = false
		if again := s.again; again != nil && ctx.Err() == nil {
			s.again = nil
			d.launch(ctx, j, s, again, nil, make(chan struct{}))
		}
		select {
		case d.wake <- struct{}{}:
		default:
		}
	})
}

// run does one run: it waits for its moment, then tries until the job did not
// end with exit code 75. Waiting ends with the daemon, a command does not.
func (d *Daemon) run(daemon, run context.Context, j *Job, s *jobState, r *Record, before <-chan struct{}) {
	if before != nil {
		select {
		case <-before:
		case <-daemon.Done():
			return
		case <-run.Done():
			return
		}
	}
	if j.Jitter > 0 && !d.sleep(daemon, run, d.Jitter(j.Jitter)) {
		return
	}
	d.update(func() { r.Start = d.Now() })
	d.note(run, r)
	for {
		d.update(func() { r.Tries++ })
		tried, cancel := context.WithTimeout(run, j.Timeout)
		d.Log.InfoContext(run, "start", "job", j.Name, "slot", r.Slot, "attempt", r.Tries)
		exit, err := d.Runner.Run(tried, j)
		if err == nil && tried.Err() != nil {
			err = context.Cause(tried)
		}
		cancel()
		d.update(func() { r.Exit, r.Err = exit, err })
		if exit != exitTryAgain || r.Tries > j.Retry.Times || !d.sleep(daemon, run, j.Retry.After) {
			break
		}
	}
	d.update(func() { r.End = d.Now() })
	level := slog.LevelInfo
	d.mu.Lock()
	if r.Good() {
		s.done, s.success = s.done+1, r.End
	} else {
		s.failed, level = s.failed+1, slog.LevelError
	}
	d.mu.Unlock()
	d.Log.Log(run, level, "end", "job", j.Name, "slot", r.Slot, "exit", r.Exit, "seconds", int(r.End.Sub(r.Start).Seconds()), "error", r.Err)
	d.note(run, r)
}

const exitTryAgain = 75

// Good says whether the run needs no look: done, done with rejected lines (the
// job's own metrics tell), or another run was at it.
func (r *Record) Good() bool {
	return r.Err == nil && (r.Exit == 0 || r.Exit == 3 || r.Exit == 11)
}

// update changes a record, which Health reads at the same time.
func (d *Daemon) update(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// sleep waits unless the daemon or the run ends.
func (d *Daemon) sleep(daemon, run context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-daemon.Done():
	case <-run.Done():
	}
	return false
}

// note writes a record. A run log that cannot be written (its disk is full, the
// server is away) stops no job.
func (d *Daemon) note(ctx context.Context, r *Record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout)
	defer cancel()
	if err := d.State.Note(ctx, r); err != nil {
		d.mu.Lock()
		d.errs++
		d.mu.Unlock()
		d.Log.WarnContext(ctx, "run log", "job", r.Job, "error", err)
	}
}

// drain waits for what runs; when that takes too long, or at a second signal, it
// ends it.
func (d *Daemon) drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		d.runs.Wait()
		close(done)
	}()
	var late <-chan time.Time
	if d.Drain > 0 {
		timer := time.NewTimer(d.Drain)
		defer timer.Stop()
		late = timer.C
	}
	d.mu.Lock()
	for name, s := range d.jobs {
		if s.running {
			d.Log.InfoContext(ctx, "waiting for a run", "job", name, "since", s.record.Start)
		}
	}
	d.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-d.Hurry:
	case <-late:
	}
	d.mu.Lock()
	for _, s := range d.jobs {
		if s.running {
			s.stop()
		}
	}
	d.mu.Unlock()
	<-done
	return nil
}
