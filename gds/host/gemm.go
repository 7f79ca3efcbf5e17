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

func (s *stream) Gemm(transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor) {
	s.enqueue("Gemm", func() error { return s.gemm(transA, transB, alpha, a, b, beta, c) }, a, b, c)
}

func (s *stream) gemm(transA, transB bool, alpha float32, ta, tb gds.Tensor, beta float32, tc gds.Tensor) error {
	v, err := s.device.floats(ta, tb, tc)
	if err != nil {
		return err
	}
	a, b, c := v[0], v[1], v[2]
	m, inner := a.rows, a.cols
	if transA {
		m, inner = a.cols, a.rows
	}
	innerB, n := b.rows, b.cols
	if transB {
		innerB, n = b.cols, b.rows
	}
	if inner != innerB || m != c.rows || n != c.cols {
		return fmt.Errorf("%w: op(a) is [%d,%d], op(b) [%d,%d]", errShape, m, inner, innerB, n)
	}
	if inner == 0 {
		s.device.each(m, n, func(i, lo, hi int) { scale(c.row(i, lo, hi), beta) })
		return nil
	}
	if m == 0 || n == 0 {
		return nil
	}

	grain := gemmRows
	if m*n*inner <= grainWork {
		grain = m
	}
	for l := 0; l < inner; l += gemmInner {
		depth := min(gemmInner, inner-l)
		scaleC := float32(1)
		if l == 0 {
			scaleC = beta
		}
		for first := 0; first < n; first += packedCols {
			end := min(first+packedCols, n)
			packed := s.pack(b, transB, l, l+depth, first, end)
			err := s.device.blocks(m, grain, func(lo, hi int) error {
				var panel []float32 // rows [i, i+rows) of op(a), a part of them
				if transA {
					panel = make([]float32, gemmRows*(gemmInner+packPad))
				}
				for i := lo; i < hi; i += gemmRows {
					rows := min(gemmRows, hi-i)
					left := blas32.General{Rows: rows, Cols: depth, Stride: a.stride}
					if transA {
						left.Data, left.Stride = panel, gemmInner+packPad
						transpose(panel, left.Stride, a, l, l+depth, i, i+rows)
					} else {
						left.Data = a.data[i*a.stride+l:]
					}
					for j := first; j < end; j += gemmCols {
						cols := min(gemmCols, end-j)
						right := blas32.General{Rows: cols, Cols: depth, Stride: packed.stride, Data: packed.data[(j-first)*packed.stride:]}
						tile := blas32.General{Rows: rows, Cols: cols, Stride: c.stride, Data: c.data[i*c.stride+j:]}
						blas32.Gemm(blas.NoTrans, blas.Trans, alpha, left, right, scaleC, tile)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// pack copies rows [from, to) of the columns [first, end) of op(b), [inner, n], to rows
// of the stream's scratch memory.
func (s *stream) pack(b matrix[float32], transB bool, from, to, first, end int) matrix[float32] {
	n, inner := end-first, to-from
	packed := matrix[float32]{rows: n, cols: inner, stride: (inner+3)/4*4 + packPad}
	if need := n * packed.stride; len(s.scratch) < need {
		s.scratch = make([]float32, need)
	}
	packed.data = s.scratch
	_ = s.device.blocks(n, max(gemmCols, grainWork/inner), func(lo, hi int) error {
		if transB {
			for j := lo; j < hi; j++ {
				copy(packed.row(j, 0, inner), b.row(first+j, from, to))
			}
			return nil
		}
		for j := lo; j < hi; j += gemmCols {
			transpose(packed.data[j*packed.stride:], packed.stride, b, from, to, first+j, first+min(j+gemmCols, hi))
		}
		return nil
	})
	return packed
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
