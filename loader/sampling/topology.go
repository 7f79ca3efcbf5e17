package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/format"
)

// Topology is what samplers read of a graph: the in-neighbours of nodes, and the weights of edges. Calls are for many
// nodes or edges at once, so that whoever holds the graph, be it in memory, in mapped files or on a device, can have
// many accesses on their way. Edges are numbered from 0 to Edges()-1 by destination, and for one destination by source,
// ascending.
//
// It is safe for concurrent use until Close. Arguments are valid: nodes are below Nodes(), edges
// and lists exist, and destinations are long enough.
type Topology interface {
	Nodes() int64
	Edges() int64
	Weighted() bool

	// Lists writes where the in-neighbours of each of the nodes are.
	Lists(nodes []uint32, lists []List) error
	// Read writes the source of each of the edges and, unless weights is nil, its weight.
	Read(edges []int64, sources []uint32, weights []float32) error
	// ReadLists writes the sources of all edges of the lists, one list after another, and, unless weights is nil, their
	// weights.
	ReadLists(lists []List, sources []uint32, weights []float32) error

	Close() error
}

// List is the edges of one destination: First to End-1.
type List struct{ First, End int64 }

// Degree is the number of edges.
func (l List) Degree() int64 { return l.End - l.First }

// countEdges is the number of edges of all lists.
func countEdges(lists []List) int64 {
	n := int64(0)
	for _, l := range lists {
		n += l.Degree()
	}
	return n
}

// LoadTopology reads and checks the topology (and weights) of a graph into memory; the caller
// closes it. threads 0 is parallel.Threads.
func LoadTopology(ctx context.Context, graph *format.Dir, threads int) (Topology, error) {
	c, err := graph.Topology(ctx, threads)
	if err != nil {
		return nil, err
	}
	return InMemory(c), nil
}

// InMemory is the topology that c holds, which it closes. Its lists must be checked, as format.Dir.Topology does.
func InMemory(c *format.CSC) Topology { return &loadedTopology{c} }

type loadedTopology struct{ c *format.CSC }

func (t *loadedTopology) Nodes() int64   { return t.c.Nodes() }
func (t *loadedTopology) Edges() int64   { return t.c.Edges() }
func (t *loadedTopology) Weighted() bool { return t.c.Weights != nil }
func (t *loadedTopology) Close() error   { return t.c.Close() }

func (t *loadedTopology) Lists(nodes []uint32, lists []List) error {
	offsets, lists := t.c.Offsets, lists[:len(nodes)]
	for i, v := range nodes {
		lists[i] = List{offsets[v], offsets[v+1]}
	}
	return nil
}

func (t *loadedTopology) Read(edges []int64, sources []uint32, weights []float32) error {
	pick(sources, t.c.Neighbors, edges)
	if weights != nil {
		pick(weights, t.c.Weights, edges)
	}
	return nil
}

func (t *loadedTopology) ReadLists(lists []List, sources []uint32, weights []float32) error {
	pickLists(sources, t.c.Neighbors, lists)
	if weights != nil {
		pickLists(weights, t.c.Weights, lists)
	}
	return nil
}

// pick copies the values of edges. Its loads do not depend on each other, so that a processor has
// many of them on their way at once.
func pick[T any](dst, values []T, edges []int64) {
	dst = dst[:len(edges)]
	for i, e := range edges {
		dst[i] = values[e]
	}
}

// pickLists copies the values of the edges of lists.
func pickLists[T any](dst, values []T, lists []List) {
	for _, l := range lists {
		n := copy(dst, values[l.First:l.End])
		dst = dst[n:]
	}
}
