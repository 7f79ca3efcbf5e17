//go:build cuda && cgo && linux

package cuda

import (
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

	bad             uint64 // a word: whether the edges are wrong
	starts, cursors uint64 // [sources+1], [sources]
	ordered, to     uint64 // [count] each
	alphas, slopes  uint64 // [count*heads] each
	sums            uint64 // [scanSlabs+1] of 64 bits
}

// edges checks the edges whose offsets are tensor i and whose indices, below sources, the next.
func (c *call) edges(i, sources, heads int) edges {
	e := edges{sources: sources, count: c.Tensors[i+1].Cols, destinations: c.Tensors[i].Cols - 1,
		offsets: vector(i), indices: vector(i + 1)}
	e.bad = c.scratch(int(gds.EdgeWorkBytes(int64(sources), int64(e.count), int64(heads))))
	e.starts = e.bad + 8
	e.cursors = e.starts + uint64(4*(sources+1))
	e.ordered = e.cursors + uint64(4*(sources+1))
	e.to = e.ordered + uint64(4*e.count)
	e.alphas = e.to + uint64(4*e.count)
	e.slopes = e.alphas + uint64(4*e.count*heads)
	e.sums = (e.slopes + uint64(4*e.count*heads) + 7) / 8 * 8
	c.zero(e.bad, 2+sources+1) // and starts
	c.each("check_edges", max(e.destinations+1, e.count), e.bad, e.offsets, e.destinations, e.indices, e.count, sources,
		slices.Index(edgeOps, c.Op), faults{})
	return e
}

// zero sets words to zero.
func (c *call) zero(start uint64, words int) { c.each("fill_4", words, start, words, 1, words, 0) }

// bySource orders the edges by source, and the edges of a source by destination.
func (e *edges) bySource(c *call) {
	c.each("count_by_source", e.destinations, e.starts, e.to, e.offsets, e.destinations, e.indices, e.bad)
	c.scan(e.starts, e.starts+4, e.sources, e.sums+8*scanSlabs, e.sums)
	c.copyBytes(e.cursors, e.starts, 4*e.sources)
	c.each("place_by_source", e.count, e.ordered, e.cursors, e.offsets, e.destinations, e.indices, e.bad)
	c.each("sort_by_source", e.sources, e.ordered, e.starts, e.sources, e.bad)
}

func (c *call) sumEdges() {
	dst, src := c.Tensors[0], c.Tensors[1]
	e := c.edges(2, src.Rows, 0)
	c.each("sum_edges", dst.Rows*dst.Cols, matrix(0), matrix(1), e.offsets, e.indices, vector(4), dst.Rows, dst.Cols,
		e.bad)
}

func (c *call) sumEdgesGrad() {
	dst := c.Tensors[0]
	e := c.edges(2, dst.Rows, 0)
	e.bySource(c)
	c.each("sum_edges_grad", dst.Rows*dst.Cols, matrix(0), matrix(1), vector(4), e.starts, e.ordered, e.to, dst.Rows,
		dst.Cols, e.bad)
}

func (c *call) attendEdges() {
	dst, heads := c.Tensors[0], c.Tensors[3].Cols/2
	e := c.edges(4, c.Tensors[2].Rows, 0)
	c.eachRow("attend_edges", dst.Rows*heads, matrix(0), matrix(1), matrix(2), matrix(3), e.offsets, e.indices,
		dst.Rows, heads, dst.Cols/heads, c.Alpha, e.bad)
}

func (c *call) attendEdgesGrad() {
	grad, sources, heads := c.Tensors[2], c.Tensors[4].Rows, c.Tensors[5].Cols/2
	e := c.edges(6, sources, heads)
	c.eachRow("attend_edges_grad_scores", grad.Rows*heads, e.alphas, e.slopes, matrix(1), matrix(2), matrix(3),
		matrix(4), matrix(5), e.offsets, e.indices, grad.Rows, heads, grad.Cols/heads, c.Alpha, e.bad)
	e.bySource(c)
	c.eachRow("attend_edges_grad_values", sources*heads, matrix(0), matrix(1), matrix(2), e.alphas, e.slopes, e.starts,
		e.ordered, e.to, grad.Rows, sources, heads, grad.Cols/heads, e.bad)
}
