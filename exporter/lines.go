package exporter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Columns of export_lines.sql, in its order.
const (
	inRegion = iota
	inScope
	inBegin
	inEnd
	inMetric
	inResource
	inAttributes
	inUnit
	inQty
	inPrice
	inRule
	inBucket
	inPart
	inRevision
	inHash
	inColumns
)

// Columns of the dataset lines, in the order of linesSchema.
const (
	outID = iota
	outRegion
	outScope
	outBegin
	outEnd
	outMetric
	outResource
	outAttributes
	outUnit
	outQuantity
	outPrice
	outCurrency
	outRule
	outBucket
	outPart
	outRevision
	outCorrects
)

// lineBuilder turns blocks of rated lines into tables of the dataset lines and
// compares every commit with its rows on the way.
type lineBuilder struct {
	table  *table
	check  *commitCheck        // nil: the rows are corrections
	remap  [inColumns][]uint32 // word of the block's dictionary -> word of ours, null while unknown
	maps   mapWords
	series seriesIDs
	name   []byte // namespace and name of the line in hand
	id     []byte
	text   []byte // scratch
	times  map[uint32][]byte

	differs string    // name of the differences within the ids of their lines
	before  uuid.UUID // line of the row before
	again   int       // how many rows of that line came before
	totals  map[scopeCurrency]*wide
}

type scopeCurrency struct{ scope, currency string }

func newLineBuilder(check *commitCheck) *lineBuilder {
	return &lineBuilder{check: check, times: map[uint32][]byte{}}
}

// start directs the lines that follow into an empty table.
func (b *lineBuilder) start(t *table) {
	b.table = t
	b.maps.reset()
	b.series.reset()
}

// seriesIDs are the ids of the series of a row group. A series is known by the
// words of its five columns.
type seriesIDs struct {
	keys []seriesKey
	ids  []uuid.UUID
	find map[seriesKey]uint32
	next []uint32 // the series that followed last time
	last uint32
}

type seriesKey [5]uint32

func (s *seriesIDs) reset() {
	s.keys, s.ids, s.next, s.last = s.keys[:0], s.ids[:0], s.next[:0], 0
	if s.find == nil {
		s.find = map[seriesKey]uint32{}
	}
	clear(s.find)
}

// of gives the id of the series of a row of t.
func (s *seriesIDs) of(t *table, row int) *uuid.UUID {
	cols := t.cols
	key := seriesKey{cols[outRegion].index[row], cols[outScope].index[row], cols[outMetric].index[row], cols[outResource].index[row], cols[outAttributes].index[row]}
	if len(s.keys) > 0 {
		if guess := s.next[s.last]; s.keys[guess] == key {
			s.last = guess
			return &s.ids[guess]
		}
	}
	id, ok := s.find[key]
	if !ok {
		name := append([]byte(nil), '[')
		for i, out := range []int{outRegion, outScope, outMetric, outResource} {
			name = append(appendQuoted(name, cols[out].dict.word(key[i])), ',')
		}
		name = append(append(name, cols[outAttributes].dict.word(key[4])...), ']')
		id = uint32(len(s.keys))
		s.keys = append(s.keys, key)
		s.ids = append(s.ids, uuid.NewSHA1(LineNamespace, name))
		s.next = append(s.next, id)
		s.find[key] = id
	}
	s.next[s.last] = id
	s.last = id
	return &s.ids[id]
}

// validText gives text that every reader accepts: a byte that is no UTF-8 becomes
// U+FFFD and its two hexadecimal digits, so that two scopes stay two.
func validText(word []byte) []byte {
	if utf8.Valid(word) {
		return word
	}
	var out []byte
	for len(word) > 0 {
		r, size := utf8.DecodeRune(word)
		if r == utf8.RuneError && size == 1 {
			out = appendBroken(out, word[0])
		} else {
			out = append(out, word[:size]...)
		}
		word = word[size:]
	}
	return out
}

// appendBroken writes a byte that is no UTF-8.
func appendBroken(dst []byte, b byte) []byte {
	return append(append(dst, "\ufffd"...), hexDigits[b>>4], hexDigits[b&15])
}

// add takes rows [from, to) of a block.
func (b *lineBuilder) add(block *store.Block, from, to int) error {
	if len(block.Columns) != inColumns {
		return fmt.Errorf("export_lines gave %d columns, not %d", len(block.Columns), inColumns)
	}
	in, out := block.Columns, b.table.cols
	b.words(&in[inRegion], inRegion, &out[outRegion], from, to)
	b.words(&in[inScope], inScope, &out[outScope], from, to)
	b.words(&in[inMetric], inMetric, &out[outMetric], from, to)
	b.words(&in[inUnit], inUnit, &out[outUnit], from, to)
	b.words(&in[inRule], inRule, &out[outRule], from, to)
	b.words(&in[inBucket], inBucket, &out[outBucket], from, to)
	b.words(&in[inResource], inResource, &out[outResource], from, to)
	putTimes(&out[outBegin], &in[inBegin], from, to)
	putTimes(&out[outEnd], &in[inEnd], from, to)
	putDecimals(&out[outQuantity], &in[inQty], from, to)
	putDecimals(&out[outPrice], &in[inPrice], from, to)
	putUints(&out[outPart], &in[inPart], from, to)
	putUints(&out[outRevision], &in[inRevision], from, to)
	b.attributes(&in[inAttributes], &out[outAttributes], from, to)
	if b.check == nil {
		b.corrections(block, from, to)
		b.table.rows += to - from
		return nil
	}
	if err := b.check.add(block, from, to, &out[outCurrency]); err != nil {
		return err
	}
	b.ids(block, from, to)
	for range to - from {
		out[outCorrects].putNull()
	}
	b.table.rows += to - from
	return nil
}

// words copies a LowCardinality column: each word of the block's dictionary is
// looked up once, each row is one array access.
func (b *lineBuilder) words(in *store.Column, slot int, out *column, from, to int) {
	if in.Dict == nil { // a String: a correction's resource, or the table was altered
		for row := from; row < to; row++ {
			out.putWord(validText(in.String(row)))
		}
		return
	}
	remap := b.remap[slot][:0]
	for range len(in.Dict.Offsets) {
		remap = append(remap, null)
	}
	b.remap[slot] = remap
	for _, key := range in.Keys[from:to] {
		id := remap[key]
		if id == null {
			id = out.dict.put(validText(in.Dict.String(int(key))))
			remap[key] = id
		}
		out.index = append(out.index, id)
	}
}

func putTimes(out *column, in *store.Column, from, to int) {
	last, id := uint64(0), null
	for row := from; row < to; row++ {
		v := in.Uint(row)
		if id == null || v != last {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], v*1_000_000)
			last, id = v, out.dict.put(word[:])
		}
		out.index = append(out.index, id)
	}
}

func putDecimals(out *column, in *store.Column, from, to int) {
	for row := from; row < to; row++ {
		word := decimalWord(in.Raw(row))
		out.put(word[:])
	}
}

func putUints(out *column, in *store.Column, from, to int) {
	last, id := uint64(0), null
	for row := from; row < to; row++ {
		v := in.Uint(row)
		if id == null || v != last {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], v)
			last, id = v, out.dict.put(word[:])
		}
		out.index = append(out.index, id)
	}
}

// mapWords remembers for every word of the attributes column the map it was
// made of, in the block's form, so that a map seen before is recognized by
// comparing memory and not by writing JSON again.
type mapWords struct {
	raw  []byte // per word: count, then key word, value length per entry, then the values
	ends []uint32
	ids  []uint32 // per map its word of the column: maps that differ may have the same JSON
	find map[string]uint32
	keys dictionary // names of attributes
	next []uint32   // the map that followed last time
	last uint32
}

func (m *mapWords) reset() {
	m.raw, m.ends, m.ids, m.next, m.last = m.raw[:0], m.ends[:0], m.ids[:0], m.next[:0], 0
	if m.find == nil {
		m.find, m.keys.find = map[string]uint32{}, map[string]uint32{}
	}
	clear(m.find)
	m.keys.reset()
}

func (m *mapWords) word(i uint32) []byte {
	var begin uint32
	if i > 0 {
		begin = m.ends[i-1]
	}
	return m.raw[begin:m.ends[i]]
}

func (b *lineBuilder) attributes(in *store.Column, out *column, from, to int) {
	names, values := in.MapKeys, in.MapValues
	m := &b.maps
	remap := b.remap[inAttributes][:0]
	if names.Dict != nil {
		for range len(names.Dict.Offsets) {
			remap = append(remap, null)
		}
	}
	b.remap[inAttributes] = remap
	var begin uint64
	if from > 0 {
		begin = in.Ends[from-1]
	}
	for row := from; row < to; row++ {
		end := in.Ends[row]
		raw := b.text[:0]
		for e := begin; e < end; e++ {
			var key uint32
			if names.Dict != nil {
				if key = remap[names.Keys[e]]; key == null {
					key = m.keys.put(validText(names.Dict.String(int(names.Keys[e]))))
					remap[names.Keys[e]] = key
				}
			} else {
				key = m.keys.put(validText(names.String(int(e))))
			}
			raw = binary.LittleEndian.AppendUint32(raw, key)
			raw = binary.LittleEndian.AppendUint32(raw, values.Offsets[e+1]-values.Offsets[e])
		}
		if end > begin {
			raw = append(raw, values.Bytes[values.Offsets[begin]:values.Offsets[end]]...)
		}
		b.text = raw
		begin = end

		if len(m.ends) > 0 {
			if guess := m.next[m.last]; bytes.Equal(m.word(guess), raw) {
				m.last = guess
				out.index = append(out.index, m.ids[guess])
				continue
			}
		}
		id, ok := m.find[string(raw)]
		if !ok {
			id = uint32(len(m.ends))
			m.raw = append(m.raw, raw...)
			m.ends = append(m.ends, uint32(len(m.raw)))
			m.next = append(m.next, id)
			m.find[string(raw)] = id
			m.ids = append(m.ids, out.dict.put(b.attributesJSON(in, row)))
		}
		m.next[m.last] = id
		m.last = id
		out.index = append(out.index, m.ids[id])
	}
}

// attributesJSON writes the map of a row as one JSON object, names sorted.
func (b *lineBuilder) attributesJSON(in *store.Column, row int) []byte {
	type entry struct{ name, value []byte }
	var entries []entry
	var begin uint64
	if row > 0 {
		begin = in.Ends[row-1]
	}
	for e := begin; e < in.Ends[row]; e++ {
		entries = append(entries, entry{textOf(in.MapKeys, int(e)), in.MapValues.String(int(e))})
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return bytes.Compare(x.name, y.name) })
	text := []byte{'{'}
	for i, e := range entries {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(appendQuoted(text, e.name), ':')
		text = appendQuoted(text, e.value)
	}
	return append(text, '}')
}

// ids writes the line ids of the rows just added.
func (b *lineBuilder) ids(block *store.Block, from, to int) {
	begins, parts := &block.Columns[inBegin], &block.Columns[inPart]
	ids := &b.table.cols[outID].dict
	for row := from; row < to; row++ {
		series := b.series.of(b.table, b.table.rows+row-from)
		name := append(b.name[:0], series[:]...)
		name = append(name, b.time(uint32(begins.Uint(row)))...)
		b.name = strconv.AppendUint(append(name, '/'), parts.Uint(row), 10)
		b.id = appendUUID(b.id[:0], b.name)
		ids.append(b.id)
	}
}

// corrections fills what corrections have of their own: the currency stands in
// the row, and the id is made of the corrected line's: a UUIDv5 in its namespace.
func (b *lineBuilder) corrections(block *store.Block, from, to int) {
	begins, parts, out := &block.Columns[inBegin], &block.Columns[inPart], b.table.cols
	for row := from; row < to; row++ {
		currency := textOf(&block.Columns[inHash], row)
		out[outCurrency].putWord(currency)
		series := b.series.of(b.table, b.table.rows+row-from)
		name := append(b.name[:0], b.time(uint32(begins.Uint(row)))...)
		b.name = strconv.AppendUint(append(name, '/'), parts.Uint(row), 10)
		corrects := uuid.NewSHA1(*series, b.name)
		out[outCorrects].putWord([]byte(corrects.String()))
		// A line has two differences when more than its numbers changed.
		differs := b.differs
		if b.again++; corrects != b.before {
			b.before, b.again = corrects, 0
		}
		if b.again > 0 {
			differs += "/" + strconv.Itoa(b.again)
		}
		id := uuid.NewSHA1(corrects, []byte(differs))
		out[outID].dict.append([]byte(id.String()))
		key := scopeCurrency{string(textOf(&block.Columns[inScope], row)), string(currency)}
		total := b.totals[key]
		if total == nil {
			total = new(wide)
			b.totals[key] = total
		}
		total.add(wide128(block.Columns[inPrice].Raw(row)))
	}
}

// time is the text of a period's begin; a month has few of them.
func (b *lineBuilder) time(seconds uint32) []byte {
	text, ok := b.times[seconds]
	if !ok {
		text = time.Unix(int64(seconds), 0).UTC().AppendFormat(nil, time.RFC3339)
		b.times[seconds] = text
	}
	return text
}

// lineReader reads the lines of a range as full tables.
type lineReader struct {
	blocks  blockSource
	builder *lineBuilder
	block   store.Block
	at      int
	done    bool
}

// next fills t and says whether there was a row. After the last row it ends
// the check of the commits.
func (r *lineReader) next(t *table) (bool, error) {
	t.reset()
	r.builder.start(t)
	for t.rows < rowsPerGroup && !r.done {
		if r.at == r.block.Rows {
			err := r.blocks.Next(&r.block)
			if errors.Is(err, io.EOF) {
				r.done = true
				if r.builder.check != nil {
					if err := r.builder.check.end(); err != nil {
						return false, err
					}
				}
				break
			}
			if err != nil {
				return false, err
			}
			r.at = 0
		}
		to := min(r.block.Rows, r.at+rowsPerGroup-t.rows)
		if err := r.builder.add(&r.block, r.at, to); err != nil {
			return false, err
		}
		r.at = to
	}
	return t.rows > 0, nil
}
