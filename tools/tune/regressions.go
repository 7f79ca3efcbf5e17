package tune

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Regressions are the ways to predict figures of trials that a3gnn Table III is compared with.
var Regressions = []Regression{
	{Name: "ridge", Fit: fitRidge}, {Name: "neighbours", Fit: fitNeighbours}, {Name: "forest", Fit: fitForest},
	{Name: "boosting", Fit: fitBoosting}, Gaussian,
}

// fitNeighbours predicts the mean of the nearest rows, weighted by the inverse of their distance. How many count
// is chosen by leaving out each row in turn.
func fitNeighbours(x [][]float64, y []float64, _ uint64) Model {
	type near struct{ distance, y float64 }
	predict := func(at []float64, k, without int) float64 {
		var all []near
		for i, row := range x {
			if i != without {
				all = append(all, near{floats.Distance(row, at, 2), y[i]})
			}
		}
		slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
		sum, weights := 0.0, 0.0
		for _, n := range all[:min(k, len(all))] {
			w := 1 / (n.distance + 1e-6)
			sum, weights = sum+w*n.y, weights+w
		}
		return sum / weights
	}
	best, least := 1, math.Inf(1)
	for _, k := range []int{1, 2, 3, 5, 8} {
		if k >= len(y) {
			break
		}
		sum := 0.0
		for i := range y {
			d := y[i] - predict(x[i], k, i)
			sum += d * d
		}
		if sum < least {
			best, least = k, sum
		}
	}
	return func(at []float64) float64 { return predict(at, best, -1) }
}

// fitRidge makes a linear regression on the columns, their squares and their products, with a penalty on the squares
// of its weights. The penalty is the best of five by leaving out each row in turn: with the standardised columns
// Z = U S V^T, weights are V S/(S^2+penalty) U^T y, and the error of a row that is left out is its residual / (1 - h),
// where h is 1/n + sum U^2 S^2/(S^2+penalty) over the row of U (Hastie et al. 2009, Equations 3.47 and 7.64).
func fitRidge(x [][]float64, y []float64, _ uint64) Model {
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
		means[c], stds[c] = meanStd(column)
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

// Sizes of forests and boosted trees.
const (
	forestTrees   = 100
	boostedTrees  = 200
	boostedDepth  = 3
	boostedRate   = 0.1
	boostedSample = 0.8 // of the rows, for each tree
)

// tree is a node of a regression tree: rows whose column is at most the threshold go left.
type tree struct {
	column      int
	threshold   float64
	left, right *tree // nil: a leaf
	value       float64
}

func (t *tree) predict(x []float64) float64 {
	for t.left != nil {
		if x[t.column] <= t.threshold {
			t = t.left
		} else {
			t = t.right
		}
	}
	return t.value
}

// grow makes a tree of rows, of at most depth levels, whose leaves have leaf rows or more. Each node splits by one of
// columns columns that the stream draws, where the sum of squared errors falls the most (Breiman et al. 1984).
func grow(x [][]float64, y []float64, rows []int, depth, leaf, columns int, r *stream) *tree {
	t := &tree{}
	sum := 0.0
	for _, i := range rows {
		sum += y[i]
	}
	t.value = sum / float64(len(rows))
	if depth == 0 || len(rows) < 2*leaf {
		return t
	}
	best := sum * sum / float64(len(rows)) * (1 + 1e-12)
	found := false
	for _, c := range r.choose(len(x[0]), columns) {
		slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(x[a][c], x[b][c]) })
		left := 0.0
		for k := 1; k < len(rows); k++ {
			left += y[rows[k-1]]
			if x[rows[k-1]][c] == x[rows[k]][c] || k < leaf || len(rows)-k < leaf {
				continue
			}
			right := sum - left
			if gain := left*left/float64(k) + right*right/float64(len(rows)-k); gain > best {
				best, found = gain, true
				t.column, t.threshold = c, (x[rows[k-1]][c]+x[rows[k]][c])/2
			}
		}
	}
	if !found {
		return t
	}
	var low, high []int
	for _, i := range rows {
		if x[i][t.column] <= t.threshold {
			low = append(low, i)
		} else {
			high = append(high, i)
		}
	}
	t.left, t.right = grow(x, y, low, depth-1, leaf, columns, r), grow(x, y, high, depth-1, leaf, columns, r)
	return t
}

// fitForest makes the mean of trees that are grown to the end on rows drawn with replacement, by a third of the columns
// at each node (Breiman 2001).
func fitForest(x [][]float64, y []float64, seed uint64) Model {
	r := &stream{seed: rng.Derive(seed, "forest")}
	var trees []*tree
	for range forestTrees {
		rows := make([]int, len(y))
		for i := range rows {
			rows[i] = r.below(len(y))
		}
		trees = append(trees, grow(x, y, rows, 32, 1, max(1, (len(x[0])+2)/3), r))
	}
	return func(at []float64) (sum float64) {
		for _, t := range trees {
			sum += t.predict(at) / forestTrees
		}
		return sum
	}
}

// fitBoosting makes a sum of small trees, each grown on the residuals of the trees before (Friedman 2001, 2002).
func fitBoosting(x [][]float64, y []float64, seed uint64) Model {
	r := &stream{seed: rng.Derive(seed, "boosting")}
	mean := stat.Mean(y, nil)
	left := make([]float64, len(y))
	for i, v := range y {
		left[i] = v - mean
	}
	var trees []*tree
	for range boostedTrees {
		rows := r.choose(len(y), max(1, int(boostedSample*float64(len(y)))))
		t := grow(x, left, rows, boostedDepth, 2, len(x[0]), r)
		trees = append(trees, t)
		for i := range left {
			left[i] -= boostedRate * t.predict(x[i])
		}
	}
	return func(at []float64) float64 {
		sum := mean
		for _, t := range trees {
			sum += boostedRate * t.predict(at)
		}
		return sum
	}
}

type stream struct{ seed, at uint64 }

func (r *stream) below(n int) int {
	r.at++
	return int(rng.Float64(rng.Hash(r.seed, r.at)) * float64(n))
}

// choose is k of n numbers, or all if there are fewer, in random order.
func (r *stream) choose(n, k int) []int {
	k = min(k, n)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	for i := range k {
		j := i + r.below(n-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:k]
}
