package agent

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
)

const (
	bootA = "11111111-1111-4111-8111-111111111111"
	bootB = "22222222-2222-4222-8222-222222222222"
)

var (
	start    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	instance = uuid.MustParse("aaaaaaaa-0000-4000-8000-000000000001")
	portID   = "c0ffee01-0000-4000-8000-000000000001"
	network  = uuid.MustParse("dddddddd-0000-4000-8000-000000000001")
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// at is a moment some seconds after start, on both clocks.
func at(seconds float64) clock.Moment {
	d := time.Duration(seconds * float64(time.Second))
	return clock.Moment{Wall: start.Add(d), BootID: bootA, Since: time.Hour + d}
}

// bench is a meter with its state, driven by hand.
type bench struct {
	t     *testing.T
	meter meter
	state *state
	ports map[string]Port // what the resolver knows, by interface id or tap
	hint  hint
}

func (b *bench) Resolve(interfaceID, tap string, _ uuid.UUID) (Port, bool) {
	if p, ok := b.ports[interfaceID]; ok {
		return p, true
	}
	p, ok := b.ports[tap]
	return p, ok
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, ports: map[string]Port{portID: {UUID: uuid.MustParse(portID), Network: network, ProjectID: "ovn-project"}}}
	b.meter = meter{resolver: b, interval: time.Minute, hold: 24 * time.Hour, agentVersion: "test"}
	b.state = newState("RegionOne", "compute-1", at(0))
	return b
}

// got is what a poll gave, decoded by the other side's rules.
type got struct {
	Instances []wire.Instance
	Ports     []wire.Port
	Disks     []wire.Disk
	counts
}

// poll advances to a snapshot and saves, through the state's encoding.
func (b *bench) poll(now clock.Moment, domains ...libvirt.Domain) got {
	b.t.Helper()
	s := b.meter.advance(b.state, &libvirt.Snapshot{At: now.Wall, Mono: now.Since, Domains: domains}, now, b.hint)
	data, err := s.State.encode()
	if err != nil {
		b.t.Fatal(err)
	}
	if b.state, err = readState(data, "RegionOne", "compute-1", true, now); err != nil {
		b.t.Fatal(err)
	}
	b.hint = hint{}
	return decode(b.t, s.Records, s.Counts)
}

func decode(t testing.TB, records []spool.Record, c counts) got {
	t.Helper()
	out := got{counts: c}
	for _, r := range records {
		var err error
		var key []byte
		switch r.Topic {
		case TopicInstance:
			var x wire.Instance
			err = wire.DecodeInstance(r.Value, &x)
			key = x.Key()
			out.Instances = append(out.Instances, x)
		case TopicPort:
			var x wire.Port
			err = wire.DecodePort(r.Value, &x)
			key = x.Key()
			out.Ports = append(out.Ports, x)
		case TopicDisk:
			var x wire.Disk
			err = wire.DecodeDisk(r.Value, &x)
			key = x.Key()
			out.Disks = append(out.Disks, x)
		}
		if err != nil || string(key) != string(r.Key) {
			t.Fatalf("record %s with key %q: %v", r.Value, r.Key, err)
		}
	}
	return out
}

func n(v uint64) *uint64 { return &v }

// vm is a domain with two vCPUs, a vNIC and a disk; cpu in seconds.
func vm(id int32, cpu float64, rx, tx, read uint64) libvirt.Domain {
	return libvirt.Domain{
		UUID: instance, ID: id, Name: "instance-00000001", State: libvirt.StateRunning, VCPUs: 2, Described: true,
		CPUTimeNS: n(uint64(cpu * 1e9)), MemoryActualBytes: n(2 << 30), MemoryRSSBytes: n(1 << 30), MemoryUsableBytes: n(1 << 29),
		Interfaces: []libvirt.Interface{{Name: "tapc0ffee01-00", InterfaceID: portID, RxBytes: n(rx), TxBytes: n(tx)}},
		Disks: []libvirt.Disk{{Device: "vda", ReadBytes: n(read), WriteBytes: n(2 * read), ReadRequests: n(read / 10), WriteRequests: n(read / 5),
			CapacityBytes: n(10 << 30), AllocationBytes: n(4 << 30), PhysicalBytes: n(5 << 30)}},
		Nova: libvirt.Nova{ProjectID: "project-a", UserID: "user-a", FlavorName: "m1.small", InstanceName: "web", ImageID: "image-a"},
	}
}

// span writes an interval as seconds after start.
func span(c wire.Common) string {
	return fmt.Sprintf("%g-%g", float64(c.BeginMS-start.UnixMilli())/1000, float64(c.EndMS-start.UnixMilli())/1000)
}

// say puts what a poll gave into one line: kind, interval, values.
func (g got) say() string {
	var out []string
	opt := func(v *uint64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	for _, x := range g.Instances {
		out = append(out, fmt.Sprintf("cpu %s %s", span(x.Common), x.CPUPct))
	}
	for _, x := range g.Ports {
		out = append(out, fmt.Sprintf("port %s %d/%d", span(x.Common), x.RxBytes, x.TxBytes))
	}
	for _, x := range g.Disks {
		out = append(out, fmt.Sprintf("disk %s %s/%s", span(x.Common), opt(x.ReadBytes), opt(x.WriteBytes)))
	}
	return strings.Join(out, ", ")
}

func (b *bench) want(g got, want string) {
	b.t.Helper()
	if s := g.say(); s != want {
		b.t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestTheFirstPollIsABaselineAndTheSecondCounts(t *testing.T) {
	b := newBench(t)
	b.want(b.poll(at(0), vm(1, 100, 1000, 500, 4000)), "")
	g := b.poll(at(60), vm(1, 130, 1700, 600, 4100))
	b.want(g, "cpu 0-60 25.00, port 0-60 700/100, disk 0-60 100/200")
	x := g.Instances[0]
	if x.V != 1 || x.Host != "compute-1" || x.RegionName != "RegionOne" || x.InstanceUUID != instance || x.TS != start.Unix()+60 || x.Epoch == 0 {
		t.Errorf("common fields: %+v", x.Common)
	}
	if x.ProjectID != "project-a" || x.UserID != "user-a" || x.FlavorName != "m1.small" || x.VCPUs != 2 || x.InstanceName != "web" || x.ImageID != "image-a" || x.DomainID != "1" || x.AgentVersion != "test" {
		t.Errorf("attributes: %+v", x.Common)
	}
	if *x.MemoryActualBytes != 2<<30 || *x.MemoryRSSBytes != 1<<30 || *x.MemoryUsableBytes != 1<<29 {
		t.Errorf("memory is sent as it is: %+v", x)
	}
	if p := g.Ports[0]; p.PortUUID.String() != portID || p.NetworkUUID != network {
		t.Errorf("port: %+v", p)
	}
	if d := g.Disks[0]; d.Device != "vda" || *d.ReadRequests != 10 || *d.WriteRequests != 20 || *d.CapacityBytes != 10<<30 || *d.AllocationBytes != 4<<30 || *d.PhysicalBytes != 5<<30 {
		t.Errorf("disk: %+v", d)
	}
	seen := []uint64{g.Instances[0].Sequence, g.Ports[0].Sequence, g.Disks[0].Sequence}
	slices.Sort(seen)
	if !slices.Equal(seen, []uint64{1, 2, 3}) {
		t.Errorf("sequences %v, want 1, 2, 3", seen)
	}
	b.want(b.poll(at(120), vm(1, 130, 1700, 600, 4100)), "cpu 60-120 0.00, port 60-120 0/0, disk 60-120 0/0")
}

func TestCPUPercent(t *testing.T) {
	for name, tt := range map[string]struct {
		used    uint64
		elapsed time.Duration
		vcpus   uint16
		want    wire.Hundredths
	}{
		"nothing used":                              {0, time.Minute, 2, 0},
		"half of one of two vCPUs":                  {30e9, time.Minute, 2, 25_00},
		"all of both":                               {120e9, time.Minute, 2, 100_00},
		"more than all is all":                      {121e9, time.Minute, 2, 100_00},
		"a third rounds down":                       {20e9, time.Minute, 1, 33_33},
		"two thirds round up":                       {40e9, time.Minute, 1, 66_67},
		"just below a half of the last digit":       {2_999_999, time.Minute, 1, 0},
		"a half rounds up":                          {3_000_000, time.Minute, 1, 1},
		"a year on 512 vCPUs":                       {365 * 24 * 3600 * 256e9, 365 * 24 * time.Hour, 512, 50_00},
		"92 days on 65,535 vCPUs":                   {1 << 62, 92 * 24 * time.Hour, 65535, 89},
		"used beyond any reason":                    {1<<64 - 1, time.Nanosecond, 1, 100_00},
		"an odd time: 12.34 %":                      {7_404_000_000, time.Minute, 1, 12_34},
		"one nanosecond below the next hundredth":   {7_406_999_999, time.Minute, 1, 12_34},
		"exactly on the edge to the next hundredth": {7_407_000_000, time.Minute, 1, 12_35},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cpuPercent(tt.used, tt.elapsed, tt.vcpus); got != tt.want {
				t.Errorf("cpuPercent(%d, %s, %d) = %s, want %s", tt.used, tt.elapsed, tt.vcpus, got, tt.want)
			}
		})
	}
}

func TestANewDomainIDCountsInFullFromZero(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	// Restarted within the interval, and already beyond the old values: only the
	// id tells (weakness 7).
	b.want(b.poll(at(60), vm(2, 30, 5000, 700, 8000)), "cpu 0-60 25.00, port 0-60 5000/700, disk 0-60 8000/16000")
	b.want(b.poll(at(120), vm(2, 60, 5001, 700, 8001)), "cpu 60-120 25.00, port 60-120 1/0, disk 60-120 1/2")
}

// A hypervisor elsewhere that is off answers no poll, so nothing is seen gone,
// and libvirtd begins its ids anew.
func TestADomainThatStartedAgainUnderItsIDWhilePollsFailed(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	b.poll(at(60), vm(1, 130, 1700, 600, 4100))
	const off = 5 * 3600
	g := b.poll(at(60+off), vm(1, 20, 10, 10, 10))
	b.want(g, "cpu 18000-18060 16.67, port 18000-18060 10/10, disk 18000-18060 10/20")
	b.want(b.poll(at(120+off), vm(1, 80, 30, 20, 20)), "cpu 18060-18120 50.00, port 18060-18120 20/10, disk 18060-18120 10/20")
	t.Run("or so fast that no poll failed", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		d := vm(1, 30, 1200, 20, 50) // one counter is beyond its old value already
		b.want(b.poll(at(60), d), "cpu 0-60 25.00, port 0-60 1200/20, disk 0-60 50/100")
	})
	t.Run("but not where the CPU time alone began anew", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		g := b.poll(at(60), vm(1, 30, 1700, 600, 4100))
		b.want(g, "cpu 0-60 25.00, port 0-60 700/100, disk 0-60 100/200")
		if g.Resets != 1 {
			t.Errorf("%d resets, want the CPU time's", g.Resets)
		}
	})
	t.Run("nor because an event came late", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		b.hint.Started = map[uuid.UUID]clock.Moment{instance: at(0.1)}
		b.want(b.poll(at(60), vm(1, 130, 1700, 600, 4100)), "cpu 0-60 25.00, port 0-60 700/100, disk 0-60 100/200")
	})
}

func TestADomainThatAppearsCountsFromItsStart(t *testing.T) {
	t.Run("since the event that says when", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		b.hint.Started = map[uuid.UUID]clock.Moment{instance: at(20)}
		b.want(b.poll(at(60), vm(1, 20, 700, 70, 40)), "cpu 20-60 25.00, port 20-60 700/70, disk 20-60 40/80")
	})
	t.Run("since the last poll without an event", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		b.want(b.poll(at(60), vm(1, 30, 700, 70, 40)), "cpu 0-60 25.00, port 0-60 700/70, disk 0-60 40/80")
	})
	t.Run("after an outage for one interval only, because nobody saw the rest", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		b.want(b.poll(at(7200), vm(1, 30, 700, 70, 40)), "cpu 7140-7200 25.00, port 7140-7200 700/70, disk 7140-7200 40/80")
	})
	t.Run("after an outage for as long as its CPU time proves", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		b.want(b.poll(at(7200), vm(1, 2000, 700, 70, 40)), "cpu 6200-7200 100.00, port 6200-7200 700/70, disk 6200-7200 40/80")
	})
	t.Run("an event from before the last poll says nothing about this start", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0))
		b.poll(at(60))
		b.hint.Started = map[uuid.UUID]clock.Moment{instance: at(30)}
		b.want(b.poll(at(120), vm(1, 30, 700, 70, 40)), "cpu 60-120 25.00, port 60-120 700/70, disk 60-120 40/80")
	})
}

func TestADeviceThatAppearsCountsInFull(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 0, 10, 10, 10))
	d := vm(1, 0, 10, 10, 10)
	second := "c0ffee02-0000-4000-8000-000000000002"
	b.ports[second] = Port{UUID: uuid.MustParse(second)}
	d.Interfaces = append(d.Interfaces, libvirt.Interface{Name: "tapc0ffee02-00", InterfaceID: second, RxBytes: n(77), TxBytes: n(7)})
	d.Disks = append(d.Disks, libvirt.Disk{Device: "vdb", ReadBytes: n(5), WriteBytes: n(6), CapacityBytes: n(1)})
	b.want(b.poll(at(60), d), "cpu 0-60 0.00, port 0-60 0/0, port 0-60 77/7, disk 0-60 0/0, disk 0-60 5/6")
	// Unplugged and plugged in again: it starts from zero, even above the old value.
	b.poll(at(120), vm(1, 0, 10, 10, 10))
	d.Interfaces[1].RxBytes, d.Disks[1].ReadBytes = n(100), n(50)
	b.want(b.poll(at(180), d), "cpu 120-180 0.00, port 120-180 0/0, port 120-180 100/7, disk 120-180 0/0, disk 120-180 50/6")
	// Another port on a tap of the same name is another vNIC.
	d.Interfaces[1].InterfaceID, d.Interfaces[1].RxBytes = portID, n(300)
	b.want(b.poll(at(240), d), "cpu 180-240 0.00, port 180-240 0/0, port 180-240 300/7, disk 180-240 0/0, disk 180-240 0/0")
}

func TestACounterThatWentBackwardsCountsWithItsNewValue(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	g := b.poll(at(60), vm(1, 130, 300, 501, 40))
	b.want(g, "cpu 0-60 25.00, port 0-60 300/1, disk 0-60 40/80")
	if g.Resets != 5 { // rx and the disk's four
		t.Errorf("%d resets, want 5", g.Resets)
	}
	b.want(b.poll(at(120), vm(1, 130, 301, 501, 41)), "cpu 60-120 0.00, port 60-120 1/0, disk 60-120 1/2")
}

func TestMissingIsNotZero(t *testing.T) {
	t.Run("the next difference covers both intervals", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		d := vm(1, 0, 0, 0, 0)
		d.CPUTimeNS, d.MemoryUsableBytes = nil, nil
		d.Interfaces[0].RxBytes = nil
		d.Disks = []libvirt.Disk{{Device: "vda"}}
		g := b.poll(at(60), d)
		b.want(g, "")
		if g.Silent != 1 {
			t.Errorf("%d silent domains, want 1", g.Silent)
		}
		b.want(b.poll(at(120), vm(1, 160, 1700, 600, 4100)), "cpu 0-120 25.00, port 0-120 700/100, disk 0-120 100/200")
	})
	t.Run("a stalled QEMU tells sizes only: its disk waits a quarter of an hour, then its size is billed and its traffic is kept", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 0, 0, 0, 4000))
		b.poll(at(60), vm(1, 0, 0, 0, 4000))
		stalled := vm(1, 0, 0, 0, 0)
		stalled.Disks = []libvirt.Disk{{Device: "vda", CapacityBytes: n(10 << 30)}}
		stalled.Interfaces = nil
		b.want(b.poll(at(120), stalled), "cpu 60-120 0.00")
		b.want(b.poll(at(959), stalled), "cpu 120-959 0.00")
		b.want(b.poll(at(960), stalled), "cpu 959-960 0.00, disk 60-960 -/-")
		b.want(b.poll(at(1020), stalled), "cpu 960-1020 0.00, disk 960-1020 -/-")
		d := vm(1, 0, 0, 0, 4100)
		d.Interfaces = nil
		b.want(b.poll(at(1080), d), "cpu 1020-1080 0.00, disk 1020-1080 100/200")
	})
	t.Run("a field that a driver never tells does not hold up the others", func(t *testing.T) {
		b := newBench(t)
		d := vm(1, 0, 0, 0, 4000)
		d.Disks[0].WriteBytes = nil
		b.poll(at(0), d)
		d = vm(1, 0, 0, 0, 4100)
		d.Disks[0].WriteBytes = nil
		b.want(b.poll(at(60), d), "cpu 0-60 0.00, port 0-60 0/0, disk 0-60 100/-")
	})
	t.Run("what was missing at the baseline has its baseline later", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), libvirt.Domain{UUID: instance, ID: 1, VCPUs: 2, Described: true, Disks: []libvirt.Disk{{Device: "vda"}}, Interfaces: []libvirt.Interface{{Name: "tapc0ffee01-00", InterfaceID: portID}}})
		b.want(b.poll(at(60), vm(1, 30, 1000, 500, 4000)), "disk 0-60 -/-")
		b.want(b.poll(at(120), vm(1, 60, 1001, 500, 4001)), "cpu 60-120 25.00, port 60-120 1/0, disk 60-120 1/2")
	})
}

func TestAPausedDomainIsMetered(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	d := vm(1, 100, 1000, 500, 4000)
	d.State = libvirt.StatePaused
	g := b.poll(at(60), d)
	b.want(g, "cpu 0-60 0.00, port 0-60 0/0, disk 0-60 0/0")
	if *g.Instances[0].MemoryActualBytes != 2<<30 {
		t.Error("a paused domain keeps its memory")
	}
}

func TestAnExtraPollMovesOnlyTheDomainsThatEnd(t *testing.T) {
	b := newBench(t)
	other := vm(2, 10, 10, 10, 10)
	other.UUID = uuid.MustParse("aaaaaaaa-0000-4000-8000-000000000002")
	other.Interfaces, other.Disks = nil, nil
	b.poll(at(0), vm(1, 100, 1000, 500, 4000), other)
	b.hint.Only = map[uuid.UUID]bool{instance: true}
	b.want(b.poll(at(20), vm(1, 120, 1700, 600, 4100), other), "cpu 0-20 50.00, port 0-20 700/100, disk 0-20 100/200")
	b.want(b.poll(at(60), other), "cpu 0-60 0.00")
	// Started again under the same id cannot be; under another it starts anew, not before it ended.
	b.want(b.poll(at(70), vm(3, 1, 5, 5, 5), other), "cpu 60-70 5.00, cpu 60-70 0.00, port 60-70 5/5, disk 60-70 5/10")
}

func TestIntervalsDoNotOverlapWhenADomainRestartsAfterAnExtraPoll(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	b.hint.Only = map[uuid.UUID]bool{instance: true}
	b.poll(at(20), vm(1, 120, 1700, 600, 4100))
	b.want(b.poll(at(60), vm(2, 20, 7, 7, 7)), "cpu 20-60 25.00, port 20-60 7/7, disk 20-60 7/14")
}

func TestADomainThatOneAnswerLeftOutGoesOn(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	b.want(b.poll(at(60)), "")
	b.want(b.poll(at(120), vm(1, 160, 1700, 600, 4100)), "cpu 0-120 25.00, port 0-120 700/100, disk 0-120 100/200")
	t.Run("unless an event says that it started again", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		b.poll(at(60))
		b.hint.Started = map[uuid.UUID]clock.Moment{instance: at(90)}
		b.want(b.poll(at(120), vm(1, 130, 1700, 600, 4100)), "cpu 90-120 100.00, port 90-120 1700/600, disk 90-120 4100/8200")
	})
	t.Run("or its CPU time does", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		b.poll(at(60))
		b.want(b.poll(at(120), vm(1, 30, 1700, 600, 4100)), "cpu 60-120 25.00, port 60-120 1700/600, disk 60-120 4100/8200")
	})
	t.Run("and is forgotten after an hour", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		b.poll(at(3600))
		if len(b.state.Domains) != 1 {
			t.Error("forgotten too early")
		}
		b.poll(at(3661))
		if len(b.state.Domains) != 0 {
			t.Errorf("%d domains are kept", len(b.state.Domains))
		}
	})
}

func TestTheWallClockMayBeSet(t *testing.T) {
	for name, tt := range map[string]struct {
		jump time.Duration
		want string
	}{
		"back an hour: the interval keeps its length":    {-time.Hour, "cpu -3600--3540 25.00, port -3600--3540 700/100, disk -3600--3540 100/200"},
		"forward an hour: nobody used the skipped hour":  {time.Hour, "cpu 3600-3660 25.00, port 3600-3660 700/100, disk 3600-3660 100/200"},
		"steered by half a second: intervals still tile": {500 * time.Millisecond, "cpu 0-60.5 25.00, port 0-60.5 700/100, disk 0-60.5 100/200"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.poll(at(0), vm(1, 100, 1000, 500, 4000))
			now := at(60)
			now.Wall = now.Wall.Add(tt.jump)
			g := b.poll(now, vm(1, 130, 1700, 600, 4100))
			b.want(g, tt.want)
			again := at(120)
			again.Wall = again.Wall.Add(tt.jump)
			later := b.poll(again, vm(1, 160, 1701, 600, 4100))
			if len(later.Instances) != 1 || later.Instances[0].BeginMS != g.Instances[0].EndMS || later.Instances[0].Sequence <= g.Instances[0].Sequence {
				t.Errorf("then %s", later.say())
			}
		})
	}
}

func TestARestartOfTheAgentLosesNoInterval(t *testing.T) {
	b := newBench(t)
	b.poll(at(0), vm(1, 100, 1000, 500, 4000))
	epoch := b.state.Epoch
	// bench.poll reads the state back each time, so a restart is just a gap.
	g := b.poll(at(600), vm(1, 400, 1700, 600, 4100))
	b.want(g, "cpu 0-600 25.00, port 0-600 700/100, disk 0-600 100/200")
	if g.Instances[0].Epoch != epoch {
		t.Error("the epoch goes on within a boot")
	}
}

func TestABootOfTheMachine(t *testing.T) {
	after := func(wall float64) clock.Moment {
		return clock.Moment{Wall: at(wall).Wall, BootID: bootB, Since: 90 * time.Second}
	}
	reload := func(b *bench, local bool, now clock.Moment) {
		data, err := b.state.encode()
		if err != nil {
			b.t.Fatal(err)
		}
		if b.state, err = readState(data, "RegionOne", "compute-1", local, now); err != nil {
			b.t.Fatal(err)
		}
	}
	t.Run("no domain outlives that of its own machine, whatever its id", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		epoch := b.state.Epoch
		reload(b, true, after(600))
		g := b.poll(after(600), vm(1, 130, 1700, 600, 4100))
		b.want(g, "cpu 535-600 100.00, port 535-600 1700/600, disk 535-600 4100/8200")
		if g.Instances[0].Epoch <= epoch {
			t.Error("a boot begins a new epoch")
		}
	})
	t.Run("domains of another machine go on, by the wall clock", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		reload(b, false, after(600))
		b.want(b.poll(after(600), vm(1, 400, 1700, 600, 4100)), "cpu 0-600 25.00, port 0-600 700/100, disk 0-600 100/200")
	})
	t.Run("what was held is sent though the clock is behind", func(t *testing.T) {
		for until, want := range map[float64]string{60: "port 0-60 1000/500", 0: "port -0.001-0 1000/500"} {
			b := newBench(t)
			known := b.ports
			b.ports = nil
			b.poll(at(0), vm(1, 100, 0, 0, 4000))
			b.poll(at(60), vm(1, 100, 1000, 500, 4000))
			if until == 0 { // as an agent before this one left it
				for _, d := range b.state.Domains {
					d.Ports[0].Until = d.Ports[0].Since
				}
			}
			reload(b, true, after(-3600))
			b.ports = known
			later := after(3600) // no domain comes back after so long
			later.Since += 2 * time.Hour
			first := b.poll(after(-3600))
			if last := b.poll(later); until == 0 {
				b.want(first, "")
				b.want(last, want)
			} else {
				b.want(first, want)
				b.want(last, "")
			}
			if len(b.state.Domains) != 0 {
				t.Error("it is kept though nothing is held any more")
			}
		}
	})
	t.Run("with a clock that was set back meanwhile the next poll covers it", func(t *testing.T) {
		b := newBench(t)
		b.poll(at(0), vm(1, 100, 1000, 500, 4000))
		reload(b, false, after(-3600))
		b.want(b.poll(after(-3600), vm(1, 130, 1700, 600, 4100)), "")
		later := after(-3540)
		later.Since += time.Minute
		b.want(b.poll(later, vm(1, 130, 1700, 600, 4100)), "cpu -3600--3540 25.00, port -3600--3540 700/100, disk -3600--3540 100/200")
	})
}

func TestNamesAreCutToWhatARecordHolds(t *testing.T) {
	b := newBench(t)
	d := vm(1, 0, 0, 0, 0)
	d.Nova.InstanceName = strings.Repeat("ü", 10_000)
	d.Nova.FlavorName = "bad \xff\x00 \"flavor\"\n"
	d.Disks[0].Device = strings.Repeat("\xff", 2000)
	b.poll(at(0), d)
	g := b.poll(at(60), d)
	if got := g.Instances[0].InstanceName; got != strings.Repeat("ü", wire.MaxText/2) {
		t.Errorf("a name of %d bytes", len(got))
	}
	if g.Instances[0].FlavorName != "bad \ufffd\x00 \"flavor\"\n" || len(g.Disks[0].Device) > wire.MaxText {
		t.Errorf("%q", g.Instances[0].FlavorName)
	}
}

func TestASavedStateOfAnotherHostIsRefused(t *testing.T) {
	data, err := newState("RegionOne", "compute-1", at(0)).encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ data, host, want string }{
		{string(data), "compute-2", "they were copied or the host was renamed"},
		{`{"version":99}`, "compute-1", "newer ratebatch-agent"},
		{`{"version":`, "compute-1", "cannot be read"},
	} {
		if _, err := readState([]byte(tt.data), "RegionOne", tt.host, true, at(0)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}
