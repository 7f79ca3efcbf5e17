package trainer

import "github.com/hopfeed/hopfeed/gds"

// optimizers are the ways to make a step. To add one, write it in a file of its own, and add
// it here.
var optimizers = map[string]optimizer{"adam": adam}

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
}

// adam is the optimizer of Kingma and Ba 2015, Algorithm 1. Its weight decay is L2: it is added to
// the gradient.
var adam = optimizer{
	moments: 2,
	step: func(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
		s.Adam(value, grad, moments[0], moments[1], gds.AdamOptions{
			LearningRate: float32(o.learningRate), Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8,
			WeightDecay: float32(o.weightDecay), Step: o.number,
		})
	},
}
