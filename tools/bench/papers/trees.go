package papers

import (
	"cmp"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/tools/tune"
)

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

// grow makes a tree of some rows that is at most so deep, whose leaves have so many rows at least. Each node splits by
// one of so many columns that the stream draws, where the sum of squared errors falls the most (Breiman et al. 1984).
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

// Forest is the mean of trees that are grown to the end on rows drawn with replacement, by a third of the columns
// at each node (Breiman 2001).
func Forest(x [][]float64, y []float64, seed uint64) tune.Model {
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

// Boosting is a sum of small trees, each grown on the residuals of the trees before (Friedman 2001, 2002).
func Boosting(x [][]float64, y []float64, seed uint64) tune.Model {
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

// stream is random numbers, one after another.
type stream struct{ seed, at uint64 }

// below is a number from 0 to n-1.
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
