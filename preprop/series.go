package preprop

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// The operators PPR and Heat are series over S, which is Sym with the same flags:
//
//	PPR   alpha * sum over k of (1-alpha)^k S^k
//	Heat  e^-t * sum over k of t^k/k! S^k
//
// (Gasteiger et al. 2019, "Diffusion Improves Graph Learning", Eq. 1), cut off
// after k = K, the first K >= 1 for which the coefficients left out add up to no
// more than the tolerance. As no eigenvalue of S passes 1, that bounds the error.
// Where d(v) is the degree by which S divides, and ||x|| the largest
// |x[v]| / sqrt(d(v)) of a column over the nodes with d(v) > 0,
//
//	||series cut off x - series x|| <= tolerance * ||x||,
//
// since D^-1/2 S D^1/2 = D^-1 A averages; where d(v) = 0 there is no error. Where
// edges go both ways with equal weights, S is symmetric, and the bound holds in the
// Euclidean norm too. Hop r, a series of a series, is off by r times as much at
// most. The rounding of float32, and of the stored type, comes on top.
//
// The arithmetic is part of the format. Hop r is z(0), made from x, the hop before
// as stored, by Horner's rule:
//
//		z(K-1) = theta(K-1) x + theta(K) S x
//		z(k)   = theta(k) x + S z(k+1)             for k = K-2, ..., 0
//
//	 1. The coefficients theta are found in float64, and rounded to float32. With PPR,
//	    p(0) = 1, p(k) = p(k-1) * (1-alpha), theta(k) = alpha * p(k), and what is left
//	    out after K is p(K+1). With Heat, p(0) = 1, p(k) = p(k-1) * t / k (from left to
//	    right), q(k) = p(0) + ... + p(k) added in this order, q = q(k) for the first k
//	    for which q(k) = q(k+1), theta(k) = p(k) / q, and what is left out after K is
//	    (q - q(K)) / q.
//	 2. S x and S z are computed as described at propagator, up to the rounding to the
//	    stored type in step 4, which only z(0) undergoes; z(k) is float32 otherwise.
//	 3. Each product of a coefficient and a number, and each sum of two terms in the two
//	    lines above, is rounded to float32.
type series struct {
	theta []float32 // [K+1]
	bound float64   // what is left out, the sum of the coefficients
}

// series returns the coefficients of o, which has none if it is not a series.
func (o Operator) series() series {
	s := series{}
	switch o.Name {
	case PPR:
		p := 1.0
		for k := 0; k <= 1 || s.bound > o.Tolerance; k++ {
			s.theta = append(s.theta, float32(o.Parameter*p))
			p *= 1 - o.Parameter
			s.bound = p
		}
	case Heat:
		p, q := []float64{1}, []float64{1}
		for k := 1; ; k++ {
			next := p[k-1] * o.Parameter / float64(k)
			if q[k-1]+next == q[k-1] {
				break
			}
			p, q = append(p, next), append(q, q[k-1]+next)
		}
		all := q[len(q)-1]
		for k := 0; k <= 1 || s.bound > o.Tolerance; k++ {
			s.theta = append(s.theta, float32(p[k]/all))
			s.bound = (all - q[k]) / all
		}
	}
	return s
}

// products is how many products with the matrix a hop takes.
func (s series) products() int { return max(1, len(s.theta)-1) }

// blend is a step of a series, which turns a product into factor * product + theta * x.
type blend struct {
	factor, theta float32
	x             *matrix
}

// add blends row v of x into the product s * row, where row is the sum of row v's terms,
// and writes the result to row. scratch has the same length.
func (b *blend) add(row []float32, s float32, scratch []float32, v int64) {
	dtype.Decode(scratch, b.x.rows(v, v+1), b.x.dtype)
	for j, x := range scratch {
		row[j] = float32(b.factor*float32(s*row[j])) + float32(b.theta*x)
	}
}

// buffers is how many float32 matrices a hop needs beside the one it starts from and the
// one it makes. The latter has the stored type; if that is float32, it holds terms too.
func (s series) buffers(stored format.DType) int {
	most := 2
	if stored == format.Float32 {
		most = 1
	}
	return min(s.products()-1, most)
}

// step returns the matrices of the i-th product, from 1, of a hop from x to y: it reads
// src, writes dst, and is blended as with says.
func (s series) step(i int, x, y *matrix, spares []*matrix) (dst, src *matrix, with *blend) {
	made := func(k int) *matrix { // z(k)
		switch {
		case k == s.products():
			return x
		case k%2 == 1:
			return spares[0]
		case k == 0 || len(spares) == 1:
			return y
		default:
			return spares[1]
		}
	}
	k := s.products() - i
	if len(s.theta) > 0 {
		with = &blend{factor: 1, theta: s.theta[k], x: x}
		if i == 1 {
			with.factor = s.theta[k+1]
		}
	}
	return made(k), made(k + 1), with
}
