package wholegraph

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/need"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// Edges is how many edges the block of all nodes has: the graph's edges, and as many self-loops as may be added.
func Edges(m *format.Manifest, a sampling.Aggregation) int64 {
	if a == sampling.Mean {
		return m.Edges
	}
	return m.Edges + m.Nodes
}

// OpeningNeed is the host memory of Open beside the topology: the staging of features and, while all edges come, their
// sampler, the vector that is uploaded, and the block, which grows.
func OpeningNeed(m *format.Manifest, a sampling.Aggregation) need.Terms {
	edges := Edges(m, a)
	sampler := samplerBytes(m, a) + 4*max(edges, m.Nodes+1)
	return need.Terms{
		features.UploadNeed(m.Nodes, m.Features),
		{Name: "sampler of all edges", Place: need.OffHeap, Bytes: sampler, From: need.Edges, Until: need.Edges},
		{Name: "edges on their way to the device", Place: need.Heap, Bytes: 20*edges + 8*m.Nodes, From: need.Edges,
			Until: need.Edges},
	}
}

// ChunksNeed is the host memory of a graph in chunks, beside topology, features and the chunk itself: the sampler of
// all edges, and so many columns that layers put out for all nodes, with the rows that are on their way. If they are
// spilled to a scratch file, their checksums are in memory instead.
func ChunksNeed(m *format.Manifest, a sampling.Aggregation, columns int, spilled bool) need.Terms {
	const statesStaging = 2048
	all, terms := m.Nodes, need.Terms{{Name: "sampler of all edges", Place: need.OffHeap, Bytes: samplerBytes(m, a)}}
	if spilled {
		all, terms = 0, append(terms, need.OnHeap("checksums of layers of all nodes", 8*m.Nodes))
	}
	return append(terms, need.Term{Name: "layers of all nodes", Place: need.OffHeap,
		Bytes: (all + statesStaging) * int64(columns) * 4, From: need.Epoch})
}

func samplerBytes(m *format.Manifest, a sampling.Aggregation) int64 {
	return sampling.SamplersNeed("full", a, m, 1).Bytes
}
