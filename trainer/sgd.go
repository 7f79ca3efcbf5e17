package trainer

import "github.com/hopfeed/hopfeed/gds"

// momentum is what sgd keeps of its last step.
const momentum = 0.9

// sgd is stochastic gradient descent with momentum, as PyTorch defines it: m <- momentum * m + g,
// value <- value - rate * m. Its weight decay is L2: it is added to the gradient g.
var sgd = optimizer{
	moments: 1,
	step: func(s gds.Stream, o stepOptions, value, grad gds.Tensor, moments []gds.Tensor) {
		m := moments[0]
		s.Axpy(momentum-1, m, m)
		s.Axpy(1, grad, m)
		if o.weightDecay > 0 {
			s.Axpy(float32(o.weightDecay), value, m)
		}
		s.Axpy(float32(-o.learningRate), m, value)
	},
}
