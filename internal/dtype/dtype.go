// Package dtype names the element types that matrices are stored and computed
// in, and converts rows between them and float32.
package dtype

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// DType is the element type of a matrix. The zero value is no type.
type DType uint8

const (
	Float32 DType = iota + 1
	Float16
	BFloat16
	Int32
	Uint32
	Int64
	Int8
	Uint8
	Int16
	Uint16
	Uint64
	Float64
)

var names = [...]string{"", "float32", "float16", "bfloat16", "int32", "uint32", "int64", "int8", "uint8", "int16",
	"uint16", "uint64", "float64"}
var sizes = [...]int{0, 4, 2, 2, 4, 4, 8, 1, 1, 2, 2, 8, 8}

// Size is the number of bytes of one element.
func (t DType) Size() int { return sizes[t] }

func (t DType) String() string { return names[t] }

// IsFloat tells whether features can have this type.
func (t DType) IsFloat() bool { return t == Float32 || t == Float16 || t == BFloat16 }

// Parse is the inverse of String.
func Parse(name string) (DType, error) {
	for i, n := range names {
		if i > 0 && n == name {
			return DType(i), nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q (want one of %v)", name, names[1:])
}

// Decode converts len(dst) numbers of a float type to float32.
func Decode(dst []float32, src []byte, t DType) {
	switch t {
	case Float32:
		copy(dst, Float32s(src)[:len(dst)])
	case Float16:
		kernel.DecodeFloat16(dst, Uint16s(src)[:len(dst)])
	case BFloat16:
		kernel.DecodeBFloat16(dst, Uint16s(src)[:len(dst)])
	default:
		panic("dtype: Decode from " + t.String())
	}
}

// SumLists is kernel.SumListsFloat32 on a matrix of a float type.
func SumLists(sums []float32, x []byte, t DType, stride, columns int, terms *kernel.Terms) (selves int) {
	switch t {
	case Float32:
		return kernel.SumListsFloat32(sums, Float32s(x), stride, columns, terms)
	case Float16:
		return kernel.SumListsFloat16(sums, Uint16s(x), stride, columns, terms)
	case BFloat16:
		return kernel.SumListsBFloat16(sums, Uint16s(x), stride, columns, terms)
	}
	panic("dtype: SumLists of " + t.String())
}

// Scale is kernel.ScaleFloat32 to a matrix of a float type, rounded to the nearest even.
func Scale(dst []byte, t DType, src, factors []float32, stream bool) (finite bool) {
	switch t {
	case Float32:
		return kernel.ScaleFloat32(Float32s(dst), src, factors, stream)
	case Float16:
		return kernel.ScaleFloat16(Uint16s(dst), src, factors, stream)
	case BFloat16:
		return kernel.ScaleBFloat16(Uint16s(dst), src, factors, stream)
	}
	panic("dtype: Scale to " + t.String())
}

// Unscaled is the factor of a row that is only rounded.
var Unscaled = []float32{1}

// Encode converts len(src) numbers to a float type, rounding to nearest even.
// It returns the index of the first finite value that became infinite, or -1.
func Encode(dst []byte, src []float32, t DType) (overflow int) {
	if t == Float32 {
		copy(Float32s(dst)[:len(src)], src)
		return -1
	}
	if Scale(dst[:len(src)*t.Size()], t, src, Unscaled, false) {
		return -1
	}
	largest := math.Float32frombits(0x477fefff) // that rounds to a finite number
	if t == BFloat16 {
		largest = math.Float32frombits(0x7f7f7fff)
	}
	for i, f := range src {
		if f = max(f, -f); f > largest && f <= math.MaxFloat32 {
			return i
		}
	}
	return -1
}

// Number is a type whose slices can be reinterpreted as bytes. Numbers in files
// are little endian, as are all processors that the project is built for.
type Number interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// As reinterprets bytes as numbers, without copying; len(b) is rounded down to whole numbers. b must be aligned for T,
// which memory from make, offheap and mappings at their start is.
func As[T Number](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) != 0 {
		panic("dtype: bytes are not aligned for their numbers")
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// BytesOf reinterprets numbers as bytes, without copying.
func BytesOf[T Number](s []T) []byte {
	var zero T
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

func Float32s(b []byte) []float32 { return As[float32](b) }
func Uint16s(b []byte) []uint16   { return As[uint16](b) }
func Uint32s(b []byte) []uint32   { return As[uint32](b) }
func Int32s(b []byte) []int32     { return As[int32](b) }
func Int64s(b []byte) []int64     { return As[int64](b) }
