package product

import (
	"context"
	"errors"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// Bench measures the speed of propagation: a hop of Sym in memory, from one matrix [nodes, features] with made-up
// values to another. It is not safe for concurrent use.
type Bench struct {
	p        *Propagator
	src, dst *Matrix
}

// NewBench allocates the matrices, BenchBytes off the Go heap. The graph stays the caller's, and must outlive the
// Bench.
func NewBench(ctx context.Context, graph *format.CSC, features int, t format.DType, threads int) (*Bench, error) {
	topology := &MemoryTopology{graph}
	walk := Alone(ctx, topology, threads)
	p, err := NewPropagator(ctx, topology, operator.Operator{Name: operator.Sym}, threads, walk)
	if err != nil {
		return nil, err
	}
	b := &Bench{p: p}
	if plan.ListsFactors(graph.Nodes()) {
		err = p.ListFactors(ctx, nil, "", 0, threads, walk)
	}
	if err == nil {
		b.src, err = NewMatrix(graph.Nodes(), features, t)
	}
	if err == nil {
		b.dst, err = NewMatrix(graph.Nodes(), features, t)
	}
	if err == nil {
		err = parallel.For(ctx, threads, graph.Nodes(), plan.RunTerms, func(lo, hi int64) error {
			row := make([]float32, features)
			for v := lo; v < hi; v++ {
				for j := range row {
					row[j] = float32((v*int64(features) + int64(j)) % 97)
				}
				dtype.Encode(b.src.Rows(v, v+1), row, t)
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// BenchBytes is the memory of a Bench in bytes, without the graph.
func BenchBytes(nodes, edges int64, features int, t format.DType) int64 {
	bytes := nodes * (2*int64(features)*int64(t.Size()) + 4)
	if plan.ListsFactors(nodes) {
		bytes += plan.FactorBytes(false)*edges + 2*nodes
	}
	return bytes
}

// RowBytes is the size of a row of the matrices.
func (b *Bench) RowBytes() int64 { return b.src.RowBytes() }

// Source is the memory of the matrix that a hop reads.
func (b *Bench) Source() []byte { return b.src.Buf.Bytes() }

// Hop computes a hop, and returns how many rows it read: one for each edge and each self-loop that it added.
func (b *Bench) Hop(ctx context.Context, threads int) (rows int64, err error) {
	return b.p.Hop(ctx, b.dst, b.src, nil, nil, threads, func(int64) {})
}

// Gather sums rows of the source. It is the inner loop of a hop without coefficients and without anything around it.
func (b *Bench) Gather(ctx context.Context, rows []uint32, threads int) error {
	share := (int64(len(rows)) + int64(threads) - 1) / int64(threads)
	return parallel.For(ctx, threads, int64(len(rows)), share, func(lo, hi int64) error {
		batch := NewBatch(&Propagator{Graph: b.p.Graph}, b.dst, b.src, nil)
		batch.Begin(&Range{NodeRange: format.NodeRange{Neighbors: rows}})
		for ; lo < hi; lo += plan.TaskCost {
			batch.terms.Lists = append(batch.terms.Lists[:0], kernel.List{Start: lo, End: min(hi, lo+plan.TaskCost),
				Self: -1})
			batch.sum()
		}
		return nil
	})
}

// Close frees the memory.
func (b *Bench) Close() error {
	err := errors.Join(b.p.Buf.Free(), b.p.Edges.Close())
	for _, m := range []*Matrix{b.src, b.dst} {
		if m != nil {
			err = errors.Join(err, m.Buf.Free())
		}
	}
	return err
}
