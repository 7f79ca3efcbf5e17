package parquet

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

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

// pages reads the pages of a column chunk.
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

// start moves to the first page of a chunk.
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
