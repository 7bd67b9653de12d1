package endpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// libchdb writes Native blocks of protocol revision 0 only. A client that
// sends client_protocol_version expects more: a BlockInfo before each block
// and, from revision 54454 on, a byte "no custom serialization" after each
// column's type. nativeWriter adds both on the way.
type nativeWriter struct {
	out      io.Writer
	revision int
}

const revisionWithSerializationByte = 54454

// blockInfo is: field 1, is_overflows = 0; field 2, bucket_num = -1; end.
var blockInfo = []byte{1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0}

var errTruncated = errors.New("a Native block ends early")

// Write takes whole blocks.
func (w *nativeWriter) Write(piece []byte) (int, error) {
	c := &cursor{data: piece}
	for c.at < len(piece) {
		if _, err := w.out.Write(blockInfo); err != nil {
			return 0, err
		}
		from := c.at
		columns := c.uvarint()
		rows := c.uvarint()
		for range columns {
			c.text()
			name := c.text()
			if c.err != nil {
				return 0, c.err
			}
			if w.revision >= revisionWithSerializationByte {
				if _, err := w.out.Write(piece[from:c.at]); err != nil {
					return 0, err
				}
				if _, err := w.out.Write(noSerialization); err != nil {
					return 0, err
				}
				from = c.at
			}
			if rows == 0 {
				continue
			}
			t, err := parseType(string(name))
			if err == nil {
				t.skipPrefix(c)
				t.skip(c, int(rows))
				err = c.err
			}
			if err != nil {
				return 0, fmt.Errorf("column of type %s: %w", name, err)
			}
		}
		if c.err != nil {
			return 0, c.err
		}
		if _, err := w.out.Write(piece[from:c.at]); err != nil {
			return 0, err
		}
	}
	return len(piece), nil
}

var noSerialization = []byte{0}

// emptyBlock is a block of revision 0 that has columns and no rows. The engine
// writes nothing at all for an empty result, and a reader wants the columns.
func emptyBlock(names, types []string) []byte {
	b := binary.AppendUvarint(nil, uint64(len(names)))
	b = append(b, 0)
	for i := range names {
		b = appendText(b, names[i])
		b = appendText(b, types[i])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cursor walks through a block; after the first error it stands still.
type cursor struct {
	data []byte
	at   int
	err  error
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.data[c.at:])
	if n <= 0 {
		c.fail(errTruncated)
		return 0
	}
	c.at += n
	return v
}

func (c *cursor) skip(n int) {
	if n < 0 || n > len(c.data)-c.at {
		c.fail(errTruncated)
		return
	}
	c.at += n
}

func (c *cursor) text() []byte {
	n := c.uvarint()
	from := c.at
	c.skip(int(n))
	return c.data[from:c.at]
}

func (c *cursor) uint64() uint64 {
	from := c.at
	if c.skip(8); c.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(c.data[from:])
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err, c.at = err, len(c.data)
	}
}

// columnType knows how long a column's data is in Native.
type columnType struct {
	name string
	size int // bytes per value where that is fixed, else 0
	args []*columnType
}

var sizes = map[string]int{
	"Bool": 1, "UInt8": 1, "Int8": 1, "Enum8": 1, "Nothing": 1,
	"UInt16": 2, "Int16": 2, "Enum16": 2, "Date": 2, "BFloat16": 2,
	"UInt32": 4, "Int32": 4, "Float32": 4, "Date32": 4, "DateTime": 4, "Time": 4, "IPv4": 4, "Decimal32": 4,
	"UInt64": 8, "Int64": 8, "Float64": 8, "DateTime64": 8, "Time64": 8, "Decimal64": 8,
	"UInt128": 16, "Int128": 16, "UUID": 16, "IPv6": 16, "Decimal128": 16,
	"UInt256": 32, "Int256": 32, "Decimal256": 32,
}

var geometry = map[string]string{
	"Point": "Tuple(Float64, Float64)", "Ring": "Array(Point)", "LineString": "Array(Point)",
	"MultiLineString": "Array(LineString)", "Polygon": "Array(Ring)", "MultiPolygon": "Array(Polygon)",
}

func parseType(text string) (*columnType, error) {
	text = strings.TrimSpace(text)
	name, arg := text, ""
	if p := strings.IndexByte(text, '('); p >= 0 && strings.HasSuffix(text, ")") {
		name, arg = text[:p], text[p+1:len(text)-1]
	}
	if g, ok := geometry[name]; ok {
		return parseType(g)
	}
	if strings.HasPrefix(name, "JSON") { // JSON(max_dynamic_paths=…)
		arg = ""
	}
	t := &columnType{name: name, size: sizes[name]}
	if t.size > 0 {
		return t, nil
	}
	var inner []string
	switch name {
	case "String", "JSON":
	case "FixedString":
		n, err := strconv.Atoi(arg)
		if err != nil {
			return nil, err
		}
		t.size = n
	case "Decimal":
		precision, err := strconv.Atoi(splitArguments(arg)[0])
		if err != nil {
			return nil, err
		}
		switch {
		case precision <= 9:
			t.size = 4
		case precision <= 18:
			t.size = 8
		case precision <= 38:
			t.size = 16
		default:
			t.size = 32
		}
	case "Nullable", "LowCardinality", "Array":
		inner = []string{arg}
	case "Map":
		inner = splitArguments(arg)
	case "Tuple", "Nested":
		for _, a := range splitArguments(arg) {
			if a != "" {
				inner = append(inner, withoutFieldName(a))
			}
		}
	case "SimpleAggregateFunction":
		a := splitArguments(arg)
		return parseType(a[len(a)-1])
	default:
		if strings.HasPrefix(name, "Interval") {
			t.size = 8
			return t, nil
		}
		return nil, errors.New("the embedded engine's endpoint cannot send this type; convert it, for example with toString() or finalizeAggregation()")
	}
	for _, a := range inner {
		x, err := parseType(a)
		if err != nil {
			return nil, err
		}
		t.args = append(t.args, x)
	}
	return t, nil
}

// splitArguments splits at the commas that stand outside parentheses and quotes.
func splitArguments(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case '\'', '`', '"':
			i = endOfQuote(s, i) - 1
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

// withoutFieldName turns "name Type" into "Type".
func withoutFieldName(s string) string {
	first := nextToken(s, 0)
	second := nextToken(s, first.end)
	if second.kind == word || second.kind == quoted {
		return s[second.start:]
	}
	return s
}

// skipPrefix moves over what stands once per column and block.
func (t *columnType) skipPrefix(c *cursor) {
	switch t.name {
	case "LowCardinality":
		c.uint64() // the keys' version
		return
	case "JSON":
		const asString = 1
		if c.uint64() != asString {
			c.fail(errors.New("the embedded engine's endpoint sends JSON with output_format_native_write_json_as_string=1 only; set it, or convert with toString()"))
		}
		return
	}
	for _, a := range t.args {
		a.skipPrefix(c)
	}
}

// skip moves over n values.
func (t *columnType) skip(c *cursor, n int) {
	if c.err != nil || n < 0 {
		c.fail(errTruncated)
		return
	}
	switch {
	case t.size > 0:
		if n > len(c.data)/t.size {
			c.fail(errTruncated)
			return
		}
		c.skip(t.size * n)
	case t.name == "String", t.name == "JSON":
		for range n {
			c.skip(int(c.uvarint()))
			if c.err != nil {
				return
			}
		}
	case t.name == "Nullable":
		c.skip(n)
		t.args[0].skip(c, n)
	case t.name == "Array", t.name == "Map", t.name == "Nested":
		if n == 0 {
			return
		}
		if n > len(c.data)/8 {
			c.fail(errTruncated)
			return
		}
		c.skip(8 * (n - 1))
		total := int(c.uint64())
		for _, a := range t.args {
			a.skip(c, total)
		}
	case t.name == "Tuple":
		if len(t.args) == 0 {
			c.skip(n)
		}
		for _, a := range t.args {
			a.skip(c, n)
		}
	case t.name == "LowCardinality":
		t.skipLowCardinality(c, n)
	default:
		c.fail(fmt.Errorf("values of type %s", t.name))
	}
}

// skipLowCardinality moves over a dictionary with keys of 1, 2, 4 or 8 bytes.
func (t *columnType) skipLowCardinality(c *cursor, n int) {
	const (
		globalDictionary  = 1 << 8
		hasAdditionalKeys = 1 << 9
	)
	if n == 0 {
		return
	}
	flags := c.uint64()
	inner := t.args[0]
	if inner.name == "Nullable" {
		inner = inner.args[0]
	}
	if flags&globalDictionary != 0 {
		c.fail(errors.New("a global dictionary"))
		return
	}
	if flags&hasAdditionalKeys != 0 {
		inner.skip(c, int(c.uint64()))
	}
	rows := c.uint64()
	if rows > uint64(len(c.data)) {
		c.fail(errTruncated)
		return
	}
	c.skip(int(rows) << (flags & 0xff & 3))
}
