package host

import (
	"math"

	"github.com/hopfeed/hopfeed/gds/internal/ops"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// operands are rows, or parts of rows, of an operation's tensors.
type operands [ops.MaxTensors][]float32

// elementBody computes on operands. at is the number of the first element, counted row by row.
type elementBody func(c *ops.Call, at int, v operands)

// elementwise runs body on the first n tensors of the operation, which are of one shape.
func (s *stream) elementwise(n int, body elementBody) {
	v := s.views.floats[:n]
	flatten(v)
	s.views.elementBody, s.views.elements = body, n
	s.each(v[0].rows, v[0].cols, func(s *stream, row, lo, hi int) {
		var v operands
		for i := range s.views.elements {
			v[i] = s.views.floats[i].row(row, lo, hi)
		}
		s.views.elementBody(s.call, row*s.views.cols+lo, v)
	})
}

// elementBodies compute operations of matrices of one shape.
var elementBodies = map[*ops.Op]elementBody{
	ops.Axpy: func(c *ops.Call, _ int, v operands) { kernel.AddScaled(v[1], c.Alpha, v[0]) },
	ops.ReLU: func(_ *ops.Call, _ int, v operands) {
		dst := v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = max(value, 0)
		}
	},
	ops.ReLUGrad: func(c *ops.Call, _ int, v operands) {
		scale, dst, grad := c.Alpha, v[0][:len(v[2])], v[1][:len(v[2])]
		for i, value := range v[2] {
			g := scale * grad[i]
			if !(value > 0) {
				g = 0
			}
			dst[i] = g
		}
	},
	ops.ELU: func(_ *ops.Call, _ int, v operands) {
		src, dst := v[1], v[0][:len(v[1])]
		for i := 0; i < len(src); {
			if src[i] > 0 {
				dst[i] = src[i]
				i++
				continue
			}
			end := i + 1
			for end < len(src) && !(src[end] > 0) {
				end++
			}
			kernel.Exp(dst[i:end], src[i:end], 0)
			for ; i < end; i++ {
				dst[i]--
			}
		}
	},
	ops.ELUGrad: func(c *ops.Call, _ int, v operands) {
		keep, dst, grad := c.Alpha, v[0][:len(v[2])], v[1][:len(v[2])]
		for i, value := range v[2] {
			g := grad[i]
			if !(value > 0) {
				g *= 1 + float32(keep*value)
			}
			dst[i] = g
		}
	},
	ops.Mul: func(_ *ops.Call, _ int, v operands) {
		dst, b := v[0][:len(v[1])], v[2][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = value * b[i]
		}
	},
	ops.Dropout: func(c *ops.Call, at int, v operands) {
		drop, dst := newDropper(c, at), v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = drop.next(value)
		}
	},
	ops.ReLUDropout: func(c *ops.Call, at int, v operands) {
		drop, dst := newDropper(c, at), v[0][:len(v[1])]
		for i, value := range v[1] {
			dst[i] = drop.next(max(value, 0))
		}
	},
	ops.Adam: adam,
}

func init() {
	for op, body := range elementBodies {
		bodies[op] = func(s *stream) error { s.elementwise(op.Count(), body); return nil }
	}
}

func (s *stream) prelu() error {
	s.call.Alpha = s.views.floats[2].data[0] // the slope
	s.elementwise(2, func(c *ops.Call, _ int, v operands) {
		slope, dst := c.Alpha, v[0][:len(v[1])]
		for i, value := range v[1] {
			if !(value > 0) {
				value *= slope
			}
			dst[i] = value
		}
	})
	return nil
}

func (s *stream) preluGrad() error {
	v := &s.views.floats
	s.call.Alpha = v[4].data[0] // the slope
	s.addUp(v[1].all(0), v[0].rows, func(s *stream, sum []float32, i int) {
		v := &s.views.floats
		src := v[3].all(i)
		dst, grad := v[0].row(i, 0, len(src)), v[2].row(i, 0, len(src))
		for j, value := range src {
			g := grad[j]
			if !(value > 0) {
				sum[0] += float32(g * value)
				g *= s.call.Alpha
			}
			dst[j] = g
		}
	})
	return nil
}

// dropper drops one element after another.
type dropper struct {
	state     uint64
	threshold int64
	keep      float32 // what others are multiplied by
}

// newDropper starts at the element number at.
func newDropper(c *ops.Call, at int) dropper {
	return dropper{
		// rng.Hash(seed, at+i), with the mixing of the seed done once.
		state: rng.Mix(c.Seed+golden) + uint64(at)*golden,
		// rng.Float32(hash) < p, without the conversion: its 24 bits, as a
		// number, are below the threshold. Scaling by 2^24 is exact.
		threshold: int64(math.Ceil(float64(c.Alpha) * (1 << 24))),
		keep:      1 / (1 - c.Alpha),
	}
}

func (d *dropper) next(value float32) float32 {
	d.state += golden
	// All ones, or zero for what is dropped, for the processor cannot guess a branch here.
	kept := ^uint32((int64(rng.Mix(d.state)>>40) - d.threshold) >> 63)
	return math.Float32frombits(math.Float32bits(value*d.keep) & kept)
}

// golden is the increment of rng.Hash.
const golden = 0x9e3779b97f4a7c15
