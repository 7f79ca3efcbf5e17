package trainer

import "math"

// sgcKind is Simple Graph Convolution (Wu et al. 2019; preprop-gnn section 2.5): a linear classifier on the last hop
// alone: how many hops there are is chosen on validation rows (ReadsLastHop). With several operators their last hops
// are concatenated. Each matrix is centred and multiplied by a number of its own, so that its rows have a length of
// about one (group.measureInputs): a weight decay then means the same for features of any unit, number and mean.
var sgcKind = kind{
	name:  "sgc",
	about: "one linear layer on one hop, which validation chooses",
	chooseMatrices: func(input MatrixID, last []MatrixID) []MatrixID {
		if len(last) == 0 {
			return []MatrixID{input}
		}
		return last
	},
	build: func(s Spec, b *builder) *activation {
		all := make([]int, len(s.Matrices))
		for i := range all {
			all[i] = i
		}
		return b.readInput(b.inputLayer("out", s.Classes, s, all))
	},
	size:     func(features int) float64 { return 1 / math.Sqrt(float64(features)) },
	defaults: Settings{Options: Options{LearningRate: 0.3, Epochs: 500, Patience: 50}, BatchRows: 512},
	decay:    0.1,
}
