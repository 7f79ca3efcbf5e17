package host

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

var gemmOp = kind{name: "Gemm", tensors: 3, run: (*stream).gemm}

func (s *stream) Gemm(transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor) {
	s.push(op{kind: &gemmOp, tensors: [maxTensors]gds.Tensor{a, b, c}, transA: transA, transB: transB, alpha: alpha,
		beta: beta})
}

func (s *stream) gemm() error {
	o := s.op
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	a, b, c := v[0], v[1], v[2]
	m, inner := a.rows, a.cols
	if o.transA {
		m, inner = a.cols, a.rows
	}
	innerB, n := b.rows, b.cols
	if o.transB {
		innerB, n = b.cols, b.rows
	}
	if inner != innerB || m != c.rows || n != c.cols {
		return fmt.Errorf("%w: op(a) is [%d,%d], op(b) [%d,%d]", errShape, m, inner, innerB, n)
	}
	g := &s.scratch.gemm
	g.Begin(kernel.Product{
		TransA: o.transA, TransB: o.transB, Rows: m, Columns: n, Inner: inner,
		Alpha: o.alpha, A: a.data, AStride: a.stride, B: b.data, BStride: b.stride,
		Beta: o.beta, C: c.data, CStride: c.stride,
	}, s.device.options.Threads)
	for g.Next() {
		_ = s.loop(g.Packs(), 1, func(s *stream, p part) error { s.scratch.gemm.Pack(p.lo); return nil })
		_ = s.loop(g.Parts(), 1, func(s *stream, p part) error { s.scratch.gemm.Multiply(p.lo); return nil })
	}
	return nil
}

// transposeTile is how many rows and columns are transposed at a time: a cache line of each is used at once.
const transposeTile = 16

var transposeOp = kind{name: "Transpose", tensors: 2, run: func(s *stream) error {
	src, dst := s.op.tensors[0], s.op.tensors[1]
	if src.Rows != dst.Cols || src.Cols != dst.Rows {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	return s.loop((dst.Rows+transposeTile-1)/transposeTile, max(1, grainWork/(transposeTile*max(dst.Cols, 1))),
		func(s *stream, p part) error {
			src, dst := s.views.floats[0], s.views.floats[1]
			alpha, beta := s.op.alpha, s.op.beta
			for top := p.lo * transposeTile; top < min(p.hi*transposeTile, dst.rows); top += transposeTile {
				for left := 0; left < dst.cols; left += transposeTile {
					for i := top; i < min(top+transposeTile, dst.rows); i++ {
						out := dst.row(i, left, min(left+transposeTile, dst.cols))
						at := left*src.stride + i
						if beta == 0 {
							for j := range out {
								out[j] = alpha * src.data[at]
								at += src.stride
							}
							continue
						}
						for j := range out {
							out[j] = float32(beta*out[j]) + float32(alpha*src.data[at])
							at += src.stride
						}
					}
				}
			}
			return nil
		})
}}

func (s *stream) Transpose(alpha float32, src gds.Tensor, beta float32, dst gds.Tensor) {
	s.push(op{kind: &transposeOp, tensors: [maxTensors]gds.Tensor{src, dst}, alpha: alpha, beta: beta})
}

// scale multiplies x by beta; by zero even what is not a number.
func scale(x []float32, beta float32) {
	if beta == 0 {
		clear(x)
		return
	}
	for i := range x {
		x[i] *= beta
	}
}

var addRowOp = kind{name: "AddRow", tensors: 2, run: func(s *stream) error {
	return s.withRow(func(out, row []float32) { kernel.AddScaled(out, 1, row) })
}}

func (s *stream) AddRow(dst, row gds.Tensor) {
	s.push(op{kind: &addRowOp, tensors: [maxTensors]gds.Tensor{dst, row}})
}

var mulRowOp = kind{name: "MulRow", tensors: 2, run: func(s *stream) error {
	return s.withRow(func(out, row []float32) {
		for j, value := range row {
			out[j] *= value
		}
	})
}}

func (s *stream) MulRow(dst, row gds.Tensor) {
	s.push(op{kind: &mulRowOp, tensors: [maxTensors]gds.Tensor{dst, row}})
}

// withRow runs body for every row of dst with the vector row, which is as long.
func (s *stream) withRow(body func(out, row []float32)) error {
	dst, row := s.op.tensors[0], s.op.tensors[1]
	if row.Rows != 1 || row.Cols != dst.Cols {
		return errShape
	}
	if _, err := s.viewFloats(); err != nil {
		return err
	}
	s.views.rowBody = body
	return s.eachRow(dst.Rows, dst.Cols, func(s *stream, p part) error {
		dst, row := s.views.floats[0], s.views.floats[1].row(0, 0, s.views.floats[1].cols)
		for i := p.lo; i < p.hi; i++ {
			s.views.rowBody(dst.row(i, 0, dst.cols), row)
		}
		return nil
	})
}

var sumRowsOp = kind{name: "SumRows", tensors: 2, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if dst.Rows != 1 || dst.Cols != src.Cols {
		return errShape
	}
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	total := v[0].row(0, 0, src.Cols)
	scale(total, s.op.beta)
	s.addUp(total, src.Rows, func(s *stream, sum []float32, lo, hi int) {
		src := s.views.floats[1]
		for i := lo; i < hi; i++ {
			kernel.AddScaled(sum, 1, src.row(i, 0, src.cols))
		}
	})
	return nil
}}

func (s *stream) SumRows(dst gds.Tensor, beta float32, src gds.Tensor) {
	s.push(op{kind: &sumRowsOp, tensors: [maxTensors]gds.Tensor{dst, src}, beta: beta})
}

// sumRows is how many rows addUp adds up before it adds sums.
const sumRows = 256

// addUp adds to total the sums that body adds to sum for rows [lo, hi), over all rows. The order of
// additions is the same for any number of threads.
func (s *stream) addUp(total []float32, rows int, body func(s *stream, sum []float32, lo, hi int)) {
	width := len(total)
	sums := room(&s.scratch.sums, (rows+sumRows-1)/sumRows*width)
	s.views.sumBody, s.views.cols = body, width
	_ = s.loop(rows, sumRows, func(s *stream, p part) error {
		sum := s.scratch.sums[p.lo/sumRows*s.views.cols:][:s.views.cols]
		clear(sum)
		s.views.sumBody(s, sum, p.lo, p.hi)
		return nil
	})
	for ; len(sums) > 0; sums = sums[width:] {
		for j, value := range sums[:width] {
			total[j] += value
		}
	}
}
