package dtype

import (
	"math"
	"testing"
)

// referenceFloat16 rounds by searching the nearest of all finite float16 values
// in float64, ties to the even code.
func referenceFloat16(f float32) uint16 {
	x := math.Abs(float64(f))
	lo, hi := uint16(0), uint16(0x7c00) // codes ascend with values
	value := func(c uint16) float64 {
		if c == 0x7c00 {
			return 65536 // where the next binade would start
		}
		return float64(decodeFloat16(c))
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if value(mid) <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	code := lo
	if d, e := x-value(lo), value(hi)-x; e < d || e == d && hi&1 == 0 {
		code = hi
	}
	if math.Signbit(float64(f)) {
		code |= 0x8000
	}
	return code
}

func TestFloat16RoundsToNearestEvenOnAllValuesAndTheirMidpoints(t *testing.T) {
	for c := 0; c < 1<<16; c++ {
		v := Float16ToFloat32(uint16(c))
		if v != v {
			if back := Float32ToFloat16(v); back&0x7c00 != 0x7c00 || back&0x3ff == 0 {
				t.Fatalf("NaN %#x became %#x", c, back)
			}
			continue
		}
		if back := Float32ToFloat16(v); back != uint16(c) {
			t.Fatalf("%#x decodes to %g and encodes to %#x", c, v, back)
		}
		if c&0x7fff >= 0x7c00 {
			continue
		}
		next := float32(65536)
		if c&0x7fff != 0x7bff {
			next = float32(math.Abs(float64(Float16ToFloat32(uint16(c&0x7fff + 1)))))
		}
		mid := (float32(math.Abs(float64(v))) + next) / 2
		for _, m := range []float32{math.Nextafter32(mid, 0), mid, math.Nextafter32(mid, 70000)} {
			m = float32(math.Copysign(float64(m), float64(v)))
			if got, want := Float32ToFloat16(m), referenceFloat16(m); got != want {
				t.Fatalf("%g encodes to %#x, want %#x", m, got, want)
			}
		}
	}
}

func TestBFloat16RoundsToNearestEven(t *testing.T) {
	for c := 0; c < 1<<16; c++ {
		v := BFloat16ToFloat32(uint16(c))
		if v != v {
			if got := BFloat16ToFloat32(Float32ToBFloat16(v)); got == got {
				t.Fatalf("NaN %#x became %g", c, got)
			}
			continue
		}
		if back := Float32ToBFloat16(v); back != uint16(c) {
			t.Fatalf("%#x decodes to %g and encodes to %#x", c, v, back)
		}
		if math.IsInf(float64(v), 0) {
			continue
		}
		tie := math.Float32frombits(uint32(c)<<16 | 0x8000)
		if got, want := Float32ToBFloat16(tie), uint16(c+c&1); got != want {
			t.Fatalf("tie above %#x encodes to %#x, want %#x", c, got, want)
		}
	}
}

func TestEncodeTellsTheFirstOverflow(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name string
		t    DType
		in   []float32
		want int
	}{
		{"the largest float16 fits", Float16, []float32{65504, -65519.996}, -1},
		{"65520 does not", Float16, []float32{1, 65520, -65520}, 1},
		{"infinity is no overflow", Float16, []float32{inf, -inf}, -1},
		{"bfloat16 takes large values", BFloat16, []float32{1e38}, -1},
		{"but not the largest float32", BFloat16, []float32{0, 0, -math.MaxFloat32}, 2},
		{"float32 never overflows", Float32, []float32{math.MaxFloat32}, -1},
	} {
		buf := make([]byte, len(c.in)*c.t.Size())
		if got := Encode(buf, c.in, c.t); got != c.want {
			t.Errorf("%s: overflow at %d, want %d", c.name, got, c.want)
		}
	}
}

func TestDecodeInvertsEncodeForStoredValues(t *testing.T) {
	values := []float32{0, 1, -2.5, 0.0009765625, 1024}
	for _, dt := range []DType{Float32, Float16, BFloat16} {
		buf := make([]byte, len(values)*dt.Size())
		Encode(buf, values, dt)
		got := make([]float32, len(values))
		Decode(got, buf, dt)
		for i := range values {
			if got[i] != values[i] {
				t.Errorf("%s: %g came back as %g", dt, values[i], got[i])
			}
		}
	}
}
