package store

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// Sample is what the three kinds of samples share: one reading of an agent
// over the interval [Begin, At), the identity that makes it count once, and
// the attributes in force.
type Sample struct {
	Region, Host string
	Epoch        uint64 // of the agent's sequence; 0 with Sequence 0: a record of the specification's producer
	Sequence     uint64
	Begin, At    time.Time // to the millisecond; Begin is At where the record does not tell

	InstanceUUID uuid.UUID
	ProjectID    string
	UserID       string
	FlavorName   string
	VCPUs        uint16
	ImageID      string
	InstanceName string
	DomainID     string
	AgentVersion string

	IngestedAt time.Time // zero: the server's clock when it is inserted
}

// PortSample is a row of port_samples: traffic of a port, as the guest sees it.
type PortSample struct {
	Sample
	PortUUID, NetworkUUID uuid.UUID
	RxBytes, TxBytes      uint64
}

// InstanceSample is a row of instance_samples. Fields that the hypervisor did
// not tell are nil.
type InstanceSample struct {
	Sample
	CPUPct            decimal.Decimal // 0 to 100 of all vCPUs together, two decimals
	MemoryActualBytes *uint64
	MemoryRSSBytes    *uint64
	MemoryUsableBytes *uint64
}

// DiskSample is a row of disk_samples: the first four are deltas over the
// interval, the others sizes at its end. Fields that were not told are nil.
type DiskSample struct {
	Sample
	Device          string
	ReadBytes       *uint64
	WriteBytes      *uint64
	ReadRequests    *uint64
	WriteRequests   *uint64
	CapacityBytes   *uint64
	AllocationBytes *uint64
	PhysicalBytes   *uint64
}

// maxBlock is the most rows that one insert sends. The server takes a block of
// this size as it is (max_insert_block_size is 1,048,449), so an insert has one
// deduplication token for one block.
const maxBlock = 500_000

// InsertPortSamples writes rows in their order, in blocks of up to 500,000. A
// repetition with the same rows and the same token writes nothing twice; an
// empty token asks for no deduplication (the tiers drop repeats anyway).
func (s *Store) InsertPortSamples(ctx context.Context, rows []PortSample, token string) error {
	return insertSamples(rows, token, NewPortBlock(), func(b *PortBlock, r *PortSample) {
		b.Append(&r.Sample, r.PortUUID, r.NetworkUUID, r.RxBytes, r.TxBytes)
	}, func(b *PortBlock, token string) error { return s.SendPorts(ctx, b, token) })
}

// InsertInstanceSamples is InsertPortSamples for CPU and memory.
func (s *Store) InsertInstanceSamples(ctx context.Context, rows []InstanceSample, token string) error {
	return insertSamples(rows, token, NewInstanceBlock(), func(b *InstanceBlock, r *InstanceSample) {
		b.Append(&r.Sample, int32(r.CPUPct.Shift(2).Round(0).IntPart()), r.MemoryActualBytes, r.MemoryRSSBytes, r.MemoryUsableBytes)
	}, func(b *InstanceBlock, token string) error { return s.SendInstances(ctx, b, token) })
}

// InsertDiskSamples is InsertPortSamples for disks.
func (s *Store) InsertDiskSamples(ctx context.Context, rows []DiskSample, token string) error {
	return insertSamples(rows, token, NewDiskBlock(), func(b *DiskBlock, r *DiskSample) {
		b.Append(&r.Sample, r.Device, [7]*uint64{r.ReadBytes, r.WriteBytes, r.ReadRequests, r.WriteRequests, r.CapacityBytes, r.AllocationBytes, r.PhysicalBytes})
	}, func(b *DiskBlock, token string) error { return s.SendDisks(ctx, b, token) })
}

func insertSamples[T any, B interface{ Reset() }](rows []T, token string, block B, add func(B, *T), send func(B, string) error) error {
	for n := 0; len(rows) > 0; n++ {
		count := min(len(rows), maxBlock)
		blockToken := token
		if token != "" && n > 0 {
			blockToken = token + "/" + strconv.Itoa(n)
		}
		block.Reset()
		for i := range rows[:count] {
			add(block, &rows[i])
		}
		if err := send(block, blockToken); err != nil {
			return err
		}
		rows = rows[count:]
	}
	return nil
}
