package dtype

import (
	"math"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

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
