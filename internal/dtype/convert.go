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

var unscaled = []float32{1}

// Encode converts len(src) numbers to a float type, rounding to nearest even.
// It returns the index of the first finite value that became infinite, or -1.
func Encode(dst []byte, src []float32, t DType) (overflow int) {
	finite, largest := true, float32(0) // that rounds to a finite number
	switch t {
	case Float32:
		copy(Float32s(dst)[:len(src)], src)
	case Float16:
		finite, largest = kernel.ScaleFloat16(Uint16s(dst)[:len(src)], src, unscaled, false),
			math.Float32frombits(0x477fefff)
	case BFloat16:
		finite, largest = kernel.ScaleBFloat16(Uint16s(dst)[:len(src)], src, unscaled, false),
			math.Float32frombits(0x7f7f7fff)
	default:
		panic("dtype: Encode to " + t.String())
	}
	if finite {
		return -1
	}
	for i, f := range src {
		if f = max(f, -f); f > largest && f <= math.MaxFloat32 {
			return i
		}
	}
	return -1
}
