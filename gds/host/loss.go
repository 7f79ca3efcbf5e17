package host

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// lossRows is how many rows' losses are added up before sums are added.
const lossRows = 64

// addLosses adds to the first tensor of the operation the losses of all rows, which body computes of
// rows [lo, hi). The second tensor is the gradient, or none, the third what the model puts out, and the
// fourth the weights of rows, or none: see rowWeight.
func (s *stream) addLosses(body func(s *stream, p part) (loss float64, err error)) error {
	rows := s.views.floats[2].rows
	losses := room(&s.scratch.losses, (rows+lossRows-1)/lossRows)
	s.views.lossBody = body
	err := s.loop(rows, lossRows, func(s *stream, p part) (err error) {
		s.scratch.losses[p.lo/lossRows], err = s.views.lossBody(s, p)
		return err
	})
	if err != nil {
		return err
	}
	sum := 0.0
	for _, part := range losses {
		sum += part
	}
	s.views.floats[0].data[0] += float32(sum)
	return nil
}

// rowWeight is the factor of the loss of row i.
func (s *stream) rowWeight(i int) float64 {
	if w := s.views.floats[3].data; len(w) > 0 {
		return float64(w[i])
	}
	return 1
}

func (s *stream) softmaxCrossEntropy() error {
	room(&s.scratch.powers, s.device.options.Threads*s.views.floats[2].cols)
	return s.addLosses(softmaxLosses)
}

func softmaxLosses(s *stream, p part) (loss float64, err error) {
	grad, logits, weights := s.views.floats[1], s.views.floats[2], s.views.floats[5].data
	withGrad, labels := s.call.Tensors[1] != gds.Tensor{}, vector[int32](s, 4)
	powers := s.scratch.powers[p.thread*logits.cols:][:logits.cols]
	for i := p.lo; i < p.hi; i++ {
		label := labels[i]
		if int(label) >= logits.cols {
			return 0, fmt.Errorf("row %d has label %d, of %d classes", i, label, logits.cols)
		}
		out := grad.all(i)
		if label < 0 {
			clear(out)
			continue
		}
		row := logits.all(i)
		largest := kernel.Max(row)
		sum := kernel.Exp(powers, row, largest)
		weight := s.rowWeight(i)
		if weights != nil {
			weight *= float64(weights[label])
		}
		loss += float64(weight * (math.Log(float64(sum)) + (float64(largest) - float64(row[label]))))
		if !withGrad {
			continue
		}
		powers[label] -= sum // softmax - 1, times sum
		kernel.Scale(out, float32(weight*float64(s.call.Alpha)/float64(sum)), powers)
	}
	return loss, nil
}

func (s *stream) sigmoidCrossEntropy() error {
	room(&s.scratch.powers, s.device.options.Threads*s.views.floats[2].cols)
	return s.addLosses(func(s *stream, p part) (loss float64, err error) {
		grad, logits, labels := s.views.floats[1], s.views.floats[2], s.views.bytes[4]
		powers := s.scratch.powers[p.thread*logits.cols:][:logits.cols]
		for i := p.lo; i < p.hi; i++ {
			weight := s.rowWeight(i)
			by := float64(weight*float64(s.call.Alpha)) / float64(logits.cols)
			out, labels, row := grad.all(i), dtype.As[int8](labels.all(i)), logits.all(i)
			for j, logit := range row {
				powers[j] = math.Float32frombits(math.Float32bits(logit) | 1<<31) // its magnitude, negated
			}
			kernel.Exp(powers, powers, 0) // at most one
			for j, logit := range row {
				z, label, g := float64(logit), float64(labels[j]), 0.0
				if label > 1 {
					return 0, fmt.Errorf("row %d has label %v, not 0 or 1, at place %d", i, label, j)
				}
				if label >= 0 {
					power := float64(powers[j])
					loss += float64(weight * (max(z, 0) - z*label + math.Log1p(power)))
					g = 1 / (1 + power)
					if z < 0 {
						g *= power
					}
					g = by * (g - label)
				}
				if out != nil {
					out[j] = float32(g)
				}
			}
		}
		return loss / float64(max(logits.cols, 1)), nil
	})
}

func (s *stream) squaredError() error {
	return s.addErrors(func(e float64) (loss, slope float64) { return e * e, 2 * e })
}

func (s *stream) absoluteError() error {
	return s.addErrors(func(e float64) (loss, slope float64) {
		switch {
		case e > 0:
			return e, 1
		case e < 0:
			return -e, -1
		}
		return e, 0 // zero, or not a number
	})
}

// addErrors adds losses that depend on the error of each value.
func (s *stream) addErrors(of func(e float64) (loss, slope float64)) error {
	s.views.errorLoss = of
	return s.addLosses(func(s *stream, p part) (loss float64, err error) {
		v := &s.views.floats
		units := v[5].data
		for i := p.lo; i < p.hi; i++ {
			weight := s.rowWeight(i)
			by := float64(weight*float64(s.call.Alpha)) / float64(len(units))
			grad, labels := v[1].all(i), v[4].all(i)
			for j, value := range v[2].all(i) {
				l, slope := 0.0, 0.0
				unit := float64(units[j])
				if label := labels[j]; label == label {
					l, slope = s.views.errorLoss((float64(value) - float64(label)) / unit)
				}
				loss += float64(weight * l)
				if grad != nil {
					grad[j] = float32(by * slope / unit)
				}
			}
		}
		return loss / float64(max(len(units), 1)), nil
	})
}

func (s *stream) countCorrect() error {
	return s.loop(s.views.floats[1].rows, lossRows, func(s *stream, p part) error {
		logits, labels, counts := s.views.floats[1], vector[int32](s, 2), vector[int64](s, 0)
		var correct, labelled int64
		for i := p.lo; i < p.hi; i++ {
			if labels[i] < 0 {
				continue
			}
			labelled++
			if kernel.ArgMax(logits.all(i)) == int(labels[i]) {
				correct++
			}
		}
		atomic.AddInt64(&counts[0], correct)
		atomic.AddInt64(&counts[1], labelled)
		return nil
	})
}
