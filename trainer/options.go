package trainer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Options govern a run of training.
type Options struct {
	Epochs       int     `json:"epochs"`
	LearningRate float64 `json:"learning_rate"`
	WeightDecay  float64 `json:"weight_decay"` // L2, added to the gradient of all but biases
	Seed         uint64  `json:"seed"`         // of initial values and dropout; the order of rows is the Epocher's
	EvalEvery    int     `json:"eval_every"`   // epochs between validations; 0: 1. The last epoch is always validated
	Patience     int     `json:"patience"`     // stop after so many epochs without a better validation; 0: never

	Optimizer string `json:"optimizer"` // "": adam
	Schedule  string `json:"schedule"`  // of the learning rate; "": constant
	Loss      string `json:"loss"`      // "": cross-entropy
	Metric    string `json:"metric"`    // that epochs are selected by; "": accuracy

	// ProfileFrom is the first epoch that has Epoch.StepSeconds, as all later ones; 0: none.
	ProfileFrom int `json:"-"`
}

// validate checks the options, and fills in defaults.
func (o Options) validate() (Options, error) {
	o.EvalEvery = cmp.Or(o.EvalEvery, 1)
	o.Optimizer, o.Schedule = cmp.Or(o.Optimizer, defaultOptimizer), cmp.Or(o.Schedule, defaultSchedule)
	o.Loss, o.Metric = cmp.Or(o.Loss, defaultLoss), cmp.Or(o.Metric, defaultMetric)
	switch {
	case o.Epochs < 1:
		return o, fmt.Errorf("%d epochs: must be at least 1", o.Epochs)
	case !(o.LearningRate > 0) || math.IsInf(o.LearningRate, 0):
		return o, fmt.Errorf("learning rate %v: must be above 0", o.LearningRate)
	case !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0):
		return o, fmt.Errorf("weight decay %v: must not be negative", o.WeightDecay)
	case o.EvalEvery < 0 || o.Patience < 0:
		return o, fmt.Errorf("validation every %d epochs with patience %d: must not be negative", o.EvalEvery, o.Patience)
	}
	return o, nil
}

// task is what the options choose for networks.
func (o Options) task(train bool) (t task, err error) {
	t.train = train
	if t.loss, err = choose("loss", cmp.Or(o.Loss, defaultLoss), losses); err != nil {
		return t, err
	}
	if t.metric, err = choose("metric", cmp.Or(o.Metric, defaultMetric), metrics); err != nil {
		return t, err
	}
	t.optimizer, err = choose("optimizer", cmp.Or(o.Optimizer, defaultOptimizer), optimizers)
	return t, err
}

// choose finds what has a name.
func choose[T any](what, name string, from map[string]T) (T, error) {
	v, ok := from[name]
	if !ok {
		return v, fmt.Errorf("there is no %s %q: there is %s", what, name, strings.Join(slices.Sorted(maps.Keys(from)), ", "))
	}
	return v, nil
}
