package kernel

import (
	"math"
	"sync"
)

func isFinite(f float32) bool { return math.Float32bits(f)&0x7f800000 != 0x7f800000 }

// float16Values is every code decoded, which costs less than the arithmetic.
var float16Values = sync.OnceValue(func() *[1 << 16]float32 {
	values := new([1 << 16]float32)
	for code := range values {
		values[code] = decodeFloat16(uint16(code))
	}
	return values
})

func decodeFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, h>>10&0x1f, uint32(h&0x3ff)
	switch {
	case exponent == 0: // zero or subnormal: fraction * 2^-24 is exact
		v := math.Float32bits(float32(fraction) * (1.0 / (1 << 24)))
		return math.Float32frombits(v | sign)
	case exponent == 0x1f && fraction == 0:
		return math.Float32frombits(sign | 0x7f800000)
	case exponent == 0x1f: // NaN, quiet
		return math.Float32frombits(sign | 0x7fc00000 | fraction<<13)
	}
	return math.Float32frombits(sign | (uint32(exponent)+127-15)<<23 | fraction<<13)
}

// Float16ToFloat32 decodes an IEEE 754 binary16, exactly.
func Float16ToFloat32(h uint16) float32 { return float16Values()[h] }

// Float32ToFloat16 rounds to the nearest binary16, ties to even. Values of magnitude 65520 and more become infinite;
// NaN stays NaN.
func Float32ToFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, magnitude := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN: keep the upper payload, and quiet
		return sign | 0x7e00 | uint16(magnitude>>13&0x3ff)
	case magnitude >= 0x477ff000: // 65520, halfway above the largest finite
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: a multiple of 2^-24
		// Adding 1/2 puts the unit of 2^-24 at the last bit, so the processor's own rounding is the one wanted.
		const half = 0x3f000000
		return sign | uint16(math.Float32bits(math.Float32frombits(magnitude)+0.5)-half)
	}
	rounded := magnitude + 0xfff + magnitude>>13&1
	return sign | uint16((rounded-(127-15)<<23)>>13)
}

// BFloat16ToFloat32 decodes a bfloat16, exactly.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBFloat16 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func Float32ToBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
