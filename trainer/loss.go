package trainer

import "github.com/hopfeed/hopfeed/gds"

// losses are what training can minimise. To add one, write it in a file of its own, and add
// it here.
var losses = map[string]loss{"cross-entropy": crossEntropy}

const defaultLoss = "cross-entropy"

// loss enqueues work that adds the sum of the losses of rows to sum [1,1] and, unless grad is the
// zero Tensor, sets grad to scale times the gradient of that sum. Out is what the model puts out for
// these rows, [rows, classes], as grad; labels are those of loader.Batch. Rows without a label add
// nothing, and have no gradient.
type loss func(s gds.Stream, sum, grad, out, labels gds.Tensor, scale float32)

// crossEntropy is the negative logarithm of the probability that softmax gives a row's class.
func crossEntropy(s gds.Stream, sum, grad, out, labels gds.Tensor, scale float32) {
	s.SoftmaxCrossEntropy(sum, grad, out, labels, gds.Tensor{}, scale)
}
