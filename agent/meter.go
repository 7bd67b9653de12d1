package agent

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
)

// The topics of the records in a spool.
const (
	TopicPort     byte = 'p'
	TopicInstance byte = 'i'
	TopicDisk     byte = 'd'
)

// Port is what a resolver knows about a vNIC: whose it is.
type Port struct {
	UUID      uuid.UUID `json:"uuid,omitzero"`
	Network   uuid.UUID `json:"network,omitzero"`
	ProjectID string    `json:"project,omitempty"`
	// Ignored: the port is known, and configured not to be metered (its device
	// owner does not match).
	Ignored bool `json:"ignored,omitempty"`
}

// Resolver says which port a vNIC is. interfaceID is what the domain's XML
// says, or empty; then the tap's name and the instance have to do. False: it is
// not known (yet). True without a UUID: it is to be metered, and whose it is
// cannot be read.
type Resolver interface {
	Resolve(interfaceID, tap string, instance uuid.UUID) (Port, bool)
}

// InterfaceIDs resolves without OVN: the interface's id is the port, and no
// network is known.
type InterfaceIDs struct{}

// Resolve gives the interface's id.
func (InterfaceIDs) Resolve(interfaceID, _ string, _ uuid.UUID) (Port, bool) {
	id, err := uuid.Parse(interfaceID)
	return Port{UUID: id}, err == nil
}

// meter computes records from snapshots. It does no I/O and reads no clock.
type meter struct {
	resolver     Resolver
	interval     time.Duration // between polls
	hold         time.Duration // how long traffic waits for its port
	agentVersion string

	// buf holds the records of one step; the next step writes over them, since
	// they are in the spool by then.
	buf []byte
}

const (
	// patience is how long a disk's record waits for counters that were told
	// before, while its sizes still come. A QEMU that is stuck for longer must not
	// keep the sizes from being billed in time.
	patience = 15 * time.Minute

	// remember is how long a domain that vanished is kept: should libvirt have
	// left it out of one answer, its counters go on and do not start from zero.
	remember = time.Hour
)

// counts are what a step found, for metrics and logs.
type counts struct {
	Domains      int
	Resets       int // counters that went backwards
	Silent       int // domains without a CPU time or a vCPU count
	Undescribed  int // domains whose XML could not be read yet
	Unattributed int // domains of no project
	Unresolved   int // vNICs whose traffic is held
	Ignored      int // vNICs of ports that are configured not to be metered
	Networkless  int // port records sent without a network, having waited too long
	LostPorts    int // vNICs that vanished before anyone could say which port they were
	LostBytes    uint64
}

// hint is what libvirt's events add to a snapshot.
type hint struct {
	Only    map[uuid.UUID]bool         // nil: a whole poll; else just these domains move on
	Started map[uuid.UUID]clock.Moment // when domains started, as far as events told
}

// step is the outcome of a snapshot: nothing of it counts before it is saved.
// Its records hold until the next one.
type step struct {
	Records []spool.Record
	State   *state
	Counts  counts
}

// work is one step in the making.
type work struct {
	*meter
	old, next *state
	first     bool // no readings are known: everything is a baseline
	now       stamp
	looked    stamp // when the domain at hand was seen before
	hint      hint
	counts    counts
	buf       []byte
	ends      []ending
}

// ending is where a record's key and value end in the buffer.
type ending struct {
	topic      byte
	key, value int
}

// advance computes what follows from a snapshot taken at now.
func (m *meter) advance(old *state, snapshot *libvirt.Snapshot, now clock.Moment, h hint) step {
	next := *old
	next.Domains = make(map[uuid.UUID]*domain, len(snapshot.Domains))
	w := &work{meter: m, old: old, next: &next, now: stampOf(now), hint: h, first: old.Polled == stamp{}, buf: m.buf[:0], ends: make([]ending, 0, 4*len(snapshot.Domains))}
	if h.Only != nil {
		for id, d := range old.Domains {
			next.Domains[id] = d
		}
	}
	for i := range snapshot.Domains {
		d := &snapshot.Domains[i]
		if h.Only == nil || h.Only[d.UUID] {
			next.Domains[d.UUID] = w.domain(d)
		}
	}
	if h.Only == nil {
		for id, d := range old.Domains {
			if next.Domains[id] == nil {
				if d = w.gone(id, d); d != nil {
					next.Domains[id] = d
				}
			}
		}
		next.Polled = w.now
	}
	w.counts.Domains = len(snapshot.Domains)
	m.buf = w.buf
	return step{Records: w.records(), State: w.next, Counts: w.counts}
}

// domain moves one domain on.
func (w *work) domain(d *libvirt.Domain) *domain {
	last := w.old.Domains[d.UUID]
	cur, fresh := w.incarnation(last, d)
	w.looked = cur.Seen
	cur.Seen, cur.Gone = w.now, false
	if d.VCPUs > 0 {
		cur.VCPUs = d.VCPUs
	}
	if d.Described {
		cur.Described, cur.Name, cur.Nova = true, d.Name, d.Nova
	}
	w.ports(cur, d, fresh)
	w.disks(cur, d, fresh)
	if !cur.Described && !w.first && w.now.since(cur.Since) < w.hold {
		// Who pays is not known yet, which is not the same as nobody: the readings
		// stay where they are.
		w.counts.Undescribed++
		return cur
	}
	w.sendPorts(d.UUID, cur)
	w.sendInstance(cur, d)
	w.sendDisks(cur, d)
	return cur
}

// incarnation gives a copy of the last readings to move on from, or new ones
// where this is another domain; fresh says that its counters started at zero.
func (w *work) incarnation(last *domain, d *libvirt.Domain) (cur *domain, fresh bool) {
	if last != nil && last.ID == d.ID && !last.Ended && !w.restarted(last, d) {
		again := *last
		again.Ports = append([]port(nil), last.Ports...)
		again.Disks = append([]disk(nil), last.Disks...)
		return &again, false
	}
	cur = &domain{ID: d.ID, Name: d.Name}
	if last != nil {
		// What the earlier one's ports still hold must not be lost with it.
		for _, p := range last.Ports {
			if p.Until != (stamp{}) {
				p.Gone = true
				cur.Ports = append(cur.Ports, p)
			}
		}
		if len(cur.Ports) > 0 {
			cur.Nova = last.Nova
		}
	}
	if w.first {
		cur.Since = w.now
		return cur, false
	}
	cur.CPU = counter{OK: true}
	cur.Since = w.began(last, d)
	return cur, true
}

// restarted says that a domain is another one with the same id: libvirtd hands
// ids out again after it, or its machine, was started itself. The domain need
// not have been seen gone: polls of a machine that is off fail.
func (w *work) restarted(last *domain, d *libvirt.Domain) bool {
	less := d.CPUTimeNS != nil && *d.CPUTimeNS < last.CPU.V
	if !last.Gone {
		// An event alone proves nothing here: it may be of the start that the last
		// poll saw already, or of a guest that woke up.
		return less && !goesOn(last, d)
	}
	started, told := w.hint.Started[d.UUID]
	return told && int64(started.Since) > last.Seen.Since || less
}

// goesOn says that a domain's devices kept their counters, so that a lower CPU
// time is no new start. libvirtd takes the time from the process's control group
// or from /proc; it begins anew when systemd moved the process to another group,
// and may be less after an upgrade of libvirtd changed where it comes from.
// Taken for a new start, all traffic since the real one would be counted again.
func goesOn(last *domain, d *libvirt.Domain) bool {
	kept := false
	for _, p := range last.Ports {
		for i := range d.Interfaces {
			if n := &d.Interfaces[i]; !p.Gone && n.Name == p.Name && (n.InterfaceID == p.InterfaceID || n.InterfaceID == "" || p.InterfaceID == "") {
				if p.Rx.fellTo(n.RxBytes) || p.Tx.fellTo(n.TxBytes) {
					return false
				}
				kept = kept || p.Rx.V > 0 && n.RxBytes != nil || p.Tx.V > 0 && n.TxBytes != nil
			}
		}
	}
	for _, k := range last.Disks {
		for i := range d.Disks {
			if n := &d.Disks[i]; n.Device == k.Device {
				for c, reading := range countersOf(n) {
					if k.Counters[c].fellTo(reading) {
						return false
					}
					kept = kept || k.Counters[c].V > 0 && reading != nil
				}
			}
		}
	}
	return kept
}

// began says when a domain that was not there at the last poll started.
// last is the earlier one of the same instance, or nil.
func (w *work) began(last *domain, d *libvirt.Domain) stamp {
	looked := w.old.Polled
	if last != nil && last.Seen.Since > looked.Since {
		looked = last.Seen
	}
	if started, told := w.hint.Started[d.UUID]; told {
		if s := stampOf(started); s.Since > looked.Since && s.Since < w.now.Since {
			return s
		}
	}
	var ran time.Duration
	if d.CPUTimeNS != nil && d.VCPUs > 0 {
		ran = time.Duration(min(*d.CPUTimeNS/uint64(d.VCPUs), 1<<62))
	}
	return w.appeared(looked, ran)
}

// appeared is where the first interval of something new begins: at the last
// look, unless that is long ago; then nobody can say, and it is taken for one
// poll interval, or for as long as it has provably run.
func (w *work) appeared(last stamp, ran time.Duration) stamp {
	ago := w.now.since(last)
	if ago <= 2*w.interval {
		return last
	}
	if lasted := max(w.interval, ran); lasted < ago {
		return w.now.before(lasted)
	}
	return last
}

// sendInstance writes the record of CPU and memory.
func (w *work) sendInstance(cur *domain, d *libvirt.Domain) {
	if cur.project() == "" {
		w.counts.Unattributed++
	}
	if d.CPUTimeNS == nil || cur.VCPUs == 0 {
		w.counts.Silent++
		return
	}
	used, cpu, reset := cur.CPU.advance(*d.CPUTimeNS)
	if reset {
		w.counts.Resets++
	}
	if !cur.CPU.OK {
		cur.CPU, cur.Since = cpu, w.now
		return
	}
	begin, end := interval(cur.Since, w.now, wire.MaxInterval)
	if begin >= end {
		return // two polls within a millisecond
	}
	r := wire.Instance{Common: w.common(d.UUID, cur, begin, end), CPUPct: cpuPercent(used, max(1, w.now.since(cur.Since)), cur.VCPUs),
		MemoryActualBytes: d.MemoryActualBytes, MemoryRSSBytes: d.MemoryRSSBytes, MemoryUsableBytes: d.MemoryUsableBytes}
	w.add(TopicInstance, r.AppendKey, r.Append)
	cur.CPU, cur.Since = cpu, w.now
}

// gone keeps a domain that the snapshot does not have, as long as it may come
// back or its ports hold traffic.
func (w *work) gone(id uuid.UUID, last *domain) *domain {
	cur := *last
	cur.Gone = true
	cur.Ports = append([]port(nil), last.Ports...)
	if w.now.since(cur.Seen) > remember {
		for i := range cur.Ports {
			cur.Ports[i].Gone = true // sendPorts keeps those that hold something
		}
	}
	w.sendPorts(id, &cur)
	if w.now.since(cur.Seen) > remember && len(cur.Ports) == 0 {
		return nil
	}
	return &cur
}

// common fills what the three records share and takes the next sequence.
func (w *work) common(instance uuid.UUID, d *domain, begin, end int64) wire.Common {
	w.next.Sequence++
	return wire.Common{
		V: wire.Version, TS: end / 1000, Host: w.next.Host, RegionName: w.next.Region, InstanceUUID: instance,
		BeginMS: begin, EndMS: end, Epoch: w.next.Epoch, Sequence: w.next.Sequence,
		ProjectID: text(d.project()), UserID: text(d.Nova.UserID), FlavorName: text(d.Nova.FlavorName), VCPUs: d.VCPUs,
		InstanceName: text(d.title()), ImageID: text(d.Nova.ImageID), DomainID: strconv.Itoa(int(d.ID)), AgentVersion: w.agentVersion,
	}
}

// project is who pays: what Nova wrote into the domain, else whose a port is.
func (d *domain) project() string {
	if d.Nova.ProjectID != "" {
		return d.Nova.ProjectID
	}
	for _, p := range d.Ports {
		if p.Answer.ProjectID != "" {
			return p.Answer.ProjectID
		}
	}
	return ""
}

func (d *domain) title() string {
	if d.Nova.InstanceName != "" {
		return d.Nova.InstanceName
	}
	return d.Name
}

// text cuts a name to what a record may hold, at the end of a character.
func text(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= wire.MaxText {
		return s
	}
	end := wire.MaxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// add keeps a record's key and value in the step's buffer.
func (w *work) add(topic byte, key, value func([]byte) []byte) {
	w.buf = key(w.buf)
	split := len(w.buf)
	w.buf = value(w.buf)
	w.ends = append(w.ends, ending{topic, split, len(w.buf)})
}

func (w *work) records() []spool.Record {
	out := make([]spool.Record, len(w.ends))
	at := 0
	for i, e := range w.ends {
		out[i] = spool.Record{Topic: e.topic, Key: w.buf[at:e.key:e.key], Value: w.buf[e.key:e.value:e.value]}
		at = e.value
	}
	return out
}
