package papers

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"
)

// fitModel minimises, for time, the mean square of log(predicted / measured) over all modes together, which have the
// same stages; for memory the sum of squared relative errors in each measured mode, with factors >= 0.
func fitModel(runs []ModeRun) ModeModel {
	m := fitSeconds(runs)
	for _, mode := range modes {
		others := func(r ModeRun) bool { return r.Mode != mode || r.MemoryBytes == 0 }
		if of := slices.DeleteFunc(slices.Clone(runs), others); len(of) > 0 {
			m.Memory[mode] = fitParts(of)
		}
	}
	return m
}

// fitSeconds minimises by the simplex method of Nelder and Mead, from several starts: the maximum in the equations has
// no derivative where stages are as long as each other. There is contention only where a parallel run has several
// workers.
func fitSeconds(runs []ModeRun) ModeModel {
	one := ModeModel{Sample: 1, Batch: 1, Train: 1}
	scale, least := 0.0, math.Inf(1) // geometric mean of measured / predicted with stages of a second, least measured
	for _, r := range runs {
		scale += math.Log(r.Seconds/one.seconds(&r)) / float64(len(runs))
		least = min(least, r.Seconds)
	}
	scale = math.Exp(scale)
	contended := slices.ContainsFunc(runs, func(r ModeRun) bool { return r.Workers > 1 && r.Mode != Sequential })
	// Parameters above zero are searched by their logarithms.
	model := func(v []float64) ModeModel {
		m := ModeModel{Sample: scale * math.Exp(v[0]), Batch: scale * math.Exp(v[1]), Train: scale * math.Exp(v[2]),
			Overhead: least / (1 + math.Exp(-v[3])), // no more than the shortest run
			Memory:   map[Mode]Parts{}}
		if contended {
			m.Contention = math.Exp(v[4])
		}
		return m
	}
	loss := func(v []float64) (mean float64) {
		m := model(v)
		for _, r := range runs {
			d := math.Log(max(m.seconds(&r), 1e-300) / r.Seconds)
			mean += d * d / float64(len(runs))
		}
		return mean
	}
	var best []float64
	for _, start := range [][]float64{{0, 0, 0}, {1, 0, -1}, {-1, 0, 1}, {0, 1, -1}, {-1, 1, 1}, {2, -1, 0},
		{0, -2, 2}} {
		v := append(start, -3)
		if contended {
			v = append(v, -2)
		}
		for range 8 { // from where it ended, with a new simplex, as long as that helps
			result, err := optimize.Minimize(optimize.Problem{Func: loss}, v, &optimize.Settings{
				MajorIterations: 4000, Converger: &optimize.FunctionConverge{Absolute: 1e-14, Iterations: 200},
			}, &optimize.NelderMead{})
			if err != nil || !(result.F < loss(v)*(1-1e-6)) {
				break
			}
			v = result.X
		}
		if best == nil || loss(v) < loss(best) {
			best = v
		}
	}
	return model(best)
}

// fitParts are the bytes of a row of each part in one mode, none of them negative, by coordinate descent.
func fitParts(runs []ModeRun) Parts {
	columns := make([][4]float64, len(runs)) // predicted with a byte a row / measured
	left := make([]float64, len(runs))       // 1 - predicted / measured
	for i, r := range runs {
		columns[i], left[i] = r.Mode.copies(r.Workers), 1
		for k, rows := range [4]float64{r.rows.Cache, r.rows.Batch, r.rows.Model, r.rows.Runtime} {
			columns[i][k] *= rows / float64(r.MemoryBytes)
		}
	}
	var f [4]float64
	for moved, step := math.Inf(1), 0; moved >= 1e-12 && step < 20000; step++ {
		moved = 0
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
	}
	return Parts{f[0], f[1], f[2], f[3]}
}
