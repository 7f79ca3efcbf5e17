package host

import (
	"errors"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

// edgeScratch is memory for operations along edges.
type edgeScratch struct {
	lengths []int // of the lists of a part, for each thread

	// The edges by source: source u has the edges fromOffsets[u] to fromOffsets[u+1]-1.
	fromOffsets []uint32
	fromNodes   []uint32  // destinations
	fromEdges   []uint32  // numbers, counted from the first edge of the block
	fromWeights []float32 // weights, or coefficients of one head

	alpha, gradScore []float32 // of each edge and head
}

var (
	errOffsets = errors.New("offsets of edges descend, or go beyond the edges")
	errSource  = errors.New("an edge comes from a source that does not exist")
)

// viewEdges views the offsets of destinations and the indices of their edges, and checks them.
func (s *stream) viewEdges(offsets, indices gds.Tensor, destinations, sources int) error {
	if !isVector(offsets, destinations+1) || indices.Rows != 1 && indices.Cols > 0 {
		return errShape
	}
	o, err := view[uint32](s.device, offsets, gds.Uint32)
	if err != nil {
		return err
	}
	i, err := view[uint32](s.device, indices, gds.Uint32)
	if err != nil {
		return err
	}
	s.views.offsets, s.views.index, s.views.sources = o.row(0, 0, destinations+1), i.row(0, 0, indices.Cols), sources
	if err := s.loop(destinations, grainWork, func(s *stream, p part) error {
		for v := p.lo; v < p.hi; v++ {
			if s.views.offsets[v] > s.views.offsets[v+1] {
				return errOffsets
			}
		}
		return nil
	}); err != nil {
		return err
	}
	first, end := int(s.views.offsets[0]), int(s.views.offsets[destinations])
	if first > end || end > len(s.views.index) {
		return errOffsets
	}
	s.views.firstEdge, s.views.edges = first, end-first
	return s.loop(end-first, grainWork, func(s *stream, p part) error {
		largest := uint32(0)
		for _, u := range s.views.index[s.views.firstEdge:][p.lo:p.hi] {
			largest = max(largest, u)
		}
		if int(largest) >= s.views.sources {
			return errSource
		}
		return nil
	})
}

// edgeGrain is how many destinations are worth handing to another thread, of rows of cols columns.
func (s *stream) edgeGrain(rows, cols int) int {
	perRow := (s.views.edges/max(rows, 1) + 1) * max(cols, 1)
	return max(1, min(1024, 2*grainWork/perRow))
}

// bySource orders the edges by source, and the edges of a source by destination. weights may be nil.
func (s *stream) bySource(destinations int, weights []float32) {
	e, v := &s.scratch.edges, &s.views
	first := v.firstEdge
	index := v.index[first:][:v.edges]
	starts := room(&e.fromOffsets, v.sources+2)
	clear(starts)
	for _, u := range index {
		starts[u+2]++
	}
	for u := 1; u < len(starts); u++ {
		starts[u] += starts[u-1]
	}
	nodes, edges := room(&e.fromNodes, v.edges), room(&e.fromEdges, v.edges)
	ordered := room(&e.fromWeights, v.edges)
	for d := range destinations {
		for i := int(v.offsets[d]) - first; i < int(v.offsets[d+1])-first; i++ {
			at := starts[index[i]+1]
			starts[index[i]+1]++
			nodes[at], edges[at] = uint32(d), uint32(i)
			if weights != nil {
				ordered[at] = weights[first+i]
			}
		}
	}
}

// sumLists sets rows [lo, hi) of dst to the sums of the rows of x that lists, which follow each other, name.
func (s *stream) sumLists(thread int, dst, x matrix[float32], lo, hi int, offsets, nodes []uint32,
	coefficients []float32) {
	if lo == hi || dst.cols == 0 {
		return
	}
	const most = 1024 // of edgeGrain
	lengths := s.scratch.edges.lengths[thread*most:][:hi-lo]
	for i := range lengths {
		lengths[i] = int(offsets[lo+i+1] - offsets[lo+i])
	}
	first := int(offsets[lo])
	nodes, coefficients = nodes[first:], coefficients[first:]
	if dst.stride == x.stride {
		kernel.SumColumns(dst.data[lo*dst.stride:], x.data, x.stride, x.cols, nodes, lengths, coefficients)
		return
	}
	for i, n := range lengths {
		kernel.SumColumns(dst.row(lo+i, 0, dst.cols), x.data, x.stride, x.cols, nodes, lengths[i:i+1], coefficients)
		nodes, coefficients = nodes[n:], coefficients[n:]
	}
}

// viewSum views the tensors of SumEdges or its backward pass, of rows by destination and by source.
func (s *stream) viewSum(byDestination, bySource gds.Tensor) error {
	t := s.op.tensors
	offsets, indices, weights := t[2], t[3], t[4]
	if byDestination.Cols != bySource.Cols || weights.Cols != indices.Cols || weights.Rows != indices.Rows {
		return errShape
	}
	for i, at := range []int{0, 1, 4} {
		m, err := view[float32](s.device, t[at], gds.Float32)
		if err != nil {
			return err
		}
		s.views.floats[i] = m
	}
	room(&s.scratch.edges.lengths, 1024*s.device.options.Threads)
	return s.viewEdges(offsets, indices, byDestination.Rows, bySource.Rows)
}

var sumEdgesOp = kind{name: "SumEdges", tensors: 5, run: func(s *stream) error {
	dst, src := s.op.tensors[0], s.op.tensors[1]
	if err := s.viewSum(dst, src); err != nil {
		return err
	}
	return s.loop(dst.Rows, s.edgeGrain(dst.Rows, dst.Cols), func(s *stream, p part) error {
		v := &s.views
		weights := v.floats[2].row(0, 0, v.floats[2].cols)
		s.sumLists(p.thread, v.floats[0], v.floats[1], p.lo, p.hi, v.offsets, v.index, weights)
		return nil
	})
}}

func (s *stream) SumEdges(dst, src, offsets, indices, weights gds.Tensor) {
	s.push(op{kind: &sumEdgesOp, tensors: [maxTensors]gds.Tensor{dst, src, offsets, indices, weights}})
}

var sumEdgesGradOp = kind{name: "SumEdgesGrad", tensors: 5, run: func(s *stream) error {
	dst, grad := s.op.tensors[0], s.op.tensors[1]
	if err := s.viewSum(grad, dst); err != nil {
		return err
	}
	s.bySource(grad.Rows, s.views.floats[2].row(0, 0, s.views.floats[2].cols))
	return s.loop(dst.Rows, s.edgeGrain(dst.Rows, dst.Cols), func(s *stream, p part) error {
		v, e := &s.views, &s.scratch.edges
		s.sumLists(p.thread, v.floats[0], v.floats[1], p.lo, p.hi, e.fromOffsets, e.fromNodes, e.fromWeights)
		return nil
	})
}}

func (s *stream) SumEdgesGrad(dst, grad, offsets, indices, weights gds.Tensor) {
	s.push(op{kind: &sumEdgesGradOp, tensors: [maxTensors]gds.Tensor{dst, grad, offsets, indices, weights}})
}

// viewAttention views the tensors of AttendEdges, or of its backward pass, and checks shapes: perDestination is [D,w],
// stats [D,2H], perSource [S,w] and scores [S,2H].
func (s *stream) viewAttention(perDestination, stats gds.Tensor, perSource, scores []gds.Tensor, offsets,
	indices gds.Tensor) error {
	w, heads2 := perSource[0].Cols, scores[0].Cols
	if heads2 < 2 || heads2%2 != 0 || w%(heads2/2) != 0 {
		return errShape
	}
	d, n := perDestination.Rows, perSource[0].Rows
	if perDestination.Cols != w || stats.Rows != d || stats.Cols != heads2 {
		return errShape
	}
	for _, t := range perSource {
		if t.Rows != n || t.Cols != w {
			return errShape
		}
	}
	for _, t := range scores {
		if t.Rows != n || t.Cols != heads2 {
			return errShape
		}
	}
	if d > n {
		return errShape
	}
	for i := range s.op.kind.tensors - 2 {
		m, err := view[float32](s.device, s.op.tensors[i], gds.Float32)
		if err != nil {
			return err
		}
		s.views.floats[i] = m
	}
	s.op.heads = heads2 / 2
	room(&s.scratch.edges.lengths, 1024*s.device.options.Threads)
	return s.viewEdges(offsets, indices, d, n)
}

// leaky is LeakyReLU.
func leaky(x, slope float32) float32 {
	if x > 0 {
		return x
	}
	return slope * x
}

var attendEdgesOp = kind{name: "AttendEdges", tensors: 6, run: func(s *stream) error {
	t := s.op.tensors
	if err := s.viewAttention(t[0], t[1], t[2:3], t[3:4], t[4], t[5]); err != nil {
		return err
	}
	room(&s.scratch.edges.alpha, s.views.edges*s.op.heads)
	return s.loop(t[0].Rows, s.edgeGrain(t[0].Rows, t[0].Cols+8*s.op.heads), func(s *stream, p part) error {
		v, heads, slope := &s.views, s.op.heads, s.op.alpha
		dst, stats, values, scores := v.floats[0], v.floats[1], v.floats[2], v.floats[3]
		size := dst.cols / heads
		for d := p.lo; d < p.hi; d++ {
			lo, hi := int(v.offsets[d]), int(v.offsets[d+1])
			index := v.index[lo:hi]
			own, stat, out := scores.row(d, 0, 2*heads), stats.row(d, 0, 2*heads), dst.row(d, 0, dst.cols)
			for h := range heads {
				// The edges of v lie side by side for each head.
				alpha := s.scratch.edges.alpha[(lo-v.firstEdge)*heads+h*len(index):][:len(index)]
				for i, u := range index {
					alpha[i] = leaky(scores.data[int(u)*scores.stride+2*h]+own[2*h+1], slope)
				}
				largest, sum := float32(0), float32(1)
				if len(index) > 0 {
					largest = kernel.Max(alpha)
					sum = kernel.Exp(alpha, alpha, largest)
				}
				for i := range alpha {
					alpha[i] /= sum
				}
				stat[2*h], stat[2*h+1] = largest, sum
				if size > 0 {
					length := s.scratch.edges.lengths[p.thread*1024:][:1]
					length[0] = len(index)
					kernel.SumColumns(out[h*size:][:size], values.data[min(h*size, len(values.data)):], values.stride,
						size, index, length, alpha)
				}
			}
		}
		return nil
	})
}}

func (s *stream) AttendEdges(dst, stats, values, scores, offsets, indices gds.Tensor, slope float32) {
	s.push(op{kind: &attendEdgesOp, tensors: [maxTensors]gds.Tensor{dst, stats, values, scores, offsets, indices},
		alpha: slope})
}

var attendEdgesGradOp = kind{name: "AttendEdgesGrad", tensors: 8, run: func(s *stream) error {
	t := s.op.tensors
	gradValues, gradScores, grad := t[0], t[1], t[2]
	if err := s.viewAttention(grad, t[3], []gds.Tensor{gradValues, t[4]}, []gds.Tensor{gradScores, t[5]}, t[6],
		t[7]); err != nil {
		return err
	}
	heads := s.op.heads
	room(&s.scratch.edges.alpha, s.views.edges*heads)
	room(&s.scratch.edges.gradScore, s.views.edges*heads)
	for u := grad.Rows; u < gradScores.Rows; u++ { // no destinations
		row := s.views.floats[1].row(u, 0, 2*heads)
		for h := range heads {
			row[2*h+1] = 0
		}
	}
	// By destination: the coefficients and the gradients of all edges.
	err := s.loop(grad.Rows, s.edgeGrain(grad.Rows, grad.Cols+8*heads), func(s *stream, p part) error {
		v, heads, slope := &s.views, s.op.heads, s.op.alpha
		gradScores, grad, stats, values, scores := v.floats[1], v.floats[2], v.floats[3], v.floats[4], v.floats[5]
		size := grad.cols / heads
		for d := p.lo; d < p.hi; d++ {
			lo, hi := int(v.offsets[d]), int(v.offsets[d+1])
			index := v.index[lo:hi]
			own, stat := scores.row(d, 0, 2*heads), stats.row(d, 0, 2*heads)
			g := grad.row(d, 0, grad.cols)
			at := (lo - v.firstEdge) * heads
			alpha, gradScore := s.scratch.edges.alpha[at:][:len(index)*heads],
				s.scratch.edges.gradScore[at:][:len(index)*heads]
			for i, u := range index {
				for h := range heads {
					alpha[i*heads+h] = leaky(scores.data[int(u)*scores.stride+2*h]+own[2*h+1], slope) - stat[2*h]
				}
			}
			kernel.Exp(alpha, alpha, 0)
			for h := range heads {
				gh := g[h*size : (h+1)*size]
				mean, total := float32(0), float32(0)
				for i, u := range index {
					by := kernel.Dot(gh, values.row(int(u), h*size, (h+1)*size))
					alpha[i*heads+h] /= stat[2*h+1]
					mean += float32(alpha[i*heads+h] * by)
					gradScore[i*heads+h] = by
				}
				for i, u := range index {
					by := alpha[i*heads+h] * (gradScore[i*heads+h] - mean)
					if !(scores.data[int(u)*scores.stride+2*h]+own[2*h+1] > 0) {
						by *= slope
					}
					total += by
					gradScore[i*heads+h] = by
				}
				gradScores.row(d, 2*h+1, 2*h+2)[0] = total
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.bySource(grad.Rows, nil)
	return s.loop(gradValues.Rows, s.edgeGrain(gradValues.Rows, gradValues.Cols+8*heads),
		func(s *stream, p part) error {
			v, e, heads := &s.views, &s.scratch.edges, s.op.heads
			gradValues, gradScores, grad := v.floats[0], v.floats[1], v.floats[2]
			size := grad.cols / heads
			length := e.lengths[p.thread*1024:][:1]
			for u := p.lo; u < p.hi; u++ {
				lo, hi := int(e.fromOffsets[u]), int(e.fromOffsets[u+1])
				for h := range heads {
					alpha, sum := e.fromWeights[lo:hi], float32(0)
					for i, edge := range e.fromEdges[lo:hi] {
						at := int(edge)*heads + h
						alpha[i] = e.alpha[at]
						sum += e.gradScore[at]
					}
					gradScores.row(u, 2*h, 2*h+1)[0] = sum
					if size > 0 {
						length[0] = hi - lo
						kernel.SumColumns(gradValues.row(u, h*size, (h+1)*size),
							grad.data[min(h*size, len(grad.data)):],
							grad.stride, size, e.fromNodes[lo:hi], length, alpha)
					}
				}
			}
			return nil
		})
}}

func (s *stream) AttendEdgesGrad(gradValues, gradScores, grad, stats, values, scores, offsets, indices gds.Tensor,
	slope float32) {
	s.push(op{kind: &attendEdgesGradOp, tensors: [maxTensors]gds.Tensor{gradValues, gradScores, grad, stats, values,
		scores, offsets, indices}, alpha: slope})
}
