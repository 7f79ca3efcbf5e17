package tune

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// world is a space of 400 points whose throughput, memory and accuracy are smooth functions of its settings.
func world(t *testing.T) (*Points, func(Settings) Outcome) {
	values := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(i+1))
		}
		return all
	}
	p := list(t, Space{Base: Settings{"model": "sage"}, Dimensions: []Dimension{
		{"batch", values(10), 4}, {"fanout", values(8), 3}, {"sampler",
			[]string{"labor", "neighbor", "locality", "ladies", "full"}, 1},
	}})
	return p, func(s Settings) Outcome {
		var batch, fanout float64
		fmt.Sscan(s["batch"], &batch)
		fmt.Sscan(s["fanout"], &fanout)
		sampler := float64(slices.Index(p.Dimensions[2].Values, s["sampler"]))
		valid := 0.9 - 0.002*batch*batch + 0.05*math.Log(fanout) - 0.01*sampler
		return outcome(1000*batch/(1+fanout)*(1+0.1*sampler), int64(1e6*(1+batch*math.Sqrt(fanout))), valid)
	}
}

// explore runs a search of so many trials.
func explore(t *testing.T, search Proposer, runs int, f func(Settings) Outcome) []Trial {
	t.Helper()
	done, err := Run(t.Context(), First(runs, search), nil,
		func(_ context.Context, _ int, s Settings) (Outcome, error) {
			return f(s),
				nil
		}, func([]Trial) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestSearchesProposeWhatTheTrialsDetermineAndNothingTwice(t *testing.T) {
	p := caches(t)
	f := func(s Settings) Outcome {
		if s["bias"] == "8" {
			return Outcome{Failed: "so it is"}
		}
		return outcome(float64(len(s["cache"])+1), int64(10+len(s["fanout"])), float64(len(s))/10)
	}
	for _, name := range Searches() {
		search, err := NewSearch(name, p, Goals{DeviceMemory: true}, 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := explore(t, search, 100, f)
		if len(done) != p.Len() {
			t.Errorf("%s: %d trials of %d points", name, len(done), p.Len())
		}
		for i, trial := range done {
			again, _ := NewSearch(name, p, Goals{DeviceMemory: true}, 3, nil)
			if s := again(done[:i]); !reflect.DeepEqual(s, trial.Settings) {
				t.Errorf("%s: trial %d is of %v, and a search that goes on there proposes %v", name, i+1,
					trial.Settings, s)
			}
			if p.Find(trial.Settings) < 0 || slices.ContainsFunc(done[:i],
				func(b Trial) bool { return reflect.DeepEqual(b.Settings, trial.Settings) }) {
				t.Errorf("%s: trial %d is of %v", name, i+1, trial.Settings)
			}
		}
		// Where all trials fail, there is nothing to learn from.
		if failing := explore(t, search, 100,
			func(Settings) Outcome { return Outcome{Failed: "so it is"} }); len(failing) != p.Len() {
			t.Errorf("%s: %d trials of %d points where all fail", name, len(failing), p.Len())
		}
	}
	if _, err := NewSearch("magic", p, Goals{}, 1, nil); err == nil {
		t.Error("there is a search magic")
	}
}

// With a tenth of the runs, a search that learns must be nearer to the front than chance, on the mean of some seeds.
func TestSearchesThatLearnFindMoreThanChance(t *testing.T) {
	p, f := world(t)
	var table []Trial
	for i := range p.Len() {
		table = append(table, Trial{i + 1, p.Settings(i), f(p.Settings(i))})
	}
	least := 0.85
	for _, g := range []Goals{{DeviceMemory: true}, {DeviceMemory: true, MaxMemory: 8e6, MinValid: &least}} {
		front := g.Front(table)
		volume := g.VolumeOn(front)
		shares := map[string]float64{}
		for name, seeds := range map[string]uint64{"random": 4, "gaussian": 1, "ppo": 1} {
			for seed := range seeds {
				search, err := NewSearch(name, p, g, seed, nil)
				if err != nil {
					t.Fatal(err)
				}
				shares[name] += volume(g.Front(explore(t, search, p.Len()/10, f))) / volume(front) / float64(seeds)
			}
		}
		t.Logf("limits %v: %v", g.limits(), shares)
		for _, name := range []string{"gaussian", "ppo"} {
			if shares[name] <= shares["random"] {
				t.Errorf("%s has %.3f of the hypervolume, chance %.3f", name, shares[name], shares["random"])
			}
		}
		if shares["gaussian"] < 0.95 {
			t.Errorf("gaussian has %.3f of the hypervolume", shares["gaussian"])
		}
	}
}

func TestFitSaysHowWellProcessesPredict(t *testing.T) {
	p, f := world(t)
	search, _ := NewSearch("random", p, Goals{}, 1, nil)
	trials := append(explore(t, search, 60, f), Trial{61, p.Settings(0), Outcome{Failed: "so it is"}})
	g := Goals{DeviceMemory: true}
	fitted := p.Fit(g, trials, 1, Gaussian)
	if len(fitted) != 3 || fitted[0].Figure != "throughput" || fitted[1].Figure != "memory" ||
		fitted[2].Figure != "accuracy" {
		t.Fatalf("%+v", fitted)
	}
	for _, f := range fitted {
		if f.R2 == nil || *f.R2 < 0.95 || f.Regression != "gaussian" {
			t.Errorf("%s by %s: %v", f.Figure, f.Regression, f.R2)
		}
	}
	if got := p.Fit(g, trials[60:], 1, Gaussian); got != nil {
		t.Errorf("of a trial that failed: %+v", got)
	}
}

// The gradient of the loss against central differences, with ratios inside and outside of the clip.
func TestThePolicyGradientIsThatOfTheLoss(t *testing.T) {
	p := newPolicy(2, 3, 7)
	layers := map[string]*layer{"hidden layer of the actor": p.actor.hidden, "output of the actor": p.actor.output,
		"hidden layer of the critic": p.critic.hidden, "output of the critic": p.critic.output}
	for name, l := range layers { // away from all actions being as likely
		for i := range l.weights {
			l.weights[i] += 0.3 * rng.Normal(uint64(len(name)), uint64(i))
		}
	}
	var seen []*moment
	for i := range uint64(12) {
		m := &moment{state: []float64{rng.Normal(3, 3*i), rng.Normal(3, 3*i+1), rng.Normal(3, 3*i+2)},
			actions: []int{int(i % 3), int(i / 3 % 3)}}
		m.likely = likelihood(softmax(p.actor.forward(m.state)), m.actions) + 0.4*rng.Normal(4, i)
		m.advantage, m.target = rng.Normal(5, i), rng.Normal(6, i)
		seen = append(seen, m)
	}
	p.gradients(seen)
	loss := func() float64 { // leaves the gradients as they are
		before := map[string][]float64{}
		for name, l := range layers {
			before[name] = slices.Clone(l.gradient)
		}
		v := p.gradients(seen)
		for name, l := range layers {
			l.gradient = before[name]
		}
		return v
	}
	for name, n := range layers {
		for i := range n.weights {
			const h = 1e-6
			w := n.weights[i]
			n.weights[i] = w + h
			up := loss()
			n.weights[i] = w - h
			down := loss()
			n.weights[i] = w
			if want := (up - down) / (2 * h); math.Abs(n.gradient[i]-want) > 1e-6 {
				t.Errorf("%s, weight %d: gradient %v, want %v", name, i, n.gradient[i], want)
			}
		}
	}
}

// A policy that is trained is rewarded more than one that is not, and comes upon the best point of a space in which
// the predictions are exact.
func TestThePolicyLearnsToClimb(t *testing.T) {
	p, f := world(t)
	var all []Trial
	var settings []Settings
	for i := range p.Len() {
		settings = append(settings, p.Settings(i))
		all = append(all, Trial{i + 1, settings[i], f(settings[i])})
	}
	l := &learner{Points: p, goals: Goals{DeviceMemory: true}, seed: 1, x: p.encode(settings)}
	e := newExploration(l, all[:30])
	_, scores := l.observed(all)
	e.scale, e.weights = scaleOf(scores), Score{0.6, 0.1, 0.3}
	best := 0.0
	for i, s := range scores {
		e.known[i], e.free[i] = s, true
		sum := 0.0
		for k, v := range e.scale.unit(s) {
			sum += e.weights[k] * v
		}
		best = max(best, sum)
	}
	mean := func(pi *policy) (reward float64) { // of the ends of episodes
		for n := range 200 {
			at := e.starts[n%len(e.starts)]
			r := 0.0
			for range ppoSteps {
				at, r = e.step(at, pi.act(softmax(pi.actor.forward(e.state(at)))))
			}
			reward += r / 200
		}
		return reward
	}
	pi := newPolicy(len(p.Dimensions), e.inputs(), 5)
	untrained := mean(newPolicy(len(p.Dimensions), e.inputs(), 5))
	e.best, e.reward = -1, math.Inf(-1)
	pi.train(e)
	if e.reward < best-1e-9 {
		t.Errorf("the best reward is %v, and it found %v", best, e.reward)
	}
	if trained := mean(pi); trained < untrained+0.5*(best-untrained) {
		t.Errorf("rewards of %.3f before training, %.3f after; the best is %.3f", untrained, trained, best)
	}
}
