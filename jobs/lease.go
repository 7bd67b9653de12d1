package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const (
	beatEvery  = 10 * time.Second
	leaseAfter = 60 * time.Second // silent for so long: the holder is gone
	giveWay    = 10 * time.Second // for so long a claim waits for later ones to be given back
)

// Lease is the expiring right to run a job. It saves work; correctness never
// rests on it, since commits make overlapping runs harmless.
type Lease struct {
	store     *store.Store
	log       *slog.Logger
	name      string
	holder    string
	claimedAt time.Time
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// Acquire claims the lease called name, or returns ErrLeaseHeld: at once, or
// within seconds where two claims crossed. A
// lease whose holder ran on this machine and is provably dead, or has been
// silent for a minute, is taken over. The claim is kept alive until Release.
func Acquire(ctx context.Context, s *store.Store, log *slog.Logger, name string, run uuid.UUID) (*Lease, error) {
	holder := holderID(run)
	var now time.Time
	if err := s.Row(ctx, "server_time", nil, &now); err != nil {
		return nil, err
	}
	l := &Lease{store: s, log: log, name: name, holder: holder, claimedAt: now}
	if other, _, err := l.others(ctx); err != nil {
		return nil, err
	} else if other != "" {
		return nil, fmt.Errorf("%s: %w: %s", name, ratebatch.ErrLeaseHeld, describeHolder(other))
	}
	if err := l.beat(ctx, "claimed"); err != nil {
		return nil, err
	}
	if other, err := l.crossed(ctx); err != nil || other != "" {
		released := context.WithoutCancel(ctx)
		if err := errors.Join(err, l.beat(released, "released")); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w: %s", name, ratebatch.ErrLeaseHeld, describeHolder(other))
	}
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.done.Go(func() { l.keep(beating) })
	return l, nil
}

// AcquireWait claims the lease as Acquire does, and while another run holds it
// tries again every second until ctx ends.
func AcquireWait(ctx context.Context, s *store.Store, log *slog.Logger, name string, run uuid.UUID) (*Lease, error) {
	told := false
	for {
		l, err := Acquire(ctx, s, log, name, run)
		if !errors.Is(err, ratebatch.ErrLeaseHeld) {
			return l, err
		}
		if !told {
			log.InfoContext(ctx, "waiting for the lease", KeyJob, name, "held", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// keep beats until it is stopped. A beat that does not go through is logged:
// the worst that follows is another run doing the same work in vain.
func (l *Lease) keep(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := l.beat(ctx, "claimed"); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "lease heartbeat", "job", l.name, "error", err)
			}
		}
	}
}

// Held says whether the lease is still ours. A process that was stopped for
// longer than a lease lasts finds another holder, or is found by it.
func (l *Lease) Held(ctx context.Context) (bool, error) {
	other, _, err := l.others(ctx)
	return other == "", err
}

// Release gives the lease back.
func (l *Lease) Release(ctx context.Context) error {
	l.stop()
	l.done.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return l.beat(ctx, "released")
}

func (l *Lease) beat(ctx context.Context, state string) error {
	return l.store.Exec(ctx, "lease_beat", store.Params{"name": l.name, "holder": l.holder, "state": state, "claimed_at": l.claimedAt})
}

// crossed looks for claims that crossed ours on the way, and returns the one that
// we give way to, or empty. An earlier claim has the lease. A later one whose
// owner saw ours is given back; one that stays was there before ours could be
// seen, and has the lease, however late its claim is dated.
func (l *Lease) crossed(ctx context.Context) (string, error) {
	waiting, stop := context.WithTimeout(ctx, giveWay)
	defer stop()
	for {
		before, after, err := l.others(ctx)
		if err != nil || before != "" || after == "" {
			return before, err
		}
		if Sleep(waiting, giveWay/100) != nil {
			return after, ctx.Err()
		}
	}
}

// others are a live holder whose claim comes before ours and one whose claim comes
// after it, or empty. Before we claim, all that there are come before.
func (l *Lease) others(ctx context.Context) (before, after string, err error) {
	rows, err := l.store.Rows(ctx, "lease_holders", store.Params{"name": l.name})
	if err != nil {
		return "", "", err
	}
	defer rows.Close()
	ours := false
	for rows.Next() {
		var holder string
		var claimed time.Time
		var silent float64
		if err := rows.Scan(&holder, &claimed, &silent); err != nil {
			return "", "", err
		}
		switch {
		case holder == l.holder:
			ours = true
		case silent > leaseAfter.Seconds() || provablyDead(holder):
		case !ours:
			before = holder
		default:
			after = holder
		}
	}
	return before, after, rows.Err()
}

// holderID names this process so that another one on the same machine can
// tell whether it still lives: host, boot, pid, the process's start time, run.
func holderID(run uuid.UUID) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	pid := os.Getpid()
	return strings.Join([]string{host, bootID(), strconv.Itoa(pid), processStart(pid), run.String()}, " ")
}

func describeHolder(holder string) string {
	f := strings.Fields(holder)
	if len(f) != 5 {
		return holder
	}
	return fmt.Sprintf("pid %s on %s, run %s", f[2], f[0], f[4])
}

// provablyDead says whether the holder ran on this boot of this machine and
// its process is gone (or its pid belongs to a later process).
func provablyDead(holder string) bool {
	f := strings.Fields(holder)
	if len(f) != 5 || f[1] == "" || f[1] != bootID() {
		return false
	}
	host, err := os.Hostname()
	if err != nil || host != f[0] {
		return false
	}
	pid, err := strconv.Atoi(f[2])
	if err != nil {
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	start := processStart(pid)
	return start != "0" && start != f[3]
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// processStart is the start time of a process in clock ticks since boot, "0"
// if it cannot be read.
func processStart(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "0"
	}
	// The command's name is in parentheses and may hold blanks; field 22 is
	// the 20th after it.
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return "0"
	}
	return f[19]
}
