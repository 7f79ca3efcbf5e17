package host

import (
	"errors"
	"slices"

	"github.com/hopfeed/hopfeed/internal/kernel"
)

// edgeScratch is memory for operations along edges.
type edgeScratch struct {
	terms []lists // of a part, for each thread

	// The edges by source: source u has the edges fromOffsets[u] to fromOffsets[u+1]-1.
	fromOffsets []uint32
	fromNodes   []uint32  // destinations
	fromEdges   []uint32  // numbers, counted from the first edge
	fromWeights []float32 // weights, or coefficients of one head

	alpha, gradScore []float32 // of each edge and head
}

// lists are sums of rows that a thread is to compute, in cache lines of their own.
type lists struct {
	kernel.Terms
	_ [128]byte
}

// edgeViews are the edges that an operation goes along.
type edgeViews struct {
	offsets, indices      []uint32
	first, count, sources int // the first edge, and how many there are
}

// edgeGrain is how many destinations or sources one part of a loop has at most.
const edgeGrain = 1024

var (
	errOffsets = errors.New("offsets of edges descend, or go beyond the edges")
	errSource  = errors.New("an edge comes from a source that does not exist")
)

// viewEdges views and checks edges whose offsets are tensor i and whose indices the next. sources is how many rows
// the indices may name.
func (s *stream) viewEdges(i, sources int) error {
	v := &s.views.edges
	v.offsets, v.indices, v.sources = vector[uint32](s, i), vector[uint32](s, i+1), sources
	destinations := len(v.offsets) - 1
	room(&s.scratch.edges.terms, s.device.options.Threads)
	if err := s.loop(destinations, grainWork, func(s *stream, p part) error {
		for d, offset := range s.views.edges.offsets[p.lo:p.hi] {
			if offset > s.views.edges.offsets[p.lo+d+1] {
				return errOffsets
			}
		}
		return nil
	}); err != nil {
		return err
	}
	first, end := int(v.offsets[0]), int(v.offsets[destinations])
	if end > len(v.indices) {
		return errOffsets
	}
	v.first, v.count = first, end-first
	return s.loop(v.count, grainWork, func(s *stream, p part) error {
		v := &s.views.edges
		if int(slices.Max(v.indices[v.first:][p.lo:p.hi])) >= v.sources {
			return errSource
		}
		return nil
	})
}

// alongEdges calls body for ranges of rows, of destinations or of sources, of cols elements each.
func (s *stream) alongEdges(rows, cols int, body func(s *stream, p part) error) error {
	perRow := (s.views.edges.count/max(rows, 1) + 1) * max(cols, 1)
	return s.loop(rows, max(1, min(edgeGrain, 2*grainWork/perRow)), body)
}

// bySource orders the edges by source, and the edges of a source by destination. weights may be nil.
func (s *stream) bySource(weights []float32) {
	e, v := &s.scratch.edges, &s.views.edges
	first := v.first
	index := v.indices[first:][:v.count]
	starts := room(&e.fromOffsets, v.sources+2)
	clear(starts)
	for _, u := range index {
		starts[u+2]++
	}
	for u := 1; u < len(starts); u++ {
		starts[u] += starts[u-1]
	}
	nodes, edges := room(&e.fromNodes, v.count), room(&e.fromEdges, v.count)
	ordered := room(&e.fromWeights, v.count)
	for d := range len(v.offsets) - 1 {
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

// sumLists sets the rows of a part of dst to sums of rows of x, times their coefficients: row i to the sum of the rows
// nodes[offsets[i]:offsets[i+1]].
func (s *stream) sumLists(p part, dst, x matrix[float32], offsets, nodes []uint32, coefficients []float32) {
	if dst.cols == 0 {
		return
	}
	t := &s.scratch.edges.terms[p.thread]
	t.Nodes, t.Edges, t.Lists = nodes, coefficients, t.Lists[:0]
	for i := p.lo; i < p.hi; i++ {
		t.Lists = append(t.Lists, kernel.List{Start: int64(offsets[i]), End: int64(offsets[i+1]), Self: -1})
	}
	if dst.stride == x.stride {
		kernel.SumListsFloat32(dst.data[p.lo*dst.stride:], x.data, x.stride, x.cols, &t.Terms)
		return
	}
	all := t.Lists
	for i := range all {
		t.Lists = all[i : i+1]
		kernel.SumListsFloat32(dst.all(p.lo+i), x.data, x.stride, x.cols, &t.Terms)
	}
	t.Lists = all
}

// sumHead sets out, of one head, to the sum of the columns from column at on of the rows of x.
func (s *stream) sumHead(thread int, out []float32, x matrix[float32], at int, nodes []uint32, coefficients []float32) {
	if len(out) == 0 {
		return
	}
	t := &s.scratch.edges.terms[thread]
	t.Nodes, t.Edges = nodes, coefficients
	t.Lists = append(t.Lists[:0], kernel.List{End: int64(len(nodes)), Self: -1})
	kernel.SumListsFloat32(out, x.data[min(at, len(x.data)):], x.stride, len(out), &t.Terms)
}

func (s *stream) sumEdges() error {
	dst, src := s.views.floats[0], s.views.floats[1]
	if err := s.viewEdges(2, src.rows); err != nil {
		return err
	}
	return s.alongEdges(dst.rows, dst.cols, func(s *stream, p part) error {
		v, e := &s.views.floats, &s.views.edges
		s.sumLists(p, v[0], v[1], e.offsets, e.indices, v[4].data)
		return nil
	})
}

func (s *stream) sumEdgesGrad() error {
	dst := s.views.floats[0]
	if err := s.viewEdges(2, dst.rows); err != nil {
		return err
	}
	s.bySource(s.views.floats[4].data)
	return s.alongEdges(dst.rows, dst.cols, func(s *stream, p part) error {
		v, e := &s.views.floats, &s.scratch.edges
		s.sumLists(p, v[0], v[1], e.fromOffsets, e.fromNodes, e.fromWeights)
		return nil
	})
}

// leaky is LeakyReLU.
func leaky(x, slope float32) float32 {
	if x > 0 {
		return x
	}
	return slope * x
}

func (s *stream) attendEdges() error {
	dst, values, heads := s.views.floats[0], s.views.floats[2], s.views.floats[3].cols/2
	if err := s.viewEdges(4, values.rows); err != nil {
		return err
	}
	room(&s.scratch.edges.alpha, s.views.edges.count*heads)
	return s.alongEdges(dst.rows, dst.cols+8*heads, func(s *stream, p part) error {
		f, e, slope := &s.views.floats, &s.views.edges, s.call.Alpha
		dst, stats, values, scores, heads := f[0], f[1], f[2], f[3], f[3].cols/2
		size := dst.cols / heads
		for d := p.lo; d < p.hi; d++ {
			lo, hi := int(e.offsets[d]), int(e.offsets[d+1])
			index := e.indices[lo:hi]
			own, stat, out := scores.all(d), stats.all(d), dst.all(d)
			for h := range heads {
				// The edges of d lie side by side for each head.
				alpha := s.scratch.edges.alpha[(lo-e.first)*heads+h*len(index):][:len(index)]
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
				s.sumHead(p.thread, out[h*size:][:size], values, h*size, index, alpha)
			}
		}
		return nil
	})
}

func (s *stream) attendEdgesGrad() error {
	gradValues, gradScores, grad := s.views.floats[0], s.views.floats[1], s.views.floats[2]
	if err := s.viewEdges(6, gradValues.rows); err != nil {
		return err
	}
	heads := gradScores.cols / 2
	room(&s.scratch.edges.alpha, s.views.edges.count*heads)
	room(&s.scratch.edges.gradScore, s.views.edges.count*heads)
	for u := grad.rows; u < gradScores.rows; u++ { // no destinations
		row := gradScores.all(u)
		for h := range heads {
			row[2*h+1] = 0
		}
	}
	// By destination: the coefficients and the gradients of all edges.
	err := s.alongEdges(grad.rows, grad.cols+8*heads, func(s *stream, p part) error {
		f, e, slope := &s.views.floats, &s.views.edges, s.call.Alpha
		gradScores, grad, stats, values, scores := f[1], f[2], f[3], f[4], f[5]
		heads := scores.cols / 2
		size := grad.cols / heads
		for d := p.lo; d < p.hi; d++ {
			lo, hi := int(e.offsets[d]), int(e.offsets[d+1])
			index := e.indices[lo:hi]
			own, stat := scores.all(d), stats.all(d)
			g := grad.all(d)
			at := (lo - e.first) * heads
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
	s.bySource(nil)
	return s.alongEdges(gradValues.rows, gradValues.cols+8*heads,
		func(s *stream, p part) error {
			f, e := &s.views.floats, &s.scratch.edges
			gradValues, gradScores, grad, heads := f[0], f[1], f[2], f[1].cols/2
			size := grad.cols / heads
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
					s.sumHead(p.thread, gradValues.row(u, h*size, (h+1)*size), grad, h*size, e.fromNodes[lo:hi], alpha)
				}
			}
			return nil
		})
}
