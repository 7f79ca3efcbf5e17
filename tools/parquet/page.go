package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
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

func (c codec) ratio() int64 { return codecs[c].ratio }

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
	if _, end := io.ReadFull(r, make([]byte, 1)); end != io.EOF { // Read may return neither a byte nor the end
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

// Greatest size of the header of a page, and size of one read of the file, in bytes.
const (
	maxPageHeader = 1 << 20
	readAhead     = 1 << 20
)

// Kinds of page.
const (
	dataPage       = 0
	indexPage      = 1
	dictionaryPage = 2
	dataPageV2     = 3
)

// page is a decompressed page: a dictionary, or levels and values.
type page struct {
	kind     int64
	cells    int64 // of a dictionary: its values
	encoding encoding
	// Version 1 states the encodings of levels, and a length precedes the levels; version 2 states the lengths, and has
	// one encoding.
	repEncoding, defEncoding encoding
	repBytes, defBytes       int64
	data                     []byte // valid until the next page

	inflated, stored int64 // bytes
	checksum         int64 // -1: none
	plain            bool  // not compressed, which pages of version 2 may be in any column
}

type pages struct {
	file     vfs.File
	at, end  int64
	codec    codec
	maxBytes int64 // greatest size of a page

	read     int    // number of pages read so far
	ahead    []byte // bytes of the file from position at on
	buffer   []byte // memory of ahead
	inflated []byte
}

func (p *pages) start(file vfs.File, k *chunk) {
	p.file, p.at, p.end, p.codec = file, k.start, k.start+k.size, k.codec
	p.read, p.ahead = 0, nil
}

// peek returns the next n bytes, or all that are left, without moving on.
func (p *pages) peek(n int64) ([]byte, error) {
	n = min(n, p.end-p.at)
	have := int64(len(p.ahead))
	if have >= n {
		return p.ahead[:n], nil
	}
	size := min(max(n, min(readAhead, p.maxBytes)), p.end-p.at)
	to := p.buffer
	if int64(cap(to)) < size {
		to = make([]byte, size)
	}
	to = to[:size]
	copy(to, p.ahead)
	p.buffer, p.ahead = to, nil
	if err := readFull(p.file, to[have:], p.at+have); err != nil {
		return nil, err
	}
	p.ahead = to
	return to[:n], nil
}

func (p *pages) skip(n int64) {
	p.ahead = p.ahead[min(n, int64(len(p.ahead))):]
	p.at += n
}

// next reads the next page of data or of a dictionary, and returns io.EOF after the last.
func (p *pages) next() (*page, error) {
	for p.at < p.end {
		h, err := p.header()
		if err != nil {
			return nil, err
		}
		p.read++
		if h.inflated < 0 || h.stored < 0 || h.stored > p.end-p.at {
			return nil, fmt.Errorf("it says that it has %d bytes, and %d are left", h.stored, p.end-p.at)
		}
		if h.kind == indexPage || h.kind > dataPageV2 {
			p.skip(h.stored)
			continue
		}
		if err := p.check(h); err != nil {
			return nil, err
		}
		stored, err := p.peek(h.stored)
		if err != nil {
			return nil, err
		}
		if found := crc32.ChecksumIEEE(stored); h.checksum >= 0 && int64(found) != h.checksum {
			return nil, fmt.Errorf("its bytes have the checksum %08x, and its header says %08x", found, h.checksum)
		}
		err = p.inflate(h, stored)
		p.skip(h.stored)
		return h, err
	}
	return nil, io.EOF
}

// check refuses a page whose sizes contradict each other or the codec, or exceed maxBytes.
func (p *pages) check(h *page) error {
	if h.kind < 0 || h.cells < 0 || h.repBytes < 0 || h.defBytes < 0 || h.repBytes > h.stored ||
		h.defBytes > h.stored-h.repBytes || h.repBytes+h.defBytes > h.inflated {
		return errors.New("its header is not valid")
	}
	ratio := p.codec.ratio()
	if h.plain {
		ratio = 1
	}
	if h.inflated/ratio > h.stored+64 {
		return fmt.Errorf("it says that %d bytes of %v inflate to %d", h.stored, p.codec, h.inflated)
	}
	if size := max(h.stored, h.inflated); size > p.maxBytes {
		return fmt.Errorf("%w: the page has %v, and a page may have %v, 1/%d of the memory that may be used (give "+
			"more with --memory, or write smaller pages)", machine.ErrDoesNotFit, units.Bytes(size),
			units.Bytes(p.maxBytes), memoryShare)
	}
	return nil
}

// tooLarge reports whether an error says that a limit of memory is too low.
func tooLarge(err error) bool { return errors.Is(err, machine.ErrDoesNotFit) }

// header reads the header of the page at position p.at, and moves on to its data.
func (p *pages) header() (*page, error) {
	for size := int64(1 << 10); ; size = min(8*size, maxPageHeader) {
		window, err := p.peek(size)
		if err != nil {
			return nil, err
		}
		c := &compact{data: window}
		h := c.page()
		if c.err == nil {
			p.skip(int64(len(window) - len(c.data)))
			return h, nil
		}
		if c.err != errCut || int64(len(window)) < size || size == maxPageHeader {
			return nil, c.err
		}
	}
}

func (c *compact) page() *page {
	h := &page{kind: -1, cells: -1, stored: -1, inflated: -1, checksum: -1}
	encoding := (*int64)(&h.encoding)
	c.read(fields{
		{1, &h.kind}, {2, &h.inflated}, {3, &h.stored},
		{4, func(t wire) {
			c.number(t, &h.checksum)
			h.checksum = int64(uint32(h.checksum))
		}},
		{5, fields{{1, &h.cells}, {2, encoding}, {3, (*int64)(&h.defEncoding)}, {4, (*int64)(&h.repEncoding)}}},
		{7, fields{{1, &h.cells}, {2, encoding}}},
		{8, fields{{1, &h.cells}, {4, encoding}, {5, &h.defBytes}, {6, &h.repBytes}, {7, func(t wire) {
			h.plain = t == wireFalse
			c.skip(t, false)
		}}}},
	})
	return h
}

// inflate decompresses the stored bytes of a page into its data. The levels of pages of version 2 are never compressed.
func (p *pages) inflate(h *page, stored []byte) error {
	levels := int64(0)
	if h.kind == dataPageV2 {
		levels = h.repBytes + h.defBytes
	}
	if p.codec == uncompressed || h.plain {
		if h.stored != h.inflated {
			return fmt.Errorf("it has %d bytes, is stored as %d, and is not compressed", h.inflated, h.stored)
		}
		h.data = stored
		return nil
	}
	if int64(cap(p.inflated)) < h.inflated {
		p.inflated = make([]byte, h.inflated)
	}
	h.data = p.inflated[:h.inflated]
	copy(h.data, stored[:levels])
	if levels == h.inflated && levels == h.stored {
		return nil // no values: some writers leave the compressed part out
	}
	if err := p.codec.inflate(h.data[levels:], stored[levels:]); err != nil {
		return fmt.Errorf("it does not inflate (%v): %w", p.codec, err)
	}
	return nil
}
