package regress

import (
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// rows are n rows of d columns in [0,1), and f of them with noise.
func rows(n, d int, noise float64, f func(x []float64) float64) (x [][]float64, y []float64) {
	for i := range n {
		row := make([]float64, d)
		for c := range row {
			row[c] = rng.Float64(rng.Hash(uint64(c), uint64(i)))
		}
		x, y = append(x, row), append(y, f(row)+noise*rng.Normal(99, uint64(i)))
	}
	return x, y
}

// On what each can represent, a regression must predict rows that it has not seen nearly exactly; the bounds
// leave room for one step more of noise than there is.
func TestRegressionsLearnWhatTheyCanRepresent(t *testing.T) {
	quadratic := func(x []float64) float64 { return 3 + 2*x[0] - x[1] + 4*x[0]*x[2] + x[1]*x[1] }
	steps := func(x []float64) float64 {
		v := 0.0
		if x[0] > 0.4 {
			v += 5
		}
		if x[1] > 0.7 {
			v -= 3
		}
		return v
	}
	smooth := func(x []float64) float64 { return math.Sin(4*x[0]) + math.Cos(3*x[1]) }
	for _, c := range []struct {
		name  string
		f     func([]float64) float64
		least map[string]float64
	}{
		{"quadratic", quadratic, map[string]float64{"ridge": 0.999, "gaussian": 0.999, "boosting": 0.95, "forest": 0.85, "neighbours": 0.85}},
		{"steps", steps, map[string]float64{"boosting": 0.97, "forest": 0.93}},
		{"smooth", smooth, map[string]float64{"gaussian": 0.999, "boosting": 0.95, "forest": 0.85, "neighbours": 0.8}},
	} {
		x, y := rows(200, 3, 0.01, c.f)
		for _, r := range Regressions {
			if least := c.least[r.Name]; least > 0 {
				if got := R2(r.Fit, x, y, 1); got < least {
					t.Errorf("%s on %s: R2 %.4f, want %v", r.Name, c.name, got, least)
				}
			}
		}
	}
	x, y := rows(200, 3, 0.01, quadratic)
	if best, r2 := Best(x, y, 1); r2 < 0.999 || R2(Regressions[best].Fit, x, y, 1) != r2 {
		t.Errorf("the best is %s with %v", Regressions[best].Name, r2)
	}
}

// Noise cannot be predicted: nothing that leaves rows out has an R2 above what chance gives.
func TestNothingPredictsNoise(t *testing.T) {
	x, y := rows(120, 4, 1, func([]float64) float64 { return 0 })
	for _, r := range Regressions {
		if got := R2(r.Fit, x, y, 1); got > 0.15 {
			t.Errorf("%s: R2 of noise %.3f", r.Name, got)
		}
	}
}

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

// Of two rows, the inverse of the covariance is written by hand.
func TestAProcessInterpolatesAndSaysWhereItKnowsNothing(t *testing.T) {
	x, y := rows(60, 2, 0, func(x []float64) float64 { return x[0] + math.Sin(5*x[1]) })
	p := FitProcess(x, y)
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
	p = FitProcess(x, y)
	k, a, b := matern(x[0], x[1], p.lengths), matern(x[0], []float64{0.3}, p.lengths), matern(x[1], []float64{0.3}, p.lengths)
	s := 1 + p.noise
	wantMean := 2 + (a*(-s-k)+b*(s+k))/(s*s-k*k)
	wantStd := math.Sqrt(1 - (s*a*a-2*k*a*b+s*b*b)/(s*s-k*k))
	if mean, std := p.Predict([]float64{0.3}); math.Abs(mean-wantMean) > 1e-12 || math.Abs(std-wantStd) > 1e-9 {
		t.Errorf("between two rows: %v +- %v, want %v +- %v", mean, std, wantMean, wantStd)
	}
	if got := matern([]float64{0, 0}, []float64{3, 4}, []float64{1, 2}); math.Abs(got-(1+math.Sqrt(65)+65.0/3)*math.Exp(-math.Sqrt(65))) > 1e-15 {
		t.Errorf("covariance %v", got)
	}
}

func TestFewRowsAndConstantColumnsAreLearnt(t *testing.T) {
	for _, r := range Regressions {
		for _, x := range [][][]float64{{{0.5, 0}}, {{0, 0}, {0, 0}, {0, 0}}, {{}, {}}} {
			y := make([]float64, len(x))
			for i := range y {
				y[i] = 3
			}
			if got := r.Fit(x, y, 1)(x[0]); math.Abs(got-3) > 1e-9 {
				t.Errorf("%s on %v: %v, want 3", r.Name, x, got)
			}
		}
	}
}
