//go:build cuda && cgo && linux

package cuda

import (
	"errors"
	"math/bits"

	"github.com/hopfeed/hopfeed/gds/internal/ops"
)

// passGraph passes the graph and how it is sampled to the kernel that is launched next.
func (c *call) passGraph() {
	loops, flags := uint64(0), uint64(0)
	if c.AddLoops {
		loops = c.at[ops.GraphLoops]
	}
	for i, set := range [...]bool{c.Sampling.Replace, c.Sampling.Labor, c.AddLoops, c.Mean} { // as sample.cu numbers them
		if set {
			flags |= 1 << i
		}
	}
	c.pass(vector(ops.GraphOffsets), vector(ops.GraphSources), vector(ops.GraphWeights), loops,
		c.Tensors[ops.GraphOffsets].Cols-1, vector(ops.GraphSlots), vector(ops.CachedOffsets), vector(ops.CachedSources),
		vector(ops.CachedWeights), max(c.Tensors[ops.CachedOffsets].Cols, 1)-1, c.Sampling.Fanout, c.Sampling.Random, flags)
}

// looks tells that lists are read to choose among them.
func (c *call) looks() bool { return c.Sampling.Labor && c.Sampling.Fanout >= 0 }

func (c *call) countSampled() {
	n, starts := c.Tensors[ops.Nodes].Cols, c.at[ops.Offsets]
	counts := starts + 4 // in place of the numbers after them
	c.passGraph()
	c.each("count_sampled", n, counts, vector(ops.Sampled+1), vector(ops.Nodes), n, faults{})
	if c.looks() {
		c.passGraph()
		c.eachRow("count_labor", n, counts, vector(ops.Sampled+1), vector(ops.Nodes), n)
	}
	c.scan(starts, counts, n, c.at[ops.Sampled], c.scratch(8*scanSlabs))
}

// scanSlabs is how many slabs sums are made of.
const scanSlabs = 256

// scan sets starts[i] to the sum of the first i of n values, for i = 0 to n, and total to the sum of all. sums is
// scratch memory for scanSlabs words of 64 bits.
func (c *call) scan(starts, values uint64, n int, total, sums uint64) {
	slab := max(threads, (n+scanSlabs-1)/scanSlabs)
	slabs := max(1, (n+slab-1)/slab) // one sets starts[0] where there are no values
	c.launch("scan_sums", blocks(slabs), sums, values, n, slab)
	c.launch("scan_within", blocks(slabs), starts, values, sums, n, slab, total)
}

func (c *call) sampleEdges() {
	n, count, chosen := c.Tensors[ops.Nodes].Cols, c.Tensors[ops.Sampled].Cols, uint64(0)
	if count == 0 {
		return
	}
	switch {
	case c.looks():
		chosen = c.scratch(8 * count)
		c.passGraph()
		c.eachRow("choose_labor", n, chosen, count, vector(ops.Offsets), vector(ops.Nodes), n)
	case c.Sampling.Fanout >= 0:
		chosen = c.scratch(8*count + 8*(scanSlabs+1) + 4*(n+1))
		sums := chosen + uint64(8*count)
		drawing := sums + 8*(scanSlabs+1)
		c.passGraph()
		c.each("count_drawing", n, drawing+4, vector(ops.Nodes), n, faults{})
		c.scan(drawing, drawing+4, n, sums+8*scanSlabs, sums)
		c.passGraph()
		c.each("choose_drawn", n, chosen, count, vector(ops.Offsets), drawing, vector(ops.Nodes), n)
	}
	c.passGraph()
	c.each("write_sampled", count, vector(ops.Sampled), vector(ops.Sampled+1), chosen, count, vector(ops.Offsets),
		vector(ops.Nodes), n, vector(ops.GraphRowFactors), vector(ops.GraphColumnFactors), faults{})
}

// mostEntered is how many nodes a table of nodes has room for, whose places are numbers of 32 bits.
const mostEntered = 1 << 31

func (c *call) relabel() {
	n, known := c.Tensors[3].Cols, c.Known
	if known+n > mostEntered {
		c.err = errors.New("there are more than 2^31 nodes")
		return
	}
	ids, nodes, count, items := vector(0), vector(1), vector(2), vector(3)
	size := 1 << bits.Len(uint(2*max(known+n, 8)-1))
	table := c.scratch(8*size + 8*(scanSlabs+1) + 4*(n+1) + 4*n)
	sums := table + uint64(8*size)
	first := sums + 8*(scanSlabs+1)
	slots := first + uint64(4*(n+1))
	mask := size - 1
	c.each("fill_8", size, table, size, 1, size, ^uint64(0))
	c.each("enter_nodes", known+n, table, mask, nodes, known, items, n)
	c.each("find_first", n, first+4, slots, table, mask, known, items, n)
	c.scan(first, first+4, n, sums+8*scanSlabs, sums)
	c.each("add_nodes", n, table, nodes, known, first, slots, items, n)
	c.each("write_ids", n+1, ids, count, table, known, first, slots, n)
}

var gatherCachedKernels = byUnit("gather_cached_%d")

func (c *call) gatherCached() {
	unit := c.unit(0, 1, 3)
	c.moveRows(&gatherCachedKernels, unit, c.Tensors[0].Rows, c.Tensors[1].Rows, inUnits{3, unit}, c.Tensors[3].Rows,
		vector(4), vector(5), faults{})
}
