package regress

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Ridge is a linear regression on the columns, their squares and their products, with a penalty on the squares
// of its weights. The penalty is chosen by leaving out each row in turn, for which there is a formula.
func Ridge(x [][]float64, y []float64, _ uint64) Model {
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
		means[c], stds[c] = spread(column)
	}
	center := meanOf(y)
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

// Process is a Gaussian process with a Matérn kernel of smoothness 5/2, with a length for each column
// (Rasmussen and Williams 2006, Equations 2.25, 2.26, 4.17).
type Process struct {
	x         [][]float64
	lengths   []float64
	noise     float64 // variance
	mean, std float64
	factor    mat.Cholesky
	alpha     mat.VecDense
}

// FitProcess fits a process: lengths, and the variance of the noise as a share of that of y, are those of the
// largest marginal likelihood that a search along one of them after another finds.
func FitProcess(x [][]float64, y []float64) *Process {
	p := &Process{x: x}
	p.mean, p.std = spread(y)
	target := mat.NewVecDense(len(y), nil)
	for i, v := range y {
		target.SetVec(i, (v-p.mean)/p.std)
	}
	d := len(x[0])
	lengths, noise := make([]float64, d), 0.03
	for c := range lengths {
		lengths[c] = 1
	}
	// try is the likelihood of parameters, in logarithms and without a constant.
	try := func(lengths []float64, noise float64) (float64, mat.Cholesky, mat.VecDense) {
		k := mat.NewSymDense(len(x), nil)
		for i := range x {
			for j := i; j < len(x); j++ {
				k.SetSym(i, j, matern(x[i], x[j], lengths))
			}
			k.SetSym(i, i, 1+noise)
		}
		var chol mat.Cholesky
		var alpha mat.VecDense
		if !chol.Factorize(k) || chol.SolveVecTo(&alpha, target) != nil {
			return math.Inf(-1), chol, alpha
		}
		return -mat.Dot(target, &alpha)/2 - chol.LogDet()/2, chol, alpha
	}
	best := math.Inf(-1)
	keep := func(l []float64, n float64) bool {
		value, chol, alpha := try(l, n)
		if value <= best {
			return false
		}
		best, p.factor, p.alpha = value, chol, alpha
		lengths, noise = append([]float64(nil), l...), n
		return true
	}
	keep(lengths, noise)
	for range 2 {
		for _, n := range []float64{1e-3, 0.01, 0.03, 0.1, 0.3} {
			keep(lengths, n)
		}
		for c := range d {
			for _, l := range []float64{0.25, 0.5, 1, 2, 5, 20} {
				other := append([]float64(nil), lengths...)
				other[c] = l
				keep(other, noise)
			}
		}
	}
	p.lengths, p.noise = lengths, noise
	return p
}

// matern is the covariance of two rows, 1 if they are the same.
func matern(a, b, lengths []float64) float64 {
	sum := 0.0
	for c := range a {
		d := (a[c] - b[c]) / lengths[c]
		sum += d * d
	}
	r := math.Sqrt(5 * sum)
	return (1 + r + r*r/3) * math.Exp(-r)
}

// Predict is the mean of the number of a row, and its standard deviation without noise.
func (p *Process) Predict(at []float64) (mean, std float64) {
	n := len(p.x)
	k := mat.NewVecDense(n, nil)
	for i, row := range p.x {
		k.SetVec(i, matern(row, at, p.lengths))
	}
	var solved mat.VecDense
	if p.alpha.Len() == 0 || p.factor.SolveVecTo(&solved, k) != nil {
		return p.mean, p.std
	}
	variance := 1 - mat.Dot(k, &solved)
	return p.mean + p.std*mat.Dot(k, &p.alpha), p.std * math.Sqrt(max(0, variance))
}
