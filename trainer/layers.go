package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// layer is a step of a model, from and to activations that it knows. Its functions enqueue work on the pass, and may
// wait for the other ranks in between (pass.meet).
type layer struct {
	// forward computes the output.
	forward func(p *pass)
	// backward computes the gradient of the input from that of the output, and adds to the gradients of parameters.
	// The layer that read an activation last sets its gradient; those before it add to it.
	backward func(p *pass)
}

// builder collects the declarations of a model, before there is memory for them.
type builder struct {
	layers      []layer                   // in the order of the forward pass
	logits      *activation               // of the last of them
	size        func(columns int) float64 // see kind
	params      parameters
	activations []*activation
	inputLayers []*inputLayer
	rescaled    *rescaled // nil: not a model of values
	blocks      int       // of a batch; 0: the model reads matrices of a store
	parts       int       // of the rows of each second block, if there are relations; else 0
	messages    *messagePassing
	uncentred   bool // the input is brought to one unit, but not centred
}

func (b *builder) add(forward, backward func(p *pass)) {
	b.layers = append(b.layers, layer{forward, backward})
}

// activation declares an output of a layer, with a gradient.
func (b *builder) activation(level, cols int) *activation {
	a := &activation{level: level, cols: cols}
	b.activations = append(b.activations, a)
	return a
}

// scratch declares memory for numbers of each row of a level, without a gradient.
func (b *builder) scratch(level, cols int) *activation {
	a := b.activation(level, cols)
	a.scratch = true
	return a
}

// vector declares scratch of one row.
func (b *builder) vector(cols int) *activation {
	a := b.scratch(0, cols)
	a.rows = 1
	return a
}

// operand is a matrix times a number, which a linear layer multiplies by the columns of its weights from column at on.
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
	// diagonal, if not nil: the layer multiplies column j by weight[0,j] instead, and this is memory for as many numbers.
	diagonal *activation
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

// dense adds a linear layer on x, or on each of its tokens if x is as wide as several inputs, and returns its output.
// The gradient of x becomes its gradient so far times beta, which is 0 or 1, plus the layer's.
func (b *builder) dense(l *linear, x *activation, beta float32) *activation {
	tokens := x.cols / l.weight.cols
	y := b.activation(x.level, tokens*l.weight.rows)
	b.add(func(p *pass) {
		l.forward(p, asTokens(y.value(p), tokens), operand{asTokens(x.value(p), tokens), 1, 0})
	}, func(p *pass) {
		gy := asTokens(y.gradient(p), tokens)
		l.backward(p, gy, operand{asTokens(x.value(p), tokens), 1, 0})
		l.inputGradient(p, asTokens(x.gradient(p), tokens), beta, gy)
	})
	return y
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

// inputLayer declares a linear layer on the concatenation of the input matrices from.
func (b *builder) inputLayer(name string, out int, s Spec, from []int) *inputLayer {
	var reads []read
	columns := 0
	for _, i := range from {
		reads = append(reads, read{i, 1, columns})
		columns += s.Width(i)
	}
	return b.reader(newLinear(&b.params, name, out, columns), reads)
}

// reader declares that a linear layer, with a bias, reads input matrices. If the bias is fixed, it
// is what centring makes of it, and nothing for features that are centred already.
func (b *builder) reader(l *linear, reads []read) *inputLayer {
	r := &inputLayer{linear: l, reads: reads}
	b.inputLayers = append(b.inputLayers, r)
	return r
}

// operands are the layer's inputs.
func (l *inputLayer) operands(p *pass) []operand {
	l.x = l.x[:0]
	for _, r := range l.reads {
		x := p.input(r.matrix)
		l.x = append(l.x, operand{x.Tensor, x.scale * r.by, r.at})
	}
	return l.x
}

// readInput adds layers that read input matrices, and returns their outputs side by side.
func (b *builder) readInput(layers ...*inputLayer) *activation {
	y := b.activation(0, len(layers)*layers[0].weight.rows)
	b.add(func(p *pass) {
		for i, l := range layers {
			l.forward(p, token(y.value(p), i, len(layers)), l.operands(p)...)
		}
	}, func(p *pass) {
		for i, l := range layers {
			l.backward(p, token(y.gradient(p), i, len(layers)), l.operands(p)...)
		}
	})
	return y
}

// dropout is the dropout of one layer. Its id makes layers drop out different elements.
type dropout struct {
	probability float32
	id          uint64
}

// in tells whether elements are dropped in a pass.
func (d dropout) in(p *pass) bool     { return p.train && d.probability > 0 }
func (d dropout) seed(p *pass) uint64 { return rng.Hash(p.seed, d.id) }

// drop drops elements of y, or of a gradient: the same ones.
func (d dropout) drop(p *pass, y gds.Tensor) {
	if d.in(p) {
		p.Dropout(y, y, d.probability, d.seed(p))
	}
}

// dropout adds dropout in place.
func (b *builder) dropout(d dropout, y *activation) {
	b.add(func(p *pass) { d.drop(p, y.value(p)) }, func(p *pass) { d.drop(p, y.gradient(p)) })
}

// relu adds ReLU and then dropout, in place.
func (b *builder) relu(d dropout, y *activation) {
	b.add(func(p *pass) {
		if y := y.value(p); d.in(p) {
			p.ReLUDropout(y, y, d.probability, d.seed(p))
		} else {
			p.ReLU(y, y)
		}
	}, func(p *pass) { // needs only the output: y is zero where an element was dropped, too
		p.ReLUGrad(y.gradient(p), y.gradient(p), y.value(p), 1/(1-d.probability))
	})
}

// elu adds ELU and then dropout, in place.
func (b *builder) elu(d dropout, y *activation) {
	b.add(func(p *pass) {
		p.ELU(y.value(p), y.value(p))
		d.drop(p, y.value(p))
	}, func(p *pass) {
		d.drop(p, y.gradient(p)) // a dropped element's gradient is zero, whatever ELUGrad makes of its output
		p.ELUGrad(y.gradient(p), y.gradient(p), y.value(p), 1-d.probability)
	})
}

// multiply adds the product of two activations, by element, and returns it.
func (b *builder) multiply(u, v *activation) *activation {
	y := b.activation(u.level, u.cols)
	b.add(func(p *pass) { p.Mul(y.value(p), u.value(p), v.value(p)) }, func(p *pass) {
		p.Mul(u.gradient(p), y.gradient(p), v.value(p))
		p.Mul(v.gradient(p), y.gradient(p), u.value(p))
	})
	return y
}

// mlpSettings are the settings of a model that ends in an MLP.
func mlpSettings(dropout float64) []Setting {
	return []Setting{hiddenSetting(128), layersSetting(3, 2, 257), dropoutSetting(dropout), printedSetting()}
}

// mlp adds hidden linear layers, with ReLU and dropout after each, and a last linear layer; it returns the logits. The
// dropout layers have the ids 1, 2 and so on.
func (b *builder) mlp(x *activation, classes, hidden, layers int, probability float32) *activation {
	for i := range layers {
		x = b.dense(newLinear(&b.params, fmt.Sprintf("hidden-%d", i+1), hidden, x.cols), x, 0)
		b.relu(dropout{probability, uint64(i + 1)}, x)
	}
	return b.dense(newLinear(&b.params, "out", classes, x.cols), x, 0)
}
