package trainer

import "math"

// errorSum adds up errors to a power: for the mean squared error and the mean absolute error over all labelled values,
// in the units of the labels.
type errorSum struct {
	power        float64
	sum          float64
	values, rows int64 // with a label
}

func newErrorSum(power float64) func(Spec) rowTally {
	return func(Spec) rowTally { return &errorSum{power: power} }
}

func (e *errorSum) count(out []float32, labels []byte, cols int) {
	e.rows += eachLabel(labels, cols, isNumber, func(at, _ int, label float32) {
		d := math.Abs(float64(out[at]) - float64(label))
		if e.power == 2 {
			d = float64(d * d)
		}
		e.sum += d
		e.values++
	})
}

func (e *errorSum) add(other tally) {
	o := other.(*errorSum)
	e.sum, e.values, e.rows = e.sum+o.sum, e.values+o.values, e.rows+o.rows
}

func (e *errorSum) score() Score {
	if e.values == 0 {
		return Score{}
	}
	value := finite(e.sum / float64(e.values))
	return Score{&value, e.rows}
}
