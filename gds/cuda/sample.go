//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import (
	"errors"
	"math"
	"math/bits"

	"github.com/hopfeed/hopfeed/gds"
)

var (
	countSampledKernel = newKernel("sample", "count_sampled")
	countLaborKernel   = newKernel("sample", "count_labor")
	countDrawingKernel = newKernel("sample", "count_drawing")
	scanSumsKernel     = newKernel("sample", "scan_sums")
	scanSlabsKernel    = newKernel("sample", "scan_slabs")
	scanWithinKernel   = newKernel("sample", "scan_within")
	chooseDrawnKernel  = newKernel("sample", "choose_drawn")
	chooseLaborKernel  = newKernel("sample", "choose_labor")
	writeSampledKernel = newKernel("sample", "write_sampled")
	enterNodesKernel   = newKernel("sample", "enter_nodes")
	findFirstKernel    = newKernel("sample", "find_first")
	addNodesKernel     = newKernel("sample", "add_nodes")
	writeIDsKernel     = newKernel("sample", "write_ids")
)

// Bits of Sampling and Graph, as kernels/sample.cu numbers them.
const (
	flagReplace = 1 << iota
	flagLabor
	flagAddLoops
	flagMean
)

// graph is what kernels read of a graph, and of how it is sampled.
type graph struct {
	*gds.Graph
	gds.Sampling
	offsets, sources, weights, row, column, loops uint64 // addresses; 0: there is none
	nodes                                         int
	flags                                         uint64
}

// vectorIn is the address of a vector of n elements in memory that may be pinned; if it may be zero, of the zero
// Tensor 0.
func (c *call) vectorIn(t gds.Tensor, want gds.DType, n int, zero bool) uint64 {
	if zero && t == (gds.Tensor{}) {
		return 0
	}
	c.require(isVector(t, n), errShape)
	c.require(t.DType == want || n == 0, errTypes)
	return c.mapped(t)
}

// graph views a graph, and requires one offset more than nodes.
func (c *call) graph(g *gds.Graph, s gds.Sampling, offsets, nodes gds.Tensor) (v graph) {
	if g == nil {
		c.require(false, errors.New("there is no graph"))
		return v
	}
	v = graph{Graph: g, Sampling: s, nodes: g.Nodes()}
	n, m := v.nodes, g.Sources.Cols
	v.offsets = c.vectorIn(g.Offsets, gds.Int64, n+1, false)
	v.sources = c.vectorIn(g.Sources, gds.Uint32, m, false)
	v.weights = c.vectorIn(g.Weights, gds.Float32, m, true)
	v.row = c.vectorIn(g.RowFactors, gds.Float32, n, true)
	v.column = c.vectorIn(g.ColumnFactors, gds.Float32, n, true)
	if loops := c.vectorIn(g.Loops, gds.Uint32, n, true); g.AddLoops {
		v.loops = loops
	}
	for flag, set := range map[uint64]bool{flagReplace: s.Replace, flagLabor: s.Labor, flagAddLoops: g.AddLoops,
		flagMean: g.Mean} {
		if set {
			v.flags |= flag
		}
	}
	c.require(isVector(nodes, nodes.Cols) && isVector(offsets, nodes.Cols+1), errShape)
	return v
}

// labor tells that lists are read to choose among them.
func (v *graph) labor() bool { return v.Labor && v.Fanout >= 0 }

func (s *stream) CountSampled(offsets, total, nodes gds.Tensor, g *gds.Graph, o gds.Sampling) {
	s.enqueue("CountSampled", []gds.Tensor{offsets, total, nodes}, func(c *call) {
		v := c.graph(g, o, offsets, nodes)
		c.require(isVector(total, 1), errShape)
		starts, sum, from, n := c.typed(offsets, gds.Uint32), c.typed(total, gds.Int64), c.typed(nodes, gds.Uint32),
			nodes.Cols
		counts := starts + 4 // in place of what follows them
		c.number(counts)
		c.number(from)
		c.number(uint64(n))
		c.number(v.offsets)
		c.number(v.loops)
		c.number(uint64(v.nodes))
		c.number(uint64(v.Fanout))
		c.number(v.flags)
		c.checked()
		c.each(countSampledKernel, n)
		if v.labor() {
			c.number(counts)
			c.number(from)
			c.number(uint64(n))
			c.number(v.offsets)
			c.number(v.sources)
			c.number(v.loops)
			c.number(uint64(v.nodes))
			c.number(uint64(v.Fanout))
			c.number(v.Random)
			c.number(v.flags)
			c.eachRow(countLaborKernel, n)
		}
		c.scan(starts, counts, n, sum, c.scratch(8*scanSlabs))
	})
}

// scanSlabs is how many slabs sums are made of.
const scanSlabs = 256

// scan sets starts [n+1] to the sums of values [n] up to each place, and total to that of all. sums is
// scratch memory for scanSlabs words of 64 bits.
func (c *call) scan(starts, values uint64, n int, total, sums uint64) {
	slab := max(blockThreads, (n+scanSlabs-1)/scanSlabs)
	slabs := max(1, (n+slab-1)/slab) // one sets starts[0] where there are no values
	shape := C.hopfeed_shape{grid_x: C.uint(slabs), grid_y: 1, block_x: blockThreads, block_y: 1}
	c.number(sums)
	c.number(values)
	c.size(n, slab)
	c.launch(scanSumsKernel, shape)
	c.number(sums)
	c.number(uint64(slabs))
	c.number(total)
	c.launch(scanSlabsKernel, C.hopfeed_shape{grid_x: 1, grid_y: 1, block_x: blockThreads, block_y: 1})
	c.number(starts)
	c.number(values)
	c.number(sums)
	c.size(n, slab)
	c.launch(scanWithinKernel, shape)
}

func (s *stream) SampleEdges(sources, weights, offsets, nodes gds.Tensor, g *gds.Graph, o gds.Sampling) {
	s.enqueue("SampleEdges", []gds.Tensor{sources, weights, offsets, nodes}, func(c *call) {
		v := c.graph(g, o, offsets, nodes)
		n, edges := nodes.Cols, sources.Cols
		c.require(isVector(sources, edges) && isVector(weights, edges) && (n > 0 || edges == 0), errShape)
		to, w := c.typed(sources, gds.Uint32), c.typed(weights, gds.Float32)
		starts, from := c.typed(offsets, gds.Uint32), c.typed(nodes, gds.Uint32)
		if c.err != nil || edges == 0 {
			return
		}
		chosen := uint64(0)
		switch {
		case v.labor():
			chosen = c.scratch(8 * edges)
			c.number(chosen)
			c.number(uint64(edges))
			c.number(starts)
			c.number(from)
			c.number(uint64(n))
			c.number(v.offsets)
			c.number(v.sources)
			c.number(v.loops)
			c.number(uint64(v.nodes))
			c.number(uint64(v.Fanout))
			c.number(v.Random)
			c.number(v.flags)
			c.eachRow(chooseLaborKernel, n)
		case v.Fanout >= 0:
			chosen = c.scratch(8*edges + 8*(scanSlabs+1) + 4*(n+1))
			sums := chosen + uint64(8*edges)
			drawing := sums + 8*(scanSlabs+1)
			c.number(drawing + 4)
			c.number(from)
			c.number(uint64(n))
			c.number(v.offsets)
			c.number(v.loops)
			c.number(uint64(v.nodes))
			c.number(uint64(v.Fanout))
			c.number(v.flags)
			c.checked()
			c.each(countDrawingKernel, n)
			c.scan(drawing, drawing+4, n, sums+8*scanSlabs, sums)
			c.number(chosen)
			c.number(uint64(edges))
			c.number(starts)
			c.number(drawing)
			c.number(from)
			c.number(uint64(n))
			c.number(v.offsets)
			c.number(v.loops)
			c.number(uint64(v.nodes))
			c.number(uint64(v.Fanout))
			c.number(v.Random)
			c.number(v.flags)
			c.each(chooseDrawnKernel, n)
		}
		for _, a := range []uint64{to, w, chosen, uint64(edges), starts, from, uint64(n), v.offsets, v.sources,
			uint64(v.Sources.Cols),
			v.weights, v.row, v.column, v.loops, uint64(v.nodes), uint64(v.Fanout), v.flags} {
			c.number(a)
		}
		c.checked()
		c.each(writeSampledKernel, edges)
	})
}

// mostEntered is how many nodes a table of nodes has room for, whose places are numbers of 32 bits.
const mostEntered = 1 << 31

func (s *stream) Relabel(ids, nodes, count, items gds.Tensor, known int) {
	s.enqueue("Relabel", []gds.Tensor{ids, nodes, count, items}, func(c *call) {
		n := items.Cols
		c.require(isVector(ids, n) && isVector(items, n) && isVector(nodes, nodes.Cols) && isVector(count, 1) &&
			known >= 0 && known <= math.MaxUint32-n && nodes.Cols >= known+n, errShape)
		to, all, counted, from := c.typed(ids, gds.Uint32), c.typed(nodes, gds.Uint32), c.typed(count, gds.Uint32),
			c.typed(items, gds.Uint32)
		c.require(known+n <= mostEntered, errors.New("there are more than 2^31 nodes"))
		if c.err != nil {
			return
		}
		size := 1 << bits.Len(uint(2*max(known+n, 8)-1))
		table := c.scratch(8*size + 8*(scanSlabs+1) + 4*(n+1) + 4*n)
		sums := table + uint64(8*size)
		first := sums + 8*(scanSlabs+1)
		slots := first + uint64(4*(n+1))
		mask := uint64(size - 1)
		c.number(table)
		c.number(uint64(size))
		c.size(1, size)
		c.number(^uint64(0))
		c.each(fillKernels[3], size)
		c.number(table)
		c.number(mask)
		c.number(all)
		c.number(uint64(known))
		c.number(from)
		c.number(uint64(n))
		c.each(enterNodesKernel, known+n)
		c.number(first + 4)
		c.number(slots)
		c.number(table)
		c.number(mask)
		c.number(uint64(known))
		c.number(from)
		c.number(uint64(n))
		c.each(findFirstKernel, n)
		c.scan(first, first+4, n, sums+8*scanSlabs, sums)
		c.number(table)
		c.number(all)
		c.number(uint64(known))
		c.number(first)
		c.number(slots)
		c.number(from)
		c.number(uint64(n))
		c.each(addNodesKernel, n)
		c.number(to)
		c.number(counted)
		c.number(table)
		c.number(uint64(known))
		c.number(first)
		c.number(slots)
		c.number(uint64(n))
		c.each(writeIDsKernel, n+1)
	})
}

// gatherCachedKernels are by the logarithm of the unit that they move.
var gatherCachedKernels = [5]*kernel{
	newKernel("sample", "gather_cached_1"), newKernel("sample", "gather_cached_2"),
	newKernel("sample", "gather_cached_4"),
	newKernel("sample", "gather_cached_8"), newKernel("sample", "gather_cached_16"),
}

func (s *stream) GatherCached(dst, cached, src, slots, index, hits gds.Tensor) {
	s.enqueue("GatherCached", []gds.Tensor{dst, cached, src, slots, index, hits}, func(c *call) {
		c.require(isVector(index, dst.Rows) && isVector(slots, src.Rows) && isVector(hits, 1) && dst.Cols == src.Cols &&
			(cached.Rows == 0 || dst.Cols == cached.Cols), errShape)
		if c.err != nil || dst.Rows == 0 || dst.Cols == 0 {
			return
		}
		c.require(dst.DType == src.DType && (cached.Rows == 0 || dst.DType == cached.DType), errTypes)
		to, from, rows, by := c.address(dst), c.mapped(src), c.address(cached), c.typed(index, gds.Uint32)
		table, found := c.typed(slots, gds.Uint32), c.typed(hits, gds.Int64)
		if c.err != nil {
			return
		}
		size := uint64(dst.DType.Size())
		// The largest unit that divides the rows of source, cache and destination.
		strides := uint64(dst.Cols) | uint64(dst.Stride) | uint64(src.Stride) | uint64(cached.Stride)
		log := min(4, bits.TrailingZeros64(to|from|rows|size*strides))
		cols := dst.Cols * int(size) >> log
		c.number(to)
		c.number(uint64(dst.Stride) * size >> log)
		c.number(from)
		c.number(uint64(src.Stride) * size >> log)
		c.number(by)
		c.size(dst.Rows, cols)
		c.number(uint64(src.Rows))
		c.number(rows)
		c.number(uint64(cached.Stride) * size >> log)
		c.number(uint64(cached.Rows))
		c.number(table)
		c.number(found)
		c.checked()
		c.each(gatherCachedKernels[log], dst.Rows*cols)
	})
}
