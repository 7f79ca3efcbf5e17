package operator

import "github.com/hopfeed/hopfeed/format"

// Series is the coefficients of PPR and Heat, which are series over S, Sym with the same flags (Gasteiger et al. 2019,
// "Diffusion Improves Graph Learning", Eq. 1):
//
//	PPR   alpha * sum over k of (1-alpha)^k S^k
//	Heat  e^-t * sum over k of t^k/k! S^k
//
// They are cut off after the first K >= 1 for which the coefficients left out add up to the tolerance at most. Hop r is
// z(0), made from x, the hop before as stored, by Horner's rule:
//
//	z(K-1) = theta(K-1) x + theta(K) S x
//	z(k)   = theta(k) x + S z(k+1)             for k = K-2, ..., 0
//
// docs/format.md (Series) has the order of all operations, which is part of the format, and the bound of the error.
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
