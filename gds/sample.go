package gds

// Graph is a graph of n nodes and m edges, by destination, as operations that sample read it, and the matrix A by
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
