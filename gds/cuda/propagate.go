//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
)

// propagation are the kernels of Propagate for a type of src: of rows in order and in any order, each
// by single columns and by four at a time, and of long rows.
type propagation struct {
	inOrder, anyOrder [2]*kernel
	long              *kernel
	code              uint64 // of the type, in propagate.cu
}

func newPropagation(code uint64, name string) propagation {
	return propagation{
		inOrder: [2]*kernel{newKernel("propagate", "propagate_1_"+name), newKernel("propagate", "propagate_4_"+name)},
		anyOrder: [2]*kernel{newKernel("propagate", "propagate_any_1_"+name),
			newKernel("propagate", "propagate_any_4_"+name)},
		long: newKernel("propagate", "propagate_long_"+name),
		code: code,
	}
}

var propagations = map[gds.DType]propagation{
	gds.Float32:  newPropagation(0, "f32"),
	gds.Float16:  newPropagation(1, "f16"),
	gds.BFloat16: newPropagation(2, "bf16"),
}

// sumBlock is sum_block of propagate.cu.
const sumBlock = 1024

// mostRows is how many rows of a product a word counts.
const mostRows = 1<<32 - 2

func (s *stream) Propagate(dst, src gds.Tensor, p gds.Product) {
	s.enqueue("Propagate", []gds.Tensor{dst, src, p.Starts, p.Ends, p.Nodes, p.Weights, p.NodeFactors, p.RowFactors,
		p.Blend, p.NotFinite}, func(c *call) {
		rows, cols, terms := dst.Rows, dst.Cols, p.Nodes.Cols
		c.require(src.Cols == cols && isVector(p.Starts, rows) && isVector(p.Ends, rows) && isVector(p.Nodes, terms),
			errShape)
		c.require(dst.Dense() && src.Dense() && p.Blend.Dense(), errors.New("the rows of a matrix do not touch"))
		c.require(rows <= mostRows, errors.New("there are too many rows"))
		to, from := propagations[dst.DType], propagations[src.DType]
		blended := propagations[p.Blend.DType]
		var blend uint64
		if p.Blend != (gds.Tensor{}) {
			c.sameShape(dst, p.Blend)
			c.require(blended.long != nil, errTypes)
			blend = c.address(p.Blend)
		}
		if rows == 0 || cols == 0 {
			return
		}
		c.require(to.long != nil && (from.long != nil || src.Rows == 0), errors.New("want matrices of floats"))
		if from.long == nil {
			from = propagations[gds.Float32]
		}
		start := c.address(src)
		args := [...]uint64{
			c.address(dst), start, c.typed(p.Starts, gds.Int64), c.typed(p.Ends, gds.Int64),
			c.typed(p.Nodes, gds.Uint32), uint64(terms),
			c.optional(p.Weights, terms), c.optional(p.NodeFactors, src.Rows), c.optional(p.RowFactors, rows), blend,
		}
		notFinite := uint64(0)
		if p.NotFinite != (gds.Tensor{}) {
			c.require(isVector(p.NotFinite, 1), errShape)
			notFinite = c.typed(p.NotFinite, gds.Int64)
		}
		work := c.scratch(4 * (rows + 1))
		if c.err != nil {
			return
		}
		c.zero(work, 1)
		pass := func() {
			for _, a := range args {
				c.number(a)
			}
			c.real(p.Factor)
			c.real(p.Theta)
			c.size(rows, cols)
			c.number(uint64(src.Rows))
			c.number(to.code | blended.code<<8)
			c.number(notFinite)
			c.number(work)
			c.checked()
		}
		wide := 0
		if size := uint64(src.DType.Size()); cols%4 == 0 && start%(4*size) == 0 {
			wide = 1
		}
		parts := cols >> (2 * wide)
		// As many threads as there are elements, not fewer that take several: lists differ in length.
		shape := C.hopfeed_shape{grid_x: gridOf(rows*parts, blockThreads), grid_y: 1, block_x: blockThreads, block_y: 1}
		k := from.inOrder[wide]
		if p.AnyOrder {
			k = from.anyOrder[wide]
			across := 1
			for across < 32 && across < parts {
				across *= 2
			}
			shape.grid_x = gridOf(rows*((parts+across-1)/across), rowsPerBlock)
		}
		pass()
		c.launch(k, shape)
		// There are no more parts of long rows than this, unless rows share terms: then blocks take several.
		if most := min(terms/sumBlock, rows) * ((cols + 31) / 32); most > 0 {
			pass()
			c.launch(from.long, C.hopfeed_shape{grid_x: C.uint(min(most, 4*s.device.processors)), grid_y: 1,
				block_x: 32, block_y: 32})
		}
	})
}

// gridOf is how many blocks there are of a thing each for n, at most what a grid may have.
func gridOf(n, perBlock int) C.uint { return C.uint(min((n+perBlock-1)/perBlock, 1<<31-1)) }

// optional is the address of a vector of floats, or 0 for the zero Tensor.
func (c *call) optional(t gds.Tensor, n int) uint64 {
	if t == (gds.Tensor{}) {
		return 0
	}
	c.require(isVector(t, n), errShape)
	return c.typed(t, gds.Float32)
}
