package gds

// SampleOps prepare a mini-batch of a graph on the device itself: they choose the in-edges of nodes, number the nodes
// that these come from, and gather rows of features through a cache. The graph and the features are in device memory
// or, on a device whose Info has MapsPinned, in pinned host memory, which the device then reads by itself, by unified
// virtual addressing: that is Route 1 of MorphGL (section 4.1), beside the one on which the host prepares batches and
// copies them. loader/sampling makes whole mini-batches of them, the same as its samplers on the processor.
//
// A block is sampled by CountSampled, after which the host reads how many edges there are, then
// SampleEdges and Relabel.
type SampleOps interface {
	// CountSampled counts the edges that SampleEdges chooses for nodes uint32 [1,D]: nodes[v] gets the edges offsets[v]
	// to offsets[v+1]-1. offsets are uint32 [1,D+1], and total, int64 [1,1], is the number of all edges; above 2^32-1
	// offsets have no meaning. A node that the graph has not is an error. To read, int64 [1,1], is added how many bytes
	// of Offsets, Sources and Weights CountSampled and SampleEdges read for nodes whose edges are not Cached: each 16 of
	// Offsets; both with Labor 4 for each edge of a list that is chosen among; and SampleEdges 4, or 8 with Weights, for
	// each chosen edge.
	CountSampled(offsets, total, read, nodes Tensor, g *Graph, s Sampling)
	// SampleEdges writes the edges of nodes, after CountSampled with the same arguments: the nodes
	// that they come from, sources uint32 [1,E], and their weights, float32 [1,E]. The weight of the
	// edge from u to v is the inverse of how often it is expected to be chosen, times A[v,u]: see
	// Graph. Products are rounded to float32 one by one, in the order of that formula.
	SampleEdges(sources, weights, offsets, nodes Tensor, g *Graph, s Sampling)
	// Relabel gives local ids to items, uint32 [1,E]: ids[e], of uint32 [1,E], is where items[e] is in nodes. The first
	// known of nodes, uint32 [1,N], N >= known + E, are there already, and distinct; the others of items are put behind
	// them in the order in which they come first. count, uint32 [1,1], is how many nodes there are then.
	Relabel(ids, nodes, count, items Tensor, known int)
	// GatherCached copies rows of nodes, from a cache on the device where it has them: dst[i,:] =
	// cached[slots[index[i]],:] where that slot is below cached.Rows, else src[index[i],:]; all are of one type, any
	// type. index is uint32 [1,dst.Rows] and slots uint32 [1,src.Rows]. The number of rows that came from the cache is
	// added to hits, int64 [1,1]. src may be pinned memory, as in Gather.
	GatherCached(dst, cached, src, slots, index, hits Tensor)
}

// Graph is a graph of n nodes and m edges, by destination, as SampleOps read it, and the matrix A by
// whose products with features a model sums messages: A[v,u] = s(v) w(u,v) t(u). "zero: x" means that the
// tensor may be the zero Tensor, which stands for x. Its memory is the caller's, and the values are valid:
// offsets ascend from 0 to m, sources are below n.
type Graph struct {
	Offsets Tensor // int64 [1,n+1]: the edges of node v are Offsets[v] to Offsets[v+1]-1
	Sources Tensor // uint32 [1,m]
	Weights Tensor // w, float32 [1,m]; zero: ones

	// Slots, uint32 [1,n], says which lists of edges are in a cache. With i = Slots[v] below K, the edges of v are edges
	// CachedOffsets[i] to CachedOffsets[i+1]-1 of the cache; else they are the graph's own. The cache has copies in the
	// graph's order, so results do not depend on Slots. zero: no list is cached.
	Slots         Tensor
	CachedOffsets Tensor // int64 [1,K+1]
	CachedSources Tensor // uint32 [1,c]
	CachedWeights Tensor // float32 [1,c]; zero: ones

	RowFactors    Tensor // s, float32 [1,n]; zero: ones
	Mean          bool   // s(v) is 1 / the in-degree of v, instead; 0 without in-edges
	ColumnFactors Tensor // t, float32 [1,n]; zero: ones

	// AddLoops: an edge of each node to itself is always chosen, and comes first. Where the
	// graph has none, it has w = 1. Loops, uint32 [1,n], is 1 + the place of v's self-loop in its list
	// of edges, or 0 where it has none; zero: no node has one.
	AddLoops bool
	Loops    Tensor
}

// Nodes is the number of nodes n.
func (g *Graph) Nodes() int { return max(g.Offsets.Cols, 1) - 1 }

// Sampling says which edges of a node are chosen. Random numbers are rng.At(Random, i) of
// internal/rng, so that the choice is a function of the arguments. There are d edges to choose among: all
// but a self-loop that is always chosen. With k = Fanout:
//
//   - k < 0, or k >= d unless Replace: all, in order.
//   - by default, k different ones, each subset with the same probability (Floyd; Bentley 1987): for
//     j = d-k, ..., d-1 the next random number r gives the edge floor(r (j+1) / 2^64), or j where that
//     has been chosen. Numbers go on from node to node of one call.
//   - Replace: k times the edge floor(r d / 2^64), each by the next random number.
//   - Labor: the edges from each source u with rng.At(Random, u) < floor(2^64 k / d), in order
//     (LABOR-0; Balin and Catalyurek 2023).
type Sampling struct {
	Fanout         int
	Random         uint64
	Replace, Labor bool
}
