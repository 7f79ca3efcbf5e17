package tune

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// R2 by the formula, of a model that always says 1: with each y in one fold, sum (y-1)^2 over sum (y-2)^2.
func TestR2IsThatOfItsFormula(t *testing.T) {
	always := func([][]float64, []float64, uint64) Model { return func([]float64) float64 { return 1 } }
	x := [][]float64{{0}, {0}, {0}, {0}, {0}}
	if got := R2(always, x, []float64{0, 1, 2, 3, 4}, 7); math.Abs(got-(1-15.0/10)) > 1e-12 {
		t.Errorf("%v", got)
	}
	if got := R2(always, x, []float64{2, 2, 2, 2, 2}, 7); !math.IsNaN(got) {
		t.Errorf("of numbers that do not vary: %v", got)
	}
	if got := R2(always, x[:4], []float64{1, 2, 3, 4}, 7); !math.IsNaN(got) {
		t.Errorf("of four rows: %v", got)
	}
}

// Between two rows by the inverse of the covariance, written by hand.
func TestAProcessInterpolatesAndSaysWhereItKnowsNothing(t *testing.T) {
	var x [][]float64
	var y []float64
	for i := range uint64(40) {
		row := []float64{rng.Float64(rng.Hash(0, i)), rng.Float64(rng.Hash(1, i))}
		x, y = append(x, row), append(y, row[0]+math.Sin(5*row[1]))
	}
	p := fitProcess(x, y)
	for i := range x {
		mean, std := p.Predict(x[i])
		if math.Abs(mean-y[i]) > 0.05 || std > 0.1 {
			t.Errorf("row %d: %v +- %v, want %v", i, mean, std, y[i])
		}
	}
	if _, far := p.Predict([]float64{50, 50}); far < 0.5*p.std || far > p.std*1.0001 {
		t.Errorf("far away it is sure to %v of %v", far, p.std)
	}
	x, y = [][]float64{{0}, {1}}, []float64{1, 3} // mean 2, deviation 1
	p = fitProcess(x, y)
	k, a, b := matern(x[0], x[1], p.lengths), matern(x[0], []float64{0.3}, p.lengths), matern(x[1], []float64{0.3},
		p.lengths)
	s := 1 + p.noise
	wantMean := 2 + (a*(-s-k)+b*(s+k))/(s*s-k*k)
	wantStd := math.Sqrt(1 - (s*a*a-2*k*a*b+s*b*b)/(s*s-k*k))
	if mean, std := p.Predict([]float64{0.3}); math.Abs(mean-wantMean) > 1e-12 || math.Abs(std-wantStd) > 1e-9 {
		t.Errorf("between two rows: %v +- %v, want %v +- %v", mean, std, wantMean, wantStd)
	}
	if got := matern([]float64{0, 0}, []float64{3, 4},
		[]float64{1, 2}); math.Abs(got-(1+math.Sqrt(65)+65.0/3)*math.Exp(-math.Sqrt(65))) > 1e-15 {
		t.Errorf("covariance %v", got)
	}
}
