// Package rng holds the counter-based random numbers of the project: pure
// functions of a seed and a position, so that results depend on neither the
// order nor the number of threads. They are part of the on-disk format (the
// order of training rows) and of every plan, and must never change.
package rng

import "math"

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014, variant 13 of
// Stafford's mixers): a bijection of 64 bits in which every input bit flips
// every output bit with probability close to one half.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash is the i-th number of the stream named by seed:
// Mix(Mix(seed + golden) + (i+1)*golden), all modulo 2^64.
func Hash(seed, i uint64) uint64 {
	return Mix(Mix(seed+golden) + (i+1)*golden)
}

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

// Normal is the i-th standard normal number of a stream (Box and Muller 1958),
// made of the hashes 2i and 2i+1.
func Normal(seed, i uint64) float64 {
	u := 1 - Float64(Hash(seed, 2*i)) // in (0,1], so that the logarithm is finite
	v := Float64(Hash(seed, 2*i+1))
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}
