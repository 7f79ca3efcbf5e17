package kernel

import (
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// network is Feistel's contract, for one number.
func network(x uint64, keys []uint64, a uint64, shift uint) uint64 {
	left, right := x>>shift, x%(1<<shift)
	for r := 0; r < len(keys); r += 2 {
		high, _ := bits.Mul64(rng.At(keys[r], right), a)
		left = (left + high) % a
		right = (right + rng.At(keys[r+1], left)) % (1 << shift)
	}
	return left<<shift | right
}

func TestNumbersPassTheNetworkAsByThePlainLoop(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	with(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		for shift := range uint(32) {
			for _, a := range []uint64{1, 1<<shift - 1, 1 << shift, 1<<shift + 1, 1<<32 - 1, 1 + r.Uint64N(1<<32-1)} {
				if a == 0 || a >= 1<<32 {
					continue
				}
				keys := make([]uint64, 2+2*r.IntN(12))
				for i := range keys {
					keys[i] = r.Uint64()
				}
				domain := a << shift
				count := min(uint64(r.IntN(300)), domain)
				for _, first := range []uint64{0, domain - count, r.Uint64N(domain - count + 1)} {
					const guard = 8
					images := make([]uint64, count+2*guard)
					Feistel(images[guard:guard+count], first, keys, a, shift)
					for i, got := range images {
						want := uint64(0)
						if at := uint64(i) - guard; at < count {
							want = network(first+at, keys, a, shift)
						}
						if got != want {
							t.Fatalf("%d numbers from %d on, %d half rounds on %d*2^%d: number %d becomes %d, want %d",
								count, first, len(keys), a, shift, i-guard, got, want)
						}
					}
				}
			}
		}
	})
}

func TestNetworksThatAreNonePanic(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			keys  int
			a     uint64
			shift uint
		}{
			{"no rounds", 0, 10, 3},
			{"half of the last round", 3, 10, 3},
			{"a of 33 bits", 2, 1 << 32, 3},
			{"a right part of 32 bits", 2, 10, 32},
		} {
			t.Run(c.name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("it went through")
					}
				}()
				Feistel(make([]uint64, 64), 0, make([]uint64, c.keys), c.a, c.shift)
			})
		}
	})
}
