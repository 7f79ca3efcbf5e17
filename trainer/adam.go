package trainer

import "github.com/hopfeed/hopfeed/gds"

// adam is the optimizer of Kingma and Ba 2015, Algorithm 1. Its weight decay is L2: it is added to
// the gradient.
var adam = optimizer{moments: 2, step: adamStep}

func adamStep(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
	s.Adam(value, grad, moments[0], moments[1], gds.AdamOptions{
		LearningRate: float32(o.learningRate), Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8,
		WeightDecay: float32(o.weightDecay), Step: o.number,
	})
}

// adamW is Adam with decoupled weight decay (Loshchilov and Hutter 2019, Algorithm 2): values are
// multiplied by 1 - rate * decay before the step, which then has none.
var adamW = optimizer{
	moments: 2,
	step: func(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
		if o.weightDecay > 0 {
			s.Axpy(float32(-o.learningRate*o.weightDecay), value, value)
		}
		o.weightDecay = 0
		adamStep(s, o, value, grad, moments)
	},
}
