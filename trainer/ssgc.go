package trainer

import "math"

// ssgcKind is Simple Spectral Graph Convolution (Zhu and Koniusz 2021, Equation 5): a linear
// classifier on the mean of the hops, with a share alpha of the input,
// (1-alpha)/R * (X_1 + ... + X_R) + alpha * X. With several operators their means are
// concatenated. Matrices are scaled as those of sgc.
var ssgcKind = kind{
	name: "ssgc", about: "one linear layer on the mean of all hops",
	chooseMatrices: allHops,
	settings: []Setting{
		{Name: "alpha", Help: "share of the input in the mean of hops", Default: 0.05, Least: 0, Below: 1},
	},
	build:    newSSGC,
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
				reads = append(reads, read{i, by, o * s.Features})
			}
		}
	}
	l := newLinear(&b.params, "out", s.Classes, len(operators)*s.Features)
	return b.readInput(b.reader(l, reads))
}
