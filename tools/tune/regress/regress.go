// Package regress predicts a number of settings from columns of numbers in [0,1], by the usual regressions
// for tables of some tens to hundreds of rows, and says by cross-validation how well. All are functions of
// their input and a seed; a Model may be used by several goroutines.
package regress

import (
	"cmp"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Model predicts the number of a row of columns.
type Model func(x []float64) float64

// Fit learns from rows x, all of the same columns, and their numbers y. There must be at least one.
type Fit func(x [][]float64, y []float64, seed uint64) Model

// Regressions are all, by name.
var Regressions = []struct {
	Name string
	Fit  Fit
}{
	{"ridge", Ridge},
	{"neighbours", Neighbours},
	{"forest", Forest},
	{"boosting", Boosting},
	{"gaussian", func(x [][]float64, y []float64, _ uint64) Model {
		p := FitProcess(x, y)
		return func(x []float64) float64 { mean, _ := p.Predict(x); return mean }
	}},
}

// folds is into how many parts rows are divided, of which each is predicted from the others.
const folds = 5

// R2 is the share of the variance of y that predictions of rows that a model has not seen explain
// (a3gnn Table III): 1 - sum (y - predicted)^2 / sum (y - mean)^2. It may be negative, and is NaN where y does
// not vary or there are fewer than 5 rows.
func R2(fit Fit, x [][]float64, y []float64, seed uint64) float64 {
	if len(y) < folds {
		return math.NaN()
	}
	order := make([]int, len(y))
	for i := range order {
		order[i] = i
	}
	seed = rng.Derive(seed, "folds")
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rng.Hash(seed, uint64(a)), rng.Hash(seed, uint64(b))) })
	residual, total, mean := 0.0, 0.0, meanOf(y)
	for fold := range folds {
		var trainX [][]float64
		var trainY []float64
		for at, i := range order {
			if at%folds != fold {
				trainX, trainY = append(trainX, x[i]), append(trainY, y[i])
			}
		}
		model := fit(trainX, trainY, seed)
		for at, i := range order {
			if at%folds == fold {
				d := y[i] - model(x[i])
				residual += d * d
				total += (y[i] - mean) * (y[i] - mean)
			}
		}
	}
	if total == 0 {
		return math.NaN()
	}
	return 1 - residual/total
}

// Best is the regression of the largest R2, by its place among Regressions; the first where none has one.
func Best(x [][]float64, y []float64, seed uint64) (best int, r2 float64) {
	r2 = math.NaN()
	for i, r := range Regressions {
		if v := R2(r.Fit, x, y, seed); v > r2 || math.IsNaN(r2) && !math.IsNaN(v) {
			best, r2 = i, v
		}
	}
	return best, r2
}

func meanOf(y []float64) (mean float64) {
	for _, v := range y {
		mean += v / float64(len(y))
	}
	return mean
}

// spread is mean and standard deviation; that of numbers that do not vary is 1.
func spread(y []float64) (mean, std float64) {
	mean = meanOf(y)
	for _, v := range y {
		std += (v - mean) * (v - mean) / float64(len(y))
	}
	if std = math.Sqrt(std); std == 0 {
		std = 1
	}
	return mean, std
}

// Neighbours predicts the mean of the nearest rows, weighted by the inverse of their distance. How many count
// is chosen by leaving out each row in turn.
func Neighbours(x [][]float64, y []float64, _ uint64) Model {
	type near struct{ distance, y float64 }
	predict := func(at []float64, k, without int) float64 {
		var all []near
		for i, row := range x {
			if i == without {
				continue
			}
			d := 0.0
			for c := range row {
				d += (row[c] - at[c]) * (row[c] - at[c])
			}
			all = append(all, near{math.Sqrt(d), y[i]})
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
