package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/units"
)

// topology is a CSC under construction, off the Go heap.
type topology struct {
	csc     format.CSC
	degrees []uint32 // [n] edges of each list that are still to be placed; later those that are left
	buffers []*offheap.Buffer
	notes   []string
}

func (t *topology) free() {
	for _, b := range t.buffers {
		_ = b.Free() // unmapping our own mapping
	}
	*t = topology{notes: t.notes}
}

// bytes is what the topology takes on disk, up to padding.
func (t *topology) bytes() int64 {
	return int64(len(t.csc.Offsets))*8 + int64(len(t.csc.Neighbors)+len(t.csc.Weights))*4
}

func (t *topology) alloc(bytes int64) ([]byte, error) {
	b, err := offheap.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
	}
	t.buffers = append(t.buffers, b)
	return b.Bytes(), nil
}

// nodeGrain is the number of lists that are sorted in one go.
const nodeGrain = 4096

// buildTopology streams the edges twice: to count in-degrees, and to put each
// edge into its list. Then each list is sorted. Unweighted edges are placed by
// all threads at once, since the order within a list is lost by sorting; weighted
// ones in input order by one, so that sorting can keep it.
func buildTopology(ctx context.Context, src Source, info Info, reverses bool, o Options) (_ *topology, err error) {
	t := &topology{}
	defer func() {
		if err != nil {
			t.free()
		}
	}()
	n := info.Nodes
	weighted := info.Weighted || o.Duplicates == SumDuplicates
	if err := planTopology(n, 0, 0, weighted, o); err != nil {
		return nil, err
	}
	degrees, err := t.alloc(4 * n)
	if err != nil {
		return nil, err
	}
	offsets, err := t.alloc(8 * (n + 1))
	if err != nil {
		return nil, err
	}
	t.degrees, t.csc.Offsets = dtype.Uint32s(degrees), dtype.Int64s(offsets)

	edges, loops, err := t.count(ctx, src, reverses, o)
	if err != nil {
		return nil, err
	}
	most := uint32(0)
	for v, d := range t.degrees {
		t.csc.Offsets[v+1] = t.csc.Offsets[v] + int64(d)
		most = max(most, d)
	}
	m := t.csc.Offsets[n]
	if err := planTopology(n, m, int64(most), weighted, o); err != nil {
		return nil, err
	}
	neighbors, err := t.alloc(4 * m)
	if err != nil {
		return nil, err
	}
	t.csc.Neighbors = dtype.Uint32s(neighbors)
	if weighted {
		weights, err := t.alloc(4 * m)
		if err != nil {
			return nil, err
		}
		if t.csc.Weights = dtype.Float32s(weights); m == 0 {
			t.csc.Weights = []float32{} // weighted, though without edges
		}
	}
	if err := t.place(ctx, src, info, edges, reverses, o); err != nil {
		return nil, err
	}
	if err := t.sort(ctx, info.Weighted, int64(most), o); err != nil {
		return nil, err
	}
	if o.Duplicates != KeepDuplicates {
		t.compact()
	}
	if merged := m - t.csc.Edges(); merged > 0 {
		verb := map[Duplicates]string{MergeDuplicates: "merged", SumDuplicates: "added up"}[o.Duplicates]
		t.notes = append(t.notes, fmt.Sprintf("%d duplicate edges were %s", merged, verb))
	}
	if loops > 0 && o.SelfLoops == DropLoops {
		t.notes = append(t.notes, fmt.Sprintf("%d self-loops were dropped", loops))
	}
	return t, nil
}

// planTopology refuses what would pass the memory limit: n nodes with m entries,
// of which the longest list has most.
func planTopology(n, m, most int64, weighted bool, o Options) error {
	needed := 12*n + 8 + 4*m + workingBytes(o)
	if weighted {
		needed += 4*m + int64(o.Threads)*12*most
	}
	if o.MemoryBytes > 0 && needed > o.MemoryBytes {
		return fmt.Errorf("%w: the topology of %d nodes and %d edges needs %v of memory, %v may be used",
			machine.ErrDoesNotFit, n, m, units.Bytes(needed), units.Bytes(o.MemoryBytes))
	}
	return nil
}

// workingBytes is a bound on the buffers that reading and writing take, and on
// the program itself.
func workingBytes(o Options) int64 { return 32<<20 + int64(o.Threads)*4<<20 }

// errChanged is returned when the second stream of edges is not the first.
var errChanged = fmt.Errorf("%w: the edges have changed while they were read", ErrInvalid)

// count counts the entries of each list into degrees.
func (t *topology) count(ctx context.Context, src Source, reverses bool, o Options) (edges, loops int64, err error) {
	task := o.Progress.Start("count edges", 0, progress.Items)
	defer task.Done()
	drop := o.SelfLoops == DropLoops
	var edgesSeen, loopsSeen atomic.Int64
	err = src.Edges(ctx, o.Threads, func(e Edges) error {
		loops := int64(0)
		for i, dst := range e.Dst {
			source := e.Src[i]
			if source == dst {
				loops++
				if drop {
					continue
				}
			} else if reverses && atomic.AddUint32(&t.degrees[source], 1) == 0 {
				return errDegree(source)
			}
			if atomic.AddUint32(&t.degrees[dst], 1) == 0 {
				return errDegree(dst)
			}
		}
		edgesSeen.Add(int64(len(e.Dst)))
		loopsSeen.Add(loops)
		task.Add(int64(len(e.Dst)))
		return nil
	})
	return edgesSeen.Load(), loopsSeen.Load(), err
}

func errDegree(v uint32) error {
	return fmt.Errorf("%w: node %d has more than %d edges", ErrInvalid, v, uint32(math.MaxUint32))
}

// place puts every edge into the list of its destination, from the front in the
// order in which it comes.
func (t *topology) place(ctx context.Context, src Source, info Info, edges int64, reverses bool, o Options) error {
	task := o.Progress.Start("place edges", edges, progress.Items)
	defer task.Done()
	drop := o.SelfLoops == DropLoops
	threads := o.Threads
	if info.Weighted {
		threads = 1
	}
	var placed atomic.Int64
	put := func(source, dst uint32) (at int64, ok bool) {
		left := atomic.AddUint32(&t.degrees[dst], math.MaxUint32) // minus one
		if left == math.MaxUint32 {
			return 0, false
		}
		at = t.csc.Offsets[dst+1] - 1 - int64(left)
		t.csc.Neighbors[at] = source
		return at, true
	}
	err := src.Edges(ctx, threads, func(e Edges) error {
		count := int64(0)
		for i, dst := range e.Dst {
			source := e.Src[i]
			if source == dst && drop {
				continue
			}
			at, ok := put(source, dst)
			if !ok {
				return errChanged
			}
			if info.Weighted {
				t.csc.Weights[at] = e.Weights[i]
			}
			count++
			if reverses && source != dst {
				if at, ok = put(dst, source); !ok {
					return errChanged
				}
				if info.Weighted {
					t.csc.Weights[at] = e.Weights[i]
				}
				count++
			}
		}
		placed.Add(count)
		task.Add(int64(len(e.Dst)))
		return nil
	})
	if err == nil && placed.Load() != t.csc.Edges() {
		err = errChanged
	}
	return err
}

// sort brings every list into ascending order, and duplicates, unless they are
// kept, to one entry; degrees then says how many entries are left.
func (t *topology) sort(ctx context.Context, weighted bool, most int64, o Options) error {
	task := o.Progress.Start("sort edges", t.csc.Edges(), progress.Items)
	defer task.Done()
	sorters := make(chan pairSorter, o.Threads)
	for range o.Threads {
		bytes := int64(0)
		if weighted {
			bytes = 12 * most
		}
		b, err := offheap.Alloc(bytes)
		if err != nil {
			return fmt.Errorf("%w: %w", machine.ErrDoesNotFit, err)
		}
		defer b.Free()
		sorters <- pairSorter{dtype.As[uint64](b.Bytes()[:bytes/12*8]), dtype.Float32s(b.Bytes()[bytes/12*8:])}
	}
	var tooLarge atomic.Int64 // 1 + the lowest node with a sum that is infinite
	err := parallel.For(ctx, o.Threads, t.csc.Nodes(), nodeGrain, func(first, end int64) error {
		s := <-sorters
		defer func() { sorters <- s }()
		for v := first; v < end; v++ {
			lo, hi := t.csc.Offsets[v], t.csc.Offsets[v+1]
			list := t.csc.Neighbors[lo:hi]
			var weights []float32
			if t.csc.Weights != nil {
				weights = t.csc.Weights[lo:hi]
			}
			if weighted {
				s.sort(list, weights)
			} else {
				slices.Sort(list)
				for i := range weights {
					weights[i] = 1
				}
			}
			if o.Duplicates == KeepDuplicates {
				continue
			}
			left, ok := mergeRuns(list, weights, o.Duplicates == SumDuplicates)
			t.degrees[v] = uint32(left)
			for old := tooLarge.Load(); !ok && (old == 0 || v+1 < old); old = tooLarge.Load() {
				tooLarge.CompareAndSwap(old, v+1)
			}
		}
		task.Add(t.csc.Offsets[end] - t.csc.Offsets[first])
		return nil
	})
	if v := tooLarge.Load(); err == nil && v > 0 {
		return fmt.Errorf("%w: the weights of duplicate edges to node %d add up to more than float32 holds", ErrInvalid, v-1)
	}
	return err
}

// compact closes the gaps that merging has left between lists.
func (t *topology) compact() {
	to := int64(0)
	for v, left := range t.degrees {
		lo := t.csc.Offsets[v]
		t.csc.Offsets[v] = to
		if to != lo {
			copy(t.csc.Neighbors[to:], t.csc.Neighbors[lo:lo+int64(left)])
			if t.csc.Weights != nil {
				copy(t.csc.Weights[to:], t.csc.Weights[lo:lo+int64(left)])
			}
		}
		to += int64(left)
	}
	t.csc.Offsets[len(t.degrees)] = to
	t.csc.Neighbors = t.csc.Neighbors[:to]
	if t.csc.Weights != nil {
		t.csc.Weights = t.csc.Weights[:to]
	}
}

// pairSorter sorts neighbours with their weights, stably. Its slices are as long
// as the longest list.
type pairSorter struct {
	keys    []uint64 // neighbour, then position
	weights []float32
}

func (s pairSorter) sort(list []uint32, weights []float32) {
	keys := s.keys[:len(list)]
	for i, u := range list {
		keys[i] = uint64(u)<<32 | uint64(i)
	}
	slices.Sort(keys)
	copy(s.weights, weights)
	for i, k := range keys {
		list[i], weights[i] = uint32(k>>32), s.weights[uint32(k)]
	}
}

// mergeRuns leaves one of each run of equal neighbours at the front of list,
// with the first weight or with the sum of all, taken in float64 in order and
// rounded once. ok is false when a sum is too large for float32.
func mergeRuns(list []uint32, weights []float32, sum bool) (left int, ok bool) {
	ok = true
	for i := 0; i < len(list); left++ {
		j := i + 1
		for j < len(list) && list[j] == list[i] {
			j++
		}
		list[left] = list[i]
		if weights != nil {
			w := weights[i]
			if sum {
				total := 0.0
				for _, x := range weights[i:j] {
					total += float64(x)
				}
				w = float32(total)
				ok = ok && !math.IsInf(float64(w), 0)
			}
			weights[left] = w
		}
		i = j
	}
	return left, ok
}
