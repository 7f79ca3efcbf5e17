package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codec is a compression of pages, by its number in the metadata.
type codec int64

const (
	uncompressed codec = iota
	snappyCodec
	gzipCodec
	lzoCodec
	brotliCodec
	lz4Codec
	zstdCodec
	lz4RawCodec
)

var codecs = []struct {
	name  string
	ratio int64 // greatest inflated size of a compressed byte; for the last three a generous bound
}{{"nothing", 1}, {"snappy", 32}, {"gzip", 1100}, {"lzo", 0}, {"brotli", 1 << 16}, {"lz4", 256}, {"zstd",
	1 << 16}, {"lz4_raw", 256}}

func (c codec) String() string {
	if c < 0 || int(c) >= len(codecs) {
		return fmt.Sprintf("codec %d", int64(c))
	}
	return codecs[c].name
}

// ratio is the greatest ratio of the inflated to the compressed size of a page.
func (c codec) ratio() int64 { return codecs[c].ratio }

// check returns an error for a codec that cannot be read.
func (c codec) check() error {
	if c < 0 || int(c) >= len(codecs) || codecs[c].ratio == 0 {
		return fmt.Errorf("it is compressed by %v; write it anew with snappy or zstd (gzip, brotli, lz4 and none "+
			"are read too)", c)
	}
	return nil
}

var errLength = errors.New("its length differs from that in its header")

// inflate decompresses src into dst, which it must fill exactly.
func (c codec) inflate(dst, src []byte) error {
	n, err := 0, error(nil)
	switch c {
	case snappyCodec:
		if n, err = snappy.DecodedLen(src); err == nil && n == len(dst) {
			_, err = snappy.Decode(dst, src)
		}
	case gzipCodec:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(src)); err == nil {
			err = fill(z, dst)
		}
		return err
	case brotliCodec:
		return fill(brotli.NewReader(bytes.NewReader(src)), dst)
	case zstdCodec:
		var out []byte
		out, err = zstdDecoder().DecodeAll(src, dst[:0:len(dst)])
		n = len(out)
	case lz4RawCodec:
		n, err = lz4.UncompressBlock(src, dst)
	case lz4Codec:
		if framedLZ4(dst, src) {
			return nil
		}
		n, err = lz4.UncompressBlock(src, dst) // some writers use plain blocks under the same number
	}
	if err == nil && n != len(dst) {
		err = errLength
	}
	return err
}

// fill reads dst from r, which must end there. Reading to the end also compares the checksum, if the format has one.
func fill(r io.Reader, dst []byte) error {
	if _, err := io.ReadFull(r, dst); err != nil {
		return err
	}
	if more, end := r.Read(make([]byte, 1)); more > 0 || end != io.EOF {
		return errLength
	}
	return nil
}

// framedLZ4 decompresses Hadoop's variant of lz4: blocks, each after its inflated and its compressed length, both big
// endian. It fails if src has another layout.
func framedLZ4(dst, src []byte) bool {
	for len(src) >= 8 {
		length, stored := int64(binary.BigEndian.Uint32(src)), int64(binary.BigEndian.Uint32(src[4:]))
		if src = src[8:]; length > int64(len(dst)) || stored > int64(len(src)) {
			return false
		}
		if n, err := lz4.UncompressBlock(src[:stored], dst[:length]); err != nil || int64(n) != length {
			return false
		}
		dst, src = dst[length:], src[stored:]
	}
	return len(dst) == 0 && len(src) == 0
}

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // only contradictory options can fail
	}
	return d
})
