package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// Block is a piece of a query's result, column by column, as ClickHouse's
// Native format carries it. Rows scanned one by one cost an allocation per
// value; an export of millions of lines reads blocks instead. The memory of a
// Block belongs to its reader and is overwritten by the next block.
type Block struct {
	Rows    int
	Columns []Column
}

// Column holds a Block's values of one column. Which fields are filled depends
// on the type: numbers, dates, decimals and UUIDs have Fixed, little-endian and
// Width bytes each; String has Offsets and Bytes; LowCardinality has Keys into
// Dict; Map has Ends into MapKeys and MapValues.
type Column struct {
	Name, Type string

	Width int
	Fixed []byte

	Offsets []uint32 // one more than there are values
	Bytes   []byte

	Keys []uint32
	Dict *Column

	Ends               []uint64
	MapKeys, MapValues *Column
}

// String is the i-th value of a String column, valid until the next block.
func (c *Column) String(i int) []byte { return c.Bytes[c.Offsets[i]:c.Offsets[i+1]] }

// Text is the i-th value of a String or LowCardinality(String) column, copied.
func (c *Column) Text(i int) string {
	if c.Dict != nil {
		return string(c.Dict.String(int(c.Keys[i])))
	}
	return string(c.String(i))
}

// Uint is the i-th value of an unsigned column of up to 8 bytes, DateTime and
// enumerations included.
func (c *Column) Uint(i int) uint64 {
	switch c.Width {
	case 1:
		return uint64(c.Fixed[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(c.Fixed[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(c.Fixed[4*i:]))
	default:
		return binary.LittleEndian.Uint64(c.Fixed[8*i:])
	}
}

// Raw is the i-th value of a column of fixed width, little-endian.
func (c *Column) Raw(i int) []byte { return c.Fixed[i*c.Width : (i+1)*c.Width] }

// BlockReader reads a query's result block by block. Over HTTP the blocks are
// the server's own; over the native protocol clickhouse-go hands out rows only,
// so they are gathered into blocks of the same form, which is slower.
type BlockReader struct {
	name   string
	stream io.ReadCloser
	in     *nativeInput
	rows   *rowBlocks
}

// Blocks runs the named query and returns its result as blocks. The caller
// closes the reader.
func (s *Store) Blocks(ctx context.Context, name string, params Params) (*BlockReader, error) {
	return s.blocksOf(ctx, name, SQL(name), params)
}

func (s *Store) blocksOf(ctx context.Context, name, text string, params Params) (*BlockReader, error) {
	ctx = WithParams(ctx, params)
	stream, err := s.conn.QueryFormat(ctx, "Native", text)
	if errors.Is(err, clickhouse.ErrFormatNativeUnsupported) {
		rows, err := s.conn.Query(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, describe(err))
		}
		return &BlockReader{name: name, rows: newRowBlocks(rows)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, describe(err))
	}
	return &BlockReader{name: name, stream: stream, in: newNativeInput(stream)}, nil
}

// Close ends the query; the rest of its result is dropped.
func (r *BlockReader) Close() error {
	if r.rows != nil {
		return r.rows.rows.Close()
	}
	return r.stream.Close()
}

// Next reads the next block with rows into b, reusing its memory. It returns
// io.EOF after the last one.
func (r *BlockReader) Next(b *Block) error {
	for {
		var err error
		if r.rows != nil {
			err = r.rows.next(b)
		} else {
			err = r.in.block(b)
		}
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return io.EOF
		case err != nil:
			return fmt.Errorf("%s: %w", r.name, describe(err))
		case b.Rows > 0:
			return nil
		}
	}
}

// Bounds of what one block may claim, so that a stream out of step is an error
// and not an allocation of terabytes.
const (
	maxBlockColumns = 1 << 10
	maxBlockRows    = 1 << 24
	maxStringLength = 1 << 30
)

var errNative = errors.New("the Native stream is out of step")

// nativeInput decodes Native blocks in the revision that clickhouse-go asks
// for: a block info in front and one byte for custom serialization per column.
type nativeInput struct {
	src  io.Reader
	buf  []byte
	r, w int
}

func newNativeInput(src io.Reader) *nativeInput {
	return &nativeInput{src: src, buf: make([]byte, 1<<18)}
}

// need makes n bytes (at most len(buf)) available at buf[r:].
func (in *nativeInput) need(n int) error {
	for in.w-in.r < n {
		if in.r > 0 {
			copy(in.buf, in.buf[in.r:in.w])
			in.w -= in.r
			in.r = 0
		}
		m, err := in.src.Read(in.buf[in.w:])
		in.w += m
		if err != nil && in.w-in.r < n {
			if err == io.EOF && in.w > in.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

func (in *nativeInput) byte() (byte, error) {
	if in.r == in.w {
		if err := in.need(1); err != nil {
			return 0, err
		}
	}
	in.r++
	return in.buf[in.r-1], nil
}

func (in *nativeInput) uvarint() (uint64, error) {
	var value uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := in.byte()
		if err != nil {
			return 0, err
		}
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, nil
		}
	}
	return 0, errNative
}

func (in *nativeInput) uint64() (uint64, error) {
	if err := in.need(8); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(in.buf[in.r:])
	in.r += 8
	return v, nil
}

// fill reads len(dst) bytes.
func (in *nativeInput) fill(dst []byte) error {
	n := copy(dst, in.buf[in.r:in.w])
	in.r += n
	if n == len(dst) {
		return nil
	}
	_, err := io.ReadFull(in.src, dst[n:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (in *nativeInput) text() (string, error) {
	n, err := in.uvarint()
	if err != nil {
		return "", err
	}
	if n > 1<<16 {
		return "", errNative
	}
	text := make([]byte, n)
	if err := in.fill(text); err != nil {
		return "", err
	}
	return string(text), nil
}

func (in *nativeInput) block(b *Block) error {
	b.Rows = 0
	if err := in.blockInfo(); err != nil {
		return err // io.EOF between blocks is the end
	}
	columns, err := in.uvarint()
	if err != nil {
		return unexpected(err)
	}
	rows, err := in.uvarint()
	if err != nil {
		return unexpected(err)
	}
	if columns > maxBlockColumns || rows > maxBlockRows {
		return errNative
	}
	if len(b.Columns) != int(columns) {
		b.Columns = make([]Column, columns)
	}
	for i := range b.Columns {
		if err := in.column(&b.Columns[i], int(rows)); err != nil {
			return unexpected(err)
		}
	}
	b.Rows = int(rows)
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (in *nativeInput) blockInfo() error {
	for first := true; ; first = false {
		field, err := in.uvarint()
		if err != nil {
			if !first {
				err = unexpected(err)
			}
			return err
		}
		switch field {
		case 0:
			return nil
		case 1: // overflows, one byte
			if _, err := in.byte(); err != nil {
				return unexpected(err)
			}
		case 2: // bucket number, four bytes
			if err := in.need(4); err != nil {
				return unexpected(err)
			}
			in.r += 4
		default:
			return errNative
		}
	}
}

func (in *nativeInput) column(c *Column, rows int) error {
	name, err := in.text()
	if err != nil {
		return err
	}
	kind, err := in.text()
	if err != nil {
		return err
	}
	custom, err := in.byte()
	if err != nil {
		return err
	}
	if custom != 0 {
		return fmt.Errorf("column %s %s: custom serialization is not read here", name, kind)
	}
	if c.Name != name || c.Type != kind {
		if *c, err = newColumn(name, kind); err != nil {
			return err
		}
	}
	if rows == 0 {
		return nil
	}
	if err := in.prefix(c); err != nil {
		return err
	}
	return in.values(c, rows)
}

// newColumn prepares a column for a type of ClickHouse.
func newColumn(name, kind string) (Column, error) {
	c := Column{Name: name, Type: kind}
	inner := func(prefix string) (string, bool) {
		if strings.HasPrefix(kind, prefix+"(") {
			return kind[len(prefix)+1 : len(kind)-1], true
		}
		return "", false
	}
	if of, ok := inner("LowCardinality"); ok {
		dict, err := newColumn(name, of)
		c.Dict = &dict
		return c, err
	}
	if of, ok := inner("Map"); ok {
		key, value, ok := strings.Cut(of, ", ")
		if !ok {
			return c, fmt.Errorf("column %s: type %s is not read here", name, kind)
		}
		keys, err := newColumn(name, key)
		if err != nil {
			return c, err
		}
		values, err := newColumn(name, value)
		c.MapKeys, c.MapValues = &keys, &values
		return c, err
	}
	if of, ok := inner("FixedString"); ok {
		width, err := strconv.Atoi(of)
		c.Width = width
		return c, err
	}
	if of, ok := inner("Decimal"); ok {
		precision, err := strconv.Atoi(of[:strings.IndexByte(of+",", ',')])
		switch {
		case precision <= 9:
			c.Width = 4
		case precision <= 18:
			c.Width = 8
		case precision <= 38:
			c.Width = 16
		default:
			c.Width = 32
		}
		return c, err
	}
	switch base := kind[:strings.IndexByte(kind+"(", '(')]; base {
	case "String":
	case "UInt8", "Int8", "Bool", "Enum8":
		c.Width = 1
	case "UInt16", "Int16", "Date":
		c.Width = 2
	case "UInt32", "Int32", "DateTime":
		c.Width = 4
	case "UInt64", "Int64", "DateTime64":
		c.Width = 8
	case "UInt128", "Int128", "UUID":
		c.Width = 16
	case "UInt256", "Int256":
		c.Width = 32
	default:
		return c, fmt.Errorf("column %s: type %s is not read here", name, kind)
	}
	return c, nil
}

// prefix reads what stands once before the values of a column.
func (in *nativeInput) prefix(c *Column) error {
	switch {
	case c.Dict != nil:
		version, err := in.uint64()
		if err == nil && version != 1 {
			err = errNative
		}
		return err
	case c.MapKeys != nil:
		if err := in.prefix(c.MapKeys); err != nil {
			return err
		}
		return in.prefix(c.MapValues)
	}
	return nil
}

func (in *nativeInput) values(c *Column, rows int) error {
	switch {
	case c.Dict != nil:
		return in.lowCardinality(c, rows)
	case c.MapKeys != nil:
		raw, err := in.fixed(nil, 8*rows)
		if err != nil {
			return err
		}
		c.Ends = resize(c.Ends, rows)
		for i := range c.Ends {
			c.Ends[i] = binary.LittleEndian.Uint64(raw[8*i:])
		}
		total := c.Ends[rows-1]
		if total > maxBlockRows*64 {
			return errNative
		}
		if err := in.values(c.MapKeys, int(total)); err != nil {
			return err
		}
		return in.values(c.MapValues, int(total))
	case c.Width > 0:
		var err error
		c.Fixed, err = in.fixed(c.Fixed, c.Width*rows)
		return err
	default:
		return in.strings(c, rows)
	}
}

// fixed reads n bytes. What is not there yet is made room for piece by piece,
// so that a stream out of step cannot ask for memory it does not fill.
func (in *nativeInput) fixed(dst []byte, n int) ([]byte, error) {
	const piece = 4 << 20
	if cap(dst) >= n || n <= piece {
		dst = resize(dst, n)
		return dst, in.fill(dst)
	}
	dst = dst[:0]
	for len(dst) < n {
		at := len(dst)
		dst = append(dst, make([]byte, min(piece, n-at))...)
		if err := in.fill(dst[at:]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (in *nativeInput) strings(c *Column, rows int) error {
	c.Offsets = append(c.Offsets[:0], 0)
	c.Bytes = c.Bytes[:0]
	for range rows {
		var n int
		if in.r < in.w && in.buf[in.r] < 0x80 {
			n = int(in.buf[in.r])
			in.r++
		} else {
			v, err := in.uvarint()
			if err != nil {
				return err
			}
			if v > maxStringLength || uint64(len(c.Bytes))+v > 1<<32-1 {
				return errNative
			}
			n = int(v)
		}
		if in.w-in.r >= n {
			c.Bytes = append(c.Bytes, in.buf[in.r:in.r+n]...)
			in.r += n
		} else {
			for left := n; left > 0; {
				at, step := len(c.Bytes), min(left, 1<<20)
				c.Bytes = append(c.Bytes, make([]byte, step)...)
				if err := in.fill(c.Bytes[at:]); err != nil {
					return err
				}
				left -= step
			}
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Bytes)))
	}
	return nil
}

func (in *nativeInput) lowCardinality(c *Column, rows int) error {
	c.Keys = resize(c.Keys, rows)
	if rows == 0 { // an empty map's keys have no dictionary
		return nil
	}
	flags, err := in.uint64()
	if err != nil {
		return err
	}
	const globalDictionary, additionalKeys = 1 << 8, 1 << 9
	if flags&globalDictionary != 0 || flags&additionalKeys == 0 {
		return errNative
	}
	words, err := in.uint64()
	if err != nil {
		return err
	}
	if words > maxBlockRows {
		return errNative
	}
	if err := in.values(c.Dict, int(words)); err != nil {
		return err
	}
	count, err := in.uint64()
	if err != nil {
		return err
	}
	if count != uint64(rows) {
		return errNative
	}
	width := 1 << (flags & 3)
	raw, err := in.fixed(c.Fixed, width*rows)
	if err != nil {
		return err
	}
	c.Fixed = raw
	switch width {
	case 1:
		for i, k := range raw {
			c.Keys[i] = uint32(k)
		}
	case 2:
		for i := range c.Keys {
			c.Keys[i] = uint32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case 4:
		for i := range c.Keys {
			c.Keys[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
	default:
		for i := range c.Keys {
			c.Keys[i] = uint32(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
	for _, k := range c.Keys {
		if uint64(k) >= words {
			return errNative
		}
	}
	return nil
}
