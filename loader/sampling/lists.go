package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/parallel"
)

// chunkNodes is the number of lists that are read at a time: few enough for their edges to stay in the caches of a
// core, and enough for each pass over them to have many memory accesses on their way.
const chunkNodes = 512

// chunkEdges bounds the edges that are read or chosen at a time, unless a single node has more: the lists of many hubs
// would take memory without bound.
const chunkEdges = 1 << 20

// listReader reads the adjacency lists of nodes, some at a time. It uses its memory again.
type listReader struct {
	topology Topology
	lists    []List
	sources  []uint32 // of all edges of the lists
	weights  []float32
}

// next reads where the lists of the first of some nodes are, and returns these nodes. bound says how many edges of a
// list of d will be read or chosen.
func (r *listReader) next(ctx context.Context, nodes []uint32, bound func(d int64) int64) ([]uint32, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	nodes = nodes[:min(chunkNodes, len(nodes))]
	r.lists = resize(r.lists, len(nodes))
	if err := r.topology.Lists(nodes, r.lists); err != nil {
		return nil, err
	}
	edges := int64(0)
	for i, l := range r.lists {
		if edges += bound(l.Degree()); edges > chunkEdges && i > 0 {
			r.lists = r.lists[:i]
			return nodes[:i], nil
		}
	}
	return nodes, nil
}

// read reads the sources of all edges of the lists, and their weights if these are wanted.
func (r *listReader) read(weighted bool) error {
	edges := int(countEdges(r.lists))
	r.sources = resize(r.sources, edges)
	if !weighted {
		return r.topology.ReadLists(r.lists, r.sources, nil)
	}
	r.weights = resize(r.weights, edges)
	return r.topology.ReadLists(r.lists, r.sources, r.weights)
}

// visit calls do with each node's in-neighbours and, if these are wanted, the weights of their edges, which are nil
// otherwise. The slices are valid in the call.
func (r *listReader) visit(ctx context.Context, nodes []uint32, weighted bool, do visitor) error {
	for len(nodes) > 0 {
		some, err := r.next(ctx, nodes, func(d int64) int64 { return d })
		if err == nil {
			err = r.read(weighted)
		}
		if err != nil {
			return err
		}
		at := int64(0)
		for i, v := range some {
			end := at + r.lists[i].Degree()
			if weighted {
				do(v, r.sources[at:end], r.weights[at:end])
			} else {
				do(v, r.sources[at:end], nil)
			}
			at = end
		}
		nodes = nodes[len(some):]
	}
	return nil
}

// visitor gets a node's list.
type visitor func(v uint32, sources []uint32, weights []float32)

// lists is how many lists of in-neighbours a topology has: one a node, or one for each relation to the type of a node.
func lists(t Topology) int64 {
	if typed, ok := t.(*typedTopology); ok {
		return typed.size.Rows
	}
	return t.Nodes()
}

// visitLists calls do with all lists, from several goroutines: see listReader.visit.
func visitLists(ctx context.Context, t Topology, threads int, weighted bool, do visitor) error {
	return parallel.For(ctx, threads, lists(t), 8*chunkNodes, func(lo, hi int64) error {
		nodes := make([]uint32, hi-lo)
		for i := range nodes {
			nodes[i] = uint32(lo) + uint32(i)
		}
		r := listReader{topology: t}
		return r.visit(ctx, nodes, weighted, do)
	})
}
