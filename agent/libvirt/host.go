package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
)

var processStart = wallClock()

// wallClock is the one place that reads the clock: a reading's moment is when
// libvirt's reply arrived, and only this package sees it arrive.
func wallClock() time.Time { return time.Now() } //nolint:forbidigo // see above

// Host is one libvirtd. Poll is for one goroutine at a time; calls queue up.
type Host struct {
	opts       Options
	target     target
	badURI     error
	log        *slog.Logger
	mechanism  string // only this SASL mechanism; for tests
	deadline   time.Duration
	maxBackoff time.Duration

	events chan Event
	life   context.Context // ends with Close
	end    context.CancelCauseFunc
	wg     sync.WaitGroup

	polling chan struct{} // one poll
	dialing chan struct{} // one attempt to connect

	// Of the polling goroutine.
	known map[uuid.UUID]*known
	slow  map[uuid.UUID]struct{} // XML was not answered at the last try

	mu         sync.Mutex
	conn       *connection // nil: none
	maintained bool
	closed     bool
	stale      map[uuid.UUID]struct{}
	allStale   bool
}

// known is what a domain's XML said when it was read.
type known struct {
	id      int32
	desc    description
	problem string
	taps    string // the interfaces' names then
}

// New prepares a Host and connects at the first Poll. A URI that cannot be
// used is an error of Check, Open and every Poll.
func New(o Options) *Host {
	h := &Host{
		opts: o, log: o.Log, deadline: o.Deadline, maxBackoff: o.MaxBackoff,
		events: make(chan Event, 256), polling: make(chan struct{}, 1), dialing: make(chan struct{}, 1),
		known: map[uuid.UUID]*known{}, slow: map[uuid.UUID]struct{}{}, stale: map[uuid.UUID]struct{}{},
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.deadline <= 0 {
		h.deadline = defaultDeadline
	}
	if h.maxBackoff <= 0 {
		h.maxBackoff = defaultMaxBackoff
	}
	h.target, h.badURI = parseURI(o.URI)
	h.log = h.log.With("libvirt", h.target.String())
	h.life, h.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // it ends with Close, not with a caller
	return h
}

// Open is New and a first connection.
func Open(ctx context.Context, o Options) (*Host, error) {
	h := New(o)
	if err := h.Check(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Check connects if need be and says what is wrong otherwise.
func (h *Host) Check(ctx context.Context) error {
	_, err := h.connect(ctx)
	return err
}

// Events are reasons to poll once more. The channel is closed by Close; events
// that nobody reads are dropped once it is full, as there is reason enough
// then.
func (h *Host) Events() <-chan Event { return h.events }

// Close ends the connection and waits for everything that was started.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.wg.Wait()
		return nil
	}
	h.closed = true
	c := h.conn
	h.conn = nil
	h.mu.Unlock()
	h.end(ErrClosed)
	if c != nil {
		c.close()
	}
	// An attempt to connect may be under way; after it nobody adds to wg.
	h.dialing <- struct{}{}
	release(h.dialing)
	h.wg.Wait()
	close(h.events)
	return nil
}

// Poll reads all active domains. A libvirtd that does not answer costs at most
// two deadlines: after the first, the connection is replaced and the call made
// once more, because libvirtd answers the second caller past a QEMU that holds
// up the first one.
func (h *Host) Poll(ctx context.Context) (*Snapshot, error) {
	if err := acquire(ctx, h.polling); err != nil {
		return nil, fmt.Errorf("libvirt at %s: %w", h.target, err)
	}
	defer release(h.polling)
	var reply []byte
	var snap Snapshot
	var c *connection
	for attempt := 1; ; attempt++ {
		var err error
		if c, err = h.connect(ctx); err != nil {
			return nil, err
		}
		err = c.call(ctx, h.deadline, "reading statistics", func() (err error) {
			// The answer comes past go-libvirt: see guard.
			_, err = c.rpc.ConnectGetAllDomainStats(nil, statGroups, statFlags)
			reply = c.guard.takeStats()
			return err
		})
		snap.At, snap.Mono = wallClock(), sinceBoot()
		if err == nil {
			break
		}
		if c.alive() {
			// libvirtd answered with an error: the connection is good.
			return nil, fmt.Errorf("libvirt at %s: %w", h.target, err)
		}
		h.drop(c)
		if attempt == 2 || ctx.Err() != nil {
			return nil, fmt.Errorf("libvirt at %s: %w", h.target, err)
		}
		h.log.Warn("poll failed, trying once more on a new connection", "error", err)
	}
	var err error
	if snap.Domains, err = decodeStats(reply); err != nil {
		return nil, fmt.Errorf("libvirt at %s: reading statistics: %w", h.target, err)
	}
	h.describeAll(ctx, c, snap.Domains)
	return &snap, nil
}

// describeAll adds what the XML says, reading it for domains that are new or
// changed. What cannot be read now is tried at the next poll.
func (h *Host) describeAll(ctx context.Context, c *connection, domains []Domain) {
	h.mu.Lock()
	stale, all := h.stale, h.allStale
	h.stale, h.allStale = map[uuid.UUID]struct{}{}, false
	h.mu.Unlock()

	// The deadline is for all of them together, so that a poll stays bounded.
	ctx, cancel := context.WithTimeout(ctx, h.deadline)
	defer cancel()
	seen := make(map[uuid.UUID]struct{}, len(domains))
	var last []*Domain
	describe := func(d *Domain) {
		taps := tapNames(d)
		k := h.known[d.UUID]
		_, changed := stale[d.UUID]
		if k == nil || k.id != d.ID || k.taps != taps || changed || all {
			delete(h.slow, d.UUID)
			if fresh, err := h.read(ctx, c, d, taps); err == nil {
				k = fresh
				h.known[d.UUID] = k
			} else {
				if !errors.Is(err, errNoConnection) {
					h.slow[d.UUID] = struct{}{}
				}
				h.markStale(d.UUID)
				h.log.Debug("domain XML not read", "domain", d.UUID, "error", err)
			}
		}
		if k != nil && k.id == d.ID {
			k.apply(d)
		}
	}
	for i := range domains {
		d := &domains[i]
		seen[d.UUID] = struct{}{}
		if _, ok := h.slow[d.UUID]; ok {
			last = append(last, d) // it may cost the connection again
			continue
		}
		describe(d)
	}
	for _, d := range last {
		describe(d)
	}
	for id := range h.known {
		if _, ok := seen[id]; !ok {
			delete(h.known, id)
		}
	}
	for id := range h.slow {
		if _, ok := seen[id]; !ok {
			delete(h.slow, id)
		}
	}
}

var errNoConnection = errors.New("no connection")

// xmlDeadline bounds the reading of one domain's XML, which takes libvirtd 0.2
// ms: one that hangs must not use up the time of the others.
const xmlDeadline = 5 * time.Second

// read fetches and understands one domain's XML. XML that is refused is an
// answer too: it will not become better by asking again.
func (h *Host) read(ctx context.Context, c *connection, d *Domain, taps string) (*known, error) {
	if !c.alive() {
		return nil, errNoConnection
	}
	var text string
	err := c.call(ctx, min(h.deadline, xmlDeadline), "reading domain XML", func() (err error) {
		text, err = c.rpc.DomainGetXMLDesc(rpc.Domain{Name: d.Name, UUID: rpc.UUID(d.UUID), ID: d.ID}, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	k := &known{id: d.ID, taps: taps}
	if k.desc, err = describe(text); err != nil {
		k.desc, k.problem = description{}, err.Error()
		h.log.Warn("domain XML refused, its usage is attributed to nobody", "domain", d.UUID, "error", err)
	}
	return k, nil
}

func tapNames(d *Domain) string {
	names := make([]string, len(d.Interfaces))
	for i, n := range d.Interfaces {
		names[i] = n.Name
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

func (k *known) apply(d *Domain) {
	d.Described, d.Nova, d.Problem = true, k.desc.nova, k.problem
	for i := range d.Interfaces {
		if x, ok := k.desc.nics[d.Interfaces[i].Name]; ok {
			d.Interfaces[i].InterfaceID, d.Interfaces[i].MAC = x.interfaceID, x.mac
		}
	}
}

// connect returns the living connection or makes one.
func (h *Host) connect(ctx context.Context) (*connection, error) {
	if h.badURI != nil {
		return nil, h.badURI
	}
	ctx, cancel := context.WithTimeout(ctx, h.deadline)
	defer cancel()
	stop := context.AfterFunc(h.life, cancel)
	defer stop()
	if err := acquire(ctx, h.dialing); err != nil {
		if h.life.Err() != nil {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("connecting to libvirtd at %s: %w", h.target, err)
	}
	defer release(h.dialing)
	h.mu.Lock()
	c, closed := h.conn, h.closed
	if !closed && !h.maintained {
		h.maintained = true
		h.wg.Go(h.maintain)
	}
	h.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if c != nil && c.alive() {
		return c, nil
	}
	c, err := h.newConnection(ctx)
	if err != nil {
		if h.life.Err() != nil {
			return nil, ErrClosed
		}
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		c.guard.abort(ErrClosed)
		return nil, ErrClosed
	}
	h.conn, h.allStale = c, true
	return c, nil
}

func (h *Host) drop(c *connection) {
	c.guard.abort(errors.New("given up"))
	h.mu.Lock()
	if h.conn == c {
		h.conn = nil
	}
	h.mu.Unlock()
}

// maintain keeps a connection between polls, for the events: without it the
// last part-interval of a domain that stops would be lost.
func (h *Host) maintain() {
	const least = time.Second
	pause := least
	for h.life.Err() == nil {
		h.mu.Lock()
		c := h.conn
		h.mu.Unlock()
		if c != nil && c.alive() {
			pause = least
			select {
			case <-c.guard.done:
				h.log.Warn("connection to libvirtd lost", "error", c.guard.reason())
			case <-h.life.Done():
				return
			}
		}
		// Jitter, so that the agents of a rack do not come back as one.
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // no secret
		case <-h.life.Done():
			return
		}
		h.mu.Lock()
		c = h.conn
		h.mu.Unlock()
		if c != nil && c.alive() {
			continue // a poll was faster
		}
		if _, err := h.connect(h.life); err != nil {
			h.log.Debug("libvirtd not reachable", "error", err)
			pause = min(2*pause, h.maxBackoff)
			continue
		}
		h.log.Info("connected to libvirtd again")
		h.emit(Event{Kind: EventReconnected, At: wallClock()})
	}
}

func acquire(ctx context.Context, sem chan struct{}) error {
	select {
	case sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func release(sem chan struct{}) { <-sem }
