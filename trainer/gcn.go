package trainer

import "github.com/hopfeed/hopfeed/loader/sampling"

// gcnKind is GCN (Kipf and Welling 2017) on blocks with the weights of D^-1/2 (W+I) D^-1/2.
var gcnKind = graphKind(kind{
	name: "gcn", about: "graph convolutions, then a linear layer; reads a graph",
	aggregation: sampling.Sym,
	settings:    append(messagePassingSettings(256, 2, 0.5, 0), residualSetting(0)),
	build: func(s Spec, b *builder) *activation {
		return newMessagePassing(s, b, s.Settings["residual"] == 1, alongSums)
	},
})
