package trainer

import "github.com/hopfeed/hopfeed/internal/dtype"

// confusion counts, for each class or label, how many rows have it, how many are predicted to, and
// how many both. The F1 score of a class is 2 both / (had + predicted), which is the harmonic mean of
// precision and recall. Macro F1 is the mean over classes that occur in either; of several labels a
// row, over all labels, with 0 for those that do not occur. Micro F1 is the score of the sums over
// classes; where each row has one class, that is the accuracy. These are the definitions of
// scikit-learn. A label is predicted if its logit is above 0, its probability above a half.
type confusion struct {
	macro                bool
	target               Target
	had, predicted, both []int64
	rows                 int64 // with a label
}

func newConfusion(macro bool) func(Spec) rowTally {
	return func(s Spec) rowTally {
		return &confusion{macro, s.Target, make([]int64, s.Classes), make([]int64, s.Classes), make([]int64, s.Classes), 0}
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
	for i, row := 0, dtype.As[int8](labels); i < len(row); i += cols {
		labelled := false
		for j, label := range row[i : i+cols] {
			if label < 0 {
				continue
			}
			labelled = true
			c.had[j] += int64(label)
			if out[i+j] > 0 {
				c.predicted[j]++
				c.both[j] += int64(label)
			}
		}
		if labelled {
			c.rows++
		}
	}
}

func (c *confusion) add(other tally) tally {
	o := other.(*confusion)
	sum := func(a, b []int64) []int64 {
		total := make([]int64, len(a))
		for i := range total {
			total[i] = a[i] + b[i]
		}
		return total
	}
	return &confusion{c.macro, c.target, sum(c.had, o.had), sum(c.predicted, o.predicted), sum(c.both, o.both), c.rows + o.rows}
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
