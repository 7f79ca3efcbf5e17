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
	WeightDecay  float64 `json:"weight_decay"` // of all but biases: see the optimizers
	Seed         uint64  `json:"seed"`         // of initial values and dropout
	EvalEvery    int     `json:"eval_every"`   // epochs between validations; 0: 1. The last epoch is always validated
	Patience     int     `json:"patience"`     // epochs without a better validation after which training stops; 0: never

	Optimizer   string  `json:"optimizer"`           // "": adam
	Schedule    string  `json:"schedule"`            // of the learning rate; "": constant
	WarmUp      float64 `json:"warm_up,omitempty"`   // epochs in which the learning rate grows
	ClipNorm    float64 `json:"clip_norm,omitempty"` // largest norm of the gradient; 0: any
	Loss        string  `json:"loss"`                // "": the default
	Metric      string  `json:"metric"`              // that selects epochs; "": the default
	Standardize string  `json:"standardize"`         // the unit of scaling; "": matrix

	// ClassWeights multiply losses of rows by class; null: 1.
	ClassWeights []float64 `json:"class_weights,omitempty"`

	// Queues let gradients wait; null: ranks meet at each batch.
	Queues *Queues `json:"queues,omitempty"`

	// ProfileFrom is the first epoch that has Epoch.StepSeconds, as all later ones; 0: none.
	ProfileFrom int `json:"-"`
}

// Choices lists the names that one of Options can have, for models of a target, the default first. It
// panics if there is no such option.
func Choices(option string, target Target) []string {
	first, names := targets[target].loss, []string(nil)
	switch option {
	case "optimizer":
		first, names = defaultOptimizer, slices.Sorted(maps.Keys(optimizers))
	case "schedule":
		first, names = defaultSchedule, slices.Sorted(maps.Keys(schedules))
	case "standardize":
		first, names = defaultStandardization, slices.Sorted(maps.Keys(standardizations))
	case "loss":
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(losses)),
			func(name string) bool { return losses[name].target != target })
	case "metric":
		first = targets[target].metric
		names = append(slices.DeleteFunc(slices.Sorted(maps.Keys(metrics)),
			func(name string) bool { return !slices.Contains(metrics[name].targets, target) }), lossMetric)
	default:
		panic("trainer: no choice of " + option)
	}
	return append([]string{first}, slices.DeleteFunc(names, func(name string) bool { return name == first })...)
}

// withDefaults fills in defaults. A model as its paper prints it takes features as they are.
func (o Options) withDefaults(s Spec) Options {
	d, standardize := targets[s.Target], defaultStandardization
	if s.Settings.asPrinted() {
		standardize = "none"
	}
	o.EvalEvery = cmp.Or(o.EvalEvery, 1)
	o.Optimizer, o.Schedule = cmp.Or(o.Optimizer, defaultOptimizer), cmp.Or(o.Schedule, defaultSchedule)
	o.Loss, o.Metric = cmp.Or(o.Loss, d.loss), cmp.Or(o.Metric, d.metric)
	o.Standardize = cmp.Or(o.Standardize, standardize)
	return o
}

// Normalized returns the options for a model with defaults filled in. Impossible options are ErrOptions.
func (o Options) Normalized(s Spec) (Options, error) {
	o, _, err := o.validate(s)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return o, err
}

// CheckChoices returns an error unless this version has all that the options name, for a model.
func (o Options) CheckChoices(s Spec) error {
	_, err := o.task(s, true)
	return err
}

// validate checks the options for a model, fills in defaults, and finds what they name.
func (o Options) validate(s Spec) (Options, task, error) {
	o = o.withDefaults(s)
	t, err := o.task(s, true)
	if err != nil {
		return o, t, err
	}
	return o, t, cmp.Or(
		must(len(t.weights) == 0 || float32(slices.Max(t.weights)) > 0,
			"the weights of all %d classes are 0: nothing would be learnt", len(t.weights)),
		must(o.Epochs >= 1, "%d epochs: must be at least 1", o.Epochs),
		must(o.LearningRate > 0 && isFinite(o.LearningRate), "learning rate %v: must be above 0", o.LearningRate),
		notNegative("weight decay", o.WeightDecay),
		notNegative("warm-up", o.WarmUp),
		notNegative("norm to clip at", o.ClipNorm),
		must(o.EvalEvery >= 0 && o.Patience >= 0, "validation every %d epochs with patience %d: must not be negative",
			o.EvalEvery, o.Patience),
		o.Queues.check())
}

// must returns an error unless something holds.
func must(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func notNegative(what string, v float64) error {
	return must(v >= 0 && isFinite(v), "%s %v: must not be negative", what, v)
}

// task is the purpose of a network.
type task struct {
	train       bool // else it is only evaluated
	optimizer   optimizer
	schedule    schedule
	standardize standardization
	loss        loss
	metric      metric
	weights     []float64 // of classes in the loss; nil: ones
}

// task finds what the options name, for a model.
func (o Options) task(s Spec, train bool) (t task, err error) {
	o, t.train, t.weights = o.withDefaults(s), train, o.ClassWeights
	choose(&err, &t.optimizer, "optimizer", o.Optimizer, optimizers, s.Target)
	choose(&err, &t.schedule, "schedule", o.Schedule, schedules, s.Target)
	choose(&err, &t.standardize, "standardize", o.Standardize, standardizations, s.Target)
	choose(&err, &t.loss, "loss", o.Loss, losses, s.Target)
	choose(&err, &t.metric, "metric", o.Metric, metrics, s.Target)
	if err != nil {
		return t, err
	}
	if o.Metric == lossMetric {
		t.metric = metrics[targets[s.Target].metric]
		t.metric.loss, t.metric.lower = true, true
	}
	err = must(t.weights == nil || s.Target == ClassTarget && len(t.weights) == s.Classes, "%d class weights for %d %s",
		len(t.weights), s.Classes, targets[s.Target].several)
	for class, w := range t.weights {
		err = cmp.Or(err, must(w >= 0 && w <= math.MaxFloat32,
			"weight %v of class %d: must be finite and not negative", w, class))
	}
	return t, err
}

// choose sets to to the entry of a table that one of Options names; or err, unless that is set.
func choose[T any](err *error, to *T, option, name string, from map[string]T, target Target) {
	v, exists := from[name]
	choices := Choices(option, target)
	if *to = v; slices.Contains(choices, name) || *err != nil {
		return
	}
	text := fmt.Sprintf("there is no %s %q", option, name)
	if exists {
		text = fmt.Sprintf("the %s %q is not for %s", option, name, targets[target].several)
	}
	*err = fmt.Errorf("%s: want one of %s", text, strings.Join(choices, ", "))
}
