package preprop

import (
	"context"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
)

// nodeSet is a set of nodes, one bit each; nil is all nodes.
type nodeSet []uint64

func newNodeSet(nodes int64) nodeSet { return make(nodeSet, nodeSetBytes(nodes)/8) }

func nodeSetBytes(nodes int64) int64 { return (nodes + 63) / 64 * 8 }

func (s nodeSet) has(v int64) bool { return s == nil || s[v>>6]>>(v&63)&1 != 0 }

// add is safe for concurrent use, also with has, which may miss a node that is being added.
func (s nodeSet) add(v int64) {
	if word, bit := &s[v>>6], uint64(1)<<(v&63); atomic.LoadUint64(word)&bit == 0 {
		atomic.OrUint64(word, bit)
	}
}

func (s nodeSet) count() int64 {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return int64(n)
}

// neededCost is what the sets of needed nodes take, of which there is one for each product if a
// store has some nodes only. A topology on disk is read for each set but the last.
func (w *work) neededCost(p *Plan) cost {
	var c cost
	if w.rows == w.nodes {
		return c
	}
	longest, _ := w.graphs()
	for graph, products := range longest {
		c.add(cost{memory: during(preparing, lastPanel, int64(products)*nodeSetBytes(w.nodes))})
		if !p.TopologyInMemory {
			c.add(cost{read: int64(products-1) * w.topologyOf(graph), topologyPasses: products - 1})
		}
	}
	return c
}

// needed returns, for each of a number of products with the operator that follow one
// another, the nodes whose rows the product must compute, so that every product can compute
// the stored ones: the nodes of the next product and their in-neighbours. The nodes of the
// next product are always included, so that self-loops and the terms of a series need no
// care.
func (p *propagator) needed(ctx context.Context, stored nodeSet, products, threads int) ([]nodeSet, error) {
	need := make([]nodeSet, products)
	closed := stored == nil // earlier products need the same nodes
	for r := products - 1; r >= 0; r-- {
		if r == products-1 {
			need[r] = stored
			continue
		}
		next := need[r+1]
		if closed {
			need[r] = next
			continue
		}
		set := slices.Clone(next) // it has the in-neighbours of the nodes that the product after next needs
		err := p.graph.each(ctx, 0, threads, func(b *format.Block) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				if !next.has(v) || r+2 < products && need[r+2].has(v) {
					continue
				}
				for _, u := range b.In(v) {
					set.add(int64(u))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		switch set.count() {
		case p.graph.Nodes():
			set, closed = nil, true
		case next.count():
			set, closed = next, true
		}
		need[r] = set
	}
	return need, nil
}
