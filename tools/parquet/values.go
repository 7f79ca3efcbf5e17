package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/tools/npy"
)

// encoding is the encoding of the values of a page, by its number in the metadata.
type encoding int64

const (
	plainEncoding      encoding = 0
	oldDictionary      encoding = 2
	runsEncoding       encoding = 3
	deltaEncoding      encoding = 5
	deltaLengths       encoding = 6
	deltaBytes         encoding = 7
	dictionaryEncoding encoding = 8
	splitEncoding      encoding = 9
)

var encodingNames = []string{"plain", "1", "plain_dictionary", "rle", "bit_packed", "delta_binary_packed",
	"delta_length_byte_array", "delta_byte_array", "rle_dictionary", "byte_stream_split"}

func (e encoding) String() string {
	if e < 0 || int(e) >= len(encodingNames) {
		return fmt.Sprint(int64(e))
	}
	return encodingNames[e]
}

// errShort is returned when a page has fewer values than its header says.
var errShort = errors.New("it ends before its last value")

// prefixed splits data into the bytes that a length of 4 bytes precedes, and the rest.
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

// vector is values of one kind: one of the slices is used.
type vector struct {
	Ints   []int64   // values of integer and truth columns
	Floats []float64 // values of float columns
	texts  texts     // values of text columns
}

// dictionary is the values that the pages of a column chunk refer to.
type dictionary struct {
	vector
	n int
}

// newDictionary decodes a dictionary page, which may be overwritten after. Texts of more than most bytes are an error.
func newDictionary(p *page, c *Column, most int64) (*dictionary, error) {
	if p.encoding != plainEncoding && p.encoding != oldDictionary {
		return nil, fmt.Errorf("a dictionary in the encoding %v", p.encoding)
	}
	least := int64(4) // least bytes of a value: a text begins with its length
	if c.size > 0 {
		least = int64(c.size)
	}
	if c.Kind == Bool || p.cells > int64(len(p.data))/least {
		return nil, errShort
	}
	d := &dictionary{n: int(p.cells)}
	v := values{column: c, data: p.data, maxBytes: most}
	return d, v.read(&d.vector, nil, d.n)
}

// values reads the values of a data page that are not null.
type values struct {
	column     *Column
	maxBytes   int64 // greatest size of the texts of one call of Next
	encoding   encoding
	data       []byte
	dictionary *dictionary
	indices    hybrid // indices into dictionary, or truth values
	deltas     delta
	arrays     byteDeltas
	streams    int64 // of split values: their number; data has all first bytes, then all second ones, …
	at         int64 // index of the next split value

	index   []uint32
	scratch []byte
	whole   []int64
}

// setEncoding sets the encoding of a page, which has at most most values.
func (v *values) setEncoding(e encoding, d *dictionary, most int64) (err error) {
	c := v.column
	isArray := c.stored == npy.Bytes
	switch v.encoding = e; {
	case e == plainEncoding && c.Kind == Bool: // a bit each, as groups have it
		v.indices = hybrid{width: 1, packed: 8 * int64(len(v.data)), groups: v.data}
		return nil
	case e == plainEncoding:
		return nil
	case e == dictionaryEncoding || e == oldDictionary:
		if d == nil {
			return errors.New("it refers to a dictionary, but there is none")
		}
		v.encoding = dictionaryEncoding
		if v.dictionary = d; len(v.data) == 0 {
			v.indices = hybrid{}
			return nil
		}
		v.indices = hybrid{data: v.data[1:], width: int(v.data[0])}
		if v.indices.width > 32 {
			return fmt.Errorf("it has references of %d bits", v.indices.width)
		}
		return nil
	case e == runsEncoding && c.Kind == Bool:
		v.indices = hybrid{width: 1}
		v.indices.data, _, err = prefixed(v.data)
		return err
	case e == splitEncoding && c.size > 0 && c.Kind != Bool:
		v.streams, v.at = int64(len(v.data)/c.size), 0
		return nil
	case e == deltaEncoding && c.stored.IsInteger():
		return v.deltas.open(v.data, most)
	case e == deltaLengths && isArray && c.size == 0, e == deltaBytes && isArray:
		return v.arrays.open(v.data, e == deltaBytes, most)
	}
	return fmt.Errorf("values of this type cannot have the encoding %v", e)
}

// read appends max(len(null), present) values of the column's kind: the next present values, and 0 or an empty text for
// each null.
func (v *values) read(to *vector, null []bool, present int) error {
	switch v.column.Kind {
	case Text:
		return v.texts(&to.texts, null, present)
	case Float:
		return spread(&to.Floats, null, present, v.floats)
	default:
		return spread(&to.Ints, null, present, v.ints)
	}
}

// spread appends the present values that read reads, with a 0 at each null.
func spread[T int64 | float64](to *[]T, null []bool, present int, read func([]T) error) error {
	from, n := len(*to), max(len(null), present)
	*to = slices.Grow(*to, n)[:from+n]
	dst := (*to)[from:]
	if err := read(dst[:present]); err != nil {
		return err
	}
	for i := n - 1; present <= i; i-- { // the values before are in place: no null precedes them
		if dst[i] = 0; !null[i] {
			present--
			dst[i] = dst[present]
		}
	}
	return nil
}

// ints reads integers, truth values, and decimals without their scale.
func (v *values) ints(dst []int64) error {
	c := v.column
	switch {
	case v.encoding == dictionaryEncoding:
		return lookUp(v, dst, v.dictionary.Ints)
	case v.encoding == deltaEncoding:
		err := v.deltas.read(dst)
		for i, x := range dst {
			switch c.stored {
			case npy.Int32:
				dst[i] = int64(int32(x))
			case npy.Uint32:
				dst[i] = int64(uint32(x))
			}
		}
		return err
	case c.Kind == Bool:
		v.index = room(v.index, len(dst))
		err := v.indices.read(v.index)
		for i, b := range v.index {
			dst[i] = int64(b & 1)
		}
		return err
	}
	return decode(v, dst, wholeDecimal)
}

// floats reads floats, and decimals with decimal places.
func (v *values) floats(dst []float64) error {
	c := v.column
	switch {
	case v.encoding == dictionaryEncoding:
		return lookUp(v, dst, v.dictionary.Floats)
	case c.stored.IsInteger():
		v.whole = room(v.whole, len(dst))
		err := v.ints(v.whole)
		for i, x := range v.whole {
			dst[i] = scaled(x, c.scale)
		}
		return err
	}
	return decode(v, dst, func(b []byte) (float64, error) { return scaledBytes(b, c.scale) })
}

func lookUp[T int64 | float64](v *values, dst, entries []T) error {
	if err := v.references(len(dst)); err != nil {
		return err
	}
	for i, k := range v.index {
		dst[i] = entries[k]
	}
	return nil
}

// decode decodes little-endian numbers of a fixed size, or decimals that are byte arrays.
func decode[T int64 | float64](v *values, dst []T, decimal func([]byte) (T, error)) error {
	if v.column.stored != npy.Bytes {
		raw, err := v.fixed(len(dst))
		if err == nil {
			npy.Convert(dst, raw, &npy.Header{Type: v.column.stored})
		}
		return err
	}
	for i := range dst {
		b, err := v.array()
		if err == nil {
			dst[i], err = decimal(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxText is the greatest length of a text. Without it, a small file that refers to one long text of a dictionary many
// times would expand to more text than can be processed.
const maxText = 1 << 16

var errLong = fmt.Errorf("%w: a text of more than %d bytes, which is no id, label or split", errCannot, maxText)

// texts appends n texts to dst. With null, it appends len(null) texts: n, and empty ones for nulls.
func (v *values) texts(dst *texts, null []bool, n int) error {
	if v.encoding == dictionaryEncoding {
		if err := v.references(n); err != nil {
			return err
		}
	}
	for i, k := 0, 0; k < n || i < len(null); i++ {
		if i < len(null) && null[i] {
			dst.ends = append(dst.ends, len(dst.bytes))
			continue
		}
		var text []byte
		var err error
		if v.encoding == dictionaryEncoding {
			text = v.dictionary.texts.at(int(v.index[k]))
		} else if text, err = v.array(); err != nil {
			return err
		}
		k++
		if len(text) > maxText {
			return errLong
		}
		if int64(len(text)) > v.maxBytes-int64(len(dst.bytes)) {
			return errText
		}
		dst.bytes = append(dst.bytes, text...)
		dst.ends = append(dst.ends, len(dst.bytes))
	}
	return nil
}

// array returns the next byte array, which is valid until the next call.
func (v *values) array() (b []byte, err error) {
	switch {
	case v.encoding == deltaLengths || v.encoding == deltaBytes:
		if b, err = v.arrays.next(); err == nil && v.column.size > 0 && len(b) != v.column.size {
			err = errDelta
		}
	case v.column.size > 0:
		b, err = v.fixed(1)
	default:
		b, v.data, err = prefixed(v.data)
	}
	return b, err
}

// fixed returns the bytes of the next n values of a fixed size, also where these are split into streams. They are
// aligned for their type, and valid until the next call.
func (v *values) fixed(n int) ([]byte, error) {
	size := v.column.size
	out := room(v.scratch, n*size)
	v.scratch = out
	if v.encoding == splitEncoding {
		if int64(n) > v.streams-v.at {
			return nil, errShort
		}
		for b := range size {
			stream := v.data[int64(b)*v.streams+v.at:][:n]
			for i, x := range stream {
				out[i*size+b] = x
			}
		}
		v.at += int64(n)
		return out, nil
	}
	if n > len(v.data)/size {
		return nil, errShort
	}
	v.data = v.data[copy(out, v.data):]
	return out, nil
}

// references reads n indices into the dictionary.
func (v *values) references(n int) error {
	v.index = room(v.index, n)
	if err := v.indices.read(v.index); err != nil {
		return err
	}
	for _, k := range v.index {
		if int64(k) >= int64(v.dictionary.n) {
			return fmt.Errorf("it refers to value %d of a dictionary of %d", k, v.dictionary.n)
		}
	}
	return nil
}

// room returns a slice of n elements, of the memory of s if it is large enough.
func room[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// texts are byte arrays one after another: text i ends before ends[i].
type texts struct {
	bytes []byte
	ends  []int
}

func (t *texts) at(i int) []byte {
	start := 0
	if i > 0 {
		start = t.ends[i-1]
	}
	return t.bytes[start:t.ends[i]]
}

// maxDecimal is the greatest number of bytes of a decimal; writers use up to 32.
const maxDecimal = 64

var errDecimal = errors.New("a decimal that has no bytes, or more than are read")

// wholeDecimal decodes a big endian integer.
func wholeDecimal(b []byte) (int64, error) {
	if len(b) == 0 || len(b) > maxDecimal {
		return 0, errDecimal
	}
	v := int64(int8(b[0])) >> 7 // 0 or -1
	for i, x := range b {
		if i < len(b)-8 && x != byte(v) {
			return 0, errors.New("a decimal that int64 cannot hold")
		}
	}
	sign := v
	for _, x := range b[max(0, len(b)-8):] {
		v = v<<8 | int64(x)
	}
	if v>>63 != sign {
		return 0, errors.New("a decimal that int64 cannot hold")
	}
	return v, nil
}

// powers are the powers of ten that a float64 represents exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// scaled is v / 10^scale, rounded once.
func scaled(v int64, scale int) float64 {
	if scale < len(powers) && v > -1<<53 && v < 1<<53 {
		return float64(v) / powers[scale]
	}
	return parseScaled(strconv.FormatInt(v, 10), scale)
}

// scaledBytes is a big endian integer / 10^scale, rounded once.
func scaledBytes(b []byte, scale int) (float64, error) {
	if v, err := wholeDecimal(b); err == nil {
		return scaled(v, scale), nil
	}
	if len(b) == 0 || len(b) > maxDecimal {
		return 0, errDecimal
	}
	v := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return parseScaled(v.String(), scale), nil
}

func parseScaled(digits string, scale int) float64 {
	v, _ := strconv.ParseFloat(digits+"e-"+strconv.Itoa(scale), 64) // cannot overflow: it has at most 155 digits
	return v
}
