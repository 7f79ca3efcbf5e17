package trainer

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// alongEdges adds up a function of the sources of all edges at each destination.
type alongEdges interface {
	// forward sets y, a row for each destination of the block, from v, a row for each source.
	forward(p *pass, y, v gds.Tensor, block loader.Block)
	// backward sets gv = dL/dv from gy = dL/dy and the v of the last forward, and adds to the gradients of
	// parameters.
	backward(p *pass, gv, gy, v gds.Tensor, block loader.Block)
	// linear tells whether a sum of products with a matrix is the product of the sum.
	linear() bool
}

// sumEdges is y = A v, where A has the weights of a block (Kipf and Welling 2017, Equation 2).
type sumEdges struct{}

func alongSums(*builder, string, int, int) alongEdges { return sumEdges{} }

func (sumEdges) linear() bool { return true }

func (sumEdges) forward(p *pass, y, v gds.Tensor, block loader.Block) {
	p.SumEdges(y, v, block.Offsets, block.Indices, block.Weights)
}

func (sumEdges) backward(p *pass, gv, gy, _ gds.Tensor, block loader.Block) {
	p.SumEdgesGrad(gv, gy, block.Offsets, block.Indices, block.Weights)
}

// order is in which order a layer multiplies by its weights and sums along edges.
type order int

const (
	sumFirst      order = iota // multiplies a row for each destination
	multiplyFirst              // sums rows as wide as the output
	multiplied                 // the sources are products already
)

// orderOf is the order of the first layer in a batch. Other layers sum first, since their rows get no narrower, unless
// their sums are not linear. Sparse rows are multiplied first: products are cheap, and sums would not be sparse. If a
// block has as many destinations as sources, the narrower rows go along edges.
func (m *messagePassing) orderOf(b *loader.Batch) order {
	switch first := m.layers[0]; {
	case b.Whole != nil && b.Whole.Products:
		return multiplied
	case !first.along.linear() || b.Sparse != nil || b.Whole != nil && b.Whole.Inputs.Cols > 0:
		return multiplyFirst
	case b.Whole == nil && (len(b.Blocks) == 0 || b.Blocks[0].Sources > b.Blocks[0].Destinations):
		return sumFirst
	case first.weights.weight.cols > first.weights.weight.rows:
		return multiplyFirst
	}
	return sumFirst
}

// order is the order of the layer in a pass.
func (l *messageLayer) order(p *pass) order {
	switch {
	case l.input:
		return p.order
	case l.along.linear():
		return sumFirst
	}
	return multiplyFirst
}

// sum sets y to the sum along edges of the products of x with the weights, plus the bias, plus the product of the first
// rows of x, which are the destinations, with the weights of self.
func (l *messageLayer) sum(p *pass, y gds.Tensor, x operand, block loader.Block) {
	var own gds.Tensor // product of self, where it is not added to y at once
	switch l.order(p) {
	case sumFirst:
		l.sumThenMultiply(p, y, x, block)
	case multiplyFirst:
		v, _ := l.product.of(p)
		l.multiply(p, v, x, l.weights)
		l.along.forward(p, y, v, block)
		p.AddRow(y, l.weights.bias.value)
		if l.self != nil && l.input {
			own, _ = l.own.of(p)
			l.multiply(p, own, operand{x.Slice(0, block.Destinations), x.scale, 0}, l.self)
		}
	case multiplied:
		l.along.forward(p, y, x.Columns(0, y.Cols), block)
		p.AddRow(y, l.weights.bias.value)
		if l.self != nil {
			own = x.Slice(0, block.Destinations).Columns(y.Cols, 2*y.Cols)
		}
	}
	switch {
	case own != nothing:
		p.Axpy(1, own, y)
	case l.self != nil:
		p.Gemm(false, true, x.scale, x.Slice(0, block.Destinations), l.self.weight.value, 1, y)
	}
}

func (l *messageLayer) sumThenMultiply(p *pass, y gds.Tensor, x operand, block loader.Block) {
	if p.whole == nil {
		sum, _ := l.summed.of(p)
		l.along.forward(p, sum, x.Tensor, block)
		l.weights.forward(p, y, operand{sum, x.scale, 0})
		return
	}
	p.eachChunk(block.Destinations, func(lo, hi int) {
		part := block
		part.Offsets = block.Offsets.Columns(lo, hi+1)
		sum, _ := l.chunk.of(p)
		l.along.forward(p, sum, x.Tensor, part)
		l.weights.forward(p, y.Slice(lo, hi), operand{sum, x.scale, 0})
	})
}

// multiply sets y to the products of the first rows of x with weights.
func (l *messageLayer) multiply(p *pass, y gds.Tensor, x operand, weights *linear) {
	switch {
	case l.input && p.sparse != nil:
		// The product is a sum along edges too: from columns to rows.
		s := p.sparse
		t, _ := l.transposed.of(p)
		p.Transpose(x.scale, weights.weight.value, 0, t)
		p.SumEdges(y, t, s.Offsets.Columns(0, y.Rows+1), s.Columns, s.Values)
	case l.input && p.whole != nil && p.whole.Inputs.Cols > 0:
		p.eachChunk(y.Rows, func(lo, hi int) {
			rows, _ := l.chunk.of(p)
			p.Gather(rows, p.x[0].Tensor, p.whole.Inputs.Columns(lo, hi))
			p.Gemm(false, true, x.scale, rows, weights.weight.value, 0, y.Slice(lo, hi))
		})
	default:
		p.Gemm(false, true, x.scale, x.Tensor, weights.weight.value, 0, y)
	}
}

// products returns the products of x with the weights and, if the layer has a self, with its weights.
func (l *messageLayer) products(p *pass, x operand, in [2]*activation) []gds.Tensor {
	v, _ := in[0].of(p)
	l.multiply(p, v, x, l.weights)
	if l.self == nil {
		return []gds.Tensor{v}
	}
	own, _ := in[1].of(p)
	l.multiply(p, own, x, l.self)
	return []gds.Tensor{v, own}
}

// multiplyBackward adds to the gradient of the weights, from gy = dL/dy of multiply.
func (l *messageLayer) multiplyBackward(p *pass, gy gds.Tensor, x operand, weights *linear) {
	if !l.input || p.sparse == nil {
		p.Gemm(true, false, x.scale, gy, x.Tensor, 1, weights.weight.grad)
		return
	}
	s := p.sparse
	t, _ := l.transposed.of(p)
	p.SumEdgesGrad(t, gy, s.Offsets.Columns(0, gy.Rows+1), s.Columns, s.Values)
	p.Transpose(x.scale, t, 1, weights.weight.grad)
}

// sumBackward adds to the gradients of parameters, from gy = dL/dy and the x of the last sum, and sets gx = dL/dx
// unless it is the zero Tensor.
func (l *messageLayer) sumBackward(p *pass, gx, gy gds.Tensor, x operand, block loader.Block) {
	if l.order(p) == sumFirst {
		sum, gsum := l.summed.of(p)
		l.weights.backward(p, gy, operand{sum, x.scale, 0})
		if gx != nothing {
			l.weights.inputGradient(p, gsum, 0, gy)
			l.along.backward(p, gx, gsum, x.Tensor, block)
		}
	} else {
		v, gv := l.product.of(p)
		p.SumRows(l.weights.bias.grad, 1, gy)
		l.along.backward(p, gv, gy, v, block)
		l.multiplyBackward(p, gv, x, l.weights)
		if gx != nothing {
			l.weights.inputGradient(p, gx, 0, gv)
		}
	}
	if l.self == nil {
		return
	}
	x.Tensor = x.Slice(0, block.Destinations)
	l.multiplyBackward(p, gy, x, l.self)
	if gx != nothing {
		l.self.inputGradient(p, gx.Slice(0, block.Destinations), 1, gy)
	}
}
