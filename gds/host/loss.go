package host

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// lossRows is how many rows' losses are added up before sums are added.
const lossRows = 64

// viewLabels views the labels of n rows, one for each.
func (s *stream) viewLabels(labels gds.Tensor, n int) error {
	y, err := view[int32](s.device, labels, gds.Int32)
	if err == nil && !isVector(labels, n) {
		err = errShape
	}
	s.views.labels = y.data
	return err
}

// addLosses adds to the first tensor of the operation the losses of all rows, which body computes of
// rows [lo, hi). The second tensor is the gradient, or none, the third what the model puts out, and the
// last the weights of rows, or none: see rowWeight.
func (s *stream) addLosses(body func(s *stream, p part) (loss float64, err error)) (err error) {
	loss, grad, out := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	v := &s.views
	for i, t := range s.op.tensors[:3] {
		if v.floats[i], err = view[float32](s.device, t, gds.Float32); err != nil {
			return err
		}
	}
	rows := s.op.tensors[s.op.kind.tensors-1]
	weights, err := view[float32](s.device, rows, gds.Float32)
	if err != nil {
		return err
	}
	if loss.Rows != 1 || loss.Cols != 1 || grad != (gds.Tensor{}) && sameShape(grad, out) != nil ||
		rows != (gds.Tensor{}) && !isVector(rows, out.Rows) {
		return errShape
	}
	v.rowWeights = weights.data
	losses := room(&s.scratch.losses, (out.Rows+lossRows-1)/lossRows)
	s.views.lossBody = body
	err = s.loop(out.Rows, lossRows, func(s *stream, p part) (err error) {
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
	v.floats[0].data[0] += float32(sum)
	return nil
}

// rowWeight is what the loss of row i counts.
func (s *stream) rowWeight(i int) float64 {
	if w := s.views.rowWeights; len(w) > 0 {
		return float64(w[i])
	}
	return 1
}

var softmaxCrossEntropyOp = kind{name: "SoftmaxCrossEntropy", tensors: 6, run: func(s *stream) (err error) {
	logits, labels, weights := s.op.tensors[2], s.op.tensors[3], s.op.tensors[4]
	if err := s.viewLabels(labels, logits.Rows); err != nil {
		return err
	}
	if s.views.floats[4], err = view[float32](s.device, weights, gds.Float32); err != nil {
		return err
	}
	if weights != (gds.Tensor{}) && !isVector(weights, logits.Cols) {
		return errShape
	}
	room(&s.scratch.powers, s.device.options.Threads*logits.Cols)
	return s.addLosses((*stream).softmaxCrossEntropy)
}}

func (s *stream) softmaxCrossEntropy(p part) (loss float64, err error) {
	grad, logits, weights := s.views.floats[1], s.views.floats[2], s.views.floats[4].data
	withGrad := s.op.tensors[1] != gds.Tensor{}
	powers := s.scratch.powers[p.thread*logits.cols:][:logits.cols]
	for i := p.lo; i < p.hi; i++ {
		label := s.views.labels[i]
		if int(label) >= logits.cols {
			return 0, fmt.Errorf("row %d has label %d, of %d classes", i, label, logits.cols)
		}
		out := grad.row(i, 0, grad.cols)
		if label < 0 {
			clear(out)
			continue
		}
		row := logits.row(i, 0, logits.cols)
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
		kernel.Scale(out, float32(weight*float64(s.op.alpha)/float64(sum)), powers)
	}
	return loss, nil
}

func (s *stream) SoftmaxCrossEntropy(loss, grad, logits, labels, weights, rows gds.Tensor, scale float32) {
	s.push(op{kind: &softmaxCrossEntropyOp, tensors: [maxTensors]gds.Tensor{loss, grad, logits, labels, weights, rows},
		alpha: scale})
}

var sigmoidCrossEntropyOp = kind{name: "SigmoidCrossEntropy", tensors: 5, run: func(s *stream) (err error) {
	logits, labels := s.op.tensors[2], s.op.tensors[3]
	if err := sameShape(logits, labels); err != nil {
		return err
	}
	if s.views.multiLabels, err = view[int8](s.device, labels, gds.Int8); err != nil {
		return err
	}
	room(&s.scratch.powers, s.device.options.Threads*logits.Cols)
	return s.addLosses(func(s *stream, p part) (loss float64, err error) {
		grad, logits := s.views.floats[1], s.views.floats[2]
		powers := s.scratch.powers[p.thread*logits.cols:][:logits.cols]
		for i := p.lo; i < p.hi; i++ {
			weight := s.rowWeight(i)
			by := float64(weight*float64(s.op.alpha)) / float64(logits.cols)
			out, labels, row := grad.row(i, 0, grad.cols), s.views.multiLabels.row(i, 0, logits.cols),
				logits.row(i, 0, logits.cols)
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
}}

func (s *stream) SigmoidCrossEntropy(loss, grad, logits, labels, rows gds.Tensor, scale float32) {
	s.push(op{kind: &sigmoidCrossEntropyOp, tensors: [maxTensors]gds.Tensor{loss, grad, logits, labels, rows},
		alpha: scale})
}

var (
	squaredErrorOp = kind{name: "SquaredError", tensors: 6, run: func(s *stream) error {
		return s.addErrors(func(e float64) (loss, slope float64) { return e * e, 2 * e })
	}}
	absoluteErrorOp = kind{name: "AbsoluteError", tensors: 6, run: func(s *stream) error {
		return s.addErrors(func(e float64) (loss, slope float64) {
			switch {
			case e > 0:
				return e, 1
			case e < 0:
				return -e, -1
			}
			return e, 0 // zero, or not a number
		})
	}}
)

// addErrors adds losses that depend on the error of each value.
func (s *stream) addErrors(of func(e float64) (loss, slope float64)) (err error) {
	out, labels, units := s.op.tensors[2], s.op.tensors[3], s.op.tensors[4]
	if sameShape(out, labels) != nil || !isVector(units, out.Cols) {
		return errShape
	}
	for i, t := range s.op.tensors[:5] {
		if s.views.floats[i], err = view[float32](s.device, t, gds.Float32); err != nil {
			return err
		}
	}
	s.views.errorLoss = of
	return s.addLosses(func(s *stream, p part) (loss float64, err error) {
		v := &s.views.floats
		units := v[4].data
		for i := p.lo; i < p.hi; i++ {
			weight := s.rowWeight(i)
			by := float64(weight*float64(s.op.alpha)) / float64(len(units))
			grad, labels := v[1].row(i, 0, v[1].cols), v[3].row(i, 0, v[3].cols)
			for j, value := range v[2].row(i, 0, v[2].cols) {
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

func (s *stream) SquaredError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	s.push(op{kind: &squaredErrorOp, tensors: [maxTensors]gds.Tensor{loss, grad, out, labels, units, rows},
		alpha: scale})
}

func (s *stream) AbsoluteError(loss, grad, out, labels, units, rows gds.Tensor, scale float32) {
	s.push(op{kind: &absoluteErrorOp, tensors: [maxTensors]gds.Tensor{loss, grad, out, labels, units, rows},
		alpha: scale})
}

var countCorrectOp = kind{name: "CountCorrect", tensors: 3, run: func(s *stream) error {
	count, logits, labels := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := s.viewLabels(labels, logits.Rows); err != nil {
		return err
	}
	var err error
	if s.views.floats[0], err = view[float32](s.device, logits, gds.Float32); err != nil {
		return err
	}
	total, err := view[int64](s.device, count, gds.Int64)
	if err != nil {
		return err
	}
	if !isVector(count, 2) {
		return errShape
	}
	s.views.counts = total.data
	return s.loop(logits.Rows, lossRows, func(s *stream, p part) error {
		logits := s.views.floats[0]
		var correct, labelled int64
		for i := p.lo; i < p.hi; i++ {
			label := int(s.views.labels[i])
			if label < 0 {
				continue
			}
			labelled++
			if argmax(logits.row(i, 0, logits.cols)) == label {
				correct++
			}
		}
		atomic.AddInt64(&s.views.counts[0], correct)
		atomic.AddInt64(&s.views.counts[1], labelled)
		return nil
	})
}}

func (s *stream) CountCorrect(count, logits, labels gds.Tensor) {
	s.push(op{kind: &countCorrectOp, tensors: [maxTensors]gds.Tensor{count, logits, labels}})
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
