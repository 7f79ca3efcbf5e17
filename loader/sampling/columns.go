package sampling

import (
	"context"
	"fmt"
	"math"
	"sort"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// cumulative is a distribution over 0 to n-1: place i has the sum of the weights up to i.
type cumulative []float64

func (c *cumulative) add(weight float64) { *c = append(*c, c.total()+weight) }

// total is the weight of all places, weight the weight of one.
func (c cumulative) total() float64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1]
}

func (c cumulative) weight(i uint32) float64 {
	if i == 0 {
		return c[0]
	}
	return c[i] - c[i-1]
}

// draw draws by a random number: the first place whose sum is above its part of the total, or the last. The total is
// positive.
func (c cumulative) draw(hash uint64) uint32 {
	x := rng.Float64(hash) * c.total()
	return uint32(sort.Search(len(c)-1, func(i int) bool { return c[i] > x }))
}

// columns are the norms of the matrix's columns, or their squares, as a distribution over nodes.
type columns struct {
	cumulative     // [n]
	positive   int // nodes that may be drawn
}

// prepareColumns computes a method's norms, or squared ones. Self-loops that are added, or would be, count with loops
// alone. With floor, it adds the mean of all to each.
func prepareColumns(squared, loops, floor bool) func(ctx context.Context, m *Method) error {
	return func(ctx context.Context, m *Method) error {
		norms, err := shared[float64](m, m.topology.Nodes())
		if err != nil {
			return fmt.Errorf("norms of columns: %w", err)
		}
		f := m.factors
		// One thread adds the numbers of a column up in the same order every time.
		weighted := m.topology.Weighted()
		err = visitLists(ctx, m.topology, 1, weighted, func(v uint32, sources []uint32, weights []float32) {
			row, loop := f.row(v, int64(len(sources))), f.loop(v)
			if loops && f.added && loop < 0 {
				norms[v] += f.square(row, []uint32{v}, nil, 0)
			}
			for j, u := range sources {
				if loops || int64(j) != loop {
					norms[u] += f.square(row, sources, weights, j)
				}
			}
		})
		if err != nil {
			return fmt.Errorf("norms of columns: %w", err)
		}
		if !squared {
			roots(norms)
		}
		mean := 0.0
		if floor {
			for _, w := range norms {
				mean += w
			}
			if mean = mean / float64(len(norms)); mean == 0 {
				mean = 1
			}
		}
		m.columns = &columns{cumulative: norms[:0]}
		for _, w := range norms {
			if w+mean > 0 {
				m.columns.positive++
			}
			m.columns.add(w + mean)
		}
		return nil
	}
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
