package sampling

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// reservoir draws k of many candidates without replacement, one after another, each with probability proportional to
// its weight among the candidates that are left. A candidate of weight w is drawn at a time that is exponentially
// distributed with rate w, and the first k are kept. (Efraimidis and Spirakis 2006, and a3gnn Algorithm 2, keep the
// greatest rand^(1/w), which is exp(-time).)
type reservoir struct {
	k     int
	draws []draw // by time, when finished

	latest     float64 // k draws are at this time or before
	candidates int     // of positive weight
	total      float64 // of all weights

	coefficients []float32
}

type draw struct {
	time, weight float64
	candidate    uint32
}

// insertedDraws is up to how many draws each is inserted in its place. More are collected, up to twice as many
// as are wanted, and then sorted, since moving the later ones would take quadratic time.
const insertedDraws = 64

func (r *reservoir) begin(k int) {
	r.k, r.draws, r.candidates, r.total, r.latest = k, r.draws[:0], 0, 0, math.Inf(1)
}

// offer adds a candidate, whose random number is hash.
func (r *reservoir) offer(candidate uint32, weight float64, hash uint64) {
	if !(weight > 0) {
		return
	}
	r.candidates++
	r.total += weight
	if rng.Float64(hash) >= float64(r.latest*weight) {
		return // the time times the weight, -log(1-x), is x or more
	}
	d := draw{rng.Exponential(hash) / weight, weight, candidate}
	if d.time >= r.latest {
		return
	}
	if r.k > insertedDraws {
		if r.draws = append(r.draws, d); len(r.draws) >= 2*r.k {
			r.finish()
		}
		return
	}
	at := sort.Search(len(r.draws), func(i int) bool { return r.draws[i].time > d.time })
	if len(r.draws) < r.k {
		r.draws = append(r.draws, d)
	}
	copy(r.draws[at+1:], r.draws[at:])
	r.draws[at] = d
	if len(r.draws) == r.k {
		r.latest = r.draws[r.k-1].time
	}
}

// finish leaves the draws, in their order. It is called after the last offer.
func (r *reservoir) finish() {
	if r.k <= insertedDraws {
		return
	}
	slices.SortStableFunc(r.draws, func(a, b draw) int { return cmp.Compare(a.time, b.time) })
	if len(r.draws) >= r.k {
		r.draws = r.draws[:r.k]
		r.latest = r.draws[r.k-1].time
	}
}

// unbiased is a coefficient for each draw, by which the sum of coefficient * value estimates the sum
// of the values of all candidates.
func (r *reservoir) unbiased() []float32 {
	r.coefficients = resize(r.coefficients, len(r.draws))
	debias(r.coefficients, func(i int) float64 { return r.draws[i].weight }, r.candidates, r.total)
	return r.coefficients
}

// debias writes coefficients for draws without replacement, by which they estimate the sum over all candidates without
// bias; weight(i) is the weight of draw i (mq-gnn Eq. 13, after Chen et al. 2022; Des Raj 1956). After i+1 draws the
// estimate is
//
//	Y(i+1) = (1 - a(i+1)) Y(i) + a(i+1) (sum of the first i values + value(i+1) / p(i+1)),
//
// where p(i+1) is the probability of draw i+1 after those before, and a(i+1) = n/((n-i)(i+1)). So the
// excess over 1 of each coefficient begins as a/p - 1, and each later draw multiplies it by 1 - a.
func debias(coefficients []float32, weight func(i int) float64, n int, total float64) {
	a := func(i int) float64 { return float64(n) / float64(float64(n-i)*float64(i+1)) }
	left := total // weight of what is not drawn before draw i
	for i := range coefficients {
		w := weight(i)
		coefficients[i] = float32(float64(a(i)*max(left, w)/w) - 1)
		left -= w
	}
	later := 1.0
	for i := len(coefficients) - 1; i >= 0; i-- {
		coefficients[i] = 1 + float32(float64(coefficients[i])*later)
		later *= 1 - a(i)
	}
}
