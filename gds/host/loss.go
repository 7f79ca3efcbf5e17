package host

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
)

// lossRows is how many rows' losses are added up before sums are added.
const lossRows = 64

// viewLogits are the views that the loss and the metric share; logits become number i of the
// float32 views.
func (s *stream) viewLogits(i int, logits, labels gds.Tensor) (err error) {
	if s.views.floats[i], err = view[float32](s.device, logits, gds.Float32); err != nil {
		return err
	}
	y, err := view[int32](s.device, labels, gds.Int32)
	if err == nil && !isVector(labels, logits.Rows) {
		err = errShape
	}
	s.views.labels = y.data
	return err
}

var softmaxCrossEntropyOp = kind{name: "SoftmaxCrossEntropy", tensors: 4, run: func(s *stream) (err error) {
	loss, grad, logits, labels := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2], s.op.tensors[3]
	if err := s.viewLogits(2, logits, labels); err != nil {
		return err
	}
	v := &s.views.floats
	for i, t := range s.op.tensors[:2] {
		if v[i], err = view[float32](s.device, t, gds.Float32); err != nil {
			return err
		}
	}
	if loss.Rows != 1 || loss.Cols != 1 || grad != (gds.Tensor{}) && sameShape(grad, logits) != nil {
		return errShape
	}
	losses := room(&s.scratch.losses, (logits.Rows+lossRows-1)/lossRows)
	room(&s.scratch.powers, s.device.options.Threads*logits.Cols)
	if err := s.loop(logits.Rows, lossRows, (*stream).softmaxCrossEntropy); err != nil {
		return err
	}
	sum := 0.0
	for _, part := range losses {
		sum += part
	}
	v[0].data[0] += float32(sum)
	return nil
}}

// softmaxCrossEntropy computes the losses and the gradient of some rows.
func (s *stream) softmaxCrossEntropy(p part) error {
	grad, logits := s.views.floats[1], s.views.floats[2]
	withGrad := s.op.tensors[1] != gds.Tensor{}
	powers := s.scratch.powers[p.thread*logits.cols:][:logits.cols]
	loss := 0.0
	for i := p.lo; i < p.hi; i++ {
		label := s.views.labels[i]
		if int(label) >= logits.cols {
			return fmt.Errorf("row %d has label %d, of %d classes", i, label, logits.cols)
		}
		out := grad.row(i, 0, grad.cols)
		if label < 0 {
			clear(out)
			continue
		}
		row := logits.row(i, 0, logits.cols)
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
		loss += math.Log(sum) + (float64(largest) - float64(row[label]))
		if !withGrad {
			continue
		}
		powers[label] -= sum // softmax - 1, times sum
		by := float64(s.op.alpha) / sum
		for j := range out {
			out[j] = float32(by * powers[j])
		}
	}
	s.scratch.losses[p.lo/lossRows] = loss
	return nil
}

func (s *stream) SoftmaxCrossEntropy(loss, grad, logits, labels gds.Tensor, scale float32) {
	s.push(op{kind: &softmaxCrossEntropyOp, tensors: [4]gds.Tensor{loss, grad, logits, labels}, alpha: scale})
}

var countCorrectOp = kind{name: "CountCorrect", tensors: 3, run: func(s *stream) error {
	count, logits, labels := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := s.viewLogits(0, logits, labels); err != nil {
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
	s.push(op{kind: &countCorrectOp, tensors: [4]gds.Tensor{count, logits, labels}})
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
