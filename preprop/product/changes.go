package product

import (
	"context"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
)

// Union adds the nodes of other, which nobody changes meanwhile.
func (s NodeSet) Union(other NodeSet) {
	for i, word := range other {
		s[i] |= word
	}
}

// Each calls body with the nodes of a set that is not nil, ascending.
func (s NodeSet) Each(body func(v int64)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			body(int64(i)<<6 + int64(bits.TrailingZeros64(word)))
		}
	}
}

// ChangedLists adds to lists the nodes whose in-neighbours or weights differ between two graphs, and nodes that old
// lacks; and to sources, unless it is nil, the ends of edges that only one of the graphs has, self-loops that an
// operator adds included.
func ChangedLists(ctx context.Context, old, graph Topology, lists, sources NodeSet, threads int) error {
	compare := func(v int64, a, b []uint32, ofA, ofB []float32) {
		if slices.Equal(a, b) && slices.Equal(ofA, ofB) && v < old.Nodes() {
			return
		}
		if lists.Add(v); sources == nil {
			return
		}
		sources.Add(v) // whose self-loop may come or go
		for i, j := 0, 0; i < len(a) || j < len(b); {
			switch {
			case j == len(b) || i < len(a) && a[i] < b[j]:
				sources.Add(int64(a[i]))
				i++
			case i == len(a) || b[j] < a[i]:
				sources.Add(int64(b[j]))
				j++
			default:
				if ofA != nil && ofB != nil && ofA[i] != ofB[j] || (ofA == nil) != (ofB == nil) {
					sources.Add(int64(a[i]))
				}
				i, j = i+1, j+1
			}
		}
	}
	return graph.Each(ctx, 0, threads, nil, func(b *Range) error {
		end := b.First + b.Rows()
		for v := max(b.First, min(end, old.Nodes())); v < end; v++ {
			compare(v, nil, b.In(v), nil, b.InWeights(v))
		}
		return old.InOrder(ctx, b.First, min(end, old.Nodes()), func(o *format.NodeRange) error {
			for v := o.First; v < o.First+o.Rows(); v++ {
				compare(v, o.In(v), b.In(v), o.InWeights(v), b.InWeights(v))
			}
			return nil
		})
	})
}

// AddTargets adds to set the nodes with an in-neighbour in from.
func AddTargets(ctx context.Context, graph Topology, from, set NodeSet, threads int) error {
	if from.Count() == 0 {
		return nil
	}
	return graph.Each(ctx, 0, threads, nil, func(b *Range) error {
		for v := b.First; v < b.First+b.Rows(); v++ {
			if atomic.LoadUint64(&set[v>>6])>>(v&63)&1 != 0 {
				continue
			}
			for _, u := range b.In(v) {
				if from[u>>6]>>(u&63)&1 != 0 {
					set.Add(v)
					break
				}
			}
		}
		return nil
	})
}

// AddSources adds to set the nodes of rows and their in-neighbours, and counts these as often as they are that.
func AddSources(ctx context.Context, graph Topology, rows, set NodeSet, threads int) (terms int64, err error) {
	if rows.Count() == 0 {
		return 0, nil
	}
	var all atomic.Int64
	err = graph.Each(ctx, 0, threads, nil, func(b *Range) error {
		terms := int64(0)
		defer func() { all.Add(terms) }()
		for v := b.First; v < b.First+b.Rows(); v++ {
			if !rows.Has(v) {
				continue
			}
			set.Add(v)
			for _, u := range b.In(v) {
				set.Add(int64(u))
			}
			terms += 1 + int64(len(b.In(v)))
		}
		return nil
	})
	return all.Load(), err
}

// Numbering numbers the nodes of a set, ascending.
type Numbering struct {
	set    NodeSet
	before []uint32 // nodes before each word of the set
	Nodes  []uint32 // node of each number
}

// Number numbers the nodes of a set, which nobody changes any more.
func Number(set NodeSet) *Numbering {
	n := &Numbering{set: set, before: make([]uint32, len(set)), Nodes: make([]uint32, 0, set.Count())}
	for i := 1; i < len(set); i++ {
		n.before[i] = n.before[i-1] + uint32(bits.OnesCount64(set[i-1]))
	}
	set.Each(func(v int64) { n.Nodes = append(n.Nodes, uint32(v)) })
	return n
}

// Of is the number of a node of the set.
func (n *Numbering) Of(v int64) int64 {
	return int64(n.before[v>>6]) + int64(bits.OnesCount64(n.set[v>>6]&(1<<(v&63)-1)))
}

// Numbers is the set of the numbers of nodes of another set.
func (n *Numbering) Numbers(of NodeSet) NodeSet {
	out := NewNodeSet(int64(len(n.Nodes)))
	for i, v := range n.Nodes {
		if of.Has(int64(v)) {
			out.Add(int64(i))
		}
	}
	return out
}

// CompactBytes is the memory of a propagator that Within makes, of so many nodes and edges.
func CompactBytes(nodes, edges int64, weighted bool) int64 {
	perEdge := int64(4)
	if weighted {
		perEdge = 8
	}
	return (8+4+4)*nodes + perEdge*edges
}

// Within is the propagator on the numbers of some nodes, which computes the rows of the nodes in rows as p does: their
// terms, all among the nodes, are in the same order, with the same factors. The caller closes its graph.
func (p *Propagator) Within(ctx context.Context, n *Numbering, rows NodeSet, threads int) (*Propagator, error) {
	degrees := make([]int64, len(n.Nodes)+1)
	each := func(body func(b *Range, v, number int64)) error {
		return p.Graph.Each(ctx, 0, threads, nil, func(b *Range) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				if rows.Has(v) {
					body(b, v, n.Of(v))
				}
			}
			return nil
		})
	}
	err := each(func(b *Range, v, number int64) { degrees[number+1] = int64(len(b.In(v))) })
	if err != nil {
		return nil, err
	}
	for i := range n.Nodes {
		degrees[i+1] += degrees[i]
	}
	made, err := NewMemoryTopology(int64(len(n.Nodes)), degrees[len(n.Nodes)], p.Graph.Weighted())
	if err != nil {
		return nil, err
	}
	copy(made.Offsets, degrees)
	if err := each(func(b *Range, v, number int64) {
		at := made.Offsets[number]
		for i, u := range b.In(v) {
			made.Neighbors[at+int64(i)] = uint32(n.Of(int64(u)))
		}
		if w := b.InWeights(v); w != nil {
			copy(made.Weights[at:], w)
		}
	}); err != nil {
		made.Close()
		return nil, err
	}
	pick := func(factors []float32) (out []float32) {
		for _, v := range n.Nodes {
			if factors != nil {
				out = append(out, factors[v])
			}
		}
		return out
	}
	return &Propagator{Graph: made, Loops: p.Loops, S: pick(p.S), T: pick(p.T)}, nil
}
