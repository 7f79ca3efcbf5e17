package host

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// elementBody computes on rows, or parts of rows, of an operation's tensors. at is the number of
// the first element, counted row by row.
type elementBody func(o *op, at int, x [maxTensors][]float32)

// elementwise runs body on the tensors of the operation, which must be of one shape.
func (s *stream) elementwise(body elementBody) error {
	if err := sameShape(s.op.tensors[:s.op.kind.tensors]...); err != nil {
		return err
	}
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	flatten(v)
	s.views.elementBody = body
	s.each(v[0].rows, v[0].cols, func(s *stream, row, lo, hi int) {
		var x [maxTensors][]float32
		for i := range s.op.kind.tensors {
			x[i] = s.views.floats[i].row(row, lo, hi)
		}
		s.views.elementBody(s.op, row*s.views.cols+lo, x)
	})
	return nil
}

var axpyOp = kind{name: "Axpy", tensors: 2, run: func(s *stream) error {
	return s.elementwise(func(o *op, _ int, v [maxTensors][]float32) {
		alpha, x, y := o.alpha, v[0], v[1][:len(v[0])]
		for i, value := range x {
			y[i] += float32(alpha * value)
		}
	})
}}

func (s *stream) Axpy(alpha float32, x, y gds.Tensor) {
	s.push(op{kind: &axpyOp, tensors: [maxTensors]gds.Tensor{x, y}, alpha: alpha})
}

var reluOp = kind{name: "ReLU", tensors: 2, run: func(s *stream) error {
	return s.elementwise(func(_ *op, _ int, v [maxTensors][]float32) {
		dst := v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = max(value, 0)
		}
	})
}}

func (s *stream) ReLU(dst, src gds.Tensor) {
	s.push(op{kind: &reluOp, tensors: [maxTensors]gds.Tensor{dst, src}})
}

var reluGradOp = kind{name: "ReLUGrad", tensors: 3, run: func(s *stream) error {
	return s.elementwise(func(o *op, _ int, v [maxTensors][]float32) {
		scale, dst, grad := o.alpha, v[0][:len(v[2])], v[1][:len(v[2])]
		for i, value := range v[2] {
			g := scale * grad[i]
			if !(value > 0) {
				g = 0
			}
			dst[i] = g
		}
	})
}}

func (s *stream) ReLUGrad(dst, grad, out gds.Tensor, scale float32) {
	s.push(op{kind: &reluGradOp, tensors: [maxTensors]gds.Tensor{dst, grad, out}, alpha: scale})
}

// kind.tensors counts tensors of one shape; the third, the slope, is [1,1].
var preluOp = kind{name: "PReLU", tensors: 2, run: func(s *stream) error {
	slope, err := s.slope(2)
	if err != nil {
		return err
	}
	s.op.alpha = slope
	return s.elementwise(func(o *op, _ int, v [maxTensors][]float32) {
		slope, dst := o.alpha, v[0][:len(v[1])]
		for i, value := range v[1] {
			if !(value > 0) {
				value *= slope
			}
			dst[i] = value
		}
	})
}}

// slope is the one element of tensor i.
func (s *stream) slope(i int) (float32, error) {
	t := s.op.tensors[i]
	if t.Rows != 1 || t.Cols != 1 {
		return 0, errShape
	}
	m, err := view[float32](s.device, t, gds.Float32)
	if err != nil {
		return 0, err
	}
	return m.data[0], nil
}

func (s *stream) PReLU(dst, src, slope gds.Tensor) {
	s.push(op{kind: &preluOp, tensors: [maxTensors]gds.Tensor{dst, src, slope}})
}

var preluGradOp = kind{name: "PReLUGrad", tensors: 5, run: func(s *stream) error {
	if _, err := s.slope(1); err != nil {
		return err
	}
	slope, err := s.slope(4)
	if err != nil {
		return err
	}
	if err := sameShape(s.op.tensors[0], s.op.tensors[2], s.op.tensors[3]); err != nil {
		return err
	}
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	s.op.alpha = slope
	s.addUp(v[1].row(0, 0, 1), v[0].rows, func(s *stream, sum []float32, lo, hi int) {
		v := &s.views.floats
		for i := lo; i < hi; i++ {
			src := v[3].row(i, 0, v[3].cols)
			dst, grad := v[0].row(i, 0, len(src)), v[2].row(i, 0, len(src))
			for j, value := range src {
				g := grad[j]
				if !(value > 0) {
					sum[0] += float32(g * value)
					g *= s.op.alpha
				}
				dst[j] = g
			}
		}
	})
	return nil
}}

func (s *stream) PReLUGrad(dst, gradSlope, grad, src, slope gds.Tensor) {
	s.push(op{kind: &preluGradOp, tensors: [maxTensors]gds.Tensor{dst, gradSlope, grad, src, slope}})
}

var mulOp = kind{name: "Mul", tensors: 3, run: func(s *stream) error {
	return s.elementwise(func(_ *op, _ int, v [maxTensors][]float32) {
		dst, b := v[0][:len(v[1])], v[2][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = value * b[i]
		}
	})
}}

func (s *stream) Mul(dst, a, b gds.Tensor) {
	s.push(op{kind: &mulOp, tensors: [maxTensors]gds.Tensor{dst, a, b}})
}

var dropoutOp = kind{name: "Dropout", tensors: 2, run: func(s *stream) error {
	return s.dropout(func(o *op, at int, v [maxTensors][]float32) {
		drop, dst := newDropper(o, at), v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = drop.next(value)
		}
	})
}}

var reluDropoutOp = kind{name: "ReLUDropout", tensors: 2, run: func(s *stream) error {
	return s.dropout(func(o *op, at int, v [maxTensors][]float32) {
		drop, dst := newDropper(o, at), v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = drop.next(max(value, 0))
		}
	})
}}

// dropout is elementwise, for a body that drops.
func (s *stream) dropout(body elementBody) error {
	if p := s.op.alpha; !(p >= 0 && p < 1) {
		return fmt.Errorf("dropout probability %v: want 0 <= p < 1", p)
	}
	return s.elementwise(body)
}

// dropper drops one element after another.
type dropper struct {
	state     uint64
	threshold int64
	keep      float32 // what others are multiplied by
}

// newDropper starts at the element number at.
func newDropper(o *op, at int) dropper {
	return dropper{
		// rng.Hash(seed, at+i), with the mixing of the seed done once.
		state: rng.Mix(o.seed+golden) + uint64(at)*golden,
		// rng.Float32(hash) < p, without the conversion: its 24 bits, as a
		// number, are below the threshold. Scaling by 2^24 is exact.
		threshold: int64(math.Ceil(float64(o.alpha) * (1 << 24))),
		keep:      1 / (1 - o.alpha),
	}
}

func (d *dropper) next(value float32) float32 {
	d.state += golden
	// All ones, or zero for what is dropped, for the processor
	// cannot guess a branch here.
	kept := ^uint32((int64(rng.Mix(d.state)>>40) - d.threshold) >> 63)
	return math.Float32frombits(math.Float32bits(value*d.keep) & kept)
}

// golden is the increment of rng.Hash.
const golden = 0x9e3779b97f4a7c15

func (s *stream) Dropout(dst, src gds.Tensor, p float32, seed uint64) {
	s.push(op{kind: &dropoutOp, tensors: [maxTensors]gds.Tensor{dst, src}, alpha: p, seed: seed})
}

func (s *stream) ReLUDropout(dst, src gds.Tensor, p float32, seed uint64) {
	s.push(op{kind: &reluDropoutOp, tensors: [maxTensors]gds.Tensor{dst, src}, alpha: p, seed: seed})
}
