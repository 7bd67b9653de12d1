package exporter

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// The formats of files. A folder of Arrow files holds the IPC file format; the
// stream format is for a pipe.
const (
	Parquet     = "parquet"
	Arrow       = "arrow"
	ArrowStream = "arrow-stream"
	CSV         = "csv"
)

// Formats lists what files can be written as.
func Formats() []string { return []string{Parquet, Arrow, CSV} }

// formatWriter writes tables in one format. Close ends the file; nothing is
// complete without it.
type formatWriter interface {
	write(t *table) error
	Close() error
}

func newFormatWriter(format string, w io.Writer, s Schema) (formatWriter, error) {
	switch format {
	case Parquet:
		return newParquetWriter(w, s)
	case Arrow:
		out, err := ipc.NewFileWriter(&position{w: w}, ipc.WithSchema(arrowSchema(s)), ipc.WithZstd())
		return &arrowWriter{out}, err
	case ArrowStream:
		return &arrowWriter{ipc.NewWriter(w, ipc.WithSchema(arrowSchema(s)))}, nil
	case CSV:
		return newCSVWriter(w, s)
	}
	return nil, fmt.Errorf("format %q", format)
}

// position counts what is written, since Arrow's file writer asks where it is
// by seeking nowhere.
type position struct {
	w  io.Writer
	at int64
}

func (p *position) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.at += int64(n)
	return n, err
}

func (p *position) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, fmt.Errorf("an object in the making cannot go back")
	}
	return p.at, nil
}

// arrowWriter writes tables as record batches.
type arrowWriter struct {
	out interface {
		Write(arrow.Record) error
		Close() error
	}
}

func (a *arrowWriter) Close() error { return a.out.Close() }

func arrowType(k Kind) arrow.DataType {
	switch k {
	case Decimal:
		return &arrow.Decimal128Type{Precision: Precision, Scale: Scale}
	case Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case Integer:
		return arrow.PrimitiveTypes.Int64
	default:
		return arrow.BinaryTypes.String
	}
}

// arrowSchema carries units and descriptions as metadata of the fields.
func arrowSchema(s Schema) *arrow.Schema {
	fields := make([]arrow.Field, len(s.Fields))
	for i, f := range s.Fields {
		metadata := arrow.MetadataFrom(map[string]string{"description": f.Doc})
		if f.Unit != "" {
			metadata = arrow.MetadataFrom(map[string]string{"description": f.Doc, "unit": f.Unit})
		}
		fields[i] = arrow.Field{Name: f.Name, Type: arrowType(f.Kind), Nullable: f.Nullable, Metadata: metadata}
	}
	metadata := arrow.NewMetadata([]string{"ratebatch.dataset", "ratebatch.schema", "ratebatch.version"}, []string{s.Dataset, s.ID(), s.Version})
	return arrow.NewSchema(fields, &metadata)
}

func (a *arrowWriter) write(t *table) error {
	columns := make([]arrow.Array, len(t.cols))
	for i := range t.cols {
		columns[i] = arrowColumn(t.schema.Fields[i], &t.cols[i], t.rows)
		defer columns[i].Release()
	}
	record := array.NewRecord(arrowSchema(t.schema), columns, int64(t.rows))
	defer record.Release()
	return a.out.Write(record)
}

// arrowColumn spells a column out.
func arrowColumn(f Field, c *column, rows int) arrow.Array {
	var valid []byte
	var validity *memory.Buffer
	nulls := 0
	if f.Nullable {
		valid = make([]byte, bitutil.BytesForBits(int64(rows)))
		validity = memory.NewBufferBytes(valid)
	}
	var values, offsets []byte
	for row := range rows {
		word, ok := c.word(row)
		if valid != nil {
			if ok {
				bitutil.SetBit(valid, row)
			} else {
				nulls++
			}
		}
		switch f.Kind {
		case Decimal: // Arrow keeps them little-endian
			if !ok {
				values = append(values, make([]byte, 16)...)
				continue
			}
			values = binary.LittleEndian.AppendUint64(values, binary.BigEndian.Uint64(word[8:]))
			values = binary.LittleEndian.AppendUint64(values, binary.BigEndian.Uint64(word))
		case Timestamp, Integer:
			if !ok {
				word = make([]byte, 8)
			}
			values = append(values, word...)
		default:
			if row == 0 {
				offsets = binary.LittleEndian.AppendUint32(offsets, 0)
			}
			values = append(values, word...)
			offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(values)))
		}
	}
	buffers := []*memory.Buffer{validity, memory.NewBufferBytes(values)}
	if f.Kind == String || f.Kind == JSON {
		buffers = []*memory.Buffer{validity, memory.NewBufferBytes(offsets), memory.NewBufferBytes(values)}
	}
	data := array.NewData(arrowType(f.Kind), rows, buffers, nil, nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// csvWriter writes RFC 4180: a header, CRLF, quotes where needed, no exponents.
// An empty field is a null; an empty text is quoted.
type csvWriter struct {
	out    *bufio.Writer
	schema Schema
	line   []byte
}

func newCSVWriter(w io.Writer, s Schema) (*csvWriter, error) {
	c := &csvWriter{out: bufio.NewWriterSize(w, 1<<16), schema: s}
	for i, f := range s.Fields {
		if i > 0 {
			c.line = append(c.line, ',')
		}
		c.line = appendCSV(c.line, []byte(f.Name))
	}
	_, err := c.out.Write(append(c.line, '\r', '\n'))
	return c, err
}

func (c *csvWriter) Close() error { return c.out.Flush() }

func (c *csvWriter) write(t *table) error {
	for row := range t.rows {
		line := c.line[:0]
		for i := range t.cols {
			if i > 0 {
				line = append(line, ',')
			}
			if word, ok := t.cols[i].word(row); ok {
				line = appendCSVWord(line, &c.schema.Fields[i], word)
			}
		}
		c.line = append(line, '\r', '\n')
		if _, err := c.out.Write(c.line); err != nil {
			return err
		}
	}
	return nil
}

func appendCSVWord(dst []byte, f *Field, word []byte) []byte {
	switch f.Kind {
	case Decimal:
		d := decimalOf(word)
		if f.digits > 0 && d.Equal(d.Truncate(f.digits)) {
			return append(dst, d.StringFixed(f.digits)...)
		}
		return append(dst, d.String()...)
	case Timestamp:
		return time.UnixMicro(int64(binary.LittleEndian.Uint64(word))).UTC().AppendFormat(dst, time.RFC3339)
	case Integer:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(word)), 10)
	default:
		return appendCSV(dst, word)
	}
}

// NeedsApostrophe says whether spreadsheets would run a text as a formula, or
// round it as a long number. In a CSV file such texts get an apostrophe in front,
// which spreadsheets take as "this is text".
func NeedsApostrophe[T ~string | ~[]byte](text T) bool {
	if len(text) == 0 {
		return false
	}
	switch text[0] {
	case '=', '+', '-', '@', '\t', '\r':
		return true
	}
	if len(text) <= 15 {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// appendCSV writes a text field, safe from spreadsheets. Parquet and Arrow keep
// texts as they are.
func appendCSV(dst, text []byte) []byte {
	quote := len(text) == 0
	for _, b := range text {
		if b == '"' || b == ',' || b == '\n' || b == '\r' {
			quote = true
		}
	}
	marked := NeedsApostrophe(text)
	if marked && (text[0] < '0' || text[0] > '9') { // a formula; such files had quotes from the first version on
		quote = true
	}
	if quote {
		dst = append(dst, '"')
	}
	if marked {
		dst = append(dst, '\'')
	}
	for _, b := range text {
		if b == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, b)
	}
	if quote {
		dst = append(dst, '"')
	}
	return dst
}
