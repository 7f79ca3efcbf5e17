//go:build cuda && cgo && linux

package cuda

/*
#include "native.h"
*/
import "C"

import "github.com/hopfeed/hopfeed/gds"

var (
	checkEdgesKernel            = newKernel("edges", "check_edges")
	sumEdgesKernel              = newKernel("edges", "sum_edges")
	countBySourceKernel         = newKernel("edges", "count_by_source")
	sumStartsKernel             = newKernel("edges", "sum_starts")
	placeBySourceKernel         = newKernel("edges", "place_by_source")
	sortBySourceKernel          = newKernel("edges", "sort_by_source")
	sumEdgesGradKernel          = newKernel("edges", "sum_edges_grad")
	attendEdgesKernel           = newKernel("edges", "attend_edges")
	attendEdgesGradScoresKernel = newKernel("edges", "attend_edges_grad_scores")
	attendEdgesGradValuesKernel = newKernel("edges", "attend_edges_grad_values")
)

// edgeNames are the operations that a fault may be of.
var edgeNames = [...]string{"SumEdges", "SumEdgesGrad", "AttendEdges", "AttendEdgesGrad", "Propagate"}

// block is the edges of an operation on their way, and where it keeps what, in work space.
type block struct {
	destinations, sources, edges int
	offsets, indices             uint64

	bad             uint64 // a word: whether the edges are wrong
	starts, cursors uint64 // [sources+1], [sources]
	ordered, to     uint64 // [edges] each
	alphas, slopes  uint64 // [edges*heads] each
}

// block begins the operation edgeNames[name] and checks its edges.
func (c *call) block(name int, offsets, indices gds.Tensor, destinations, sources, heads int) block {
	c.vectors(destinations+1, offsets)
	c.require(indices.Rows == 1 || indices.Cols == 0, errShape)
	b := block{destinations: destinations, sources: sources, edges: indices.Cols}
	b.offsets, b.indices = c.typed(offsets, gds.Uint32), c.typed(indices, gds.Uint32)
	if c.err != nil {
		return b
	}
	b.bad = c.scratch(4 * (2 + 2*(sources+1) + 2*b.edges + 2*b.edges*heads))
	b.starts = b.bad + 8
	b.cursors = b.starts + uint64(4*(sources+1))
	b.ordered = b.cursors + uint64(4*(sources+1))
	b.to = b.ordered + uint64(4*b.edges)
	b.alphas = b.to + uint64(4*b.edges)
	b.slopes = b.alphas + uint64(4*b.edges*heads)
	c.zero(b.bad, 2+sources+1) // and starts
	c.number(b.bad)
	c.number(b.offsets)
	c.number(uint64(destinations))
	c.number(b.indices)
	c.size(b.edges, sources)
	c.number(uint64(name))
	c.checked()
	c.each(checkEdgesKernel, max(destinations+1, b.edges))
	return b
}

// zero sets words to zero.
func (c *call) zero(start uint64, words int) {
	c.number(start)
	c.number(uint64(words))
	c.size(1, words)
	c.number(0)
	c.each(fillKernels[2], words)
}

// bySource orders the edges by source, and the edges of a source by destination.
func (b block) bySource(c *call) {
	c.number(b.starts)
	c.number(b.to)
	c.number(b.offsets)
	c.number(uint64(b.destinations))
	c.number(b.indices)
	c.number(b.bad)
	c.each(countBySourceKernel, b.destinations)
	c.number(b.starts)
	c.number(b.cursors)
	c.number(uint64(b.sources))
	c.launch(sumStartsKernel, C.hopfeed_shape{grid_x: 1, grid_y: 1, block_x: blockThreads, block_y: 1})
	c.number(b.ordered)
	c.number(b.cursors)
	c.number(b.offsets)
	c.number(uint64(b.destinations))
	c.number(b.indices)
	c.number(b.bad)
	c.each(placeBySourceKernel, b.edges)
	c.number(b.ordered)
	c.number(b.starts)
	c.number(uint64(b.sources))
	c.number(b.bad)
	c.each(sortBySourceKernel, b.sources)
}

// sum requires the shapes of SumEdges or its backward pass, of rows by destination and by source.
func (c *call) sum(byDestination, bySource, indices, weights gds.Tensor) {
	c.require(byDestination.Cols == bySource.Cols && weights.Cols == indices.Cols && weights.Rows == indices.Rows,
		errShape)
	c.typed(byDestination, gds.Float32)
	c.typed(bySource, gds.Float32)
	c.typed(weights, gds.Float32)
}

func (s *stream) SumEdges(dst, src, offsets, indices, weights gds.Tensor) {
	s.enqueue(edgeNames[0], []gds.Tensor{dst, src, offsets, indices, weights}, func(c *call) {
		c.sum(dst, src, indices, weights)
		b := c.block(0, offsets, indices, dst.Rows, src.Rows, 0)
		c.matrix(dst)
		c.matrix(src)
		c.number(b.offsets)
		c.number(b.indices)
		c.vector(weights)
		c.size(dst.Rows, dst.Cols)
		c.number(b.bad)
		c.each(sumEdgesKernel, dst.Rows*dst.Cols)
	})
}

func (s *stream) SumEdgesGrad(dst, grad, offsets, indices, weights gds.Tensor) {
	s.enqueue(edgeNames[1], []gds.Tensor{dst, grad, offsets, indices, weights}, func(c *call) {
		c.sum(grad, dst, indices, weights)
		b := c.block(1, offsets, indices, grad.Rows, dst.Rows, 0)
		b.bySource(c)
		c.matrix(dst)
		c.matrix(grad)
		c.vector(weights)
		c.number(b.starts)
		c.number(b.ordered)
		c.number(b.to)
		c.size(dst.Rows, dst.Cols)
		c.number(b.bad)
		c.each(sumEdgesGradKernel, dst.Rows*dst.Cols)
	})
}

// attention requires the shapes of AttendEdges or its backward pass: perDestination is [D,w], stats
// [D,2H], perSource [S,w] and scores [S,2H]. It returns the heads.
func (c *call) attention(perDestination, stats gds.Tensor, perSource, scores []gds.Tensor) (heads int) {
	w, n, heads := perSource[0].Cols, perSource[0].Rows, scores[0].Cols/2
	if heads < 1 || scores[0].Cols%2 != 0 || w%heads != 0 {
		c.require(false, errShape)
		return 1
	}
	c.require(perDestination.Cols == w && stats.Rows == perDestination.Rows && stats.Cols == 2*heads &&
		perDestination.Rows <= n, errShape)
	for i := range perSource {
		c.require(perSource[i].Rows == n && perSource[i].Cols == w && scores[i].Rows == n && scores[i].Cols == 2*heads,
			errShape)
	}
	return heads
}

func (s *stream) AttendEdges(dst, stats, values, scores, offsets, indices gds.Tensor, slope float32) {
	s.enqueue(edgeNames[2], []gds.Tensor{dst, stats, values, scores, offsets, indices}, func(c *call) {
		heads := c.attention(dst, stats, []gds.Tensor{values}, []gds.Tensor{scores})
		b := c.block(2, offsets, indices, dst.Rows, values.Rows, 0)
		c.matrix(dst)
		c.matrix(stats)
		c.matrix(values)
		c.matrix(scores)
		c.number(b.offsets)
		c.number(b.indices)
		c.size(dst.Rows, heads)
		c.number(uint64(dst.Cols / heads))
		c.real(slope)
		c.number(b.bad)
		c.eachRow(attendEdgesKernel, dst.Rows*heads)
	})
}

func (s *stream) AttendEdgesGrad(gradValues, gradScores, grad, stats, values, scores, offsets, indices gds.Tensor,
	slope float32) {
	s.enqueue(edgeNames[3], []gds.Tensor{gradValues, gradScores, grad, stats, values, scores, offsets, indices},
		func(c *call) {
			heads := c.attention(grad, stats, []gds.Tensor{gradValues, values}, []gds.Tensor{gradScores, scores})
			b := c.block(3, offsets, indices, grad.Rows, values.Rows, heads)
			c.number(b.alphas)
			c.number(b.slopes)
			c.matrix(gradScores)
			c.matrix(grad)
			c.matrix(stats)
			c.matrix(values)
			c.matrix(scores)
			c.number(b.offsets)
			c.number(b.indices)
			c.size(grad.Rows, heads)
			c.number(uint64(grad.Cols / heads))
			c.real(slope)
			c.number(b.bad)
			c.eachRow(attendEdgesGradScoresKernel, grad.Rows*heads)
			b.bySource(c)
			c.matrix(gradValues)
			c.matrix(gradScores)
			c.matrix(grad)
			c.number(b.alphas)
			c.number(b.slopes)
			c.number(b.starts)
			c.number(b.ordered)
			c.number(b.to)
			c.size(grad.Rows, values.Rows)
			c.size(heads, grad.Cols/heads)
			c.number(b.bad)
			c.eachRow(attendEdgesGradValuesKernel, values.Rows*heads)
		})
}
