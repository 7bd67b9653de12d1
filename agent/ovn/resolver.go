package ovn

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Resolver answers from memory; a goroutine of its own, begun by the first
// SetPorts, keeps the answers fresh. All methods may be called by several
// goroutines at a time.
type Resolver struct {
	opts   Options
	source source
	log    *slog.Logger
	life   context.Context
	end    context.CancelCauseFunc
	wg     sync.WaitGroup
	wake   chan struct{} // something changed: ports, a client, a chassis

	mu      sync.Mutex
	started bool
	closed  bool
	wanted  map[string]struct{} // port names asked for
	names   map[string]struct{} // these, and the ports of taps that were found
	taps    map[Tap]*tapState
	answers map[string]Port // last known, by port name
	ignored map[string]string
	odd     map[string]string // what is wrong with rows of ports to be metered, as it was said
	synced  bool
	lastErr error
}

// tapState is a vNIC to be found by its name.
type tapState struct {
	port  string // the port's name once found
	next  time.Time
	pause time.Duration
}

// New checks the options. Nothing is connected yet.
func New(o Options) (*Resolver, error) {
	if o.DeviceOwner == "" {
		o.DeviceOwner = defaultOwner
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = defaultMaxBackoff
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Resolver{
		opts: o, source: source{southbound: o.Southbound}, log: o.Log, wake: make(chan struct{}, 1),
		wanted: map[string]struct{}{}, taps: map[Tap]*tapState{}, answers: map[string]Port{}, ignored: map[string]string{}, odd: map[string]string{},
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	db, _, _ := r.source.table()
	r.log = r.log.With("ovn", db)
	r.life, r.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // it ends with Close, not with a caller
	return r, nil
}

// SetPorts says what this host has now: the interface ids that domain XML
// names, and the vNICs to be found by their names. Answers for what is no
// longer here are forgotten. It does not wait for the database.
func (r *Resolver) SetPorts(interfaceIDs []string, taps []Tap) {
	wanted := make(map[string]struct{}, len(interfaceIDs))
	for _, id := range interfaceIDs {
		if name, ok := portName(id); ok {
			wanted[name] = struct{}{}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.wanted = wanted
	states := make(map[Tap]*tapState, len(taps))
	for _, t := range taps {
		if states[t] = r.taps[t]; states[t] == nil {
			states[t] = &tapState{}
		}
	}
	r.taps = states
	r.rename()
	keep := r.names
	for name := range r.answers {
		if _, ok := keep[name]; !ok {
			delete(r.answers, name)
		}
	}
	for _, said := range []map[string]string{r.ignored, r.odd} {
		for name := range said {
			if _, ok := keep[name]; !ok {
				delete(said, name)
			}
		}
	}
	if !r.started {
		r.started = true
		r.wg.Go(r.run)
	}
	r.poke()
}

// portName is how Neutron writes a port's UUID. What is no UUID is no port of
// Neutron's.
func portName(id string) (string, bool) {
	u, err := uuid.Parse(id)
	return u.String(), err == nil
}

// rename makes names anew, under mu. The map is never changed, so it may be
// read without.
func (r *Resolver) rename() {
	r.names = make(map[string]struct{}, len(r.wanted)+len(r.taps))
	for n := range r.wanted {
		r.names[n] = struct{}{}
	}
	for _, t := range r.taps {
		if t.port != "" {
			r.names[t.port] = struct{}{}
		}
	}
}

// Resolve says whose an interface id is. False: not known (yet); hold what it
// moved.
func (r *Resolver) Resolve(interfaceID string) (Port, bool) {
	name, ok := portName(interfaceID)
	if !ok {
		return Port{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.answers[name]
	return p, ok
}

// ResolveTap says whose a vNIC without an interface id is.
func (r *Resolver) ResolveTap(tap string, instance uuid.UUID) (Port, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.taps[Tap{tap, instance}]; t != nil && t.port != "" {
		p, ok := r.answers[t.port]
		return p, ok
	}
	return Port{}, false
}

// Ignored says why a port that OVN does know is not metered (its device owner
// does not match), so that nobody waits for its owner to become known.
func (r *Resolver) Ignored(interfaceID string) (reason string, ok bool) {
	name, _ := portName(interfaceID)
	r.mu.Lock()
	defer r.mu.Unlock()
	reason, ok = r.ignored[name]
	return reason, ok
}

// IgnoredTap is Ignored for a vNIC without an interface id.
func (r *Resolver) IgnoredTap(tap string, instance uuid.UUID) (reason string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.taps[Tap{tap, instance}]; t != nil && t.port != "" {
		reason, ok = r.ignored[t.port]
	}
	return reason, ok
}

// Unreadable says that a port is one to be metered and that its row cannot be
// read.
func (r *Resolver) Unreadable(interfaceID string) bool {
	name, _ := portName(interfaceID)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.odd[name] != ""
}

// Status says whether the answers are fresh: every port is being watched. If
// not, err is what the last attempt met; nil before the first.
func (r *Resolver) Status() (fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced, r.lastErr
}

// Check connects once and says what is wrong.
func (r *Resolver) Check(ctx context.Context) error {
	s, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	s.close()
	return nil
}

// Close ends everything and waits for it.
func (r *Resolver) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end(ErrClosed)
	r.wg.Wait()
	return nil
}

func (r *Resolver) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// matches says whether a device owner is one of a pattern's. A slash is a letter
// as any other: availability zones may have one in their names.
func matches(pattern, owner string) bool {
	letter := strings.NewReplacer("/", "\x00")
	ok, _ := path.Match(letter.Replace(pattern), letter.Replace(owner))
	return ok
}

// learn takes a row in. A row that says less than we know (Nova empties
// device_id and owner before it removes a domain) does not replace an answer:
// traffic up to then is its old owner's. Only another device owner makes a port
// one that is not metered: one whose row cannot be read is to be, so that its
// traffic waits, and goes without a network in the end.
func (r *Resolver) learn(w row) {
	owner := w.ids["neutron:device_owner"]
	metered := matches(r.opts.DeviceOwner, owner)
	p, err := w.port()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, mine := r.names[w.name]; !mine {
		return
	}
	_, known := r.answers[w.name]
	switch {
	case metered && err == nil:
		r.answers[w.name] = p
		delete(r.ignored, w.name)
		delete(r.odd, w.name)
	case known || owner == "":
	case !metered:
		r.ignored[w.name] = fmt.Sprintf("port %s: device owner %q does not match %q", w.name, owner, r.opts.DeviceOwner)
	default:
		delete(r.ignored, w.name)
		if r.odd[w.name] != err.Error() {
			r.odd[w.name] = err.Error()
			r.log.Warn("a port's row in OVN cannot be read; its traffic is held, and sent without a network when it waited too long", "error", err)
		}
	}
}

const (
	maxSessions = 4 // beyond, one with all names replaces them
	staleNames  = 64
	checkEvery  = 20 * time.Second
)

// run keeps clients for all names until Close.
func (r *Resolver) run() {
	var open []*session
	closeAll := func(list []*session) {
		for _, s := range list {
			s.close()
		}
	}
	defer func() { closeAll(open) }()
	const least = 500 * time.Millisecond
	pause := least
	for r.life.Err() == nil {
		next, err := r.settle(open)
		if next != nil {
			for _, s := range open {
				if !slices.Contains(next, s) {
					s.close()
				}
			}
			open = next
		}
		wait := r.untilTap()
		r.mu.Lock()
		r.synced = err == nil
		if err != nil || r.lastErr != nil && r.synced {
			r.lastErr = err
		}
		r.mu.Unlock()
		if err != nil {
			r.log.Warn("ports are not being watched, known owners stay in use", "error", err, "again_in", pause)
			wait = pause/2 + rand.N(pause) //nolint:gosec // jitter
			pause = min(2*pause, r.opts.MaxBackoff)
			r.sleep(wait)
			continue
		}
		pause = least
		select {
		case <-r.wake:
		case <-time.After(min(wait, checkEvery)):
			for _, s := range open {
				s.ping(r.life)
			}
		case <-r.life.Done():
		}
	}
}

// sleep waits whatever happens: after an error, new ports are no reason to try
// sooner.
func (r *Resolver) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.life.Done():
	}
}

// settle makes the clients cover what is wanted. It returns the clients to go
// on with, or nil when they stay as they are.
func (r *Resolver) settle(open []*session) ([]*session, error) {
	r.mu.Lock()
	names := r.names
	taps := len(r.taps)
	r.mu.Unlock()

	lost := false
	covered, monitored := 0, 0
	var missing []string
	unknown := r.unknown(names)
	for n := range names {
		in := slices.ContainsFunc(open, func(s *session) bool { return s.has(n) })
		if in {
			covered++
		} else {
			missing = append(missing, n)
		}
	}
	for _, s := range open {
		lost = lost || !s.alive()
		monitored += len(s.names)
	}
	var out []*session
	switch {
	case len(names) == 0 && taps == 0:
		if len(open) == 0 {
			return nil, nil
		}
		return []*session{}, nil
	case lost || len(open) == 0, monitored-covered > staleNames+len(names)/2, len(missing) > 0 && len(open) >= maxSessions:
		s, err := r.open(r.life, keys(names))
		if err != nil {
			return nil, err
		}
		out = []*session{s}
	case len(missing) > 0 && r.opts.Chassis == "":
		s, err := r.open(r.life, missing)
		if err != nil {
			return nil, err
		}
		out = append(slices.Clone(open), s)
	}
	use := out
	if out == nil {
		use = open
		if unknown {
			for _, s := range use {
				if err := s.take(r.life); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(use) > 0 {
		if err := r.findTaps(use[0]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// unknown says whether a name has no answer.
func (r *Resolver) unknown(names map[string]struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range names {
		if _, ok := r.answers[n]; !ok {
			return true
		}
	}
	return false
}

func keys(m map[string]struct{}) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

const (
	tapsAtOnce  = 20
	leastTap    = 30 * time.Second
	longestTap  = 30 * time.Minute
	leastPrefix = 8
)

// untilTap is how long no vNIC is due for a look.
func (r *Resolver) untilTap() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := checkEvery
	for _, t := range r.taps {
		if t.port == "" {
			wait = min(wait, time.Until(t.next))
		}
	}
	return max(wait, 50*time.Millisecond)
}

// findTaps looks for the ports of vNICs that are due, a few instances at a
// time and ever more rarely, since each look scans the server's table.
func (r *Resolver) findTaps(s *session) error {
	now := wallClock()
	due := map[uuid.UUID][]Tap{}
	r.mu.Lock()
	for t, state := range r.taps {
		if state.port == "" && !state.next.After(now) && (len(due) < tapsAtOnce || due[t.Instance] != nil) {
			due[t.Instance] = append(due[t.Instance], t)
			state.pause = min(max(2*state.pause, leastTap), longestTap)
			state.next = now.Add(state.pause)
		}
	}
	r.mu.Unlock()
	found := false
	for instance, taps := range due {
		rows, err := s.ofInstance(r.life, instance)
		if err != nil {
			return err
		}
		for _, t := range taps {
			if w, ok := match(t.Name, rows); ok {
				r.mu.Lock()
				if state := r.taps[t]; state != nil {
					state.port, found = w.name, true
					r.rename()
				}
				r.mu.Unlock()
				r.learn(w)
			} else {
				r.log.Debug("no single port fits a vNIC", "tap", t.Name, "domain", t.Instance, "ports", len(rows))
			}
		}
	}
	if found {
		r.poke() // watch them
	}
	return nil
}

// match finds the one port whose UUID begins as the tap's name goes on.
func match(tap string, rows []row) (row, bool) {
	prefix, ok := strings.CutPrefix(tap, "tap")
	if prefix = bare(prefix); !ok || len(prefix) < leastPrefix {
		return row{}, false
	}
	var hit []row
	for _, w := range rows {
		if strings.HasPrefix(bare(w.name), prefix) {
			hit = append(hit, w)
		}
	}
	if len(hit) != 1 {
		return row{}, false
	}
	return hit[0], true
}

func bare(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }

// wallClock is for deciding when to look again.
func wallClock() time.Time { return time.Now() } //nolint:forbidigo // nothing that is billed depends on it
