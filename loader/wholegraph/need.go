package wholegraph

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Edges is how many edges the block of all nodes has: those of the graph, and as many self-loops as may be added.
func Edges(m *format.Manifest, a sampling.Aggregation) int64 {
	if a == sampling.Mean {
		return m.Edges
	}
	return m.Edges + m.Nodes
}

// OpeningBytes is the host memory that Open takes beside the topology while all edges come to the device, off the Go
// heap and on it: the sampler of all edges with what is uploaded, and the block, which grows.
func OpeningBytes(m *format.Manifest, a sampling.Aggregation) (off, heap int64) {
	edges := Edges(m, a)
	return samplerBytes(m, a) + 4*max(edges, m.Nodes+1), 20*edges + 8*m.Nodes
}

// StagingBytes is the pinned memory by way of which features come to the device as a whole.
func StagingBytes(m *format.Manifest) int64 {
	return min(stagingBytes, gds.Bytes(int(m.Nodes), m.Features, gds.Float32))
}

// ChunksBytes is the memory off the Go heap of a graph in chunks, beside topology, features and the chunk itself: the
// sampler of all edges, and so many columns that layers put out for all nodes, with the rows that are on their way.
func ChunksBytes(m *format.Manifest, a sampling.Aggregation, columns int) int64 {
	const statesStaging = 2048
	return samplerBytes(m, a) + (m.Nodes+statesStaging)*int64(columns)*4
}

func samplerBytes(m *format.Manifest, a sampling.Aggregation) int64 {
	shared, each := sampling.SamplerBytes("full", a, m.Weighted, m.Nodes, m.Edges)
	return shared + each
}
