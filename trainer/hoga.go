package trainer

import (
	"fmt"

	"github.com/hopfeed/hopfeed/gds"
)

// hogaKind is HOGA (Deng et al. 2024; preprop-gnn section 2.5 and Appendix A). The hops of a row are
// tokens; H = X W without a bias, with the same weights for all of them, and in each layer
//
//	H <- Dropout(ReLU(LayerNorm((H W_g) * MHA(H, H, H)))).
//
// The output is h_0 + sum over k >= 1 of a_k h_k with a = softmax over k >= 1 of w . [h_0 || h_k],
// and then an MLP: linear, ReLU, batch normalisation, dropout, linear. Of w, the half for h_0 adds
// the same to all k and cancels out, so there is the other half alone.
//
// The matrices of a hop from different operators are concatenated, with the input as hop 0 of each; an
// operator with fewer hops gives its last one again. Each matrix is centred and brought to
// elements of about one (group.measureInputs).
var hogaKind = kind{
	name: "hoga", about: "attention among the hops, gated, then an MLP",
	chooseMatrices: allHops,
	settings: []Setting{
		{Name: "hidden", Help: "number of hidden units", Default: 128, Least: 1, Below: maxWidth + 1, Integer: true},
		{Name: "layers", Help: "number of layers", Default: 1, Least: 1, Below: 257, Integer: true},
		headsSetting(1),
		{Name: "dropout", Help: "dropout probability", Default: 0.3, Least: 0, Below: 1},
	},
	check:    checkHeads,
	build:    newHOGA,
	size:     func(int) float64 { return 1 },
	defaults: Settings{Options: Options{LearningRate: 0.001, Epochs: 200, Patience: 30}, BatchRows: 512},
	decay:    0.3,
	fewDecay: 3,
	few:      func(s *Settings) { s.Values["dropout"] = 0.6 },
	// An epoch of one step leaves it far from converged when it stops, and small batches regularize.
	leastBatches: 8,
}

func newHOGA(s Spec, b *builder) *activation {
	hidden, probability := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	operators, tokens := s.byOperator(), 0
	for _, matrices := range operators {
		tokens = max(tokens, len(matrices))
	}
	in := newProduct(&b.params, "in", hidden, len(operators)*s.Features)
	var inputs []*inputLayer
	for t := range tokens {
		// What centring adds.
		bias := b.params.declare(fmt.Sprintf("in.bias-%d", t), 1, hidden, 0)
		bias.fixed = true
		var reads []read
		for o, matrices := range operators {
			reads = append(reads, read{matrices[min(t, len(matrices)-1)], 1, o * s.Features})
		}
		inputs = append(inputs, b.reader(&linear{in.weight, bias}, reads))
	}
	h := b.readInput(inputs...)
	for i := range s.Settings.integer("layers") {
		name := fmt.Sprintf("layer-%d", i+1)
		gate := newProduct(&b.params, name+".gate", hidden, hidden)
		gates := b.activation(h.cols)
		b.add(&dense{gate, h, gates, tokens, true}) // attention sets the gradient of h
		attended := b.apply(newAttention(b, name+".attention", tokens, hidden, s.Settings.integer("heads")), h, h.cols)
		fed := b.activation(h.cols)
		b.add(&gated{gates, attended, fed})
		h = b.apply(newLayerNorm(b, name+".norm", tokens, hidden), fed, h.cols)
		b.inPlace(newNonlinearity(probability, uint64(i+1)), h)
	}
	z := b.apply(newReadout(b, tokens, hidden), h, hidden)
	y := b.dense(newLinear(&b.params, "head", hidden, hidden), z)
	b.inPlace(newNonlinearity(0, 0), y)
	y = b.apply(newBatchNorm(b, "head.norm", hidden), y, hidden)
	b.inPlace(dropout{probability, 0}, y)
	return b.dense(newLinear(&b.params, "out", s.Classes, hidden), y)
}

// gated is the product of two activations, by element.
type gated struct{ a, b, y *activation }

func (l *gated) forward(p *pass) {
	a, _ := l.a.of(p)
	b, _ := l.b.of(p)
	y, _ := l.y.of(p)
	p.Mul(y, a, b)
}

func (l *gated) backward(p *pass) {
	a, ga := l.a.of(p)
	b, gb := l.b.of(p)
	_, gy := l.y.of(p)
	p.Mul(ga, gy, b)
	p.Mul(gb, gy, a)
}

// readout is h_0 + sum over k >= 1 of a_k h_k.
type readout struct {
	tokens          int
	score           *linear
	scores, weights *activation // [n, tokens]; the weight of the first is 1
}

func newReadout(b *builder, tokens, width int) *readout {
	return &readout{tokens, newProduct(&b.params, "readout", 1, width), b.activation(tokens), b.activation(tokens)}
}

func (l *readout) forward(p *pass, z, h gds.Tensor) {
	scores, _ := l.scores.of(p)
	weights, _ := l.weights.of(p)
	l.score.forward(p, asTokens(scores, l.tokens), operand{asTokens(h, l.tokens), 1, 0})
	p.Fill(weights.Columns(0, 1), 1)
	p.SoftmaxRows(weights.Columns(1, l.tokens), scores.Columns(1, l.tokens))
	p.WeighTokens(z, weights, h)
}

func (l *readout) backward(p *pass, gh, gz, h gds.Tensor) {
	_, gscores := l.scores.of(p)
	weights, gweights := l.weights.of(p)
	p.Fill(gh, 0)
	p.WeighTokensGrad(gweights, gh, gz, weights, h)
	p.Fill(gscores.Columns(0, 1), 0)
	p.SoftmaxRowsGrad(gscores.Columns(1, l.tokens), gweights.Columns(1, l.tokens), weights.Columns(1, l.tokens))
	gscores = asTokens(gscores, l.tokens)
	l.score.backward(p, gscores, operand{asTokens(h, l.tokens), 1, 0})
	l.score.inputGradient(p, asTokens(gh, l.tokens), 1, gscores)
}
