package exporter

import (
	"sync"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// sharedZstd compresses pages with one encoder per level. Arrow's own codec
// makes a new encoder, some megabytes of tables, for every page.
type sharedZstd struct{ compress.Codec }

var zstdEncoders sync.Map // zstd.EncoderLevel -> func() *zstd.Encoder

// EncodeLevel implements compress.Codec.
func (sharedZstd) EncodeLevel(dst, src []byte, level int) []byte {
	speed := zstd.SpeedDefault
	if level != compress.DefaultCompressionLevel {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	encoder, _ := zstdEncoders.LoadOrStore(speed, sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithEncoderLevel(speed), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	}))
	return encoder.(func() *zstd.Encoder)().EncodeAll(src, dst[:0])
}

// The codec takes the place of Arrow's for the whole process, before anything
// can use it: files that others write come out the same, with less work.
func init() {
	if codec, err := compress.GetCodec(compress.Codecs.Zstd); err == nil {
		compress.RegisterCodec(compress.Codecs.Zstd, sharedZstd{codec})
	}
}
