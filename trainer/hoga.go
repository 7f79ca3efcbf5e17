package trainer

import "fmt"

// hogaKind is HOGA (Deng et al. 2024; preprop-gnn section 2.5 and Appendix A). The hops of a row are
// tokens; H = X W without a bias, with the same weights for all of them, and in each layer
//
//	H <- Dropout(ReLU(LayerNorm((H W_g) * MHA(H, H, H)))).
//
// The output is h_0 + sum over k >= 1 of a_k h_k with a = softmax over k >= 1 of w . [h_0 || h_k],
// and then an MLP: linear, ReLU, batch normalisation, dropout, linear. The half of w for h_0 adds
// the same to all k and cancels out, so only the other half is there.
//
// The matrices of a hop from different operators are concatenated, with the input as hop 0 of each; an
// operator with fewer hops gives its last one again. Each matrix is centred and brought to
// elements of about one (group.measureInputs).
var hogaKind = kind{
	name: "hoga", about: "attention among the hops, gated, then an MLP",
	chooseMatrices: allHops,
	settings: []Setting{hiddenSetting(128), layersSetting(1, 1, 257), headsSetting(1), dropoutSetting(0.3),
		printedSetting()},
	check:    checkHeads,
	build:    newHOGA,
	size:     func(int) float64 { return 1 },
	oneWidth: true,
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
	in := newProduct(&b.params, "in", hidden, len(operators)*s.Width(0))
	var inputs []*inputLayer
	for t := range tokens {
		// What centring adds.
		bias := b.params.declare(fmt.Sprintf("in.bias-%d", t), 1, hidden, 0)
		bias.fixed = true
		var reads []read
		for o, matrices := range operators {
			reads = append(reads, read{matrices[min(t, len(matrices)-1)], 1, o * s.Width(0)})
		}
		inputs = append(inputs, b.reader(&linear{weight: in.weight, bias: bias}, reads))
	}
	h := b.readInput(inputs...)
	for i := range s.Settings.integer("layers") {
		name := fmt.Sprintf("layer-%d", i+1)
		gates := b.dense(newProduct(&b.params, name+".gate", hidden, hidden), h, 1) // attention sets the gradient of h
		attended := b.attention(name+".attention", h, tokens, s.Settings.integer("heads"), 0)
		h, _ = b.layerNorm(name+".norm", b.multiply(gates, attended), hidden)
		b.relu(dropout{probability, uint64(i + 1)}, h)
	}
	z := b.readout(h, tokens)
	y := b.dense(newLinear(&b.params, "head", hidden, hidden), z, 0)
	b.relu(dropout{}, y)
	y = b.batchNorm("head.norm", y)
	b.dropout(dropout{probability, 0}, y)
	return b.dense(newLinear(&b.params, "out", s.Classes, hidden), y, 0)
}

// attention adds multi-head attention among the tokens of x, with the parameters of PyTorch's nn.MultiheadAttention,
// and returns its output, of the shape of x. The gradient of x becomes its gradient so far times beta, plus the
// layer's.
func (b *builder) attention(name string, x *activation, tokens, heads int, beta float32) *activation {
	width := x.cols / tokens
	in, out := newLinear(&b.params, name+".in", 3*width, width), newLinear(&b.params, name+".out", width, width)
	qkv := b.dense(in, x, beta)
	attended, weights := b.activation(0, x.cols), b.scratch(0, heads*tokens*tokens)
	b.add(func(p *pass) {
		p.Attention(attended.value(p), weights.value(p), qkv.value(p), tokens, heads)
	}, func(p *pass) {
		p.AttentionGrad(qkv.gradient(p), attended.gradient(p), weights.value(p), qkv.value(p), tokens, heads)
	})
	return b.dense(out, attended, 0)
}

// readout adds h_0 + sum over k >= 1 of a_k h_k, and returns it [n,width].
func (b *builder) readout(h *activation, tokens int) *activation {
	width := h.cols / tokens
	scores := b.dense(newProduct(&b.params, "readout", 1, width), h, 1)
	weights, z := b.activation(0, tokens), b.activation(0, width) // the weight of the first token is 1
	b.add(func(p *pass) {
		p.Fill(weights.value(p).Columns(0, 1), 1)
		p.SoftmaxRows(weights.value(p).Columns(1, tokens), scores.value(p).Columns(1, tokens))
		p.WeighTokens(z.value(p), weights.value(p), h.value(p))
	}, func(p *pass) {
		weights, gweights, gscores := weights.value(p), weights.gradient(p), scores.gradient(p)
		p.Fill(h.gradient(p), 0)
		p.WeighTokensGrad(gweights, h.gradient(p), z.gradient(p), weights, h.value(p))
		p.Fill(gscores.Columns(0, 1), 0)
		p.SoftmaxRowsGrad(gscores.Columns(1, tokens), gweights.Columns(1, tokens), weights.Columns(1, tokens))
	})
	return z
}
