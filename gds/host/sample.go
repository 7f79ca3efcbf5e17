package host

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
	"github.com/hopfeed/hopfeed/internal/choose"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// graphView holds slices of the arguments of sampling operations.
type graphView struct {
	gds.Sampling
	mean, addLoops bool
	all, cached    adjacency
	slots, loops   []uint32
	row, column    []float32
	nodes          []uint32
	starts         []uint32     // of the edges of nodes
	read, more     atomic.Int64 // bytes of all that are read now, and that SampleEdges will read
}

// adjacency is lists of edges.
type adjacency struct {
	offsets []int64
	sources []uint32
	weights []float32 // nil: ones
}

// list is the edges of a node.
type list struct {
	sources []uint32
	weights []float32
	loop    int64 // the place of the self-loop that is always chosen, or -1
	cached  bool
}

// sampleScratch is memory for sampling operations.
type sampleScratch struct {
	places  [][]int64  // of chosen edges of a node, for each thread
	taken   [][]uint64 // of choose.Subset, for each thread
	numbers []uint64   // of the first random number of each node
	keys    []uint32   // of a hash table of nodes
	ids     []uint32   // their local ids + 1; 0: no node is here
}

// viewGraph views the graph of the operation, its nodes and the offsets of their edges.
func (s *stream) viewGraph() error {
	v, f := &s.views.graph, &s.views.floats
	v.Sampling, v.mean, v.addLoops = s.call.Sampling, s.call.Mean, s.call.AddLoops
	v.nodes, v.starts = vector[uint32](s, ops.Nodes), vector[uint32](s, ops.Offsets)
	v.all = adjacency{vector[int64](s, ops.GraphOffsets), vector[uint32](s, ops.GraphSources),
		f[ops.GraphWeights].data}
	v.slots = vector[uint32](s, ops.GraphSlots)
	v.cached = adjacency{vector[int64](s, ops.CachedOffsets), vector[uint32](s, ops.CachedSources),
		f[ops.CachedWeights].data}
	v.row, v.column = f[ops.GraphRowFactors].data, f[ops.GraphColumnFactors].data
	v.read.Store(0)
	v.more.Store(0)
	if v.addLoops {
		v.loops = vector[uint32](s, ops.GraphLoops)
	}
	for i, node := range v.nodes {
		if int(node) >= len(v.all.offsets)-1 {
			return fmt.Errorf("nodes[%d] is node %d of a graph of %d", i, node, len(v.all.offsets)-1)
		}
	}
	return nil
}

// list is the edges of a node, from the cache if they are there.
func (v *graphView) list(node uint32) list {
	l, from, at := list{loop: -1}, &v.all, int(node)
	if v.loops != nil {
		l.loop = int64(v.loops[node]) - 1
	}
	if len(v.slots) > 0 && int(v.slots[node]) < len(v.cached.offsets)-1 {
		from, at, l.cached = &v.cached, int(v.slots[node]), true
	}
	lo, hi := from.offsets[at], from.offsets[at+1]
	if l.sources = from.sources[lo:hi]; from.weights != nil {
		l.weights = from.weights[lo:hi]
	}
	return l
}

// choices is how many edges of the list there are to choose among.
func (l *list) choices() int64 {
	if l.loop >= 0 {
		return int64(len(l.sources)) - 1
	}
	return int64(len(l.sources))
}

// takesAll tells that all of d edges are chosen.
func (v *graphView) takesAll(d int64) bool {
	return v.Fanout < 0 || int64(v.Fanout) >= d && (v.Labor || !v.Replace)
}

// draws is how many random numbers are drawn for a node with d edges.
func (v *graphView) draws(d int64) uint64 {
	if v.Labor || d == 0 || v.takesAll(d) {
		return 0
	}
	return uint64(v.Fanout)
}

// count is how many edges are chosen of a node, and how many bytes are read now and by SampleEdges.
func (v *graphView) count(node uint32, random uint64) (count, read, more int64) {
	l := v.list(node)
	d, looked := l.choices(), int64(0)
	switch {
	case v.takesAll(d):
		count = d
	case !v.Labor:
		count = int64(v.draws(d))
	default:
		below := choose.Threshold(int64(v.Fanout), d)
		for j, u := range l.sources {
			if int64(j) != l.loop && rng.At(random, uint64(u)) < below {
				count++
			}
		}
		looked = 4 * int64(len(l.sources))
	}
	chosen := count
	if v.addLoops {
		count++
		if l.loop >= 0 {
			chosen++
		}
	}
	if !l.cached {
		read = 2*8 + looked
		more = read + chosen*v.edgeBytes()
	}
	return count, read, more
}

// edgeBytes are read for a chosen edge.
func (v *graphView) edgeBytes() int64 {
	if v.all.weights != nil {
		return 8
	}
	return 4
}

// grainNodes is how many nodes are worth handing to another thread.
const grainNodes = 256

func (s *stream) countSampled() error {
	if err := s.viewGraph(); err != nil {
		return err
	}
	v, total := &s.views.graph, vector[int64](s, ops.Sampled)
	if err := s.loop(len(v.nodes), grainNodes, func(s *stream, p part) error {
		v, read, more := &s.views.graph, int64(0), int64(0)
		for i := p.lo; i < p.hi; i++ {
			count, r, m := v.count(v.nodes[i], v.Random)
			v.starts[i+1], read, more = uint32(count), read+r, more+m
		}
		v.read.Add(read)
		v.more.Add(more)
		return nil
	}); err != nil {
		return err
	}
	v.starts[0], total[0] = 0, 0
	for i := range v.nodes {
		total[0] += int64(v.starts[i+1])
		v.starts[i+1] = uint32(total[0])
	}
	read := v.read.Load()
	vector[int64](s, ops.Sampled+1)[0] += read + v.more.Load()
	s.waitForPinned(read)
	return nil
}

// waitForPinned waits until bytes of a graph have come over the link, if it is in pinned memory.
func (s *stream) waitForPinned(bytes int64) {
	if s.overLink(ops.GraphOffsets) {
		s.device.waitFor(s.device.in.send(int(bytes)))
	}
}

func (s *stream) sampleEdges() error {
	if err := s.viewGraph(); err != nil {
		return err
	}
	v, threads := &s.views.graph, s.device.options.Threads
	scratch := &s.scratch.sample
	if len(scratch.places) < threads {
		scratch.places, scratch.taken = make([][]int64, threads), make([][]uint64, threads)
	}
	numbers, next := room(&scratch.numbers, len(v.nodes)), uint64(0)
	for i, node := range v.nodes {
		l := v.list(node)
		numbers[i] = next
		next += v.draws(l.choices())
	}
	err := s.loop(len(v.nodes), grainNodes, func(s *stream, p part) error {
		bytes := int64(0)
		for i := p.lo; i < p.hi; i++ {
			read, err := s.sampleNode(p.thread, i)
			if err != nil {
				return err
			}
			bytes += read
		}
		s.views.graph.read.Add(bytes)
		return nil
	})
	s.waitForPinned(v.read.Load())
	return err
}

var errCounts = errors.New("offsets differ from what CountSampled set for these nodes")

// sampleNode writes the edges of one of the nodes, and returns how many bytes it has read of the graph's own lists.
func (s *stream) sampleNode(thread, i int) (read int64, err error) {
	v, scratch, node := &s.views.graph, &s.scratch.sample, s.views.graph.nodes[i]
	l := v.list(node)
	d, degree := l.choices(), int64(len(l.sources))
	lo, hi := v.starts[i], v.starts[i+1]
	sources, weights := vector[uint32](s, ops.Sampled), s.views.floats[ops.Sampled+1].data
	if lo > hi || int(hi) > len(sources) {
		return 0, errCounts
	}
	sources, weights = sources[lo:hi], weights[lo:hi]
	at := 0
	add := func(place int64, coefficient float32) bool {
		if at == len(sources) {
			return false
		}
		u, w := node, float32(1)
		if place >= 0 {
			if u = l.sources[place]; l.weights != nil {
				w = l.weights[place]
			}
		}
		row := float32(1)
		switch {
		case v.mean && degree == 0:
			row = 0
		case v.mean:
			row = float32(1 / float64(degree))
		case v.row != nil:
			row = v.row[node]
		}
		coefficient *= row
		coefficient *= w
		if v.column != nil {
			coefficient *= v.column[u]
		}
		sources[at], weights[at] = u, coefficient
		at++
		return true
	}
	ok := true
	if v.addLoops {
		ok = add(l.loop, 1)
	}
	switch expected := float32(float64(d) / float64(v.Fanout)); {
	case v.takesAll(d):
		for j := range degree {
			if j != l.loop {
				ok = ok && add(j, 1)
			}
		}
	case v.Labor:
		below := choose.Threshold(int64(v.Fanout), d)
		for j, u := range l.sources {
			if int64(j) != l.loop && rng.At(v.Random, uint64(u)) < below {
				ok = ok && add(int64(j), expected)
			}
		}
		read = 4 * degree
	case d > 0:
		places := room(&scratch.places[thread], v.Fanout)
		if v.Replace {
			choose.Draw(places, 0, d, v.Random, scratch.numbers[i])
		} else {
			choose.Subset(places, 0, d, v.Random, scratch.numbers[i], &scratch.taken[thread])
		}
		for _, j := range places {
			if l.loop >= 0 && j >= l.loop {
				j++
			}
			ok = ok && add(j, expected)
		}
	}
	if !ok || at != len(sources) {
		return 0, errCounts
	}
	if l.cached {
		return 0, nil
	}
	chosen := int64(at)
	if v.addLoops && l.loop < 0 { // which is no edge of the graph
		chosen--
	}
	return 2*8 + read + chosen*v.edgeBytes(), nil
}

func (s *stream) relabel() error {
	ids, nodes, count, items := vector[uint32](s, 0), vector[uint32](s, 1), vector[uint32](s, 2), vector[uint32](s, 3)
	known := s.call.Known
	size := 16
	for size < 2*(known+len(items)) {
		size *= 2
	}
	table := &s.scratch.sample
	keys, at, mask := room(&table.keys, size), room(&table.ids, size), uint32(size-1)
	clear(at)
	next := uint32(0)
	place := func(u uint32) uint32 { // where u is, or may be
		i := uint32(rng.Mix(uint64(u))) & mask
		for at[i] != 0 && keys[i] != u {
			i = (i + 1) & mask
		}
		return i
	}
	for i, u := range nodes[:known] {
		p := place(u)
		if at[p] != 0 {
			return fmt.Errorf("nodes[%d] is node %d, which is there before", i, u)
		}
		next++
		keys[p], at[p] = u, next
	}
	for e, u := range items {
		p := place(u)
		if at[p] == 0 {
			nodes[next] = u
			next++
			keys[p], at[p] = u, next
		}
		ids[e] = at[p] - 1
	}
	count[0] = next
	return nil
}

func (s *stream) gatherCached() error {
	dst := s.views.bytes[0]
	if dst.rows == 0 || dst.cols == 0 {
		return nil
	}
	hits := vector[int64](s, 5)
	before := hits[0]
	if err := s.eachRow(dst.rows, dst.cols, func(s *stream, p part) error {
		to, from, cached := s.views.bytes[0], s.views.bytes[1], s.views.bytes[3]
		slots, found := vector[uint32](s, 4), 0
		for i, row := range vector[uint32](s, 2)[p.lo:p.hi] {
			if int64(row) >= int64(from.rows) {
				return errIndex(p.lo+i, int64(row), from.rows)
			}
			if slot := slots[row]; int64(slot) < int64(cached.rows) {
				copy(to.all(p.lo+i), cached.all(int(slot)))
				found++
			} else {
				copy(to.all(p.lo+i), from.all(int(row)))
			}
		}
		atomic.AddInt64(&vector[int64](s, 5)[0], int64(found))
		return nil
	}); err != nil {
		return err
	}
	if s.overLink(1) {
		s.device.waitFor(s.device.in.send((dst.rows - int(hits[0]-before)) * dst.cols))
	}
	return nil
}
