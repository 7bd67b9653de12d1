package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/ratebatch/ratebatch/agent/clock"
)

// A file of the spool, integers little-endian:
//
//	 0  magic "RBSPOOL" and the version byte
//	 8  kind: 'R' records, 'S' state
//	 9  number of the batch (8); for a state, the last batch that it counts as written
//	17  when: Unix milliseconds (8), boot id (16), nanoseconds since boot (8)
//	49  records (4), length unpacked (4), length packed (4)
//	61  payload, zstd
//	    CRC-32C over all before (4)
const (
	magic      = "RBSPOOL"
	version    = 1
	headerSize = 61
	footerSize = 4

	// maxPayload bounds what a damaged length can make us allocate. A host with
	// 10,000 domains writes 25 MB a poll.
	maxPayload = 256 << 20
)

// errDamaged marks a file that is not what was written.
var errDamaged = errors.New("damaged")

// errNewer marks a file of a later version of the agent.
var errNewer = errors.New("written by a newer version of ratebatch-agent")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// codec is shared by all spools of a process: an encoder keeps a window per
// goroutine, which matters on a compute node.
var codec = sync.OnceValue(func() (c struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}) {
	var err error
	c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
	if err == nil {
		c.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPayload), zstd.WithDecoderLowmem(true))
	}
	if err != nil {
		panic(err) // only wrong options of ours can do that
	}
	return c
})

type header struct {
	kind    byte
	number  uint64
	when    clock.Moment
	records int
	raw     int
	packed  int
}

func encodeFile(h header, payload []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(payload)/4+footerSize+64)
	out = codec().enc.EncodeAll(payload, out)
	h.raw, h.packed = len(payload), len(out)-headerSize
	copy(out, magic)
	out[7], out[8] = version, h.kind
	binary.LittleEndian.PutUint64(out[9:], h.number)
	binary.LittleEndian.PutUint64(out[17:], uint64(h.when.Wall.UnixMilli()))
	id, _ := uuid.Parse(h.when.BootID) // a boot id that is none is kept as zero: then only the wall clock tells the age
	copy(out[25:], id[:])
	binary.LittleEndian.PutUint64(out[41:], uint64(h.when.Since))
	binary.LittleEndian.PutUint32(out[49:], uint32(h.records))
	binary.LittleEndian.PutUint32(out[53:], uint32(h.raw))
	binary.LittleEndian.PutUint32(out[57:], uint32(h.packed))
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// decodeHeader reads what stands before the payload; size is the file's.
func decodeHeader(data []byte, kind byte, size int64) (header, error) {
	var h header
	if len(data) < headerSize || string(data[:7]) != magic || data[8] != kind {
		return h, fmt.Errorf("%w: not a file of the spool", errDamaged)
	}
	if data[7] > version {
		return h, errNewer
	}
	id := uuid.UUID(data[25:41])
	h = header{
		kind:   kind,
		number: binary.LittleEndian.Uint64(data[9:]),
		when: clock.Moment{
			Wall:   time.UnixMilli(int64(binary.LittleEndian.Uint64(data[17:]))),
			BootID: id.String(),
			Since:  time.Duration(binary.LittleEndian.Uint64(data[41:])),
		},
		records: int(binary.LittleEndian.Uint32(data[49:])),
		raw:     int(binary.LittleEndian.Uint32(data[53:])),
		packed:  int(binary.LittleEndian.Uint32(data[57:])),
	}
	if want := int64(headerSize + h.packed + footerSize); size != want || h.raw > maxPayload {
		return h, fmt.Errorf("%w: %d bytes where the header says %d", errDamaged, size, want)
	}
	return h, nil
}

// decodeFile checks a whole file and gives its payload.
func decodeFile(data []byte, kind byte) (header, []byte, error) {
	h, err := decodeHeader(data, kind, int64(len(data)))
	if err != nil {
		return h, nil, err
	}
	end := headerSize + h.packed
	if crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
		return h, nil, fmt.Errorf("%w: the checksum differs", errDamaged)
	}
	payload, err := codec().dec.DecodeAll(data[headerSize:end], make([]byte, 0, h.raw))
	if err != nil || len(payload) != h.raw {
		return h, nil, fmt.Errorf("%w: the payload does not unpack: %w", errDamaged, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return h, payload, nil
}

// Record is one record on its way to Kafka.
type Record struct {
	Topic byte // which of the three topics, in the meaning of whoever writes and reads the spool
	Key   []byte
	Value []byte
}

func encodeRecords(records []Record) []byte {
	size := 0
	for _, r := range records {
		size += 1 + 2*binary.MaxVarintLen32 + len(r.Key) + len(r.Value)
	}
	out := make([]byte, 0, size)
	for _, r := range records {
		out = append(out, r.Topic)
		out = binary.AppendUvarint(out, uint64(len(r.Key)))
		out = append(out, r.Key...)
		out = binary.AppendUvarint(out, uint64(len(r.Value)))
		out = append(out, r.Value...)
	}
	return out
}

// decodeRecords gives records that share data's memory.
func decodeRecords(data []byte, n int) ([]Record, error) {
	bytes := func() ([]byte, bool) {
		length, width := binary.Uvarint(data)
		if width <= 0 || length > uint64(len(data)-width) {
			return nil, false
		}
		value := data[width : width+int(length)]
		data = data[width+int(length):]
		return value, true
	}
	out := make([]Record, 0, min(n, len(data)/3))
	for len(data) > 0 {
		r := Record{Topic: data[0]}
		data = data[1:]
		var ok, also bool
		r.Key, ok = bytes()
		r.Value, also = bytes()
		if !ok || !also {
			return nil, fmt.Errorf("%w: record %d of %d is cut off", errDamaged, len(out)+1, n)
		}
		out = append(out, r)
	}
	if len(out) != n {
		return nil, fmt.Errorf("%w: %d records where the header says %d", errDamaged, len(out), n)
	}
	return out, nil
}
