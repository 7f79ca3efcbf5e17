package preprop

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

func TestFiniteKnowsAllNumbersOf16Bits(t *testing.T) {
	for _, of := range []format.DType{format.Float16, format.BFloat16} {
		for bits := range 1 << 16 {
			for at := range 5 {
				stored := make([]uint16, 5)
				stored[at] = uint16(bits)
				value := make([]float32, 5)
				dtype.Decode(value, dtype.BytesOf(stored), of)
				want := !math.IsNaN(float64(value[at])) && !math.IsInf(float64(value[at]), 0)
				if finite(dtype.BytesOf(stored), of) != want {
					t.Fatalf("%s %g in place %d: finite is %v", of, value[at], at, !want)
				}
			}
		}
	}
}

func TestFiniteKnowsTheEdgesOfFloat32(t *testing.T) {
	for _, c := range []struct {
		bits uint32
		want bool
	}{{0, true}, {0x80000000, true}, {1, true}, {0x7f7fffff, true}, {0xff7fffff, true}, {0x7f800000, false}, {0xff800000, false}, {0x7f800001, false}, {0xffffffff, false}} {
		for n := 1; n < 6; n++ {
			for at := range n {
				stored := make([]uint32, n)
				for i := range stored {
					stored[i] = 0xff7fffff
				}
				stored[at] = c.bits
				if finite(dtype.BytesOf(stored), format.Float32) != c.want {
					t.Errorf("%x in place %d of %d: finite is %v", c.bits, at, n, !c.want)
				}
			}
		}
	}
}
