// Package rng holds the counter-based random numbers of the project: pure functions of a seed and a position, so that
// results depend on neither the order nor the number of threads. They are part of the on-disk format (the order of
// training rows) and of every plan, and must never change.
package rng

import "math"

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014, variant 13 of Stafford's mixers): a bijection of 64 bits
// in which every input bit flips every output bit with probability close to one half.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash is the i-th number of the stream named by seed: Mix(Mix(seed + golden) + (i+1)*golden), all modulo 2^64.
func Hash(seed, i uint64) uint64 { return At(Start(seed), i) }

// Start and At are the two halves of Hash, for many numbers of one stream.
func Start(seed uint64) uint64  { return Mix(seed + golden) }
func At(start, i uint64) uint64 { return Mix(start + (i+1)*golden) }

// Derive names an independent stream by a parent stream and a label.
func Derive(seed uint64, label string) uint64 {
	for i := 0; i < len(label); i++ {
		seed = Hash(seed, uint64(label[i]))
	}
	return Mix(seed + uint64(len(label)))
}

// Float64 maps a hash to [0,1) by its upper 53 bits.
func Float64(h uint64) float64 { return float64(h>>11) * (1.0 / (1 << 53)) }

// Float32 maps a hash to [0,1) by its upper 24 bits.
func Float32(h uint64) float32 { return float32(h>>40) * (1.0 / (1 << 24)) }

// Normal is the i-th standard normal number of a stream (Box and Muller 1958), made of the hashes 2i and 2i+1. It uses
// no library function whose last bit may differ between processors.
func Normal(seed, i uint64) float64 {
	u := 1 - Float64(Hash(seed, 2*i)) // in (0,1], so that the logarithm is finite
	v := Float64(Hash(seed, 2*i+1))
	return math.Sqrt(float64(-2*log(u))) * cosTurn(v)
}

// Exponential maps a hash to an exponential number of mean 1. Like Normal it is the same on all processors.
func Exponential(h uint64) float64 { return -log(1 - Float64(h)) }

// log is the natural logarithm of a normal number above 0, to within a few units of the last place. Products are
// converted so that no processor fuses them with the sum they go into.
func log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	// log m = 2 artanh s = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
	s := (m - 1) / (m + 1)
	z := float64(s * s)
	sum := 0.0
	for k := 23; k >= 3; k -= 2 {
		sum = float64(z * (sum + 1/float64(k)))
	}
	return float64(2*s) + float64(float64(2*s)*sum) + float64(float64(e)*math.Ln2)
}

// cosTurn is the cosine of v turns, for v in [0,1).
func cosTurn(v float64) float64 {
	quarter := math.Floor(4*v + 0.5)
	x := float64(2 * math.Pi * (v - quarter/4)) // |x| <= pi/4, the difference is exact
	z := float64(x * x)
	// Taylor series, from the smallest term on: even powers are the cosine, odd
	// ones, for a quarter turn more, the sine.
	series := func(last int) float64 {
		sum := 1.0
		for k := last; k > 1; k -= 2 {
			sum = 1 - float64(float64(z*sum)/float64(k*(k-1)))
		}
		return sum
	}
	switch int(quarter) & 3 {
	case 0:
		return series(18)
	case 1:
		return -float64(x * series(19))
	case 2:
		return -series(18)
	default:
		return float64(x * series(19))
	}
}
