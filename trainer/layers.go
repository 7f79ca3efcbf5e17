package trainer

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// pass is one batch on its way through a model.
type pass struct {
	gds.Stream
	rows  int
	train bool   // drop out, and prepare for backward
	seed  uint64 // of dropout, for this step
}

// activation is what a layer puts out, [batch, cols], and the gradient with
// respect to it. It lies in the network's scratch memory.
type activation struct {
	cols      int
	out, grad gds.Tensor // of the largest batch
}

// operand is a matrix times a number.
type operand struct {
	gds.Tensor
	scale float32
}

// linear is an affine layer on the concatenation of its inputs,
// y = sum over k of x_k W_k^T + b, with the weights [out, sum of inputs] as
// PyTorch's nn.Linear has them; W_k is a block of columns, so that nothing is
// ever concatenated.
type linear struct {
	weight, bias *parameter
	inputs       []int // columns of each x_k
}

func newLinear(p *parameters, name string, out int, inputs ...int) *linear {
	total := 0
	for _, n := range inputs {
		total += n
	}
	bound := linearBound(total)
	l := &linear{
		weight: p.declare(name+".weight", out, total, bound),
		bias:   p.declare(name+".bias", 1, out, bound),
		inputs: inputs,
	}
	l.weight.decays = true
	return l
}

// forward sets y [n,out] from xs [n, inputs[k]].
func (l *linear) forward(p *pass, y gds.Tensor, xs ...operand) {
	at, beta := 0, float32(0)
	for k, x := range xs {
		p.Gemm(false, true, x.scale, x.Tensor, l.weight.value.Columns(at, at+l.inputs[k]), beta, y)
		at, beta = at+l.inputs[k], 1
	}
	p.AddRow(y, l.bias.value)
}

// backward sets the gradients of weights and bias from gy = dL/dy.
func (l *linear) backward(p *pass, gy gds.Tensor, xs ...operand) {
	at := 0
	for k, x := range xs {
		p.Gemm(true, false, x.scale, gy, x.Tensor, 0, l.weight.grad.Columns(at, at+l.inputs[k]))
		at += l.inputs[k]
	}
	p.SumRows(l.bias.grad, 0, gy)
}

// inputGradient sets gx = dL/dx of a layer with one input of scale 1.
func (l *linear) inputGradient(p *pass, gx, gy gds.Tensor) {
	p.Gemm(false, false, 1, gy, l.weight.value, 0, gx)
}

// nonlinearity is ReLU and then dropout, in place.
type nonlinearity struct {
	dropout float32
	id      uint64 // tells the dropout layers of a model apart
}

func (a nonlinearity) seed(p *pass) uint64 { return rng.Hash(p.seed, a.id) }

func (a nonlinearity) forward(p *pass, y gds.Tensor) {
	p.ReLU(y, y)
	if p.train && a.dropout > 0 {
		p.Dropout(y, y, a.dropout, a.seed(p))
	}
}

// backward turns dL/dy into the gradient with respect to the input. The output
// y is all that it needs: where an element was dropped y is zero, too.
func (a nonlinearity) backward(p *pass, grad, y gds.Tensor) {
	if a.dropout > 0 {
		p.Dropout(grad, grad, a.dropout, a.seed(p))
	}
	p.ReLUGrad(grad, grad, y)
}
