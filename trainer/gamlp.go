package trainer

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
	z := b.recursiveAttention(x, hops, float32(s.Settings["hop-dropout"]))
	return b.mlp(z, s.Classes, hidden, s.Settings.integer("layers")-2, probability)
}

// attentionDropout is the id of the dropout of attention; layers have smaller ids.
const attentionDropout = 1 << 32

// recursiveAttention adds the attention of GAMLP over the tokens of x, and returns z [n,width]. As a score is linear in
// the sum of the tokens before, it is computed from a number for each token, a . x_j.
func (b *builder) recursiveAttention(x *activation, tokens int, probability float32) *activation {
	width := x.cols / tokens
	history := newProduct(&b.params, "attention.history", 1, width) // a
	hop := newLinear(&b.params, "attention.hop", 1, width)          // b and c
	slope := b.params.declare("attention.act.weight", 1, 1, 0)      // of PReLU below zero (He et al. 2015)
	slope.centre = 0.25
	before := b.dense(hop, x, 1) // what PReLU is applied to
	ofHistory := b.dense(history, x, 1)
	scores, weights := b.activation(0, tokens), b.activation(0, tokens)           // weights: softmax of the scores
	used, drop := b.activation(0, tokens), dropout{probability, attentionDropout} // used: weights after dropout
	// For each token, the softmax of the scores before it.
	partial := b.activation(0, tokens*tokens)
	z := b.activation(0, width)
	b.add(func(p *pass) {
		before, ofHistory, scores, weights := before.value(p), ofHistory.value(p), scores.value(p), weights.value(p)
		for t := range tokens {
			score, history := before.Columns(t, t+1), ofHistory.Columns(0, 1)
			if t > 0 {
				// The sum has room among the weights, which are set at the end.
				history = weights.Columns(t, t+1)
				earlier := token(partial.value(p), t, tokens).Columns(0, t)
				p.SoftmaxRows(earlier, scores.Columns(0, t))
				p.WeighTokens(history, earlier, ofHistory.Columns(0, t))
			}
			p.Axpy(1, history, score)
			p.PReLU(scores.Columns(t, t+1), score, slope.value)
		}
		p.SoftmaxRows(weights, scores)
		p.Copy(used.value(p), weights)
		drop.drop(p, used.value(p))
		p.WeighTokens(z.value(p), used.value(p), x.value(p))
	}, func(p *pass) {
		gbefore, gofHistory, gscores := before.gradient(p), ofHistory.gradient(p), scores.gradient(p)
		p.Fill(x.gradient(p), 0)
		p.WeighTokensGrad(used.gradient(p), x.gradient(p), z.gradient(p), used.value(p), x.value(p))
		drop.drop(p, used.gradient(p))
		p.SoftmaxRowsGrad(gscores, used.gradient(p), weights.value(p))
		p.Fill(gofHistory, 0)
		for t := tokens - 1; t >= 0; t-- {
			gscore := gbefore.Columns(t, t+1)
			p.PReLUGrad(gscore, slope.grad, gscores.Columns(t, t+1), before.value(p).Columns(t, t+1), slope.value)
			if t == 0 {
				p.Axpy(1, gscore, gofHistory.Columns(0, 1))
				break
			}
			earlier := token(partial.value(p), t, tokens).Columns(0, t)
			gearlier := token(partial.gradient(p), t, tokens).Columns(0, t)
			p.WeighTokensGrad(gearlier, gofHistory.Columns(0, t), gscore, earlier, ofHistory.value(p).Columns(0, t))
			p.SoftmaxRowsGrad(gearlier, gearlier, earlier)
			p.Axpy(1, gearlier, gscores.Columns(0, t))
		}
	})
	return z
}
