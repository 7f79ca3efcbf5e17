package product

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// Matrix is a range of columns of one hop of all nodes, row-major [n, features], off the Go heap.
type Matrix struct {
	ID       format.MatrixID
	First    int // column of the hop that is column 0 here
	Features int
	DType    format.DType
	Buf      *offheap.Buffer
}

// NewMatrix allocates a matrix for the first features columns of a hop.
func NewMatrix(nodes int64, features int, t format.DType) (*Matrix, error) {
	buf, err := offheap.Alloc(nodes * int64(features) * int64(t.Size()))
	if err != nil {
		return nil, err
	}
	return &Matrix{Features: features, DType: t, Buf: buf}, nil
}

func (m *Matrix) RowBytes() int64 { return int64(m.Features) * int64(m.DType.Size()) }

// Columns are the columns of the hop that m has.
func (m *Matrix) Columns() ColumnRange { return ColumnRange{m.First, m.First + m.Features} }

// Rows is the memory of rows [lo, hi).
func (m *Matrix) Rows(lo, hi int64) []byte {
	return m.Buf.Bytes()[lo*m.RowBytes() : hi*m.RowBytes()]
}

// SetRows stores rows of values, each times its factor, from row first on, rounded to the nearest even. It fails on
// the first number whose stored value is not finite, and may change values then.
func (m *Matrix) SetRows(first int64, values, factors []float32) error {
	if dtype.Scale(m.Rows(first, first+int64(len(factors))), m.DType, values, factors, true) {
		return nil
	}
	for i := range factors {
		v, row := first+int64(i), values[i*m.Features:][:m.Features]
		if dst := m.Rows(v, v+1); !dtype.Scale(dst, m.DType, row, factors[i:i+1], false) {
			return NotFinite(m.ID, v, m.First, dst, row, factors[i], m.DType)
		}
	}
	panic("preprop: a row was finite when it was looked at again")
}

// Round writes stored numbers to dst, rounded to type t; values is room for them. It returns false if a number is not
// finite there: values then has what was stored, for NotFinite.
func Round(dst []byte, t format.DType, stored []byte, from format.DType, values []float32) bool {
	if from == t && Finite(stored, t) { // there is nothing to round
		copy(dst, stored)
		return true
	}
	dtype.Decode(values, stored, from)
	return dtype.Scale(dst, t, values, dtype.Unscaled, false)
}

// NotFinite is the error that names the first of s times values that is not finite as an element of row v of a
// matrix. The values begin at column first. It changes row and values.
func NotFinite(id format.MatrixID, v int64, first int, row []byte, values []float32, s float32, t format.DType) error {
	for j := range values {
		values[j] *= s
	}
	at := dtype.Encode(row, values, t)
	infinite := FirstNotFinite(values)
	if at >= 0 && (infinite < 0 || at < infinite) {
		return fmt.Errorf("%s: node %d, column %d: %w: %g is too large for %s (choose a wider dtype, or scale the "+
			"features)",
			id, v, first+at, ErrInvalid, values[at], t)
	}
	return fmt.Errorf("%s: node %d, column %d: %w: %g instead of a finite number (features or edge weights are too "+
		"large, or not finite)",
		id, v, first+infinite, ErrInvalid, values[infinite])
}

// FirstNotFinite is the index of the first infinity or NaN, or -1.
func FirstNotFinite(values []float32) int {
	const exponent = 0x7f800000
	for i, x := range values {
		if math.Float32bits(x)&exponent == exponent {
			return i
		}
	}
	return -1
}

// Gather copies the rows of nodes to dst, one after another.
func (m *Matrix) Gather(dst []byte, nodes []uint32) []byte {
	row := int(m.RowBytes())
	dst = dst[:len(nodes)*row]
	for i, v := range nodes {
		copy(dst[i*row:(i+1)*row], m.Rows(int64(v), int64(v)+1))
	}
	return dst
}

// LowestError holds, among the errors that goroutines report, the one with the lowest position. parallel.For starts
// ranges in ascending order and finishes each that it starts, so this error is the same for any number of threads.
type LowestError struct {
	mu  sync.Mutex
	at  int64
	Err error
}

// Report returns err, for the caller to stop with.
func (l *LowestError) Report(at int64, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err == nil || at < l.at {
		l.at, l.Err = at, err
	}
	return err
}

// CopyColumns copies columns of rows [lo, hi), one row after another.
func (m *Matrix) CopyColumns(dst []byte, columns ColumnRange, lo, hi int64) {
	if columns.Width() == m.Features {
		copy(dst, m.Rows(lo, hi))
		return
	}
	size := m.DType.Size()
	for v := lo; v < hi; v++ {
		dst = dst[copy(dst, m.Rows(v, v+1)[columns.First*size:columns.End*size]):]
	}
}

// Finite tells whether stored numbers are neither infinite nor NaN: no exponent is all ones, so that adding one to it
// carries into the place of the sign.
func Finite(stored []byte, t format.DType) bool {
	exponents, ones := uint64(0x7f800000_7f800000), uint64(0x00800000_00800000)
	switch t {
	case format.Float16:
		exponents, ones = 0x7c007c00_7c007c00, 0x04000400_04000400
	case format.BFloat16:
		exponents, ones = 0x7f807f80_7f807f80, 0x00800080_00800080
	}
	carried := uint64(0)
	for ; len(stored) >= 8; stored = stored[8:] {
		carried |= binary.LittleEndian.Uint64(stored)&exponents + ones
	}
	var rest [8]byte
	copy(rest[:], stored)
	carried |= binary.LittleEndian.Uint64(rest[:])&exponents + ones
	return carried&(exponents+ones) == 0
}

// ErrInvalid is returned when a feature or a result is not finite, or too large for its type.
var ErrInvalid = errors.New("invalid data")

// ColumnRange is the columns [first, end) of a matrix.
type ColumnRange struct{ First, End int }

func (s ColumnRange) Width() int { return s.End - s.First }

func (s ColumnRange) String() string { return fmt.Sprintf("columns %d to %d", s.First, s.End-1) }

// coverPart is columns, and the range that they are taken from, which has them all.
type coverPart struct {
	ColumnRange
	Source ColumnRange
}

// Cover tells from which of the ranges to take each column of s, in ascending order. Columns that are in none of the
// ranges are left out.
func Cover(s ColumnRange, ranges []ColumnRange) []coverPart {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b ColumnRange) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.End, a.End))
	})
	var out []coverPart
	at := s.First
	for _, from := range ranges {
		part := ColumnRange{max(at, from.First), min(s.End, from.End)}
		if part.Width() > 0 {
			out = append(out, coverPart{part, from})
			at = part.End
		}
	}
	return out
}

// Missing is the columns of s that are in none of the ranges. The ranges that it returns do not overlap.
func Missing(s ColumnRange, ranges []ColumnRange) []ColumnRange {
	var out []ColumnRange
	at := s.First
	for _, part := range Cover(s, ranges) {
		if at < part.First {
			out = append(out, ColumnRange{at, part.First})
		}
		at = part.End
	}
	if at < s.End {
		out = append(out, ColumnRange{at, s.End})
	}
	return out
}
