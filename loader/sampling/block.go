// Package sampling makes mini-batches for message-passing models out of a graph: samplers choose which in-neighbours of
// which nodes a batch has (preprop-gnn section 2.2), and a loader brings what they chose, with features, to a device.
package sampling

// MiniBatch is sampled around seed nodes: a bipartite graph for each layer of a model,
// and the nodes whose features it needs. Its memory is used again for later mini-batches.
type MiniBatch struct {
	// Seeds are node ids, distinct, in the order of the batch. Graph-wise samplers choose them: see Method.Sample.
	Seeds []uint32
	// Blocks are in the order in which a model computes them: the destinations of the last are the seeds, the sources
	// of each are the destinations of the one before, in the same order, and the sources of the first are Inputs.
	Blocks []Block
	// Inputs are node ids, distinct unless each seed has a tree of its own; the seeds come first unless Apart. With
	// Options.ByType they come type after type, and are numbered within their types.
	Inputs []uint32
	// SeedWeights multiply the losses of seeds, in their order; empty: ones (GraphSAINT, Zeng et al. 2020, Eq. 2).
	SeedWeights []float32
	// Trees says of each of the Inputs from which seed it was reached, with Options.Disjoint; else it is empty.
	Trees []uint32
	// Types has, with Options.ByType, the first of the Inputs of each type, in the order of format.Typed, and their
	// number.
	Types []int
}

// OfType returns the inputs of a type, which are the batch's: all, unless the batch is by type (Options.ByType).
func (b *MiniBatch) OfType(kind int) []uint32 {
	if len(b.Types) == 0 {
		return b.Inputs
	}
	return b.Inputs[b.Types[kind]:b.Types[kind+1]]
}

// Destinations are the node ids of the destinations of block i.
func (b *MiniBatch) Destinations(i int) []uint32 {
	if k := &b.Blocks[i]; len(k.Nodes) == 0 {
		return b.Inputs[:k.Destinations]
	}
	return b.Blocks[i].Nodes
}

// Block is one layer of a mini-batch: edges from sources to destinations, by destination. Nodes
// have local ids, 0 to Sources-1, and the destinations are the first of the sources, except for methods that are Apart:
// then destinations have numbers of their own, and sources are in another order. So are they with Options.ByType.
type Block struct {
	Destinations, Sources int
	// Nodes are the node ids of the destinations of a method that is Apart; else nil, since Inputs begin with them.
	Nodes []uint32
	// Offsets [Destinations+1] says where the edges of each destination are: node v has the edges Offsets[v] to
	// Offsets[v+1]-1. A block of a typed graph has a row for each list instead, Offsets [rows+1]: relation after
	// relation, in the order of format.Typed, the destinations of its type, in their order.
	Offsets []uint32
	// Indices [edges] are the local ids of the edges' sources. The sources of a destination are distinct unless the
	// sampler draws with replacement or the graph has parallel edges.
	Indices []uint32
	// Weights [edges] are coefficients: the sum of weight * feature over the edges of a destination estimates the sum
	// over all in-neighbours in the graph (see Aggregation). In a subgraph they are the weights of edges in the graph.
	Weights []float32
	// Edges [edges] are the numbers of edges in the graph, -1 of added self-loops, with Options.EdgeIDs; else nil. Those
	// of a typed graph are numbered relation after relation.
	Edges []int64
	// Parts has, in the first block of each pair that Options.ByType makes, the first destination of each part, and their
	// number; else it is empty.
	Parts []uint32
}

// Aggregation is the matrix A whose product with features blocks estimate: the edge from u to v
// has the weight A[v,u] where all edges of v are there, and A[v,u] divided by the expected number
// of times that it is drawn where they are sampled.
type Aggregation string

const (
	// Mean is D^-1 W, without self-loops unless the graph has them.
	Mean Aggregation = "mean"
	// Sym is D^-1/2 (W+I) D^-1/2 with degrees of the graph with self-loops, as in propagation.
	// A self-loop is always in the block.
	Sym Aggregation = "sym"
	// Plain is W+I: for models that find coefficients by themselves, as attention does, which
	// look at edges and not at weights.
	Plain Aggregation = "plain"
)
