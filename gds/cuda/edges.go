//go:build cuda && cgo && linux

package cuda

import (
	"math/bits"
	"slices"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/internal/ops"
)

// edgeOps are the operations that a fault of edges may be of, by the numbers that kernels know them by.
var edgeOps = []*ops.Op{ops.SumEdges, ops.SumEdgesGrad, ops.AttendEdges, ops.AttendEdgesGrad, ops.Propagate}

// edges are the edges of an operation, and where it keeps what of them in work space.
type edges struct {
	destinations, sources, count int
	offsets, indices             vector

	bad            uint64 // a word: whether the edges are wrong
	starts         uint64 // [sources+1]
	ordered, other uint64 // [count] each
	to             uint64 // [count]
	counts         uint64 // [sortSlabs, sortDigits]
	work           uint64 // of sums
	alphas, slopes uint64 // [count*heads] each
}

// A radix sort takes up to 8 bits at a time: sortDigits values. Its blocks have at least leastSlab edges each, and
// there are up to sortSlabs of them.
const (
	sortDigits = 256
	sortSlabs  = 256
	leastSlab  = 2048
)

// edges checks the edges whose offsets are tensor i and whose indices, below sources, the next.
func (c *call) edges(i, sources, heads int) edges {
	e := edges{sources: sources, count: c.Tensors[i+1].Cols, destinations: c.Tensors[i].Cols - 1,
		offsets: vector(i), indices: vector(i + 1)}
	at := c.scratch(int(gds.EdgeWorkBytes(int64(sources), int64(e.count), int64(heads))))
	take := func(words int) (start uint64) {
		start, at = at, at+uint64(4*words)
		return start
	}
	e.bad, e.work = take(1), take(longWork(e.count/sumBlock)/4)
	e.starts = take(sources + 1)
	e.ordered, e.other, e.to = take(e.count), take(e.count), take(e.count)
	e.counts = take(sortSlabs * sortDigits)
	e.alphas, e.slopes = take(e.count*heads), take(e.count*heads)
	c.zero(e.bad, 2) // and how many rows are long
	c.each("check_edges", max(e.destinations+1, e.count), e.bad, e.offsets, e.destinations, e.indices, e.count, sources,
		slices.Index(edgeOps, c.Op), faults{})
	return e
}

// zero sets words to zero.
func (c *call) zero(start uint64, words int) { c.each("fill_4", words, start, words, 1, words, 0) }

// bySource orders the edges by source, and the edges of a source by destination.
func (e *edges) bySource(c *call) {
	width := bits.Len(uint(max(e.sources-1, 1)))
	passes := (width + 7) / 8
	width = (width + passes - 1) / passes // of a digit
	slab := max(leastSlab, (e.count+sortSlabs-1)/sortSlabs)
	slabs := blocks((e.count + slab - 1) / slab)
	previous := uint64(0)
	for pass := range passes {
		slabOf := func() {
			c.pass(e.offsets, e.destinations, e.indices, previous, slab, pass*width, 1<<width-1, e.counts, e.bad)
		}
		slabOf()
		c.launch("count_by_source", slabs)
		slabOf()
		c.launch("sort_by_source", slabs, e.ordered)
		previous, e.ordered, e.other = e.ordered, e.other, e.ordered
	}
	e.ordered, e.other = e.other, e.ordered
	c.each("find_by_source", max(e.count, e.sources+1), e.starts, e.to, e.ordered, e.offsets, e.destinations, e.indices,
		e.count, e.sources, e.bad)
}

var sumEdgesKernels, attendKernels, attendGradKernels = newSumKernels("sum_edges"), newSumKernels("attend_edges"),
	newSumKernels("attend_edges_grad")

func (c *call) sumEdges() {
	dst, src := c.Tensors[0], c.Tensors[1]
	e := c.edges(2, src.Rows, 0)
	c.sums(sumEdgesKernels, 1, dst.Rows, e.count, dst.Cols, e.work, matrix(0), matrix(1), e.offsets, e.indices, 0,
		vector(4), dst.Rows, dst.Cols, e.bad)
}

func (c *call) sumEdgesGrad() {
	dst := c.Tensors[0]
	e := c.edges(2, dst.Rows, 0)
	e.bySource(c)
	c.sums(sumEdgesKernels, 1, dst.Rows, e.count, dst.Cols, e.work, matrix(0), matrix(1), e.starts, e.to, e.ordered,
		vector(4), dst.Rows, dst.Cols, e.bad)
}

func (c *call) attendEdges() {
	dst, heads := c.Tensors[0], c.Tensors[3].Cols/2
	e, size := c.edges(4, c.Tensors[2].Rows, 0), dst.Cols/heads
	c.eachRow("attend_stats", dst.Rows*heads, matrix(1), matrix(3), e.offsets, e.indices, dst.Rows, heads, c.Alpha, e.bad)
	c.sums(attendKernels, 2, dst.Rows, e.count, size, e.work, matrix(0), matrix(1), matrix(2), matrix(3), e.offsets,
		e.indices, dst.Rows, dst.Cols, size, c.Alpha, e.bad)
}

func (c *call) attendEdgesGrad() {
	grad, sources, heads := c.Tensors[2], c.Tensors[4].Rows, c.Tensors[5].Cols/2
	e, size := c.edges(6, sources, heads), grad.Cols/heads
	c.eachRow("attend_edges_grad_scores", grad.Rows*heads, e.alphas, e.slopes, matrix(1), matrix(2), matrix(3),
		matrix(4), matrix(5), e.offsets, e.indices, grad.Rows, heads, size, c.Alpha, e.bad)
	e.bySource(c)
	c.eachRow("attend_edges_grad_sources", sources*heads, matrix(1), e.slopes, e.starts, e.ordered, grad.Rows, sources,
		heads, e.bad)
	c.sums(attendGradKernels, 2, sources, e.count, size, e.work, matrix(0), matrix(2), e.alphas, heads, size, e.starts,
		e.ordered, e.to, sources, grad.Cols, e.bad)
}
