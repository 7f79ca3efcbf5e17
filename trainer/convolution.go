package trainer

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// sumConvolution is y = A x W^T + b, where A has the weights of a block (Kipf and Welling 2017, Equation 2). A x
// comes first, since layers get no narrower: so as few rows are multiplied as there are destinations, and
// nothing goes back along the edges of the first block.
type sumConvolution struct {
	*linear
	summed *activation // A x, of destinations
	chunk  *activation // the same for some nodes of a whole graph
}

func newSumConvolution(b *builder, name string, level, in, out int, input bool) (convolution, *linear) {
	c := &sumConvolution{newLinear(&b.parameters, name, out, in), b.activationAt(level-1, in), b.activationAt(chunkLevel, in)}
	c.summed.scratch, c.chunk.scratch = input, true
	return c, c.linear
}

func (c *sumConvolution) forward(p *pass, y gds.Tensor, x operand, block loader.Block) {
	if p.whole == nil {
		sum, _ := c.summed.of(p)
		p.SumEdges(sum, x.Tensor, block.Offsets, block.Indices, block.Weights)
		c.linear.forward(p, y, operand{sum, x.scale, 0})
		return
	}
	p.eachChunk(func(lo, hi int) {
		sum, _ := c.chunk.of(p)
		p.SumEdges(sum, x.Tensor, block.Offsets.Columns(lo, hi+1), block.Indices, block.Weights)
		c.linear.forward(p, y.Slice(lo, hi), operand{sum, x.scale, 0})
	})
}

func (c *sumConvolution) backward(p *pass, gx, gy gds.Tensor, x operand, block loader.Block) {
	sum, gsum := c.summed.of(p)
	c.linear.backward(p, gy, operand{sum, x.scale, 0})
	if gx != nothing {
		c.inputGradient(p, gsum, 0, gy)
		p.SumEdgesGrad(gx, gsum, block.Offsets, block.Indices, block.Weights)
	}
}
