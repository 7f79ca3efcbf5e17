package host

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/hopfeed/hopfeed/gds"
)

// Of gonum's four loops for matrices, the one that multiplies rows of a by rows
// of b is two to ten times as fast as the others (dot products keep their sums
// in registers), so every product is brought to that form: b is packed by
// columns, a part at a time, a only if it is transposed. Tiles keep both operands in the
// first-level cache, and are small enough that gonum stays on the calling
// thread. Packed rows are aligned, which the order of gonum's sums depends on.
const (
	gemmRows  = 16  // of c in a tile
	gemmCols  = 16  // of c in a tile
	gemmInner = 512 // products in one dot product
	// As much of b is packed at a time, so that a stream holds 4 MiB of it at most,
	// whatever the shape: of c, the sums over rows of b before are there already. It is
	// wide, as rows of a that are transposed are so again for the next columns.
	packedCols = 128 * gemmCols
	// packPad keeps the rows of a packed matrix a multiple of 16 bytes apart
	// but no power of two, which would put a column in one set of the cache.
	packPad = 4
)

// gemmPart is a part of a product: rows [from, to) of the columns [first, end) of op(b), which are
// packed, for all rows of op(a).
type gemmPart struct {
	packed     matrix[float32]
	from, to   int
	first, end int
	beta       float32 // 1 for all parts of a column but the first
}

var gemmOp = kind{name: "Gemm", tensors: 3, run: (*stream).gemm}

func (s *stream) Gemm(transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor) {
	s.push(op{kind: &gemmOp, tensors: [maxTensors]gds.Tensor{a, b, c}, transA: transA, transB: transB, alpha: alpha, beta: beta})
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
	if inner == 0 {
		s.each(m, n, func(s *stream, i, lo, hi int) { scale(s.views.floats[2].row(i, lo, hi), s.op.beta) })
		return nil
	}
	if m == 0 || n == 0 {
		return nil
	}

	grain := gemmRows
	if m*n*inner <= grainWork {
		grain = m
	}
	if o.transA {
		room(&s.scratch.panels, s.device.options.Threads*panelSize)
	}
	for from := 0; from < inner; from += gemmInner {
		for first := 0; first < n; first += packedCols {
			s.views.gemm = gemmPart{from: from, to: min(from+gemmInner, inner), first: first, end: min(first+packedCols, n), beta: 1}
			if from == 0 {
				s.views.gemm.beta = o.beta
			}
			s.pack()
			_ = s.loop(m, grain, (*stream).multiply)
		}
	}
	return nil
}

// panelSize is that of a part of op(a), where it has to be transposed.
const panelSize = gemmRows * (gemmInner + packPad)

// multiply adds to rows of c their products with the packed part of op(b).
func (s *stream) multiply(p part) error {
	g, a, c := &s.views.gemm, s.views.floats[0], s.views.floats[2]
	depth := g.to - g.from
	for i := p.lo; i < p.hi; i += gemmRows {
		rows := min(gemmRows, p.hi-i)
		left := blas32.General{Rows: rows, Cols: depth, Stride: a.stride}
		if s.op.transA {
			left.Data, left.Stride = s.scratch.panels[p.thread*panelSize:][:panelSize], gemmInner+packPad
			transpose(left.Data, left.Stride, a, g.from, g.to, i, i+rows)
		} else {
			left.Data = a.data[i*a.stride+g.from:]
		}
		for j := g.first; j < g.end; j += gemmCols {
			cols := min(gemmCols, g.end-j)
			right := blas32.General{Rows: cols, Cols: depth, Stride: g.packed.stride, Data: g.packed.data[(j-g.first)*g.packed.stride:]}
			tile := blas32.General{Rows: rows, Cols: cols, Stride: c.stride, Data: c.data[i*c.stride+j:]}
			blas32.Gemm(blas.NoTrans, blas.Trans, s.op.alpha, left, right, g.beta, tile)
		}
	}
	return nil
}

// pack copies the part of op(b), [inner, n], to rows of scratch memory, one for each of its columns.
func (s *stream) pack() {
	g := &s.views.gemm
	n, inner := g.end-g.first, g.to-g.from
	g.packed = matrix[float32]{rows: n, cols: inner, stride: (inner+3)/4*4 + packPad}
	g.packed.data = room(&s.scratch.packed, n*g.packed.stride)
	_ = s.loop(n, max(gemmCols, grainWork/inner), func(s *stream, p part) error {
		g, b := &s.views.gemm, s.views.floats[1]
		if s.op.transB {
			for j := p.lo; j < p.hi; j++ {
				copy(g.packed.row(j, 0, g.packed.cols), b.row(g.first+j, g.from, g.to))
			}
			return nil
		}
		for j := p.lo; j < p.hi; j += gemmCols {
			transpose(g.packed.data[j*g.packed.stride:], g.packed.stride, b, g.from, g.to, g.first+j, g.first+min(j+gemmCols, p.hi))
		}
		return nil
	})
}

// transpose copies columns [from, to) of rows [lo, hi) of m to rows of dst.
func transpose(dst []float32, stride int, m matrix[float32], lo, hi, from, to int) {
	for l := lo; l < hi; l++ {
		at := l - lo
		for _, v := range m.row(l, from, to) {
			dst[at] = v
			at += stride
		}
	}
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
	return s.withRow(func(out, row []float32) {
		for j, value := range row {
			out[j] += value
		}
	})
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

// sumRows is how many rows SumRows adds up before it adds sums.
const sumRows = 256

var sumRowsOp = kind{name: "SumRows", tensors: 2, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if dst.Rows != 1 || dst.Cols != src.Cols {
		return errShape
	}
	v, err := s.viewFloats()
	if err != nil {
		return err
	}
	sums := room(&s.scratch.sums, (src.Rows+sumRows-1)/sumRows*src.Cols)
	_ = s.loop(src.Rows, sumRows, func(s *stream, p part) error {
		src := s.views.floats[1]
		sum := s.scratch.sums[p.lo/sumRows*src.cols:][:src.cols]
		clear(sum)
		for i := p.lo; i < p.hi; i++ {
			for j, value := range src.row(i, 0, src.cols) {
				sum[j] += value
			}
		}
		return nil
	})
	total := v[0].row(0, 0, src.Cols)
	scale(total, s.op.beta)
	for ; len(sums) > 0; sums = sums[src.Cols:] {
		for j, value := range sums[:src.Cols] {
			total[j] += value
		}
	}
	return nil
}}

func (s *stream) SumRows(dst gds.Tensor, beta float32, src gds.Tensor) {
	s.push(op{kind: &sumRowsOp, tensors: [maxTensors]gds.Tensor{dst, src}, beta: beta})
}
