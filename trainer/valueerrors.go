package trainer

import (
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
)

// errorSum adds up errors of values to a power: for the mean squared error and the mean absolute error,
// over all labelled values, in the units of the labels.
type errorSum struct {
	power        float64
	sum          float64
	values, rows int64 // with a label
}

func newErrorSum(power float64) func(Spec) rowTally {
	return func(Spec) rowTally { return &errorSum{power: power} }
}

func (e *errorSum) count(out []float32, labels []byte, cols int) {
	for i, row := 0, dtype.Float32s(labels); i < len(row); i += cols {
		before := e.values
		for j, label := range row[i : i+cols] {
			if label == label {
				d := math.Abs(float64(out[i+j]) - float64(label))
				if e.power == 2 {
					d = float64(d * d)
				}
				e.sum += d
				e.values++
			}
		}
		if e.values > before {
			e.rows++
		}
	}
}

func (e *errorSum) add(other tally) tally {
	o := other.(*errorSum)
	return &errorSum{e.power, e.sum + o.sum, e.values + o.values, e.rows + o.rows}
}

func (e *errorSum) score() Score {
	if e.values == 0 {
		return Score{}
	}
	value := finite(e.sum / float64(e.values))
	return Score{&value, e.rows}
}
