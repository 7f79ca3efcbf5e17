package operator

import "github.com/hopfeed/hopfeed/format"

// The operators PPR and Heat are series over S, which is Sym with the same flags:
//
//	PPR   alpha * sum over k of (1-alpha)^k S^k
//	Heat  e^-t * sum over k of t^k/k! S^k
//
// (Gasteiger et al. 2019, "Diffusion Improves Graph Learning", Eq. 1), cut off after k = K, the first K >= 1 for
// which the coefficients left out add up to no more than the tolerance. As no eigenvalue of S passes 1, that bounds
// the error. Where d(v) is the degree by which S divides, and ||x|| the largest |x[v]| / sqrt(d(v)) of a column over
// the nodes with d(v) > 0,
//
//	||series cut off x - series x|| <= tolerance * ||x||,
//
// since D^-1/2 S D^1/2 = D^-1 A averages; where d(v) = 0 there is no error. Where edges go both ways with equal
// weights, S is symmetric, and the bound holds in the Euclidean norm too. Hop r, a series of a series, is off by r
// times as much at most. The rounding of float32, and of the stored type, comes on top.
//
// The arithmetic is part of the format. Hop r is z(0), made from x, the hop before as stored, by Horner's rule:
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
type Series struct {
	Theta []float32 // [K+1]
	Bound float64   // what is left out, the sum of the coefficients
}

// Series returns the coefficients of o, which has none if it is not a series.
func (o Operator) Series() Series {
	s := Series{}
	switch o.Name {
	case PPR:
		p := 1.0
		for k := 0; k <= 1 || s.Bound > o.Tolerance; k++ {
			s.Theta = append(s.Theta, float32(o.Parameter*p))
			p *= 1 - o.Parameter
			s.Bound = p
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
		for k := 0; k <= 1 || s.Bound > o.Tolerance; k++ {
			s.Theta = append(s.Theta, float32(p[k]/all))
			s.Bound = (all - q[k]) / all
		}
	}
	return s
}

// Products is how many products with the matrix a hop takes.
func (s Series) Products() int { return max(1, len(s.Theta)-1) }

// Buffers is how many float32 matrices a hop needs beside the one it starts from and the one it makes. The latter has
// the stored type; if that is float32, it holds terms too.
func (s Series) Buffers(stored format.DType) int {
	most := 2
	if stored == format.Float32 {
		most = 1
	}
	return min(s.Products()-1, most)
}

// Step returns the matrices of the i-th product, from 1, of a hop from x to y: it reads src and writes dst.
func Step[M any](s Series, i int, x, y M, spares []M) (dst, src M) {
	made := func(k int) M { // z(k)
		switch {
		case k == s.Products():
			return x
		case k%2 == 1:
			return spares[0]
		case k == 0 || len(spares) == 1:
			return y
		default:
			return spares[1]
		}
	}
	k := s.Products() - i
	return made(k), made(k + 1)
}

// Blend returns what the i-th product, from 1, of a hop from x becomes: factor * product + theta * x. Products of
// operators that are no series stay as they are.
func (s Series) Blend(i int) (factor, theta float32, blends bool) {
	if len(s.Theta) == 0 {
		return 1, 0, false
	}
	k := s.Products() - i
	if i == 1 {
		return s.Theta[k+1], s.Theta[k], true
	}
	return 1, s.Theta[k], true
}
