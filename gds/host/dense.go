package host

import "github.com/hopfeed/hopfeed/internal/kernel"

func (s *stream) gemm() error {
	o, a, b, c := s.call, s.views.floats[0], s.views.floats[1], s.views.floats[2]
	m, inner, _, n := o.Product()
	g := &s.scratch.gemm
	g.Begin(kernel.Product{
		TransA: o.TransA, TransB: o.TransB, Rows: m, Columns: n, Inner: inner,
		Alpha: o.Alpha, A: a.data, AStride: a.stride, B: b.data, BStride: b.stride,
		Beta: o.Beta, C: c.data, CStride: c.stride,
	}, s.device.options.Threads)
	for g.Next() {
		_ = s.loop(g.Packs(), 1, func(s *stream, p part) error { s.scratch.gemm.Pack(p.lo); return nil })
		_ = s.loop(g.Parts(), 1, func(s *stream, p part) error { s.scratch.gemm.Multiply(p.lo); return nil })
	}
	return nil
}

// transposeTile is how many rows and columns are transposed at a time: a cache line of each is used at once.
const transposeTile = 16

func (s *stream) transpose() error {
	dst := s.views.floats[1]
	return s.loop((dst.rows+transposeTile-1)/transposeTile, max(1, grainWork/(transposeTile*max(dst.cols, 1))),
		func(s *stream, p part) error {
			src, dst := s.views.floats[0], s.views.floats[1]
			alpha, beta := s.call.Alpha, s.call.Beta
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
}

// scale multiplies x by beta; by zero even what is not a number.
func scale(x []float32, beta float32) {
	if beta == 0 {
		clear(x)
		return
	}
	kernel.Scale(x, beta, x)
}

func (s *stream) addRow() error {
	return s.byRow(0, 1, func(s *stream, i int) {
		kernel.AddScaled(s.views.floats[0].all(i), 1, s.views.floats[1].all(0))
	})
}

func (s *stream) mulRow() error {
	return s.byRow(0, 1, func(s *stream, i int) {
		out := s.views.floats[0].all(i)
		for j, value := range s.views.floats[1].all(0) {
			out[j] *= value
		}
	})
}

func (s *stream) sumRows() error {
	v := &s.views.floats
	total := v[0].all(0)
	scale(total, s.call.Beta)
	s.addUp(total, v[1].rows, func(s *stream, sum []float32, i int) {
		kernel.AddScaled(sum, 1, s.views.floats[1].all(i))
	})
	return nil
}

// sumGroup is how many rows addUp adds up before it adds sums.
const sumGroup = 256

// addUp adds to total what body adds to sum for each row. The order of additions is the same for any number of threads.
func (s *stream) addUp(total []float32, rows int, body func(s *stream, sum []float32, row int)) {
	width := len(total)
	sums := room(&s.scratch.sums, (rows+sumGroup-1)/sumGroup*width)
	s.views.sumBody, s.views.cols = body, width
	_ = s.loop(rows, sumGroup, func(s *stream, p part) error {
		sum := s.scratch.sums[p.lo/sumGroup*s.views.cols:][:s.views.cols]
		clear(sum)
		for i := p.lo; i < p.hi; i++ {
			s.views.sumBody(s, sum, i)
		}
		return nil
	})
	for ; len(sums) > 0; sums = sums[width:] {
		for j, value := range sums[:width] {
			total[j] += value
		}
	}
}
