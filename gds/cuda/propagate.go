//go:build cuda && cgo && linux

package cuda

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
)

// propagation are the kernels of Propagate for a type of src: of rows in order and in any order, each
// by single columns and by four at a time, and of long rows.
type propagation struct {
	inOrder, anyOrder [2]string
	long              string
	code              uint64 // of the type, in propagate.cu
}

func newPropagation(code uint64, name string) propagation {
	return propagation{
		inOrder:  [2]string{"propagate_1_" + name, "propagate_4_" + name},
		anyOrder: [2]string{"propagate_any_1_" + name, "propagate_any_4_" + name},
		long:     "propagate_long_" + name,
		code:     code,
	}
}

var propagations = map[gds.DType]propagation{
	gds.Float32:  newPropagation(0, "f32"),
	gds.Float16:  newPropagation(1, "f16"),
	gds.BFloat16: newPropagation(2, "bf16"),
}

// sumGroup is sum_block of propagate.cu.
const sumGroup = 1024

// mostRows is how many rows of a product a word counts.
const mostRows = 1<<32 - 2

func (c *call) propagate() {
	dst, src := c.Tensors[0], c.Tensors[1]
	rows, cols, terms := dst.Rows, dst.Cols, c.Tensors[4].Cols
	if rows > mostRows {
		c.err = errors.New("there are too many rows")
	}
	if c.err != nil || rows == 0 || cols == 0 {
		return
	}
	from, known := propagations[src.DType]
	if !known { // without elements
		from = propagations[gds.Float32]
	}
	types := propagations[dst.DType].code | propagations[c.Tensors[8].DType].code<<8
	work := c.scratch(4 * (rows + 1))
	c.zero(work, 1)
	launch := func(kernel string, s shape) {
		c.launch(kernel, s, vector(0), vector(1), vector(2), vector(3), vector(4), terms, vector(5), vector(6),
			vector(7), vector(8), c.Alpha, c.Beta, rows, cols, src.Rows, types, vector(9), work, faults{})
	}
	wide := 0
	if size := uint64(src.DType.Size()); cols%4 == 0 && c.at[1]%(4*size) == 0 {
		wide = 1
	}
	parts := cols >> (2 * wide)
	// As many threads as there are elements, not fewer that take several: lists differ in length.
	kernel, s := from.inOrder[wide], blocks(gridOf(rows*parts, threads))
	if c.AnyOrder {
		across := 1
		for across < 32 && across < parts {
			across *= 2
		}
		kernel, s = from.anyOrder[wide], blocks(gridOf(rows*((parts+across-1)/across), rowsPerBlock))
	}
	launch(kernel, s)
	// There are no more parts of long rows than this, unless rows share terms: then blocks take several.
	most := min(terms/sumGroup, rows) * ((cols + 31) / 32)
	launch(from.long, shape{min(most, 4*c.stream.device.processors), 1, 32, 32})
}

// gridOf is how many blocks there are of a thing each for n, at most what a grid may have.
func gridOf(n, perBlock int) int { return min((n+perBlock-1)/perBlock, 1<<31-1) }
