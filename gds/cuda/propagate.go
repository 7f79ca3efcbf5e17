//go:build cuda && cgo && linux

package cuda

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
)

// sumKernels are the kernels of a kind of sums over lists of terms (sums.h), by whether a thread takes four columns or
// one: of rows, and of the rows that are too long for a thread.
type sumKernels struct {
	rows [2]string
	long string
}

func newSumKernels(name string) *sumKernels {
	return &sumKernels{[2]string{name + "_1", name + "_4"}, name + "_long"}
}

// sumBlock, longWarps: sum_block and long_warps of sums.h.
const (
	sumBlock  = 1024
	longWarps = 16
)

// longWork is the bytes of the work space of sums in which at most this many rows are long.
func longWork(rows int) int { return 4 * (rows + 1) }

// sums launches kernels that add up, for each of some rows, a list of rows of tensor src: terms in all. work, whose
// first word is zero, is for long lists, and args are what the kernels take before it. columns is how many columns side
// by side have the same coefficient.
func (c *call) sums(k *sumKernels, src, rows, terms, columns int, work uint64, args ...any) {
	t := &c.Tensors[src]
	if c.err != nil || rows == 0 || t.Cols == 0 {
		return
	}
	size, wide := uint64(t.DType.Size()), 0
	if (t.Cols|columns)%4 == 0 && (c.at[src]|uint64(t.Stride)*size)%(4*size) == 0 {
		wide = 1
	}
	// As many threads as there are elements, not fewer that take several: lists differ in length.
	c.pass(args...)
	c.launch(k.rows[wide], blocks(gridOf(rows*(t.Cols>>(2*wide)), threads)), work)
	// There are no more parts of long rows than this, unless rows share terms: then blocks take several.
	most := min(terms/sumBlock, rows) * ((t.Cols + 31) / 32)
	c.pass(args...)
	c.launch(k.long, shape{min(most, 4*c.stream.device.processors), 1, 32, longWarps}, work)
}

// gridOf is how many blocks of perBlock things each n things need, at most the largest grid.
func gridOf(n, perBlock int) int { return min((n+perBlock-1)/perBlock, 1<<31-1) }

// propagation is how Propagate reads a type of src.
type propagation struct {
	kernels *sumKernels
	code    uint64 // of the type, in propagate.cu
}

var propagations = map[gds.DType]propagation{
	gds.Float32:  {newSumKernels("propagate_f32"), 0},
	gds.Float16:  {newSumKernels("propagate_f16"), 1},
	gds.BFloat16: {newSumKernels("propagate_bf16"), 2},
}

// mostRows is how many rows of a product a word counts.
const mostRows = 1<<32 - 2

func (c *call) propagate() {
	dst, src := c.Tensors[0], c.Tensors[1]
	rows, terms := dst.Rows, c.Tensors[4].Cols
	if rows > mostRows {
		c.err = errors.New("there are too many rows")
	}
	from, known := propagations[src.DType]
	if c.err != nil || rows == 0 || dst.Cols == 0 {
		return
	}
	if !known { // without elements
		from = propagations[gds.Float32]
	}
	types := propagations[dst.DType].code | propagations[c.Tensors[8].DType].code<<8
	work := c.scratch(longWork(rows))
	c.zero(work, 1)
	c.sums(from.kernels, 1, rows, terms, dst.Cols, work, vector(0), vector(1), vector(2), vector(3),
		vector(4), terms, vector(5), vector(6), vector(7), vector(8), c.Alpha, c.Beta, rows, dst.Cols, src.Rows, types,
		vector(9), faults{})
}
