package trainer

import (
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

// optimizers are the ways to make a step. To add one, add it here.
var optimizers = map[string]optimizer{"adam": {2, adam}, "adamw": {2, adamW}, "sgd": {1, sgd}}

const defaultOptimizer = "adam"

// optimizer changes parameters by their gradients.
type optimizer struct {
	moments int // vectors as long as the parameters that it keeps from step to step, zero at first
	// step enqueues a step for a parameter: value, gradient and moments are [1,n].
	step func(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor)
}

// stepOptions are the settings of a step.
type stepOptions struct {
	number       int     // 1 for the first
	learningRate float64 // by the schedule
	weightDecay  float64 // 0 for parameters that do not decay
	clip         float64 // largest norm of the gradient of all parameters that are learnt; 0: any
}

// adam is the optimizer of Kingma and Ba 2015, Algorithm 1. Its weight decay is L2: it is added to the gradient.
func adam(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
	s.Adam(value, grad, moments[0], moments[1], gds.AdamOptions{
		LearningRate: float32(o.learningRate), Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8,
		WeightDecay: float32(o.weightDecay), Step: o.number,
	})
}

// adamW is Adam with decoupled weight decay (Loshchilov and Hutter 2019, Algorithm 2): values are
// multiplied by 1 - rate * decay before the step, which then has none.
func adamW(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
	if o.weightDecay > 0 {
		s.Axpy(float32(-o.learningRate*o.weightDecay), value, value)
	}
	o.weightDecay = 0
	adam(s, o, value, grad, moments)
}

// sgd is stochastic gradient descent with a momentum of 0.9, as PyTorch defines it: m <- 0.9 m + g,
// value <- value - rate * m. Its weight decay is L2: it is added to the gradient g.
func sgd(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
	const momentum = 0.9
	m := moments[0]
	s.Axpy(momentum-1, m, m)
	s.Axpy(1, grad, m)
	if o.weightDecay > 0 {
		s.Axpy(float32(o.weightDecay), value, m)
	}
	s.Axpy(float32(-o.learningRate), m, value)
}

// schedules are the ways that the learning rate changes while a model is trained.
var schedules = map[string]schedule{"constant": constant, "cosine": cosine, "step": stepwise}

const defaultSchedule = "constant"

// schedule is the factor of the learning rate after passed epochs, a fraction, of epochs in all. It is called for every
// step.
type schedule func(passed float64, epochs int) float64

func constant(float64, int) float64 { return 1 }

// cosine goes down to zero along half a period of a cosine (Loshchilov and Hutter 2017, without restarts).
func cosine(passed float64, epochs int) float64 {
	return (1 + math.Cos(math.Pi*passed/float64(epochs))) / 2
}

// stepwise goes down to a tenth after half of the epochs, and to a hundredth after three quarters.
func stepwise(passed float64, epochs int) float64 {
	switch part := passed / float64(epochs); {
	case part < 0.5:
		return 1
	case part < 0.75:
		return 0.1
	}
	return 0.01
}

// warmUp is another factor of the learning rate. It grows over the given number of epochs: linearly, from 1 / (epochs +
// 1) to 1 (after Goyal et al. 2017, section 2.2).
func warmUp(passed, epochs float64) float64 { return min(1, (1+passed)/(1+epochs)) }
