package archive

import (
	"github.com/klauspost/compress/zstd"
	parquetzstd "github.com/parquet-go/parquet-go/compress/zstd"
)

// codec is zstd with one encoder for all files and a window about as large as a page. The library's
// own encoders keep 8 MiB of history each.
type codec struct{ parquetzstd.Codec }

// windowBytes is how far back the encoder looks.
const windowBytes = 512 << 10

var encoder = func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(windowBytes))
	if err != nil {
		panic(err) // the options are constant
	}
	return e
}()

// Encode implements compress.Codec.
func (*codec) Encode(dst, src []byte) ([]byte, error) { return encoder.EncodeAll(src, dst[:0]), nil }
