package host

import (
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// elementwise runs body on the rows, or parts of rows, of tensors of one shape.
// at is the number of its first element, counted row by row.
func (s *stream) elementwise(body func(at int, x [][]float32), tensors ...gds.Tensor) error {
	if err := sameShape(tensors...); err != nil {
		return err
	}
	v, err := s.device.floats(tensors...)
	if err != nil {
		return err
	}
	views := make([]*matrix[float32], len(v))
	for i := range v {
		views[i] = &v[i]
	}
	flatten(views...)
	s.device.each(v[0].rows, v[0].cols, func(row, lo, hi int) {
		var x [4][]float32
		for i, m := range v {
			x[i] = m.row(row, lo, hi)
		}
		body(row*v[0].cols+lo, x[:len(v)])
	})
	return nil
}

func (s *stream) Axpy(alpha float32, x, y gds.Tensor) {
	s.enqueue("Axpy", func() error {
		return s.elementwise(func(_ int, v [][]float32) {
			x, y := v[0], v[1][:len(v[0])]
			for i, value := range x {
				y[i] += float32(alpha * value)
			}
		}, x, y)
	}, x, y)
}

func (s *stream) ReLU(dst, src gds.Tensor) {
	s.enqueue("ReLU", func() error {
		return s.elementwise(func(_ int, v [][]float32) {
			dst := v[0][:len(v[1])]
			for i, value := range v[1] {
				dst[i] = max(value, 0)
			}
		}, dst, src)
	}, dst, src)
}

func (s *stream) ReLUGrad(dst, grad, out gds.Tensor) {
	s.enqueue("ReLUGrad", func() error {
		return s.elementwise(func(_ int, v [][]float32) {
			dst, grad := v[0][:len(v[2])], v[1][:len(v[2])]
			for i, value := range v[2] {
				g := grad[i]
				if !(value > 0) {
					g = 0
				}
				dst[i] = g
			}
		}, dst, grad, out)
	}, dst, grad, out)
}

func (s *stream) Dropout(dst, src gds.Tensor, p float32, seed uint64) {
	s.enqueue("Dropout", func() error {
		if !(p >= 0 && p < 1) {
			return fmt.Errorf("dropout probability %v: want 0 <= p < 1", p)
		}
		// rng.Float32(hash) < p, without the conversion: its 24 bits, as a
		// number, are below the threshold. Scaling by 2^24 is exact.
		threshold := int64(math.Ceil(float64(p) * (1 << 24)))
		keep := 1 / (1 - p)
		return s.elementwise(func(at int, v [][]float32) {
			// rng.Hash(seed, at+i), with the mixing of the seed done once.
			state := rng.Mix(seed+golden) + uint64(at)*golden
			dst := v[0][:len(v[1])]
			for i, value := range v[1] {
				state += golden
				// All ones, or zero for what is dropped, for the processor
				// cannot guess a branch here.
				kept := ^uint32((int64(rng.Mix(state)>>40) - threshold) >> 63)
				dst[i] = math.Float32frombits(math.Float32bits(value*keep) & kept)
			}
		}, dst, src)
	}, dst, src)
}

// golden is the increment of rng.Hash.
const golden = 0x9e3779b97f4a7c15

func (s *stream) Adam(param, grad, m, v gds.Tensor, o gds.AdamOptions) {
	s.enqueue("Adam", func() error {
		if o.Step < 1 {
			return fmt.Errorf("step %d: the first is 1", o.Step)
		}
		// The bias corrections of Algorithm 1, in the order of its section 2.
		step := float64(o.Step)
		rate := float32(float64(o.LearningRate) / (1 - math.Pow(float64(o.Beta1), step)))
		root := float32(1 / math.Sqrt(1-math.Pow(float64(o.Beta2), step)))
		rest1, rest2 := 1-o.Beta1, 1-o.Beta2
		return s.elementwise(func(_ int, x [][]float32) {
			param, grad, m, v := x[0], x[1][:len(x[0])], x[2][:len(x[0])], x[3][:len(x[0])]
			for i, w := range param {
				g := grad[i] + float32(o.WeightDecay*w)
				m[i] = float32(o.Beta1*m[i]) + float32(rest1*g)
				v[i] = float32(o.Beta2*v[i]) + float32(rest2*float32(g*g))
				spread := float32(float32(math.Sqrt(float64(v[i]))) * root)
				param[i] = w - float32(rate*m[i])/(spread+o.Epsilon)
			}
		}, param, grad, m, v)
	}, param, grad, m, v)
}

func (s *stream) AddRow(dst, row gds.Tensor) {
	s.withRow("AddRow", dst, row, func(out, row []float32) {
		for j, value := range row {
			out[j] += value
		}
	})
}

func (s *stream) MulRow(dst, row gds.Tensor) {
	s.withRow("MulRow", dst, row, func(out, row []float32) {
		for j, value := range row {
			out[j] *= value
		}
	})
}

// withRow enqueues body for every row of dst with the vector row, which is as long.
func (s *stream) withRow(name string, dst, row gds.Tensor, body func(out, row []float32)) {
	s.enqueue(name, func() error {
		if row.Rows != 1 || row.Cols != dst.Cols {
			return errShape
		}
		v, err := s.device.floats(dst, row)
		if err != nil {
			return err
		}
		return s.device.eachRow(dst.Rows, dst.Cols, func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				body(v[0].row(i, 0, dst.Cols), v[1].row(0, 0, dst.Cols))
			}
			return nil
		})
	}, dst, row)
}

// sumRows is how many rows SumRows adds up before it adds sums.
const sumRows = 256

func (s *stream) SumRows(dst gds.Tensor, beta float32, src gds.Tensor) {
	s.enqueue("SumRows", func() error {
		if dst.Rows != 1 || dst.Cols != src.Cols {
			return errShape
		}
		v, err := s.device.floats(dst, src)
		if err != nil {
			return err
		}
		total, cols := v[0].row(0, 0, src.Cols), src.Cols
		scale(total, beta)
		sums := make([]float32, (src.Rows+sumRows-1)/sumRows*cols)
		_ = s.device.blocks(src.Rows, sumRows, func(lo, hi int) error {
			sum := sums[lo/sumRows*cols:][:cols]
			for i := lo; i < hi; i++ {
				for j, value := range v[1].row(i, 0, cols) {
					sum[j] += value
				}
			}
			return nil
		})
		for ; len(sums) > 0; sums = sums[cols:] {
			for j, value := range sums[:cols] {
				total[j] += value
			}
		}
		return nil
	}, dst, src)
}
