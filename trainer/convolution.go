package trainer

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader"
)

// alongEdges adds up a function of the sources of all edges at each destination.
type alongEdges interface {
	// forward sets y, a row for each destination of the block, from v, a row for each source.
	forward(p *pass, y, v gds.Tensor, block loader.Block)
	// backward sets gv = dL/dv from gy = dL/dy and the v of the last forward, and adds to the gradients of parameters.
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

// readsRows tells whether the pass reads dense rows of features by their numbers, for some nodes of a whole graph.
func (p *pass) readsRows() bool { return p.Sparse == nil && p.Whole != nil && p.Whole.Inputs.Cols > 0 }

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
	case l.x == nil:
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
		v := l.product.value(p)
		l.multiply(p, v, x, l.weights)
		l.along.forward(p, y, v, block)
		p.AddRow(y, l.weights.bias.value)
		if l.own != nil {
			own = l.own.value(p)
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
	some := func(sum, y gds.Tensor, block loader.Block) {
		l.along.forward(p, sum, x.Tensor, block)
		l.weights.forward(p, y, operand{sum, x.scale, 0})
	}
	if p.Whole == nil {
		some(l.summed.value(p), y, block)
		return
	}
	p.eachChunk(block.Destinations, func(lo, hi int) {
		part := block
		part.Offsets = block.Offsets.Columns(lo, hi+1)
		some(l.chunk.value(p), y.Slice(lo, hi), part)
	})
}

// multiply sets y to the products of the first rows of x with weights.
func (l *messageLayer) multiply(p *pass, y gds.Tensor, x operand, weights *linear) {
	switch {
	case l.x == nil && p.Sparse != nil:
		// The product is a sum along edges too: from columns to rows.
		s, t := p.Sparse, l.transposed.value(p)
		p.Transpose(x.scale, weights.weight.value, 0, t)
		p.SumEdges(y, t, s.Offsets.Columns(0, y.Rows+1), s.Columns, s.Values)
	case l.x == nil && p.readsRows():
		p.eachChunk(y.Rows, func(lo, hi int) {
			rows := l.chunk.value(p)
			p.Gather(rows, p.X[0], p.Whole.Inputs.Columns(lo, hi))
			p.Gemm(false, true, x.scale, rows, weights.weight.value, 0, y.Slice(lo, hi))
		})
	default:
		p.Gemm(false, true, x.scale, x.Tensor, weights.weight.value, 0, y)
	}
}

// products returns the products of x with the weights and, if the layer has a self, with its weights.
func (l *messageLayer) products(p *pass, x operand, in [2]*activation) (all []gds.Tensor) {
	for i, weights := range []*linear{l.weights, l.self} {
		if weights != nil {
			all = append(all, in[i].value(p).Columns(0, l.width()))
			l.multiply(p, all[i], x, weights)
		}
	}
	return all
}

// multiplyBackward adds to the gradient of the weights, from gy = dL/dy of multiply.
func (l *messageLayer) multiplyBackward(p *pass, gy gds.Tensor, x operand, weights *linear) {
	if l.x != nil || p.Sparse == nil {
		p.Gemm(true, false, x.scale, gy, x.Tensor, 1, weights.weight.grad)
		return
	}
	s, t := p.Sparse, l.transposed.value(p)
	p.SumEdgesGrad(t, gy, s.Offsets.Columns(0, gy.Rows+1), s.Columns, s.Values)
	p.Transpose(x.scale, t, 1, weights.weight.grad)
}

// sumBackward adds to the gradients of parameters, from gy = dL/dy and the x of the last sum, and sets gx = dL/dx
// unless it is the zero Tensor.
func (l *messageLayer) sumBackward(p *pass, gx, gy gds.Tensor, x operand, block loader.Block) {
	if l.order(p) == sumFirst {
		l.weights.backward(p, gy, operand{l.summed.value(p), x.scale, 0})
		if gx != nothing {
			gsum := l.summed.gradient(p)
			l.weights.inputGradient(p, gsum, 0, gy)
			l.along.backward(p, gx, gsum, x.Tensor, block)
		}
	} else {
		v, gv := l.product.value(p), l.product.gradient(p)
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
