package tune

import (
	"cmp"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/tools/tune/regress"
)

// byGaussianProcesses fits a process to each score, and takes the point whose optimistic prediction, mean and one
// standard deviation, adds the most hypervolume to the front, times the probability that it is within the limits
// (Ponweiser et al. 2008, SMS-EGO; Gardner et al. 2014 for limits).
func byGaussianProcesses(l *learner, done []Trial, left []int) int {
	x, scores := l.observed(done)
	if len(x) == 0 {
		return -1
	}
	var processes [3]*regress.Process
	for k := range processes {
		processes[k] = regress.FitProcess(x, column(scores, k))
	}
	scale, least := scaleOf(scores), l.goals.limits()
	var front []Score
	for _, t := range l.goals.Front(done) {
		front = append(front, scale.unit(l.goals.Score(t.Outcome)))
	}
	reference := Score{-0.1, -0.1, -0.1}
	before := Hypervolume(front, reference)
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
		gain := Hypervolume(append(slices.Clip(front), scale.unit(hopeful)), reference) - before
		// Where nothing is gained, what is known the least.
		if v := (gain + 1e-6*doubt) * within; v > most {
			best, most = i, v
		}
	}
	return best
}

// normalAbove is the probability that a standard normal number is above z.
func normalAbove(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// parzenCandidates is how many points are drawn from what good trials have.
const parzenCandidates = 24

// byParzenEstimators divides the trials into good and other ones, and takes, of some points drawn as the good ones
// are distributed, that which is the most likelier among the good ones than among the others (Bergstra et al. 2011,
// TPE). Good are a quarter: the first fronts within the limits (Ozaki et al. 2020, MOTPE), the nearest to them of one
// front that is divided by what it adds to the hypervolume; then what is not within them, by how far it is away.
func byParzenEstimators(l *learner, done []Trial, left []int) int {
	order := l.ranked(done)
	if len(order) == 0 {
		return -1
	}
	good := max(2, (len(order)+3)/4)
	// Of each dimension, how likely its values are: counts, and a prior of one for all of them together.
	likely := func(trials []int) [][]float64 {
		all := make([][]float64, len(l.Dimensions))
		for d, dim := range l.Dimensions {
			p := make([]float64, len(dim.Values))
			for v := range p {
				p[v] = 1 / float64(len(p))
			}
			for _, i := range trials {
				p[l.place[i][d]]++
			}
			for v := range p {
				p[v] /= float64(len(trials) + 1)
			}
			all[d] = p
		}
		return all
	}
	if good >= len(order) {
		return -1
	}
	in, out := likely(order[:good]), likely(order[good:])
	free := map[int]bool{}
	for _, i := range left {
		free[i] = true
	}
	start := rng.Start(rng.Derive(rng.Hash(l.seed, uint64(len(done))), "parzen"))
	best, most, at := -1, math.Inf(-1), uint64(0)
	place := make([]int, len(l.Dimensions))
	for range parzenCandidates {
		for d := range place {
			u := rng.Float64(rng.At(start, at))
			at++
			place[d] = len(in[d]) - 1
			for v, p := range in[d] {
				if u -= p; u < 0 {
					place[d] = v
					break
				}
			}
		}
		i := l.numberOf(place)
		if !free[i] {
			continue
		}
		ratio := 0.0
		for d, v := range l.place[i] {
			ratio += math.Log(in[d][v] / out[d][v])
		}
		if ratio > most {
			best, most = i, ratio
		}
	}
	return best
}

// ranked are the points of trials, the best first.
func (l *learner) ranked(done []Trial) []int {
	type ranking struct {
		point       int
		rank        int // 0: the front
		far, volume float64
	}
	_, scores := l.observed(done)
	if len(scores) == 0 {
		return nil
	}
	scale, least := scaleOf(scores), l.goals.limits()
	var all []ranking
	at := 0
	for _, t := range done {
		i := l.Find(t.Settings)
		if i < 0 {
			continue
		}
		r := ranking{point: i}
		s := scores[at]
		at++
		for k := range s {
			if d := least[k] - s[k]; d > 0 {
				r.far += d / max(scale.high[k]-scale.low[k], 1e-12)
			}
		}
		if !l.goals.Measured(t.Outcome) {
			r.far += 1
		}
		all = append(all, r)
	}
	// Peel fronts off those within the limits.
	left := map[int]bool{}
	for i, r := range all {
		left[i] = r.far == 0
	}
	for rank := 0; ; rank++ {
		var front []int
		for i := range all {
			dominated := !left[i]
			for k := range all {
				dominated = dominated || left[k] && scores[k].dominates(scores[i])
			}
			if !dominated {
				front = append(front, i)
			}
		}
		if len(front) == 0 {
			break
		}
		var units []Score
		for _, i := range front {
			units = append(units, scale.unit(scores[i]))
		}
		whole := Hypervolume(units, Score{-0.1, -0.1, -0.1})
		for n, i := range front {
			without := append(slices.Clone(units[:n]), units[n+1:]...)
			all[i].rank, all[i].volume = rank, whole-Hypervolume(without, Score{-0.1, -0.1, -0.1})
			left[i] = false
		}
	}
	slices.SortStableFunc(all, func(a, b ranking) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.rank, b.rank), cmp.Compare(b.volume, a.volume))
	})
	var order []int
	for _, r := range all {
		order = append(order, r.point)
	}
	return order
}
