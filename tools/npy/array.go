package npy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// blockBytes is how much of an array is read at once.
const blockBytes = 2 << 20

// LockName is the lock file of a folder that an export writes. A folder with this file and without meta.json, which is
// written last, is incomplete.
const LockName = ".exporting"

// Array is an array in a file, read by position.
type Array struct {
	Header
	file vfs.File
}

// Open opens a .npy file. The file must have the size that its header implies.
func Open(fsys vfs.FS, path string) (*Array, error) {
	return open(fsys, path, func(r io.Reader) (*Header, error) { return ReadHeader(bufio.NewReaderSize(r, 512)) })
}

// OpenRaw opens a file that is nothing but the elements of an array, in C order and little endian.
func OpenRaw(fsys vfs.FS, path string, t Type, shape ...int64) (*Array, error) {
	return open(fsys, path, func(io.Reader) (*Header, error) {
		h := &Header{Type: t, Shape: slices.Clone(shape), Width: 1}
		return h, h.checkSize()
	})
}

func open(fsys vfs.FS, path string, header func(io.Reader) (*Header, error)) (*Array, error) {
	f, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return nil, err
	}
	h, err := header(io.NewSectionReader(f, 0, size))
	if err == nil && size != h.Offset+h.DataBytes() {
		err = fmt.Errorf("%s array of shape %v needs a file of %d bytes, found %d", h.Type, h.Shape,
			h.Offset+h.DataBytes(), size)
	}
	if err != nil {
		f.Close()
		return nil, invalid(path, err)
	}
	return &Array{*h, f}, nil
}

// HasHeader reports whether a file begins with the magic string of .npy files.
func HasHeader(fsys vfs.FS, path string) (bool, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var start [len(magic)]byte
	if _, err := f.ReadAt(start[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(start[:]) == magic, nil
}

// Path is the path of the file.
func (a *Array) Path() string { return a.file.Path() }

// Close closes the file.
func (a *Array) Close() error { return a.file.Close() }

// Number is a type that elements are converted to. Conversion of integers to int64 is exact, but Uint64 above its range
// wraps to negative numbers; conversion of any number to float32 or float64 rounds once.
type Number interface{ int64 | float32 | float64 }

// Read reads the elements [first, first+len(dst)), in the order of the file, into dst.
func Read[T Number](a *Array, dst []T, first int64) error {
	if err := a.checkNumbers(a.Path()); err != nil {
		return err
	}
	if first < 0 || first+int64(len(dst)) > a.Elements() {
		return fmt.Errorf("%w: %s: elements %d to %d of %d", ErrInvalid,
			a.Path(), first, first+int64(len(dst)), a.Elements())
	}
	size := a.ItemBytes()
	block := blocks.Get().(*[]byte)
	defer blocks.Put(block)
	for len(dst) > 0 {
		n := min(len(dst), blockBytes/int(size))
		raw, err := a.readPages(*block, a.Offset+first*size, int64(n)*size)
		if err != nil {
			return err
		}
		if isNative[T](&a.Header) {
			copy(dtype.BytesOf(dst[:n]), raw)
		} else {
			Convert(dst[:n], raw, &a.Header)
		}
		dst, first = dst[n:], first+int64(n)
	}
	return nil
}

// blocks are memory for blockBytes anywhere in a file, with the rest of their pages: so a file system may read them
// past its cache (vfs.PastCache).
var blocks = sync.Pool{New: func() any {
	b := vfs.AlignedBytes(blockBytes+2*vfs.PageBytes, vfs.PageBytes)
	return &b
}}

// readPages reads n bytes at an offset into block, with the rest of their pages if they are many. What it returns is
// aligned for any type.
func (a *Array) readPages(block []byte, off, n int64) ([]byte, error) {
	if n < 16*vfs.PageBytes {
		return block[:n], a.readAt(block[:n], off)
	}
	before := off % vfs.PageBytes
	pages := block[:vfs.WholePages(before+n)]
	got, err := a.file.ReadAt(pages, off-before)
	if int64(got) < before+n {
		return nil, a.tooShort(off-before+int64(got), err)
	}
	if before%8 != 0 {
		copy(block, block[before:before+n])
		before = 0
	}
	return block[before:][:n], nil
}

// ReadBytes reads bytes of the array's data, as the file has them, from an offset in the data.
func (a *Array) ReadBytes(p []byte, off int64) error { return a.readAt(p, a.Offset+off) }

func (a *Array) readAt(p []byte, off int64) error {
	if n, err := a.file.ReadAt(p, off); n < len(p) {
		return a.tooShort(off+int64(n), err)
	}
	return nil
}

// tooShort is the error of a read that ended at an offset.
func (a *Array) tooShort(end int64, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s: ends at byte %d, within the data (truncated while being read?)",
			ErrInvalid, a.Path(), end)
	}
	return err
}

// ReadRows reads the rows [first, first+len(dst)/F) of an [n,F] array (or of an [n] array, with F = 1) into dst, row by
// row, also where the file is in Fortran order.
func ReadRows[T Number](a *Array, dst []T, first int64) error {
	rows, cols := a.Shape[0], int64(1)
	if len(a.Shape) > 1 {
		cols = a.Shape[1]
	}
	if !a.Fortran || cols <= 1 {
		return Read(a, dst, first*cols)
	}
	n := int64(len(dst)) / cols
	column := make([]T, n)
	for c := range cols {
		if err := Read(a, column, c*rows+first); err != nil {
			return err
		}
		for r, v := range column {
			dst[int64(r)*cols+c] = v
		}
	}
	return nil
}

// Element returns element i, in the order of the file, as text without loss of digits.
func (a *Array) Element(i int64) string {
	raw := make([]byte, a.ItemBytes())
	if err := a.readAt(raw, a.Offset+i*a.ItemBytes()); err != nil {
		return "?"
	}
	if a.Type.IsFloat() {
		var v [1]float64
		Convert(v[:], raw, &a.Header)
		return fmt.Sprint(v[0])
	}
	var v [1]int64
	Convert(v[:], raw, &a.Header)
	if a.Type == Uint64 {
		return fmt.Sprint(uint64(v[0]))
	}
	return fmt.Sprint(v[0])
}

// Convert decodes len(dst) elements of raw, which must be aligned for their type and is overwritten if its byte order
// is swapped.
func Convert[T Number](dst []T, raw []byte, h *Header) {
	swapBytes(raw, h.Type.Size(), h.BigEndian)
	switch h.Type {
	case Bool:
		for i, v := range raw {
			dst[i] = T(min(v, 1))
		}
	case Int8:
		cast[T, int8](dst, raw)
	case Int16:
		cast[T, int16](dst, raw)
	case Int32:
		cast[T, int32](dst, raw)
	case Int64:
		cast[T, int64](dst, raw)
	case Uint8:
		cast[T, uint8](dst, raw)
	case Uint16:
		cast[T, uint16](dst, raw)
	case Uint32:
		cast[T, uint32](dst, raw)
	case Uint64:
		cast[T, uint64](dst, raw)
	case Float16:
		for i, v := range dtype.Uint16s(raw) {
			dst[i] = T(kernel.Float16ToFloat32(v))
		}
	case BFloat16:
		for i, v := range dtype.Uint16s(raw) {
			dst[i] = T(kernel.BFloat16ToFloat32(v))
		}
	case Float32:
		cast[T, float32](dst, raw)
	case Float64:
		cast[T, float64](dst, raw)
	}
}

// isNative reports whether T has the same bytes in memory as the elements in the file.
func isNative[T Number](h *Header) bool {
	switch any(T(0)).(type) {
	case int64:
		return h.Type == Int64 && !h.BigEndian
	case float32:
		return h.Type == Float32 && !h.BigEndian
	}
	return false
}

func cast[T Number, S dtype.Number](dst []T, raw []byte) {
	for i, v := range dtype.As[S](raw) {
		dst[i] = T(v)
	}
}

func swapBytes(raw []byte, size int64, bigEndian bool) {
	if !bigEndian || size == 1 {
		return
	}
	for i := int64(0); i+size <= int64(len(raw)); i += size {
		slices.Reverse(raw[i : i+size])
	}
}

func (h *Header) checkNumbers(path string) error {
	if !h.Type.IsNumber() {
		return fmt.Errorf("%w: %s: %s where numbers are expected", ErrInvalid, path, h.Type)
	}
	return nil
}

// AsBFloat16 changes the type of an array of 16-bit integers to BFloat16.
func (h *Header) AsBFloat16(path string) error {
	if h.Type != Uint16 && h.Type != Int16 {
		return fmt.Errorf("%w: %s: %s cannot be bfloat16 (which is stored as uint16 or int16)",
			ErrInvalid, path, h.Type)
	}
	h.Type = BFloat16
	return nil
}
