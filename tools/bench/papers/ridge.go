package papers

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// Ridge is a linear regression on the columns, their squares and their products, with a penalty on the squares of its
// weights. The penalty is the best of five by leaving out each row in turn, for which there is a formula.
func Ridge(x [][]float64, y []float64, _ uint64) tune.Model {
	n := len(y)
	first := products(x[0])
	p := len(first)
	means, stds := make([]float64, p), make([]float64, p)
	rows := make([][]float64, n)
	for i := range x {
		rows[i] = products(x[i])
	}
	for c := range p {
		column := make([]float64, n)
		for i := range rows {
			column[i] = rows[i][c]
		}
		means[c], stds[c] = tune.MeanStd(column)
	}
	center := stat.Mean(y, nil)
	if p == 0 {
		return func([]float64) float64 { return center }
	}
	z := mat.NewDense(n, p, nil)
	for i := range rows {
		for c, v := range rows[i] {
			z.Set(i, c, (v-means[c])/stds[c])
		}
	}
	target := mat.NewVecDense(n, nil)
	for i, v := range y {
		target.SetVec(i, v-center)
	}
	var gram mat.SymDense
	gram.SymOuterK(1, z.T())
	var zy mat.VecDense
	zy.MulVec(z.T(), target)
	var best *mat.VecDense
	least := math.Inf(1)
	for _, penalty := range []float64{0.01, 0.1, 1, 10, 100} {
		a := mat.NewSymDense(p, nil)
		a.CopySym(&gram)
		for c := range p {
			a.SetSym(c, c, a.At(c, c)+penalty)
		}
		var chol mat.Cholesky
		if !chol.Factorize(a) {
			continue
		}
		weights := mat.NewVecDense(p, nil)
		if chol.SolveVecTo(weights, &zy) != nil {
			continue
		}
		var hat mat.Dense // A^-1 z^T
		if chol.SolveTo(&hat, z.T()) != nil {
			continue
		}
		loss := 0.0
		for i := range n {
			h := mat.Dot(z.RowView(i), hat.ColView(i)) + 1/float64(n)
			d := (target.AtVec(i) - mat.Dot(z.RowView(i), weights)) / max(1-h, 1e-6)
			loss += d * d
		}
		if loss < least {
			best, least = weights, loss
		}
	}
	if best == nil {
		return func([]float64) float64 { return center }
	}
	return func(at []float64) float64 {
		sum := center
		for c, v := range products(at) {
			sum += best.AtVec(c) * (v - means[c]) / stds[c]
		}
		return sum
	}
}

// products are the columns, and the products of all pairs of them.
func products(x []float64) []float64 {
	all := append([]float64(nil), x...)
	for i := range x {
		for k := i; k < len(x); k++ {
			all = append(all, x[i]*x[k])
		}
	}
	return all
}
