package product

import (
	"context"
	"errors"
	"sort"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// StoredLists is a topology with the in-neighbours of some nodes, in memory: all others have none. The last product of
// a sequence, which computes the rows of the store alone, reads it instead of a topology on disk.
type StoredLists struct {
	Topology            // that the lists are from, which stays the caller's
	nodes     []uint32  // that have lists, ascending
	bounds    []int64   // [len(nodes)+1] where lists begin in neighbors, and the end of the last
	neighbors []uint32  // one list after another
	weights   []float32 // in the order of neighbors; nil: none
	memory    *offheap.Buffer
	offsets   *Buffers // of node ranges
}

// NewStoredLists copies the lists of nodes in two walks over graph. It returns nil, after one, if they take more than
// room bytes.
func NewStoredLists(graph Topology, nodes NodeSet, room int64, threads int, walk WalkAll) (_ *StoredLists, err error) {
	rows, most := nodes.Count(), room
	if room -= plan.StoredListBytes(rows, 0, threads, false); room < 0 {
		return nil, nil
	}
	s := &StoredLists{Topology: graph}
	if s.offsets, err = NewBuffers(threads, plan.StoredListOffsets); err != nil {
		return nil, err
	}
	if s.memory, err = offheap.Alloc(most - int64(threads)*plan.StoredListOffsets); err != nil {
		return nil, errors.Join(err, s.offsets.Free())
	}
	copied := false
	defer func() {
		if !copied {
			err = errors.Join(err, s.Close())
		}
	}()
	memory := s.memory.Bytes()
	take := func(bytes int64) (part []byte) {
		part, memory = memory[:bytes], memory[bytes:]
		return part
	}
	s.bounds, s.nodes = dtype.Int64s(take(8*(rows+1))), dtype.Uint32s(take(4 * rows))[:0]
	nodes.Each(func(v int64) { s.nodes = append(s.nodes, uint32(v)) })
	each := func(visit func(k int, b *Range, v int64)) error {
		return walk(func(b *Range) error {
			for k, end := s.first(b.First), s.first(b.First+b.Rows()); k < end; k++ {
				visit(k, b, int64(s.nodes[k]))
			}
			return nil
		})
	}
	if err = each(func(k int, b *Range, v int64) { s.bounds[k+1] = int64(len(b.In(v))) }); err != nil {
		return nil, err
	}
	for k := range s.nodes {
		s.bounds[k+1] += s.bounds[k]
	}
	edges := s.bounds[rows]
	if plan.EdgeBytes(graph.Weighted())*edges > room {
		return nil, nil
	}
	s.neighbors = dtype.Uint32s(take(4 * edges))
	if graph.Weighted() {
		s.weights = dtype.Float32s(take(4 * edges))
	}
	err = each(func(k int, b *Range, v int64) {
		copy(s.neighbors[s.bounds[k]:s.bounds[k+1]], b.In(v))
		if s.weights != nil {
			copy(s.weights[s.bounds[k]:s.bounds[k+1]], b.InWeights(v))
		}
	})
	if copied = err == nil; !copied {
		return nil, err
	}
	return s, nil
}

// first is how many nodes with lists are before node v.
func (s *StoredLists) first(v int64) int {
	return sort.Search(len(s.nodes), func(k int) bool { return int64(s.nodes[k]) >= v })
}

func (s *StoredLists) Edges() int64 { return int64(len(s.neighbors)) }

// Each is Topology.Each, without a list of coefficients: hops look these up by source.
func (s *StoredLists) Each(ctx context.Context, from int64, threads int, _ *EdgeFactors,
	body func(b *Range) error) error {
	const grain = plan.StoredListOffsets/8 - 1 // nodes
	return parallel.For(ctx, threads, s.Nodes()-from, grain, func(lo, hi int64) error {
		lo, hi = lo+from, hi+from
		buffer := s.offsets.Get()
		defer s.offsets.Put(buffer)
		b := Range{NodeRange: format.NodeRange{First: lo, Offsets: dtype.Int64s(buffer)[:hi-lo+1]}}
		k := s.first(lo)
		b.Offsets[0] = s.bounds[k]
		for v := lo; v < hi; v++ {
			if k < len(s.nodes) && int64(s.nodes[k]) == v {
				k++
			}
			b.Offsets[v-lo+1] = s.bounds[k]
		}
		b.Neighbors = s.neighbors[b.Offsets[0]:s.bounds[k]]
		if s.weights != nil {
			b.Weights = s.weights[b.Offsets[0]:s.bounds[k]]
		}
		return body(&b)
	})
}

func (s *StoredLists) Close() error { return errors.Join(s.memory.Free(), s.offsets.Free()) }

// Over is p with the lists of other nodes left out.
func (p *Propagator) Over(lists *StoredLists) *Propagator {
	other := *p
	other.Graph, other.Edges = lists, nil
	return &other
}
