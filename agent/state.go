package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/libvirt"
)

// stateVersion grows when an older agent could no longer read the state.
const stateVersion = 1

// state is what survives the agent: the last readings of one host and where
// its sequence stands. It is never changed in place once it is saved; the next
// one shares what did not change.
type state struct {
	Version int    `json:"version"`
	Region  string `json:"region"`
	Host    string `json:"host"`
	Metered string `json:"hypervisor,omitempty"` // which libvirtd the readings are of
	// ResolvedBy is what the ports' answers follow from; HostOptions.ResolvedBy.
	ResolvedBy string                `json:"resolved_by,omitempty"`
	Epoch      uint64                `json:"epoch"`
	Sequence   uint64                `json:"sequence"` // of the last record
	BootID     string                `json:"boot_id"`  // what all stamps are relative to
	Polled     stamp                 `json:"polled"`   // the last whole poll
	Domains    map[uuid.UUID]*domain `json:"domains"`
}

// stamp is a moment on both clocks, of the state's boot.
type stamp struct {
	Wall  int64 `json:"w"` // Unix milliseconds
	Since int64 `json:"b"` // nanoseconds since boot
}

// domain is one incarnation of an instance on this host.
type domain struct {
	ID        int32        `json:"id"`
	Seen      stamp        `json:"seen"`            // the last snapshot that had it
	Gone      bool         `json:"gone,omitempty"`  // not in the last snapshot
	Ended     bool         `json:"ended,omitempty"` // it cannot come back: the machine was booted
	Described bool         `json:"described,omitempty"`
	Name      string       `json:"name,omitempty"`
	Nova      libvirt.Nova `json:"nova,omitzero"`
	VCPUs     uint16       `json:"vcpus,omitempty"`

	CPU   counter `json:"cpu,omitzero"` // nanoseconds
	Since stamp   `json:"since"`        // where the next instance record begins
	Ports []port  `json:"ports,omitempty"`
	Disks []disk  `json:"disks,omitempty"`
}

// counter is the value that the next difference starts from; OK is false
// before a baseline.
type counter struct {
	V  uint64 `json:"v,omitempty"`
	OK bool   `json:"k,omitempty"`
}

// port is a vNIC with the traffic that no record has yet.
type port struct {
	Name        string `json:"name"` // the host's device
	InterfaceID string `json:"iface,omitempty"`
	Gone        bool   `json:"gone,omitempty"`

	Rx     counter `json:"rx,omitzero"`
	Tx     counter `json:"tx,omitzero"`
	HeldRx uint64  `json:"held_rx,omitempty"`
	HeldTx uint64  `json:"held_tx,omitempty"`
	Since  stamp   `json:"since"`           // where the held traffic begins
	Until  stamp   `json:"until,omitzero"`  // and ends; zero: nothing is held
	Answer Port    `json:"answer,omitzero"` // the resolver's last one
}

// disk is a block device.
type disk struct {
	Device   string     `json:"dev"`
	Since    stamp      `json:"since"`
	Counters [4]counter `json:"c"`              // bytes read and written, requests read and written
	Told     uint8      `json:"told,omitempty"` // which of them were told last, one bit each
}

// newState begins without readings.
func newState(region, host string, now clock.Moment) *state {
	return &state{Version: stateVersion, Region: region, Host: host, Epoch: newEpoch(0, now), BootID: now.BootID, Domains: map[uuid.UUID]*domain{}}
}

// newEpoch is greater than any before: the clock tells a lost state's epochs
// apart, and adding one a clock that was set back.
func newEpoch(last uint64, now clock.Moment) uint64 {
	return max(last+1, uint64(max(1, now.Wall.UnixMicro())))
}

// readState reads a saved state and brings it to this boot. local says that the
// hypervisor runs on the agent's machine, so that no domain outlived a boot.
func readState(data []byte, region, host string, local bool, now clock.Moment) (*state, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("the saved readings of host %s cannot be read: %w: remove its folder in the state directory; one interval is lost then", host, err)
	}
	if s.Version > stateVersion {
		return nil, fmt.Errorf("the saved readings of host %s were written by a newer ratebatch-agent (version %d): install that again", host, s.Version)
	}
	if s.Region != region || s.Host != host {
		return nil, fmt.Errorf("the saved readings are of host %s in region %s, not of %s in %s: they were copied or the host was renamed; give it a state directory of its own", s.Host, s.Region, host, region)
	}
	if s.Domains == nil {
		s.Domains = map[uuid.UUID]*domain{}
	}
	if s.BootID == now.BootID {
		return &s, nil
	}
	s.BootID = now.BootID
	s.Epoch = newEpoch(s.Epoch, now)
	// Nothing was read after now: with a clock that is behind, all moves by what
	// it is behind at least, so that what was held keeps its length.
	wall := max(now.Wall.UnixMilli(), s.newest())
	rebase := func(t *stamp) {
		if *t == (stamp{}) {
			return
		}
		// Across boots only the wall clock tells how long ago it was.
		ago := wall - t.Wall
		t.Since = int64(now.Since) - ago*int64(time.Millisecond)
	}
	rebase(&s.Polled)
	for _, d := range s.Domains {
		rebase(&d.Seen)
		rebase(&d.Since)
		if local {
			d.Gone, d.Ended = true, true
		}
		for i := range d.Ports {
			rebase(&d.Ports[i].Since)
			rebase(&d.Ports[i].Until)
		}
		for i := range d.Disks {
			rebase(&d.Disks[i].Since)
		}
	}
	return &s, nil
}

// resolvedBy voids saved answers that other settings may have given: those
// without a network, which OVN would know, and those not to meter a port. What
// such a port moves waits for an answer again. Whose a port is stays true.
func (s *state) resolvedBy(by string) {
	if s.ResolvedBy == by {
		return
	}
	s.ResolvedBy = by
	for _, d := range s.Domains {
		for i := range d.Ports {
			if a := d.Ports[i].Answer; a.Ignored || a.Network == uuid.Nil {
				d.Ports[i].Answer = Port{}
			}
		}
	}
}

// newest is the wall clock's greatest stamp.
func (s *state) newest() int64 {
	newest := s.Polled.Wall
	for _, d := range s.Domains {
		newest = max(newest, d.Seen.Wall, d.Since.Wall)
		for i := range d.Ports {
			newest = max(newest, d.Ports[i].Since.Wall, d.Ports[i].Until.Wall)
		}
		for i := range d.Disks {
			newest = max(newest, d.Disks[i].Since.Wall)
		}
	}
	return newest
}

// Former is what a saved state says of a host that is metered no longer.
type Former struct {
	Region, Host string
	Hypervisor   string    // HostOptions.Hypervisor
	VNICs        int       // whose traffic was held, because nothing could say which ports they were
	Bytes        uint64    // of that traffic
	Polled       time.Time // for the last time
}

// ReadFormer reads a state that is not to be gone on with.
func ReadFormer(saved []byte) (Former, error) {
	var s state
	if err := json.Unmarshal(saved, &s); err != nil {
		return Former{}, fmt.Errorf("its readings cannot be read: %w", err)
	}
	out := Former{Region: s.Region, Host: s.Host, Hypervisor: s.Metered, Polled: time.UnixMilli(s.Polled.Wall).UTC()}
	for _, d := range s.Domains {
		for _, p := range d.Ports {
			if p.Until != (stamp{}) {
				out.VNICs++
				out.Bytes += p.HeldRx + p.HeldTx
			}
		}
	}
	return out, nil
}

func (s *state) encode() ([]byte, error) { return json.Marshal(s) }

func stampOf(m clock.Moment) stamp {
	return stamp{Wall: m.Wall.UnixMilli(), Since: int64(m.Since)}
}

// before is the moment d earlier.
func (t stamp) before(d time.Duration) stamp {
	return stamp{Wall: t.Wall - d.Milliseconds(), Since: t.Since - int64(d)}
}

// since is the time from an earlier stamp to t, never negative.
func (t stamp) since(earlier stamp) time.Duration {
	return time.Duration(max(0, t.Since-earlier.Since))
}

// interval gives the milliseconds [begin, end) between two stamps. The clock
// since boot says how long it was. Where the wall clock agrees, give or take its
// steering, begin is the last interval's end, so that intervals tile; where it
// was set, the interval keeps its length and lies before its end.
func interval(from, to stamp, longest time.Duration) (begin, end int64) {
	elapsed := to.since(from).Milliseconds()
	begin = from.Wall
	if drift := to.Wall - from.Wall - elapsed; max(drift, -drift) > 1000+elapsed/1000 {
		begin = to.Wall - elapsed
	}
	return max(begin, to.Wall-longest.Milliseconds()), to.Wall
}
