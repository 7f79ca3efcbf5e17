package preprop

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

// graphsOf is the three graphs that operators are made from.
func graphsOf(t *testing.T, given *format.CSC, threads int) topologies {
	t.Helper()
	graphs, err := newTopologies(context.Background(), given, []Operator{{Name: Sym}, {Name: Sym, Graph: Reverse}, {Name: RW, Graph: Undirected}}, threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { graphs.free() })
	if len(graphs) != 3 {
		t.Fatalf("%d graphs, want 3", len(graphs))
	}
	return graphs
}

func equalCSC(a, b *format.CSC) bool {
	return slices.Equal(a.Offsets, b.Offsets) && slices.Equal(a.Neighbors, b.Neighbors) && slices.Equal(a.Weights, b.Weights)
}

func TestEdgesTurnedRoundAndInBothDirections(t *testing.T) {
	for _, c := range []struct {
		name                string
		nodes               int
		edges               []edge
		reverse, undirected []edge
	}{
		{"no nodes", 0, nil, nil, nil},
		{"one node", 1, nil, nil, nil},
		{"one node with a loop", 1, []edge{{0, 0, 3}}, []edge{{0, 0, 3}}, []edge{{0, 0, 3}}},
		{"no edges", 3, nil, nil, nil},
		{"one direction", 3, []edge{{0, 2, 5}}, []edge{{2, 0, 5}}, []edge{{2, 0, 5}, {0, 2, 5}}},
		{
			"of two directions the larger weight counts", 3,
			[]edge{{0, 1, 2}, {1, 0, 3}, {1, 2, 7}, {2, 1, 4}},
			[]edge{{1, 0, 2}, {0, 1, 3}, {2, 1, 7}, {1, 2, 4}},
			[]edge{{0, 1, 3}, {1, 0, 3}, {1, 2, 7}, {2, 1, 7}},
		},
		{
			"parallel edges are paired in their order", 2,
			[]edge{{0, 1, 1}, {0, 1, 9}, {0, 1, 2}, {1, 0, 5}, {1, 0, 4}},
			[]edge{{1, 0, 1}, {1, 0, 9}, {1, 0, 2}, {0, 1, 5}, {0, 1, 4}},
			[]edge{{0, 1, 5}, {0, 1, 9}, {0, 1, 2}, {1, 0, 5}, {1, 0, 9}, {1, 0, 2}},
		},
		{
			"loops stay as often as they are", 2,
			[]edge{{1, 1, 2}, {1, 1, 3}},
			[]edge{{1, 1, 2}, {1, 1, 3}},
			[]edge{{1, 1, 2}, {1, 1, 3}},
		},
	} {
		for _, weighted := range []bool{false, true} {
			graphs := graphsOf(t, makeCSC(c.nodes, c.edges, weighted), 2)
			if got, want := graphs[Reverse].CSC, makeCSC(c.nodes, c.reverse, weighted); !equalCSC(got, want) {
				t.Errorf("%s, weighted %v: reverse is %v, want %v", c.name, weighted, got, want)
			}
			if got, want := graphs[Undirected].CSC, makeCSC(c.nodes, c.undirected, weighted); !equalCSC(got, want) {
				t.Errorf("%s, weighted %v: undirected is %v, want %v", c.name, weighted, got, want)
			}
		}
	}
}

func TestGraphsAreThoseOfEdgesForAnyThreads(t *testing.T) {
	const nodes = 3000
	for seed := range uint64(2) {
		edges := randomEdges(rand.New(rand.NewPCG(seed, 4)), nodes)
		given := makeCSC(nodes, edges, seed == 1)
		for _, threads := range []int{1, 2, 3, 8} {
			graphs := graphsOf(t, given, threads)
			for _, graph := range graphFlags {
				if !equalCSC(graphs[graph].CSC, makeCSC(nodes, edgesOf(graph, edges), seed == 1)) {
					t.Errorf("seed %d, %d threads: %s is not what its edges make", seed, threads, graph)
				}
			}
			again := graphsOf(t, graphs[Undirected].CSC, threads)
			if !equalCSC(again[Undirected].CSC, graphs[Undirected].CSC) || !equalCSC(again[Reverse].CSC, graphs[Undirected].CSC) {
				t.Errorf("seed %d, %d threads: what is undirected does not stay as it is", seed, threads)
			}
		}
	}
}

func TestOnlyGraphsThatOperatorsUseAreKept(t *testing.T) {
	for _, c := range []struct {
		operators []Operator
		want      []string
	}{
		{[]Operator{{Name: Sym}, {Name: RW}}, []string{AsGiven}},
		{[]Operator{{Name: Sym, Graph: Reverse}}, []string{Reverse}},
		{[]Operator{{Name: Sym, Graph: Undirected}}, []string{Undirected}},
		{[]Operator{{Name: Sym, Graph: Undirected}, {Name: Col}}, []string{AsGiven, Undirected}},
	} {
		graphs, err := newTopologies(context.Background(), makeCSC(2, []edge{{0, 1, 1}}, true), c.operators, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(graphs) != len(c.want) {
			t.Errorf("%v: %d graphs, want %q", c.operators, len(graphs), c.want)
		}
		for _, graph := range c.want {
			if graphs[graph] == nil {
				t.Errorf("%v: there is no graph %q", c.operators, graph)
			}
		}
		if err := graphs.free(); err != nil {
			t.Error(err)
		}
	}
}

func TestACancelledTransposeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newTopologies(ctx, makeCSC(2, nil, false), []Operator{{Name: Sym, Graph: Undirected}}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
