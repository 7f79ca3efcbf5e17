package chunk

import (
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// Half rounds of a permutation. A domain below smallDomain needs these for all permutations of eight chunks to be
// equally likely to within a few percent; above it four full rounds, as Luby and Rackoff ask for, are doubled.
const (
	smallDomain = 1 << 12
	smallRounds = 24
	largeRounds = 8
)

// permutation is a bijection of [0,n) that is drawn by a seed and needs no table: a Feistel network on Z_a x Z_b with
// modular addition, a*b >= n, and walking along the cycle until a number below n is met (Black and Rogaway 2002,
// "Ciphers with Arbitrary Finite Domains", methods 2 and 3). b = 2^shift is close to the square root of n and a =
// ceil(n/b), so that a*b < n+b and hardly any walk takes a second step. Additions modulo a power of two are odd
// permutations for some keys, so every permutation can come up.
type permutation struct {
	n, a  uint64
	shift uint
	keys  []uint64 // the streams of the half rounds: see rng.At
}

func newPermutation(n, seed uint64) permutation {
	p := permutation{n: n}
	if n > 0 {
		p.shift = uint(bits.Len64(n-1)) / 2
		p.a = (n-1)>>p.shift + 1
	}
	rounds := largeRounds
	if n < smallDomain {
		rounds = smallRounds
	}
	p.keys = make([]uint64, rounds)
	for i := range p.keys {
		p.keys[i] = rng.Start(rng.Hash(seed, uint64(i)))
	}
	return p
}

// images writes the images of first, first+1, ... to out. All must be below n.
func (p *permutation) images(out []uint64, first uint64) {
	kernel.Feistel(out, first, p.keys, p.a, p.shift)
	for i, x := range out {
		for ; x >= p.n; x = out[i] {
			kernel.Feistel(out[i:i+1], x, p.keys, p.a, p.shift)
		}
	}
}

// inverse returns the x whose image is i.
func (p *permutation) inverse(i uint64) uint64 {
	mask := uint64(1)<<p.shift - 1
	for {
		left, right := i>>p.shift, i&mask
		for r := len(p.keys) - 2; r >= 0; r -= 2 {
			right = (right - rng.At(p.keys[r+1], left)) & mask
			left += p.a - below(rng.At(p.keys[r], right), p.a)
			if left >= p.a {
				left -= p.a
			}
		}
		if i = left<<p.shift | right; i < p.n {
			return i
		}
	}
}

// below maps a hash to a number in [0,n).
func below(hash, n uint64) uint64 {
	high, _ := bits.Mul64(hash, n)
	return high
}
