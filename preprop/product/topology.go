package product

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Topology is the adjacency matrix of a graph, in memory or on disk: the in-neighbours of each node. It is read in
// node ranges of consecutive nodes.
type Topology interface {
	Nodes() int64
	Sources() int64 // that edges come from: the nodes, or in a relation between two types those of the other type
	Edges() int64
	Weighted() bool
	// Each calls body, from up to threads goroutines, with node ranges that cover the nodes from a first one on (the
	// first node range may begin before) and have about as many edges and nodes, so that a few nodes of high degree
	// do not keep one goroutine busy when the others are done. Node ranges are begun in ascending order. A range that
	// is begun is finished; after an error none is begun. A node range is valid until body returns. Where list is not
	// nil, node ranges come with their part of it.
	Each(ctx context.Context, from int64, threads int, list *EdgeFactors, body func(b *Range) error) error
	// InOrder calls body with node ranges that cover the nodes [lo, hi), ascending.
	InOrder(ctx context.Context, lo, hi int64, body func(b *format.NodeRange) error) error
	Close() error
}

// MemoryTopology is a topology in memory.
type MemoryTopology struct{ *format.CSC }

func (r *MemoryTopology) Weighted() bool { return r.Weights != nil }

func (r *MemoryTopology) Each(ctx context.Context, from int64, threads int, list *EdgeFactors,
	body func(b *Range) error) error {
	return r.EachTask(ctx, from, threads, plan.TaskCost, list, body)
}

// EachTask is Each with node ranges of about cost edges and nodes.
func (r *MemoryTopology) EachTask(ctx context.Context, from int64, threads int, cost int64, list *EdgeFactors,
	body func(b *Range) error) error {
	n := r.Nodes()
	start := from // in cost
	if from > 0 {
		start += r.Offsets[from]
	}
	first := func(cost int64) int64 {
		return int64(sort.Search(int(n), func(v int) bool { return r.Offsets[v]+int64(v) >= cost }))
	}
	return parallel.For(ctx, threads, n+r.Edges()-start, cost, func(lo, hi int64) error {
		b := Range{NodeRange: r.Range(first(start+lo), first(start+hi))}
		if list != nil {
			if err := list.of(&b, 0, nil); err != nil {
				return err
			}
		}
		return body(&b)
	})
}

func (r *MemoryTopology) InOrder(ctx context.Context, lo, hi int64, body func(b *format.NodeRange) error) error {
	for lo < hi {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cost := r.Offsets[lo] + lo + plan.OrderedCost
		next := lo + max(1, int64(sort.Search(int(hi-lo), func(i int) bool {
			v := lo + int64(i) + 1
			return r.Offsets[v]+v > cost
		})))
		b := r.Range(lo, next)
		if err := body(&b); err != nil {
			return err
		}
		lo = next
	}
	return nil
}

// DiskTopology is a topology on disk. If it is not checked yet (format.TopologyFile.Check), the first walk does that,
// one node range after another. Hold keeps its first node ranges in memory too.
type DiskTopology struct {
	*format.TopologyFile
	Remove func() error // its files; nil: they are the graph's
	memory *offheap.Buffer
	held   []heldRange // the first node ranges
}

// heldRange is a node range that stays in memory once it is read.
type heldRange struct {
	format.NodeRange // without offsets until it is read
	place            []byte
}

// Hold keeps the first node ranges, as many as fit in bytes, in memory from when a walk first reads them.
func (s *DiskTopology) Hold(bytes int64) (err error) {
	total := int64(0)
	for len(s.held) < s.Ranges() && total+plan.Aligned(s.BytesOf(len(s.held))) <= bytes {
		total += plan.Aligned(s.BytesOf(len(s.held)))
		s.held = append(s.held, heldRange{})
	}
	if s.memory, err = offheap.Alloc(total); err != nil {
		return err
	}
	free := s.memory.Bytes()
	for k := range s.held {
		s.held[k].place, free = free[:s.BytesOf(k)], free[plan.Aligned(s.BytesOf(k)):]
	}
	return nil
}

// read returns node range k, in memory that holds it or in buffer, which has BufferBytes(k). Two calls for one node
// range must not run at a time.
func (s *DiskTopology) read(k int, buffer []byte) (format.NodeRange, error) {
	if k >= len(s.held) {
		return s.ReadRange(k, buffer)
	}
	h := &s.held[k]
	if h.Offsets == nil {
		read, err := s.ReadRange(k, buffer)
		if err != nil {
			return read, err
		}
		h.NodeRange = read.CopyTo(h.place)
	}
	return h.NodeRange, nil
}

// check checks the topology, and calls visit with its node ranges.
func (s *DiskTopology) check(ctx context.Context, visit func(b *format.NodeRange) error) error {
	return s.Check(ctx, func(k int, b *format.NodeRange) error {
		if k < len(s.held) {
			s.held[k].NodeRange = b.CopyTo(s.held[k].place)
		}
		return visit(b)
	})
}

func (s *DiskTopology) Close() error {
	err := s.TopologyFile.Close()
	if s.memory != nil {
		err = errors.Join(err, s.memory.Free())
	}
	if s.Remove != nil {
		err = errors.Join(err, s.Remove())
	}
	return err
}

// rangeAt is the index of the node range that has a node, or the number of node ranges if none has.
func (s *DiskTopology) rangeAt(node int64) int {
	return sort.Search(s.Ranges(), func(k int) bool { first, _ := s.Bounds(k + 1); return first > node })
}

func (s *DiskTopology) Each(ctx context.Context, from int64, threads int, list *EdgeFactors,
	body func(b *Range) error) error {
	if !s.Checked() && from == 0 && list == nil {
		return s.check(ctx, func(b *format.NodeRange) error { return body(&Range{NodeRange: *b}) })
	}
	bytes := func(topology int64) int64 {
		if list == nil {
			return topology
		}
		return plan.ListedRange(topology)
	}
	readers := plan.DiskReaders(threads)
	buffers, err := NewBuffers(readers, bytes(min(s.RangeBytes(), plan.LargestRange)))
	if err != nil {
		return err
	}
	defer buffers.Free()
	shared := buffers
	if s.RangeBytes() > plan.LargestRange {
		if shared, err = NewBuffers(1, bytes(s.RangeBytes())); err != nil {
			return err
		}
		defer shared.Free()
	}
	start := 0
	if from > 0 {
		start = s.rangeAt(from)
	}
	return parallel.For(ctx, readers, int64(s.Ranges()-start), 1, func(at, _ int64) error {
		k, free := start+int(at), buffers
		if s.BufferBytes(k) > plan.LargestRange {
			free = shared
		}
		buffer := free.Get()
		defer free.Put(buffer)
		read, err := s.read(k, buffer)
		if err != nil {
			return err
		}
		b := Range{NodeRange: read}
		if list != nil {
			if err := list.of(&b, k, buffer[s.BufferBytes(k):]); err != nil {
				return err
			}
		}
		return body(&b)
	})
}

func (s *DiskTopology) InOrder(ctx context.Context, lo, hi int64, body func(b *format.NodeRange) error) error {
	if !s.Checked() && lo == 0 && hi == s.Nodes() {
		return s.check(ctx, body)
	}
	buf, err := offheap.Alloc(s.RangeBytes())
	if err != nil {
		return err
	}
	defer buf.Free()
	for k := s.rangeAt(lo); k < s.Ranges(); k++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if first, _ := s.Bounds(k); first >= hi {
			return nil
		}
		b, err := s.read(k, buf.Bytes())
		if err != nil {
			return err
		}
		b = b.Slice(max(lo, b.First), min(hi, b.First+b.Rows()))
		if err := body(&b); err != nil {
			return err
		}
	}
	return nil
}

// NewMemoryTopology allocates a topology; its offsets are 0.
func NewMemoryTopology(nodes, edges int64, weighted bool) (*MemoryTopology, error) {
	c, err := format.NewCSC(nodes, edges, weighted)
	return &MemoryTopology{c}, err
}

// bySource calls visit(lo, hi, b, v, i, j) for each node v, ascending, with the range [i, j) of b.In(v) that comes
// from the nodes [lo, hi), for ranges [lo, hi) that cover [from, to) and are dealt with at the same time. So the
// edges of one source are visited by one goroutine at a time, in ascending order of destination, and as stored where
// these are the same. Before the first node it calls restart(lo, hi), which forgets what was visited: a walk that
// checks the topology may begin again (format.TopologyFile.Check). nil: it is checked.
func bySource(ctx context.Context, graph Topology, from, to int64, threads int, restart func(lo, hi int64),
	visit func(lo, hi int64, b *format.NodeRange, v int64, i, j int)) error {
	n := graph.Sources()
	grain := max(1, (to-from+int64(threads)-1)/int64(max(threads, 1)))
	return graph.InOrder(ctx, 0, graph.Nodes(), func(b *format.NodeRange) error {
		return parallel.For(ctx, threads, to-from, grain, func(lo, hi int64) error {
			lo, hi = lo+from, hi+from
			if b.First == 0 && restart != nil {
				restart(lo, hi)
			}
			for v := b.First; v < b.First+b.Rows(); v++ {
				list := b.In(v)
				i, j := 0, len(list)
				if lo > 0 {
					i, _ = slices.BinarySearch(list, uint32(lo))
				}
				if hi < n {
					j, _ = slices.BinarySearch(list, uint32(hi))
				}
				visit(lo, hi, b, v, i, j)
			}
			return nil
		})
	})
}

// Derive makes the graph of an operator, Reverse or Undirected, from the one that is given, and calls emit with its
// node ranges, ascending, which are valid until emit returns. It passes over what is given once to count, and once
// (Undirected: and a part more) for each run of nodes whose edges, turned round, fit into room bytes.
func Derive(ctx context.Context, given Topology, kind string, room int64, threads int,
	emit func(b *format.NodeRange) error) error {
	n := given.Nodes()
	buf, err := offheap.Alloc(8 * (n + 1))
	if err != nil {
		return err
	}
	defer buf.Free()
	offsets := dtype.Int64s(buf.Bytes())
	// Where the next edge of each source goes. It begins at the start of its list, the sum of the sizes of the lists
	// before, and ends at the offset.
	next := offsets[1:]
	restart := func(lo, hi int64) { clear(next[lo+1 : min(hi+1, n)]) }
	err = bySource(ctx, given, 0, n, threads, restart, func(_, _ int64, b *format.NodeRange, v int64, i, j int) {
		for _, u := range b.In(v)[i:j] {
			if int64(u)+1 < n {
				next[u+1]++
			}
		}
	})
	if err != nil {
		return err
	}
	for u := range next {
		if u > 0 {
			next[u] += next[u-1]
		}
	}
	for lo := int64(0); lo < n; {
		most := next[lo] + max(room/plan.EdgeBytes(given.Weighted()), 1)
		hi := lo + max(1, int64(sort.Search(int(n-lo), func(i int) bool {
			v := lo + int64(i) + 1 // the run [lo, v]
			return v == n && given.Edges() > most || v < n && next[v] > most
		})))
		if err := deriveRun(ctx, given, kind, offsets, lo, hi, threads, emit); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// deriveRun is derive for the nodes [lo, hi). offsets[v+1] is where the list of node v starts for v >= lo, and
// afterwards where it ends for v < hi.
func deriveRun(ctx context.Context, given Topology, kind string, offsets []int64, lo, hi int64, threads int,
	emit func(b *format.NodeRange) error) error {
	n, next := given.Nodes(), offsets[1:]
	first, end := next[lo], given.Edges()
	if hi < n {
		end = next[hi]
	}
	buf, err := offheap.Alloc(plan.EdgeBytes(given.Weighted()) * (end - first))
	if err != nil {
		return err
	}
	defer buf.Free()
	neighbors := dtype.Uint32s(buf.Bytes()[:4*(end-first)])
	var weights []float32
	if given.Weighted() {
		weights = dtype.Float32s(buf.Bytes()[4*(end-first):])
	}
	err = bySource(ctx, given, lo, hi, threads, nil, func(_, _ int64, b *format.NodeRange, v int64, i, j int) {
		w := b.InWeights(v)
		for e, u := range b.In(v)[i:j] {
			at := next[u] - first
			next[u]++
			neighbors[at] = uint32(v)
			if w != nil {
				weights[at] = w[i+e]
			}
		}
	})
	if err != nil {
		return err
	}
	reverse := format.NodeRange{First: lo, Offsets: offsets[lo : hi+1], Neighbors: neighbors, Weights: weights}
	if kind == operator.Reverse {
		return emit(&reverse)
	}
	return given.InOrder(ctx, lo, hi, func(b *format.NodeRange) error {
		other := reverse.Slice(b.First, b.First+b.Rows())
		return union(ctx, b, &other, threads, emit)
	})
}

// union calls emit with the Undirected lists of some nodes, made from their lists in a graph and in its reverse.
func union(ctx context.Context, graph, reverse *format.NodeRange, threads int,
	emit func(b *format.NodeRange) error) error {
	rows := graph.Rows()
	made := func() *format.NodeRange { return new(format.NodeRange) }
	some := func(k int64, out *format.NodeRange) (*format.NodeRange, error) {
		out.First = graph.First + k*plan.TaskCost
		out.Offsets, out.Neighbors, out.Weights = append(out.Offsets[:0], 0), out.Neighbors[:0], out.Weights[:0]
		for v := out.First; v < min(out.First+plan.TaskCost, graph.First+rows); v++ {
			unite(out, graph.In(v), reverse.In(v), graph.InWeights(v), reverse.InWeights(v))
			out.Offsets = append(out.Offsets, int64(len(out.Neighbors)))
		}
		return out, nil
	}
	return parallel.Ordered(ctx, threads, (rows+plan.TaskCost-1)/plan.TaskCost, made, some, emit)
}

// unite appends the union of the ascending lists a and b to out: each element as often as in the list that has it more
// often, with the larger of the weights, if there are any, where both have it.
func unite(out *format.NodeRange, a, b []uint32, ofA, ofB []float32) {
	for i, j := 0, 0; i < len(a) || j < len(b); {
		inA := i < len(a) && (j == len(b) || a[i] <= b[j])
		inB := j < len(b) && (i == len(a) || b[j] <= a[i])
		var u uint32
		weight := float32(math.Inf(-1))
		if inA {
			u = a[i]
			if ofA != nil {
				weight = ofA[i]
			}
			i++
		}
		if inB {
			u = b[j]
			if ofB != nil {
				weight = max(weight, ofB[j])
			}
			j++
		}
		out.Neighbors = append(out.Neighbors, u)
		if ofA != nil {
			out.Weights = append(out.Weights, weight)
		}
	}
}
