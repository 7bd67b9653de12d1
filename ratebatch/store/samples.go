package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

// sampleColumn is one column of an insert: its name and how it is filled.
type sampleColumn[T any] struct {
	name   string
	values func([]T) any
}

func column[T, V any](name string, get func(*T) V) sampleColumn[T] {
	return sampleColumn[T]{name, func(rows []T) any {
		out := make([]V, len(rows))
		for i := range rows {
			out[i] = get(&rows[i])
		}
		return out
	}}
}

// commonColumns are the columns of all three tables; of gives the shared part of a row.
func commonColumns[T any](of func(*T) *Sample) []sampleColumn[T] {
	return []sampleColumn[T]{
		column("region", func(r *T) string { return of(r).Region }),
		column("host", func(r *T) string { return of(r).Host }),
		column("epoch", func(r *T) uint64 { return of(r).Epoch }),
		column("sequence", func(r *T) uint64 { return of(r).Sequence }),
		column("begin", func(r *T) time.Time { return of(r).Begin }),
		column("ts", func(r *T) time.Time { return of(r).At }),
		column("instance_uuid", func(r *T) uuid.UUID { return of(r).InstanceUUID }),
		column("project_id", func(r *T) string { return of(r).ProjectID }),
		column("user_id", func(r *T) string { return of(r).UserID }),
		column("flavor_name", func(r *T) string { return of(r).FlavorName }),
		column("vcpus", func(r *T) uint16 { return of(r).VCPUs }),
		column("image_id", func(r *T) string { return of(r).ImageID }),
		column("instance_name", func(r *T) string { return of(r).InstanceName }),
		column("domain_id", func(r *T) string { return of(r).DomainID }),
		column("agent_version", func(r *T) string { return of(r).AgentVersion }),
	}
}

var portColumns = append(commonColumns(func(r *PortSample) *Sample { return &r.Sample }),
	column("port_uuid", func(r *PortSample) uuid.UUID { return r.PortUUID }),
	column("network_uuid", func(r *PortSample) uuid.UUID { return r.NetworkUUID }),
	column("rx_bytes", func(r *PortSample) uint64 { return r.RxBytes }),
	column("tx_bytes", func(r *PortSample) uint64 { return r.TxBytes }))

var instanceColumns = append(commonColumns(func(r *InstanceSample) *Sample { return &r.Sample }),
	column("cpu_pct", func(r *InstanceSample) decimal.Decimal { return r.CPUPct }),
	column("memory_actual_bytes", func(r *InstanceSample) *uint64 { return r.MemoryActualBytes }),
	column("memory_rss_bytes", func(r *InstanceSample) *uint64 { return r.MemoryRSSBytes }),
	column("memory_usable_bytes", func(r *InstanceSample) *uint64 { return r.MemoryUsableBytes }))

var diskColumns = append(commonColumns(func(r *DiskSample) *Sample { return &r.Sample }),
	column("device", func(r *DiskSample) string { return r.Device }),
	column("read_bytes", func(r *DiskSample) *uint64 { return r.ReadBytes }),
	column("write_bytes", func(r *DiskSample) *uint64 { return r.WriteBytes }),
	column("read_requests", func(r *DiskSample) *uint64 { return r.ReadRequests }),
	column("write_requests", func(r *DiskSample) *uint64 { return r.WriteRequests }),
	column("capacity_bytes", func(r *DiskSample) *uint64 { return r.CapacityBytes }),
	column("allocation_bytes", func(r *DiskSample) *uint64 { return r.AllocationBytes }),
	column("physical_bytes", func(r *DiskSample) *uint64 { return r.PhysicalBytes }))

// InsertPortSamples writes rows in their order, in blocks of up to 500,000. A
// repetition with the same rows and the same token writes nothing twice; an
// empty token asks for no deduplication (the tiers drop repeats anyway).
func (s *Store) InsertPortSamples(ctx context.Context, rows []PortSample, token string) error {
	return insertSamples(ctx, s, "port_samples", portColumns, func(r *PortSample) *Sample { return &r.Sample }, rows, token)
}

// InsertInstanceSamples is InsertPortSamples for CPU and memory.
func (s *Store) InsertInstanceSamples(ctx context.Context, rows []InstanceSample, token string) error {
	return insertSamples(ctx, s, "instance_samples", instanceColumns, func(r *InstanceSample) *Sample { return &r.Sample }, rows, token)
}

// InsertDiskSamples is InsertPortSamples for disks.
func (s *Store) InsertDiskSamples(ctx context.Context, rows []DiskSample, token string) error {
	return insertSamples(ctx, s, "disk_samples", diskColumns, func(r *DiskSample) *Sample { return &r.Sample }, rows, token)
}

func insertSamples[T any](ctx context.Context, s *Store, table string, columns []sampleColumn[T], of func(*T) *Sample, rows []T, token string) error {
	for block := 0; len(rows) > 0; block++ {
		n := min(len(rows), maxBlock)
		blockToken := token
		if token != "" && block > 0 {
			blockToken = token + "/" + strconv.Itoa(block)
		}
		if err := insertBlock(ctx, s, table, columns, of, rows[:n], blockToken); err != nil {
			return fmt.Errorf("insert %d rows into %s: %w", n, table, describe(err))
		}
		rows = rows[n:]
	}
	return nil
}

// insertBlock writes one block. Its partitions are days; a block over many of
// them is unusual but right, so the server's guard of 100 is lifted.
func insertBlock[T any](ctx context.Context, s *Store, table string, columns []sampleColumn[T], of func(*T) *Sample, rows []T, token string) error {
	settings := map[string]any{"async_insert": 0, "max_partitions_per_insert_block": 0}
	if token != "" {
		settings["insert_deduplication_token"] = token
	}
	for i := range rows {
		if !of(&rows[i]).IngestedAt.IsZero() {
			columns = append(columns[:len(columns):len(columns)], column("ingested_at", ingestedAt(of)))
			break
		}
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	batch, err := s.conn.PrepareBatch(Settings(ctx, settings), "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
	if err != nil {
		return err
	}
	defer batch.Close() //nolint:errcheck // after Send it has nothing to say, before it the first error counts
	for i, c := range columns {
		if err := batch.Column(i).Append(c.values(rows)); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return batch.Send()
}

// ingestedAt gives the moment a row arrived. A block in which only some rows
// name it takes the end of the sample for the others: a sample cannot have
// arrived before, and the tiers look at everything that arrived since.
func ingestedAt[T any](of func(*T) *Sample) func(*T) time.Time {
	return func(r *T) time.Time {
		if at := of(r).IngestedAt; !at.IsZero() {
			return at
		}
		return of(r).At
	}
}
