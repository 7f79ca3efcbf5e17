package host

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/choose"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// graphView is what sampling operations find of their arguments.
type graphView struct {
	*gds.Graph
	gds.Sampling
	offsets         []int64
	sources, loops  []uint32
	weights         []float32
	row, column     []float32
	starts          []uint32 // of the edges of nodes, which are views.index
	outSources      []uint32
	outWeights      []float32
	cached          matrix[byte]
	slots           []uint32
	hits, fromHost  atomic.Int64 // rows, or bytes
	offsetsOverLink bool
	sourcesOverLink bool
}

// sampleScratch is memory for sampling operations.
type sampleScratch struct {
	edges   [][]int64  // of a node, for each thread
	taken   [][]uint64 // of choose.Subset, for each thread
	numbers []uint64   // of the first random number of each node
	keys    []uint32   // of a hash table of nodes
	ids     []uint32   // their local ids + 1; 0: no node is here
}

// mapped is the memory of a tensor of this device, or of pinned memory that the device reads by itself.
func (d *Device) mapped(t gds.Tensor) (bytes []byte, pinned bool, err error) {
	bytes, b, err := memory(t)
	switch {
	case b == nil || b.owner() == d:
		return bytes, false, err
	case !b.pinned || d.options.Unmapped:
		return nil, false, fmt.Errorf("tensor %v is memory that this device does not read", t)
	}
	return bytes, true, err
}

// vector is a vector of the device or of pinned memory, of n elements; zero tells that it may be the zero Tensor.
func vector[T dtype.Number](d *Device, t gds.Tensor, want gds.DType, n int, zero bool) (data []T, pinned bool,
	err error) {
	if zero && t.Buf == nil && t.Rows == 0 && t.Cols == 0 {
		return nil, false, nil
	}
	if !isVector(t, n) {
		return nil, false, errShape
	}
	bytes, pinned, err := d.mapped(t)
	if err != nil || bytes == nil {
		return nil, pinned, err
	}
	if t.DType != want {
		return nil, false, fmt.Errorf("tensor %v: want %v", t, want)
	}
	return dtype.As[T](bytes), pinned, nil
}

// viewGraph views the graph of the operation, its nodes and the offsets of their edges.
func (s *stream) viewGraph(offsets, nodes gds.Tensor) (err error) {
	d, v, g := s.device, &s.views.graph, s.op.graph
	if g == nil {
		return errors.New("there is no graph")
	}
	v.Graph, v.Sampling = g, s.op.sampling
	v.fromHost.Store(0)
	n, m := g.Nodes(), g.Sources.Cols
	var errs [8]error
	v.offsets, v.offsetsOverLink, errs[0] = vector[int64](d, g.Offsets, gds.Int64, n+1, false)
	v.sources, v.sourcesOverLink, errs[1] = vector[uint32](d, g.Sources, gds.Uint32, m, false)
	v.weights, _, errs[2] = vector[float32](d, g.Weights, gds.Float32, m, true)
	v.row, _, errs[3] = vector[float32](d, g.RowFactors, gds.Float32, n, true)
	v.column, _, errs[4] = vector[float32](d, g.ColumnFactors, gds.Float32, n, true)
	v.loops, _, errs[5] = vector[uint32](d, g.Loops, gds.Uint32, n, true)
	s.views.index, _, errs[6] = vector[uint32](d, nodes, gds.Uint32, nodes.Cols, false)
	v.starts, _, errs[7] = vector[uint32](d, offsets, gds.Uint32, nodes.Cols+1, false)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if offsets.Pinned() || nodes.Pinned() {
		return errors.New("nodes and the offsets of their edges are device memory")
	}
	if !g.AddLoops {
		v.loops = nil
	}
	for i, node := range s.views.index {
		if int(node) >= n {
			return fmt.Errorf("nodes[%d] is node %d of a graph of %d", i, node, n)
		}
	}
	return nil
}

// list is where the edges of a node are, and which of them is its self-loop that is always chosen, or -1.
func (v *graphView) list(node uint32) (first, degree, loop int64) {
	first, loop = v.offsets[node], -1
	if v.loops != nil {
		loop = int64(v.loops[node]) - 1
	}
	return first, v.offsets[node+1] - first, loop
}

// choices is how many edges of a list there are to choose among.
func choices(degree, loop int64) int64 {
	if loop >= 0 {
		return degree - 1
	}
	return degree
}

// all tells that all of d edges are chosen.
func (v *graphView) all(d int64) bool {
	return v.Fanout < 0 || int64(v.Fanout) >= d && (v.Labor || !v.Replace)
}

// draws is how many random numbers are drawn for a node with d edges.
func (v *graphView) draws(d int64) uint64 {
	if v.Labor || d == 0 || v.all(d) {
		return 0
	}
	return uint64(v.Fanout)
}

// count is how many edges are chosen of a node.
func (v *graphView) count(node uint32, random uint64) (count int64) {
	first, degree, loop := v.list(node)
	d := choices(degree, loop)
	switch {
	case v.all(d):
		count = d
	case !v.Labor:
		count = int64(v.draws(d))
	default:
		below := choose.Threshold(int64(v.Fanout), d)
		for j, u := range v.sources[first : first+degree] {
			if int64(j) != loop && rng.At(random, uint64(u)) < below {
				count++
			}
		}
		v.fromHost.Add(4 * degree)
	}
	if v.AddLoops {
		count++
	}
	return count
}

// grainNodes is how many nodes are worth handing to another thread.
const grainNodes = 256

var countSampledOp = kind{name: "CountSampled", tensors: 3, run: func(s *stream) error {
	offsets, total, nodes := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2]
	if err := s.viewGraph(offsets, nodes); err != nil {
		return err
	}
	sum, err := view[int64](s.device, total, gds.Int64)
	if err != nil || len(sum.data) != 1 {
		return errors.Join(err, errShape)
	}
	v := &s.views.graph
	if err := s.loop(nodes.Cols, grainNodes, func(s *stream, p part) error {
		v := &s.views.graph
		for i := p.lo; i < p.hi; i++ {
			v.starts[i+1] = uint32(v.count(s.views.index[i], v.Random))
		}
		return nil
	}); err != nil {
		return err
	}
	v.starts[0], sum.data[0] = 0, 0
	for i := range nodes.Cols {
		sum.data[0] += int64(v.starts[i+1])
		v.starts[i+1] = uint32(sum.data[0])
	}
	s.waitForPinned(16 * nodes.Cols)
	return nil
}}

// waitForPinned waits until what an operation has read of a graph in pinned memory has come over the link:
// bytes of offsets, and what was counted.
func (s *stream) waitForPinned(bytes int) {
	v := &s.views.graph
	if !v.offsetsOverLink {
		bytes = 0
	}
	if v.sourcesOverLink {
		bytes += int(v.fromHost.Load())
	}
	s.device.waitFor(s.device.in.send(bytes))
}

func (s *stream) CountSampled(offsets, total, nodes gds.Tensor, g *gds.Graph, o gds.Sampling) {
	s.push(op{kind: &countSampledOp, tensors: [maxTensors]gds.Tensor{offsets, total, nodes}, graph: g, sampling: o})
}

var sampleEdgesOp = kind{name: "SampleEdges", tensors: 4, run: func(s *stream) error {
	sources, weights, offsets, nodes := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2], s.op.tensors[3]
	if err := s.viewGraph(offsets, nodes); err != nil {
		return err
	}
	if !isVector(sources, sources.Cols) || !isVector(weights, sources.Cols) {
		return errShape
	}
	to, err := view[uint32](s.device, sources, gds.Uint32)
	if err != nil {
		return err
	}
	coefficients, err := view[float32](s.device, weights, gds.Float32)
	if err != nil {
		return err
	}
	v, threads := &s.views.graph, s.device.options.Threads
	v.outSources, v.outWeights = to.data, coefficients.data
	scratch := &s.scratch.sample
	if len(scratch.edges) < threads {
		scratch.edges, scratch.taken = make([][]int64, threads), make([][]uint64, threads)
	}
	numbers, next := room(&scratch.numbers, nodes.Cols), uint64(0)
	for i, node := range s.views.index {
		_, degree, loop := v.list(node)
		numbers[i] = next
		next += v.draws(choices(degree, loop))
	}
	err = s.loop(nodes.Cols, grainNodes, func(s *stream, p part) error {
		for i := p.lo; i < p.hi; i++ {
			if err := s.sampleNode(p.thread, i); err != nil {
				return err
			}
		}
		return nil
	})
	s.waitForPinned(16 * nodes.Cols)
	return err
}}

func (s *stream) SampleEdges(sources, weights, offsets, nodes gds.Tensor, g *gds.Graph, o gds.Sampling) {
	s.push(op{kind: &sampleEdgesOp, tensors: [maxTensors]gds.Tensor{sources, weights, offsets, nodes}, graph: g,
		sampling: o})
}

var errCounts = errors.New("offsets differ from what CountSampled set for these nodes")

// sampleNode writes the edges of one of the nodes.
func (s *stream) sampleNode(thread, i int) error {
	v, scratch, node := &s.views.graph, &s.scratch.sample, s.views.index[i]
	first, degree, loop := v.list(node)
	d := choices(degree, loop)
	lo, hi := v.starts[i], v.starts[i+1]
	if lo > hi || int(hi) > len(v.outSources) {
		return errCounts
	}
	sources, weights := v.outSources[lo:hi], v.outWeights[lo:hi]
	at := 0
	add := func(edge int64, coefficient float32) bool {
		if at == len(sources) {
			return false
		}
		u, w := node, float32(1)
		if edge >= 0 {
			u = v.sources[edge]
			if v.weights != nil {
				w = v.weights[edge]
			}
		}
		row := float32(1)
		switch {
		case v.Mean && degree == 0:
			row = 0
		case v.Mean:
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
	if v.AddLoops {
		edge := int64(-1)
		if loop >= 0 {
			edge = first + loop
		}
		ok = add(edge, 1)
	}
	switch expected := float32(float64(d) / float64(v.Fanout)); {
	case v.all(d):
		for j := range degree {
			if j != loop {
				ok = ok && add(first+j, 1)
			}
		}
	case v.Labor:
		below := choose.Threshold(int64(v.Fanout), d)
		for j, u := range v.sources[first : first+degree] {
			if int64(j) != loop && rng.At(v.Random, uint64(u)) < below {
				ok = ok && add(first+int64(j), expected)
			}
		}
		v.fromHost.Add(4 * degree)
	case d > 0:
		edges := room(&scratch.edges[thread], v.Fanout)
		if v.Replace {
			choose.Draw(edges, first, d, v.Random, scratch.numbers[i])
		} else {
			choose.Subset(edges, first, d, v.Random, scratch.numbers[i], &scratch.taken[thread])
		}
		for _, e := range edges {
			if loop >= 0 && e >= first+loop {
				e++
			}
			ok = ok && add(e, expected)
		}
	}
	if !ok || at != len(sources) {
		return errCounts
	}
	perEdge := int64(4)
	if v.weights != nil {
		perEdge = 8
	}
	v.fromHost.Add(perEdge * int64(at))
	return nil
}

var relabelOp = kind{name: "Relabel", tensors: 4, run: func(s *stream) error {
	d, known := s.device, s.op.tokens
	idsOf, nodesOf, countOf, itemsOf := s.op.tensors[0], s.op.tensors[1], s.op.tensors[2], s.op.tensors[3]
	if !isVector(idsOf, itemsOf.Cols) || !isVector(itemsOf, itemsOf.Cols) || !isVector(nodesOf, nodesOf.Cols) ||
		!isVector(countOf, 1) ||
		known < 0 || known > math.MaxUint32-itemsOf.Cols || nodesOf.Cols < known+itemsOf.Cols {
		return errShape
	}
	var views [4][]uint32
	for i, t := range s.op.tensors[:4] {
		m, err := view[uint32](d, t, gds.Uint32)
		if err != nil {
			return err
		}
		views[i] = m.data
	}
	ids, nodes, items := views[0], views[1], views[3]
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
	views[2][0] = next
	return nil
}}

func (s *stream) Relabel(ids, nodes, count, items gds.Tensor, known int) {
	s.push(op{kind: &relabelOp, tensors: [maxTensors]gds.Tensor{ids, nodes, count, items}, tokens: known})
}

var gatherCachedOp = kind{name: "GatherCached", tensors: 6, run: func(s *stream) error {
	d, t := s.device, s.op.tensors[:6]
	dst, cached, src, slotsOf, index, hits := t[0], t[1], t[2], t[3], t[4], t[5]
	if !isVector(index, dst.Rows) || !isVector(slotsOf, src.Rows) || !isVector(hits, 1) || dst.Cols != src.Cols ||
		cached.Rows > 0 && dst.Cols != cached.Cols {
		return errShape
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return nil
	}
	if dst.DType != src.DType || cached.Rows > 0 && dst.DType != cached.DType {
		return errTypes
	}
	v := &s.views.graph
	var err error
	if s.views.bytes[0], err = d.raw(dst); err != nil {
		return err
	}
	if v.cached, err = d.raw(cached); err != nil {
		return err
	}
	from, pinned, err := d.mapped(src)
	if err != nil {
		return err
	}
	s.views.bytes[1] = asBytes(src, from)
	slots, err := view[uint32](d, slotsOf, gds.Uint32)
	if err != nil {
		return err
	}
	rows, err := view[uint32](d, index, gds.Uint32)
	if err != nil {
		return err
	}
	count, err := view[int64](d, hits, gds.Int64)
	if err != nil {
		return err
	}
	v.slots, s.views.index = slots.data, rows.data
	v.hits.Store(0)
	err = s.eachRow(dst.Rows, s.views.bytes[0].cols, func(s *stream, p part) error {
		v, to, from := &s.views.graph, s.views.bytes[0], s.views.bytes[1]
		found := 0
		for i := p.lo; i < p.hi; i++ {
			row := s.views.index[i]
			if int64(row) >= int64(from.rows) {
				return errIndex(i, int64(row), from.rows)
			}
			if slot := v.slots[row]; int64(slot) < int64(v.cached.rows) {
				copy(to.row(i, 0, to.cols), v.cached.row(int(slot), 0, to.cols))
				found++
			} else {
				copy(to.row(i, 0, to.cols), from.row(int(row), 0, to.cols))
			}
		}
		v.hits.Add(int64(found))
		return nil
	})
	if err != nil {
		return err
	}
	count.data[0] += v.hits.Load()
	if pinned {
		d.waitFor(d.in.send((dst.Rows - int(v.hits.Load())) * s.views.bytes[0].cols))
	}
	return nil
}}

func (s *stream) GatherCached(dst, cached, src, slots, index, hits gds.Tensor) {
	s.push(op{kind: &gatherCachedOp, tensors: [maxTensors]gds.Tensor{dst, cached, src, slots, index, hits}})
}
