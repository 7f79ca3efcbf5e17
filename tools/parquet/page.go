package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/hopfeed/hopfeed/internal/units"
)

// Bounds of a page, which is in memory as a whole, and of its header. Writers make
// pages of a few MiB.
const (
	maxPage       = 256 << 20
	maxPageHeader = 1 << 20
)

// Kinds of page.
const (
	dataPage       = 0
	dictionaryPage = 2
	dataPageV2     = 3
)

// page is a page, inflated: of a dictionary, or of levels and values.
type page struct {
	kind     int64
	cells    int64 // values of a dictionary
	encoding encoding
	// Of the levels of version 1, which have their lengths before them, the
	// encodings; of version 2 the lengths.
	repEncoding, defEncoding encoding
	repBytes, defBytes       int64
	data                     []byte

	inflated, stored int64 // bytes
	checksum         int64 // -1: none
	plain            bool  // version 2 need not be compressed
}

// pages reads the pages of a column chunk.
type pages struct {
	file    *openedFile
	at, end int64
	codec   codec
	window  []byte
}

// next reads the next page of a kind that is known; io.EOF after the last.
func (p *pages) next() (*page, error) {
	for p.at < p.end {
		h, err := p.header()
		if err != nil {
			return nil, err
		}
		if h.inflated < 0 || h.stored < 0 || h.stored > p.end-p.at {
			return nil, fmt.Errorf("a page of %d bytes where %d are left", h.stored, p.end-p.at)
		}
		if h.inflated > maxPage || h.stored > maxPage {
			return nil, fmt.Errorf("a page of %v (at most %v are read)", units.Bytes(max(h.inflated, h.stored)), units.Bytes(maxPage))
		}
		at := p.at
		p.at += h.stored
		if h.kind != dataPage && h.kind != dictionaryPage && h.kind != dataPageV2 {
			continue
		}
		if h.cells < 0 || h.repBytes < 0 || h.defBytes < 0 || h.repBytes > h.stored || h.defBytes > h.stored-h.repBytes {
			return nil, errors.New("a page header makes no sense")
		}
		stored := make([]byte, h.stored) // anew, as texts stay in it
		if err := readFull(p.file, stored, at); err != nil {
			return nil, err
		}
		if found := crc32.ChecksumIEEE(stored); h.checksum >= 0 && int64(found) != h.checksum {
			return nil, fmt.Errorf("a page has checksum %08x, and its header %08x", found, h.checksum)
		}
		return h, h.inflate(p.codec, stored)
	}
	return nil, io.EOF
}

// header reads the header of the page at p.at, and moves on to its data.
func (p *pages) header() (*page, error) {
	for size := int64(1 << 10); ; size *= 8 {
		size = min(size, p.end-p.at, maxPageHeader)
		if int64(cap(p.window)) < size {
			p.window = make([]byte, size)
		}
		p.window = p.window[:size]
		if err := readFull(p.file, p.window, p.at); err != nil {
			return nil, err
		}
		c := &compact{data: p.window}
		h := c.page()
		if c.err == nil {
			p.at += size - int64(len(c.data))
			return h, nil
		}
		if c.err != errCut || size == p.end-p.at || size == maxPageHeader {
			return nil, c.err
		}
	}
}

func (c *compact) page() *page {
	h := &page{kind: -1, cells: -1, checksum: -1}
	checksum := int64(-1)
	c.fields(wireStruct, map[int64]*int64{1: &h.kind, 2: &h.inflated, 3: &h.stored, 4: &checksum}, func(id int64, t wire) {
		switch id {
		case 5:
			c.fields(t, map[int64]*int64{1: &h.cells, 2: (*int64)(&h.encoding), 3: (*int64)(&h.defEncoding), 4: (*int64)(&h.repEncoding)}, c.skipField)
		case 7:
			c.fields(t, map[int64]*int64{1: &h.cells, 2: (*int64)(&h.encoding)}, c.skipField)
		case 8:
			c.fields(t, map[int64]*int64{1: &h.cells, 4: (*int64)(&h.encoding), 5: &h.defBytes, 6: &h.repBytes}, func(id int64, t wire) {
				h.plain = h.plain || id == 7 && t == wireFalse
				c.skip(t, false)
			})
		case 4: // a checksum of another type than it should be
			c.fail(errThrift)
		default:
			c.skip(t, false)
		}
	})
	if checksum != -1 {
		h.checksum = int64(uint32(checksum))
	}
	return h
}

// inflate sets data from the bytes stored. The levels of version 2 are as they are.
func (h *page) inflate(by codec, stored []byte) error {
	levels := int64(0)
	if h.kind == dataPageV2 {
		levels = h.repBytes + h.defBytes
	}
	if by == uncompressed || h.plain {
		if h.stored != h.inflated {
			return fmt.Errorf("a page of %d bytes is stored as %d, and not compressed", h.inflated, h.stored)
		}
		h.data = stored
		return nil
	}
	if levels > h.inflated {
		return errShort
	}
	h.data = make([]byte, h.inflated)
	copy(h.data, stored[:levels])
	if err := by.inflate(h.data[levels:], stored[levels:]); err != nil {
		return fmt.Errorf("a page does not inflate: %w", err)
	}
	return nil
}

// codec is how pages are compressed.
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

var codecNames = []string{"nothing", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"}

func (c codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return fmt.Sprintf("codec %d", int64(c))
	}
	return codecNames[c]
}

// check fails for what is not read.
func (c codec) check() error {
	switch c {
	case uncompressed, snappyCodec, gzipCodec, zstdCodec, lz4RawCodec:
		return nil
	}
	return fmt.Errorf("it is compressed by %v (nothing, snappy, gzip, zstd and lz4_raw are read)", c)
}

var errLength = errors.New("it has not the length that its header says")

// inflate fills dst, and no more.
func (c codec) inflate(dst, src []byte) error {
	n, err := 0, error(nil)
	switch c {
	case snappyCodec:
		if n, err = snappy.DecodedLen(src); err == nil && n == len(dst) {
			_, err = snappy.Decode(dst, src)
		}
	case gzipCodec:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(src)); err != nil {
			return err
		}
		if n, err = io.ReadFull(z, dst); err != nil {
			return err
		}
		if more, end := z.Read(make([]byte, 1)); more > 0 || end != io.EOF { // and the checksum
			return errLength
		}
	case zstdCodec:
		var out []byte
		out, err = zstdDecoder().DecodeAll(src, dst[:0:len(dst)])
		n = len(out)
	case lz4RawCodec:
		n, err = lz4.UncompressBlock(src, dst)
	}
	if err == nil && n != len(dst) {
		err = errLength
	}
	return err
}

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // of options that do not go together
	}
	return d
})
