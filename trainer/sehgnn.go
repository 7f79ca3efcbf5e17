package trainer

import "fmt"

// sehgnnKind is SeHGNN (Yang et al. 2023, sections 4.2 and 4.3), for stores of typed graphs: each matrix (metapath, or
// hop) has a projection of its own, two linear layers with normalisation, ReLU and dropout; the results h_1 ... h_M are
// tokens, which attend to each other,
//
//	z_i = h_i + beta * MHA(h)_i,
//
// with beta = 0 at first; an MLP works on z_1 ... z_M side by side. Here beta is a number for each column instead of
// one, MHA is PyTorch's nn.MultiheadAttention, and ReLU stands for PReLU. Matrices are scaled as in SIGN.
var sehgnnKind = kind{
	name: "sehgnn", about: "two layers for each matrix (metapath), attention among them, then an MLP",
	chooseMatrices: allHops,
	settings: []Setting{hiddenSetting(128), layersSetting(3, 2, 257), headsSetting(1), dropoutSetting(0.5),
		printedSetting()},
	check:     checkHeads,
	build:     newSeHGNN,
	size:      func(int) float64 { return 1 },
	defaults:  Settings{Options: Options{LearningRate: 0.001, Epochs: 200, Patience: 50}, BatchRows: 512},
	decay:     3,
	mostDecay: 0.002,
}

// Ids of dropouts, larger than the ids in the MLP.
const (
	projectionDropout = attentionDropout + 1 + iota
	tokenDropout
	fusionDropout
)

func newSeHGNN(s Spec, b *builder) *activation {
	hidden, probability := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	tokens := len(s.Matrices)
	inputs, parts := make([]*inputLayer, tokens), make([]part, tokens)
	for i := range inputs {
		inputs[i] = b.inputLayer(fmt.Sprintf("in-%d", i), hidden, s, []int{i})
		parts[i] = part{fmt.Sprintf("token-%d", i), i * hidden, (i + 1) * hidden}
	}
	h, _ := b.layerNorm("in.norm", b.readInput(inputs...), hidden)
	b.relu(dropout{probability, projectionDropout}, h)
	h, _ = b.layerNorm("token.norm", b.eachPart(hidden, h, parts...), hidden)
	b.relu(dropout{probability, tokenDropout}, h)
	z := b.addScaled("beta", h, b.attention("attention", h, tokens, s.Settings.integer("heads"), 1), tokens)
	y := b.dense(newLinear(&b.params, "fusion", hidden, tokens*hidden), z, 0)
	b.relu(dropout{probability, fusionDropout}, y)
	return b.mlp(y, s.Classes, hidden, s.Settings.integer("layers")-2, probability)
}

// part is consecutive columns of an activation, which are an input of a layer.
type part struct {
	name     string // of the layer
	from, to int
}

// eachPart adds a linear layer of its own on each part of x, and returns their outputs, of width columns each, side by
// side. The parts are all columns of x.
func (b *builder) eachPart(width int, x *activation, parts ...part) *activation {
	layers, y := make([]*linear, len(parts)), b.activation(x.level, len(parts)*width)
	for i, in := range parts {
		layers[i] = newLinear(&b.params, in.name, width, in.to-in.from)
	}
	b.add(func(p *pass) {
		for i, in := range parts {
			x := x.value(p).Columns(in.from, in.to)
			layers[i].forward(p, token(y.value(p), i, len(parts)), operand{x, 1, 0})
		}
	}, func(p *pass) {
		for i, in := range parts {
			x, gx := x.value(p).Columns(in.from, in.to), x.gradient(p).Columns(in.from, in.to)
			gy := token(y.gradient(p), i, len(parts))
			layers[i].backward(p, gy, operand{x, 1, 0})
			layers[i].inputGradient(p, gx, 0, gy)
		}
	})
	return y
}

// addScaled adds x + beta * u for tokens of x and u, where beta has a number for each column and begins as zero. It
// sets the gradient of x, which the layers from x to u must add to.
func (b *builder) addScaled(name string, x, u *activation, tokens int) *activation {
	beta := b.params.declare(name, 1, x.cols/tokens, 0)
	y, product := b.activation(x.level, x.cols), b.scratch(x.level, x.cols)
	b.add(func(p *pass) {
		p.Copy(y.value(p), u.value(p))
		p.MulRow(asTokens(y.value(p), tokens), beta.value)
		p.Axpy(1, x.value(p), y.value(p))
	}, func(p *pass) {
		gy := y.gradient(p)
		p.Mul(product.value(p), gy, u.value(p))
		p.SumRows(beta.grad, 1, asTokens(product.value(p), tokens))
		p.Copy(u.gradient(p), gy)
		p.MulRow(asTokens(u.gradient(p), tokens), beta.value)
		p.Copy(x.gradient(p), gy)
	})
	return y
}
