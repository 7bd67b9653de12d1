package libvirt

import (
	"math"
	"strconv"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
)

const (
	statGroups = uint32(rpc.DomainStatsState | rpc.DomainStatsCPUTotal | rpc.DomainStatsBalloon |
		rpc.DomainStatsVCPU | rpc.DomainStatsInterface | rpc.DomainStatsBlock)
	// Not RUNNING: that leaves paused domains out. NOWAIT: a QEMU that does not
	// answer costs its own fields, not everybody's.
	statFlags = uint32(rpc.ConnectGetAllDomainsStatsActive | rpc.ConnectGetAllDomainsStatsNowait)
)

// decode turns one record of the bulk call into a Domain. Unknown fields and
// fields of an unexpected type are left out, so one bad field costs only
// itself. Devices go by their names: a block device's index shifts when another
// is unplugged.
func decode(rec *rpc.DomainStatsRecord) Domain {
	d := Domain{UUID: uuid.UUID(rec.Dom.UUID), ID: rec.Dom.ID, Name: rec.Dom.Name}
	// One allocation for all numbers: a poll of 500 domains has 15,000.
	nums := make([]uint64, 0, len(rec.Params))
	num := func(p *rpc.TypedParam, unit uint64) *uint64 {
		v, ok := number(p.Value.I)
		if !ok || v > math.MaxUint64/unit {
			return nil
		}
		nums = append(nums, v*unit)
		return &nums[len(nums)-1]
	}
	nic, disk := index[Interface]{}, index[Disk]{}
	for i := range rec.Params {
		p := &rec.Params[i]
		group, rest, _ := strings.Cut(p.Field, ".")
		switch group {
		case "state":
			if v, ok := p.Value.I.(int32); ok && rest == "state" {
				d.State = State(v)
			}
		case "cpu":
			if rest == "time" {
				d.CPUTimeNS = num(p, 1)
			}
		case "balloon":
			switch rest {
			case "current":
				d.MemoryActualBytes = num(p, 1024)
			case "rss":
				d.MemoryRSSBytes = num(p, 1024)
			case "usable":
				d.MemoryUsableBytes = num(p, 1024)
			}
		case "vcpu":
			if v, ok := number(p.Value.I); ok && rest == "current" && v <= math.MaxUint16 {
				d.VCPUs = uint16(v)
			}
		case "net":
			n, field := nic.at(rest)
			if n == nil {
				continue
			}
			switch field {
			case "name":
				n.Name, _ = p.Value.I.(string)
			case "rx.bytes":
				n.RxBytes = num(p, 1)
			case "tx.bytes":
				n.TxBytes = num(p, 1)
			}
		case "block":
			b, field := disk.at(rest)
			if b == nil {
				continue
			}
			switch field {
			case "name":
				b.Device, _ = p.Value.I.(string)
			case "rd.bytes":
				b.ReadBytes = num(p, 1)
			case "wr.bytes":
				b.WriteBytes = num(p, 1)
			case "rd.reqs":
				b.ReadRequests = num(p, 1)
			case "wr.reqs":
				b.WriteRequests = num(p, 1)
			case "capacity":
				b.CapacityBytes = num(p, 1)
			case "allocation":
				b.AllocationBytes = num(p, 1)
			case "physical":
				b.PhysicalBytes = num(p, 1)
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

func (x *index[T]) at(rest string) (*T, string) {
	head, field, ok := strings.Cut(rest, ".")
	if !ok {
		return nil, "" // "count"
	}
	n, err := strconv.Atoi(head)
	if err != nil {
		return nil, ""
	}
	for i := len(x.numbers) - 1; i >= 0; i-- {
		if x.numbers[i] == n {
			return &x.items[i], field
		}
	}
	if len(x.items) == maxDevices {
		return nil, ""
	}
	var zero T
	x.items, x.numbers = append(x.items, zero), append(x.numbers, n)
	return &x.items[len(x.items)-1], field
}

func number(v any) (uint64, bool) {
	switch v := v.(type) {
	case uint64:
		return v, true
	case uint32:
		return uint64(v), true
	case int64:
		return uint64(v), v >= 0
	case int32:
		return uint64(v), v >= 0
	}
	return 0, false
}
