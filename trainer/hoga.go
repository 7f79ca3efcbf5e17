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
		{Name: "heads", Help: "number of attention heads, which divides that of hidden units", Default: 1, Least: 1, Below: 65, Integer: true},
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

type hoga struct {
	tokens  []*inputLayer
	h       *activation // tokens [n, tokens*hidden]
	layers  []hogaLayer
	score   *linear
	scores  *activation // [n, tokens]
	weights *activation // of tokens; 1 for the first
	z       *activation
	head    *linear
	headOut *activation // after ReLU
	norm    *batchNorm
	normed  *activation // after dropout
	dropout dropout
	out     *linear
	logits  *activation
}

type hogaLayer struct {
	tokens               int
	gate                 *linear
	attention            *attention
	norm                 *layerNorm
	act                  nonlinearity
	gates, attended, fed *activation // fed is their product
	h                    *activation
}

func newHOGA(s Spec, b *builder) model {
	hidden, dropoutP := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	m := &hoga{}
	operators, tokens := s.byOperator(), 0
	for _, matrices := range operators {
		tokens = max(tokens, len(matrices))
	}
	in := newProduct(&b.parameters, "in", hidden, len(operators)*s.Features)
	for t := range tokens {
		// What centring adds.
		bias := b.parameters.declare(fmt.Sprintf("in.bias-%d", t), 1, hidden, 0)
		bias.fixed = true
		var reads []read
		for o, matrices := range operators {
			reads = append(reads, read{matrices[min(t, len(matrices)-1)], 1, o * s.Features})
		}
		m.tokens = append(m.tokens, b.reader(&linear{in.weight, bias}, reads))
	}
	width := tokens * hidden
	m.h = b.activation(width)
	for i := range s.Settings.integer("layers") {
		name := fmt.Sprintf("layer-%d", i+1)
		m.layers = append(m.layers, hogaLayer{
			tokens:    tokens,
			gate:      newProduct(&b.parameters, name+".gate", hidden, hidden),
			attention: newAttention(b, name+".attention", tokens, hidden, s.Settings.integer("heads")),
			norm:      newLayerNorm(b, name+".norm", tokens, hidden),
			act:       newNonlinearity(dropoutP, uint64(i+1)),
			gates:     b.activation(width), attended: b.activation(width), fed: b.activation(width),
			h: b.activation(width),
		})
	}
	m.score = newProduct(&b.parameters, "readout", 1, hidden)
	m.scores, m.weights, m.z = b.activation(tokens), b.activation(tokens), b.activation(hidden)
	m.head, m.headOut = newLinear(&b.parameters, "head", hidden, hidden), b.activation(hidden)
	m.norm, m.normed = newBatchNorm(b, "head.norm", hidden), b.activation(hidden)
	m.dropout = dropout{dropoutP, 0}
	m.out, m.logits = newLinear(&b.parameters, "out", s.Classes, hidden), b.activation(s.Classes)
	return m
}

func (m *hoga) forward(p *pass) *activation {
	h, _ := m.h.of(p)
	for t, in := range m.tokens {
		in.forward(p, token(h, t, len(m.tokens)))
	}
	for _, l := range m.layers {
		h = l.forward(p, h)
	}
	tokens := len(m.tokens)
	scores, _ := m.scores.of(p)
	weights, _ := m.weights.of(p)
	z, _ := m.z.of(p)
	m.score.forward(p, asTokens(scores, tokens), operand{asTokens(h, tokens), 1, 0})
	p.Fill(weights.Columns(0, 1), 1)
	p.SoftmaxRows(weights.Columns(1, tokens), scores.Columns(1, tokens))
	p.WeighTokens(z, weights, h)

	y, _ := m.headOut.of(p)
	normed, _ := m.normed.of(p)
	logits, _ := m.logits.of(p)
	m.head.forward(p, y, operand{z, 1, 0})
	p.ReLU(y, y)
	m.norm.forward(p, normed, y)
	m.dropout.forward(p, normed)
	m.out.forward(p, logits, operand{normed, 1, 0})
	return m.logits
}

func (m *hoga) backward(p *pass) {
	z, gz := m.z.of(p)
	y, gy := m.headOut.of(p)
	normed, gnormed := m.normed.of(p)
	_, glogits := m.logits.of(p)
	m.out.backward(p, glogits, operand{normed, 1, 0})
	m.out.inputGradient(p, gnormed, 0, glogits)
	m.dropout.backward(p, gnormed)
	m.norm.backward(p, gy, gnormed, y)
	p.ReLUGrad(gy, gy, y, 1)
	m.head.backward(p, gy, operand{z, 1, 0})
	m.head.inputGradient(p, gz, 0, gy)

	tokens := len(m.tokens)
	h, gh := m.layers[len(m.layers)-1].h.of(p)
	_, gscores := m.scores.of(p)
	weights, gweights := m.weights.of(p)
	p.Fill(gh, 0)
	p.WeighTokensGrad(gweights, gh, gz, weights, h)
	p.Fill(gscores.Columns(0, 1), 0)
	p.SoftmaxRowsGrad(gscores.Columns(1, tokens), gweights.Columns(1, tokens), weights.Columns(1, tokens))
	m.score.backward(p, asTokens(gscores, tokens), operand{asTokens(h, tokens), 1, 0})
	m.score.inputGradient(p, asTokens(gh, tokens), 1, asTokens(gscores, tokens))

	for i := len(m.layers) - 1; i >= 0; i-- {
		below := m.h
		if i > 0 {
			below = m.layers[i-1].h
		}
		x, gx := below.of(p)
		m.layers[i].backward(p, gx, x)
	}
	_, gh = m.h.of(p)
	for t, in := range m.tokens {
		in.backward(p, token(gh, t, tokens))
	}
}

func (l *hogaLayer) forward(p *pass, x gds.Tensor) gds.Tensor {
	gates, _ := l.gates.of(p)
	attended, _ := l.attended.of(p)
	fed, _ := l.fed.of(p)
	h, _ := l.h.of(p)
	l.gate.forward(p, asTokens(gates, l.tokens), operand{asTokens(x, l.tokens), 1, 0})
	l.attention.forward(p, attended, x)
	p.Mul(fed, gates, attended)
	l.norm.forward(p, h, fed)
	l.act.forward(p, h)
	return h
}

// backward sets gx from the gradient in h.
func (l *hogaLayer) backward(p *pass, gx, x gds.Tensor) {
	gates, ggates := l.gates.of(p)
	attended, gattended := l.attended.of(p)
	fed, gfed := l.fed.of(p)
	h, gh := l.h.of(p)
	l.act.backward(p, gh, h)
	l.norm.backward(p, gfed, gh, fed)
	p.Mul(ggates, gfed, attended)
	p.Mul(gattended, gfed, gates)
	l.attention.backward(p, gx, gattended, x)
	ggates = asTokens(ggates, l.tokens)
	l.gate.backward(p, ggates, operand{asTokens(x, l.tokens), 1, 0})
	l.gate.inputGradient(p, asTokens(gx, l.tokens), 1, ggates)
}
