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

// withDefaults fills in defaults.
func (o Options) withDefaults() Options {
	o.EvalEvery = cmp.Or(o.EvalEvery, 1)
	o.Optimizer, o.Schedule = cmp.Or(o.Optimizer, defaultOptimizer), cmp.Or(o.Schedule, defaultSchedule)
	o.Loss, o.Metric = cmp.Or(o.Loss, defaultLoss), cmp.Or(o.Metric, defaultMetric)
	return o
}

// validate checks the options, and fills in defaults. It also returns what they choose for training.
func (o Options) validate() (Options, task, error) {
	o = o.withDefaults()
	t, err := o.task(true)
	switch {
	case err != nil:
		return o, t, err
	case o.Epochs < 1:
		return o, t, fmt.Errorf("%d epochs: must be at least 1", o.Epochs)
	case !(o.LearningRate > 0) || math.IsInf(o.LearningRate, 0):
		return o, t, fmt.Errorf("learning rate %v: must be above 0", o.LearningRate)
	case !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0):
		return o, t, fmt.Errorf("weight decay %v: must not be negative", o.WeightDecay)
	case o.EvalEvery < 0 || o.Patience < 0:
		return o, t, fmt.Errorf("validation every %d epochs with patience %d: must not be negative", o.EvalEvery, o.Patience)
	}
	return o, t, nil
}

// task is what a network is made for, and how.
type task struct {
	train     bool // else it is only evaluated
	optimizer optimizer
	schedule  schedule
	loss      loss
	metric    metric
}

// task finds what the options choose.
func (o Options) task(train bool) (t task, err error) {
	o, t.train = o.withDefaults(), train
	if t.optimizer, err = choose("optimizer", o.Optimizer, optimizers); err != nil {
		return t, err
	}
	if t.schedule, err = choose("schedule", o.Schedule, schedules); err != nil {
		return t, err
	}
	if t.loss, err = choose("loss", o.Loss, losses); err != nil {
		return t, err
	}
	t.metric, err = choose("metric", o.Metric, metrics)
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
