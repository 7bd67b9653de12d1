package libvirt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	rpc "github.com/digitalocean/go-libvirt"
)

const (
	statGroups = uint32(rpc.DomainStatsState | rpc.DomainStatsCPUTotal | rpc.DomainStatsBalloon |
		rpc.DomainStatsVCPU | rpc.DomainStatsInterface | rpc.DomainStatsBlock)
	// Not RUNNING: that leaves paused domains out. NOWAIT: a QEMU that does not
	// answer costs its own fields, not everybody's.
	statFlags = uint32(rpc.ConnectGetAllDomainsStatsActive | rpc.ConnectGetAllDomainsStatsNowait)
)

const (
	maxRecords = 16384 // domains of one host, as many as libvirt ever lists
	leastRef   = 28    // bytes of a record: the lengths of name and list, UUID and id
)

// decodeStats turns the answer to the bulk call into domains. Unknown fields
// and fields of an unexpected type are left out, so one bad field costs only
// itself. Devices go by their names: a block device's index shifts when another
// is unplugged. Bytes that are no such answer are an error.
func decodeStats(payload []byte) ([]Domain, error) {
	r := fields{b: payload}
	n := int(r.u32())
	if r.bad || n > maxRecords || n > len(r.b)/leastRef {
		return nil, fmt.Errorf("libvirtd's answer names %d domains and has %d bytes", n, len(payload))
	}
	out := make([]Domain, 0, n)
	for range n {
		out = append(out, r.domain())
		if r.bad {
			return nil, fmt.Errorf("libvirtd's answer breaks off or holds something unknown in the record of domain %d of %d", len(out), n)
		}
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("libvirtd's answer has %d bytes more than its %d domains", len(r.b), n)
	}
	return out, nil
}

// domain reads one record.
func (r *fields) domain() Domain {
	var d Domain
	d.Name = string(r.text())
	copy(d.UUID[:], r.take(len(d.UUID)))
	d.ID = int32(r.u32())
	nic, disk := index[Interface]{}, index[Disk]{}
	for n := r.u32(); n > 0 && !r.bad; n-- {
		field := r.text()
		v := r.value()
		group, rest := cut(field)
		switch string(group) {
		case "state":
			if v.kind == kindInt && string(rest) == "state" {
				d.State = State(int32(v.bits))
			}
		case "cpu":
			if string(rest) == "time" {
				d.CPUTimeNS = r.number(v, 1)
			}
		case "balloon":
			switch string(rest) {
			case "current":
				d.MemoryActualBytes = r.number(v, 1024)
			case "rss":
				d.MemoryRSSBytes = r.number(v, 1024)
			case "usable":
				d.MemoryUsableBytes = r.number(v, 1024)
			}
		case "vcpu":
			if n, ok := v.number(); ok && string(rest) == "current" && n <= math.MaxUint16 {
				d.VCPUs = uint16(n)
			}
		case "net":
			n, field := nic.at(rest)
			if n == nil {
				continue
			}
			switch string(field) {
			case "name":
				n.Name = string(v.text)
			case "rx.bytes":
				n.RxBytes = r.number(v, 1)
			case "tx.bytes":
				n.TxBytes = r.number(v, 1)
			}
		case "block":
			b, field := disk.at(rest)
			if b == nil {
				continue
			}
			switch string(field) {
			case "name":
				b.Device = string(v.text)
			case "rd.bytes":
				b.ReadBytes = r.number(v, 1)
			case "wr.bytes":
				b.WriteBytes = r.number(v, 1)
			case "rd.reqs":
				b.ReadRequests = r.number(v, 1)
			case "wr.reqs":
				b.WriteRequests = r.number(v, 1)
			case "capacity":
				b.CapacityBytes = r.number(v, 1)
			case "allocation":
				b.AllocationBytes = r.number(v, 1)
			case "physical":
				b.PhysicalBytes = r.number(v, 1)
			}
		}
	}
	// A device without a name cannot be told from another at the next poll.
	for _, n := range nic.items {
		if n.Name != "" {
			d.Interfaces = append(d.Interfaces, n)
		}
	}
	for _, b := range disk.items {
		if b.Device != "" {
			d.Disks = append(d.Disks, b)
		}
	}
	return d
}

// index collects "0.name", "0.rx.bytes", "1.name" … into items. libvirt sends
// them in order, so the last one is the usual hit.
type index[T any] struct {
	items   []T
	numbers []int
}

// maxDevices is beyond what QEMU can attach to one machine.
const maxDevices = 1024

func (x *index[T]) at(rest []byte) (*T, []byte) {
	head, field := cut(rest)
	n := decimal(head)
	if n < 0 || len(head) == len(rest) {
		return nil, nil // "count"
	}
	for i := len(x.numbers) - 1; i >= 0; i-- {
		if x.numbers[i] == n {
			return &x.items[i], field
		}
	}
	if len(x.items) == maxDevices {
		return nil, nil
	}
	var zero T
	x.items, x.numbers = append(x.items, zero), append(x.numbers, n)
	return &x.items[len(x.items)-1], field
}

// cut splits a field's name at its first dot; without one all of it is head.
func cut(name []byte) (head, rest []byte) {
	if i := bytes.IndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return name, nil
}

// decimal reads up to nine digits; anything else is -1.
func decimal(text []byte) int {
	if len(text) == 0 || len(text) > 9 {
		return -1
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// The types of libvirt's typed parameters.
const (
	kindInt     = 1
	kindUint    = 2
	kindLong    = 3
	kindUlong   = 4
	kindDouble  = 5
	kindBoolean = 6
	kindString  = 7
)

// value is what a field holds: bits of a number, or text.
type value struct {
	kind uint32
	bits uint64
	text []byte
}

// number gives whole numbers that are not negative.
func (v value) number() (uint64, bool) {
	switch v.kind {
	case kindInt:
		n := int32(v.bits)
		return uint64(n), n >= 0
	case kindUint, kindUlong:
		return v.bits, true
	case kindLong:
		return v.bits, int64(v.bits) >= 0
	}
	return 0, false
}

// fields reads XDR: big-endian words, texts padded to four bytes. Past the end
// it gives zeros, and from then on it is bad.
type fields struct {
	b    []byte
	bad  bool
	nums []uint64 // room for what the domains' pointers point to
}

func (r *fields) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.bad = nil, true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *fields) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *fields) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *fields) text() []byte {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	text := r.take(int(n))
	r.take(int(-n & 3))
	return text
}

func (r *fields) value() value {
	v := value{kind: r.u32()}
	switch v.kind {
	case kindInt, kindUint, kindBoolean:
		v.bits = uint64(r.u32())
	case kindLong, kindUlong, kindDouble:
		v.bits = r.u64()
	case kindString:
		v.text = r.text()
	default:
		r.b, r.bad = nil, true // how long it is nobody knows
	}
	return v
}

// number keeps a whole number times its unit where a pointer can point to it;
// nil where it is none. A poll of 500 domains has 15,000, so they are not
// allocated one by one.
func (r *fields) number(v value, unit uint64) *uint64 {
	n, ok := v.number()
	if !ok || n > math.MaxUint64/unit {
		return nil
	}
	if len(r.nums) == cap(r.nums) {
		r.nums = make([]uint64, 0, 1024) // the domains keep what was full
	}
	r.nums = append(r.nums, n*unit)
	return &r.nums[len(r.nums)-1]
}
