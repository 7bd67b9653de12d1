package libvirt

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func peer(t testing.TB, o libvirtpeer.Options) *libvirtpeer.Peer {
	t.Helper()
	p, err := libvirtpeer.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func host(t testing.TB, o Options) *Host {
	t.Helper()
	if o.Deadline == 0 {
		o.Deadline = 10 * time.Second
	}
	h := New(o)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func poll(t testing.TB, h *Host) *Snapshot {
	t.Helper()
	s, err := h.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPollSaysWhatLibvirtSaid(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 3})
	p.Edit(func(ds []*libvirtpeer.Domain) {
		ds[1].State = 3
		ds[2].NICs[0].InterfaceID = ""
		ds[2].Omit = func(f string) bool { return f == "cpu.time" || f == "block.0.rd.bytes" || f == "net.0.tx.bytes" }
	})
	h := host(t, Options{URI: p.URI()})
	before := time.Now()
	s := poll(t, h)
	if s.At.Before(before) || s.At.After(time.Now()) {
		t.Errorf("the reading's moment is %v, want now", s.At)
	}
	if len(s.Domains) != 3 {
		t.Fatalf("%d domains, want 3", len(s.Domains))
	}
	d := s.Domains[0]
	n, k := d.Interfaces[0], d.Disks[0]
	for what, ok := range map[string]bool{
		"id":         d.ID == 1 && d.UUID.String() == "aaaaaaaa-0000-4000-8000-000000000001" && d.Name == "instance-00000001",
		"vcpus":      d.VCPUs == 2,
		"state":      d.State == StateRunning && s.Domains[1].State == StatePaused,
		"cpu":        *d.CPUTimeNS == 30e9,
		"memory":     *d.MemoryActualBytes == 131072<<10 && *d.MemoryRSSBytes == 200000<<10 && *d.MemoryUsableBytes == 80000<<10,
		"interface":  n.Name == "tapc0ffee00-00" && n.InterfaceID == "c0ffee00-0000-4000-8000-000000000000" && n.MAC == "fa:16:3e:00:00:00",
		"traffic":    *n.RxBytes == 1000 && *n.TxBytes == 500,
		"disks":      len(d.Disks) == 2 && k.Device == "vda" && d.Disks[1].Device == "vdb",
		"disk":       *k.ReadBytes == 40960 && *k.WriteBytes == 8192 && *k.ReadRequests == 10 && *k.WriteRequests == 2,
		"disk sizes": *k.CapacityBytes == 64<<20 && *k.AllocationBytes == 196608 && *k.PhysicalBytes == 196616,
		"nova": d.Described && d.Nova == Nova{ProjectID: "7f000000000040008000000000000001", UserID: "8e000000000040008000000000000001",
			FlavorName: "m1.lab2", InstanceName: "server-1", ImageID: "9d000000-0000-4000-8000-000000000001"},
		"no interfaceid":       s.Domains[2].Interfaces[0].InterfaceID == "" && s.Domains[2].Described,
		"missing is not zero":  s.Domains[2].CPUTimeNS == nil && s.Domains[2].Disks[0].ReadBytes == nil && s.Domains[2].Interfaces[0].TxBytes == nil,
		"the rest is read":     *s.Domains[2].Disks[0].WriteBytes == 8192 && *s.Domains[2].Interfaces[0].RxBytes == 1000,
		"read-only":            slices.Equal(p.OpenFlags(), []uint32{1}),
		"monotonic":            s.Mono > 0,
		"one bulk call":        p.Calls(libvirtpeer.ProcStats) == 1,
		"XML once per domain":  p.Calls(libvirtpeer.ProcXML) == 3,
		"only reading calls":   onlyKnown(p.Procedures()),
		"no problem mentioned": d.Problem == "",
	} {
		if !ok {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

// onlyKnown lists what a meter may call: nothing that starts a job or changes
// anything (a dirty-rate calculation disturbs a live migration).
func onlyKnown(procs []uint32) bool {
	for _, p := range procs {
		if !slices.Contains([]uint32{libvirtpeer.ProcAuthList, libvirtpeer.ProcOpen, libvirtpeer.ProcClose, libvirtpeer.ProcXML,
			libvirtpeer.ProcRegisterAny, libvirtpeer.ProcDeregister, libvirtpeer.ProcStats}, p) {
			return false
		}
	}
	return true
}

func TestXMLIsReadOnlyForNewAndChangedDomains(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 20})
	h := host(t, Options{URI: p.URI()})
	poll(t, h)
	poll(t, h)
	want := 20
	expect := func(step string, more int) *Snapshot {
		t.Helper()
		s := poll(t, h)
		want += more
		if got := p.Calls(libvirtpeer.ProcXML); got != want {
			t.Fatalf("%s: XML read %d times so far, want %d", step, got, want)
		}
		return s
	}
	expect("nothing happened", 0)

	d := libvirtpeer.Make(100)
	p.StartDomain(d)
	await(t, h, EventStarted)
	expect("a domain started", 1)
	expect("and then nothing", 0)

	// A NIC that libvirt plugged while nobody listened: only its name tells.
	p.Edit(func(ds []*libvirtpeer.Domain) {
		ds[0].NICs = append(ds[0].NICs, libvirtpeer.NIC{Tap: "tapnew", InterfaceID: "c0ffee99-0000-4000-8000-000000000000"})
	})
	s := expect("a NIC appeared", 1)
	if got := s.Domains[0].Interfaces[1].InterfaceID; got != "c0ffee99-0000-4000-8000-000000000000" {
		t.Errorf("the new NIC's interfaceid is %q", got)
	}

	p.Plug(d.UUID, true, "virtio-disk2", func(d *libvirtpeer.Domain) {
		d.Disks = append(d.Disks, libvirtpeer.Disk{Device: "vdc", ReadBytes: 7})
	})
	await(t, h, EventDeviceAdded)
	s = expect("a disk was plugged", 1)
	if last := s.Domains[len(s.Domains)-1]; len(last.Disks) != 3 || *last.Disks[2].ReadBytes != 7 {
		t.Errorf("the plugged disk is missing: %+v", last.Disks)
	}
	p.Plug(d.UUID, false, "virtio-disk0", func(d *libvirtpeer.Domain) { d.Disks = d.Disks[1:] })
	await(t, h, EventDeviceRemoved)
	s = expect("a disk was unplugged", 1)
	if last := s.Domains[len(s.Domains)-1]; len(last.Disks) != 2 || last.Disks[0].Device != "vdb" {
		t.Errorf("a disk goes by its name although its index shifted: %+v", last.Disks)
	}

	// The same domain again under a new id: resized, perhaps.
	p.Edit(func(ds []*libvirtpeer.Domain) { ds[1].ID, ds[1].Flavor = 900, "m1.bigger" })
	if s = expect("a domain restarted unseen", 1); s.Domains[1].Nova.FlavorName != "m1.bigger" {
		t.Errorf("flavor %q after the restart", s.Domains[1].Nova.FlavorName)
	}

	p.Suspend(d.UUID, true)
	await(t, h, EventSuspended)
	p.Suspend(d.UUID, false)
	await(t, h, EventResumed)
	p.Reboot(d.UUID)
	await(t, h, EventRebooted)
	p.ShutDown(d.UUID)
	await(t, h, EventShutdown)
	expect("suspended, resumed, rebooted, shut down", 0)
	p.Destroy(d.UUID)
	await(t, h, EventStopped)
	if s = expect("destroyed", 0); len(s.Domains) != 20 {
		t.Errorf("%d domains after one was destroyed, want 20", len(s.Domains))
	}
}

func await(t testing.TB, h *Host, kind EventKind) Event {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case e := <-h.Events():
			if e.Kind == kind {
				return e
			}
			t.Logf("event %s while waiting for %s", e.Kind, kind)
		case <-limit:
			t.Fatalf("no event %s", kind)
		}
	}
}

func TestAHangCostsTwoDeadlines(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	h := host(t, Options{URI: p.URI(), Deadline: 300 * time.Millisecond})
	poll(t, h)
	p.Hang(true)
	start := time.Now()
	_, err := h.Poll(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no answer within 300ms") {
		t.Errorf("polling a hung libvirtd: %v", err)
	}
	if took := time.Since(start); took < 300*time.Millisecond || took > 2*time.Second {
		t.Errorf("it took %v, want one or two deadlines of 0.3 s", took)
	}
	p.Hang(false)
	if s := poll(t, h); len(s.Domains) != 2 {
		t.Errorf("%d domains after the hang, want 2", len(s.Domains))
	}
	// A caller's own end counts as well.
	p.Hang(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start = time.Now()
	if _, err := h.Poll(ctx); err == nil {
		t.Error("a poll ended well although its context did not")
	}
	if took := time.Since(start); took > 250*time.Millisecond {
		t.Errorf("a poll outlived its context by %v", took)
	}
	p.Hang(false)
}

// A stalled QEMU holds up the first caller; libvirtd answers the second at
// once. The poll is not lost.
func TestTheSecondCallInAPollSavesIt(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	h := host(t, Options{URI: p.URI(), Deadline: 300 * time.Millisecond})
	poll(t, h)
	p.Edit(func(ds []*libvirtpeer.Domain) { ds[0].Stalled = true })
	p.Mangle(func([]byte) []byte { return nil })
	s := poll(t, h)
	if s.Domains[0].Disks[0].ReadBytes != nil || s.Domains[0].MemoryUsableBytes != nil {
		t.Error("fields of a stalled QEMU were made up")
	}
	if *s.Domains[0].CPUTimeNS != 30e9 || *s.Domains[1].Disks[0].ReadBytes != 40960 {
		t.Error("what libvirt did say was lost")
	}
}

func TestAConnectionIsReplaced(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	h := host(t, Options{URI: p.URI(), MaxBackoff: time.Second})
	poll(t, h)
	p.Cut()
	if s := poll(t, h); len(s.Domains) != 2 {
		t.Errorf("%d domains on the poll after a cut, want 2", len(s.Domains))
	}
	p.Down()
	if _, err := h.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "is libvirtd running") {
		t.Errorf("polling where nobody listens: %v", err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	// Nobody polls: events alone must bring the connection back.
	await(t, h, EventReconnected)
	p.Suspend(libvirtpeer.Make(0).UUID, true)
	await(t, h, EventSuspended)
}

func TestGarbageEndsAConnectionAndNothingElse(t *testing.T) {
	for name, mangle := range map[string]func([]byte) []byte{
		"a length below the header's": func(b []byte) []byte { binary.BigEndian.PutUint32(b, 12); return b },
		"a length of zero":            func(b []byte) []byte { binary.BigEndian.PutUint32(b, 0); return b },
		"a length of 4 GiB":           func(b []byte) []byte { binary.BigEndian.PutUint32(b, 1<<32-1); return b },
		"an unknown serial":           func(b []byte) []byte { binary.BigEndian.PutUint32(b[20:], 77); return b },
		"an event as the answer":      func(b []byte) []byte { binary.BigEndian.PutUint32(b[16:], 2); return b },
		"an unknown type":             func(b []byte) []byte { binary.BigEndian.PutUint32(b[16:], 9); return b },
		"an unknown status":           func(b []byte) []byte { binary.BigEndian.PutUint32(b[24:], 2); return b },
		"two answers to one call":     func(b []byte) []byte { return append(b, b...) },
		"noise":                       func(b []byte) []byte { return []byte(strings.Repeat("noise", 100)) },
		"a record cut short": func(b []byte) []byte {
			b = b[:len(b)-100]
			binary.BigEndian.PutUint32(b, uint32(len(b)))
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := peer(t, libvirtpeer.Options{Domains: 2})
			h := host(t, Options{URI: p.URI(), Deadline: time.Second})
			poll(t, h)
			p.Mangle(mangle)
			if _, err := h.Poll(t.Context()); err != nil {
				t.Logf("the poll: %v", err)
			}
			if s := poll(t, h); len(s.Domains) != 2 {
				t.Errorf("%d domains on the poll after it, want 2", len(s.Domains))
			}
		})
	}
}

func TestXMLThatCannotBeReadYet(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	h := host(t, Options{URI: p.URI(), Deadline: 300 * time.Millisecond})
	if err := h.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Mangle(func(b []byte) []byte { return b }) // the statistics
	p.Mangle(func([]byte) []byte { return nil }) // the first XML is never answered
	s := poll(t, h)
	if s.Domains[0].Described || s.Domains[1].Described {
		t.Error("a domain is described although its XML was not read")
	}
	if *s.Domains[1].CPUTimeNS != 30e9 {
		t.Error("its readings were lost")
	}
	if s = poll(t, h); !s.Domains[0].Described || !s.Domains[1].Described {
		t.Error("the XML was not tried again")
	}
}

func TestLibvirtdsOwnErrorsAreShown(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	h := host(t, Options{URI: p.URI()})
	p.Refuse(libvirtpeer.ProcOpen, "no connection driver available")
	if err := h.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "no connection driver available") {
		t.Errorf("opening: %v", err)
	}
	// An event it does not have is done without; an error to a poll keeps the
	// connection.
	p.Refuse(libvirtpeer.ProcRegisterAny, "unsupported event ID 0")
	poll(t, h)
	p.Refuse(libvirtpeer.ProcStats, "internal error: out of luck")
	if _, err := h.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("polling: %v", err)
	}
	poll(t, h)
	if got := len(p.OpenFlags()); got != 1 {
		t.Errorf("%d connections were opened, want one for all", got)
	}
}

// A domain whose XML hangs must not keep others, that come later in the list,
// undescribed for ever.
func TestOneHangingXMLDoesNotStarveOthers(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 3})
	h := host(t, Options{URI: p.URI(), Deadline: 300 * time.Millisecond})
	drop, pass := func([]byte) []byte { return nil }, func(b []byte) []byte { return b }
	if err := h.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Mangle(pass)
	p.Mangle(drop)
	poll(t, h) // the first domain's XML hung, the connection is gone
	if err := h.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func([]byte) []byte{pass, pass, pass, drop} { // statistics, two of the others, the first again
		p.Mangle(f)
	}
	s := poll(t, h)
	if s.Domains[0].Described || !s.Domains[1].Described || !s.Domains[2].Described {
		t.Errorf("described: %v %v %v, want the two others", s.Domains[0].Described, s.Domains[1].Described, s.Domains[2].Described)
	}
}

func TestRefusedXMLIsMeteredToNobody(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 2})
	p.Edit(func(ds []*libvirtpeer.Domain) {
		ds[0].XML = `<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">]><domain><name>&a;</name></domain>`
	})
	h := host(t, Options{URI: p.URI()})
	for range 3 {
		s := poll(t, h)
		if d := s.Domains[0]; !d.Described || d.Problem == "" || d.Nova != (Nova{}) || d.CPUTimeNS == nil {
			t.Fatalf("refused XML: %+v", d)
		}
		if s.Domains[1].Nova.ProjectID == "" {
			t.Error("one domain's XML cost another its project")
		}
	}
	if got := p.Calls(libvirtpeer.ProcXML); got != 2 {
		t.Errorf("refused XML was asked for again: %d calls", got)
	}
}

func TestClosedHost(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 1})
	h := New(Options{URI: p.URI(), Deadline: 5 * time.Second})
	poll(t, h)
	p.Hang(true)
	polled := make(chan error, 1)
	go func() {
		_, err := h.Poll(t.Context())
		polled <- err
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	h.Close()
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("closing while libvirtd hangs took %v", took)
	}
	if err := <-polled; err == nil {
		t.Error("a poll under way ended well")
	}
	if _, err := h.Poll(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("polling a closed host: %v", err)
	}
	if _, open := <-h.Events(); open {
		t.Error("the events' channel stays open")
	}
	p.Hang(false)
}

// Deregistering while the session closes has crashed libvirtd 9.0 (subscribe).
func TestGoingAwayTakesNoSubscriptionBack(t *testing.T) {
	p := peer(t, libvirtpeer.Options{Domains: 1})
	for range 20 {
		h := New(Options{URI: p.URI(), Deadline: 5 * time.Second})
		poll(t, h)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if opened, closed := p.Calls(libvirtpeer.ProcOpen), p.Calls(libvirtpeer.ProcClose); opened != 20 || closed != 20 {
		t.Errorf("%d sessions opened, %d said goodbye; want 20 and 20", opened, closed)
	}
	if n := p.Calls(libvirtpeer.ProcRegisterAny); n != 100 {
		t.Errorf("%d subscriptions, want 100", n)
	}
	if n := p.Calls(libvirtpeer.ProcDeregister); n != 0 {
		t.Errorf("%d subscriptions were taken back", n)
	}
}

func TestNothingGrowsOverAThousandPolls(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	p := peer(t, libvirtpeer.Options{Domains: 5})
	h := host(t, Options{URI: p.URI()})
	poll(t, h)
	files := func() int {
		f, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(f)
	}
	goroutines, open := runtime.NumGoroutine(), files()
	for i := range 1000 {
		if i%100 == 50 {
			p.Cut()
		}
		poll(t, h)
	}
	for range 100 {
		if runtime.NumGoroutine() <= goroutines && files() <= open {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("goroutines %d -> %d, descriptors %d -> %d", goroutines, runtime.NumGoroutine(), open, files())
}

// TestPeerProcess is the peer in a process of its own for BenchmarkPoll500; it
// lives until its standard input closes.
func TestPeerProcess(t *testing.T) {
	if os.Getenv("RATEBATCH_PEER_PROCESS") == "" {
		t.Skip("this is BenchmarkPoll500's other half")
	}
	p := peer(t, libvirtpeer.Options{Domains: 500})
	os.Stdout.WriteString(p.URI() + "\n")
	io.Copy(io.Discard, os.Stdin)
}

// BenchmarkPoll500 is what a poll of 500 domains costs the client, the peer
// being another process.
func BenchmarkPoll500(b *testing.B) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), "RATEBATCH_PEER_PROCESS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	uri, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	h := host(b, Options{URI: strings.TrimSpace(uri)})
	if s := poll(b, h); len(s.Domains) != 500 {
		b.Fatalf("%d domains", len(s.Domains))
	}
	cpu := func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		poll(b, h)
	}
	b.ReportMetric(float64((cpu()-start).Microseconds())/1000/float64(b.N), "cpu-ms/poll")
}
