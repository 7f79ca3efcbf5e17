package papers

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/hopfeed/hopfeed/tools/tune"
)

// regressions are the ways to predict figures of trials that a3gnn Table III is compared with.
var regressions = []tune.Regression{
	{Name: "ridge", Fit: Ridge}, {Name: "neighbours", Fit: Neighbours}, {Name: "forest", Fit: Forest},
	{Name: "boosting", Fit: Boosting}, tune.Gaussian,
}

// Neighbours predicts the mean of the nearest rows, weighted by the inverse of their distance. How many count
// is chosen by leaving out each row in turn.
func Neighbours(x [][]float64, y []float64, _ uint64) tune.Model {
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
