package trainer

import "github.com/hopfeed/hopfeed/gds"

// losses are the losses that training can minimise. To add one, add it here.
var losses = map[string]loss{
	"cross-entropy": {ClassTarget, crossEntropy},
	"bce":           {LabelsTarget, binaryCrossEntropy},
	"mse":           {ValuesTarget, squaredError},
	"mae":           {ValuesTarget, absoluteError},
}

// loss is a loss for models of one target. It adds the sum of the losses of rows to t.sum and, unless t.grad is the
// zero Tensor, sets that to scale times the gradient of the sum. A row without a label adds nothing, and has no
// gradient; the mean over a set of rows is over its labelled rows (see Data.TrainLabelled).
type loss struct {
	target Target
	add    func(s gds.Stream, t lossTensors, scale float32)
}

// lossTensors are the operands of a loss.
type lossTensors struct {
	sum       gds.Tensor // [1,1]
	out, grad gds.Tensor // of the model, [rows, Spec.Classes]
	labels    gds.Tensor // see loader.Batch
	weights   gds.Tensor // of classes, [1, Spec.Classes], or the zero Tensor for ones
	rows      gds.Tensor // weights of rows: see loader.Batch
	units     gds.Tensor // of values, [1, Spec.Classes]: see rescaled
}

// crossEntropy is the negative logarithm of the probability that softmax gives a row's class.
func crossEntropy(s gds.Stream, t lossTensors, scale float32) {
	s.SoftmaxCrossEntropy(t.sum, t.grad, t.out, t.labels, t.weights, t.rows, scale)
}

// binaryCrossEntropy is the mean over labels of the negative logarithm of the probability that the sigmoid gives the
// true value.
func binaryCrossEntropy(s gds.Stream, t lossTensors, scale float32) {
	s.SigmoidCrossEntropy(t.sum, t.grad, t.out, t.labels, t.rows, scale)
}

// squaredError is the mean over values of the squared error, and absoluteError of the absolute error, in
// units of the training labels.
func squaredError(s gds.Stream, t lossTensors, scale float32) {
	s.SquaredError(t.sum, t.grad, t.out, t.labels, t.units, t.rows, scale)
}

func absoluteError(s gds.Stream, t lossTensors, scale float32) {
	s.AbsoluteError(t.sum, t.grad, t.out, t.labels, t.units, t.rows, scale)
}

// BalancedWeights are the class weights by which all classes count the same: the number of labelled rows, divided by
// the number of classes times the number of rows of the class (as in scikit-learn); 0 for classes without rows.
func BalancedWeights(rowsOfClass []int64) []float64 {
	rows, weights := 0.0, make([]float64, len(rowsOfClass))
	for _, n := range rowsOfClass {
		rows += float64(n)
	}
	for class, n := range rowsOfClass {
		if n > 0 {
			weights[class] = rows / (float64(len(rowsOfClass)) * float64(n))
		}
	}
	return weights
}
