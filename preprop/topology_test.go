package preprop

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// graphOf is what an operator is made from, in memory.
func graphOf(t *testing.T, given *format.CSC, graph string, threads int) *product.MemoryTopology {
	t.Helper()
	if graph == operator.AsGiven {
		return &product.MemoryTopology{CSC: given}
	}
	return derived(t, &product.MemoryTopology{CSC: given}, graph, 1<<30, threads)
}

// derived collects what derive makes within so much room.
func derived(t *testing.T, given product.Topology, graph string, room int64, threads int) *product.MemoryTopology {
	t.Helper()
	out := &format.CSC{Offsets: []int64{0}}
	if given.Weighted() {
		out.Weights = []float32{}
	}
	err := product.Derive(context.Background(), given, graph, room, threads, func(b *format.NodeRange) error {
		if b.First != out.Nodes() {
			t.Fatalf("a block from node %d on, after %d nodes", b.First, out.Nodes())
		}
		for _, offset := range b.Offsets[1:] {
			out.Offsets = append(out.Offsets, out.Edges()+offset-b.Offsets[0])
		}
		out.Neighbors = append(out.Neighbors, b.Neighbors...)
		out.Weights = append(out.Weights, b.Weights...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &product.MemoryTopology{CSC: out}
}

func equalCSC(a, b *format.CSC) bool {
	return slices.Equal(a.Offsets, b.Offsets) && slices.Equal(a.Neighbors, b.Neighbors) &&
		slices.Equal(a.Weights, b.Weights)
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
			given := makeCSC(c.nodes, c.edges, weighted)
			if got, want := graphOf(t, given, operator.Reverse, 2).CSC,
				makeCSC(c.nodes, c.reverse, weighted); !equalCSC(got, want) {
				t.Errorf("%s, weighted %v: reverse is %v, want %v", c.name, weighted, got, want)
			}
			if got, want := graphOf(t, given, operator.Undirected, 2).CSC,
				makeCSC(c.nodes, c.undirected, weighted); !equalCSC(got, want) {
				t.Errorf("%s, weighted %v: undirected is %v, want %v", c.name, weighted, got, want)
			}
		}
	}
}

func TestGraphsAreThoseOfEdgesForAnyThreadsRoomAndPlace(t *testing.T) {
	const nodes = 1000
	for seed := range uint64(2) {
		edges := randomEdges(rand.New(rand.NewPCG(seed, 4)), nodes)
		csc := makeCSC(nodes, edges, seed == 1)
		fsys := vfs.NewMem()
		(&testGraph{nodes: nodes, features: 1, edges: edges, weighted: seed == 1, x: make([]float32, nodes),
			DType: format.Float32,
			rows:  format.RowTable{Rows: nodes, Labels: make([]int32, nodes)}}).write(t, fsys, "graph")
		graph, err := format.OpenGraph(fsys, "graph")
		if err != nil {
			t.Fatal(err)
		}
		defer graph.Close()
		file, err := graph.OpenTopology(context.Background(), 10_000)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, given := range []product.Topology{&product.MemoryTopology{CSC: csc},
			&product.DiskTopology{TopologyFile: file}} {
			for _, threads := range []int{1, 2, 8} {
				for _, room := range []int64{1, 5000, 1 << 30} {
					if room == 1 && threads > 1 {
						continue // a pass for each node
					}
					for _, graph := range operator.GraphFlags {
						if !equalCSC(derived(t, given, graph, room, threads).CSC,
							makeCSC(nodes, edgesOf(graph, edges), seed == 1)) {
							t.Errorf("seed %d, %d threads, room %d, %T: %s is not what its edges make", seed, threads,
								room, given, graph)
						}
					}
				}
			}
		}
		both := graphOf(t, csc, operator.Undirected, 2).CSC
		if !equalCSC(graphOf(t, both, operator.Undirected, 2).CSC, both) ||
			!equalCSC(graphOf(t, both, operator.Reverse, 2).CSC, both) {
			t.Errorf("seed %d: what is undirected does not stay as it is", seed)
		}
	}
}

// passingDamage flips a bit of one file until a reader doubts it, as a network or a cache may.
type passingDamage struct {
	vfs.FS
	path string
	flip int64
}

type passingDamageFile struct {
	vfs.File
	d *passingDamage
}

func (d *passingDamage) Open(path string) (vfs.File, error) {
	f, err := d.FS.Open(path)
	if err == nil && path == d.path {
		f = &passingDamageFile{f, d}
	}
	return f, err
}

func (f *passingDamageFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if at := f.d.flip - off; at >= 0 && at < int64(n) {
		p[at] ^= 1
	}
	return n, err
}

func (f *passingDamageFile) Doubt(off, bytes int64) bool {
	if off <= f.d.flip && f.d.flip < off+bytes {
		f.d.flip = -1
	}
	return true
}

// TestAWalkThatBeginsAgainCountsOnce lets the check of a topology find damage that is gone when it is read again, by
// what adds up edges.
func TestAWalkThatBeginsAgainCountsOnce(t *testing.T) {
	ctx, graph, memory := context.Background(), randomGraph(1, 2000, 1), vfs.NewMem()
	graph.write(t, memory, "graph")
	csc, path := graph.csc(), format.PartPath("graph/topology", 0)
	stored, err := vfs.ReadFile(memory, path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	neighbors := dtype.BytesOf(csc.Neighbors)
	last := int64(bytes.Index(stored, neighbors) + len(neighbors) - 4)
	if last < int64(len(neighbors))-4 {
		t.Fatal("the neighbours were not found")
	}
	walk := func(do func(given product.Topology)) {
		do(&product.MemoryTopology{CSC: csc})
		damaged := &passingDamage{memory, path, last}
		d, err := format.OpenGraph(damaged, "graph")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		file, err := d.OpenUnchecked(ctx, 2000)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		do(&product.DiskTopology{TopologyFile: file})
		if damaged.flip >= 0 || !file.Checked() {
			t.Error("the damage was not found")
		}
	}
	var factors [][]float32
	walk(func(given product.Topology) {
		p, err := product.NewPropagator(ctx, given, operator.Operator{Name: operator.Col}, 3, product.Alone(ctx, given, 3))
		if err != nil {
			t.Fatal(err)
		}
		factors = append(factors, slices.Clone(p.T))
		if err := p.Buf.Free(); err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(factors[0], factors[1]) {
		t.Error("other factors")
	}
	var reversed []*format.CSC
	walk(func(given product.Topology) {
		reversed = append(reversed, derived(t, given, operator.Reverse, 1<<20, 3).CSC)
	})
	if !equalCSC(reversed[0], reversed[1]) {
		t.Error("another reverse")
	}
}

func TestBlocksInOrderCoverTheNodesAskedFor(t *testing.T) {
	const nodes = 500
	csc := makeCSC(nodes, randomEdges(rand.New(rand.NewPCG(1, 4)), nodes), false)
	given := &product.MemoryTopology{CSC: csc}
	for _, r := range [][2]int64{{0, nodes}, {0, 0}, {17, 18}, {100, 400}, {nodes, nodes}} {
		at := r[0]
		err := given.InOrder(context.Background(), r[0], r[1], func(b *format.NodeRange) error {
			for v := b.First; v < b.First+b.Rows(); v++ {
				if v != at || !slices.Equal(b.In(v), csc.In(v)) {
					t.Fatalf("%v: node %d after %d, with %v", r, v, at, b.In(v))
				}
				at++
			}
			return nil
		})
		if err != nil || at != r[1] {
			t.Errorf("%v: ended at %d, %v", r, at, err)
		}
	}
}

func TestACancelledDerivationEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	given := makeCSC(2, nil, false)
	err := product.Derive(ctx, &product.MemoryTopology{CSC: given}, operator.Undirected, 1<<20, 1,
		func(*format.NodeRange) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestJobsDoNotReadEachOthersTopologies lets two turn edges round in one folder at the same time.
func TestJobsDoNotReadEachOthersTopologies(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 500, 4).write(t, fsys, "graph")
	graph, err := format.OpenGraph(fsys, "graph")
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	given, err := graph.OpenTopology(context.Background(), plan.StreamRangeBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	if err := fsys.MkdirAll("scratch"); err != nil {
		t.Fatal(err)
	}
	make := func(name string) product.Topology {
		j := &engine.Job{Threads: 1, Name: name, Fsys: vfs.NewPastCache(fsys), Graph: graph,
			Plan: &Plan{}, Scratch: "scratch"}
		made, err := j.Derive(context.Background(), &product.DiskTopology{TopologyFile: given}, operator.Reverse)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	first, second := make("a"), make("b")
	if n := len(files(t, fsys, "scratch")); n != 2 {
		t.Errorf("%d scratch files, want one of each", n)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil || len(files(t, fsys, "scratch")) > 0 {
		t.Errorf("at the end: %v, %d scratch files", err, len(files(t, fsys, "scratch")))
	}
}
