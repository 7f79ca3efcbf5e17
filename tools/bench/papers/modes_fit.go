package papers

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// FitEquations fits a model to measured runs. For time it minimises the mean square of log(predicted / measured) over
// all modes together, which have the same stages; for memory the sum of squared relative errors, with factors >= 0, for
// each measured mode. A run without a figure does not count for it; one must have a time. What the runs do not tell
// apart, as contention where each has one worker, stays as in Equations.
func FitEquations(runs []Training) (ModeModel, error) {
	m := Equations()
	var timed []Training
	various := struct{ density, workers bool }{}
	for _, r := range runs {
		if err := r.check(); err != nil {
			return m, err
		}
		if r.Seconds == 0 {
			continue
		}
		timed = append(timed, r)
		various.density = various.density || r.Density != timed[0].Density && r.Density > 0 && timed[0].Density > 0
		various.workers = various.workers || r.workers() > 1
	}
	if len(timed) == 0 {
		return m, fmt.Errorf("%w: none of %d has a measured time", ErrRuns, len(runs))
	}
	m.fitSeconds(timed, various.workers, various.density)
	m.Memory = map[Mode]Parts{}
	for _, mode := range Modes() {
		var of []Training
		for _, r := range runs {
			if r.Mode == mode && r.Bytes > 0 {
				of = append(of, r)
			}
		}
		if len(of) > 0 {
			m.Memory[mode] = fitParts(of)
		}
	}
	return m, nil
}

// fitSeconds minimises by the simplex method of Nelder and Mead, from several starts: the maximum in the
// equations has no derivative where stages are as long as each other.
func (m *ModeModel) fitSeconds(runs []Training, workers, density bool) {
	scale, least := 0.0, math.Inf(1) // of what is predicted now, by what was measured
	for _, r := range runs {
		scale += math.Log(r.Seconds/max(m.Seconds(r), 1e-12)) / float64(len(runs))
		least = min(least, r.Seconds)
	}
	scale = math.Exp(scale)
	// Parameters above zero are searched by their logarithms; fixed ones are left out.
	set := func(v []float64) ModeModel {
		out := *m
		out.Sample, out.Batch, out.Train = scale*math.Exp(v[0]), scale*math.Exp(v[1]), scale*math.Exp(v[2])
		out.Overhead = least / (1 + math.Exp(-v[3])) // no more than the shortest run
		at := 4
		if workers {
			out.Contention = math.Exp(v[at])
			at++
		}
		if density {
			out.DensityPower = v[at]
		}
		return out
	}
	loss := func(v []float64) float64 {
		model, sum := set(v), 0.0
		for _, r := range runs {
			d := math.Log(max(model.Seconds(r), 1e-300) / r.Seconds)
			sum += d * d
		}
		return sum / float64(len(runs))
	}
	best, found := math.Inf(1), []float64(nil)
	for _, start := range [][]float64{{0, 0, 0}, {1, 0, -1}, {-1, 0, 1}, {0, 1, -1}, {-1, 1, 1}, {2, -1, 0},
		{0, -2, 2}} {
		v := append(append([]float64(nil), start...), -3)
		if workers {
			v = append(v, -2)
		}
		if density {
			v = append(v, 0)
		}
		for range 8 { // from where it ended, with a new simplex, as long as that helps
			before := loss(v)
			result, err := optimize.Minimize(optimize.Problem{Func: loss}, v, &optimize.Settings{
				MajorIterations: 4000, Converger: &optimize.FunctionConverge{Absolute: 1e-14, Iterations: 200},
			}, &optimize.NelderMead{})
			if result == nil || err != nil && len(result.X) == 0 {
				break
			}
			if v = result.X; !(loss(v) < before*(1-1e-6)) {
				break
			}
		}
		if l := loss(v); l < best {
			best, found = l, v
		}
	}
	if found != nil {
		*m = set(found)
	}
}

// fitParts are the factors of one mode, none of them negative, by coordinate descent.
func fitParts(runs []Training) Parts {
	// Relative errors count: each run is divided by what was measured.
	columns := make([][4]float64, len(runs))
	for i, r := range runs {
		for k := range 4 {
			var one [4]float64
			one[k] = 1
			columns[i][k] = r.Mode.bytes(r.Parts.times(Parts{one[0], one[1], one[2], one[3]}), r.workers()) / r.Bytes
		}
	}
	var f [4]float64
	left := make([]float64, len(runs)) // measured less predicted, both by measured
	for i := range left {
		left[i] = 1
	}
	for range 20000 {
		moved := 0.0
		for k := range f {
			up, down := 0.0, 0.0
			for i, c := range columns {
				up += c[k] * (left[i] + c[k]*f[k])
				down += c[k] * c[k]
			}
			if down == 0 {
				continue
			}
			next := max(0, up/down)
			for i := range left {
				left[i] -= columns[i][k] * (next - f[k])
			}
			moved = max(moved, math.Abs(next-f[k])*math.Sqrt(down))
			f[k] = next
		}
		if moved < 1e-12 {
			break
		}
	}
	return Parts{f[0], f[1], f[2], f[3]}
}
