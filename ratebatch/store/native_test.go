package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// everyKind has a column of each type that exports read, with values that have
// broken decoders: empty, long and non-ASCII texts, empty maps, negative and
// huge decimals, more words than one byte counts.
const everyKind = `SELECT toLowCardinality('word-' || toString(number % 300)) AS low, toString(number) || repeat('ä', number % 200) AS text,
	CAST(if(number % 3 = 0, map(), map('b', toString(number % 7), 'a', repeat('x', number % 300))) AS Map(LowCardinality(String), String)) AS attributes,
	toDateTime(1772323200 + number, 'UTC') AS at, toDateTime64(1772323200.25 + number, 6, 'UTC') AS at64, toDecimal128(number, 18) * if(number % 2 = 0, -1, 1) AS price,
	CAST(toDecimal256('12345678901234567890123456789012345678.5', 18) AS Decimal(76, 18)) AS total, toUInt8(number % 200) AS small, toUInt16(number) AS part,
	toUInt32(number) AS revision, toUInt64(number) * 1000003 AS hash, reinterpretAsUInt128(sipHash128(number)) AS key, '' AS empty
	FROM numbers(20000) ORDER BY number`

// texts gives every value of a block as text, whatever the form of the column.
func texts(b *Block) []string {
	var out []string
	for row := range b.Rows {
		line := ""
		for i := range b.Columns {
			c := &b.Columns[i]
			switch {
			case c.MapKeys != nil:
				var begin uint64
				if row > 0 {
					begin = c.Ends[row-1]
				}
				entries := map[string]string{}
				for e := begin; e < c.Ends[row]; e++ {
					entries[c.MapKeys.Text(int(e))] = c.MapValues.Text(int(e))
				}
				line += fmt.Sprint(entries)
			case c.Width > 0 && c.Dict == nil:
				line += fmt.Sprintf("%x", c.Raw(row))
			default:
				line += c.Text(row)
			}
			line += "|"
		}
		out = append(out, line)
	}
	return out
}

func readAll(t *testing.T, next func(*Block) error) []string {
	t.Helper()
	var all []string
	var b Block
	for {
		err := next(&b)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, texts(&b)...)
	}
}

func TestBlocksAndRowsGiveTheSameValues(t *testing.T) {
	e := enginetest.Open(t)
	s := New(e.Conn(), e.Database())
	blocks, err := s.blocksOf(t.Context(), "every kind", everyKind, nil)
	if err != nil {
		t.Fatal(err)
	}
	fromBlocks := readAll(t, blocks.Next)
	if err := blocks.Close(); err != nil {
		t.Error(err)
	}
	rows, err := e.Conn().Query(t.Context(), everyKind)
	if err != nil {
		t.Fatal(err)
	}
	reader := &BlockReader{name: "every kind", rows: newRowBlocks(rows)}
	fromRows := readAll(t, reader.Next)
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if len(fromBlocks) != 20000 || len(fromRows) != len(fromBlocks) {
		t.Fatalf("%d rows from blocks, %d from rows", len(fromBlocks), len(fromRows))
	}
	for i := range fromBlocks {
		if fromBlocks[i] != fromRows[i] {
			t.Fatalf("row %d: %s and %s", i, fromBlocks[i], fromRows[i])
		}
	}
}

func TestABrokenStreamIsAnError(t *testing.T) {
	e := enginetest.Open(t)
	stream, err := e.Conn().QueryFormat(t.Context(), "Native", everyKind)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	read := func(in io.Reader) (rows int, err error) {
		input := newNativeInput(in)
		var b Block
		for err == nil {
			if err = input.block(&b); err == nil {
				rows += b.Rows
			}
		}
		return rows, err
	}
	if rows, err := read(iotest.OneByteReader(bytes.NewReader(whole))); rows != 20000 || !errors.Is(err, io.EOF) {
		t.Errorf("byte by byte: %d rows (%v)", rows, err)
	}
	for _, at := range []int{1, 5, 100, len(whole) / 2, len(whole) - 1} {
		if _, err := read(bytes.NewReader(whole[:at])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
}

func FuzzNativeBlock(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 1, 1, 1, 'x', 6, 'S', 't', 'r', 'i', 'n', 'g', 0, 2, 'h', 'i'})
	f.Add([]byte{0, 1, 2, 1, 'n', 5, 'U', 'I', 'n', 't', '8', 0, 7, 9})
	f.Fuzz(func(_ *testing.T, data []byte) {
		in := newNativeInput(bytes.NewReader(data))
		var b Block
		for in.block(&b) == nil {
			_ = texts(&b)
		}
	})
}
