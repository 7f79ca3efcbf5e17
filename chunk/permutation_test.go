package chunk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// at is the image of i by definition: one number, one half round after another.
func (p *permutation) at(i uint64) uint64 {
	mask := uint64(1)<<p.shift - 1
	for {
		left, right := i>>p.shift, i&mask
		for r := 0; r < len(p.keys); r += 2 {
			left += below(rng.At(p.keys[r], right), p.a)
			if left >= p.a {
				left -= p.a
			}
			right = (right + rng.At(p.keys[r+1], left)) & mask
		}
		if i = left<<p.shift | right; i < p.n {
			return i
		}
	}
}

// deviation is how many standard deviations a chi-square statistic lies above its mean, the number of degrees of
// freedom.
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
				if back := p.inverse(j); back != i {
					t.Fatalf("n=%d seed=%d: %d goes to %d, which comes from %d", n, seed, i, j, back)
				}
			}
		}
	}
	for _, n := range []uint64{1<<32 - 1, 1 << 32, 1<<47 + 12345, MaxRows} {
		p := newPermutation(n, 1)
		for _, i := range []uint64{0, 1, n / 3, n - 1} {
			if j := p.at(i); j >= n || p.inverse(j) != i {
				t.Errorf("n=%d: %d goes to %d, which comes from %d", n, i, j, p.inverse(j))
			}
		}
	}
}

// Each of the n! orders comes up equally often, up to chance: with these seeds all lie within 3 standard deviations,
// and the limit is 5. A probability that is wrong by 5 % for every order would give 7 or more from n = 5 on.
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

// Statistics that a uniform permutation has by theory, over fixed seeds; limits are five standard deviations of what
// is estimated. The sizes lie on both sides of smallDomain, and beside the powers of two at which the shape changes.
func TestPermutationsLookUniform(t *testing.T) {
	for _, n := range []uint64{8, 37, 1000, 4095, 4097, 20000} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			seeds := max(200, 400000/n)
			// Where element i lands, in cells of equal probability: cells*cells pairs of (cell of i, cell of image).
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

// What one seed draws tells nothing of the next: images of the same element under consecutive seeds agree as often as
// chance has it.
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

// Whole vectors of images, what is left after them, and images that are walked to.
func TestImagesAreThoseOfThePositionsOneByOne(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := []uint64{1, 2, 3, 5, 7, 900750, MaxRows, MaxRows - 1}
	for power := 2; power <= 40; power++ {
		sizes = append(sizes, 1<<power-1, 1<<power, 1<<power+1, 1<<power+r.Uint64N(1<<power))
	}
	for _, n := range sizes {
		p := newPermutation(n, r.Uint64())
		count := min(1+r.Uint64N(300), n)
		for _, first := range []uint64{0, n - count, r.Uint64N(n - count + 1)} {
			out := make([]uint64, count)
			p.images(out, first)
			for i, got := range out {
				if want := p.at(first + uint64(i)); got != want {
					t.Fatalf("n=%d: %d of %d images from %d on is %d, want %d", n, i, count, first, got, want)
				}
			}
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	for _, n := range []uint64{1000, 900750, 1<<32 + 1} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			p := newPermutation(n, 1)
			out := make([]uint64, min(n, 8000))
			for b.Loop() {
				p.images(out, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(out)), "ns/image")
		})
	}
}
