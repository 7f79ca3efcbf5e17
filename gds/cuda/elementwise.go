//go:build cuda && cgo && linux

package cuda

import (
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// elementwise launches a kernel for the elements of the first n tensors, which are of one shape: as one long row if
// all of them are dense.
func (c *call) elementwise(kernel string, n int, args ...any) {
	rows, cols, dense := c.Tensors[0].Rows, c.Tensors[0].Cols, true
	for _, t := range c.Tensors[:n] {
		dense = dense && t.Dense()
	}
	if dense {
		rows, cols = 1, rows*cols
	}
	for i, t := range c.Tensors[:n] {
		stride := t.Stride
		if dense {
			stride = cols
		}
		c.pass(c.at[i], stride)
	}
	c.pass(rows, cols)
	c.each(kernel, rows*cols, args...)
}

// preluBlocks is how many thread blocks sum up the gradient of a slope, on any device.
const preluBlocks = 128

func (c *call) preluGrad() {
	dst := c.Tensors[0]
	n := min((dst.Rows*dst.Cols+threads-1)/threads, preluBlocks)
	parts := c.scratch(4 * n)
	c.launch("prelu_grad", blocks(n), matrix(0), parts, matrix(2), matrix(3), vector(4), dst.Rows, dst.Cols)
	columnSums{parts: parts, cols: 1, sums: 1, slabs: n}.addTo(c, c.at[1], 1, 0, 1)
}

func (c *call) dropout() { c.drop(false) }

func (c *call) reluDropout() { c.drop(true) }

func (c *call) drop(relu bool) {
	// Float32(hash) < p of internal/rng, without the conversion: scaling by 2^24 is exact.
	threshold := uint64(math.Ceil(float64(c.Alpha) * (1 << 24)))
	c.elementwise("dropout", 2, rng.Start(c.Seed), threshold, 1/(1-c.Alpha), relu)
}
