package preprop

import (
	"context"
	"errors"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// topologies are the graphs that the operators of a job are made from, by
// Operator.Graph, each built once.
type topologies map[string]*topology

// topology is a CSC off the Go heap.
type topology struct {
	*format.CSC
	free func() error
}

func (t topologies) free() error {
	var err error
	for _, one := range t {
		err = errors.Join(err, one.free())
	}
	return err
}

// newTopologies makes what the operators need of the graph as it is given, which
// it takes over.
func newTopologies(ctx context.Context, given *format.CSC, operators []Operator, threads int) (topologies, error) {
	t := topologies{AsGiven: {given, given.Close}}
	uses := func(graph string) bool {
		return slices.ContainsFunc(operators, func(o Operator) bool { return o.Graph == graph })
	}
	add := func(graph string, made *topology, err error) error {
		if err == nil {
			t[graph] = made
		}
		return err
	}
	var err error
	if uses(Reverse) || uses(Undirected) {
		made, e := transpose(ctx, given, threads)
		err = add(Reverse, made, e)
	}
	if err == nil && uses(Undirected) {
		made, e := union(ctx, given, t[Reverse].CSC, threads)
		err = add(Undirected, made, e)
	}
	for graph, one := range t {
		if err == nil && !uses(graph) {
			err = one.free()
			delete(t, graph)
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.free())
	}
	return t, nil
}

// topologyBytes is the memory of a CSC.
func topologyBytes(nodes, edges int64, weighted bool) int64 {
	if weighted {
		edges *= 2
	}
	return 8*(nodes+1) + 4*edges
}

// newTopology has room for edges, and offsets that are 0.
func newTopology(nodes, edges int64, weighted bool) (*topology, error) {
	buf, err := offheap.Alloc(topologyBytes(nodes, edges, weighted))
	if err != nil {
		return nil, err
	}
	b := buf.Bytes()
	c := &format.CSC{Offsets: dtype.Int64s(b[:8*(nodes+1)]), Neighbors: dtype.Uint32s(b[8*(nodes+1):][:4*edges])}
	if weighted {
		c.Weights = dtype.Float32s(b[8*(nodes+1)+4*edges:])
	}
	return &topology{c, buf.Free}, nil
}

// bySource calls visit(lo, hi, v, i, j) for each node v, ascending, with the
// range [i, j) of v's edges that come from the nodes [lo, hi), for ranges [lo, hi)
// that cover the graph and are dealt with at the same time. So the edges of one
// source are visited by one goroutine, in ascending order of destination, and
// as stored where these are the same.
func bySource(ctx context.Context, graph *format.CSC, threads int, visit func(lo, hi, v, i, j int64)) error {
	n := graph.Nodes()
	ranges := int64(max(threads, 1))
	return parallel.For(ctx, threads, n, (n+ranges-1)/ranges, func(lo, hi int64) error {
		for v := range n {
			if v%pieceCost == 0 {
				if err := context.Cause(ctx); err != nil {
					return err
				}
			}
			i, j := graph.Offsets[v], graph.Offsets[v+1]
			if lo > 0 || hi < n {
				from, _ := slices.BinarySearch(graph.Neighbors[i:j], uint32(lo))
				to, _ := slices.BinarySearch(graph.Neighbors[i:j], uint32(hi))
				i, j = i+int64(from), i+int64(to)
			}
			visit(lo, hi, v, i, j)
		}
		return nil
	})
}

// transpose turns every edge round, by a counting sort. Parallel edges keep
// their order.
func transpose(ctx context.Context, graph *format.CSC, threads int) (*topology, error) {
	n := graph.Nodes()
	t, err := newTopology(n, graph.Edges(), graph.Weights != nil)
	if err != nil {
		return nil, err
	}
	// Where the next edge of each source goes: from the start of its list, which
	// is the sum of the sizes of those before, to the end, which is the offset.
	next := t.Offsets[1:]
	err = bySource(ctx, graph, threads, func(_, _, _, i, j int64) {
		for _, u := range graph.Neighbors[i:j] {
			if int64(u)+1 < n {
				next[u+1]++
			}
		}
	})
	for u := range next {
		if u > 0 {
			next[u] += next[u-1]
		}
	}
	if err == nil {
		err = bySource(ctx, graph, threads, func(_, _, v, i, j int64) {
			for e := i; e < j; e++ {
				u := graph.Neighbors[e]
				at := next[u]
				next[u]++
				t.Neighbors[at] = uint32(v)
				if t.Weights != nil {
					t.Weights[at] = graph.Weights[e]
				}
			}
		})
	}
	if err != nil {
		return nil, errors.Join(err, t.free())
	}
	return t, nil
}

// union is Undirected, of a graph and its transpose. It has room for as many
// edges as both have; the pages of those that it does not have are never touched.
func union(ctx context.Context, graph, reverse *format.CSC, threads int) (*topology, error) {
	n := graph.Nodes()
	t, err := newTopology(n, graph.Edges()+reverse.Edges(), graph.Weights != nil)
	if err != nil {
		return nil, err
	}
	err = parallel.For(ctx, threads, n, pieceCost, func(lo, hi int64) error {
		for v := lo; v < hi; v++ {
			t.Offsets[v+1] = int64(unionLen(graph.In(v), reverse.In(v)))
		}
		return nil
	})
	for v := range n {
		t.Offsets[v+1] += t.Offsets[v]
	}
	t.Neighbors = t.Neighbors[:t.Offsets[n]]
	if t.Weights != nil {
		t.Weights = t.Weights[:t.Offsets[n]]
	}
	if err == nil {
		err = parallel.For(ctx, threads, n, pieceCost, func(lo, hi int64) error {
			for v := lo; v < hi; v++ {
				uniteRow(t.CSC, graph, reverse, v)
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, t.free())
	}
	return t, nil
}

// unionLen is the length of the union of ascending lists in which each element
// occurs as often as in the list that has it more often.
func unionLen(a, b []uint32) int {
	same := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			same++
			i++
			j++
		}
	}
	return len(a) + len(b) - same
}

// uniteRow fills the list of node v.
func uniteRow(t, graph, reverse *format.CSC, v int64) {
	i, iEnd := graph.Offsets[v], graph.Offsets[v+1]
	j, jEnd := reverse.Offsets[v], reverse.Offsets[v+1]
	for at := t.Offsets[v]; at < t.Offsets[v+1]; at++ {
		in := i < iEnd && (j == jEnd || graph.Neighbors[i] <= reverse.Neighbors[j])
		out := j < jEnd && (i == iEnd || reverse.Neighbors[j] <= graph.Neighbors[i])
		if in {
			t.Neighbors[at] = graph.Neighbors[i]
		} else {
			t.Neighbors[at] = reverse.Neighbors[j]
		}
		switch {
		case t.Weights == nil:
		case in && out:
			t.Weights[at] = max(graph.Weights[i], reverse.Weights[j])
		case in:
			t.Weights[at] = graph.Weights[i]
		default:
			t.Weights[at] = reverse.Weights[j]
		}
		if in {
			i++
		}
		if out {
			j++
		}
	}
}
