package kernel

import "math"

// The exponential function: e^x = 2^n e^r, where n is a whole number and |r| <= ln(2)/2. _gen/exp.go has
// the same constants.
const (
	expLeast = -104 // e^-104 is less than half of the smallest subnormal number,
	expMost  = 89   // and e^89 more than the largest number
	log2E    = float32(1.4426950408889634)
	// expMagic is so large that to add a number rounds it to a whole one, and that subtracting the bits gives that as
	// an integer.
	expMagic = float32(3 << 22)
	// The sum of these is ln(2). The upper one has 15 bits, so its product with n is exact.
	ln2Upper = float32(0x5.8b90p-3)
	ln2Lower = float32(1.4286068203094173e-06)
	// e^r is nearly 1 + r + r^2 (c2 + c3 r + ... + c6 r^4): these differ by less than 3.7e-9 of e^r (minimax, by
	// Lawson's reweighted least squares).
	expC2 = float32(0.4999999343201537)
	expC3 = float32(0.16666520396697632)
	expC4 = float32(0.041668390792069056)
	expC5 = float32(0.00836874539393885)
	expC6 = float32(0.0013814541120983038)
)

// exp is e^x rounded to one of the two float32 next to it, or exact.
func exp(x float32) float32 {
	if x != x {
		return x
	}
	x = min(max(x, expLeast), expMost)
	t := float32(x*log2E) + expMagic
	n := t - expMagic
	r := x - float32(n*ln2Upper) - float32(n*ln2Lower)
	q := float32(expC6 * r)
	q = float32((q + expC5) * r)
	q = float32((q + expC4) * r)
	q = float32((q + expC3) * r)
	y := 1 + (r + float32((q+expC2)*float32(r*r)))
	// In two steps, as 2^n alone may be out of range. The first is exact.
	whole := int32(math.Float32bits(t) - math.Float32bits(expMagic))
	half := whole >> 1
	return y * powerOf2(half) * powerOf2(whole-half)
}

func powerOf2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// expSums is how many sums Exp has.
const expSums = 16

// Exp sets dst, which may be src and is at least as long, to the exponentials of numbers less another one, and
// returns their sum:
//
//	var sums [16]float32
//	for i, v := range src {
//		dst[i] = exp(v - less)
//		sums[i%16] += dst[i]
//	}
//	for n := 8; n > 0; n /= 2 {
//		for i := range n {
//			sums[i] += sums[n+i]
//		}
//	}
//	return sums[0]
//
// Each exponential differs by less than 1 ulp from the exact one of the rounded difference, also where it is subnormal.
func Exp(dst, src []float32, less float32) (sum float32) {
	return active.exp(dst[:len(src)], src, less)
}

// Max is the largest of some numbers, or -Inf. NaN is skipped; for 0 and -0 the result may be either:
//
//	most := float32(math.Inf(-1))
//	for _, v := range x {
//		if v > most {
//			most = v
//		}
//	}
//	return most
func Max(x []float32) float32 { return active.largest(x) }
