package trainer

import "github.com/hopfeed/hopfeed/gds"

// losses are what training can minimise. To add one, write it in a file of its own, and add
// it here.
var losses = map[string]loss{"cross-entropy": {crossEntropy, ClassOutputs}}

const defaultLoss = "cross-entropy"

// loss is what training minimises.
type loss struct {
	// add enqueues work that adds the sum of the losses of rows to sum [1,1] and, unless grad is the
	// zero Tensor, sets grad to scale times the gradient of that sum. Out is what the model puts out
	// for these rows, [rows, classes], as grad; labels are those of loader.Batch. Rows without a label
	// add nothing, and have no gradient.
	add func(s gds.Stream, sum, grad, out, labels gds.Tensor, scale float32)
	// outputs is what the loss takes out for.
	outputs Outputs
}

// Outputs says what a trained model tells of a row, and so how Predict converts what it puts out.
type Outputs string

const (
	ClassOutputs Outputs = "class probabilities" // one class a row: softmax; they add up to 1
	LabelOutputs Outputs = "label probabilities" // several labels a row: the logistic function of each
	ValueOutputs Outputs = "values"              // regression: as they are put out
)

// crossEntropy is the negative logarithm of the probability that softmax gives a row's class.
func crossEntropy(s gds.Stream, sum, grad, out, labels gds.Tensor, scale float32) {
	s.SoftmaxCrossEntropy(sum, grad, out, labels, gds.Tensor{}, scale)
}
