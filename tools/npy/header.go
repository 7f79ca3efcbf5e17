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

// ReadHeader reads the header of an array of version 1, 2 or 3 and leaves r at the first byte of the data. Errors of r
// are returned as they are; all others are ErrInvalid and do not name a file.
func ReadHeader(r io.Reader) (*Header, error) {
	var prefix [12]byte
	if _, err := io.ReadFull(r, prefix[:8]); err != nil {
		return nil, shortHeader(err)
	}
	if string(prefix[:6]) != magic {
		return nil, fmt.Errorf("%w: not a .npy file (no NUMPY magic)", ErrInvalid)
	}
	length, offset := int64(0), int64(0)
	switch version := prefix[6]; version {
	case 1:
		if _, err := io.ReadFull(r, prefix[8:10]); err != nil {
			return nil, shortHeader(err)
		}
		length, offset = int64(binary.LittleEndian.Uint16(prefix[8:])), 10
	case 2, 3:
		if _, err := io.ReadFull(r, prefix[8:12]); err != nil {
			return nil, shortHeader(err)
		}
		length, offset = int64(binary.LittleEndian.Uint32(prefix[8:])), 12
	default:
		return nil, fmt.Errorf("%w: .npy version %d.%d is not known (1, 2 and 3 are)", ErrInvalid, version, prefix[7])
	}
	if length > maxHeader {
		return nil, fmt.Errorf("%w: header of %d bytes (at most %d are read)", ErrInvalid, length, maxHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, shortHeader(err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	h.Offset = offset + length
	if h.DataBytes() > math.MaxInt64-h.Offset {
		return nil, fmt.Errorf("%w: an array of shape %v is too large", ErrInvalid, h.Shape)
	}
	return h, nil
}

func shortHeader(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the file ends within the .npy header", ErrInvalid)
	}
	return err
}

// parseHeader reads the Python dictionary of a header: the keys descr, fortran_order and shape, each once, in any
// order, and nothing else.
func parseHeader(text string) (*Header, error) {
	p := &literal{rest: text}
	h := &Header{}
	seen := map[string]bool{}
	p.expect("{")
	for p.err == nil && !p.accept("}") {
		key := p.quoted()
		p.expect(":")
		if p.err == nil && seen[key] {
			p.fail("key %.100q twice", key)
		}
		seen[key] = true
		switch {
		case p.err != nil:
		case key == "descr":
			if p.peek("[") {
				return nil, errors.New("structured element types are not supported: store each field as an array " +
					"of its own")
			}
			p.err = firstError(p.err, h.setDescr(p.quoted()))
		case key == "fortran_order":
			h.Fortran = p.boolean()
		case key == "shape":
			h.Shape = p.tuple()
		default:
			p.fail("unknown key %.100q", key)
		}
		if !p.accept(",") && p.err == nil && !p.peek("}") {
			p.fail("no comma")
		}
	}
	if p.err == nil && strings.TrimSpace(p.rest) != "" {
		p.fail("text after the dictionary")
	}
	if p.err == nil && len(seen) != 3 {
		p.fail("descr, fortran_order or shape is missing")
	}
	if p.err != nil {
		return nil, p.err
	}
	if h.overflows() {
		return nil, fmt.Errorf("an array of shape %v is too large", h.Shape)
	}
	return h, nil
}

// overflows reports whether DataBytes does not fit in 64 bits. An axis of size 0 counts as 1, so that it does not hide
// an overflow of the others.
func (h *Header) overflows() bool {
	bytes := h.ItemBytes()
	for _, d := range h.Shape {
		if bytes > math.MaxInt64/max(1, d) {
			return true
		}
		bytes *= max(1, d)
	}
	return false
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// setDescr reads an array-protocol type string such as "<f4".
func (h *Header) setDescr(descr string) error {
	if len(descr) < 2 {
		return fmt.Errorf("element type %.100q is not understood", descr)
	}
	order, kind, rest := descr[0], descr[1], descr[1:]
	switch order {
	case '<', '|', '=':
	case '>':
		h.BigEndian = true
	default:
		return fmt.Errorf("element type %.100q is not understood", descr)
	}
	h.Width = 1
	switch kind {
	case 'O':
		return fmt.Errorf("element type %.100q is pickled Python objects, which are never loaded", descr)
	case 'S', 'U':
		width, err := strconv.ParseUint(rest[1:], 10, 20)
		if err != nil {
			return fmt.Errorf("element type %.100q is not understood", descr)
		}
		h.Type, h.Width = Bytes, int64(width)
		if kind == 'U' {
			h.Type = Text
		}
		return nil
	}
	for t := Bool; t <= Float64; t++ {
		if descrs[t] == rest {
			h.Type = t
			return nil
		}
	}
	return fmt.Errorf("element type %.100q is not supported (integers and float16, float32, float64 are)", descr)
}

// literal parses the Python literals that a header may contain. After the first error all its methods do nothing.
type literal struct {
	rest string
	err  error
}

func (p *literal) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("broken .npy header: "+format, args...)
	}
}

func (p *literal) peek(token string) bool {
	p.rest = strings.TrimLeft(p.rest, " \t\n")
	return p.err == nil && strings.HasPrefix(p.rest, token)
}

func (p *literal) accept(token string) bool {
	if !p.peek(token) {
		return false
	}
	p.rest = p.rest[len(token):]
	return true
}

func (p *literal) expect(token string) {
	if !p.accept(token) {
		p.fail("no %q where one is expected", token)
	}
}

// quoted reads a string without escapes.
func (p *literal) quoted() string {
	for _, quote := range []string{"'", `"`} {
		if p.accept(quote) {
			s, rest, ok := strings.Cut(p.rest, quote)
			if !ok || strings.ContainsAny(s, "\\\n") {
				p.fail("unreadable string")
			}
			p.rest = rest
			return s
		}
	}
	p.fail("no string where one is expected")
	return ""
}

func (p *literal) boolean() bool {
	if p.accept("True") {
		return true
	}
	if !p.accept("False") {
		p.fail("fortran_order is neither True nor False")
	}
	return false
}

// tuple reads a tuple of sizes. Python 2 wrote long integers as 7L.
func (p *literal) tuple() []int64 {
	dims := []int64{}
	p.expect("(")
	comma := true
	for p.err == nil && !p.peek(")") {
		if !comma {
			p.fail("no comma in the shape")
			return nil
		}
		end := 0
		for end < len(p.rest) && p.rest[end] >= '0' && p.rest[end] <= '9' {
			end++
		}
		n, err := strconv.ParseInt(p.rest[:end], 10, 64)
		if err != nil {
			p.fail("unreadable size in the shape")
			return nil
		}
		p.rest = strings.TrimPrefix(p.rest[end:], "L")
		if dims = append(dims, n); len(dims) > maxDims {
			p.fail("more than %d dimensions", maxDims)
		}
		comma = p.accept(",")
	}
	p.expect(")")
	if len(dims) == 1 && !comma {
		p.fail("the shape is no tuple")
	}
	return dims
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
	var dims strings.Builder
	for i, d := range shape {
		if i > 0 {
			dims.WriteString(", ")
		}
		dims.WriteString(strconv.FormatInt(d, 10))
	}
	if len(shape) == 1 {
		dims.WriteString(",")
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims.String())
	pad := 63 - (10+len(text))%64
	text += strings.Repeat(" ", pad) + "\n"
	dst = append(dst, magic+"\x01\x00"...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(text)))
	return append(dst, text...)
}
