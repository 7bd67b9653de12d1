package exporter

import (
	"encoding/binary"
	"slices"
)

// rowsPerGroup bounds what a file in the making keeps in memory: one Parquet
// row group, one Arrow record.
const rowsPerGroup = 1 << 17

// table is one row group in memory, column by column. A column is a dictionary
// of words and one index per row, because usage repeats: the same resources
// with the same attributes hour after hour.
type table struct {
	schema Schema
	rows   int
	cols   []column
}

func newTable(schema Schema) *table {
	t := &table{schema: schema, cols: make([]column, len(schema.Fields))}
	for i := range t.cols {
		t.cols[i].dict.find = map[string]uint32{}
	}
	t.reset()
	return t
}

func (t *table) reset() {
	t.rows = 0
	for i := range t.cols {
		c := &t.cols[i]
		c.index = c.index[:0]
		c.dict.reset()
		c.direct = t.schema.Fields[i].unique
	}
}

// null is the index of a row without a value.
const null = ^uint32(0)

// column holds the values of one column: indices into dict or, when direct,
// one word per row and no indices. A row group starts with a dictionary and
// turns direct when that does not pay.
type column struct {
	index  []uint32
	dict   dictionary
	direct bool
}

// directFrom is how many words a dictionary has before its use is judged.
const directFrom = 1 << 12

// put appends a row's value.
func (c *column) put(word []byte) {
	if c.direct {
		c.dict.append(word)
		return
	}
	c.putWord(word)
	if n := len(c.dict.ends); n&(directFrom-1) == 0 && n > 0 && n > len(c.index)/4 {
		c.toDirect()
	}
}

// putWord is put for a column that keeps its indices whatever they cost.
func (c *column) putWord(word []byte) { c.index = append(c.index, c.dict.put(word)) }

// toDirect spells out the rows so far.
func (c *column) toDirect() {
	var spelled dictionary
	for _, i := range c.index {
		if i == null {
			return // a column with nulls keeps its indices
		}
	}
	for _, i := range c.index {
		spelled.append(c.dict.word(i))
	}
	c.dict.reset()
	c.dict.bytes = append(c.dict.bytes, spelled.bytes...)
	c.dict.ends = append(c.dict.ends, spelled.ends...)
	c.index, c.direct = c.index[:0], true
}

// toIndices takes toDirect back.
func (c *column) toIndices() {
	spelled := dictionary{bytes: slices.Clone(c.dict.bytes), ends: slices.Clone(c.dict.ends)}
	c.dict.reset()
	c.direct = false
	for row := range spelled.ends {
		c.putWord(spelled.word(uint32(row)))
	}
}

// putNull appends a row without a value. Only indices can say so.
func (c *column) putNull() {
	if c.direct {
		c.toIndices()
	}
	c.index = append(c.index, null)
}

// word is the value of a row; ok is false where it is null.
func (c *column) word(row int) (word []byte, ok bool) {
	if c.direct {
		return c.dict.word(uint32(row)), true
	}
	if c.index[row] == null {
		return nil, false
	}
	return c.dict.word(c.index[row]), true
}

// dictionary gives every distinct word a number in the order of appearance.
// Words are text as it is, decimals as 16 bytes big-endian, times and integers
// as 8 bytes little-endian.
type dictionary struct {
	bytes []byte
	ends  []uint32
	find  map[string]uint32
	next  []uint32 // the word that followed last time: usage repeats in the same order
	last  uint32
}

func (d *dictionary) reset() {
	d.bytes, d.ends, d.next, d.last = d.bytes[:0], d.ends[:0], d.next[:0], 0
	clear(d.find)
}

func (d *dictionary) len() int { return len(d.ends) }

func (d *dictionary) word(i uint32) []byte {
	var begin uint32
	if i > 0 {
		begin = d.ends[i-1]
	}
	return d.bytes[begin:d.ends[i]]
}

// append adds a word without looking whether it is there.
func (d *dictionary) append(word []byte) uint32 {
	d.bytes = append(d.bytes, word...)
	d.ends = append(d.ends, uint32(len(d.bytes)))
	return uint32(len(d.ends) - 1)
}

func (d *dictionary) put(word []byte) uint32 {
	if len(d.ends) > 0 {
		if guess := d.next[d.last]; string(d.word(guess)) == string(word) {
			d.last = guess
			return guess
		}
	}
	id, ok := d.find[string(word)]
	if !ok {
		id = d.append(word)
		d.find[string(word)] = id
		d.next = append(d.next, id)
	}
	d.next[d.last] = id
	d.last = id
	return id
}

func putInt64(c *column, v int64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], uint64(v))
	c.put(word[:])
}

// decimalWord turns 16 bytes little-endian into the big-endian word.
func decimalWord(raw []byte) (word [16]byte) {
	binary.BigEndian.PutUint64(word[:8], binary.LittleEndian.Uint64(raw[8:]))
	binary.BigEndian.PutUint64(word[8:], binary.LittleEndian.Uint64(raw))
	return word
}
