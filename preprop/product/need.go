package product

import (
	"context"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// NodeSet is a set of nodes, one bit each; nil is all nodes.
type NodeSet []uint64

func NewNodeSet(nodes int64) NodeSet { return make(NodeSet, plan.NodeSetBytes(nodes)/8) }

func (s NodeSet) Has(v int64) bool { return s == nil || s[v>>6]>>(v&63)&1 != 0 }

// Add is safe for concurrent use, also with has, which may miss a node that is being added.
func (s NodeSet) Add(v int64) {
	if word, bit := &s[v>>6], uint64(1)<<(v&63); atomic.LoadUint64(word)&bit == 0 {
		atomic.OrUint64(word, bit)
	}
}

func (s NodeSet) count() int64 {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return int64(n)
}

// Needed returns, for each of a number of products with the operator that follow one
// another, the nodes whose rows the product must compute, so that every product can compute
// the stored ones: the nodes of the next product and their in-neighbours. The nodes of the
// next product are always included, so that self-loops and the terms of a series need no
// care.
func (p *Propagator) Needed(ctx context.Context, stored NodeSet, products, threads int) ([]NodeSet, error) {
	need := make([]NodeSet, products)
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
		err := p.Graph.Each(ctx, 0, threads, func(b *format.Block) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				if !next.Has(v) || r+2 < products && need[r+2].Has(v) {
					continue
				}
				for _, u := range b.In(v) {
					set.Add(int64(u))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		switch set.count() {
		case p.Graph.Nodes():
			set, closed = nil, true
		case next.count():
			set, closed = next, true
		}
		need[r] = set
	}
	return need, nil
}
