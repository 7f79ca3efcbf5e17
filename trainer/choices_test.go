package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
)

// add adds a choice for one test.
func add[T any](t *testing.T, to map[string]T, name string, v T) {
	to[name] = v
	t.Cleanup(func() { delete(to, name) })
}

// TestOptimizersAndSchedulesFollowTheirDefinitions trains a bias alone, and computes the same in float64.
// The weights have no gradient, but decay.
func TestOptimizersAndSchedulesFollowTheirDefinitions(t *testing.T) {
	const rows, batch, epochs, rate, decay = 10, 4, 4, 0.5, 0.25
	var passed []float64
	add(t, schedules, "halving", func(p float64, of int) float64 {
		if of != epochs {
			t.Errorf("%d epochs, want %d", of, epochs)
		}
		passed = append(passed, p)
		return math.Pow(0.5, math.Floor(p))
	})
	for _, c := range []struct {
		optimizer, schedule string
		warmUp, clip        float64
		rates               [epochs]float64 // at the first step of each epoch
	}{
		{optimizer: "sgd", schedule: "halving", rates: [epochs]float64{1, 0.5, 0.25, 0.125}},
		{optimizer: "sgd", schedule: "constant", clip: 0.1, rates: [epochs]float64{1, 1, 1, 1}},
		{optimizer: "adam", schedule: "cosine", rates: [epochs]float64{1, 0.5 + math.Sqrt(0.125), 0.5,
			0.5 - math.Sqrt(0.125)}},
		{optimizer: "adam", schedule: "constant", warmUp: 3, clip: 0.2, rates: [epochs]float64{0.25, 0.5, 0.75, 1}},
		{optimizer: "adamw", schedule: "step", rates: [epochs]float64{1, 1, 0.1, 0.01}},
		{optimizer: "adamw", schedule: "constant", clip: 1000, rates: [epochs]float64{1, 1, 1, 1}},
	} {
		t.Run(fmt.Sprintf("%s, %s, warm-up %v, clip %v", c.optimizer, c.schedule, c.warmUp, c.clip),
			func(t *testing.T) {
				dev := openDevice(t, host.Options{})
				data := noise(1, rows, 1, 1, 3)
				clear(data.x[0]) // so that weights have no gradient
				o := Options{Epochs: epochs, LearningRate: rate, WeightDecay: decay, Seed: 2, Optimizer: c.optimizer,
					Schedule: c.schedule, WarmUp: c.warmUp, ClipNorm: c.clip}
				spec := Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 1, Classes: 3}
				r := mustFit(t, dev, spec, Data{Train: data.feed(dev, batch), BatchRows: batch}, o)
				_, declared, err := spec.normalized()
				if err != nil {
					t.Fatal(err)
				}
				values := widen(declared.params.initial(2)) // three weights, three biases
				first, second := make([]float64, 6), make([]float64, 6)
				step := 0.0
				for epoch := range epochs {
					for lo := 0; lo < rows; lo += batch {
						step++
						labels := data.labels[lo:min(lo+batch, rows)]
						grad, powers := make([]float64, 6), 0.0
						for _, v := range values[3:] {
							powers += math.Exp(v)
						}
						norm := 0.0
						for i := 3; i < 6; i++ {
							for _, label := range labels {
								grad[i] += math.Exp(values[i]) / powers / float64(len(labels))
								if int(label) == i-3 {
									grad[i] -= 1 / float64(len(labels))
								}
							}
							norm += grad[i] * grad[i]
						}
						norm = math.Sqrt(norm)
						part := float64(lo) / rows
						rate := rate * c.rates[epoch]
						switch {
						case c.schedule == "cosine":
							rate = rate / c.rates[epoch] * (1 + math.Cos(math.Pi*(float64(epoch)+part)/epochs)) / 2
						case c.warmUp > 0:
							rate = rate / c.rates[epoch] * min(1, (1+float64(epoch)+part)/4)
						}
						for i := range values {
							g, decays := grad[i], 0.0
							if c.clip > 0 && norm > c.clip {
								g *= c.clip / norm
							}
							if i < 3 { // biases do not decay
								decays = decay * values[i]
							}
							if c.optimizer == "sgd" {
								first[i] = 0.9*first[i] + g + decays
								values[i] -= rate * first[i]
								continue
							}
							if c.optimizer == "adamw" {
								values[i] -= rate * decays
							} else {
								g += decays
							}
							first[i], second[i] = 0.9*first[i]+0.1*g, 0.999*second[i]+0.001*g*g
							values[i] -= rate * first[i] / (1 - math.Pow(0.9,
								step)) / (math.Sqrt(second[i]/(1-math.Pow(0.999, step))) + 1e-8)
						}
					}
				}
				for i, v := range r.Parameters {
					if math.Abs(float64(v)-values[i]) > 2e-5 {
						t.Errorf("parameter %d is %v, want %v", i, v, values[i])
					}
				}
			})
	}
	if want := []float64{0, 0.4, 0.8, 1, 1.4, 1.8, 2, 2.4, 2.8, 3, 3.4, 3.8}; !slices.EqualFunc(passed, want,
		func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("asked at %v, want %v", passed, want)
	}
}

// Biases of HOGA that are not learnt have gradients, which do not count.
func TestClippingCountsWhatIsLearnt(t *testing.T) {
	dev := openDevice(t, host.Options{})
	o := Options{Epochs: 1, LearningRate: 0.1, Optimizer: "sgd", ClipNorm: 0.01}
	data := Data{Train: clusters(1, 40, 3, 4, 3, 0).feed(dev, 40), BatchRows: 40}
	f, err := Start(t.Context(), []Rank{{dev, data}}, toyHOGA, o)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Train(t.Context(), nil); err != nil { // one step
		t.Fatal(err)
	}
	n := f.ranks[0]
	clipped, err := n.download(n.params.grad)
	if err != nil {
		t.Fatal(err)
	}
	powers, fixed := 0.0, 0
	for _, q := range n.params.list {
		for i := q.first; i < q.first+q.rows*q.cols; i++ {
			if q.fixed {
				fixed++
			} else {
				powers += float64(clipped[i]) * float64(clipped[i])
			}
		}
	}
	if norm := math.Sqrt(powers); fixed == 0 || math.Abs(norm/o.ClipNorm-1) > 1e-5 {
		t.Errorf("the norm of what is learnt is %v, want %v; %d parameters are not", norm, o.ClipNorm, fixed)
	}
}

// countArea keeps the scores of all rows, as the area under the ROC curve needs it: here of class 0 against the others.
func countArea(t *tally, out []float32, labels []byte) {
	for i, label := range dtype.Int32s(labels) {
		if label >= 0 {
			t.rows++
			has := min(label, 1)
			t.keys[has] = append(t.keys[has], uint64(math.Float32bits(out[i*t.spec.Classes])))
		}
	}
}

func area(t *tally) (float64, bool) {
	above, pairs := 0.0, 0.0
	for _, x := range t.keys[0] {
		for _, y := range t.keys[1] {
			pairs++
			if math.Float32frombits(uint32(x)) > math.Float32frombits(uint32(y)) {
				above++
			}
		}
	}
	return above / pairs, pairs > 0
}

// TestMetricsAreChoices selects and evaluates by a metric that is no sum over rows, on one device and
// several, and compares it with what the parameters give.
func TestMetricsAreChoices(t *testing.T) {
	add(t, metrics, "area", metric{count: countArea, score: area, targets: []Target{ClassTarget}})
	var last float64
	for _, world := range []int{1, 3} {
		train, valid, test := clusters(1, 60, 1, 4, 3, 0.5), clusters(2, 50, 1, 4, 3, 0.4),
			clusters(3, 41, 1, 4, 3, 0.4)
		valid.labels[7] = -1
		spec := Spec{Model: "sgc", Matrices: hops("sym", 0), Features: 4, Classes: 3}
		r := mustFitRanks(t, deal(openDevices(t, world), 20, train, valid, test), spec,
			Options{Epochs: 3, LearningRate: 0.1, Metric: "area"})
		if r.Metric != "area" || r.Selection != "best validation area" {
			t.Errorf("%+v", r)
		}
		areaOf := func(d *toy) float64 {
			a := newTally(spec)
			for i, label := range d.labels {
				score := float64(r.Parameters[12])
				for j, x := range d.x[0][i*4 : (i+1)*4] {
					score += float64(r.Scales[0]) * float64(r.Parameters[j]) * float64(x)
				}
				countArea(a, []float32{float32(score), 0, 0}, dtype.BytesOf([]int32{label}))
			}
			value, _ := area(a)
			return value
		}
		if math.Abs(*r.ValidMetric-areaOf(valid)) > 1e-12 || math.Abs(*r.TestMetric-areaOf(test)) > 1e-12 {
			t.Errorf("%d devices: validation %v, test %v; want %v, %v", world, *r.ValidMetric, *r.TestMetric,
				areaOf(valid), areaOf(test))
		}
		if last = max(last, *r.ValidMetric); last != *r.ValidMetric || last < 0.6 || last == 1 {
			t.Errorf("%d devices: %v", world, last)
		}
		devices := openDevices(t, world)
		sets := func(d *toy) (all []Epocher) {
			for _, rank := range deal(devices, 20, d, nil, nil) {
				all = append(all, rank.Train)
			}
			return all
		}
		e, err := Evaluate(t.Context(), devices, &r.Trained, 20,
			[]NamedRows{{"valid", sets(valid)}, {"test", sets(test)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		both := &toy{features: 4, x: [][]float32{slices.Concat(valid.x[0], test.x[0])},
			labels: slices.Concat(valid.labels, test.labels)}
		if *e.ByName[0].Value != *r.ValidMetric || e.ByName[0].Rows != 49 ||
			math.Abs(*e.Overall.Value-areaOf(both)) > 1e-12 || e.Overall.Rows != 90 {
			t.Errorf("%d devices: evaluated %+v", world, e)
		}
	}
}

// TestLossesAreChoices halves the loss: by definition the loss is half as large, and Adam, to which the
// size of gradients does not matter, finds the same.
func TestLossesAreChoices(t *testing.T) {
	add(t, losses, "half", loss{ClassTarget, func(s gds.Stream, l lossTensors, scale float32) {
		s.Axpy(1, l.sum, l.sum) // doubled, and halved below
		crossEntropy(s, l, scale/2)
		s.Axpy(-0.5, l.sum, l.sum)
	}})
	dev := openDevice(t, host.Options{})
	data := clusters(1, 60, 1, 4, 3, 0.2).feed(dev, 20)
	fit := func(loss string) *Result {
		return mustFit(t, dev, toySGC, Data{Train: data, Valid: data, BatchRows: 20},
			Options{Epochs: 3, LearningRate: 0.1, Loss: loss})
	}
	whole, half := fit(""), fit("half")
	for i, e := range whole.History {
		if h := half.History[i]; math.Abs(e.TrainLoss/h.TrainLoss-2) > 1e-4 ||
			math.Abs(e.ValidLoss/h.ValidLoss-2) > 1e-4 {
			t.Errorf("epoch %d: %+v, and half of that is %+v", i+1, e, h)
		}
	}
}

func TestChoicesThatThereAreNotAreRefused(t *testing.T) {
	dev := openDevice(t, host.Options{})
	data := noise(1, 10, 1, 4, 3).feed(dev, 10)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Optimizer: "luck"}, `there is no optimizer "luck": want one of adam, adamw, sgd`},
		{Options{Schedule: "luck"}, `there is no schedule "luck": want one of constant, cosine, step`},
		{Options{Standardize: "luck"}, `there is no standardize "luck": want one of matrix, column, none`},
		{Options{Loss: "luck"}, `there is no loss "luck": want one of cross-entropy`},
		{Options{Loss: "mse"}, `the loss "mse" is not for classes: want one of cross-entropy`},
		{Options{Metric: "luck"}, `there is no metric "luck": want one of accuracy, macro-f1, micro-f1, roc-auc, loss`},
		{Options{Metric: "mae"}, `the metric "mae" is not for classes: want one of accuracy, macro-f1`},
		{Options{Metric: "roc-auc"},
			`roc-auc is a metric of two classes, or of several labels a row, not of 3 classes`},
		{Options{ClassWeights: []float64{1, 2}}, `2 class weights for 3 classes`},
		{Options{ClassWeights: []float64{1, -2, 1}}, `weight -2 of class 1: must be finite and not negative`},
		{Options{ClassWeights: []float64{0, 1e-60, 0}}, `the weights of all 3 classes are 0: nothing would be learnt`},
		{Options{ClipNorm: -1}, `norm to clip at -1: must not be negative`},
		{Options{WarmUp: math.NaN()}, `warm-up NaN: must not be negative`},
	} {
		c.o.Epochs, c.o.LearningRate = 1, 1
		_, err := Fit(t.Context(), []Rank{{dev, Data{Train: data, BatchRows: 10}}}, toySGC, c.o, nil)
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
