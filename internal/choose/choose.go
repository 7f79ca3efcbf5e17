// Package choose chooses edges of a list, by counter-based random numbers: number i of the stream
// random is rng.At(random, i). Samplers and devices share it.
package choose

import (
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Subset sets edges to k = len(edges) of the d edges from first on, k <= d, each subset with the same probability: for
// each j from d-k on it takes a random one of the first j+1, or j where that has been taken before (Floyd; Bentley
// 1987). It uses the k random numbers from number on. taken is scratch memory of zeros, which it leaves so.
func Subset(edges []int64, first, d int64, random, number uint64, taken *[]uint64) {
	if d <= 64 {
		subsetOfFew(edges, first, d, random, number)
		return
	}
	if words := int(d+63) / 64; words > len(*taken) {
		*taken = make([]uint64, max(words, 2*len(*taken)))
	}
	chosen := *taken
	least := d - int64(len(edges))
	for i := range edges {
		j := uint64(least + int64(i))
		e, _ := bits.Mul64(rng.At(random, number+uint64(i)), j+1)
		if chosen[e/64]>>(e%64)&1 != 0 {
			e = j
		}
		chosen[e/64] |= 1 << (e % 64)
		edges[i] = first + int64(e)
	}
	for _, e := range edges {
		chosen[(e-first)/64] = 0
	}
}

// subsetOfFew is Subset for at most 64 edges. The bits of a word say which have been taken, so that
// there are no branches.
func subsetOfFew(edges []int64, first, d int64, random, number uint64) {
	taken, least := uint64(0), d-int64(len(edges))
	for i := range edges {
		j := uint64(least + int64(i))
		e, _ := bits.Mul64(rng.At(random, number+uint64(i)), j+1)
		if taken>>(e&63)&1 != 0 {
			e = j
		}
		taken |= 1 << (e & 63)
		edges[i] = first + int64(e)
	}
}

// Draw sets edges to random ones of the d edges from first on, each by itself, by the random numbers from number on.
func Draw(edges []int64, first, d int64, random, number uint64) {
	for i := range edges {
		e, _ := bits.Mul64(rng.At(random, number+uint64(i)), uint64(d))
		edges[i] = first + int64(e)
	}
}

// Threshold is floor(2^64 k / d), for 0 <= k < d: a random number is below it with probability k/d.
func Threshold(k, d int64) uint64 {
	below, _ := bits.Div64(uint64(k), 0, uint64(d))
	return below
}
