package kernel

import (
	"fmt"
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Feistel passes the numbers first, first+1, ..., all below a<<shift, through a
// network of half rounds, an even number, which have these keys:
//
//	for i := range images {
//		left, right := (first+i)>>shift, (first+i)%(1<<shift)
//		for r := 0; r < len(keys); r += 2 {
//			left = (left + rng.At(keys[r], right)*a>>64) % a // of the product of 128 bits
//			right = (right + rng.At(keys[r+1], left)) % (1 << shift)
//		}
//		images[i] = left<<shift | right
//	}
//
// a and 1<<shift are below 2^32.
func Feistel(images []uint64, first uint64, keys []uint64, a uint64, shift uint) {
	if len(keys) == 0 || len(keys)%2 != 0 || a >= 1<<32 || shift >= 32 {
		panic(fmt.Sprintf("kernel: a network of %d half rounds on %d times 2^%d", len(keys), a, shift))
	}
	whole := len(images) &^ (active.numbers - 1)
	active.feistel(images[:whole], first, keys, a, shift)
	portable.feistel(images[whole:], first+uint64(whole), keys, a, shift)
}

func feistel(images []uint64, first uint64, keys []uint64, a uint64, shift uint) {
	mask := uint64(1)<<shift - 1
	for i := range images {
		x := first + uint64(i)
		left, right := x>>shift, x&mask
		for r := 0; r < len(keys)-1; r += 2 {
			high, _ := bits.Mul64(rng.At(keys[r], right), a)
			left += high
			left = min(left, left-a) // which wraps round where left is below a
			right = (right + rng.At(keys[r+1], left)) & mask
		}
		images[i] = left<<shift | right
	}
}
