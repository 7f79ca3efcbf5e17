package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// hybrid reads small integers in the RLE/bit-packing hybrid: runs, and bit-packed groups of eight
// (https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE).
type hybrid struct {
	data  []byte // not read yet, from a run or groups on
	width int    // bits of an integer, up to 32

	run   int64 // integers of the run that were not read yet
	value uint32

	packed int64 // integers of the groups that were not read yet
	groups []byte
	bit    int64 // position of the next integer in groups
}

func (h *hybrid) read(dst []uint32) error {
	for len(dst) > 0 {
		switch {
		case h.run > 0:
			n := min(int64(len(dst)), h.run)
			for i := range dst[:n] {
				dst[i] = h.value
			}
			dst, h.run = dst[n:], h.run-n
		case h.packed > 0:
			n := min(int64(len(dst)), h.packed)
			if h.bit+n*int64(h.width) > 8*int64(len(h.groups)) {
				return errShort
			}
			unpack(dst[:n], h.groups, h.bit, h.width)
			h.bit += n * int64(h.width)
			dst, h.packed = dst[n:], h.packed-n
		default:
			if err := h.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// allOf skips n integers and returns true if all of them are value and in one run; else it skips none.
func (h *hybrid) allOf(value uint32, n int64) bool {
	for h.run == 0 && h.packed == 0 {
		if h.next() != nil {
			return false // read will return this error
		}
	}
	if h.run < n || h.value != value {
		return false
	}
	h.run -= n
	return true
}

// unpack reads integers of width bits each, from a bit of packed on, with zeros beyond its end.
func unpack[T uint32 | int64](dst []T, packed []byte, bit int64, width int) {
	mask := uint64(1)<<width - 1
	i := 0
	for ; i < len(dst) && width <= 56; i++ { // at any bit of a byte, 56 bits lie within 8 bytes
		at := bit >> 3
		if at+8 > int64(len(packed)) {
			break
		}
		dst[i] = T(binary.LittleEndian.Uint64(packed[at:]) >> (bit & 7) & mask)
		bit += int64(width)
	}
	for ; i < len(dst); i++ {
		var word [9]byte
		if at := bit >> 3; at < int64(len(packed)) {
			copy(word[:], packed[at:])
		}
		dst[i] = T((binary.LittleEndian.Uint64(word[:])>>(bit&7) | uint64(word[8])<<(64-bit&7)) & mask)
		bit += int64(width)
	}
}

// next reads the header of a run or of groups.
func (h *hybrid) next() error {
	header, n := binary.Uvarint(h.data)
	if n <= 0 || header >= 1<<32 {
		return errShort
	}
	data := h.data[n:]
	count := int64(header >> 1)
	if header&1 == 0 {
		bytes := (h.width + 7) / 8
		if len(data) < bytes {
			return errShort
		}
		var word [4]byte
		copy(word[:], data[:bytes])
		h.run, h.value, h.data = count, binary.LittleEndian.Uint32(word[:]), data[bytes:]
		return nil
	}
	bytes := min(count*int64(h.width), int64(len(data))) // some writers cut the unused rest of the last group
	h.packed, h.groups, h.bit, h.data = 8*count, data[:bytes], 0, data[bytes:]
	return nil
}

// maxDeltaBlock is the greatest number of values of a block; writers use 128 to 4096.
const maxDeltaBlock = 1 << 20

var errDelta = errors.New("its delta encoding is not valid")

// delta reads integers that are stored as differences (DELTA_BINARY_PACKED,
// https://parquet.apache.org/docs/file-format/data-pages/encodings/#DELTAENC). They come in blocks of parts (miniblocks
// in the specification), and each part has a width in bits.
type delta struct {
	data    []byte // not read yet, from a block on
	partLen int64  // values in a part
	parts   int    // in a block
	left    int64  // values that were not read yet; the first is in the header
	started bool
	value   int64 // the value before the next difference

	least  int64  // least difference of the block, which is added to the stored numbers
	widths []byte // widths of the parts of the block that were not read yet
	inPart int64  // values of the part that were not read yet
	packed []byte // from the part on
	width  int
	bit    int64 // position of the next number in packed
}

// open reads the header. More values than most are an error.
func (d *delta) open(data []byte, most int64) error {
	c := &compact{data: data}
	block, parts, count := c.uvarint(), c.uvarint(), c.uvarint()
	first := c.int()
	if c.err != nil {
		return errShort
	}
	if parts == 0 || block > maxDeltaBlock || block%8 != 0 || block%(parts*8) != 0 || block == 0 {
		return errDelta
	}
	if count > uint64(most) {
		return fmt.Errorf("it has %d differences and says that it has %d values", count, most)
	}
	*d = delta{data: c.data, partLen: int64(block / parts), parts: int(parts), left: int64(count), value: first}
	return nil
}

// block reads the header of a block, and leaves data at its first part.
func (d *delta) block() error {
	c := &compact{data: d.data}
	d.least = c.int()
	d.widths = c.bytes(uint64(d.parts))
	if d.data = c.data; c.err != nil {
		return errShort
	}
	return nil
}

// part goes to the next part of the block.
func (d *delta) part() error {
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return errDelta
	}
	bytes := d.partLen / 8 * int64(d.width)
	if bytes > int64(len(d.data)) { // the last part may end after its last value
		if bytes = int64(len(d.data)); d.left*int64(d.width) > 8*bytes {
			return errShort
		}
	}
	slack := min(int64(len(d.data)), bytes+8) // so that most numbers are read as whole words
	d.packed, d.data, d.bit, d.inPart = d.data[:slack], d.data[bytes:], 0, d.partLen
	return nil
}

func (d *delta) read(dst []int64) error {
	if int64(len(dst)) > d.left {
		return errShort
	}
	if len(dst) > 0 && !d.started {
		d.started, d.left = true, d.left-1
		dst[0], dst = d.value, dst[1:]
	}
	for len(dst) > 0 {
		if d.inPart == 0 {
			if len(d.widths) == 0 {
				if err := d.block(); err != nil {
					return err
				}
			}
			if err := d.part(); err != nil {
				return err
			}
		}
		n := min(int64(len(dst)), d.inPart)
		unpack(dst[:n], d.packed, d.bit, d.width)
		d.bit += n * int64(d.width)
		for i, step := range dst[:n] {
			d.value += d.least + step
			dst[i] = d.value
		}
		dst, d.inPart, d.left = dst[n:], d.inPart-n, d.left-n
	}
	return nil
}

// end returns the bytes after the integers. It must be called before any is read.
func (d *delta) end() ([]byte, error) {
	walk := *d
	for walk.left--; walk.left > 0; walk.left -= walk.partLen {
		if len(walk.widths) == 0 {
			if err := walk.block(); err != nil {
				return nil, err
			}
		}
		if err := walk.part(); err != nil {
			return nil, err
		}
	}
	return walk.data, nil
}

// byteDeltas reads byte arrays: all lengths come first, then all bytes (DELTA_LENGTH_BYTE_ARRAY). If they are prefixed,
// each begins with some bytes of the one before, and the numbers of these come first of all (DELTA_BYTE_ARRAY).
type byteDeltas struct {
	prefixes, lengths delta
	prefixed          bool
	data              []byte // bytes of the arrays that were not read yet
	last              []byte
	prefix, length    []int64
	batch             [2][64]int64 // memory of prefix and length
}

func (b *byteDeltas) open(data []byte, prefixed bool, values int64) (err error) {
	*b = byteDeltas{prefixed: prefixed, last: b.last[:0]}
	if prefixed {
		if err = b.prefixes.open(data, values); err == nil {
			data, err = b.prefixes.end()
		}
		if err != nil {
			return err
		}
	}
	if err := b.lengths.open(data, values); err != nil {
		return err
	}
	if prefixed && b.lengths.left != b.prefixes.left {
		return errDelta
	}
	b.data, err = b.lengths.end()
	return err
}

// next returns the next array, which is valid until the next call.
func (b *byteDeltas) next() ([]byte, error) {
	if len(b.length) == 0 {
		n := min(int64(len(b.batch[0])), b.lengths.left)
		if n == 0 {
			return nil, errShort
		}
		b.prefix, b.length = b.batch[0][:n], b.batch[1][:n]
		err := b.lengths.read(b.length)
		if err == nil && b.prefixed {
			err = b.prefixes.read(b.prefix)
		}
		if err != nil {
			return nil, err
		}
	}
	prefix, length := b.prefix[0], b.length[0]
	b.prefix, b.length = b.prefix[1:], b.length[1:]
	if length < 0 || length > int64(len(b.data)) || prefix < 0 || prefix > int64(len(b.last)) {
		return nil, errDelta
	}
	if prefix+length > maxText {
		return nil, errLong
	}
	value := b.data[:length]
	b.data = b.data[length:]
	if !b.prefixed {
		return value, nil
	}
	b.last = append(b.last[:prefix], value...)
	return b.last, nil
}
