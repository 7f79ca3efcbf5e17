package papers

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// Ridge is a linear regression on the columns, their squares and their products, with a penalty on the squares of its
// weights. The penalty is the best of five by leaving out each row in turn: with the standardised columns Z = U S V^T,
// weights are V S/(S^2+penalty) U^T y, and the error of a row that is left out is its residual / (1 - h), where h is
// 1/n + sum U^2 S^2/(S^2+penalty) over the row of U (Hastie et al. 2009, Equations 3.47 and 7.64).
func Ridge(x [][]float64, y []float64, _ uint64) tune.Model {
	n, p := len(y), len(products(x[0]))
	center := stat.Mean(y, nil)
	if p == 0 {
		return func([]float64) float64 { return center }
	}
	z, target := mat.NewDense(n, p, nil), mat.NewVecDense(n, nil)
	for i := range x {
		z.SetRow(i, products(x[i]))
		target.SetVec(i, y[i]-center)
	}
	means, stds := make([]float64, p), make([]float64, p)
	for c := range p {
		column := mat.Col(nil, c, z)
		means[c], stds[c] = tune.MeanStd(column)
		for i, v := range column {
			z.Set(i, c, (v-means[c])/stds[c])
		}
	}
	var svd mat.SVD
	if !svd.Factorize(z, mat.SVDThin) {
		return func([]float64) float64 { return center }
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	s := svd.Values(nil)
	var along mat.VecDense // U^T y
	along.MulVec(u.T(), target)
	weights, least := mat.NewVecDense(p, nil), math.Inf(1)
	for _, penalty := range []float64{0.01, 0.1, 1, 10, 100} {
		loss := 0.0
		for i := range n {
			h, predicted := 1/float64(n), 0.0
			for k, s := range s {
				kept := s * s / (s*s + penalty) * u.At(i, k)
				h += kept * u.At(i, k)
				predicted += kept * along.AtVec(k)
			}
			d := (target.AtVec(i) - predicted) / max(1-h, 1e-6)
			loss += d * d
		}
		if loss < least {
			least = loss
			shrunk := mat.NewVecDense(len(s), nil)
			for k, s := range s {
				shrunk.SetVec(k, s/(s*s+penalty)*along.AtVec(k))
			}
			weights.MulVec(&v, shrunk)
		}
	}
	return func(at []float64) float64 {
		sum := center
		for c, v := range products(at) {
			sum += weights.AtVec(c) * (v - means[c]) / stds[c]
		}
		return sum
	}
}

// products are the columns, and the products of all pairs of them.
func products(x []float64) []float64 {
	all := slices.Clone(x)
	for i := range x {
		for k := i; k < len(x); k++ {
			all = append(all, x[i]*x[k])
		}
	}
	return all
}
