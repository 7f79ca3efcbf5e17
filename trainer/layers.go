package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// pass is a rank's share of a batch on its way through a model.
type pass struct {
	gds.Stream
	rows       int
	globalRows int       // of the batch, over all ranks
	trainRows  int64     // of an epoch of training
	x          []operand // the input matrices [rows, features], in the order of Spec.Matrices
	graphPass
	train bool   // drop out, and prepare for backward
	seed  uint64 // of dropout, for this step and rank
	// meet waits for all ranks, and makes the vectors that they give the sum of all. It returns
	// false if the program has to end, since another rank has failed: see group.run.
	meet func(vector gds.Tensor) bool
}

// sum replaces a vector [1,n] of a layer by the sum of the vectors of all ranks; n is at most the number of parameters
// of the model. All ranks must call it, even those without rows. It may be called anywhere in forward and backward of a
// training pass: work that is enqueued before it sees the rank's own vector, later work sees the sum.
func (p *pass) sum(vector gds.Tensor) { p.meet(vector) }

// layer is a step of a model, from and to activations that it knows. Its methods enqueue work on the pass, and may wait
// for the other ranks in between (pass.sum).
type layer interface {
	// forward computes the output.
	forward(p *pass)
	// backward computes the gradient of the input from that of the output, and adds to the gradients of parameters.
	// The layer that read an activation last sets its gradient; those before it add to it.
	backward(p *pass)
}

// mapping is a layer for any input x and output y, which are different tensors. backward sets gx = dL/dx.
type mapping interface {
	forward(p *pass, y, x gds.Tensor)
	backward(p *pass, gx, gy, x gds.Tensor)
}

// applied is a mapping of activations.
type applied struct {
	mapping
	x, y *activation
}

func (l *applied) forward(p *pass) {
	x, _ := l.x.of(p)
	y, _ := l.y.of(p)
	l.mapping.forward(p, y, x)
}

func (l *applied) backward(p *pass) {
	x, gx := l.x.of(p)
	_, gy := l.y.of(p)
	l.mapping.backward(p, gx, gy, x)
}

// apply adds a mapping, and returns its output of so many columns.
func (b *builder) apply(l mapping, x *activation, cols int) *activation {
	y := b.activation(cols)
	b.add(&applied{l, x, y})
	return y
}

// change changes a tensor in place. backward turns the gradient with respect to the output y into that of the input.
type change interface {
	forward(p *pass, y gds.Tensor)
	backward(p *pass, grad, y gds.Tensor)
}

// changed is an activation that a change is applied to.
type changed struct {
	change
	y *activation
}

func (l *changed) forward(p *pass) {
	y, _ := l.y.of(p)
	l.change.forward(p, y)
}

func (l *changed) backward(p *pass) {
	y, grad := l.y.of(p)
	l.change.backward(p, grad, y)
}

// inPlace adds a change of an activation.
func (b *builder) inPlace(c change, y *activation) { b.add(&changed{c, y}) }

// activation is the output of a layer, [batch, cols], and the gradient with respect to it, in scratch memory of the
// network.
type activation struct {
	rows, cols int         // rows 0: as many as the largest batch
	level      int         // of the nodes that rows are of: see levels; 0: the rows of a batch
	use        use         // where there is memory for it
	out        gds.Tensor  // of the largest batch
	grad       gds.Tensor  // not of scratch
	scratch    bool        // has no gradient
	ofGraph    *activation // used instead in passes over a whole graph; nil: none is
}

func (a *activation) allocate(mem *memory, rows int, train bool) {
	a.out = mem.matrix("activations", rows, a.cols, gds.Float32)
	if train && !a.scratch {
		a.grad = mem.matrix("gradients", rows, a.cols, gds.Float32)
	}
}

// of returns the output and its gradient for the rows of a pass.
func (a *activation) of(p *pass) (out, grad gds.Tensor) {
	if p.whole != nil && a.ofGraph != nil {
		a = a.ofGraph
	}
	rows := p.rowsAt(a.level)
	if a.grad.Rows == 0 {
		return a.out.Slice(0, rows), gds.Tensor{}
	}
	return a.out.Slice(0, rows), a.grad.Slice(0, rows)
}

// operand is a matrix times a number, which a linear layer multiplies by the
// columns of its weights from column at on.
type operand struct {
	gds.Tensor
	scale float32
	at    int
}

// linear is an affine layer on the concatenation of its inputs, y = sum over k of x_k W_k^T + b, with the weights [out,
// sum of inputs] of PyTorch's nn.Linear; W_k is a block of columns, so that nothing is ever concatenated. Inputs that
// are multiplied by the same block are added up.
type linear struct {
	weight *parameter
	bias   *parameter // or nil
}

func newLinear(p *parameters, name string, out, inputs int) *linear {
	l := newProduct(p, name, out, inputs)
	l.bias = p.declare(name+".bias", 1, out, linearBound(inputs))
	return l
}

// newProduct is a linear layer without a bias.
func newProduct(p *parameters, name string, out, inputs int) *linear {
	l := &linear{weight: p.declare(name+".weight", out, inputs, linearBound(inputs))}
	l.weight.decays = true
	return l
}

// block is the part of a matrix of the shape of the weights that is for x.
func (x operand) block(weights gds.Tensor) gds.Tensor { return weights.Columns(x.at, x.at+x.Cols) }

// forward sets y [n,out].
func (l *linear) forward(p *pass, y gds.Tensor, xs ...operand) {
	beta := float32(0)
	for _, x := range xs {
		p.Gemm(false, true, x.scale, x.Tensor, x.block(l.weight.value), beta, y)
		beta = 1
	}
	if l.bias != nil {
		p.AddRow(y, l.bias.value)
	}
}

// backward adds to the gradients of weights and bias, from gy = dL/dy.
func (l *linear) backward(p *pass, gy gds.Tensor, xs ...operand) {
	for _, x := range xs {
		p.Gemm(true, false, x.scale, gy, x.Tensor, 1, x.block(l.weight.grad))
	}
	if l.bias != nil {
		p.SumRows(l.bias.grad, 1, gy)
	}
}

// inputGradient sets gx = beta * gx + dL/dx of a layer with one input of scale 1.
func (l *linear) inputGradient(p *pass, gx gds.Tensor, beta float32, gy gds.Tensor) {
	p.Gemm(false, false, 1, gy, l.weight.value, beta, gx)
}

// dense is a linear layer on each token of an activation.
type dense struct {
	*linear
	x, y   *activation
	tokens int  // of a row; 1: the row
	adds   bool // to the gradient of x, which a layer after it sets
}

// dense adds a linear layer on all of x, and returns its output.
func (b *builder) dense(l *linear, x *activation) *activation {
	y := b.activation(l.weight.rows)
	b.add(&dense{l, x, y, 1, false})
	return y
}

func (l *dense) forward(p *pass) {
	x, _ := l.x.of(p)
	y, _ := l.y.of(p)
	l.linear.forward(p, asTokens(y, l.tokens), operand{asTokens(x, l.tokens), 1, 0})
}

func (l *dense) backward(p *pass) {
	x, gx := l.x.of(p)
	_, gy := l.y.of(p)
	gy = asTokens(gy, l.tokens)
	l.linear.backward(p, gy, operand{asTokens(x, l.tokens), 1, 0})
	beta := float32(0)
	if l.adds {
		beta = 1
	}
	l.inputGradient(p, asTokens(gx, l.tokens), beta, gy)
}

// inputLayer is a linear layer that reads input matrices.
type inputLayer struct {
	*linear
	reads []read
	x     []operand // of the last pass
}

// read is an input matrix times a number, for the block of weights from column at on. Layers may share weights, and a
// layer may read several matrices by one block.
type read struct {
	matrix int // of a batch
	by     float32
	at     int
}

// operands are the layer's inputs.
func (l *inputLayer) operands(p *pass) []operand {
	l.x = l.x[:0]
	for _, r := range l.reads {
		x := p.x[r.matrix]
		l.x = append(l.x, operand{x.Tensor, x.scale * r.by, r.at})
	}
	return l.x
}

// inputLayers put out the tokens of y.
type inputLayers struct {
	tokens []*inputLayer
	y      *activation
}

// readInput adds layers that read input matrices, and returns their outputs side by side.
func (b *builder) readInput(layers ...*inputLayer) *activation {
	y := b.activation(len(layers) * layers[0].weight.rows)
	b.add(&inputLayers{layers, y})
	return y
}

func (l *inputLayers) forward(p *pass) {
	y, _ := l.y.of(p)
	for i, layer := range l.tokens {
		layer.forward(p, token(y, i, len(l.tokens)), layer.operands(p)...)
	}
}

func (l *inputLayers) backward(p *pass) {
	_, gy := l.y.of(p)
	for i, layer := range l.tokens {
		layer.backward(p, token(gy, i, len(l.tokens)), layer.operands(p)...)
	}
}

// dropout is a change.
type dropout struct {
	probability float32
	id          uint64 // tells the dropout layers of a model apart
}

// in tells whether elements are dropped in a pass.
func (d dropout) in(p *pass) bool     { return p.train && d.probability > 0 }
func (d dropout) seed(p *pass) uint64 { return rng.Hash(p.seed, d.id) }

func (d dropout) forward(p *pass, y gds.Tensor) {
	if d.in(p) {
		p.Dropout(y, y, d.probability, d.seed(p))
	}
}

// backward drops the same elements of the gradient.
func (d dropout) backward(p *pass, grad, _ gds.Tensor) { d.forward(p, grad) }

// nonlinearity is a change: ReLU, and then dropout.
type nonlinearity struct{ dropout }

func newNonlinearity(probability float32, id uint64) nonlinearity {
	return nonlinearity{dropout{probability, id}}
}

func (a nonlinearity) forward(p *pass, y gds.Tensor) {
	if a.in(p) {
		p.ReLUDropout(y, y, a.probability, a.seed(p))
	} else {
		p.ReLU(y, y)
	}
}

// backward needs only the output: y is zero where an element was dropped, too.
func (a nonlinearity) backward(p *pass, grad, y gds.Tensor) {
	p.ReLUGrad(grad, grad, y, 1/(1-a.probability))
}

// prelu is ReLU with a slope below zero that is learnt, one for all elements (He et al. 2015).
type prelu struct{ slope *parameter }

func newPReLU(p *parameters, name string) prelu {
	slope := p.declare(name+".weight", 1, 1, 0)
	slope.centre = 0.25
	return prelu{slope}
}

func (l prelu) forward(p *pass, y, x gds.Tensor) { p.PReLU(y, x, l.slope.value) }

// backward sets gx, which may be gy.
func (l prelu) backward(p *pass, gx, gy, x gds.Tensor) {
	p.PReLUGrad(gx, l.slope.grad, gy, x, l.slope.value)
}

// mlpSettings are the settings of a model that ends in an MLP.
func mlpSettings(dropout float64) []Setting {
	return []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: 128, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: 3, Least: 2, Below: 257, Integer: true},
		{Name: "dropout", Help: "dropout probability", Default: dropout, Least: 0, Below: 1},
	}
}

// mlp adds linear layers, so many of them hidden with ReLU and dropout after each, and returns the logits. The dropout
// layers have the ids 1, 2 and so on.
func (b *builder) mlp(x *activation, classes, hidden, layers int, probability float32) *activation {
	for i := range layers {
		x = b.dense(newLinear(&b.params, fmt.Sprintf("hidden-%d", i+1), hidden, x.cols), x)
		b.inPlace(newNonlinearity(probability, uint64(i+1)), x)
	}
	return b.dense(newLinear(&b.params, "out", classes, x.cols), x)
}
