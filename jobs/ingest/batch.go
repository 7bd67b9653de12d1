package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// span is which offsets of a partition a batch holds.
type span struct {
	first, next int64
	of          *assigned // whose records they are; nil before the session said so
	from        int64     // all below it was in earlier batches, or is lost and noted: at most first
}

// batch is what is written at once: samples by kind, and what is none.
type batch struct {
	ports     *store.PortBlock
	instances *store.InstanceBlock
	disks     *store.DiskBlock
	late      []store.Late
	rejected  []store.Rejected

	ids     map[string]kadm.TopicID // of the topics, by name; shared, never written
	spans   map[place]*span
	regions map[string]map[place]bool
	records int
	bytes   int
	began   time.Time // when its first record came, by the clock
	cutoff  time.Time // samples that begin before it are late
	now     time.Time // the date by which samples are early or late
}

func newBatch(ids map[string]kadm.TopicID) *batch {
	return &batch{
		ids:   ids,
		ports: store.NewPortBlock(), instances: store.NewInstanceBlock(), disks: store.NewDiskBlock(),
		spans: map[place]*span{}, regions: map[string]map[place]bool{},
	}
}

func (b *batch) reset() {
	b.ports.Reset()
	b.instances.Reset()
	b.disks.Reset()
	clear(b.spans)
	clear(b.regions)
	clear(b.late)
	clear(b.rejected)
	b.late, b.rejected = b.late[:0], b.rejected[:0]
	b.records, b.bytes, b.began = 0, 0, time.Time{}
}

// token names what a batch holds, for one table. The same offsets of the same
// topic give the same token, so an insert that is repeated because its answer
// was lost is dropped. A topic that was made anew has other records at the same
// offsets: by its name alone they would be dropped too. And a batch that is
// made again later from the same offsets may divide its samples otherwise, since
// late and early are judged by the date: what moved to another table would be
// dropped with the rest. The earlier the date, the more are too early, so their
// number says which. Rows that are in a table twice then, readers drop.
func (b *batch) token(table string) string {
	places := make([]place, 0, len(b.spans))
	for p := range b.spans {
		places = append(places, p)
	}
	slices.SortFunc(places, comparePlaces)
	h := sha256.New()
	fmt.Fprintln(h, table, b.cutoff.Unix(), len(b.rejected))
	for _, p := range places {
		fmt.Fprintln(h, p.topic, b.ids[p.topic], p.partition, b.spans[p].first, b.spans[p].next)
	}
	return "ingest/" + hex.EncodeToString(h.Sum(nil)[:16])
}

func comparePlaces(a, b place) int {
	if a.topic != b.topic {
		if a.topic < b.topic {
			return -1
		}
		return 1
	}
	return int(a.partition) - int(b.partition)
}

// slots is how many records of a kind are kept for their texts: the record that
// a port or an instance sent before has the same names, and decoding into it
// copies none of them. It bounds memory, not correctness.
const slots = 1 << 13

// decoder turns records into samples.
type decoder struct {
	topics    wire.Topics
	seed      maphash.Seed
	ports     [slots]*wire.Port
	instances [slots]*wire.Instance
	disks     [slots]*wire.Disk
	sample    store.Sample
}

func newDecoder(topics wire.Topics) *decoder {
	return &decoder{topics: topics, seed: maphash.MakeSeed()}
}

func slotOf[T any](d *decoder, in *[slots]*T, key []byte) *T {
	i := maphash.Bytes(d.seed, key) % slots
	if in[i] == nil {
		in[i] = new(T)
	}
	return in[i]
}

// maxAhead is how far a sample may end in the future. A host's clock that is
// further ahead is broken, and its samples would be kept, and hold up what
// waits for closed hours, until then.
const maxAhead = 24 * time.Hour

// add puts a record into the batch: as a sample, as a late one, or rejected. It
// gives the span of the record's partition.
func (d *decoder) add(b *batch, r *kgo.Record) *span {
	at := place{r.Topic, r.Partition}
	s := b.spans[at]
	if s == nil {
		s = &span{first: r.Offset}
		b.spans[at] = s
	}
	s.next = r.Offset + 1
	if r.Attrs.IsControl() {
		return s
	}
	b.records++
	b.bytes += len(r.Value) + len(r.Key)
	var err error
	switch r.Topic {
	case d.topics.Port:
		x := slotOf(d, &d.ports, r.Key)
		if err = wire.DecodePort(r.Value, x); err == nil {
			if err = d.common(b, &x.Common); err == nil && !b.isLate("port", &d.sample, r, x.PortUUID[:]) {
				b.ports.Append(&d.sample, x.PortUUID, x.NetworkUUID, x.RxBytes, x.TxBytes)
			}
		}
	case d.topics.Instance:
		x := slotOf(d, &d.instances, r.Key)
		if err = wire.DecodeInstance(r.Value, x); err == nil {
			if err = d.common(b, &x.Common); err == nil && !b.isLate("instance", &d.sample, r, nil) {
				b.instances.Append(&d.sample, int32(x.CPUPct), x.MemoryActualBytes, x.MemoryRSSBytes, x.MemoryUsableBytes)
			}
		}
	default:
		x := slotOf(d, &d.disks, r.Key)
		if err = wire.DecodeDisk(r.Value, x); err == nil {
			if err = d.common(b, &x.Common); err == nil && !b.isLate("disk", &d.sample, r, []byte(x.Device)) {
				b.disks.Append(&d.sample, x.Device, [7]*uint64{x.ReadBytes, x.WriteBytes, x.ReadRequests, x.WriteRequests, x.CapacityBytes, x.AllocationBytes, x.PhysicalBytes})
			}
		}
	}
	if err != nil {
		b.rejected = append(b.rejected, store.Rejected{Topic: r.Topic, TopicID: uuid.UUID(b.ids[r.Topic]), Partition: r.Partition, Offset: r.Offset, Key: slices.Clone(r.Key), Record: slices.Clone(r.Value), Reason: err.Error()})
		return s
	}
	in := b.regions[d.sample.Region]
	if in == nil {
		in = map[place]bool{}
		b.regions[d.sample.Region] = in
	}
	if !in[at] {
		in[at] = true
	}
	return s
}

// common fills in what the kinds share. Records of the original producer tell no
// interval and no identity: they begin where they end, with epoch and sequence 0.
func (d *decoder) common(b *batch, c *wire.Common) error {
	end, begin := c.EndMS, c.BeginMS
	if c.Original() {
		end = c.TS * 1000
		begin = end
	}
	at := time.UnixMilli(end)
	if at.Sub(b.now) > maxAhead {
		return fmt.Errorf("field \"ts\": %s lies more than %s after the clock of ingest: see to the clock of host %s", at.UTC().Format(time.RFC3339), maxAhead, c.Host)
	}
	d.sample = store.Sample{
		Region: c.RegionName, Host: c.Host, Epoch: c.Epoch, Sequence: c.Sequence, Begin: time.UnixMilli(begin), At: at,
		InstanceUUID: c.InstanceUUID, ProjectID: c.ProjectID, UserID: c.UserID, FlavorName: c.FlavorName, VCPUs: c.VCPUs, ImageID: c.ImageID,
		InstanceName: c.InstanceName, DomainID: c.DomainID, AgentVersion: c.AgentVersion,
	}
	return nil
}

// isLate lists a sample that the tiers would not take up any more: an hour that
// it touches is not whole in the raw tier.
func (b *batch) isLate(kind string, s *store.Sample, r *kgo.Record, resource []byte) bool {
	if b.cutoff.IsZero() || !s.Begin.Before(b.cutoff) && s.At.After(b.cutoff) {
		return false
	}
	late := *s
	if late.Epoch == 0 {
		// A record of the original producer is told from others by its resource,
		// which the table has no column for: the sequence stands in. The views of
		// ClickHouse's own Kafka engine make the same.
		h := sha256.Sum256(resource)
		late.Sequence = uint64(h[0])<<48 | uint64(h[1])<<40 | uint64(h[2])<<32 | uint64(h[3])<<24 | uint64(h[4])<<16 | uint64(h[5])<<8 | uint64(h[6])
	}
	b.late = append(b.late, store.Late{Kind: kind, Sample: late, Record: slices.Clone(r.Value)})
	return true
}
