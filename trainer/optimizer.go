package trainer

import "github.com/hopfeed/hopfeed/gds"

// optimizers are the ways to make a step. To add one, write it in a file of its own, and add
// it here.
var optimizers = map[string]optimizer{"adam": adam, "adamw": adamW, "sgd": sgd}

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
