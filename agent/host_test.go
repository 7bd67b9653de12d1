package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
)

func TestMain(m *testing.M) {
	warmUp()
	goleak.VerifyTestMain(m)
}

// warmUp makes the channels inside the zstd coder, which all spools share:
// made in one test's bubble they could not be used in the next one's.
func warmUp() {
	dir, err := os.MkdirTemp("", "agent-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	s, _, err := spool.Open(ctx, spool.Options{Dir: dir, Log: quiet, Clock: func() clock.Moment { return at(0) }})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	if err := s.Append(ctx, []spool.Record{{Topic: TopicPort, Key: []byte("k"), Value: []byte("v")}}, []byte("s")); err != nil {
		panic(err)
	}
	if _, ok, err := s.Next(ctx); !ok || err != nil {
		panic(err)
	}
}

// script is a hypervisor whose counters grow with the clock: one vCPU of two
// busy, 1,000 bytes received and 100 read a second.
type script struct {
	clock  func() clock.Moment
	start  time.Duration
	events chan libvirt.Event

	mu    sync.Mutex
	id    int32
	polls []time.Duration // when, since the start
	err   error
	slow  time.Duration
	after func() // runs at the end of the next poll, before its answer
}

func newScript(now func() clock.Moment) *script {
	return &script{clock: now, start: now().Since, id: 1, events: make(chan libvirt.Event, 16)}
}

func (s *script) Events() <-chan libvirt.Event { return s.events }

func (s *script) Poll(ctx context.Context) (*libvirt.Snapshot, error) {
	s.mu.Lock()
	slow, err, after := s.slow, s.err, s.after
	s.after = nil
	s.mu.Unlock()
	if !sleep(ctx, slow) {
		return nil, ctx.Err()
	}
	now := s.clock()
	ran := now.Since - s.start
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls = append(s.polls, ran)
	if err != nil {
		return nil, err
	}
	seconds := uint64(ran / time.Millisecond)
	d := vm(s.id, ran.Seconds(), seconds, seconds, seconds/10)
	if after != nil {
		after()
	}
	return &libvirt.Snapshot{At: now.Wall, Mono: now.Since, Domains: []libvirt.Domain{d}}, nil
}

func (s *script) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// topic collects what was delivered, as ingest does: once per identity.
type topic struct {
	mu    sync.Mutex
	byID  map[[2]uint64]string
	tries int
	err   error
	lose  bool // deliver, and say that it failed
}

func (p *topic) Produce(_ context.Context, records []spool.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if p.err != nil && !p.lose {
		return p.err
	}
	if p.byID == nil {
		p.byID = map[[2]uint64]string{}
	}
	for _, r := range records {
		var c wire.Common
		switch r.Topic {
		case TopicInstance:
			var x wire.Instance
			if err := wire.DecodeInstance(r.Value, &x); err != nil {
				return err
			}
			c = x.Common
		case TopicPort:
			var x wire.Port
			if err := wire.DecodePort(r.Value, &x); err != nil {
				return err
			}
			c = x.Common
		case TopicDisk:
			var x wire.Disk
			if err := wire.DecodeDisk(r.Value, &x); err != nil {
				return err
			}
			c = x.Common
		}
		id := [2]uint64{c.Epoch, c.Sequence}
		if before, ok := p.byID[id]; ok && before != string(r.Value) {
			return fmt.Errorf("two samples have the identity %v:\n%s\n%s", id, before, r.Value)
		}
		p.byID[id] = string(r.Value)
	}
	return p.err
}

func (p *topic) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// total adds up what arrived: traffic, and the time that instance records cover,
// whose intervals must tile.
func (p *topic) total(t *testing.T) (rx uint64, covered time.Duration) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var spans [][2]int64
	for _, value := range p.byID {
		if strings.Contains(value, "rx_bytes") {
			var x wire.Port
			if err := wire.DecodePort([]byte(value), &x); err != nil {
				t.Fatal(err)
			}
			rx += x.RxBytes
		}
		if strings.Contains(value, "cpu_pct") {
			var x wire.Instance
			if err := wire.DecodeInstance([]byte(value), &x); err != nil {
				t.Fatal(err)
			}
			spans = append(spans, [2]int64{x.BeginMS, x.EndMS})
			covered += time.Duration(x.EndMS-x.BeginMS) * time.Millisecond
		}
	}
	slices.SortFunc(spans, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	for i := 1; i < len(spans); i++ {
		if spans[i][0] != spans[i-1][1] {
			t.Errorf("after %v comes %v", spans[i-1], spans[i])
		}
	}
	return rx, covered
}

// rig is one host, its spool and its publisher.
type rig struct {
	t      *testing.T
	dir    string
	clock  func() clock.Moment
	source *script
	topic  *topic
	spool  *spool.Spool
	host   *Host
	pub    *Publisher
	stop   func()
}

// fakeClock is synctest's, with a wall clock that can be set.
func fakeClock(offset *time.Duration) func() clock.Moment {
	begin := time.Now()
	return func() clock.Moment {
		now := time.Now()
		return clock.Moment{Wall: now.Round(0).Add(*offset), BootID: bootA, Since: time.Hour + now.Sub(begin)}
	}
}

func newRig(t *testing.T, now func() clock.Moment) *rig {
	r := &rig{t: t, dir: t.TempDir(), clock: now, topic: &topic{}}
	r.source = newScript(now)
	r.open()
	return r
}

// open starts a process's worth of agent on the saved state.
func (r *rig) open() {
	r.t.Helper()
	s, state, err := spool.Open(r.t.Context(), spool.Options{Dir: r.dir, MaxAge: 24 * time.Hour, Clock: r.clock, Log: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	r.spool = s
	r.pub = NewPublisher(PublisherOptions{Spools: []*spool.Spool{s}, Producer: r.topic, Clock: r.clock, Log: quiet})
	r.host, err = NewHost(HostOptions{Name: "compute-1", Region: "RegionOne", Local: true, Source: r.source, Ports: InterfaceIDs{}, Spool: s, State: state,
		Interval: time.Minute, Hold: 24 * time.Hour, Version: "test", Clock: r.clock, Stored: r.pub.Wake, Log: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	r.stop = func() { s.Close() }
}

// run lets the agent work until stop.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.host.Run(ctx) })
	wg.Go(func() { r.pub.Run(ctx) })
	r.stop = func() {
		cancel()
		wg.Wait()
		r.spool.Close()
	}
}

func (r *rig) want(rx uint64, covered time.Duration) {
	r.t.Helper()
	if gotRx, gotCovered := r.topic.total(r.t); gotRx != rx || gotCovered != covered {
		r.t.Errorf("%d bytes over %s arrived, want %d over %s", gotRx, gotCovered, rx, covered)
	}
}

func TestPollsAreAlignedToTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		time.Sleep(17 * time.Second)
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(5*time.Minute + time.Second)
		r.stop()
		r.source.mu.Lock()
		defer r.source.mu.Unlock()
		for i, at := range r.source.polls {
			if want := 43*time.Second + time.Duration(i)*time.Minute; at != want {
				t.Errorf("poll %d at %s, want %s: the start was at 12:00:17", i, at, want)
			}
		}
		if len(r.source.polls) != 5 {
			t.Errorf("%d polls", len(r.source.polls))
		}
		r.want(4*60_000, 4*time.Minute)
	})
}

func TestKafkaAwayForAnHourLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(5*time.Minute + 30*time.Second)
		r.topic.set(func() { r.topic.err = errors.New("away") })
		time.Sleep(time.Hour)
		if n := r.spool.Stats(); n.Batches != 60 || n.Records != 180 {
			t.Errorf("the spool holds %+v", n)
		}
		r.topic.set(func() {
			if r.topic.tries > 400 {
				t.Errorf("%d attempts in an hour", r.topic.tries)
			}
			r.topic.err = nil
		})
		time.Sleep(time.Minute)
		if n := r.spool.Stats(); n.Batches > 1 {
			t.Errorf("a minute later the spool holds %+v", n)
		}
		time.Sleep(5 * time.Second)
		r.stop()
		r.want(65*60_000, 65*time.Minute)
	})
}

func TestAnAnswerThatIsLostCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.topic.err, r.topic.lose = errors.New("no acknowledgement"), true
		r.run()
		time.Sleep(10 * time.Minute)
		r.topic.set(func() { r.topic.err = nil })
		time.Sleep(2*time.Minute + 30*time.Second)
		r.stop()
		r.want(11*60_000, 11*time.Minute)
	})
}

func TestAClockSetBackAnHourLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(10*time.Minute + 30*time.Second)
		r.stop() // so that nobody reads the offset while it changes
		offset = -time.Hour
		r.open()
		r.run()
		time.Sleep(10 * time.Minute)
		r.stop()
		rx, covered := uint64(0), time.Duration(0)
		for _, value := range r.topic.byID {
			var p wire.Port
			var i wire.Instance
			if wire.DecodePort([]byte(value), &p) == nil {
				rx += p.RxBytes
			} else if wire.DecodeInstance([]byte(value), &i) == nil {
				covered += time.Duration(i.EndMS-i.BeginMS) * time.Millisecond
			}
		}
		if rx != 19*60_000 || covered != 19*time.Minute {
			t.Errorf("%d bytes over %s", rx, covered)
		}
	})
}

func TestARestartLosesNoInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(3*time.Minute + 10*time.Second)
		r.stop()
		time.Sleep(20 * time.Minute)
		r.open()
		r.run()
		time.Sleep(3 * time.Minute)
		r.stop()
		r.want(25*60_000, 25*time.Minute)
	})
}

func TestAHypervisorThatDoesNotAnswerCostsTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(2*time.Minute + 10*time.Second)
		r.source.set(func() { r.source.err = errors.New("libvirtd is away") })
		time.Sleep(10 * time.Minute)
		if _, polls := r.host.Health(); polls < 9*time.Minute {
			t.Errorf("health says that a poll worked %s ago", polls)
		}
		r.source.set(func() { r.source.err = nil })
		// libvirt is back: the next poll need not wait for the clock.
		r.source.events <- libvirt.Event{Kind: libvirt.EventReconnected, At: time.Now()}
		time.Sleep(time.Second)
		if n := r.spool.Stats(); n.Batches != 0 {
			t.Errorf("%+v", n)
		}
		r.want(670_000, 11*time.Minute+10*time.Second)
		r.stop()
	})
}

func TestAPollThatHangsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.source.slow = time.Hour
		r.run()
		time.Sleep(10 * time.Minute)
		if loop, _ := r.host.Health(); loop > 2*time.Minute {
			t.Errorf("the loop stood for %s", loop)
		}
		r.source.set(func() { r.source.slow = 0 })
		time.Sleep(5 * time.Minute)
		r.stop()
		if rx, _ := r.topic.total(t); rx < 3*60_000 {
			t.Errorf("%d bytes", rx)
		}
	})
}

func TestSuspendAndShutdownAreReadAtOnce(t *testing.T) {
	for _, kind := range []libvirt.EventKind{libvirt.EventSuspended, libvirt.EventShutdown} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var offset time.Duration
				r := newRig(t, fakeClock(&offset))
				r.run()
				time.Sleep(2*time.Minute + 20*time.Second)
				r.source.events <- libvirt.Event{Kind: kind, Domain: instance, At: time.Now()}
				time.Sleep(time.Second)
				r.want(80_000, 80*time.Second)
				// A second one right after it waits a little, so that a drained host's
				// events do not keep libvirtd busy.
				r.source.events <- libvirt.Event{Kind: kind, Domain: instance, At: time.Now()}
				time.Sleep(500 * time.Millisecond)
				r.want(80_000, 80*time.Second)
				time.Sleep(time.Second)
				r.want(82_000, 82*time.Second)
				time.Sleep(time.Minute)
				r.stop()
				r.want(120_000, 2*time.Minute)
			})
		})
	}
}

func TestAStartIsAsLongAgoAsItsEventSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		r := newRig(t, fakeClock(&offset))
		r.run()
		time.Sleep(2*time.Minute + 40*time.Second)
		r.source.set(func() { r.source.id, r.source.start = 2, r.clock().Since })
		r.source.events <- libvirt.Event{Kind: libvirt.EventStarted, Domain: instance, ID: 2, At: time.Now()}
		time.Sleep(30 * time.Second)
		r.stop()
		var got []string
		for _, v := range r.topic.byID {
			var x wire.Instance
			if wire.DecodeInstance([]byte(v), &x) == nil && x.DomainID == "2" {
				got = append(got, fmt.Sprintf("%d ms, %s %%", x.EndMS-x.BeginMS, x.CPUPct))
			}
		}
		if !slices.Equal(got, []string{"20000 ms, 50.00 %"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestASlowHostDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		now := fakeClock(&offset)
		slow, quick := newRig(t, now), newRig(t, now)
		slow.source.slow = 50 * time.Second
		slow.run()
		quick.run()
		time.Sleep(5*time.Minute + 55*time.Second)
		slow.stop()
		quick.stop()
		quick.want(4*60_000, 4*time.Minute)
		slow.want(4*60_000, 4*time.Minute)
	})
}

// A disk that refuses writes costs time only: readings advance with the records.
func TestAFullDiskLosesNothing(t *testing.T) {
	moment := at(0)
	now := func() clock.Moment { return moment }
	r := newRig(t, now)
	poll := func(seconds float64) error {
		moment = at(seconds)
		return r.host.Poll(t.Context())
	}
	for _, s := range []float64{0.001, 60.001} {
		if err := poll(s); err != nil {
			t.Fatal(err)
		}
	}
	away := filepath.Join(filepath.Dir(r.dir), "away")
	if err := os.Rename(r.dir, away); err != nil {
		t.Fatal(err)
	}
	for _, s := range []float64{120.001, 180.001} {
		if err := poll(s); err == nil {
			t.Fatal("a poll without a disk worked")
		}
	}
	if err := os.Rename(away, r.dir); err != nil {
		t.Fatal(err)
	}
	if err := poll(240.001); err != nil {
		t.Fatal(err)
	}
	if err := r.pub.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want(240_000, 4*time.Minute)
	r.stop()
}

func TestALibvirtAnswerFromThePastIsRefused(t *testing.T) {
	moment := at(60)
	r := newRig(t, func() clock.Moment { return moment })
	if err := r.host.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "not newer") {
		t.Errorf("got %v", err)
	}
	r.stop()
}
