package wire

import (
	"fmt"
	"math/bits"
	"strings"
)

// DecodeError says why a record was refused. Its text is what ingest keeps
// beside the rejected record.
type DecodeError struct {
	Kind   string // port, instance or disk
	Field  string // empty: the record as a whole
	Reason string
}

func (e *DecodeError) Error() string {
	if e.Field == "" {
		return e.Kind + " record: " + e.Reason
	}
	return fmt.Sprintf("%s record: field %q: %s", e.Kind, e.Field, e.Reason)
}

// fields is a set of fields, one bit each, in the order of fieldNames.
type fields uint32

const (
	fieldV fields = 1 << iota
	fieldTS
	fieldHost
	fieldRegion
	fieldInstance
	fieldBegin
	fieldEnd
	fieldEpoch
	fieldSequence
	fieldProject
	fieldUser
	fieldFlavor
	fieldVCPUs
	fieldName
	fieldImage
	fieldDomain
	fieldAgent
	fieldOwn // the first of the kind's own fields
)

// nameOf gives a field's name; own are the kind's names from fieldOwn on.
func nameOf(f fields, own []string) string {
	common := [...]string{"v", "ts", "host", "region_name", "instance_uuid", "begin_ms", "end_ms", "epoch", "sequence", "project_id", "user_id",
		"flavor_name", "vcpus", "instance_name", "image_id", "domain_id", "agent_version"}
	if i := bits.TrailingZeros32(uint32(f)); i < len(common) {
		return common[i]
	}
	return own[bits.TrailingZeros32(uint32(f/fieldOwn))]
}

const (
	// always are the fields that any record has.
	always = fieldTS | fieldHost | fieldRegion | fieldInstance
	// identity are the fields that come with a version, and only with one.
	identity = fieldBegin | fieldEnd | fieldEpoch | fieldSequence
)

var (
	portFields     = []string{"port_uuid", "network_uuid", "rx_bytes", "tx_bytes"}
	instanceFields = []string{"cpu_pct", "memory_actual_bytes", "memory_rss_bytes", "memory_usable_bytes"}
	diskFields     = []string{"device", "read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes", "allocation_bytes", "physical_bytes"}
)

// DecodePort reads one record into *into, overwriting all of it; after an error
// its content means nothing. The error is a *DecodeError. Texts that equal
// those which into held are kept, so a record that is reused saves allocations.
func DecodePort(data []byte, into *Port) error {
	p := parser{data: data}
	for p.next() {
		switch string(p.name) {
		case "port_uuid":
			p.uuid(fieldOwn<<0, &into.PortUUID)
		case "network_uuid":
			p.uuid(fieldOwn<<1, &into.NetworkUUID)
		case "rx_bytes":
			p.whole(fieldOwn<<2, &into.RxBytes)
		case "tx_bytes":
			p.whole(fieldOwn<<3, &into.TxBytes)
		default:
			p.common(&into.Common)
		}
	}
	p.check(&into.Common, portFields)
	return p.err("port")
}

// DecodeInstance is DecodePort for CPU and memory. The three sizes may be null
// but not absent; cpu_pct is neither, as in the original.
func DecodeInstance(data []byte, into *Instance) error {
	p := parser{data: data}
	// One allocation for the three; a new one each time, because the last
	// record's pointers may have been kept.
	values := new([3]uint64)
	for p.next() {
		switch string(p.name) {
		case "cpu_pct":
			if p.once(fieldOwn << 0) {
				p.percent(&into.CPUPct)
			}
		case "memory_actual_bytes":
			p.optional(fieldOwn<<1, &into.MemoryActualBytes, &values[0])
		case "memory_rss_bytes":
			p.optional(fieldOwn<<2, &into.MemoryRSSBytes, &values[1])
		case "memory_usable_bytes":
			p.optional(fieldOwn<<3, &into.MemoryUsableBytes, &values[2])
		default:
			p.common(&into.Common)
		}
	}
	p.check(&into.Common, instanceFields)
	return p.err("instance")
}

// DecodeDisk is DecodePort for disks. The seven numbers may be null but not
// absent.
func DecodeDisk(data []byte, into *Disk) error {
	p := parser{data: data}
	values := new([7]uint64)
	for p.next() {
		switch string(p.name) {
		case "device":
			p.text(fieldOwn<<0, &into.Device)
		case "read_bytes":
			p.optional(fieldOwn<<1, &into.ReadBytes, &values[0])
		case "write_bytes":
			p.optional(fieldOwn<<2, &into.WriteBytes, &values[1])
		case "read_requests":
			p.optional(fieldOwn<<3, &into.ReadRequests, &values[2])
		case "write_requests":
			p.optional(fieldOwn<<4, &into.WriteRequests, &values[3])
		case "capacity_bytes":
			p.optional(fieldOwn<<5, &into.CapacityBytes, &values[4])
		case "allocation_bytes":
			p.optional(fieldOwn<<6, &into.AllocationBytes, &values[5])
		case "physical_bytes":
			p.optional(fieldOwn<<7, &into.PhysicalBytes, &values[6])
		default:
			p.common(&into.Common)
		}
	}
	p.check(&into.Common, diskFields)
	if p.reason == "" && into.Device == "" {
		p.failOn("device", "is empty")
	}
	return p.err("disk")
}

// common reads a field that all kinds share.
func (p *parser) common(c *Common) {
	switch string(p.name) {
	case "v":
		var v uint64
		if p.whole(fieldV, &v); p.reason == "" && v != Version {
			p.fail("version %d, this program reads version %d: update it before the agents", v, Version)
		}
		c.V = int(v)
	case "ts":
		p.moment(fieldTS, &c.TS, 1, maxTS)
	case "host":
		p.text(fieldHost, &c.Host)
	case "region_name":
		p.text(fieldRegion, &c.RegionName)
	case "instance_uuid":
		p.uuid(fieldInstance, &c.InstanceUUID)
	case "begin_ms":
		p.moment(fieldBegin, &c.BeginMS, 1, maxTS*1000+999)
	case "end_ms":
		p.moment(fieldEnd, &c.EndMS, 1, maxTS*1000+999)
	case "epoch":
		p.whole(fieldEpoch, &c.Epoch)
	case "sequence":
		p.whole(fieldSequence, &c.Sequence)
	case "project_id":
		p.text(fieldProject, &c.ProjectID)
	case "user_id":
		p.text(fieldUser, &c.UserID)
	case "flavor_name":
		p.text(fieldFlavor, &c.FlavorName)
	case "vcpus":
		var n uint64
		if p.whole(fieldVCPUs, &n); n > 1<<16-1 {
			p.fail("%d is more than %d", n, 1<<16-1)
		}
		c.VCPUs = uint16(n)
	case "instance_name":
		p.text(fieldName, &c.InstanceName)
	case "image_id":
		p.text(fieldImage, &c.ImageID)
	case "domain_id":
		p.text(fieldDomain, &c.DomainID)
	case "agent_version":
		p.text(fieldAgent, &c.AgentVersion)
	default:
		p.fail("is not known")
	}
}

// check looks at the record as a whole: nothing is missing, the interval is
// one, the identity is there exactly if the version is. It also clears what a
// reused record still held.
func (p *parser) check(c *Common, own []string) {
	if p.reason != "" {
		return
	}
	required := always | (fieldOwn<<len(own) - fieldOwn)
	if p.seen&fieldV != 0 {
		required |= identity
	} else if extra := p.seen & identity; extra != 0 {
		p.failOn(nameOf(extra&-extra, own), "comes without a version: set v to %d", Version)
		return
	}
	if missing := required &^ p.seen; missing != 0 {
		p.failOn(nameOf(missing&-missing, own), "is missing")
		return
	}
	c.clearUnless(p.seen)
	switch {
	case c.Host == "":
		p.failOn("host", "is empty")
	case c.RegionName == "":
		p.failOn("region_name", "is empty")
	case p.seen&fieldV == 0:
	case c.Epoch == 0:
		p.failOn("epoch", "is 0: an agent's epochs begin at 1")
	case c.Sequence == 0:
		p.failOn("sequence", "is 0: an agent's sequences begin at 1")
	case c.BeginMS >= c.EndMS:
		p.failOn("begin_ms", "%d is not before end_ms %d", c.BeginMS, c.EndMS)
	case c.EndMS-c.BeginMS > MaxInterval.Milliseconds():
		p.failOn("begin_ms", "%d is more than %d days before end_ms %d", c.BeginMS, int(MaxInterval.Hours())/24, c.EndMS)
	case c.EndMS/1000 != c.TS:
		p.failOn("ts", "%d is not the second of end_ms %d", c.TS, c.EndMS)
	}
}

// clearUnless empties the fields that this record did not have.
func (c *Common) clearUnless(seen fields) {
	if seen&fieldV == 0 {
		c.V, c.BeginMS, c.EndMS, c.Epoch, c.Sequence = 0, 0, 0, 0, 0
	}
	const attributes = fieldProject | fieldUser | fieldFlavor | fieldVCPUs | fieldName | fieldImage | fieldDomain | fieldAgent
	if seen&attributes == attributes {
		return
	}
	for _, x := range [...]struct {
		field fields
		text  *string
	}{{fieldProject, &c.ProjectID}, {fieldUser, &c.UserID}, {fieldFlavor, &c.FlavorName}, {fieldName, &c.InstanceName},
		{fieldImage, &c.ImageID}, {fieldDomain, &c.DomainID}, {fieldAgent, &c.AgentVersion}} {
		if seen&x.field == 0 {
			*x.text = ""
		}
	}
	if seen&fieldVCPUs == 0 {
		c.VCPUs = 0
	}
}

// err gives what went wrong, nil if nothing did.
func (p *parser) err(kind string) error {
	if p.reason == "" {
		return nil
	}
	return &DecodeError{Kind: kind, Field: p.field, Reason: p.reason}
}

// fail notes the first problem, of the field that is being read.
func (p *parser) fail(format string, args ...any) {
	p.failOn(string(p.name), format, args...)
}

// failOn notes a problem of a field; the first one stays.
func (p *parser) failOn(field, format string, args ...any) {
	if p.reason == "" {
		p.field = strings.ToValidUTF8(cut(field), "\ufffd")
		p.reason = strings.ToValidUTF8(fmt.Sprintf(format, args...), "\ufffd")
	}
}

// cut shortens what is quoted in a reason: a record may be a megabyte.
func cut[T ~string | ~[]byte](text T) string {
	const most = 60
	if len(text) <= most {
		return string(text)
	}
	return string(text[:most]) + "…"
}
