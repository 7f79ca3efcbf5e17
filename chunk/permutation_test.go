package chunk

import (
	"fmt"
	"math"
	"testing"
)

// deviation is how many standard deviations a chi-square statistic lies above
// its mean, the number of degrees of freedom.
func deviation(observed []int, trials int) float64 {
	expected := float64(trials) / float64(len(observed))
	chi := 0.0
	for _, o := range observed {
		chi += (float64(o) - expected) * (float64(o) - expected) / expected
	}
	freedom := float64(len(observed) - 1)
	return (chi - freedom) / math.Sqrt(2*freedom)
}

func TestPermutationIsABijectionAndFindItsInverse(t *testing.T) {
	sizes := []uint64{1, 2, 3, 4, 5, 63, 64, 65, 1000, 4095, 4096, 4097, 65537}
	for _, n := range sizes {
		for seed := range uint64(3) {
			p := newPermutation(n, seed)
			seen := make([]bool, n)
			for i := range n {
				j := p.at(i)
				if j >= n || seen[j] {
					t.Fatalf("n=%d seed=%d: %d goes to %d, out of range or a second time", n, seed, i, j)
				}
				seen[j] = true
				if back := p.find(j); back != i {
					t.Fatalf("n=%d seed=%d: %d goes to %d, which comes from %d", n, seed, i, j, back)
				}
			}
		}
	}
	for _, n := range []uint64{1<<32 - 1, 1 << 32, 1<<47 + 12345, MaxRows} {
		p := newPermutation(n, 1)
		for _, i := range []uint64{0, 1, n / 3, n - 1} {
			if j := p.at(i); j >= n || p.find(j) != i {
				t.Errorf("n=%d: %d goes to %d, which comes from %d", n, i, j, p.find(j))
			}
		}
	}
}

// Each of the n! orders comes up equally often, up to chance: with these seeds
// all lie within 3 standard deviations, and the limit is 5. A probability that
// is wrong by 5 % for every order would give 7 or more from n = 5 on.
func TestEveryOrderOfFewChunksIsEquallyLikely(t *testing.T) {
	for n := uint64(1); n <= 7; n++ {
		orders := 1
		for i := uint64(2); i <= n; i++ {
			orders *= int(i)
		}
		counts := make([]int, orders)
		trials := max(orders*100, 20000)
		for seed := range uint64(trials) {
			p := newPermutation(n, seed)
			counts[rank(&p)]++
		}
		if orders == 1 {
			continue
		}
		if d := deviation(counts, trials); d > 5 {
			t.Errorf("n=%d: chi-square is %.1f standard deviations too large", n, d)
		}
	}
}

// rank numbers the order that p puts its n elements into (Lehmer code).
func rank(p *permutation) int {
	code, used := 0, 0
	for i := range p.n {
		image, smaller := int(p.at(i)), 0
		for j := range image {
			smaller += 1 - used>>j&1
		}
		used |= 1 << image
		code = code*int(p.n-i) + smaller
	}
	return code
}

// Statistics that a uniform permutation has by theory, over fixed seeds; limits
// are five standard deviations of what is estimated. The sizes lie on both sides
// of smallDomain, and beside the powers of two at which the shape changes.
func TestPermutationsLookUniform(t *testing.T) {
	for _, n := range []uint64{8, 37, 1000, 4095, 4097, 20000} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			seeds := max(200, 400000/n)
			// Where element i lands, in cells of equal probability: cells*cells
			// pairs of (cell of i, cell of image).
			cells := 8
			for n%uint64(cells) != 0 {
				cells--
			}
			landed := make([]int, cells*cells)
			var fixed, pairs, ascents float64
			mean := float64(n-1) / 2
			variance := (float64(n)*float64(n) - 1) / 12
			for seed := range seeds {
				p := newPermutation(n, seed)
				before := p.at(n - 1)
				for i := range n {
					j := p.at(i)
					landed[int(i*uint64(cells)/n)*cells+int(j*uint64(cells)/n)]++
					if i == j {
						fixed++
					}
					pairs += (float64(before) - mean) * (float64(j) - mean)
					if i > 0 && before < j {
						ascents++
					}
					before = j
				}
			}
			total := float64(n) * float64(seeds)
			if cells > 1 {
				if d := deviation(landed, int(total)); d > 5 {
					t.Errorf("positions: chi-square is %.1f standard deviations too large", d)
				}
			}
			// Fixed points: mean 1 and variance 1 a permutation.
			if d := (fixed - float64(seeds)) / math.Sqrt(float64(seeds)); math.Abs(d) > 5 {
				t.Errorf("fixed points: %.3f a permutation, %.1f standard deviations from 1", fixed/float64(seeds), d)
			}
			// Neighbours correlate by -1/(n-1), because no image comes twice.
			correlation := pairs / total / variance
			if d := (correlation + 1/float64(n-1)) * math.Sqrt(total); math.Abs(d) > 5 {
				t.Errorf("neighbours correlate by %.5f, %.1f standard deviations from theory", correlation, d)
			}
			// Ascents: mean (n-1)/2 and variance (n+1)/12 a permutation.
			want := float64(n-1) / 2 * float64(seeds)
			if d := (ascents - want) / math.Sqrt(float64(n+1)/12*float64(seeds)); math.Abs(d) > 5 {
				t.Errorf("ascents: %.1f standard deviations from half of all pairs", d)
			}
		})
	}
}

// What one seed draws tells nothing of the next: images of the same element
// under consecutive seeds agree as often as chance has it.
func TestConsecutiveSeedsAreIndependent(t *testing.T) {
	const n, seeds = 5000, 400
	agree := 0.0
	before := newPermutation(n, 0)
	for seed := uint64(1); seed <= seeds; seed++ {
		p := newPermutation(n, seed)
		for i := range uint64(n) {
			if p.at(i) == before.at(i) {
				agree++
			}
		}
		before = p
	}
	if d := (agree - seeds) / math.Sqrt(seeds); math.Abs(d) > 5 {
		t.Errorf("%.3f agreements a pair of seeds, %.1f standard deviations from 1", agree/seeds, d)
	}
}

func BenchmarkPermutation(b *testing.B) {
	for _, n := range []uint64{1000, 1 << 20, 1<<32 + 1} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			p := newPermutation(n, 1)
			sum := uint64(0)
			for i := range b.N {
				sum += p.at(uint64(i) % n)
			}
			if sum == 0 && b.N > 100 {
				b.Fatal("all zero")
			}
		})
	}
}
