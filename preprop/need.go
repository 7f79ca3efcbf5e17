package preprop

import (
	"context"
	"math/bits"
	"sync/atomic"
)

// nodeSet is a set of nodes, one bit each; nil is all nodes.
type nodeSet []uint64

func newNodeSet(nodes int64) nodeSet { return make(nodeSet, (nodes+63)/64) }

func (s nodeSet) has(v int64) bool { return s == nil || s[v>>6]>>(v&63)&1 != 0 }

// add is safe for concurrent use, also with has (which may miss what is being added).
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

// needed is, for hop r at index r-1, the nodes whose rows must be computed so
// that those of stored can be, at every hop: the stored ones, and the
// in-neighbours of those of the next hop. These include the nodes of the next
// hop themselves, so that self-loops make no difference.
func (p *propagator) needed(ctx context.Context, stored nodeSet, hops, threads int) ([]nodeSet, error) {
	need := make([]nodeSet, hops)
	for r := hops - 1; r >= 0; r-- {
		if r == hops-1 || stored == nil {
			need[r] = stored
			continue
		}
		next := need[r+1]
		if next == nil {
			continue // which needs all
		}
		set := append(nodeSet(nil), stored...)
		err := p.pieces(ctx, threads, func(lo, hi int64) error {
			for v := lo; v < hi; v++ {
				if !next.has(v) {
					continue
				}
				for _, u := range p.graph.In(v) {
					set.add(int64(u))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if set.count() == p.graph.Nodes() {
			set = nil
		}
		need[r] = set
	}
	return need, nil
}
