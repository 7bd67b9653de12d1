// Package wire holds the records that go from the agents through Kafka to
// ingest: three kinds, one JSON object each. It is all that both sides share,
// so it imports nothing of the project.
//
// The fields of the specification's pipeline come unchanged; ours are added
// beside them. So records of the original producer, which know nothing of ours,
// still load here (V is 0), and ours still load into the original's tables,
// which skip what they do not know.
//
// Decoding is strict, because people are billed from what it lets through: a
// record is right in every field or it is refused with the field and the
// reason. Nothing is guessed, defaulted or rounded.
package wire

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Version is the only value of the field "v" so far. A new field means a new
// version: an older reader then refuses the record with "version 2" instead of
// dropping what it does not understand. Readers are updated before agents.
const Version = 1

// Names of the topics where nothing else is configured, as in the specification.
const (
	TopicPort     = "port-stats"
	TopicInstance = "instance-stats"
	TopicDisk     = "disk-stats"
)

// Topics names the topic of each kind.
type Topics struct {
	Port, Instance, Disk string
}

// DefaultTopics are the specification's.
func DefaultTopics() Topics { return Topics{TopicPort, TopicInstance, TopicDisk} }

// All lists the three names: port, instance, disk.
func (t Topics) All() []string { return []string{t.Port, t.Instance, t.Disk} }

// MaxInterval is the longest interval that one record may cover. Usage older
// than the hourly tier (3 months) cannot be kept anyway; a longer interval is
// a broken clock, and would be spread over that many hours.
const MaxInterval = 92 * 24 * time.Hour

// MaxText is the longest text of a field, in bytes. Nova's longest display
// name is 255 characters of up to 4 bytes.
const MaxText = 1024

// maxTS is the last second that the tiers' 32-bit times hold, less MaxInterval
// for the buckets of an interval that ends there.
const maxTS = 1<<32 - 1 - int64(MaxInterval/time.Second)

// Common is what the three kinds share: when, where and whose.
type Common struct {
	V            int       `json:"v,omitempty"` // 0: a record of the specification's original producer
	TS           int64     `json:"ts"`          // Unix seconds: end of the interval, rounded down
	Host         string    `json:"host"`
	RegionName   string    `json:"region_name"`
	InstanceUUID uuid.UUID `json:"instance_uuid"`

	// Ours. The first four are there if and only if V is.
	BeginMS  int64  `json:"begin_ms,omitempty"` // Unix milliseconds; the interval is [BeginMS, EndMS)
	EndMS    int64  `json:"end_ms,omitempty"`
	Epoch    uint64 `json:"epoch,omitempty"`    // identity of a sample: (region, host, epoch, sequence);
	Sequence uint64 `json:"sequence,omitempty"` // both at least 1, or both 0 where V is 0

	ProjectID    string `json:"project_id,omitempty"`
	UserID       string `json:"user_id,omitempty"`
	FlavorName   string `json:"flavor_name,omitempty"`
	VCPUs        uint16 `json:"vcpus,omitempty"`
	InstanceName string `json:"instance_name,omitempty"`
	ImageID      string `json:"image_id,omitempty"`
	DomainID     string `json:"domain_id,omitempty"` // libvirt's: another one means the guest was started anew
	AgentVersion string `json:"agent_version,omitempty"`
}

// Original says whether the specification's original producer made the record.
// It has no interval and no identity of its own.
func (c *Common) Original() bool { return c.V == 0 }

// Port is the traffic of a port over the interval, in bytes as the guest sees it.
type Port struct {
	Common
	PortUUID    uuid.UUID `json:"port_uuid"`
	NetworkUUID uuid.UUID `json:"network_uuid"`
	RxBytes     uint64    `json:"rx_bytes"`
	TxBytes     uint64    `json:"tx_bytes"`
}

// Instance is the CPU use of an instance over the interval and its memory at
// the end. What the hypervisor did not tell is nil (null on the wire).
type Instance struct {
	Common
	CPUPct            Hundredths `json:"cpu_pct"` // of all vCPUs together, 0 to 100.00
	MemoryActualBytes *uint64    `json:"memory_actual_bytes"`
	MemoryRSSBytes    *uint64    `json:"memory_rss_bytes"`
	MemoryUsableBytes *uint64    `json:"memory_usable_bytes"`
}

// Disk is what a disk did over the interval (the first four) and its sizes at
// the end, in bytes. What was not told is nil (null on the wire).
type Disk struct {
	Common
	Device          string  `json:"device"` // libvirt's target, such as vda
	ReadBytes       *uint64 `json:"read_bytes"`
	WriteBytes      *uint64 `json:"write_bytes"`
	ReadRequests    *uint64 `json:"read_requests"`
	WriteRequests   *uint64 `json:"write_requests"`
	CapacityBytes   *uint64 `json:"capacity_bytes"`
	AllocationBytes *uint64 `json:"allocation_bytes"`
	PhysicalBytes   *uint64 `json:"physical_bytes"`
}

// Key is the record's Kafka key: the port's UUID. All records of a port share a
// partition, so they stay in order.
func (r *Port) Key() []byte { return r.AppendKey(nil) }

// AppendKey is Key without an allocation.
func (r *Port) AppendKey(dst []byte) []byte { return appendUUID(dst, r.PortUUID) }

// Key is the record's Kafka key: the instance's UUID.
func (r *Instance) Key() []byte { return r.AppendKey(nil) }

// AppendKey is Key without an allocation.
func (r *Instance) AppendKey(dst []byte) []byte { return appendUUID(dst, r.InstanceUUID) }

// Key is the record's Kafka key: the instance's UUID, a slash, the device.
func (r *Disk) Key() []byte { return r.AppendKey(nil) }

// AppendKey is Key without an allocation.
func (r *Disk) AppendKey(dst []byte) []byte {
	return append(append(appendUUID(dst, r.InstanceUUID), '/'), r.Device...)
}

// Hundredths is a decimal with two digits after the point: 1234 is 12.34. On
// the wire it is a JSON number; as a whole number here it stays exact.
type Hundredths int32

// maxPercent is 100.00 %.
const maxPercent Hundredths = 100_00

// String gives the decimal, always with two digits: 12.34, 0.50.
func (h Hundredths) String() string { return string(h.append(nil)) }

// MarshalJSON gives the decimal as a JSON number.
func (h Hundredths) MarshalJSON() ([]byte, error) { return h.append(nil), nil }

// UnmarshalJSON takes what the wire takes.
func (h *Hundredths) UnmarshalJSON(text []byte) error {
	p := parser{data: text}
	p.percent(h)
	if p.reason == "" && p.at != len(text) {
		p.fail("%s is not a percentage", text)
	}
	if p.reason != "" {
		return fmt.Errorf("percentage: %s", p.reason)
	}
	return nil
}

func (h Hundredths) append(dst []byte) []byte {
	if h < 0 { // not valid on the wire; kept readable in a log
		dst, h = append(dst, '-'), -h
	}
	dst = strconv.AppendUint(dst, uint64(h/100), 10)
	return append(dst, '.', '0'+byte(h/10%10), '0'+byte(h%10))
}
