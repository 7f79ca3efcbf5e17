package sampling

import (
	"context"
	"fmt"
	"math"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// columns are the norms of the matrix's columns, or their squares, as a distribution over nodes.
// Self-loops that are always there do not count.
type columns struct {
	cumulative []float64 // [n]
	positive   int       // nodes that may be drawn
	buf        *offheap.Buffer
}

// newColumns computes norms, or squared ones; with floor, each node gets the mean of all besides.
func newColumns(ctx context.Context, t Topology, f *factors, squared, floor bool) (*columns, error) {
	buf, err := offheap.Alloc(8 * t.Nodes())
	if err != nil {
		return nil, fmt.Errorf("norms of columns: %w", err)
	}
	p := &columns{cumulative: dtype.As[float64](buf.Bytes()), buf: buf}
	// One thread adds the numbers of a column up in the same order every time.
	if err := visitLists(ctx, t, 1, t.Weighted(), func(v int64, sources []uint32, weights []float32) {
		row, loop := f.row(uint32(v), int64(len(sources))), f.loop(uint32(v))
		for j, u := range sources {
			if int64(j) != loop {
				p.cumulative[u] += f.square(row, sources, weights, j)
			}
		}
	}); err != nil {
		return nil, fmt.Errorf("norms of columns: %w (%v)", err, buf.Free())
	}
	if !squared {
		roots(p.cumulative)
	}
	mean := 0.0
	if floor {
		for _, w := range p.cumulative {
			mean += w
		}
		if mean = mean / float64(len(p.cumulative)); mean == 0 {
			mean = 1
		}
	}
	sum := 0.0
	for u, w := range p.cumulative {
		w += mean
		if w > 0 {
			p.positive++
		}
		sum += w
		p.cumulative[u] = sum
	}
	return p, nil
}

// square is the square of A[v,u], of in-neighbour j of v, whose factor is row.
func (f *factors) square(row float32, sources []uint32, weights []float32, j int) float64 {
	a := float64(row)
	if weights != nil {
		a *= float64(weights[j])
	}
	if f.t != nil {
		a *= float64(f.t[sources[j]])
	}
	return float64(a * a)
}

func roots(x []float64) {
	for i := range x {
		x[i] = math.Sqrt(x[i])
	}
}

// total is the weight of all nodes, weight that of one.
func (p *columns) total() float64 {
	if len(p.cumulative) == 0 {
		return 0
	}
	return p.cumulative[len(p.cumulative)-1]
}

func (p *columns) weight(u uint32) float64 {
	if u == 0 {
		return p.cumulative[0]
	}
	return p.cumulative[u] - p.cumulative[u-1]
}

// draw draws a node by a random number; the total is positive.
func (p *columns) draw(hash uint64) uint32 {
	return uint32(search(p.cumulative, rng.Float64(hash)*p.total()))
}

func (p *columns) close() error {
	if p == nil {
		return nil
	}
	return p.buf.Free()
}
