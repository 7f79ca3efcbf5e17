package tune

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// searches are the ways to choose what is tried next. Each is a function of the trials so far and of the seed, so that
// a search that was stopped goes on.
var searches = map[string]func(p *Points, g Goals, seed uint64) Proposer{
	"grid":     func(p *Points, _ Goals, _ uint64) Proposer { return p.Grid() },
	"random":   func(p *Points, _ Goals, seed uint64) Proposer { return p.Random(seed) },
	"gaussian": func(p *Points, g Goals, seed uint64) Proposer { return learning(p, g, seed, byGaussianProcesses) },
	"ppo":      func(p *Points, g Goals, seed uint64) Proposer { return learning(p, g, seed, byPolicy) },
}

// DefaultSearch is the search that came nearest to the front with a tenth of the runs (docs/benchmarks.md).
const DefaultSearch = "gaussian"

// Searches lists the names of all searches.
func Searches() []string { return slices.Sorted(maps.Keys(searches)) }

// NewSearch is the search of a name among points, for goals. It ends when all points have been tried. prior predicts
// scores before there are trials: the first ones are then of the points that it predicts the best of, instead of random
// ones. It may be nil.
func NewSearch(name string, p *Points, g Goals, seed uint64, prior func([]Settings) []Score) (Proposer, error) {
	search, ok := searches[name]
	if !ok {
		return nil, fmt.Errorf("there is no search %q: want one of %s", name, strings.Join(Searches(), ", "))
	}
	propose := search(p, g, seed)
	if prior == nil {
		return propose, nil
	}
	l := &learner{Points: p, goals: g, seed: seed}
	return func(done []Trial) Settings {
		if left := p.untried(done); len(done) < leastRandom && len(left) > 0 {
			return p.Settings(l.foreseen(done, l.sample(left, len(done)), prior))
		}
		return propose(done)
	}, nil
}

// foreseen is the point of some that has the largest weighted sum of predicted scores within the limits. Without
// weights in the goals each trial has its own.
func (l *learner) foreseen(done []Trial, left []int, prior func([]Settings) []Score) int {
	settings := make([]Settings, len(left))
	for k, i := range left {
		settings[k] = l.Settings(i)
	}
	scores, least := prior(settings), l.goals.limits()
	scale, weights := scaleOf(scores), l.goals.weights(rng.Derive(rng.Hash(l.seed, uint64(len(done))), "prior"))
	best, most := left[0], math.Inf(-1)
	for k, s := range scores {
		if v := scale.unit(s).weighted(weights); v > most && s.meets(least) {
			best, most = left[k], v
		}
	}
	return best
}

// leastRandom is how many trials a search that learns begins with at random.
const leastRandom = 8

// mostCandidates is how many points a search compares at a time.
const mostCandidates = 4096

type learner struct {
	*Points
	goals Goals
	seed  uint64
	x     [][]float64 // of each point
}

// learning is a search that begins as Random, and then chooses one of at least one untried points, ascending. Where it
// chooses none (-1), the next is random.
func learning(p *Points, g Goals, seed uint64, choose func(l *learner, done []Trial, left []int) int) Proposer {
	l := &learner{Points: p, goals: g, seed: seed}
	random := p.Random(seed)
	return func(done []Trial) Settings {
		if len(done) < leastRandom {
			return random(done)
		}
		if l.x == nil {
			all := make([]Settings, p.Len())
			for i := range all {
				all[i] = p.Settings(i)
			}
			l.x = p.encode(all)
		}
		left := p.untried(done)
		if len(left) == 0 {
			return nil
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

// observed are the columns and scores of trials. A trial that failed or was not measured has the worst score of the
// others in all three numbers, so that its neighbourhood is avoided; without others there are none.
func (l *learner) observed(done []Trial) (x [][]float64, scores []Score) {
	var measured []Score
	for _, t := range done {
		if l.goals.Measured(t.Outcome) {
			measured = append(measured, l.goals.Score(t.Outcome))
		}
	}
	if len(measured) == 0 {
		return nil, nil
	}
	worst := scaleOf(measured).low
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
	if g.MinThroughput > 0 {
		least[0] = math.Log(g.MinThroughput)
	}
	return least
}

// meets tells whether a score, which may be predicted, is within the limits.
func (s Score) meets(least Score) bool {
	return s[0] >= least[0] && s[1] >= least[1] && s[2] >= least[2]
}

func column(scores []Score, k int) []float64 {
	y := make([]float64, len(scores))
	for i, s := range scores {
		y[i] = s[k]
	}
	return y
}

// Model predicts the number of a row of columns.
type Model func(x []float64) float64

// Fit learns from rows x, all of the same columns, and their numbers y. There must be at least one.
type Fit func(x [][]float64, y []float64, seed uint64) Model

// folds is into how many parts R2 divides rows.
const folds = 5

// R2 is 1 - sum (y - predicted)^2 / sum (y - mean)^2, where each fifth of the rows is predicted from the others
// (a3gnn Table III). It may be negative. It is NaN where y does not vary or there are fewer than 5 rows.
func R2(fit Fit, x [][]float64, y []float64, seed uint64) float64 {
	if len(y) < folds {
		return math.NaN()
	}
	order := make([]int, len(y))
	for i := range order {
		order[i] = i
	}
	seed = rng.Derive(seed, "folds")
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(rng.Hash(seed, uint64(a)), rng.Hash(seed, uint64(b)))
	})
	predicted := make([]float64, len(y))
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
				predicted[i] = model(x[i])
			}
		}
	}
	if slices.Min(y) == slices.Max(y) {
		return math.NaN()
	}
	return stat.RSquaredFrom(predicted, y, nil)
}

// Regression is a named way to predict figures of trials.
type Regression struct {
	Name string
	Fit  Fit
}

// Fitted is how well a figure of trials is predicted from their settings.
type Fitted struct {
	Figure     string   `json:"figure"` // throughput, memory or the metric
	Regression string   `json:"regression"`
	R2         *float64 `json:"r2"` // nil where it has none
}

// Fit says how well regressions predict throughput, memory and metric of the measured trials, if there are any.
func (s *Space) Fit(g Goals, trials []Trial, seed uint64, ways ...Regression) (fitted []Fitted) {
	var measured []Settings
	var throughput, memory, valid []float64
	metric := ""
	for _, t := range trials {
		if g.Measured(t.Outcome) {
			measured, metric = append(measured, t.Settings), t.Metric
			throughput = append(throughput, g.Throughput(t.Outcome))
			memory = append(memory, float64(g.Memory(t.Outcome)))
			valid = append(valid, *t.Valid)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	x := s.encode(measured)
	for _, figure := range []struct {
		name   string
		values []float64
	}{{"throughput", throughput}, {"memory", memory}, {metric, valid}} {
		for _, way := range ways {
			fit := way.Fit
			if figure.name != metric { // above zero
				fit = logarithmic(fit)
			}
			f := Fitted{Figure: figure.name, Regression: way.Name}
			if r2 := R2(fit, x, figure.values, seed); !math.IsNaN(r2) {
				f.R2 = &r2
			}
			fitted = append(fitted, f)
		}
	}
	return fitted
}

func logarithmic(fit Fit) Fit {
	return func(x [][]float64, y []float64, seed uint64) Model {
		logs := make([]float64, len(y))
		for i, v := range y {
			logs[i] = math.Log(v)
		}
		m := fit(x, logs, seed)
		return func(x []float64) float64 { return math.Exp(m(x)) }
	}
}
