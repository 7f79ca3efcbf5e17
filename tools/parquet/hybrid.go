package parquet

import (
	"encoding/binary"
)

// hybrid reads small integers in the RLE/bit-packing hybrid: runs, and bit-packed groups of eight
// (https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE).
type hybrid struct {
	data  []byte // what was not read yet, from a run or groups on
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
