// Package product multiplies matrices of features by operators on the processor: topologies in memory and on disk,
// matrices, and the arithmetic of a hop, which is part of the format (see Propagator).
package product

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Propagator applies an operator to features:
//
//	out[v] = s(v) * sum over u in N_in(v) of w(u,v) * t(u) * x[u]
//
// The arithmetic is part of the format: docs/format.md (Arithmetic) has the terms and their order, the factors s and t,
// and what is rounded.
type Propagator struct {
	Graph Topology
	Loops bool
	S, T  []float32       // [n]; nil where they are 1
	Buf   *offheap.Buffer // of s or t
	Edges *EdgeFactors    // nil: t is looked up by node
}

// NewPropagator computes the factors s and t of an operator over graph, the topology of o.Graph: in a walk, and in a
// pass of its own what adds edges up by source. The caller frees its buf.
func NewPropagator(ctx context.Context, graph Topology, o operator.Operator, threads int,
	walk WalkAll) (*Propagator, error) {
	buf, err := offheap.Alloc(plan.FactorsBytes(o, graph.Nodes(), graph.Sources()))
	if err != nil {
		return nil, err
	}
	factors := dtype.Float32s(buf.Bytes())
	p := &Propagator{Graph: graph, Loops: !o.NoLoops, Buf: buf}
	switch {
	case o.Name == operator.Sym && o.Metapath != "": // the other side has degrees of its own
		p.S, p.T = factors[:graph.Nodes()], factors[graph.Nodes():]
		err = p.inDegrees(walk, func(v int64, d float64) { p.S[v] = inverse(math.Sqrt(d)) })
		if err == nil {
			err = p.outDegrees(ctx, threads, func(u int64, d float64) { p.T[u] = inverse(math.Sqrt(d)) })
		}
	case o.Name == operator.Sym:
		p.S, p.T = factors, factors
		err = p.inDegrees(walk, func(v int64, d float64) { factors[v] = inverse(math.Sqrt(d)) })
	case o.Name == operator.RW:
		p.S = factors
		err = p.inDegrees(walk, func(v int64, d float64) { factors[v] = inverse(d) })
	case o.Name == operator.Col:
		p.T = factors
		err = p.outDegrees(ctx, threads, func(u int64, d float64) { factors[u] = inverse(d) })
	}
	if err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	return p, nil
}

// inverse is 1 / d, or 0 where d is not above 0.
func inverse(d float64) float32 {
	if !(d > 0) {
		return 0
	}
	return float32(1 / d)
}

// inDegrees calls set with each node's d(v), from several goroutines.
func (p *Propagator) inDegrees(walk WalkAll, set func(v int64, d float64)) error {
	return walk(func(b *Range) error {
		for v := b.First; v < b.First+b.Rows(); v++ {
			set(v, p.Terms(&b.NodeRange, v).degree())
		}
		return nil
	})
}

// outDegrees calls set with each node's e(u).
func (p *Propagator) outDegrees(ctx context.Context, threads int, set func(u int64, d float64)) error {
	buf, err := offheap.Alloc(8 * p.Graph.Sources())
	if err != nil {
		return err
	}
	defer buf.Free()
	degrees := dtype.As[float64](buf.Bytes())
	restart := func(lo, hi int64) { clear(degrees[lo:hi]) }
	err = bySource(ctx, p.Graph, 0, p.Graph.Sources(), threads, restart,
		func(lo, hi int64, b *format.NodeRange, v int64, i, j int) {
			if lo <= v && v < hi && p.Terms(b, v).Loop >= 0 {
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

// Terms are the terms that add up to the row of a node.
type Terms struct {
	Node      uint32
	Neighbors []uint32
	Weights   []float32 // nil: all 1
	Loop      int       // index of an added self-loop, or -1
}

func (p *Propagator) Terms(b *format.NodeRange, v int64) Terms {
	t := Terms{Node: uint32(v), Neighbors: b.In(v), Weights: b.InWeights(v), Loop: -1}
	if p.Loops {
		if at, found := slices.BinarySearch(t.Neighbors, t.Node); !found {
			t.Loop = at
		}
	}
	return t
}

func (t *Terms) Len() int {
	if t.Loop >= 0 {
		return len(t.Neighbors) + 1
	}
	return len(t.Neighbors)
}

// degree is the sum of the weights, in the order of the terms.
func (t Terms) degree() float64 {
	if t.Weights == nil {
		return float64(t.Len())
	}
	d := 0.0
	for i, w := range t.Weights {
		if i == t.Loop {
			d++
		}
		d += float64(w)
	}
	if t.Loop == len(t.Weights) {
		d++
	}
	return d
}

// Hop computes the rows of dst that are in want, from src, and returns how many terms it added up. dst and src are
// different matrices of the same shape. with is what products of a series are blended with, else nil. done is called
// with the numbers of edges and nodes that it has passed, wanted or not.
func (p *Propagator) Hop(ctx context.Context, dst, src *Matrix, with *Blend, want NodeSet, threads int,
	done func(cost int64)) (int64, error) {
	added, _, err := p.HopFrom(ctx, dst, src, with, want, 0, threads,
		func(cost int64) bool { done(cost); return false })
	return added, err
}

// Walk is a walk over the node ranges of a graph that computes the rows of a product. It is safe for concurrent use.
type Walk struct {
	Added   atomic.Int64 // terms that were added up
	reached atomic.Int64
	failure LowestError
}

// errPause ends the node ranges of a walk that pauses.
var errPause = errors.New("the hop pauses")

// Range ends a node range with the rows [first, end), which were computed, or failed with err. A failure counts even if
// another node range has paused the walk.
func (w *Walk) Range(first, end int64, err error, pause func() bool) error {
	if err != nil {
		return w.failure.Report(first, err)
	}
	for most := w.reached.Load(); end > most && !w.reached.CompareAndSwap(most, end); {
		most = w.reached.Load()
	}
	if pause() {
		return errPause
	}
	return nil
}

// End is how far a walk from row from on came in a graph of n nodes; err is what ended it. All node ranges that were
// begun are finished.
func (w *Walk) End(from, n int64, err error) (added, reached int64, _ error) {
	switch {
	case w.failure.Err != nil:
		return 0, from, w.failure.Err
	case err == nil:
		return w.Added.Load(), n, nil
	case errors.Is(err, errPause):
		return w.Added.Load(), max(from, w.reached.Load()), nil
	}
	return w.Added.Load(), max(from, w.reached.Load()), err
}

// HopFrom is Hop for the rows from row from on. It ends early when done returns true; the rows before reached are
// then computed, and another call goes on from there.
func (p *Propagator) HopFrom(ctx context.Context, dst, src *Matrix, with *Blend, want NodeSet, from int64, threads int,
	done func(cost int64) (pause bool)) (added, reached int64, err error) {
	pool := &Batches{Make: func() *Batch { return NewBatch(p, dst, src, with) }}
	var walk Walk
	err = p.Graph.Each(ctx, from, threads, p.Edges, func(b *Range) error {
		err := p.addRange(ctx, b, want, pool, threads, &walk.Added)
		return walk.Range(b.First, b.First+b.Rows(), err, func() bool { return done(b.Edges() + b.Rows()) })
	})
	return walk.End(from, p.Graph.Nodes(), err)
}

// addRange computes the rows of a node range that are in want.
func (p *Propagator) addRange(ctx context.Context, b *Range, want NodeSet, pool *Batches, threads int,
	sum *atomic.Int64) error {
	rows := pool.Get()
	rows.Added = 0
	rows.Begin(b)
	for v := b.First; v < b.First+b.Rows(); v++ {
		if !want.Has(v) {
			continue
		}
		if err := rows.Add(ctx, b, v, pool, threads); err != nil {
			return err
		}
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	sum.Add(rows.Added) // before Put, after which a hub's goroutine may count in rows
	pool.Put(rows)
	return nil
}

// PlaceOf is the first place of the terms of a row of a node range.
func (p *Propagator) PlaceOf(b *format.NodeRange, v int64) int64 {
	place := b.Offsets[v-b.First]
	if p.Loops {
		place += v
	}
	return place
}

// NodeSet is a set of nodes, one bit each; nil is all nodes.
type NodeSet []uint64

func NewNodeSet(nodes int64) NodeSet { return make(NodeSet, plan.NodeSetBytes(nodes)/8) }

func (s NodeSet) Has(v int64) bool { return s == nil || s[v>>6]>>(v&63)&1 != 0 }

// Add is safe for concurrent use, also with has, which may miss a node that is being added.
func (s NodeSet) Add(v int64) {
	if word, bit := &s[v>>6], uint64(1)<<(v&63); atomic.LoadUint64(word)&bit == 0 {
		atomic.OrUint64(word, bit)
	}
}

// Count is the number of nodes of a set that is not nil.
func (s NodeSet) Count() int64 {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return int64(n)
}

// Needed returns, for each of a number of products with the operator that follow one another, the nodes whose rows
// the product must compute, so that every product can compute the stored ones: the nodes of the next product and
// their in-neighbours. The nodes of the next product are always included, so that self-loops and the terms of a
// series need no care. It takes a walk for each product but the last, or fewer.
func Needed(graph Topology, stored NodeSet, products int, walk WalkAll) ([]NodeSet, error) {
	need := make([]NodeSet, products)
	if products > 0 {
		need[products-1] = stored
	}
	closed := stored == nil // earlier products need the same nodes
	for r := products - 2; r >= 0; r-- {
		next := need[r+1]
		if need[r] = next; closed {
			continue
		}
		set := slices.Clone(next) // it has the in-neighbours of the nodes that the product after next needs
		err := walk(func(b *Range) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				if !next.Has(v) || r+2 < products && need[r+2].Has(v) {
					continue
				}
				for _, u := range b.In(v) {
					set.Add(int64(u))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		switch set.Count() {
		case graph.Nodes():
			need[r], closed = nil, true
		case next.Count():
			closed = true
		default:
			need[r] = set
		}
	}
	return need, nil
}
