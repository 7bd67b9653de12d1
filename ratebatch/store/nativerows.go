package store

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"sort"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// rowBlocks gathers scanned rows into blocks of the form that the Native
// decoder gives, for connections that hand out rows only.
type rowBlocks struct {
	rows  driver.Rows
	dest  []any
	types []driver.ColumnType
}

const rowsPerBlock = 8192

func newRowBlocks(rows driver.Rows) *rowBlocks {
	b := &rowBlocks{rows: rows, types: rows.ColumnTypes()}
	for _, t := range b.types {
		b.dest = append(b.dest, reflect.New(t.ScanType()).Interface())
	}
	return b
}

func (r *rowBlocks) next(b *Block) error {
	if len(b.Columns) != len(r.types) {
		b.Columns = make([]Column, len(r.types))
		for i, t := range r.types {
			c, err := newColumn(t.Name(), t.DatabaseTypeName())
			if err != nil {
				return err
			}
			b.Columns[i] = c
		}
	}
	b.Rows = 0
	for i := range b.Columns {
		b.Columns[i].clear()
	}
	for b.Rows < rowsPerBlock && r.rows.Next() {
		if err := r.rows.Scan(r.dest...); err != nil {
			return err
		}
		for i := range b.Columns {
			if err := b.Columns[i].add(reflect.ValueOf(r.dest[i]).Elem().Interface()); err != nil {
				return fmt.Errorf("column %s: %w", b.Columns[i].Name, err)
			}
		}
		b.Rows++
	}
	if err := r.rows.Err(); err != nil {
		return err
	}
	if b.Rows == 0 {
		return io.EOF
	}
	return nil
}

func (c *Column) clear() {
	c.Fixed, c.Bytes, c.Keys, c.Ends = c.Fixed[:0], c.Bytes[:0], c.Keys[:0], c.Ends[:0]
	c.Offsets = append(c.Offsets[:0], 0)
	for _, inner := range []*Column{c.Dict, c.MapKeys, c.MapValues} {
		if inner != nil {
			inner.clear()
		}
	}
}

// add appends one scanned value. A LowCardinality column gets one word per
// value: equal words cost memory here, never a wrong answer.
func (c *Column) add(value any) error {
	switch {
	case c.Dict != nil:
		c.Keys = append(c.Keys, uint32(len(c.Dict.Offsets)-1))
		return c.Dict.add(value)
	case c.MapKeys != nil:
		entries, ok := value.(map[string]string)
		if !ok {
			return fmt.Errorf("a map came as %T", value)
		}
		names := make([]string, 0, len(entries))
		for name := range entries {
			names = append(names, name)
		}
		sort.Strings(names)
		var end uint64
		if len(c.Ends) > 0 {
			end = c.Ends[len(c.Ends)-1]
		}
		for _, name := range names {
			if err := c.MapKeys.add(name); err != nil {
				return err
			}
			if err := c.MapValues.add(entries[name]); err != nil {
				return err
			}
		}
		c.Ends = append(c.Ends, end+uint64(len(names)))
		return nil
	}
	switch v := value.(type) {
	case string:
		if c.Width > 0 && c.Width == 1 { // an enumeration is scanned as its name
			return fmt.Errorf("an enumeration is read as a number: cast it in the query")
		}
		c.Bytes = append(c.Bytes, v...)
		c.Offsets = append(c.Offsets, uint32(len(c.Bytes)))
	case uint8:
		c.Fixed = append(c.Fixed, v)
	case bool:
		c.Fixed = append(c.Fixed, map[bool]byte{true: 1}[v])
	case uint16:
		c.Fixed = binary.LittleEndian.AppendUint16(c.Fixed, v)
	case uint32:
		c.Fixed = binary.LittleEndian.AppendUint32(c.Fixed, v)
	case uint64:
		c.Fixed = binary.LittleEndian.AppendUint64(c.Fixed, v)
	case time.Time:
		if c.Width == 4 {
			c.Fixed = binary.LittleEndian.AppendUint32(c.Fixed, uint32(v.Unix()))
		} else {
			c.Fixed = binary.LittleEndian.AppendUint64(c.Fixed, uint64(v.UnixMicro()))
		}
	case decimal.Decimal:
		scale, err := decimalScale(c.Type)
		if err != nil {
			return err
		}
		c.Fixed = appendBigLE(c.Fixed, v.Shift(scale).BigInt(), c.Width)
	case *big.Int:
		c.Fixed = appendBigLE(c.Fixed, v, c.Width)
	case big.Int:
		c.Fixed = appendBigLE(c.Fixed, &v, c.Width)
	case uuid.UUID:
		// ClickHouse keeps a UUID as two little-endian halves.
		c.Fixed = binary.LittleEndian.AppendUint64(c.Fixed, binary.BigEndian.Uint64(v[:8]))
		c.Fixed = binary.LittleEndian.AppendUint64(c.Fixed, binary.BigEndian.Uint64(v[8:]))
	default:
		return fmt.Errorf("type %T of %s is not read here", value, c.Type)
	}
	return nil
}

func decimalScale(kind string) (int32, error) {
	var precision, scale int32
	if _, err := fmt.Sscanf(kind, "Decimal(%d, %d)", &precision, &scale); err != nil {
		return 0, fmt.Errorf("scale of %s: %w", kind, err)
	}
	return scale, nil
}

// appendBigLE appends v in two's complement, little-endian.
func appendBigLE(dst []byte, v *big.Int, width int) []byte {
	if v.Sign() < 0 {
		v = new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*width)))
	}
	raw := v.FillBytes(make([]byte, width))
	for i := range raw {
		dst = append(dst, raw[width-1-i])
	}
	return dst
}
