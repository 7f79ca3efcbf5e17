package tune

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
		{"quadratic", quadratic, map[string]float64{"ridge": 0.999, "gaussian": 0.999, "boosting": 0.95, "forest": 0.85,
			"neighbours": 0.85}},
		{"steps", steps, map[string]float64{"boosting": 0.97, "forest": 0.93}},
		{"smooth", smooth, map[string]float64{"gaussian": 0.999, "boosting": 0.95, "forest": 0.85, "neighbours": 0.8}},
	} {
		x, y := rows(160, 3, 0.01, c.f)
		for _, r := range Regressions {
			if least := c.least[r.Name]; least > 0 {
				if got := R2(r.Fit, x, y, 1); got < least {
					t.Errorf("%s on %s: R2 %.4f, want %v", r.Name, c.name, got, least)
				}
			}
		}
	}
}

// Noise cannot be predicted: nothing that leaves rows out has an R2 above what chance gives.
func TestNothingPredictsNoise(t *testing.T) {
	x, y := rows(100, 4, 1, func([]float64) float64 { return 0 })
	for _, r := range Regressions {
		if got := R2(r.Fit, x, y, 1); got > 0.15 {
			t.Errorf("%s: R2 of noise %.3f", r.Name, got)
		}
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
