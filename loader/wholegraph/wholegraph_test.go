package wholegraph

import (
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/features"
	"github.com/hopfeed/hopfeed/loader/internal/graphtest"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// opened is a graph on a device, which is closed after the test.
func opened(t *testing.T, g graphtest.Graph, discrete bool) *Graph {
	t.Helper()
	return inChunks(t, g, discrete, 0)
}

// inChunks is a graph that comes in chunks of so many bytes; 0: as a whole.
func inChunks(t *testing.T, g graphtest.Graph, discrete bool, bytes int64) *Graph {
	t.Helper()
	dir := graphtest.New(t, vfs.OS(), filepath.Join(t.TempDir(), "graph"), g)
	device, err := host.New(host.Options{Threads: 2, Discrete: discrete})
	if err != nil {
		t.Fatal(err)
	}
	topology, err := sampling.LoadTopology(t.Context(), dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	elements, err := features.FindElements(t.Context(), dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	var loaded features.Source
	if elements != nil {
		loaded, err = features.LoadSparse(t.Context(), dir, elements, 1)
	} else {
		loaded, err = features.LoadHost(t.Context(), dir, nil, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Open(t.Context(), device, Options{Graph: dir, Topology: topology, Features: loaded,
		Aggregation: sampling.Mean, Threads: 2, ChunkBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(whole.Close(), loaded.Close(), topology.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	})
	return whole
}

func download[T dtype.Number](t *testing.T, g *Graph, x gds.Tensor) []T {
	t.Helper()
	data := make([]T, x.Rows*x.Cols)
	if len(data) == 0 {
		return data
	}
	if err := gds.Download(g.device, g.stream, data, x); err != nil {
		t.Fatal(err)
	}
	return data
}

func batches(t *testing.T, s *Set, first int) (all []*loader.Batch) {
	t.Helper()
	for b, err := range s.EpochFrom(t.Context(), nil, 0, first) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func TestAWholeGraphIsOnTheDeviceAsItWasWritten(t *testing.T) {
	for _, g := range []graphtest.Graph{
		{Nodes: 37, Columns: 5, ChunkRows: 8, DType: format.Float16, Labels: 1},
		{Nodes: 37, Columns: 5, ChunkRows: 100, DType: format.Float32, Labels: 3},
		{Nodes: 1, Columns: 2, ChunkRows: 1, DType: format.BFloat16, Labels: -2},
	} {
		for _, discrete := range []bool{false, true} {
			w := opened(t, g, discrete)
			for i, x := range download[float32](t, w, w.x) {
				if want := graphtest.Value(uint32(i/g.Columns), i%g.Columns); x != want {
					t.Fatalf("feature %d is %v, want %v", i, x, want)
				}
			}
			offsets := download[uint32](t, w, w.block.Offsets)
			indices, weights := download[uint32](t, w, w.block.Indices), download[float32](t, w, w.block.Weights)
			for v := range g.Nodes {
				var want []uint32
				for k := range g.Degree(v) {
					want = append(want, uint32((v+1+k)%g.Nodes))
				}
				slices.Sort(want)
				lo, hi := offsets[v], offsets[v+1]
				if !slices.Equal(indices[lo:hi], want) {
					t.Fatalf("node %d has the in-neighbours %v, want %v", v, indices[lo:hi], want)
				}
				for _, weight := range weights[lo:hi] {
					if weight != 1/float32(len(want)) {
						t.Fatalf("node %d: a weight of %v among %d", v, weight, len(want))
					}
				}
			}
		}
	}
}

func TestBatchesOfAWholeGraphHaveTheLabelsOfTheirNodes(t *testing.T) {
	g := graphtest.Graph{Nodes: 37, Columns: 5, ChunkRows: 8, DType: format.Float32, Labels: 1}
	w := opened(t, g, true)
	nodes := []uint32{36, 0, 5, 7, 20}
	all, err := w.Batch(nodes, 3)
	if err != nil {
		t.Fatal(err)
	}
	b := batches(t, all, 0)
	if len(b) != 1 || all.Rows() != 5 || b[0].Rows != g.Nodes || b[0].GlobalRows != 5 || len(b[0].Blocks) != 3 ||
		len(batches(t, all, 1)) != 0 {
		t.Fatalf("%+v", b)
	}
	edges := int64(3 * w.block.Indices.Cols)
	if want := (loader.Traffic{Rows: 37, Edges: edges, DeviceBytes: 37 * 5 * 4}); b[0].Traffic != want {
		t.Errorf("%+v, want %+v", b[0].Traffic, want)
	}
	for v, label := range download[int32](t, w, b[0].Labels) {
		want := int32(-1)
		if slices.Contains(nodes, uint32(v)) {
			want = graphtest.Label(uint32(v))
		}
		if label != want {
			t.Errorf("node %d has label %d, want %d", v, label, want)
		}
	}
	some, err := w.Nodes(nodes, 2)
	if err != nil {
		t.Fatal(err)
	}
	var seen, rows []uint32
	for i, b := range batches(t, some, 0) {
		ids, labels := download[uint32](t, w, b.NodeIDs), download[int32](t, w, b.Labels)
		if len(b.Whole.Blocks) != 1 || b.Rows != len(ids) || !slices.Equal(some.RowNumbers(0, i), ids) {
			t.Errorf("batch %d: %+v", i, b)
		}
		for k, v := range ids {
			if labels[k] != graphtest.Label(v) {
				t.Errorf("node %d has label %d, want %d", v, labels[k], graphtest.Label(v))
			}
		}
		seen, rows = append(seen, ids...), append(rows, download[uint32](t, w, b.RowNumbers)...)
	}
	if !slices.Equal(seen, nodes) || !slices.Equal(rows, places(0, len(nodes))) ||
		len(batches(t, some, 2)) != 1 {
		t.Errorf("nodes %v, rows %v", seen, rows)
	}
	none, err := w.Batch(nil, 2)
	if err != nil || none.Rows() != 0 || len(batches(t, none, 0)) != 0 {
		t.Errorf("a batch of no nodes: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range some.EpochFrom(ctx, nil, 0, 0) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context: %v", err)
		}
	}
}

func TestValuesOfNodesThatAreNotTrainedOnAreNaN(t *testing.T) {
	w := opened(t, graphtest.Graph{Nodes: 5, Columns: 1, ChunkRows: 5, DType: format.Float32, Labels: -2}, false)
	s, err := w.Batch([]uint32{3}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range download[float32](t, w, batches(t, s, 0)[0].Labels) {
		if want := float32(i) / 8; i/2 == 3 && x != want || i/2 != 3 && !math.IsNaN(float64(x)) {
			t.Errorf("value %d is %v", i, x)
		}
	}
}

func TestANeighborhoodHasTheEdgesThatItsNodesNeed(t *testing.T) {
	g := graphtest.Graph{Nodes: 400, Columns: 3, ChunkRows: 50, DType: format.Float32, Labels: 1}
	w := opened(t, g, true)
	nodes := []uint32{8, 200, 16}
	some, err := w.Neighborhood(t.Context(), nodes, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	all := batches(t, some, 0)
	if len(all) != 2 || all[1].Rows != 1 {
		t.Fatalf("%d batches", len(all))
	}
	whole := all[0].Whole
	ids := append(download[uint32](t, w, all[0].NodeIDs), download[uint32](t, w, all[1].NodeIDs)...)
	labels := append(download[int32](t, w, all[0].Labels), download[int32](t, w, all[1].Labels)...)
	inputs := download[uint32](t, w, whole.Inputs)
	if len(whole.Blocks) != 2 || len(inputs) != whole.Blocks[0].Sources ||
		whole.Blocks[1].Sources != whole.Blocks[0].Destinations || whole.Blocks[1].Destinations != len(nodes) {
		t.Fatalf("%+v", whole)
	}
	for _, b := range whole.Blocks { // destinations are the first sources, which are the first inputs
		offsets, indices := download[uint32](t, w, b.Offsets), download[uint32](t, w, b.Indices)
		for d := range b.Destinations {
			v := int(inputs[d])
			var got, want []uint32
			for _, u := range indices[offsets[d]:offsets[d+1]] {
				got = append(got, inputs[u])
			}
			for k := range g.Degree(v) {
				want = append(want, uint32((v+1+k)%g.Nodes))
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("node %d has the in-neighbours %v, want %v", v, got, want)
			}
		}
	}
	for i, id := range ids {
		if inputs[id] != nodes[i] || labels[i] != graphtest.Label(nodes[i]) {
			t.Errorf("row %d: node %d with label %d", i, inputs[id], labels[i])
		}
	}
	most := places(0, 300)
	if some, err = w.Neighborhood(t.Context(), most, 300, 2); err != nil ||
		batches(t, some, 0)[0].Whole.Inputs.Cols != 0 {
		t.Errorf("300 of 400 nodes are not computed with all: %v", err)
	}
}

func TestChunksOfFeaturesAreThoseOfAllNodes(t *testing.T) {
	g := graphtest.Graph{Nodes: 37, Columns: 5, ChunkRows: 8, DType: format.Float16, Labels: 1}
	for _, discrete := range []bool{false, true} {
		w := inChunks(t, g, discrete, 300)
		next, chunks := 0, 0
		for chunk, err := range w.chunks.EachRows(t.Context(), w.stream) {
			if err != nil || chunk.First != next || chunk.Destinations != chunk.X.Rows ||
				chunk.Sources != chunk.X.Rows {
				t.Fatalf("%+v, %v", chunk, err)
			}
			for i, x := range download[float32](t, w, chunk.X) {
				if want := graphtest.Value(uint32(next+i/g.Columns), i%g.Columns); x != want {
					t.Fatalf("node %d: feature %d is %v, want %v", next+i/g.Columns, i%g.Columns, x, want)
				}
			}
			next, chunks = next+chunk.Destinations, chunks+1
		}
		if next != g.Nodes || chunks < 3 {
			t.Errorf("%d nodes in %d chunks", next, chunks)
		}
	}
}

// Rows in a scratch file are those that were written, or an error.
func TestSpilledRowsComeBackOrAreRefused(t *testing.T) {
	const nodes, columns = 1000, 3
	files := vfs.NewMem()
	s, err := newSpilled(files, "rows", nodes, 2)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second has fewer columns
		s.Begin(columns - round)
		all := make([]float32, nodes*s.Columns())
		for i := range all {
			all[i] = float32(round*nodes + i)
		}
		row := func(v uint32) []float32 { return all[int(v)*s.Columns():][:s.Columns()] }
		for first := 0; first < nodes; first += 300 {
			if err := s.Write(first, dtype.BytesOf(all[first*s.Columns():min(first+300, nodes)*s.Columns()])); err != nil {
				t.Fatal(err)
			}
		}
		ids := append(places(100, 700), 7, 7, 999, 0, 998, 999)
		got := make([]float32, len(ids)*s.Columns())
		if err := s.Gather(t.Context(), dtype.BytesOf(got), gds.Float32, ids); err != nil {
			t.Fatal(err)
		}
		for i, v := range ids {
			if !slices.Equal(got[i*s.Columns():][:s.Columns()], row(v)) {
				t.Fatalf("round %d, node %d: %v, want %v", round, v, got[i*s.Columns():][:s.Columns()], row(v))
			}
		}
	}
	if _, err := s.pending.WriteAt([]byte{1}, 8*123); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[uint32]error{122: nil, 123: folder.ErrDamaged, 124: nil} {
		if err := s.Gather(t.Context(), make([]byte, 8), gds.Float32, []uint32{node}); !errors.Is(err, want) {
			t.Errorf("node %d: %v, want %v", node, err, want)
		}
	}
	s.Begin(100) // the file has fewer
	if err := s.Gather(t.Context(), make([]byte, 400), gds.Float32, []uint32{900}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if left, err := files.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// checkSparse compares sparse rows with the features of nodes.
func checkSparse(t *testing.T, w *Graph, g graphtest.Graph, x gds.Tensor, s *loader.SparseRows, nodes []uint32) {
	t.Helper()
	if s == nil || x.Rows != len(nodes) || x.Cols != g.Columns || x.Buf != nil || s.Cols != g.Columns {
		t.Fatalf("%v with %+v for %d nodes", x, s, len(nodes))
	}
	offsets, columns, values := download[uint32](t, w, s.Offsets), download[uint32](t, w, s.Columns),
		download[float32](t, w, s.Values)
	at := 0
	for i, v := range nodes {
		if int(offsets[i]) != at {
			t.Fatalf("node %d begins at %d, want %d", v, offsets[i], at)
		}
		for j := range g.Columns {
			if want := g.Value(v, j); want != 0 {
				if columns[at] != uint32(j) || values[at] != want {
					t.Fatalf("node %d has %v in column %d, want %v in %d", v, values[at], columns[at], want, j)
				}
				at++
			}
		}
	}
	if at != len(values) || len(offsets) != len(nodes)+1 || int(offsets[len(nodes)]) != at {
		t.Errorf("%d of %d elements", at, len(values))
	}
}

func TestSparseFeaturesComeAsTheyAre(t *testing.T) {
	g := graphtest.Graph{Nodes: 400, Columns: 45, ChunkRows: 50, DType: format.Float16, Labels: 1, Sparse: true}
	all := places(0, g.Nodes)
	for _, discrete := range []bool{false, true} {
		w := opened(t, g, discrete)
		nodes := []uint32{8, 200, 16}
		some, err := w.Nodes(nodes, 10)
		if err != nil {
			t.Fatal(err)
		}
		b := batches(t, some, 0)[0]
		checkSparse(t, w, g, b.X[0], b.Sparse, all)
		batch, err := w.Batch(nodes, 1)
		if err != nil {
			t.Fatal(err)
		}
		b = batches(t, batch, 0)[0]
		checkSparse(t, w, g, b.X[0], b.Sparse, all)
		if want := 4*int64(g.Nodes+1) + 8*int64(b.Sparse.Values.Cols); b.Traffic.DeviceBytes != want {
			t.Errorf("%d bytes, want %d", b.Traffic.DeviceBytes, want)
		}
		if some, err = w.Neighborhood(t.Context(), nodes, 10, 1); err != nil {
			t.Fatal(err)
		}
		b = batches(t, some, 0)[0]
		inputs := slices.Clone(nodes)
		for _, v := range nodes {
			for k := range g.Degree(int(v)) {
				if u := (v + 1 + uint32(k)) % uint32(g.Nodes); !slices.Contains(inputs, u) {
					inputs = append(inputs, u)
				}
			}
		}
		checkSparse(t, w, g, b.X[0], b.Sparse, inputs)

		w = inChunks(t, g, discrete, 3000)
		if !w.chunks.Sparse() {
			t.Fatal("chunks are dense")
		}
		next := 0
		for chunk, err := range w.chunks.EachRows(t.Context(), w.stream) {
			if err != nil {
				t.Fatal(err)
			}
			checkSparse(t, w, g, chunk.X, chunk.Sparse, places(uint32(next), chunk.Destinations))
			next += chunk.Destinations
		}
		if next != g.Nodes {
			t.Errorf("%d nodes", next)
		}
	}
}

// Chunks of rows that have more elements than others keep to the limit, too, and to what is planned.
func TestChunksOfUnevenSparseRowsKeepToTheirLimit(t *testing.T) {
	g := graphtest.Graph{Nodes: 2000, Columns: 45, ChunkRows: 50, DType: format.Float32, Labels: 1, Sparse: true,
		DenseNodes: 4}
	const limit = 5000
	w := inChunks(t, g, true, limit)
	planned, _, err := w.LargestChunk(1)
	if err != nil {
		t.Fatal(err)
	}
	for chunk, err := range w.chunks.EachRows(t.Context(), w.stream) {
		if err != nil {
			t.Fatal(err)
		}
		_, _, taken := layOut(int64(chunk.Destinations), 0, int64(chunk.Sparse.Values.Cols), 0)
		if taken > limit && chunk.Destinations > 1 || taken > planned || w.chunks.memory.Len() > planned {
			t.Errorf("%d nodes from %d on take %d bytes, of %d: planned %d, limit %d", chunk.Destinations, chunk.First,
				taken, w.chunks.memory.Len(), planned, limit)
		}
	}
}
