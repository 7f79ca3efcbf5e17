//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

var (
	gemmKernel      = newKernel("dense", "gemm")
	transposeKernel = newKernel("dense", "transpose")
	addRowKernel    = newKernel("dense", "add_row")
	mulRowKernel    = newKernel("dense", "mul_row")
	sumRowsKernel   = newKernel("dense", "sum_rows")
	sumSlabsKernel  = newKernel("dense", "sum_slabs")
)

// gemmTile is how many rows and columns of a product a block of the kernel computes.
const gemmTile = 64

func (s *stream) Gemm(transA, transB bool, alpha float32, a, b gds.Tensor, beta float32, c gds.Tensor) {
	s.enqueue("Gemm", []gds.Tensor{a, b, c}, func(call *call) {
		m, inner := a.Rows, a.Cols
		if transA {
			m, inner = inner, m
		}
		innerB, n := b.Rows, b.Cols
		if transB {
			innerB, n = n, innerB
		}
		if inner != innerB || m != c.Rows || n != c.Cols {
			call.err = fmt.Errorf("%w: op(a) is [%d,%d], op(b) [%d,%d]", errShape, m, inner, innerB, n)
			return
		}
		call.operand(a, transA)
		call.operand(b, transB)
		call.matrix(c)
		if call.err != nil || m == 0 || n == 0 {
			return
		}
		if multiplies(inner, a, b, c) {
			call.err = s.gemm(transA, transB, alpha, a, b, beta, c, [3]uint64{call.args[0], call.args[3], call.args[6]},
				inner)
			return
		}
		call.size(m, n)
		call.number(uint64(inner))
		call.real(alpha)
		call.real(beta)
		tiles := (m + gemmTile - 1) / gemmTile * ((n + gemmTile - 1) / gemmTile)
		call.launch(gemmKernel, C.hopfeed_shape{grid_x: C.uint(tiles), grid_y: 1, block_x: blockThreads, block_y: 1})
	})
}

// operand passes a factor, and how far its elements, once transposed or not, are apart.
func (c *call) operand(t gds.Tensor, transposed bool) {
	row, column := uint64(t.Stride), uint64(1)
	if transposed {
		row, column = column, row
	}
	c.number(c.typed(t, gds.Float32))
	c.number(row)
	c.number(column)
}

// transposeTile is how many rows and columns a block of the kernel transposes.
const transposeTile = 32

func (s *stream) Transpose(alpha float32, src gds.Tensor, beta float32, dst gds.Tensor) {
	s.enqueue("Transpose", []gds.Tensor{src, dst}, func(c *call) {
		c.require(src.Rows == dst.Cols && src.Cols == dst.Rows, errShape)
		c.matrix(src)
		c.matrix(dst)
		if c.err != nil || dst.Rows == 0 || dst.Cols == 0 {
			return
		}
		c.size(dst.Rows, dst.Cols)
		c.real(alpha)
		c.real(beta)
		tiles := (dst.Rows + transposeTile - 1) / transposeTile * ((dst.Cols + transposeTile - 1) / transposeTile)
		c.launch(transposeKernel, C.hopfeed_shape{grid_x: C.uint(tiles), grid_y: 1, block_x: blockThreads, block_y: 1})
	})
}

func (s *stream) AddRow(dst, row gds.Tensor) { s.withRow("AddRow", addRowKernel, dst, row) }

func (s *stream) MulRow(dst, row gds.Tensor) { s.withRow("MulRow", mulRowKernel, dst, row) }

// withRow enqueues what is done to every row of dst with the vector row, which is as long.
func (s *stream) withRow(name string, k *kernel, dst, row gds.Tensor) {
	s.enqueue(name, []gds.Tensor{dst, row}, func(c *call) {
		c.require(row.Rows == 1 && row.Cols == dst.Cols, errShape)
		c.matrix(dst)
		c.vector(row)
		c.size(dst.Rows, dst.Cols)
		c.each(k, dst.Rows*dst.Cols)
	})
}

func (s *stream) SumRows(dst gds.Tensor, beta float32, src gds.Tensor) {
	s.enqueue("SumRows", []gds.Tensor{dst, src}, func(c *call) {
		c.require(dst.Rows == 1 && dst.Cols == src.Cols, errShape)
		sums := c.columnSums(src.Rows, src.Cols, 1)
		out := c.typed(dst, gds.Float32)
		c.number(sums.parts)
		c.matrix(src)
		sums.launch(c, sumRowsKernel)
		sums.addTo(c, out, beta, 0, 1)
	})
}

// columnSums are sums of columns on their way: of each of some slabs of rows, and then of the slabs,
// in order. How many slabs there are depends on the number of rows alone.
type columnSums struct {
	parts      uint64 // [slabs, sums*cols]
	rows, cols int
	sums       int
	slab       int // rows of one
	slabs      int
}

// mostSlabs is how many slabs there are at most, and slabRows how many rows one has at least.
const (
	mostSlabs = 256
	slabRows  = 128
)

// columnSums begins so many sums of each column.
func (c *call) columnSums(rows, cols, sums int) columnSums {
	slab := max(slabRows, (rows+mostSlabs-1)/mostSlabs)
	s := columnSums{rows: rows, cols: cols, sums: sums, slab: slab, slabs: (rows + slab - 1) / slab}
	s.parts = c.scratch(4 * s.slabs * sums * cols)
	return s
}

// launch launches the kernel that sums slabs, after its other arguments.
func (s columnSums) launch(c *call, k *kernel, epsilon ...float32) {
	c.size(s.rows, s.cols)
	c.number(uint64(s.slab))
	for _, e := range epsilon {
		c.real(e)
	}
	c.launch(k, C.hopfeed_shape{grid_x: C.uint((s.cols + 31) / 32), grid_y: C.uint(s.slabs), block_x: 32, block_y: 8})
}

// addTo sets the vector at out to beta times itself and the sums first to first+count of the columns.
func (s columnSums) addTo(c *call, out uint64, beta float32, first, count int) {
	c.number(out)
	c.real(beta)
	c.number(s.parts + uint64(4*first*s.cols))
	c.number(uint64(s.slabs))
	c.size(count*s.cols, s.sums*s.cols)
	c.each(sumSlabsKernel, count*s.cols)
}
