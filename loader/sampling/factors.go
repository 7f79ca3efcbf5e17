package sampling

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// factors give the matrix of an Aggregation: A[v,u] = s(v) w(u,v) t(u).
type factors struct {
	mean  bool      // s(v) is 1/d(v) where the graph has no weights
	s, t  []float32 // [n]; nil where they are 1, or s by mean
	added bool      // self-loops of weight 1 are added where the graph has none

	// loops [n] says where in its list node v has a self-loop: the index + 1, or 0; nil: no node
	// has one. Only where self-loops are added.
	loops []uint32
}

// prepareFactors computes the factors of a method, in memory of its own.
func (m *Method) prepareFactors(ctx context.Context) (err error) {
	a := m.options.Aggregation
	f := &factors{added: a == Sym || a == Plain}
	m.factors = f
	if f.added {
		if err := m.findLoops(ctx); err != nil {
			return err
		}
	}
	switch {
	case a == Plain:
	case a == Mean && !m.topology.Weighted():
		f.mean = true
	case a == Mean:
		err = m.byDegree(ctx, func(d float64) float64 { return d })
	case a == Sym:
		err = m.byDegree(ctx, math.Sqrt)
		f.t = f.s
	default:
		err = fmt.Errorf("%w: no aggregation is called %q: there are %s, %s and %s", ErrOptions, a, Mean, Sym, Plain)
	}
	return err
}

func inverse(x float64) float32 {
	if x == 0 {
		return 0
	}
	return float32(1 / x)
}

// findLoops finds the self-loops that the graph has.
func (m *Method) findLoops(ctx context.Context) error {
	loops, err := shared[uint32](m, m.topology.Nodes())
	if err != nil {
		return err
	}
	var found atomic.Bool
	err = visitLists(ctx, m.topology, m.options.Threads, false, func(v uint32, sources []uint32, _ []float32) {
		if i, ok := slices.BinarySearch(sources, v); ok {
			loops[v] = uint32(i) + 1
			found.Store(true)
		}
	})
	if found.Load() {
		m.factors.loops = loops
	}
	return err
}

// byDegree makes s(v) one over a function of the weighted in-degree of each node, added self-loops included. In a typed
// graph, v is a row: a list of in-neighbours by one relation.
func (m *Method) byDegree(ctx context.Context, of func(degree float64) float64) (err error) {
	f := m.factors
	if f.s, err = shared[float32](m, lists(m.topology)); err != nil {
		return err
	}
	return visitLists(ctx, m.topology, m.options.Threads, m.topology.Weighted(),
		func(v uint32, sources []uint32, weights []float32) {
			d := float64(len(sources))
			if weights != nil {
				d = 0
				for _, w := range weights {
					d += float64(w)
				}
			}
			if f.added && f.loop(v) < 0 {
				d++
			}
			f.s[v] = inverse(of(d))
		})
}

// row is s(v) of a node with degree in-edges.
func (f *factors) row(v uint32, degree int64) float32 {
	switch {
	case f.mean:
		return inverse(float64(degree))
	case f.s == nil:
		return 1
	}
	return f.s[v]
}

// loop is the place of v's self-loop in its list, or -1.
func (f *factors) loop(v uint32) int64 {
	if f.loops == nil {
		return -1
	}
	return int64(f.loops[v]) - 1
}
