package host

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
)

// lossRows is how many rows' losses are added up before sums are added.
const lossRows = 64

// logitsAndLabels are the views that the loss and the metric share.
func (d *Device) logitsAndLabels(logits, labels gds.Tensor) (matrix[float32], matrix[int32], error) {
	x, err := view[float32](d, logits, gds.Float32)
	if err != nil {
		return x, matrix[int32]{}, err
	}
	y, err := view[int32](d, labels, gds.Int32)
	if err == nil && !isVector(labels, logits.Rows) {
		err = errShape
	}
	return x, y, err
}

func (s *stream) SoftmaxCrossEntropy(loss, grad, logits, labels gds.Tensor, scale float32) {
	s.enqueue("SoftmaxCrossEntropy", func() error {
		d := s.device
		x, y, err := d.logitsAndLabels(logits, labels)
		if err != nil {
			return err
		}
		v, err := d.floats(loss, grad)
		if err != nil {
			return err
		}
		total, g := v[0], v[1]
		withGrad := grad != gds.Tensor{}
		if loss.Rows != 1 || loss.Cols != 1 || withGrad && (g.rows != x.rows || g.cols != x.cols) {
			return errShape
		}
		sums := make([]float64, (x.rows+lossRows-1)/lossRows)
		err = d.blocks(x.rows, lossRows, func(lo, hi int) error {
			powers := make([]float64, x.cols)
			for i := lo; i < hi; i++ {
				label := y.data[i]
				if int(label) >= x.cols {
					return fmt.Errorf("row %d has label %d, of %d classes", i, label, x.cols)
				}
				out := g.row(i, 0, g.cols)
				if label < 0 {
					clear(out)
					continue
				}
				row := x.row(i, 0, x.cols)
				largest := row[0]
				for _, value := range row {
					if value > largest {
						largest = value
					}
				}
				sum := 0.0
				for j, value := range row {
					powers[j] = math.Exp(float64(value) - float64(largest))
					sum += powers[j]
				}
				sums[lo/lossRows] += math.Log(sum) + (float64(largest) - float64(row[label]))
				if !withGrad {
					continue
				}
				powers[label] -= sum // softmax - 1, times sum
				by := float64(scale) / sum
				for j := range out {
					out[j] = float32(by * powers[j])
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		sum := 0.0
		for _, part := range sums {
			sum += part
		}
		total.data[0] += float32(sum)
		return nil
	}, loss, grad, logits, labels)
}

func (s *stream) CountCorrect(count, logits, labels gds.Tensor) {
	s.enqueue("CountCorrect", func() error {
		d := s.device
		x, y, err := d.logitsAndLabels(logits, labels)
		if err != nil {
			return err
		}
		total, err := view[int64](d, count, gds.Int64)
		if err != nil {
			return err
		}
		if !isVector(count, 2) {
			return errShape
		}
		counts := make([][2]int64, (x.rows+lossRows-1)/lossRows)
		_ = d.blocks(x.rows, lossRows, func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				label := int(y.data[i])
				if label < 0 {
					continue
				}
				counts[lo/lossRows][1]++
				if argmax(x.row(i, 0, x.cols)) == label {
					counts[lo/lossRows][0]++
				}
			}
			return nil
		})
		for _, n := range counts {
			total.data[0] += n[0]
			total.data[1] += n[1]
		}
		return nil
	}, count, logits, labels)
}

// argmax is the index of the first largest element, or -1 if there is none,
// which is so among numbers that are not all numbers.
func argmax(row []float32) int {
	best := -1
	for i, value := range row {
		if value != value {
			return -1
		}
		if best < 0 || value > row[best] {
			best = i
		}
	}
	return best
}
