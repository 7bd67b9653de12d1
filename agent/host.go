package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// Source is a hypervisor: libvirt.Host.
type Source interface {
	Poll(ctx context.Context) (*libvirt.Snapshot, error)
	Events() <-chan libvirt.Event
}

// VNIC is a network card of a domain here, by what OVN could know it.
type VNIC struct {
	InterfaceID string // may be empty
	Tap         string
	Instance    uuid.UUID
}

// Ports resolves vNICs. Watch says which ones a host has now, so that nothing
// more is asked of OVN; it does not wait for answers.
type Ports interface {
	Resolver
	Watch(host string, vnics []VNIC)
}

// Watch does nothing: the ids are in the XML.
func (InterfaceIDs) Watch(string, []VNIC) {}

// HostOptions describe a host to meter.
type HostOptions struct {
	Name, Region string // as in the records
	Local        bool   // the hypervisor runs on the agent's machine
	Hypervisor   string // names it, whatever the host is called; libvirt.Target
	Source       Source
	Ports        Ports
	Spool        *spool.Spool
	State        []byte // what the spool had saved, nil for none
	ResolvedBy   string // what Ports' answers follow from; another one makes some of the saved answers void

	Interval time.Duration // between polls, which are aligned to the clock
	Hold     time.Duration // how long traffic waits for its port's name
	Version  string        // of the agent
	Clock    func() clock.Moment
	Metrics  *Metrics
	Stored   func() // called when records were put into the spool
	Log      *slog.Logger
}

// Host polls one hypervisor and keeps its records.
type Host struct {
	opts  HostOptions
	log   *slog.Logger
	meter meter
	state *state
	// unsure: a write of the spool failed, so only the disk knows which readings hold.
	unsure bool

	mu      sync.Mutex
	started map[uuid.UUID]clock.Moment
	ending  map[uuid.UUID]bool // suspended or shut down since they were last read
	failed  bool               // the last poll did not work
	alive   clock.Moment       // when the loop last came round
	good    clock.Moment       // when a poll last worked
	wake    chan struct{}
}

// extraSpacing is the least pause before an extra poll: a host that is drained
// suspends its domains one after the other, and libvirtd needs seconds for a
// poll of hundreds.
const extraSpacing = 2 * time.Second

// NewHost reads the saved state.
func NewHost(opts HostOptions) (*Host, error) {
	h := &Host{
		opts: opts, log: opts.Log.With("host", opts.Name),
		meter:   meter{resolver: opts.Ports, interval: opts.Interval, hold: opts.Hold, agentVersion: opts.Version},
		started: map[uuid.UUID]clock.Moment{}, ending: map[uuid.UUID]bool{}, wake: make(chan struct{}, 1),
	}
	h.alive = opts.Clock()
	h.good = h.alive
	return h, h.load(opts.State)
}

func (h *Host) load(saved []byte) (err error) {
	now := h.opts.Clock()
	if saved == nil {
		h.state = newState(h.opts.Region, h.opts.Name, now)
		h.state.Metered, h.state.ResolvedBy = h.opts.Hypervisor, h.opts.ResolvedBy
		return nil
	}
	s, err := readState(saved, h.opts.Region, h.opts.Name, h.opts.Local, now)
	if err == nil {
		h.state = s
		h.state.Metered = h.opts.Hypervisor
		h.state.resolvedBy(h.opts.ResolvedBy)
	}
	return err
}

// Run polls until ctx is done. Trouble of the hypervisor or the disk is logged
// and tried again; it costs nothing but time, since the readings stay.
func (h *Host) Run(ctx context.Context) {
	var events sync.WaitGroup
	events.Go(func() { h.listen(ctx) })
	defer events.Wait()
	var extra clock.Moment // of the last poll's end
	var took time.Duration
	for {
		now := h.opts.Clock()
		h.tick(now)
		next := now.Wall.Truncate(h.opts.Interval).Add(h.opts.Interval)
		whole := time.NewTimer(next.Sub(now.Wall))
		due := false
		for !due && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-whole.C:
				due = true
				h.try(ctx, nil)
			case <-h.wake:
				pause := max(extraSpacing, 2*took) - clock.Elapsed(extra, h.opts.Clock())
				if extra != (clock.Moment{}) && pause > 0 && !sleep(ctx, pause) {
					break
				}
				began := h.opts.Clock()
				h.extra(ctx)
				extra = h.opts.Clock()
				took = clock.Elapsed(began, extra)
			}
		}
		whole.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// extra polls once more for the domains that end, or as a whole if the last
// poll failed and libvirt is back.
func (h *Host) extra(ctx context.Context) {
	h.mu.Lock()
	only, failed := h.ending, h.failed
	h.ending = map[uuid.UUID]bool{}
	h.mu.Unlock()
	switch {
	case failed || h.state.Polled == stamp{}:
		h.try(ctx, nil)
	case len(only) > 0:
		h.try(ctx, only)
	}
}

// listen notes what libvirt's events say, also while a poll runs.
func (h *Host) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-h.opts.Source.Events():
			if !ok {
				return
			}
			h.note(e)
		}
	}
}

func (h *Host) note(e libvirt.Event) {
	now := h.opts.Clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case libvirt.EventStarted:
		at := now
		if ago := now.Wall.Sub(e.At); !e.At.IsZero() && ago > 0 {
			at = now.Before(ago)
		}
		h.started[e.Domain] = at
		return
	case libvirt.EventSuspended, libvirt.EventShutdown:
		h.ending[e.Domain] = true
	case libvirt.EventReconnected:
		if !h.failed {
			return
		}
	case libvirt.EventResumed, libvirt.EventStopped, libvirt.EventRebooted, libvirt.EventDeviceAdded, libvirt.EventDeviceRemoved:
		return // the next poll sees what came of it, and what is gone cannot be read
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// try polls and logs what went wrong.
func (h *Host) try(ctx context.Context, only map[uuid.UUID]bool) {
	err := h.poll(ctx, only)
	now := h.opts.Clock()
	h.mu.Lock()
	before := h.failed
	if only == nil {
		h.failed = err != nil
	}
	if err == nil {
		h.good = now
	}
	h.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		h.log.WarnContext(ctx, "the poll did not work; the next one covers its time too", "error", err)
	case err == nil && before:
		h.log.InfoContext(ctx, "polls work again")
	}
}

// Poll reads the hypervisor once and saves what follows.
func (h *Host) Poll(ctx context.Context) error { return h.poll(ctx, nil) }

func (h *Host) poll(ctx context.Context, only map[uuid.UUID]bool) (err error) {
	began := h.opts.Clock()
	defer func() { h.opts.Metrics.polled(h.opts.Name, clock.Elapsed(began, h.opts.Clock()), err) }()
	if h.unsure {
		saved, err := h.opts.Spool.Recover(ctx)
		if err == nil {
			err = h.load(saved)
		}
		if err != nil {
			return err
		}
		h.unsure = false
	}
	limit, cancel := context.WithTimeout(ctx, max(h.opts.Interval, 30*time.Second))
	defer cancel()
	snapshot, err := h.opts.Source.Poll(limit)
	if err != nil {
		return err
	}
	now := clock.Moment{Wall: snapshot.At, BootID: began.BootID, Since: snapshot.Mono}
	if last := h.state.Polled; last != (stamp{}) && int64(now.Since) <= last.Since {
		return fmt.Errorf("poll %s: libvirt's answer is not newer than the last one", h.opts.Name)
	}
	h.mu.Lock()
	hints := hint{Only: only, Started: map[uuid.UUID]clock.Moment{}}
	for id, at := range h.started {
		hints.Started[id] = at
	}
	h.mu.Unlock()
	h.opts.Ports.Watch(h.opts.Name, h.vnics(snapshot))
	result := h.meter.advance(h.state, snapshot, now, hints)
	if err := h.save(ctx, result); err != nil {
		return err
	}
	h.mu.Lock()
	for id, at := range h.started {
		if only == nil && at.Since < now.Since {
			delete(h.started, id)
		}
	}
	h.mu.Unlock()
	h.opts.Metrics.counted(h.opts.Name, only == nil, result)
	h.report(ctx, result)
	return nil
}

// save is the one step in which readings and records become true.
func (h *Host) save(ctx context.Context, result step) error {
	encoded, err := result.State.encode()
	if err != nil {
		return fmt.Errorf("encode the readings of host %s: %w", h.opts.Name, err)
	}
	if err := h.opts.Spool.Append(ctx, result.Records, encoded); err != nil {
		h.unsure = true
		return err
	}
	h.state = result.State
	if len(result.Records) > 0 && h.opts.Stored != nil {
		h.opts.Stored()
	}
	return nil
}

// vnics are those of the snapshot, and those that are gone but still hold traffic.
func (h *Host) vnics(snapshot *libvirt.Snapshot) []VNIC {
	var out []VNIC
	for i := range snapshot.Domains {
		d := &snapshot.Domains[i]
		for _, n := range d.Interfaces {
			out = append(out, VNIC{n.InterfaceID, n.Name, d.UUID})
		}
	}
	for id, d := range h.state.Domains {
		for _, p := range d.Ports {
			if p.Until != (stamp{}) {
				out = append(out, VNIC{p.InterfaceID, p.Name, id})
			}
		}
	}
	return out
}

func (h *Host) report(ctx context.Context, result step) {
	c := result.Counts
	h.log.DebugContext(ctx, "polled", "domains", c.Domains, "records", len(result.Records), "unresolved_ports", c.Unresolved)
	if c.Resets > 0 {
		h.log.WarnContext(ctx, "counters went backwards; their new values were counted", "counters", c.Resets)
	}
	if c.LostPorts > 0 {
		h.log.ErrorContext(ctx, "vNICs vanished and nothing could say which ports they were; their traffic will not be billed", "vnics", c.LostPorts, "bytes", c.LostBytes)
	}
}

func (h *Host) tick(now clock.Moment) {
	h.mu.Lock()
	h.alive = now
	h.mu.Unlock()
}

// Health says since when the loop and the polls have been silent.
func (h *Host) Health() (loop, polls time.Duration) {
	now := h.opts.Clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Elapsed(h.alive, now), clock.Elapsed(h.good, now)
}

// Name is the host's.
func (h *Host) Name() string { return h.opts.Name }

// Interval is the time between polls.
func (h *Host) Interval() time.Duration { return h.opts.Interval }

// sleep waits, unless ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Unresolved counts the vNICs whose traffic is held.
func (h *Host) Unresolved() int {
	n := 0
	for _, d := range h.state.Domains {
		for _, p := range d.Ports {
			if p.Until != (stamp{}) {
				n++
			}
		}
	}
	return n
}
