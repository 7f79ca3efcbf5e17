package trainer

import "math"

// sgcKind is Simple Graph Convolution (Wu et al. 2019; preprop-gnn section 2.5): a linear classifier on the last hop
// alone: how many hops there are is chosen on validation rows (ReadsLastHop). With several operators their last hops
// are concatenated. Each matrix is centred and multiplied by a number of its own, so that its rows have a length of
// about one (group.measureInputs): a weight decay then means the same for features of any unit, number and mean.
var sgcKind = kind{
	name:  "sgc",
	about: "one linear layer on one hop, which validation chooses",
	chooseMatrices: func(input, last []MatrixID) []MatrixID {
		if len(last) == 0 {
			return input
		}
		return last
	},
	settings: []Setting{printedSetting()},
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

// ssgcKind is Simple Spectral Graph Convolution (Zhu and Koniusz 2021, Equation 5): a linear classifier on the mean of
// the hops, with a share alpha of the input, (1-alpha)/R * (X_1 + ... + X_R) + alpha * X. With several operators their
// means are concatenated. Matrices are scaled as for sgc.
var ssgcKind = kind{
	name: "ssgc", about: "one linear layer on the mean of all hops",
	chooseMatrices: allHops,
	settings: []Setting{
		{Name: "alpha", Help: "share of the input in the mean of hops", Default: 0.05, Least: 0, Below: 1},
		printedSetting(),
	},
	build:    newSSGC,
	oneWidth: true,
	size:     func(features int) float64 { return 1 / math.Sqrt(float64(features)) },
	defaults: Settings{Options: Options{LearningRate: 0.1, Epochs: 500, Patience: 50}, BatchRows: 512},
	decay:    0.1,
}

func newSSGC(s Spec, b *builder) *activation {
	alpha := float32(s.Settings["alpha"])
	var reads []read
	operators := s.byOperator()
	for o, matrices := range operators {
		hops := 0
		for _, i := range matrices {
			if s.Matrices[i].Hop > 0 {
				hops++
			}
		}
		for _, i := range matrices {
			by := alpha
			switch {
			case hops == 0:
				by = 1
			case s.Matrices[i].Hop > 0:
				by = (1 - alpha) / float32(hops)
			}
			if by > 0 {
				reads = append(reads, read{i, by, o * s.Width(0)})
			}
		}
	}
	l := newLinear(&b.params, "out", s.Classes, len(operators)*s.Width(0))
	return b.readInput(b.reader(l, reads))
}
