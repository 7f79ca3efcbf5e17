package trainer

import "github.com/hopfeed/hopfeed/loader/sampling"

// sageKind is GraphSAGE with the mean (Hamilton et al. 2017, Algorithm 1): a linear layer of a node's own
// features and of the mean of its in-neighbours, side by side.
var sageKind = graphKind(kind{
	name: "sage", about: "GraphSAGE: means of in-neighbours beside a node's own features; reads a graph",
	aggregation: sampling.Mean,
	settings:    messagePassingSettings(256, 2, 0.5, 1),
	build:       func(s Spec, b *builder) *activation { return newMessagePassing(s, b, true, alongSums) },
})
