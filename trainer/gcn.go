package trainer

import "github.com/hopfeed/hopfeed/loader/sampling"

// gcnKind is GCN (Kipf and Welling 2017) on blocks with the weights of D^-1/2 (W+I) D^-1/2.
var gcnKind = kind{
	name: "gcn", about: "graph convolutions, then a linear layer; reads a graph",
	aggregation:    sampling.Sym,
	chooseMatrices: inputOnly,
	settings:       append(messagePassingSettings(256, 2, 0.5, 0), residualSetting(0)),
	build: func(s Spec, b *builder) *activation {
		return newMessagePassing(s, b, s.Settings["residual"] == 1, alongSums)
	},
	size:     func(int) float64 { return 1 },
	defaults: Settings{Options: Options{LearningRate: 0.003, Epochs: 200, Patience: 50}, BatchRows: 1024},
	decay:    0.3,
	few:      fewNodes,
}
