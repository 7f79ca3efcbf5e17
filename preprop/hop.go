package preprop

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// blockEdges is the number of terms that are summed at a time, and part of the
// format: see propagator.
const blockEdges = 1024

// propagator applies an operator to features:
//
//	out[v] = s(v) * sum over u in N_in(v) of w(u,v) * t(u) * x[u]
//
// The arithmetic is part of the format. It is float32, rounded to nearest even
// after each operation and never fused, but where float64 is said:
//
//  1. The terms of row v are its in-neighbours in the operator's graph, ascending, each
//     as often as there is an edge, in the order of topology, with weight 1 where the
//     graph has no weights. If v is not among them, and the operator adds loops, v is
//     put in its place, with weight 1.
//  2. d(v) is the sum of the weights of v's terms, in that order, in float64; e(u) that
//     of the terms that u is, over the rows in ascending order, likewise. With sym,
//     s(v) = t(v) = 1 / sqrt(d(v)); with rw, s(v) = 1 / d(v) and t(v) = 1; with col,
//     s(v) = 1 and t(u) = 1 / e(u); in float64, then rounded. Where d(v) or e(u) is not
//     above 0, what is made of it is 0.
//  3. A term is c * x[u], with the coefficient c = w(u,v) * t(u). Terms are summed in
//     blocks of 1024, one after another, starting from +0; the sums of the blocks
//     are added, in order, to a total that starts at +0.
//  4. out[v] = s(v) * total, rounded to the stored type. The next hop starts from
//     what is stored.
type propagator struct {
	graph topology
	loops bool
	s, t  []float32       // [n]; nil where they are 1
	buf   *offheap.Buffer // of s or t
}

// newPropagator computes the factors s and t of an operator over graph, the topology of
// o.Graph. The caller frees its buf.
func newPropagator(ctx context.Context, graph topology, o Operator, threads int) (*propagator, error) {
	buf, err := offheap.Alloc(graph.Nodes() * 4)
	if err != nil {
		return nil, err
	}
	factors := dtype.Float32s(buf.Bytes())
	p := &propagator{graph: graph, loops: !o.NoLoops, buf: buf}
	switch o.Name {
	case Sym:
		p.s, p.t = factors, factors
		err = p.inDegrees(ctx, threads, func(v int64, d float64) { factors[v] = inverse(math.Sqrt(d)) })
	case RW:
		p.s = factors
		err = p.inDegrees(ctx, threads, func(v int64, d float64) { factors[v] = inverse(d) })
	case Col:
		p.t = factors
		err = p.outDegrees(ctx, threads, func(u int64, d float64) { factors[u] = inverse(d) })
	}
	if err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	return p, nil
}

// factorsCost is what factors take: they are held for each Operator.base, and degrees while those
// of Col are computed, from one pass over the operator's graph.
func (w *work) factorsCost(p *Plan) cost {
	var c cost
	_, bases := w.graphs()
	degrees := int64(0)
	for base := range bases {
		c.add(cost{memory: during(preparing, lastPanel, 4*w.nodes)})
		if base.Name == Col {
			degrees = 8 * w.nodes
		}
		if !p.TopologyInMemory {
			c.add(cost{read: w.topologyOf(base.Graph), topologyPasses: 1})
		}
	}
	c.memory[preparing] += degrees
	return c
}

// hopsCost is what products take: each reader of the topology has a batch, and each product reads
// a topology on disk once for each panel.
func (w *work) hopsCost(p *Plan) cost {
	var c cost
	if len(w.sequences) == 0 {
		return c
	}
	readers := w.threads
	if !p.TopologyInMemory {
		readers = diskReaders(w.threads)
		for _, s := range w.sequences {
			passes := s.products() * p.Panels
			c.add(cost{read: int64(passes) * w.topologyOf(s.operator.Graph), topologyPasses: passes})
		}
	}
	c.memory = during(computing, computing, int64(readers)*batchBytes(p.PanelColumns, w.weighted))
	return c
}

// inverse is 1 / d, or 0 where d is not above 0.
func inverse(d float64) float32 {
	if !(d > 0) {
		return 0
	}
	return float32(1 / d)
}

// inDegrees calls set with each node's d(v), from several goroutines.
func (p *propagator) inDegrees(ctx context.Context, threads int, set func(v int64, d float64)) error {
	return p.graph.each(ctx, 0, threads, func(b *format.Block) error {
		for v := b.First; v < b.First+b.Rows(); v++ {
			set(v, p.terms(b, v).degree())
		}
		return nil
	})
}

// outDegrees calls set with each node's e(u).
func (p *propagator) outDegrees(ctx context.Context, threads int, set func(u int64, d float64)) error {
	buf, err := offheap.Alloc(8 * p.graph.Nodes())
	if err != nil {
		return err
	}
	defer buf.Free()
	degrees := dtype.As[float64](buf.Bytes())
	err = bySource(ctx, p.graph, 0, p.graph.Nodes(), threads, func(lo, hi int64, b *format.Block, v int64, i, j int) {
		if lo <= v && v < hi && p.terms(b, v).loop >= 0 {
			degrees[v]++
		}
		weights := b.InWeights(v)
		for e, u := range b.In(v)[i:j] {
			w := 1.0
			if weights != nil {
				w = float64(weights[i+e])
			}
			degrees[u] += w
		}
	})
	for u, d := range degrees {
		set(int64(u), d)
	}
	return err
}

// terms are the terms that add up to the row of a node.
type terms struct {
	node      uint32
	neighbors []uint32
	weights   []float32 // nil: all 1
	loop      int       // index of an added self-loop, or -1
}

func (p *propagator) terms(b *format.Block, v int64) terms {
	t := terms{node: uint32(v), neighbors: b.In(v), weights: b.InWeights(v), loop: -1}
	if p.loops {
		if at, found := slices.BinarySearch(t.neighbors, t.node); !found {
			t.loop = at
		}
	}
	return t
}

func (t *terms) len() int {
	if t.loop >= 0 {
		return len(t.neighbors) + 1
	}
	return len(t.neighbors)
}

// at returns the i-th term.
func (t *terms) at(i int) (node uint32, weight float32) {
	if t.loop >= 0 && i >= t.loop {
		if i == t.loop {
			return t.node, 1
		}
		i--
	}
	if t.weights == nil {
		return t.neighbors[i], 1
	}
	return t.neighbors[i], t.weights[i]
}

func (t terms) degree() float64 {
	if t.weights == nil {
		return float64(t.len())
	}
	d := 0.0
	for i := range t.len() {
		_, w := t.at(i)
		d += float64(w)
	}
	return d
}

// hop computes the rows of dst that are in want, from src, and returns how many terms it
// added up. dst and src are different matrices of the same shape. with is what products of
// a series are blended with, else nil. done is called with the numbers of edges and nodes
// that it has passed, wanted or not.
func (p *propagator) hop(ctx context.Context, dst, src *matrix, with *blend, want nodeSet, threads int, done func(cost int64)) (int64, error) {
	added, _, err := p.hopFrom(ctx, dst, src, with, want, 0, threads, func(cost int64) bool { done(cost); return false })
	return added, err
}

// errPause ends the blocks of a hop that pauses.
var errPause = errors.New("the hop pauses")

// hopFrom is hop for the rows from row from on. It ends early when done returns true; the
// rows before reached are then computed, and another call goes on from there.
func (p *propagator) hopFrom(ctx context.Context, dst, src *matrix, with *blend, want nodeSet, from int64, threads int, done func(cost int64) (pause bool)) (added, reached int64, err error) {
	pool := &batches{make: func() *batch { return newBatch(p, dst, src, with) }}
	var all, reach atomic.Int64
	reach.Store(from)
	var failure lowestError
	err = p.graph.each(ctx, from, threads, func(b *format.Block) error {
		rows := pool.get()
		added := int64(0)
		for v := b.First; v < b.First+b.Rows(); v++ {
			if !want.has(v) {
				continue
			}
			t := p.terms(b, v)
			var err error
			if t.len() > hubBlocks*blockEdges {
				err = rows.addHub(ctx, t, pool, threads)
			} else {
				err = rows.add(t)
			}
			if err != nil {
				return failure.report(b.First, err)
			}
			added += int64(t.len())
		}
		if err := rows.flush(); err != nil {
			return failure.report(b.First, err)
		}
		pool.put(rows)
		all.Add(added)
		for end, most := b.First+b.Rows(), reach.Load(); end > most && !reach.CompareAndSwap(most, end); {
			most = reach.Load()
		}
		if done(b.Edges() + b.Rows()) {
			return errPause
		}
		return nil
	})
	switch {
	case failure.err != nil:
		return 0, from, failure.err
	case err == nil:
		return all.Load(), p.graph.Nodes(), nil
	case errors.Is(err, errPause): // all blocks that were begun are finished
		err = nil
	}
	return all.Load(), reach.Load(), err
}
