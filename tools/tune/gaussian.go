package tune

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// byGaussianProcesses fits a process to each score, and takes the point whose optimistic prediction, mean and one
// standard deviation, adds the most hypervolume to the front, times the probability that it is within the limits
// (Ponweiser et al. 2008, SMS-EGO; Gardner et al. 2014 for limits). With weights it takes the point whose optimistic
// prediction has the largest weighted sum.
func byGaussianProcesses(l *learner, done []Trial, left []int) int {
	x, scores := l.observed(done)
	if len(x) == 0 {
		return -1
	}
	var processes [3]*Process
	for k := range processes {
		processes[k] = fitProcess(x, column(scores, k))
	}
	scale, least := scaleOf(scores), l.goals.limits()
	var front []Score
	for _, t := range l.goals.Front(done) {
		front = append(front, scale.unit(l.goals.Score(t.Outcome)))
	}
	volume := func(points []Score) (most float64) {
		if l.goals.Weights == nil {
			return Hypervolume(points, reference)
		}
		most = -1
		for _, p := range points {
			most = max(most, p.weighted(*l.goals.Weights))
		}
		return most
	}
	before := volume(front)
	best, most := -1, math.Inf(-1)
	for _, i := range left {
		var hopeful Score
		within, doubt := 1.0, 0.0
		for k, p := range processes {
			mean, std := p.Predict(l.x[i])
			hopeful[k] = mean + std
			if !math.IsInf(least[k], -1) {
				within *= normalAbove((least[k] - mean) / max(std, 1e-9))
			}
			doubt += std / max(scale.high[k]-scale.low[k], 1e-12)
		}
		gain := max(0, volume(append(slices.Clip(front), scale.unit(hopeful)))-before)
		// Where nothing is gained, what is known the least.
		if v := (gain + 1e-6*doubt) * within; v > most {
			best, most = i, v
		}
	}
	return best
}

// normalAbove is the probability that a standard normal number is above z.
func normalAbove(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// Process is a Gaussian process with a Matérn kernel of smoothness 5/2, with a length for each column (Rasmussen and
// Williams 2006, Equations 2.25, 2.26, 4.17).
type Process struct {
	x         [][]float64
	lengths   []float64
	noise     float64 // variance
	mean, std float64
	factor    [][]float64 // Cholesky's, of the covariance of x
	alpha     []float64   // the inverse of the covariance times y
}

// fitProcess fits a process. Lengths, and the noise's variance / y's variance, maximise the marginal
// likelihood, by a search along one of them after another.
func fitProcess(x [][]float64, y []float64) *Process {
	p := &Process{x: x, noise: 0.03, lengths: make([]float64, len(x[0]))}
	p.mean, p.std = meanStd(y)
	target := make([]float64, len(y))
	for i, v := range y {
		target[i] = (v - p.mean) / p.std
	}
	for c := range p.lengths {
		p.lengths[c] = 1
	}
	best := math.Inf(-1) // logarithm of the likelihood, without a constant
	try := func(lengths []float64, noise float64) {
		k := make([][]float64, len(x))
		for i := range x {
			k[i] = make([]float64, i+1)
			for j := range i {
				k[i][j] = matern(x[i], x[j], lengths)
			}
			k[i][i] = 1 + noise
		}
		if !cholesky(k) {
			return
		}
		alpha := solve(k, target)
		value := -floats.Dot(target, alpha) / 2
		for i := range k {
			value -= math.Log(k[i][i])
		}
		if value > best {
			best, p.factor, p.alpha, p.lengths, p.noise = value, k, alpha, lengths, noise
		}
	}
	try(p.lengths, p.noise)
	for range 2 {
		for _, n := range []float64{1e-3, 0.01, 0.03, 0.1, 0.3} {
			try(p.lengths, n)
		}
		for c := range p.lengths {
			for _, l := range []float64{0.25, 0.5, 1, 2, 5, 20} {
				if l != p.lengths[c] {
					other := slices.Clone(p.lengths)
					other[c] = l
					try(other, p.noise)
				}
			}
		}
	}
	return p
}

// cholesky replaces the lower triangle of a matrix A by L, with A = L L^T; false if A is not positive definite.
func cholesky(a [][]float64) bool {
	for i, row := range a {
		for j, other := range a[:i] {
			row[j] = (row[j] - floats.Dot(row[:j], other[:j])) / other[j]
		}
		d := row[i] - floats.Dot(row[:i], row[:i])
		if !(d > 0) {
			return false
		}
		row[i] = math.Sqrt(d)
	}
	return true
}

// solve returns the x of L L^T x = b.
func solve(l [][]float64, b []float64) []float64 {
	x := slices.Clone(b)
	for i, row := range l {
		x[i] = (x[i] - floats.Dot(row[:i], x[:i])) / row[i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		x[i] /= l[i][i]
		floats.AddScaled(x[:i], -x[i], l[i][:i])
	}
	return x
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
	if p.alpha == nil {
		return p.mean, p.std
	}
	k := make([]float64, len(p.x))
	for i, row := range p.x {
		k[i] = matern(row, at, p.lengths)
	}
	variance := 1 - floats.Dot(k, solve(p.factor, k))
	return p.mean + p.std*floats.Dot(k, p.alpha), p.std * math.Sqrt(max(0, variance))
}

// Gaussian predicts by the mean of a Process.
var Gaussian = Regression{"gaussian", func(x [][]float64, y []float64, _ uint64) Model {
	p := fitProcess(x, y)
	return func(x []float64) float64 { mean, _ := p.Predict(x); return mean }
}}

// meanStd is the mean and the standard deviation of numbers, 1 if they do not vary.
func meanStd(y []float64) (mean, std float64) {
	mean, variance := stat.PopMeanVariance(y, nil)
	if std = math.Sqrt(variance); std == 0 {
		std = 1
	}
	return mean, std
}
