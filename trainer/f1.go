package trainer

import "github.com/hopfeed/hopfeed/internal/dtype"

// confusion counts, for each class or label, the rows that have it, the rows predicted to have it, and the rows of both
// kinds. The F1 score of a class is 2 both / (had + predicted), the harmonic mean of precision and recall. Macro F1 is
// the mean over classes that any row has or is predicted to have; with several labels a row it is the mean over all
// labels, where a label that does not occur counts as 0. Micro F1 is the score of the sums over classes; where each row
// has one class, that is the accuracy. These are the definitions of scikit-learn. A label is predicted if its logit is
// above 0.
type confusion struct {
	macro                bool
	target               Target
	had, predicted, both []int64
	rows                 int64 // with a label
}

func newConfusion(macro bool) func(Spec) rowTally {
	return func(s Spec) rowTally {
		n := s.Classes
		return &confusion{macro, s.Target, make([]int64, n), make([]int64, n), make([]int64, n), 0}
	}
}

func (c *confusion) count(out []float32, labels []byte, cols int) {
	if c.target == ClassTarget {
		for i, label := range dtype.Int32s(labels) {
			if label < 0 || int(label) >= cols { // the loss refuses it
				continue
			}
			c.rows++
			c.had[label]++
			if p := argmax(out[i*cols : (i+1)*cols]); p >= 0 {
				c.predicted[p]++
				if p == int(label) {
					c.both[p]++
				}
			}
		}
		return
	}
	c.rows += eachLabel(labels, cols, isLabel, func(at, j int, label int8) {
		c.had[j] += int64(label)
		if out[at] > 0 {
			c.predicted[j]++
			c.both[j] += int64(label)
		}
	})
}

func (c *confusion) add(other tally) {
	o := other.(*confusion)
	c.rows += o.rows
	for j := range c.had {
		c.had[j] += o.had[j]
		c.predicted[j] += o.predicted[j]
		c.both[j] += o.both[j]
	}
}

func (c *confusion) score() Score {
	if c.rows == 0 {
		return Score{}
	}
	var both, either, classes int64
	mean := 0.0
	for j, n := range c.both {
		total := c.had[j] + c.predicted[j]
		both, either = both+2*n, either+total
		if total > 0 || c.target == LabelsTarget {
			classes++
			mean += 2 * float64(n) / float64(max(total, 1))
		}
	}
	value := float64(both) / float64(max(either, 1))
	if c.macro {
		value = mean / float64(classes)
	}
	return Score{&value, c.rows}
}
