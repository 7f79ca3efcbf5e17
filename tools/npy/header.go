// Package npy reads and writes NumPy's array files: .npy, and the members of .npz archives
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Arrays are read piece by piece, by position
// or as a stream, and converted to the type that the caller works in; they are never loaded whole. Nothing in a file is
// trusted, and nothing is ever unpickled.
//
// An Array is safe for concurrent use, a Stream is not.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrInvalid is returned when a file is not an array that can be read, or not the one that it should be; the text names
// the file and what is wrong.
var ErrInvalid = errors.New("invalid input")

// Type is the element type of an array.
type Type uint8

const (
	Bool Type = iota + 1 // a byte; all but 0 are 1
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	Float32
	Float64
	BFloat16 // stored as Uint16 or Int16, as NumPy has no such type
	Bytes    // fixed-width byte strings
	Text     // fixed-width UTF-32 strings
)

var descrs = [...]string{"", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "u2", "S", "U"}
var names = [...]string{"", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"float16", "float32", "float64", "bfloat16", "bytes", "text"}
var sizes = [...]int64{0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 1, 4}

// Size is the number of bytes of one element, or of one character.
func (t Type) Size() int64 { return sizes[t] }

func (t Type) String() string { return names[t] }

// IsNumber is true for every type but strings, IsInteger and IsFloat for those kinds of numbers. A Bool is a number but
// not an integer, so that a mask is never taken for ids.
func (t Type) IsNumber() bool  { return t >= Bool && t <= BFloat16 }
func (t Type) IsInteger() bool { return t >= Int8 && t <= Uint64 }
func (t Type) IsFloat() bool   { return t >= Float16 && t <= BFloat16 }

// ParseType is the inverse of String for numbers.
func ParseType(name string) (Type, error) {
	for t := Bool; t <= BFloat16; t++ {
		if names[t] == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q (want one of %v)", name, names[Bool:Bytes])
}

// Header says what the bytes of an array mean.
type Header struct {
	Type      Type
	BigEndian bool
	Fortran   bool // the first axis varies fastest
	Shape     []int64
	Width     int64 // characters of one string; 1 for numbers
	Offset    int64 // bytes before the data
}

const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 20 // bytes; an array of numbers needs about 100
	maxDims   = 32
)

// Elements is the number of elements, the product of Shape.
func (h *Header) Elements() int64 {
	n := int64(1)
	for _, d := range h.Shape {
		n *= d
	}
	return n
}

// ItemBytes and DataBytes are the sizes of one element and of all of them.
func (h *Header) ItemBytes() int64 { return h.Type.Size() * h.Width }
func (h *Header) DataBytes() int64 { return h.Elements() * h.ItemBytes() }

// ReadHeader reads the header of an array of version 1, 2 or 3 and leaves r at the first byte of the data. Its errors
// do not name a file.
func ReadHeader(r io.Reader) (*Header, error) {
	var prefix [12]byte
	if _, err := io.ReadFull(r, prefix[:8]); err != nil {
		return nil, shortHeader(err)
	}
	if string(prefix[:6]) != magic {
		return nil, errors.New("not a .npy file (no NUMPY magic)")
	}
	lengthBytes := map[byte]int{1: 2, 2: 4, 3: 4}[prefix[6]]
	if lengthBytes == 0 {
		return nil, fmt.Errorf(".npy version %d.%d is not known (1, 2 and 3 are)", prefix[6], prefix[7])
	}
	if _, err := io.ReadFull(r, prefix[8:8+lengthBytes]); err != nil {
		return nil, shortHeader(err)
	}
	length := int64(binary.LittleEndian.Uint32(prefix[8:]))
	if length > maxHeader {
		return nil, fmt.Errorf("header of %d bytes (at most %d are read)", length, maxHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, shortHeader(err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, err
	}
	h.Offset = int64(8+lengthBytes) + length
	return h, h.checkSize()
}

func shortHeader(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends within the .npy header")
	}
	return err
}

// headerEntry is a key of the Python dictionary of a header, its value (text, truth value or tuple), and what ends it.
var headerEntry = regexp.MustCompile(`^\s*(?:'([^'\\\n]*)'|"([^"\\\n]*)")\s*:\s*` +
	`(?:'([^'\\\n]*)'|"([^"\\\n]*)"|(True|False)|(\([0-9L,\s]*\)))\s*(,|})`)

// parseHeader reads the Python dictionary of a header: the keys descr, fortran_order and shape, each once, in any
// order, and nothing else.
func parseHeader(text string) (*Header, error) {
	broken := func(format string, args ...any) (*Header, error) {
		return nil, fmt.Errorf("broken .npy header: "+format, args...)
	}
	h := &Header{}
	seen := map[string]bool{}
	rest, comma := strings.CutPrefix(strings.TrimSpace(text), "{")
	for comma && strings.TrimSpace(rest) != "}" {
		m := headerEntry.FindStringSubmatch(rest)
		if m == nil && strings.Contains(rest, "[") {
			return nil, errors.New("structured element types are not supported: store each field as an array")
		} else if m == nil {
			return broken("no key, value and comma at %.100q", strings.TrimSpace(rest))
		}
		key, descr, truth, tuple := m[1]+m[2], m[3]+m[4], m[5], m[6]
		if seen[key] {
			return broken("key %.100q twice", key)
		}
		var err error
		switch {
		case key == "descr" && descr != "":
			err = h.setDescr(descr)
		case key == "fortran_order" && truth != "":
			h.Fortran = truth == "True"
		case key == "shape" && tuple != "":
			err = h.setShape(strings.Trim(tuple, "()"))
		default:
			return broken("unknown key %.100q, or a wrong value of it", key)
		}
		if err != nil {
			return nil, err
		}
		seen[key], rest, comma = true, rest[len(m[0]):], m[7] == ","
	}
	switch {
	case !comma && rest != "":
		return broken("text before or after the dictionary")
	case len(seen) != 3:
		return broken("descr, fortran_order or shape is missing")
	}
	return h, nil
}

// setShape reads what a tuple of sizes has between its parentheses. Python 2 wrote long integers as 7L.
func (h *Header) setShape(sizes string) error {
	h.Shape = []int64{}
	sizes = strings.TrimSpace(sizes)
	list, comma := strings.CutSuffix(sizes, ",")
	if sizes == "" {
		return nil
	}
	for size := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(size), "L"), 10, 64)
		if err != nil {
			return fmt.Errorf("broken .npy header: unreadable size in the shape (%.100s)", sizes)
		}
		h.Shape = append(h.Shape, n)
	}
	switch {
	case len(h.Shape) > maxDims:
		return fmt.Errorf("broken .npy header: more than %d dimensions", maxDims)
	case len(h.Shape) == 1 && !comma:
		return errors.New("broken .npy header: the shape is no tuple")
	}
	return nil
}

// checkSize returns an error if Offset + DataBytes does not fit in 64 bits. An axis of size 0 counts as 1, so that it
// does not hide an overflow of the others.
func (h *Header) checkSize() error {
	bytes, most := h.ItemBytes(), math.MaxInt64-h.Offset
	for _, d := range h.Shape {
		if bytes > most/max(1, d) {
			return fmt.Errorf("an array of shape %v is too large", h.Shape)
		}
		bytes *= max(1, d)
	}
	return nil
}

// setDescr reads an array-protocol type string such as "<f4".
func (h *Header) setDescr(descr string) error {
	notUnderstood := fmt.Errorf("element type %.100q is not understood", descr)
	if len(descr) < 2 || !strings.Contains("<|=>", descr[:1]) {
		return notUnderstood
	}
	h.BigEndian, h.Width = descr[0] == '>', 1
	switch kind, width := descr[1], descr[2:]; kind {
	case 'O':
		return fmt.Errorf("element type %.100q is pickled Python objects, which are never loaded", descr)
	case 'S', 'U':
		n, err := strconv.ParseUint(width, 10, 20)
		if err != nil {
			return notUnderstood
		}
		h.Type, h.Width = map[byte]Type{'S': Bytes, 'U': Text}[kind], int64(n)
		return nil
	}
	if t := slices.Index(descrs[:BFloat16], descr[1:]); t > 0 {
		h.Type = Type(t)
		return nil
	}
	return fmt.Errorf("element type %.100q is not supported (integers and float16, float32, float64 are)", descr)
}

// AppendHeader appends the header of a little-endian C-order array of numbers, or of Bytes or Text with strings of the
// given width in characters (1 for numbers). It is padded so that the data that follow start on a multiple of 64 bytes.
func AppendHeader(dst []byte, t Type, width int64, shape ...int64) []byte {
	order := "<"
	if t.Size() == 1 {
		order = "|"
	}
	descr := order + descrs[t]
	if t == Bytes || t == Text {
		descr += strconv.FormatInt(width, 10)
	}
	dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ", ")
	if len(shape) == 1 {
		dims += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims)
	pad := 63 - (10+len(text))%64
	text += strings.Repeat(" ", pad) + "\n"
	dst = append(dst, magic+"\x01\x00"...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(text)))
	return append(dst, text...)
}
