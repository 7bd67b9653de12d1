package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// PortBlock collects samples of ports column by column, the way ClickHouse
// stores them, so that millions of records cost no allocation each. A block is
// sent as one block with one deduplication token, as often as it takes, and
// used again after Reset. It is not safe for concurrent use.
type PortBlock struct {
	commonBlock
	port, network, rx, tx *fixedColumn
}

// InstanceBlock is PortBlock for CPU and memory.
type InstanceBlock struct {
	commonBlock
	cpu                 *fixedColumn
	actual, rss, usable *fixedColumn
}

// DiskBlock is PortBlock for disks.
type DiskBlock struct {
	commonBlock
	device *lowColumn
	values [7]*fixedColumn
}

// NewPortBlock returns an empty block.
func NewPortBlock() *PortBlock {
	b := &PortBlock{commonBlock: newCommonBlock("port_samples")}
	b.port, b.network = b.fixed("port_uuid", "UUID", 16), b.fixed("network_uuid", "UUID", 16)
	b.rx, b.tx = b.fixed("rx_bytes", "UInt64", 8), b.fixed("tx_bytes", "UInt64", 8)
	return b
}

// NewInstanceBlock returns an empty block.
func NewInstanceBlock() *InstanceBlock {
	b := &InstanceBlock{commonBlock: newCommonBlock("instance_samples")}
	b.cpu = b.fixed("cpu_pct", "Decimal(5, 2)", 4)
	b.actual, b.rss, b.usable = b.gauge("memory_actual_bytes"), b.gauge("memory_rss_bytes"), b.gauge("memory_usable_bytes")
	return b
}

// NewDiskBlock returns an empty block.
func NewDiskBlock() *DiskBlock {
	b := &DiskBlock{commonBlock: newCommonBlock("disk_samples")}
	b.device = b.low("device")
	for i, name := range []string{"read_bytes", "write_bytes", "read_requests", "write_requests", "capacity_bytes", "allocation_bytes", "physical_bytes"} {
		b.values[i] = b.gauge(name)
	}
	return b
}

// Append adds one sample; its strings are copied.
func (b *PortBlock) Append(s *Sample, port, network uuid.UUID, rx, tx uint64) {
	b.common(s)
	b.port.uuid(port)
	b.network.uuid(network)
	b.rx.uint64(rx)
	b.tx.uint64(tx)
}

// Append adds one sample; cpu is in hundredths of a percent.
func (b *InstanceBlock) Append(s *Sample, cpu int32, actual, rss, usable *uint64) {
	b.common(s)
	b.cpu.values = binary.LittleEndian.AppendUint32(b.cpu.values, uint32(cpu))
	b.actual.maybe(actual)
	b.rss.maybe(rss)
	b.usable.maybe(usable)
}

// Append adds one sample. The values are bytes read and written, requests of
// both, and the sizes capacity, allocation, physical.
func (b *DiskBlock) Append(s *Sample, device string, values [7]*uint64) {
	b.common(s)
	b.device.append(device)
	for i, v := range values {
		b.values[i].maybe(v)
	}
}

// commonBlock has the columns that the three tables share.
type commonBlock struct {
	table   string
	rows    int
	columns []blockColumn
	encoded []byte

	region, host, project, user, flavor, image, domain, agent *lowColumn
	epoch, sequence, begin, ts, instance, vcpus               *fixedColumn
	name                                                      *textColumn
	ingested                                                  *fixedColumn // used when a row names the moment
	dated                                                     bool
}

func newCommonBlock(table string) commonBlock {
	b := commonBlock{table: table}
	b.region, b.host = b.low("region"), b.low("host")
	b.epoch, b.sequence = b.fixed("epoch", "UInt64", 8), b.fixed("sequence", "UInt64", 8)
	b.begin, b.ts = b.fixed("begin", "DateTime64(3, 'UTC')", 8), b.fixed("ts", "DateTime64(3, 'UTC')", 8)
	b.instance = b.fixed("instance_uuid", "UUID", 16)
	b.project, b.user, b.flavor = b.low("project_id"), b.low("user_id"), b.low("flavor_name")
	b.vcpus = b.fixed("vcpus", "UInt16", 2)
	b.image = b.low("image_id")
	b.name = &textColumn{columnName: "instance_name"}
	b.columns = append(b.columns, b.name)
	b.domain, b.agent = b.low("domain_id"), b.low("agent_version")
	b.ingested = &fixedColumn{columnName: "ingested_at", kind: "DateTime('UTC')", width: 4}
	return b
}

func (b *commonBlock) low(name string) *lowColumn {
	c := &lowColumn{columnName: name}
	c.reset()
	b.columns = append(b.columns, c)
	return c
}

func (b *commonBlock) fixed(name, kind string, width int) *fixedColumn {
	c := &fixedColumn{columnName: name, kind: kind, width: width}
	b.columns = append(b.columns, c)
	return c
}

func (b *commonBlock) gauge(name string) *fixedColumn {
	c := b.fixed(name, "Nullable(UInt64)", 8)
	c.nullable = true
	return c
}

func (b *commonBlock) common(s *Sample) {
	b.rows++
	b.region.append(s.Region)
	b.host.append(s.Host)
	b.epoch.uint64(s.Epoch)
	b.sequence.uint64(s.Sequence)
	b.begin.uint64(uint64(s.Begin.UnixMilli()))
	b.ts.uint64(uint64(s.At.UnixMilli()))
	b.instance.uuid(s.InstanceUUID)
	b.project.append(s.ProjectID)
	b.user.append(s.UserID)
	b.flavor.append(s.FlavorName)
	b.vcpus.values = binary.LittleEndian.AppendUint16(b.vcpus.values, s.VCPUs)
	b.image.append(s.ImageID)
	b.name.append(s.InstanceName)
	b.domain.append(s.DomainID)
	b.agent.append(s.AgentVersion)
	// A block in which only some rows name the moment they arrived takes the end
	// of the sample for the others: a sample cannot have arrived before, and the
	// tiers look at everything that arrived since.
	at := s.IngestedAt
	if at.IsZero() {
		at = s.At
	} else {
		b.dated = true
	}
	b.ingested.values = binary.LittleEndian.AppendUint32(b.ingested.values, uint32(at.Unix()))
}

// Rows is the number of samples in the block.
func (b *commonBlock) Rows() int { return b.rows }

// Reset empties the block and keeps its memory.
func (b *commonBlock) Reset() {
	b.rows, b.dated, b.encoded = 0, false, b.encoded[:0]
	for _, c := range b.columns {
		c.reset()
	}
	b.ingested.reset()
}

func (b *commonBlock) sent() []blockColumn {
	if b.dated {
		return append(b.columns[:len(b.columns):len(b.columns)], b.ingested)
	}
	return b.columns
}

// sendBlock inserts the block. Sent again with the same rows and token it writes
// nothing twice; an empty token asks for no deduplication (readers drop repeats
// anyway). Its partitions are days; a block over many of them is unusual but
// right, so the server's guard of 100 is lifted.
func (s *Store) sendBlock(ctx context.Context, b *commonBlock, token string) error {
	if b.rows == 0 {
		return nil
	}
	columns := b.sent()
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name()
	}
	statement := "INSERT INTO " + b.table + " (" + strings.Join(names, ", ") + ")"
	ctx = insertSettings(ctx, token)
	if len(b.encoded) == 0 {
		b.encoded = binary.AppendUvarint(b.encoded, uint64(len(columns)))
		b.encoded = binary.AppendUvarint(b.encoded, uint64(b.rows))
		for _, c := range columns {
			b.encoded = appendText(b.encoded, c.name())
			b.encoded = appendText(b.encoded, c.typ())
			b.encoded = c.encode(b.encoded)
		}
	}
	err := s.conn.InsertFormat(ctx, "Native", statement, bytes.NewReader(b.encoded))
	if errors.Is(err, clickhouse.ErrFormatNativeUnsupported) {
		err = s.sendBatch(ctx, statement, columns) // the native protocol takes values only
	}
	if err != nil {
		return fmt.Errorf("insert %d rows into %s: %w", b.rows, b.table, describe(err))
	}
	return nil
}

func (s *Store) sendBatch(ctx context.Context, statement string, columns []blockColumn) error {
	batch, err := s.conn.PrepareBatch(ctx, statement)
	if err != nil {
		return err
	}
	defer batch.Close() //nolint:errcheck // after Send it has nothing to say, before it the first error counts
	for i, c := range columns {
		if err := batch.Column(i).Append(c.slice()); err != nil {
			return fmt.Errorf("column %s: %w", c.name(), err)
		}
	}
	return batch.Send()
}

// insertSettings are those of an insert that is stored when it is acknowledged.
func insertSettings(ctx context.Context, token string) context.Context {
	settings := map[string]any{"async_insert": 0, "max_partitions_per_insert_block": 0}
	if token != "" {
		settings["insert_deduplication_token"] = token
	}
	return Settings(ctx, settings)
}

// SendPorts inserts a block; see sendBlock.
func (s *Store) SendPorts(ctx context.Context, b *PortBlock, token string) error {
	return s.sendBlock(ctx, &b.commonBlock, token)
}

// SendInstances inserts a block.
func (s *Store) SendInstances(ctx context.Context, b *InstanceBlock, token string) error {
	return s.sendBlock(ctx, &b.commonBlock, token)
}

// SendDisks inserts a block.
func (s *Store) SendDisks(ctx context.Context, b *DiskBlock, token string) error {
	return s.sendBlock(ctx, &b.commonBlock, token)
}

// blockColumn is a column that is being filled.
type blockColumn interface {
	name() string
	typ() string
	encode(dst []byte) []byte // in the Native format of revision 0
	slice() any               // as clickhouse-go takes it
	reset()
}

func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// fixedColumn holds values of a fixed width, little-endian.
type fixedColumn struct {
	columnName, kind string
	width            int
	nullable         bool
	nulls            []byte
	values           []byte
}

func (c *fixedColumn) name() string { return c.columnName }
func (c *fixedColumn) typ() string  { return c.kind }
func (c *fixedColumn) reset()       { c.nulls, c.values = c.nulls[:0], c.values[:0] }

func (c *fixedColumn) uint64(v uint64) { c.values = binary.LittleEndian.AppendUint64(c.values, v) }

// uuid writes the two halves of a UUID, each as a number.
func (c *fixedColumn) uuid(u uuid.UUID) {
	c.uint64(binary.BigEndian.Uint64(u[:8]))
	c.uint64(binary.BigEndian.Uint64(u[8:]))
}

func (c *fixedColumn) maybe(v *uint64) {
	if v == nil {
		c.nulls = append(c.nulls, 1)
		c.uint64(0)
		return
	}
	c.nulls = append(c.nulls, 0)
	c.uint64(*v)
}

func (c *fixedColumn) encode(dst []byte) []byte {
	return append(append(dst, c.nulls...), c.values...)
}

func (c *fixedColumn) slice() any {
	n := len(c.values) / c.width
	at := func(i int) []byte { return c.values[i*c.width:] }
	switch {
	case c.kind == "UUID":
		out := make([]uuid.UUID, n)
		for i := range out {
			binary.BigEndian.PutUint64(out[i][:8], binary.LittleEndian.Uint64(at(i)))
			binary.BigEndian.PutUint64(out[i][8:], binary.LittleEndian.Uint64(at(i)[8:]))
		}
		return out
	case c.nullable:
		out := make([]*uint64, n)
		for i := range out {
			if c.nulls[i] == 0 {
				v := binary.LittleEndian.Uint64(at(i))
				out[i] = &v
			}
		}
		return out
	case c.kind == "UInt64":
		out := make([]uint64, n)
		for i := range out {
			out[i] = binary.LittleEndian.Uint64(at(i))
		}
		return out
	case c.kind == "UInt16":
		out := make([]uint16, n)
		for i := range out {
			out[i] = binary.LittleEndian.Uint16(at(i))
		}
		return out
	case strings.HasPrefix(c.kind, "Decimal"):
		out := make([]decimal.Decimal, n)
		for i := range out {
			out[i] = decimal.New(int64(int32(binary.LittleEndian.Uint32(at(i)))), -2)
		}
		return out
	case c.width == 4: // DateTime
		out := make([]time.Time, n)
		for i := range out {
			out[i] = time.Unix(int64(binary.LittleEndian.Uint32(at(i))), 0).UTC()
		}
		return out
	default: // DateTime64(3)
		out := make([]time.Time, n)
		for i := range out {
			out[i] = time.UnixMilli(int64(binary.LittleEndian.Uint64(at(i)))).UTC()
		}
		return out
	}
}

// textColumn holds a String column, lengths included.
type textColumn struct {
	columnName string
	values     []byte
}

func (c *textColumn) name() string             { return c.columnName }
func (c *textColumn) typ() string              { return "String" }
func (c *textColumn) reset()                   { c.values = c.values[:0] }
func (c *textColumn) append(text string)       { c.values = appendText(c.values, text) }
func (c *textColumn) encode(dst []byte) []byte { return append(dst, c.values...) }

func (c *textColumn) slice() any { return cutTexts(c.values) }

// cutTexts cuts strings that stand with their lengths one after another.
func cutTexts(values []byte) []string {
	var out []string
	for len(values) > 0 {
		n, width := binary.Uvarint(values)
		values = values[width:]
		out = append(out, string(values[:n]))
		values = values[n:]
	}
	return out
}

// lowColumn holds a LowCardinality(String) column: a dictionary, made while
// rows are added, and a key per row.
type lowColumn struct {
	columnName string
	index      map[string]uint32
	list       []string // the dictionary
	words      []byte   // the same, with lengths
	keys       []uint32
	last       string // of the row before: neighbours are often alike
	lastKey    uint32
}

func (c *lowColumn) name() string { return c.columnName }
func (c *lowColumn) typ() string  { return "LowCardinality(String)" }

func (c *lowColumn) reset() {
	if c.index == nil {
		c.index = map[string]uint32{}
	}
	clear(c.index)
	c.index[""] = 0 // the first word is the type's default
	c.list, c.words, c.keys = append(c.list[:0], ""), append(c.words[:0], 0), c.keys[:0]
	c.last, c.lastKey = "", 0
}

func (c *lowColumn) append(text string) {
	if text != c.last {
		key, ok := c.index[text]
		if !ok {
			text = strings.Clone(text)
			key = uint32(len(c.list))
			c.index[text] = key
			c.list = append(c.list, text)
			c.words = appendText(c.words, text)
		}
		c.last, c.lastKey = c.list[key], key
	}
	c.keys = append(c.keys, c.lastKey)
}

func (c *lowColumn) encode(dst []byte) []byte {
	const sharedDictionaries, additionalKeys, newDictionary = 1, 1 << 9, 1 << 10
	u64 := binary.LittleEndian.AppendUint64
	words := len(c.list)
	width := uint64(2)
	switch {
	case words <= 1<<8:
		width = 0
	case words <= 1<<16:
		width = 1
	}
	dst = u64(dst, sharedDictionaries)
	dst = u64(dst, additionalKeys|newDictionary|width)
	dst = u64(dst, uint64(words))
	dst = append(dst, c.words...)
	dst = u64(dst, uint64(len(c.keys)))
	for _, key := range c.keys {
		switch width {
		case 0:
			dst = append(dst, byte(key))
		case 1:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(key))
		default:
			dst = binary.LittleEndian.AppendUint32(dst, key)
		}
	}
	return dst
}

func (c *lowColumn) slice() any {
	out := make([]string, len(c.keys))
	for i, key := range c.keys {
		out[i] = c.list[key]
	}
	return out
}
