package dtype

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// half is a binary float of 16 bits, described as IEEE 754 does. Its reference
// arithmetic is in float64, where all of it is exact.
type half struct {
	name      string
	precision int // bits of the significand, the leading one included
	least     int // exponent of the smallest normal number
	greatest  float64
	decode    func(uint16) float32
	encode    func(float32) uint16
}

var halves = []half{
	{"float16", 11, -14, 65504, kernel.Float16ToFloat32, kernel.Float32ToFloat16},
	{"bfloat16", 8, -126, 0x1.fep127, kernel.BFloat16ToFloat32, kernel.Float32ToBFloat16},
}

// value is what a code stands for.
func (h half) value(code uint16) float64 {
	fractionBits := h.precision - 1
	fraction := float64(code & (1<<fractionBits - 1))
	exponents := 1<<(15-fractionBits) - 1
	exponent := int(code>>fractionBits) & exponents
	sign := 1.0
	if code>>15 == 1 {
		sign = -1
	}
	switch {
	case exponent == exponents && fraction != 0:
		return math.NaN()
	case exponent == exponents:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(math.Ldexp(fraction, h.least-fractionBits), sign)
	}
	return sign * math.Ldexp(math.Ldexp(1, fractionBits)+fraction, h.least+exponent-1-fractionBits)
}

// round gives the nearest value, ties to even.
func (h half) round(f float32) float64 {
	x := float64(f)
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	_, exponent := math.Frexp(x) // |x| is in [1/2, 1) * 2^exponent
	unit := math.Ldexp(1, max(exponent-1, h.least)-(h.precision-1))
	r := math.RoundToEven(x/unit) * unit
	if math.Abs(r) > h.greatest {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return math.Copysign(r, x) // zeros keep their sign
}

func same(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || a == b && math.Signbit(a) == math.Signbit(b)
}

func (h half) check(t *testing.T, f float32) {
	t.Helper()
	code := h.encode(f)
	if got, want := h.value(code), h.round(f); !same(got, want) {
		t.Fatalf("%g (%#x) encodes to %#x, which is %g, want %g", f, math.Float32bits(f), code, got, want)
	}
	if f != f && math.Signbit(float64(f)) != (code>>15 == 1) {
		t.Fatalf("NaN %#x changes its sign to %#x", math.Float32bits(f), code)
	}
}

func TestAllHalvesDecodeToTheirValuesAndComeBack(t *testing.T) {
	for _, h := range halves {
		t.Run(h.name, func(t *testing.T) {
			for c := range 1 << 16 {
				code := uint16(c)
				f := h.decode(code)
				if want := h.value(code); !same(float64(f), want) {
					t.Fatalf("%#x decodes to %g, want %g", code, f, want)
				}
				if back := h.encode(f); back != code && f == f {
					t.Fatalf("%#x decodes to %g and encodes to %#x", code, f, back)
				}
				h.check(t, f)
			}
		})
	}
}

// Between each two neighbours: the tie, and the float32 numbers on its two sides.
func TestHalvesRoundToNearestTiesToEven(t *testing.T) {
	for _, h := range halves {
		t.Run(h.name, func(t *testing.T) {
			for c := range 1 << 15 {
				lo := h.value(uint16(c))
				if math.IsInf(lo, 0) || math.IsNaN(lo) {
					break
				}
				hi := h.value(uint16(c + 1))
				if math.IsInf(hi, 0) {
					hi = lo + (lo - h.value(uint16(c-1))) // as if the exponent went on
				}
				tie := float32((lo + hi) / 2)
				if float64(tie) != (lo+hi)/2 {
					t.Fatalf("the tie above %g is no float32", lo)
				}
				even := uint16(c + c&1)
				if got := h.encode(tie); got != even {
					t.Fatalf("the tie %g encodes to %#x, want %#x", tie, got, even)
				}
				if got := h.encode(math.Nextafter32(tie, 0)); got != uint16(c) {
					t.Fatalf("just below the tie %g it is %#x, want %#x", tie, got, c)
				}
				if got := h.encode(math.Nextafter32(tie, math.MaxFloat32)); got != uint16(c+1) {
					t.Fatalf("just above the tie %g it is %#x, want %#x", tie, got, c+1)
				}
				for _, f := range []float32{tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, math.MaxFloat32)} {
					h.check(t, f)
					h.check(t, -f)
				}
			}
		})
	}
}

func TestHalvesRoundAnyFloat32(t *testing.T) {
	const seed = 20
	for _, h := range halves {
		t.Run(h.name, func(t *testing.T) {
			for i := range uint64(1 << 19) {
				r := rng.Hash(seed, i)
				h.check(t, math.Float32frombits(uint32(r)))
				// Most of all numbers are far outside of float16; these are around it.
				exponent := 127 - 27 + uint32(r>>32)%46
				h.check(t, math.Float32frombits(uint32(r)&0x807fffff|exponent<<23))
			}
			for _, bits := range []uint32{0, 1, 2, 0x7fff, 0x8000, 0x8001, 0x17fff, 0x18000, 0x7fffff, 0x800000,
				0x7f7fffff, 0x7f800000, 0x7f800001, 0x7f801fff, 0x7fa00000, 0x7fbfffff, 0x7fc00000, 0x7fffffff} {
				h.check(t, math.Float32frombits(bits))
				h.check(t, math.Float32frombits(bits|1<<31))
			}
		})
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

func TestRowsConvertLikeTheirNumbers(t *testing.T) {
	src := make([]float32, 1000)
	for i := range src {
		src[i] = math.Float32frombits(uint32(rng.Hash(21, uint64(i))))
	}
	for _, h := range halves {
		dt, err := Parse(h.name)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2*len(src))
		Encode(b, src, dt)
		back := make([]float32, len(src))
		Decode(back, b, dt)
		for i, f := range src {
			code := h.encode(f)
			if got := binary.LittleEndian.Uint16(b[2*i:]); got != code {
				t.Fatalf("%s: %g is stored as %#x, want %#x", dt, f, got, code)
			}
			if want := h.decode(code); !same(float64(back[i]), float64(want)) {
				t.Fatalf("%s: %#x is read as %g, want %g", dt, code, back[i], want)
			}
		}
	}
	b := make([]byte, 4*len(src))
	Encode(b, src, Float32)
	back := make([]float32, len(src))
	Decode(back, b, Float32)
	for i, f := range src {
		want := math.Float32bits(f)
		if got := binary.LittleEndian.Uint32(b[4*i:]); got != want || math.Float32bits(back[i]) != want {
			t.Fatalf("%#x is stored as %#x and read as %#x", want, got, math.Float32bits(back[i]))
		}
	}
}

func TestRowsDoNotConvertFromOrToWhatDoesNotFit(t *testing.T) {
	f := make([]float32, 4)
	for _, c := range []struct {
		name string
		call func()
	}{
		{"decode integers", func() { Decode(f, make([]byte, 16), Int32) }},
		{"encode integers", func() { Encode(make([]byte, 16), f, Int32) }},
		{"decode too few float32", func() { Decode(f, make([]byte, 15), Float32) }},
		{"decode too few float16", func() { Decode(f, make([]byte, 7), Float16) }},
		{"encode float32 to too little", func() { Encode(make([]byte, 15), f, Float32) }},
		{"encode bfloat16 to too little", func() { Encode(make([]byte, 7), f, BFloat16) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it went through")
				}
			}()
			c.call()
		})
	}
}
