package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// encoding is how the values of a page are stored.
type encoding int64

const (
	plainEncoding      encoding = 0
	oldDictionary      encoding = 2
	runsEncoding       encoding = 3
	dictionaryEncoding encoding = 8
	splitEncoding      encoding = 9
)

var encodingNames = []string{"plain", "1", "plain_dictionary", "rle", "bit_packed", "delta_binary_packed", "delta_length_byte_array", "delta_byte_array", "rle_dictionary", "byte_stream_split"}

func (e encoding) String() string {
	if e < 0 || int(e) >= len(encodingNames) {
		return fmt.Sprint(int64(e))
	}
	return encodingNames[e]
}

// errShort is the error of a page that has fewer values than its header says.
var errShort = errors.New("a page ends early")

// hybrid reads small integers in runs and bit-packed groups of eight
// (https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE).
type hybrid struct {
	data  []byte // from the next run or group on
	width int    // bits of an integer, up to 32

	run   int64 // integers left of a run
	value uint32

	packed int64 // integers left of groups
	groups []byte
	bit    int64 // place of the next in groups
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
			h.unpack(dst[:n])
			dst, h.packed = dst[n:], h.packed-n
		default:
			if err := h.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hybrid) unpack(dst []uint32) {
	mask := uint64(1)<<h.width - 1
	for i := range dst {
		var word [8]byte
		at := h.bit >> 3
		if at+8 <= int64(len(h.groups)) {
			word = [8]byte(h.groups[at:])
		} else if at < int64(len(h.groups)) {
			copy(word[:], h.groups[at:])
		}
		dst[i] = uint32(binary.LittleEndian.Uint64(word[:]) >> (h.bit & 7) & mask)
		h.bit += int64(h.width)
	}
}

// next reads the header of a run or of groups.
func (h *hybrid) next() error {
	header, n := binary.Uvarint(h.data)
	if n <= 0 || header >= 1<<32 {
		return errShort
	}
	h.data = h.data[n:]
	count := int64(header >> 1)
	if header&1 == 0 {
		bytes := (h.width + 7) / 8
		if len(h.data) < bytes {
			return errShort
		}
		var word [4]byte
		copy(word[:], h.data[:bytes])
		h.run, h.value, h.data = count, binary.LittleEndian.Uint32(word[:]), h.data[bytes:]
		return nil
	}
	bytes := min(count*int64(h.width), int64(len(h.data))) // some writers leave out what nobody reads of the last group
	h.packed, h.groups, h.bit, h.data = 8*count, h.data[:bytes], 0, h.data[bytes:]
	return nil
}

// prefixed takes the bytes off data that follow their length.
func prefixed(data []byte) (bytes, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-4) {
		return nil, nil, errShort
	}
	return data[4 : 4+n], data[4+n:], nil
}

// dictionary is the values that the pages of a column chunk refer to.
type dictionary struct {
	fixed []byte   // if all have one size
	texts [][]byte // otherwise
}

// truth is the dictionary that runs of truth values refer to.
var truth = &dictionary{fixed: []byte{0, 1}}

func newDictionary(p *page, c *Column) (*dictionary, error) {
	if p.encoding != plainEncoding && p.encoding != oldDictionary {
		return nil, fmt.Errorf("a dictionary in the encoding %v", p.encoding)
	}
	if p.cells > int64(len(p.data)) { // an empty text has 4 bytes, eight truth values have one, but no dictionary
		return nil, errShort
	}
	v := values{column: c, data: p.data}
	if c.size > 0 {
		fixed, err := v.fixed(int(p.cells))
		return &dictionary{fixed: fixed}, err
	}
	d := &dictionary{texts: make([][]byte, p.cells)}
	return d, v.text(d.texts)
}

// values reads the values of a data page, without those that are null.
type values struct {
	column     *Column
	data       []byte
	dictionary *dictionary
	indices    hybrid // into dictionary, if there is one
	streams    int64  // values in data, whose first, second, … bytes lie together; 0: they do not
	at         int64  // next of streams, or bit of truth values

	index   []uint32
	scratch []byte
}

// setEncoding tells how the values of a page are stored.
func (v *values) setEncoding(e encoding, d *dictionary) (err error) {
	isBool := v.column.Kind == Bool
	switch {
	case e == plainEncoding:
		return nil
	case e == dictionaryEncoding || e == oldDictionary:
		if d == nil {
			return errors.New("a page refers to a dictionary, but there is none")
		}
		if v.dictionary = d; len(v.data) == 0 {
			return nil
		}
		v.indices = hybrid{data: v.data[1:], width: int(v.data[0])}
		if v.indices.width > 32 {
			return fmt.Errorf("a page has references of %d bits", v.indices.width)
		}
		return nil
	case e == runsEncoding && isBool:
		v.dictionary, v.indices.width = truth, 1
		v.indices.data, _, err = prefixed(v.data)
		return err
	case e == splitEncoding && v.column.size > 0 && !isBool:
		v.streams = int64(len(v.data) / v.column.size)
		return nil
	}
	return fmt.Errorf("it has the encoding %v (plain, dictionary and byte_stream_split are read)", e)
}

// fixed reads n values of one size each; of a truth value, a byte.
func (v *values) fixed(n int) ([]byte, error) {
	size := v.column.size
	switch {
	case v.dictionary != nil:
		if err := v.references(n, len(v.dictionary.fixed)/size); err != nil {
			return nil, err
		}
		out := v.room(n * size)
		for i, k := range v.index {
			copy(out[i*size:(i+1)*size], v.dictionary.fixed[int(k)*size:])
		}
		return out, nil
	case v.column.Kind == Bool:
		if int64(n) > 8*int64(len(v.data))-v.at {
			return nil, errShort
		}
		out := v.room(n)
		for i := range out {
			out[i] = v.data[v.at>>3] >> (v.at & 7) & 1
			v.at++
		}
		return out, nil
	case v.streams > 0:
		if int64(n) > v.streams-v.at {
			return nil, errShort
		}
		out := v.room(n * size)
		for i := range n {
			for b := range size {
				out[i*size+b] = v.data[int64(b)*v.streams+v.at]
			}
			v.at++
		}
		return out, nil
	}
	if n > len(v.data)/size {
		return nil, errShort
	}
	out := v.data[:n*size]
	v.data = v.data[n*size:]
	return out, nil
}

// text fills dst with values of sizes of their own.
func (v *values) text(dst [][]byte) (err error) {
	if v.dictionary != nil {
		if err := v.references(len(dst), len(v.dictionary.texts)); err != nil {
			return err
		}
		for i, k := range v.index {
			dst[i] = v.dictionary.texts[k]
		}
		return nil
	}
	for i := range dst {
		if dst[i], v.data, err = prefixed(v.data); err != nil {
			return err
		}
	}
	return nil
}

// references reads n places in a dictionary of so many values into index.
func (v *values) references(n, of int) error {
	if cap(v.index) < n {
		v.index = make([]uint32, n)
	}
	v.index = v.index[:n]
	if err := v.indices.read(v.index); err != nil {
		return err
	}
	for _, k := range v.index {
		if int64(k) >= int64(of) {
			return fmt.Errorf("a page refers to value %d of a dictionary of %d", k, of)
		}
	}
	return nil
}

func (v *values) room(n int) []byte {
	if cap(v.scratch) < n {
		v.scratch = make([]byte, n)
	}
	return v.scratch[:n]
}
