package tune

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Sizes of the search by proximal policy optimisation.
const (
	ppoHidden    = 32
	ppoEpisodes  = 8  // between two updates
	ppoSteps     = 12 // of an episode
	ppoUpdates   = 12
	ppoPasses    = 4 // over what an update has seen
	ppoClip      = 0.2
	ppoDiscount  = 0.9
	ppoLambda    = 0.95
	ppoEntropy   = 0.01
	ppoRate      = 0.01
	ppoViolation = -1 // reward outside the limits
	ppoMoves     = 3  // of a dimension: to the value before, none, to the next
)

// byPolicy explores what regressions predict, as Algorithm 3 of a3gnn: a policy, which sees a point and the
// scores that are predicted there, moves each dimension by one value or not at all, and is rewarded by the
// weighted sum of scores where it comes to. It proposes the point of the largest reward on the way that was not
// tried. Unless the goals have weights, each trial has its own, drawn uniformly, so that trials spread along the front.
// Each has a policy of its own, so that proposals are a function of the trials.
//
// The paper rewards a point outside the limits with minus infinity; here it is -1, below the 0 to 1 of all others, from
// which one can learn. Predictions are by Gaussian processes, the best of the regressions that tools/bench/papers
// compares.
func byPolicy(l *learner, done []Trial, left []int) int {
	world := newExploration(l, done)
	if world == nil {
		return -1
	}
	seed := rng.Derive(rng.Hash(l.seed, uint64(len(done))), "ppo")
	world.weights = l.goals.weights(seed)
	for _, i := range left {
		world.free[i] = true
	}
	newPolicy(len(l.Dimensions), world.inputs(), rng.Derive(seed, "policy")).train(world)
	return world.best
}

// weights are those of the goals, or drawn uniformly from all that add up to 1.
func (g Goals) weights(seed uint64) (w Score) {
	if g.Weights != nil {
		return *g.Weights
	}
	total := 0.0
	for k := range w {
		w[k] = rng.Exponential(rng.Hash(seed, uint64(k)))
		total += w[k]
	}
	for k := range w {
		w[k] /= total
	}
	return w
}

// exploration is a space with the scores that are predicted in it.
type exploration struct {
	*learner
	models  [3]Model
	scale   scale
	least   Score
	weights Score
	known   map[int]Score // predictions so far
	starts  []int         // points of trials
	free    map[int]bool  // points that may be proposed
	best    int           // the free point with the largest reward so far; -1: none
	reward  float64       // there
}

func newExploration(l *learner, done []Trial) *exploration {
	x, scores := l.observed(done)
	if len(x) == 0 || len(l.Dimensions) == 0 {
		return nil
	}
	e := &exploration{learner: l, scale: scaleOf(scores), least: l.goals.limits(), known: map[int]Score{},
		free: map[int]bool{}, best: -1, reward: math.Inf(-1)}
	for k := range e.models {
		e.models[k] = Gaussian.Fit(x, column(scores, k), l.seed)
	}
	for _, t := range done {
		if i := l.Find(t.Settings); i >= 0 {
			e.starts = append(e.starts, i)
		}
	}
	return e
}

func (e *exploration) inputs() int { return len(e.Dimensions) + 3 }

func (e *exploration) predict(i int) Score {
	s, ok := e.known[i]
	if !ok {
		for k, m := range e.models {
			s[k] = m(e.x[i])
		}
		e.known[i] = s
	}
	return s
}

// state is the policy's view of a point.
func (e *exploration) state(i int) []float64 {
	var s []float64
	for d, v := range e.place(i) {
		s = append(s, float64(v)/float64(max(1, len(e.Dimensions[d].Values)-1)))
	}
	u := e.scale.unit(e.predict(i))
	return append(s, u[:]...)
}

// step moves a point, and is rewarded.
func (e *exploration) step(i int, actions []int) (next int, reward float64) {
	place := slices.Clone(e.place(i))
	for d, a := range actions {
		place[d] = min(max(place[d]+a-1, 0), len(e.Dimensions[d].Values)-1)
	}
	next = e.numberOf(place)
	s := e.predict(next)
	reward = ppoViolation
	if s.meets(e.least) {
		reward = 0
		for k, v := range e.scale.unit(s) {
			reward += e.weights[k] * min(max(v, 0), 1)
		}
	}
	if e.free[next] && reward > e.reward {
		e.best, e.reward = next, reward
	}
	return next, reward
}

type policy struct {
	dimensions    int
	actor, critic *network
	seed, at      uint64 // of random numbers
}

func newPolicy(dimensions, inputs int, seed uint64) *policy {
	return &policy{
		dimensions: dimensions, seed: rng.Derive(seed, "actions"),
		actor:  newNetwork(inputs, ppoHidden, dimensions*ppoMoves, rng.Derive(seed, "actor")),
		critic: newNetwork(inputs, ppoHidden, 1, rng.Derive(seed, "critic")),
	}
}

func (p *policy) uniform() float64 {
	p.at++
	return rng.Float64(rng.Hash(p.seed, p.at))
}

func (p *policy) act(odds []float64) []int {
	actions := make([]int, p.dimensions)
	for d := range actions {
		u := p.uniform() - odds[d*ppoMoves]
		for u >= 0 && actions[d] < ppoMoves-1 {
			actions[d]++
			u -= odds[d*ppoMoves+actions[d]]
		}
	}
	return actions
}

type moment struct {
	state             []float64
	actions           []int
	likely            float64 // logarithm of the probability of the actions, when they were taken
	reward, value     float64
	advantage, target float64
}

func (p *policy) train(e *exploration) {
	for range ppoUpdates {
		var seen []*moment
		for range ppoEpisodes {
			at := e.starts[int(p.uniform()*float64(len(e.starts)))]
			var episode []*moment
			for range ppoSteps {
				m := &moment{state: e.state(at)}
				m.value = p.critic.forward(m.state)[0]
				odds := softmax(p.actor.forward(m.state))
				m.actions = p.act(odds)
				m.likely = likelihood(odds, m.actions)
				at, m.reward = e.step(at, m.actions)
				episode = append(episode, m)
			}
			// Generalised advantages (Schulman et al. 2016); an episode is cut off, not over.
			next, sum := p.critic.forward(e.state(at))[0], 0.0
			for _, m := range slices.Backward(episode) {
				sum = m.reward + ppoDiscount*next - m.value + ppoDiscount*ppoLambda*sum
				m.advantage, m.target, next = sum, sum+m.value, m.value
			}
			seen = append(seen, episode...)
		}
		normalize(seen)
		for range ppoPasses {
			p.gradients(seen)
			p.actor.step(ppoRate)
			p.critic.step(ppoRate)
		}
	}
}

// normalize brings advantages to mean 0 and deviation 1.
func normalize(seen []*moment) {
	var all []float64
	for _, m := range seen {
		all = append(all, m.advantage)
	}
	mean, std := stat.PopMeanStdDev(all, nil)
	for _, m := range seen {
		m.advantage = (m.advantage - mean) / (std + 1e-8)
	}
}

// gradients adds up the gradients of the loss of what was seen, which is returned: minus the clipped objective
// of PPO (Schulman et al. 2017, Equation 7), minus the entropy, and the squared error of the values.
func (p *policy) gradients(seen []*moment) (loss float64) {
	share := 1 / float64(len(seen))
	for _, m := range seen {
		odds := softmax(p.actor.forward(m.state))
		ratio := math.Exp(likelihood(odds, m.actions) - m.likely)
		clipped := min(max(ratio, 1-ppoClip), 1+ppoClip)
		objective := min(ratio*m.advantage, clipped*m.advantage)
		loss -= share * objective
		inside := 0.0 // the derivative of the objective by the ratio, times the ratio
		if ratio*m.advantage <= clipped*m.advantage {
			inside = ratio * m.advantage
		}
		by := make([]float64, len(odds))
		for d, a := range m.actions {
			of := odds[d*ppoMoves : (d+1)*ppoMoves]
			entropy := 0.0
			for _, q := range of {
				entropy -= q * math.Log(q)
			}
			loss -= share * ppoEntropy * entropy
			for k, q := range of {
				taken := 0.0
				if k == a {
					taken = 1
				}
				by[d*ppoMoves+k] = share * (-inside*(taken-q) + ppoEntropy*q*(math.Log(q)+entropy))
			}
		}
		p.actor.backward(by)
		d := p.critic.forward(m.state)[0] - m.target
		loss += share * d * d / 2
		p.critic.backward([]float64{share * d})
	}
	return loss
}

// softmax makes probabilities of the moves of each dimension, none of them 0.
func softmax(logits []float64) []float64 {
	odds := make([]float64, len(logits))
	for at := 0; at < len(logits); at += ppoMoves {
		most, sum := slices.Max(logits[at:at+ppoMoves]), 0.0
		for k := at; k < at+ppoMoves; k++ {
			odds[k] = math.Exp(max(logits[k]-most, -30))
			sum += odds[k]
		}
		for k := at; k < at+ppoMoves; k++ {
			odds[k] /= sum
		}
	}
	return odds
}

func likelihood(odds []float64, actions []int) (log float64) {
	for d, a := range actions {
		log += math.Log(odds[d*ppoMoves+a])
	}
	return log
}

// network has one hidden layer of tanh, and is trained by Adam (Kingma and Ba 2015).
type network struct {
	hidden, output *layer
	steps          int
}

func newNetwork(inputs, hidden, outputs int, seed uint64) *network {
	n := &network{hidden: newLayer(inputs, hidden), output: newLayer(hidden, outputs)}
	for i := range n.hidden.weights {
		n.hidden.weights[i] = rng.Normal(seed, uint64(i)) / math.Sqrt(float64(inputs+1))
	}
	for i := range n.output.weights { // small: all actions are about as likely at first
		n.output.weights[i] = 0.01 * rng.Normal(seed, uint64(len(n.hidden.weights)+i))
	}
	return n
}

// forward computes the outputs, which are valid until the next pass.
func (n *network) forward(x []float64) []float64 {
	h := n.hidden.forward(x)
	for i, v := range h {
		h[i] = math.Tanh(v)
	}
	return n.output.forward(h)
}

// backward adds to the gradients what follows from the derivatives by the outputs of the last forward pass.
func (n *network) backward(by []float64) {
	by = n.output.backward(by)
	for i, h := range n.hidden.out {
		by[i] *= 1 - h*h
	}
	n.hidden.backward(by)
}

// step moves the weights against the gradients, which are zero afterwards.
func (n *network) step(rate float64) {
	n.steps++
	one, two := 1-math.Pow(0.9, float64(n.steps)), 1-math.Pow(0.999, float64(n.steps))
	for _, l := range []*layer{n.hidden, n.output} {
		for i, g := range l.gradient {
			l.first[i] = 0.9*l.first[i] + 0.1*g
			l.second[i] = 0.999*l.second[i] + 0.001*g*g
			l.weights[i] -= rate * l.first[i] / one / (math.Sqrt(l.second[i]/two) + 1e-8)
			l.gradient[i] = 0
		}
	}
}

// layer is a matrix [outputs, inputs+1], whose last column is a bias.
type layer struct {
	inputs                           int
	weights, gradient, first, second []float64
	x, out, by                       []float64 // of the last passes; by: derivatives by x
}

func newLayer(inputs, outputs int) *layer {
	zeros := func() []float64 { return make([]float64, outputs*(inputs+1)) }
	return &layer{inputs: inputs, weights: zeros(), gradient: zeros(), first: zeros(), second: zeros(),
		out: make([]float64, outputs), by: make([]float64, inputs)}
}

func (l *layer) forward(x []float64) []float64 {
	l.x = x
	for i := range l.out {
		row := l.weights[i*(l.inputs+1):]
		l.out[i] = row[l.inputs] + floats.Dot(row[:l.inputs], x)
	}
	return l.out
}

func (l *layer) backward(by []float64) []float64 {
	clear(l.by)
	for i, g := range by {
		at := i * (l.inputs + 1)
		row, gradient := l.weights[at:], l.gradient[at:]
		floats.AddScaled(gradient[:l.inputs], g, l.x)
		floats.AddScaled(l.by, g, row[:l.inputs])
		gradient[l.inputs] += g
	}
	return l.by
}
