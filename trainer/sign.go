package trainer

// signKind is SIGN (Frasca et al. 2020; preprop-gnn section 2.5): matrices of the same hop from different operators are
// concatenated, each hop has a linear layer of its own, and an MLP works on the concatenation of their outputs.
// Layers counts the linear layers on the way from input to logits. Each matrix is centred, and brought to elements of
// about one (group.measureInputs): without that, the biases drown features as small as those of rows that are divided
// by their sum.
var signKind = kind{
	name: "sign", about: "a linear layer for each hop, then an MLP on all of them",
	chooseMatrices: allHops,
	settings:       mlpSettings(0.7),
	build:          newSIGN,
	size:           func(int) float64 { return 1 },
	defaults:       Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 20}, BatchRows: 512},
	decay:          3,
	mostDecay:      0.002,
	few:            func(s *Settings) { s.LearningRate, s.Epochs, s.Patience = 0.001, 400, 50 },
}

func newSIGN(s Spec, b *builder) *activation {
	hidden, dropout := s.Settings.integer("hidden"), float32(s.Settings["dropout"])
	hops, _ := b.hopLayers(s, hidden, dropout)
	return b.mlp(hops, s.Classes, hidden, s.Settings.integer("layers")-2, dropout)
}
