package trainer

import "github.com/hopfeed/hopfeed/gds"

// gamlpKind is GAMLP with recursive attention (Zhang et al. 2022, section 4.2). Each hop has a linear layer with ReLU
// and dropout of its own, as in SIGN; x_t is its output for a row. The score of hop t depends on the sum of the hops
// before it,
//
//	s_t = PReLU(a . sum over j < t of softmax(s_0 ... s_(t-1))_j x_j + b . x_t + c),
//
// where the sum is x_0 for the first hop. An MLP works on z = sum over t of softmax(s)_t x_t. The last softmax may have
// dropout, as in the authors' program: without it, with few training rows, attention goes to the hop that is easiest to
// learn by heart, mostly the input. Matrices are scaled as in SIGN.
var gamlpKind = kind{
	name: "gamlp", about: "a linear layer for each hop, recursive attention over hops, then an MLP",
	chooseMatrices: allHops,
	settings: append(mlpSettings(0.5),
		Setting{Name: "hop-dropout", Help: "dropout probability of hops, in their sum", Default: 0, Least: 0,
			Below: 1}),
	build:     newGAMLP,
	size:      func(int) float64 { return 1 },
	defaults:  Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 20}, BatchRows: 512},
	decay:     3,
	mostDecay: 0.002,
	few: func(s *Settings) {
		s.Epochs, s.Patience = 400, 50
		s.Values["hop-dropout"] = 0.5
	},
}

func newGAMLP(s Spec, b *builder) *activation {
	hidden, probability := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	x, hops := b.hopLayers(s, hidden, probability)
	z := b.apply(newRecursiveAttention(b, hops, hidden, float32(s.Settings["hop-dropout"])), x, hidden)
	return b.mlp(z, s.Classes, hidden, s.Settings.integer("layers")-2, probability)
}

// attentionDropout is the id of the dropout of attention; layers have smaller ids.
const attentionDropout = 1 << 32

// recursiveAttention sums up tokens. As a score is linear in the sum of the tokens before, it is
// computed from a number for each token, a . x_j.
type recursiveAttention struct {
	tokens       int
	history, hop *linear // a; b and c
	act          prelu
	ofHistory    *activation // a . x_j, [n, tokens]
	before       *activation // what act is applied to
	scores       *activation
	weights      *activation // softmax of the scores
	used         *activation // the weights after dropout
	dropout      dropout
	partial      *activation // for each token, the softmax of the scores before it: [n, tokens*tokens]
}

func newRecursiveAttention(b *builder, tokens, width int, probability float32) *recursiveAttention {
	return &recursiveAttention{
		tokens:    tokens,
		history:   newProduct(&b.params, "attention.history", 1, width),
		hop:       newLinear(&b.params, "attention.hop", 1, width),
		act:       newPReLU(&b.params, "attention.act"),
		ofHistory: b.activation(tokens),
		before:    b.activation(tokens),
		scores:    b.activation(tokens),
		weights:   b.activation(tokens),
		used:      b.activation(tokens),
		dropout:   dropout{probability, attentionDropout},
		partial:   b.activation(tokens * tokens),
	}
}

// forward sets z [n,width], for tokens x.
func (l *recursiveAttention) forward(p *pass, z, x gds.Tensor) {
	ofHistory, _ := l.ofHistory.of(p)
	before, _ := l.before.of(p)
	scores, _ := l.scores.of(p)
	weights, _ := l.weights.of(p)
	partial, _ := l.partial.of(p)
	all := operand{asTokens(x, l.tokens), 1, 0}
	l.history.forward(p, asTokens(ofHistory, l.tokens), all)
	l.hop.forward(p, asTokens(before, l.tokens), all)
	for t := range l.tokens {
		score, history := before.Columns(t, t+1), ofHistory.Columns(0, 1)
		if t > 0 {
			// The sum has room among the weights, which are set at the end.
			history = weights.Columns(t, t+1)
			earlier := token(partial, t, l.tokens).Columns(0, t)
			p.SoftmaxRows(earlier, scores.Columns(0, t))
			p.WeighTokens(history, earlier, ofHistory.Columns(0, t))
		}
		p.Axpy(1, history, score)
		l.act.forward(p, scores.Columns(t, t+1), score)
	}
	p.SoftmaxRows(weights, scores)
	used, _ := l.used.of(p)
	p.Copy(used, weights)
	l.dropout.forward(p, used)
	p.WeighTokens(z, used, x)
}

func (l *recursiveAttention) backward(p *pass, gx, gz, x gds.Tensor) {
	ofHistory, gofHistory := l.ofHistory.of(p)
	before, gbefore := l.before.of(p)
	_, gscores := l.scores.of(p)
	weights, _ := l.weights.of(p)
	used, gused := l.used.of(p)
	partial, gpartial := l.partial.of(p)
	p.Fill(gx, 0)
	p.WeighTokensGrad(gused, gx, gz, used, x)
	l.dropout.backward(p, gused, used)
	p.SoftmaxRowsGrad(gscores, gused, weights)
	p.Fill(gofHistory, 0)
	for t := l.tokens - 1; t >= 0; t-- {
		gscore := gbefore.Columns(t, t+1)
		l.act.backward(p, gscore, gscores.Columns(t, t+1), before.Columns(t, t+1))
		if t == 0 {
			p.Axpy(1, gscore, gofHistory.Columns(0, 1))
			break
		}
		earlier, gearlier := token(partial, t, l.tokens).Columns(0, t), token(gpartial, t, l.tokens).Columns(0, t)
		p.WeighTokensGrad(gearlier, gofHistory.Columns(0, t), gscore, earlier, ofHistory.Columns(0, t))
		p.SoftmaxRowsGrad(gearlier, gearlier, earlier)
		p.Axpy(1, gearlier, gscores.Columns(0, t))
	}
	all := operand{asTokens(x, l.tokens), 1, 0}
	for _, part := range []struct {
		layer *linear
		grad  gds.Tensor
	}{{l.history, gofHistory}, {l.hop, gbefore}} {
		grad := asTokens(part.grad, l.tokens)
		part.layer.backward(p, grad, all)
		part.layer.inputGradient(p, asTokens(gx, l.tokens), 1, grad)
	}
}
