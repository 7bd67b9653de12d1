package exporter

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// parquetWriter writes tables as row groups of one Parquet file. Dictionaries
// and indices go into Arrow's column writers as they are, so no value is
// hashed a second time.
type parquetWriter struct {
	schema Schema
	out    *file.Writer

	// scratch memory, reused by every column
	bytesBatch []parquet.ByteArray
	fixedBatch []parquet.FixedLenByteArray
	intBatch   []int64
	levels     []int16
}

// dictionaryLimit is the size up to which readers like to hold a dictionary.
const dictionaryLimit = 1 << 20

// batchRows is how many values go to a column writer at once.
const batchRows = 1 << 15

func parquetNode(f Field) (schema.Node, error) {
	repetition := parquet.Repetitions.Required
	if f.Nullable {
		repetition = parquet.Repetitions.Optional
	}
	switch f.Kind {
	case String, JSON:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
	case Decimal:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.NewDecimalLogicalType(Precision, Scale), parquet.Types.FixedLenByteArray, 16, -1)
	case Timestamp:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.NewTimestampLogicalType(true, schema.TimeUnitMicros), parquet.Types.Int64, -1, -1)
	case Integer:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.NewIntLogicalType(64, true), parquet.Types.Int64, -1, -1)
	}
	return nil, fmt.Errorf("column %s: kind %s has no Parquet type", f.Name, f.Kind)
}

func newParquetWriter(w io.Writer, s Schema) (*parquetWriter, error) {
	nodes := make(schema.FieldList, len(s.Fields))
	properties := []parquet.WriterProperty{
		parquet.WithCreatedBy("ratebatch"),
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithCompressionLevel(1),
		parquet.WithBatchSize(batchRows),
		parquet.WithStats(true),
	}
	for i, f := range s.Fields {
		node, err := parquetNode(f)
		if err != nil {
			return nil, err
		}
		nodes[i] = node
		if f.unique {
			properties = append(properties, parquet.WithDictionaryFor(f.Name, false))
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return nil, err
	}
	out := file.NewParquetWriter(w, root, file.WithWriterProps(parquet.NewWriterProperties(properties...)))
	for _, pair := range [][2]string{{"ratebatch.schema", s.ID()}, {"ratebatch.dataset", s.Dataset}, {"ratebatch.version", s.Version}, {"ratebatch.fields", fieldsJSON(s)}} {
		if err := out.AppendKeyValueMetadata(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return &parquetWriter{schema: s, out: out}, nil
}

// Close writes the footer. A file without it is no Parquet file.
func (p *parquetWriter) Close() error { return p.out.Close() }

func (p *parquetWriter) write(t *table) error {
	group := p.out.AppendRowGroup()
	for i := range t.cols {
		writer, err := group.NextColumn()
		if err != nil {
			return err
		}
		if err := p.column(writer, p.schema.Fields[i], &t.cols[i], t.rows); err != nil {
			return fmt.Errorf("column %s: %w", p.schema.Fields[i].Name, err)
		}
	}
	return group.Close()
}

func (p *parquetWriter) column(w file.ColumnChunkWriter, f Field, c *column, rows int) error {
	if !c.direct && rows > 0 && c.dict.len() > 0 {
		if len(c.dict.bytes) <= dictionaryLimit {
			return p.indices(w, f, c, rows)
		}
		w.FallbackToPlain()
	}
	if c.direct && !f.unique {
		w.FallbackToPlain()
	}
	return p.values(w, f, c, rows)
}

// indices hands a dictionary and the rows' indices to the column writer.
func (p *parquetWriter) indices(w file.ColumnChunkWriter, f Field, c *column, rows int) error {
	words, err := wordArray(f, &c.dict)
	if err != nil {
		return err
	}
	defer words.Release()
	encoder, ok := w.CurrentEncoder().(interface{ PutDictionary(arrow.Array) error })
	if !ok {
		return fmt.Errorf("the encoder takes no dictionary")
	}
	if err := encoder.PutDictionary(words); err != nil {
		return err
	}
	for begin := 0; begin < rows; begin += batchRows {
		part := c.index[begin:min(begin+batchRows, rows)]
		levels, indices, nulls := p.indexArray(f, c, part)
		if stats := w.PageStatistics(); stats != nil {
			stats.IncNulls(int64(nulls))
			stats.IncNumValues(int64(len(part) - nulls))
			if err := stats.UpdateFromArrow(words, false); err != nil {
				return err
			}
		}
		err := w.WriteDictIndices(indices, levels, nil)
		indices.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parquetWriter) indexArray(f Field, c *column, part []uint32) (levels []int16, indices arrow.Array, nulls int) {
	raw := arrow.Uint32Traits.CastToBytes(part)
	if !f.Nullable {
		data := array.NewData(arrow.PrimitiveTypes.Int32, len(part), []*memory.Buffer{nil, memory.NewBufferBytes(raw)}, nil, 0, 0)
		defer data.Release()
		return nil, array.NewInt32Data(data), 0
	}
	p.levels = p.levels[:0]
	valid := make([]byte, bitutil.BytesForBits(int64(len(part))))
	for i, index := range part {
		if index == null {
			p.levels = append(p.levels, 0)
			nulls++
			continue
		}
		p.levels = append(p.levels, 1)
		bitutil.SetBit(valid, i)
	}
	data := array.NewData(arrow.PrimitiveTypes.Int32, len(part), []*memory.Buffer{memory.NewBufferBytes(valid), memory.NewBufferBytes(raw)}, nil, nulls, 0)
	defer data.Release()
	return p.levels, array.NewInt32Data(data), nulls
}

// wordArray is the dictionary as an Arrow array of the column's physical type.
func wordArray(f Field, d *dictionary) (arrow.Array, error) {
	var kind arrow.DataType
	var buffers []*memory.Buffer
	switch f.Kind {
	case String, JSON:
		kind = arrow.BinaryTypes.String // Arrow's statistics read past the end of a Binary array
		offsets := make([]int32, d.len()+1)
		for i, end := range d.ends {
			offsets[i+1] = int32(end)
		}
		buffers = []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(d.bytes)}
	case Decimal:
		kind = &arrow.FixedSizeBinaryType{ByteWidth: 16}
		buffers = []*memory.Buffer{nil, memory.NewBufferBytes(d.bytes)}
	case Timestamp, Integer:
		kind = arrow.PrimitiveTypes.Int64
		buffers = []*memory.Buffer{nil, memory.NewBufferBytes(d.bytes)}
	default:
		return nil, fmt.Errorf("kind %s has no words", f.Kind)
	}
	data := array.NewData(kind, d.len(), buffers, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// values writes a column value by value: unique ones, and those whose
// dictionary would be no help.
func (p *parquetWriter) values(w file.ColumnChunkWriter, f Field, c *column, rows int) error {
	for begin := 0; begin < rows; begin += batchRows {
		end := min(begin+batchRows, rows)
		var levels []int16
		if f.Nullable {
			p.levels = p.levels[:0]
			for row := begin; row < end; row++ {
				if _, ok := c.word(row); ok {
					p.levels = append(p.levels, 1)
				} else {
					p.levels = append(p.levels, 0)
				}
			}
			levels = p.levels
		}
		var err error
		switch w := w.(type) {
		case *file.ByteArrayColumnChunkWriter:
			p.bytesBatch = p.bytesBatch[:0]
			for row := begin; row < end; row++ {
				if word, ok := c.word(row); ok {
					p.bytesBatch = append(p.bytesBatch, word)
				}
			}
			_, err = w.WriteBatch(p.bytesBatch, levels, nil)
		case *file.FixedLenByteArrayColumnChunkWriter:
			p.fixedBatch = p.fixedBatch[:0]
			for row := begin; row < end; row++ {
				if word, ok := c.word(row); ok {
					p.fixedBatch = append(p.fixedBatch, word)
				}
			}
			_, err = w.WriteBatch(p.fixedBatch, levels, nil)
		case *file.Int64ColumnChunkWriter:
			p.intBatch = p.intBatch[:0]
			for row := begin; row < end; row++ {
				if word, ok := c.word(row); ok {
					p.intBatch = append(p.intBatch, int64(binary.LittleEndian.Uint64(word)))
				}
			}
			_, err = w.WriteBatch(p.intBatch, levels, nil)
		default:
			err = fmt.Errorf("column writer %T", w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
