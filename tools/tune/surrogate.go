package tune

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/tools/tune/regress"
)

// leastRandom is how many trials a search that learns begins with at random.
const leastRandom = 8

// mostCandidates is how many points a search compares at a time.
const mostCandidates = 4096

// learner is what searches that learn go by.
type learner struct {
	*Points
	goals Goals
	seed  uint64
	x     [][]float64 // of each point

	chosenFor string // the scores that chosen is of
	chosen    [3]int // of regress.Regressions, for each number of scores
}

// choose is the best regression for each number of scores, by cross-validation. It is found anew where
// there are other scores than the last time.
func (l *learner) choose(x [][]float64, scores []Score) [3]int {
	if text := fmt.Sprint(scores); text != l.chosenFor {
		for k := range l.chosen {
			l.chosen[k], _ = regress.Best(x, column(scores, k), l.seed)
		}
		l.chosenFor = text
	}
	return l.chosen
}

// learning is a search that begins as Random, and then chooses one of at least one untried points, ascending. It
// may choose none (-1): then it is a random one.
func learning(p *Points, g Goals, seed uint64, choose func(l *learner, done []Trial, left []int) int) Proposer {
	l := &learner{Points: p, goals: g, seed: seed, x: p.encode()}
	random := p.Random(seed)
	return func(done []Trial) Settings {
		left := p.untried(done)
		if len(done) < leastRandom || len(left) == 0 {
			return random(done)
		}
		if at := choose(l, done, l.sample(left, len(done))); at >= 0 {
			return p.Settings(at)
		}
		return random(done)
	}
}

// sample is at most mostCandidates of some points, ascending.
func (l *learner) sample(points []int, trial int) []int {
	if len(points) <= mostCandidates {
		return points
	}
	start := rng.Start(rng.Derive(rng.Hash(l.seed, uint64(trial)), "candidates"))
	var kept []int
	for k, i := range points { // so that each is as likely (Knuth 3.4.2, algorithm S)
		if rng.Float64(rng.At(start, uint64(k)))*float64(len(points)-k) < float64(mostCandidates-len(kept)) {
			kept = append(kept, i)
		}
	}
	return kept
}

// observed are the columns and scores of trials. One that failed, or was not measured, counts as the worst of
// the others in all three, so that its neighbourhood is avoided; without others there are none.
func (l *learner) observed(done []Trial) (x [][]float64, scores []Score) {
	worst := Score{math.Inf(1), math.Inf(1), math.Inf(1)}
	for _, t := range done {
		if l.goals.Measured(t.Outcome) {
			for k, v := range l.goals.Score(t.Outcome) {
				worst[k] = min(worst[k], v)
			}
		}
	}
	if math.IsInf(worst[0], 1) {
		return nil, nil
	}
	for _, t := range done {
		i := l.Find(t.Settings)
		if i < 0 {
			continue
		}
		s := worst
		if l.goals.Measured(t.Outcome) {
			s = l.goals.Score(t.Outcome)
		}
		x, scores = append(x, l.x[i]), append(scores, s)
	}
	return x, scores
}

// limits are the least scores that meet the goals; minus infinity where there is no limit.
func (g Goals) limits() Score {
	least := Score{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
	if g.MaxMemory > 0 {
		least[1] = -math.Log(float64(g.MaxMemory))
	}
	if g.MinValid != nil {
		least[2] = *g.MinValid
	}
	return least
}

// meets tells whether a score, which may be predicted, is within the limits.
func (s Score) meets(least Score) bool { return s[1] >= least[1] && s[2] >= least[2] }

// column is one of the numbers of scores.
func column(scores []Score, k int) []float64 {
	y := make([]float64, len(scores))
	for i, s := range scores {
		y[i] = s[k]
	}
	return y
}

// Fitted is how well a figure of trials is predicted from their settings.
type Fitted struct {
	Figure     string   `json:"figure"`     // throughput, memory or the metric
	Regression string   `json:"regression"` // that predicts best
	R2         *float64 `json:"r2"`         // cross-validated; nil where it has none
}

// Fit predicts throughput, memory and metric of trials by all regressions, and tells of each figure the best, or
// of all regressions.
func (p *Points) Fit(g Goals, trials []Trial, seed uint64, all bool) (fitted []Fitted) {
	l := learner{Points: p, goals: g, seed: seed, x: p.encode()}
	var measured []Trial
	for _, t := range trials {
		if g.Measured(t.Outcome) {
			measured = append(measured, t)
		}
	}
	x, scores := l.observed(measured)
	if len(x) == 0 {
		return nil
	}
	for k, figure := range []string{"throughput", "memory", measured[0].Metric} {
		y, exponential := column(scores, k), k < 2
		if exponential {
			for i, s := range y {
				y[i] = math.Exp(map[int]float64{0: s, 1: -s}[k])
			}
		}
		var best *Fitted
		for _, r := range regress.Regressions {
			fit := r.Fit
			if exponential {
				fit = logarithmic(fit)
			}
			f := Fitted{Figure: figure, Regression: r.Name}
			if r2 := regress.R2(fit, x, y, seed); !math.IsNaN(r2) {
				f.R2 = &r2
			}
			if all {
				fitted = append(fitted, f)
			} else if best == nil || f.R2 != nil && (best.R2 == nil || *f.R2 > *best.R2) {
				best = &f
			}
		}
		if best != nil {
			fitted = append(fitted, *best)
		}
	}
	return fitted
}

// logarithmic fits the logarithms of numbers, and predicts the numbers.
func logarithmic(fit regress.Fit) regress.Fit {
	return func(x [][]float64, y []float64, seed uint64) regress.Model {
		logs := make([]float64, len(y))
		for i, v := range y {
			logs[i] = math.Log(v)
		}
		m := fit(x, logs, seed)
		return func(x []float64) float64 { return math.Exp(m(x)) }
	}
}
