package trainer

import (
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// pass is a rank's share of a batch on its way through a model.
type pass struct {
	gds.Stream
	rows       int
	globalRows int       // of the batch, over all ranks
	x          []operand // the input matrices [rows, features], in the order of Spec.Matrices
	train      bool      // drop out, and prepare for backward
	seed       uint64    // of dropout, for this step and rank
	// meet waits for all ranks, and makes the vectors that they give the sum of all. It returns
	// false if the program has to end, since another rank has failed: see group.run.
	meet func(vector gds.Tensor) bool
}

// sum makes a vector [1,n] of a layer the sum of those of all ranks, where n is at most the number
// of parameters of the model. All ranks have to come to it, those without rows too. It may be
// called anywhere in forward and backward of a training pass: the work enqueued before it has seen
// the rank's own vector, the work enqueued after it sees the sum.
func (p *pass) sum(vector gds.Tensor) { p.meet(vector) }

// activation is what a layer puts out, [batch, cols], and the gradient with
// respect to it. It lies in the network's scratch memory.
type activation struct {
	cols      int
	out, grad gds.Tensor // of the largest batch
}

// of returns the output and its gradient for the rows of a pass.
func (a *activation) of(p *pass) (out, grad gds.Tensor) {
	return a.out.Slice(0, p.rows), a.grad.Slice(0, p.rows)
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

// backward adds to the gradients of weights and bias, from gy = dL/dy.
func (l *linear) backward(p *pass, gy gds.Tensor, xs ...operand) {
	at := 0
	for k, x := range xs {
		p.Gemm(true, false, x.scale, gy, x.Tensor, 1, l.weight.grad.Columns(at, at+l.inputs[k]))
		at += l.inputs[k]
	}
	p.SumRows(l.bias.grad, 1, gy)
}

// inputGradient sets gx = dL/dx of a layer with one input of scale 1.
func (l *linear) inputGradient(p *pass, gx, gy gds.Tensor) {
	p.Gemm(false, false, 1, gy, l.weight.value, 0, gx)
}

// inputLayer is a linear layer that reads input matrices: its x_k is matrix from[k] of a batch.
type inputLayer struct {
	*linear
	from []int
	x    []operand // those of the last pass
}

// choose picks the layer's inputs.
func (l *inputLayer) choose(p *pass) []operand {
	l.x = l.x[:0]
	for _, i := range l.from {
		l.x = append(l.x, p.x[i])
	}
	return l.x
}

func (l *inputLayer) forward(p *pass, y gds.Tensor)   { l.linear.forward(p, y, l.choose(p)...) }
func (l *inputLayer) backward(p *pass, gy gds.Tensor) { l.linear.backward(p, gy, l.choose(p)...) }

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
