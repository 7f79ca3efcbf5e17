package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// fewRows leaves a label to one node in 47.
func fewRows(g *testGraph) *testGraph {
	for v := range g.rows.Labels {
		if g.rows.Labels[v] = -1; v%47 == 7 {
			g.rows.Labels[v] = 0
		}
	}
	clear(g.rows.Splits)
	return g
}

func TestTheLastProductOfFewRowsMakesTheSameBytes(t *testing.T) {
	for i, o := range []Options{
		{Hops: 3, Operators: allOperators[:2]},
		{Hops: 3, Operators: oneOfEachGraph, DType: format.Float16},
		{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym, Graph: operator.Undirected},
			{Name: operator.Sym, Graph: operator.Reverse}}, DType: format.BFloat16},
		{Hops: 1, Operators: []operator.Operator{{Name: operator.Heat, Parameter: 0.5, Tolerance: 0.1}}},
	} {
		for _, seed := range []uint64{uint64(i % 2)} { // unweighted and weighted
			fsys := vfs.NewMem()
			fewRows(randomGraph(seed, 900, 8)).write(t, fsys, "graph")
			o.Threads, o.Planned, o.Progress = 2, nil, nil
			want := propagated(t, fsys, "whole", o)
			o.Planned = func(p *Plan) {
				outOfCore(p)
				stored, _, _ := p.Work.HeldShares(p)
				for graph, room := range stored {
					if room == 0 {
						t.Errorf("case %d: lists of %q are not copied", i, graph)
					}
				}
			}
			for k := 1; ; k++ { // cancelled at each task once
				ctx, cancel := context.WithCancel(context.Background())
				var left atomic.Int64
				left.Store(int64(k))
				o.Progress = stopper{&left, cancel}
				_, err := Propagate(ctx, fsys, "graph", "store", o)
				cancel()
				if whole := left.Load() > 0; !whole {
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("case %d, cancelled at task %d: %v", i, k, err)
					}
					o.Progress = nil
					_, err = Propagate(context.Background(), fsys, "graph", "store", o)
				}
				if err != nil {
					t.Fatal(err)
				}
				if !sameFiles(files(t, fsys, "store"), want) {
					t.Fatalf("case %d, seed %d, cancelled at task %d: another store", i, seed, k)
				}
				if err := fsys.RemoveAll("store"); err != nil {
					t.Fatal(err)
				}
				if left.Load() > 0 {
					break
				}
			}
		}
	}
}

func TestListsOfStoredNodesAreThoseOfTheGraph(t *testing.T) {
	const nodes = 30_000
	g := randomGraph(1, nodes, 1)
	graph := &product.MemoryTopology{CSC: g.csc()}
	stored, edges := product.NewNodeSet(nodes), int64(0)
	for v := int64(0); v < nodes; v += 1 + v%29 {
		stored.Add(v)
		edges += int64(len(graph.In(v)))
	}
	ctx := context.Background()
	const threads = 3
	bytes := storedBytes(stored.Count(), edges, threads)
	walk := product.Alone(ctx, graph, threads)
	if lists, err := product.NewStoredLists(graph, stored, bytes-1, threads, walk); lists != nil || err != nil {
		t.Errorf("without room: %v, %v", lists, err)
	}
	lists, err := product.NewStoredLists(graph, stored, bytes, threads, walk)
	if err != nil {
		t.Fatal(err)
	}
	defer lists.Close()
	for _, from := range []int64{0, 1, 8190, nodes - 1, nodes} {
		var seen atomic.Int64
		err := lists.Each(ctx, from, threads, nil, func(b *product.Range) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				seen.Add(1)
				want, weights := graph.In(v), graph.CSC.Weights[graph.Offsets[v]:graph.Offsets[v+1]]
				if !stored.Has(v) {
					want, weights = nil, nil
				}
				if !slices.Equal(b.In(v), want) || !slices.Equal(b.InWeights(v), weights) {
					return fmt.Errorf("node %d: %v with weights %v, want %v with %v", v, b.In(v), b.InWeights(v), want,
						weights)
				}
			}
			return nil
		})
		if err != nil || seen.Load() != nodes-from {
			t.Errorf("from %d: %d nodes, %v", from, seen.Load(), err)
		}
	}
	empty := &product.MemoryTopology{CSC: &format.CSC{Offsets: make([]int64, nodes+1)}}
	none, err := product.NewStoredLists(empty, stored, bytes, threads, product.Alone(ctx, empty, threads))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(none.Each(ctx, 0, threads, nil, func(*product.Range) error { return nil }),
		none.Close()); err != nil || none.Edges() != 0 {
		t.Errorf("nodes without in-neighbours: %d edges, %v", none.Edges(), err)
	}
	broken := errors.New("broken")
	if _, err := product.NewStoredLists(graph, stored, bytes, threads,
		func(func(b *product.Range) error) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a walk that fails: %v", err)
	}
}

// storedBytes is what lists of rows nodes with weights take.
func storedBytes(rows, edges int64, threads int) int64 {
	return 8*(rows+1) + 4*rows + 8*edges + int64(threads)<<16
}
