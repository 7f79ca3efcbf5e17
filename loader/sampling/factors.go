package sampling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
)

// factors give the matrix of an Aggregation: A[v,u] = s(v) w(u,v) t(u).
type factors struct {
	mean  bool      // s(v) is 1/d(v) where the graph has no weights
	s, t  []float32 // [n]; nil where they are 1, or s by mean
	added bool      // self-loops of weight 1 are added where the graph has none

	// loops [n] says where in its list node v has a self-loop: the index + 1, or 0; nil: no node
	// has one. Only where self-loops are added.
	loops []uint32

	buffers []*offheap.Buffer
}

// factorGrain is the number of nodes whose factors a goroutine computes at a time.
const factorGrain = 1 << 12

func newFactors(ctx context.Context, t Topology, a Aggregation, threads int) (_ *factors, err error) {
	f := &factors{added: a == Sym || a == Plain}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.added {
		if err := f.findLoops(ctx, t, threads); err != nil {
			return nil, err
		}
	}
	switch {
	case a == Plain:
	case a == Mean && !t.Weighted():
		f.mean = true
	case a == Mean:
		if f.s, err = f.perNode(t.Nodes()); err == nil {
			err = f.degrees(ctx, t, threads, func(v int64, d float64) { f.s[v] = inverse(d) })
		}
	case a == Sym:
		if f.s, err = f.perNode(t.Nodes()); err == nil {
			err = f.degrees(ctx, t, threads, func(v int64, d float64) { f.s[v] = inverse(math.Sqrt(d)) })
			f.t = f.s
		}
	default:
		err = fmt.Errorf("%w: no aggregation is called %q: there are %s, %s and %s", ErrOptions, a, Mean, Sym, Plain)
	}
	return f, err
}

func inverse(x float64) float32 {
	if x == 0 {
		return 0
	}
	return float32(1 / x)
}

// perNode allocates a factor for each node.
func (f *factors) perNode(nodes int64) ([]float32, error) {
	b, err := offheap.Alloc(4 * nodes)
	if err != nil {
		return nil, err
	}
	f.buffers = append(f.buffers, b)
	return dtype.Float32s(b.Bytes()), nil
}

// findLoops finds the self-loops that the graph has.
func (f *factors) findLoops(ctx context.Context, t Topology, threads int) error {
	b, err := offheap.Alloc(4 * t.Nodes())
	if err != nil {
		return err
	}
	f.buffers = append(f.buffers, b)
	loops := dtype.Uint32s(b.Bytes())
	if err := visitLists(ctx, t, threads, false, func(v int64, sources []uint32, _ []float32) {
		if i, ok := slices.BinarySearch(sources, uint32(v)); ok {
			loops[v] = uint32(i) + 1
		}
	}); err != nil {
		return err
	}
	if slices.Max(append([]uint32{0}, loops...)) > 0 {
		f.loops = loops
	}
	return nil
}

// degrees calls set with the weighted in-degree of each node, added self-loops included.
func (f *factors) degrees(ctx context.Context, t Topology, threads int, set func(v int64, degree float64)) error {
	return visitLists(ctx, t, threads, t.Weighted(), func(v int64, sources []uint32, weights []float32) {
		d := float64(len(sources))
		if weights != nil {
			d = 0
			for _, w := range weights {
				d += float64(w)
			}
		}
		if f.added && (f.loops == nil || f.loops[v] == 0) {
			d++
		}
		set(v, d)
	})
}

// visitLists calls visit with each node's in-neighbours, and with their weights if these are wanted,
// from several goroutines. The slices are valid in the call.
func visitLists(ctx context.Context, t Topology, threads int, weighted bool,
	visit func(v int64, sources []uint32, weights []float32)) error {
	return parallel.For(ctx, threads, t.Nodes(), factorGrain, func(lo, hi int64) error {
		nodes, lists := make([]uint32, hi-lo), make([]List, hi-lo)
		for i := range nodes {
			nodes[i] = uint32(lo + int64(i))
		}
		if err := t.Lists(nodes, lists); err != nil {
			return err
		}
		var sources []uint32
		var weights []float32
		for len(lists) > 0 {
			n, edges := 0, int64(0)
			for n < len(lists) && (n == 0 || edges+lists[n].Degree() <= chunkEdges) {
				edges += lists[n].Degree()
				n++
			}
			sources = resize(sources, int(edges))
			if err := t.ListSources(lists[:n], sources); err != nil {
				return err
			}
			if weighted {
				weights = resize(weights, int(edges))
				if err := t.ListWeights(lists[:n], weights); err != nil {
					return err
				}
			}
			at := int64(0)
			for i, l := range lists[:n] {
				end := at + l.Degree()
				if weighted {
					visit(int64(nodes[i]), sources[at:end], weights[at:end:end])
				} else {
					visit(int64(nodes[i]), sources[at:end], nil)
				}
				at = end
			}
			nodes, lists = nodes[n:], lists[n:]
		}
		return nil
	})
}

// row is s(v), of a node with so many in-edges.
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

func (f *factors) close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for _, b := range f.buffers {
		errs = append(errs, b.Free())
	}
	f.buffers = nil
	return errors.Join(errs...)
}
