package preprop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// With -short, as under the race detector, tests try one seed of two, and every seventh of the operations that may
// fail.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 2
}

func failureStep() int64 {
	if testing.Short() {
		return 7
	}
	return 1
}

// testGraph is what a graph directory is made of.
type testGraph struct {
	nodes, features int
	edges           []edge
	weighted        bool
	x               []float32
	DType           dtype.DType
	rows            format.RowTable
	classNames      []string // of the four classes
}

// randomGraph has labels, one in three missing, and two splits of 6 % of the nodes each.
func randomGraph(seed uint64, nodes, features int) *testGraph {
	random := rand.New(rand.NewPCG(seed, 3))
	g := &testGraph{
		nodes: nodes, features: features, DType: format.Float32,
		edges: randomEdges(random, nodes), weighted: seed%2 == 1,
		x: randomFeatures(random, nodes, features),
	}
	g.rows = format.RowTable{Rows: int64(nodes), NumSplits: 2}
	for range nodes {
		label := int32(random.IntN(4))
		if random.IntN(3) == 0 {
			label = -1
		}
		g.rows.Labels = append(g.rows.Labels, label)
		for range g.rows.NumSplits {
			in := format.SplitNone
			if random.IntN(16) == 0 {
				in = 1 + uint8(random.IntN(3))
			}
			g.rows.Splits = append(g.rows.Splits, in)
		}
		g.rows.OrigID = append(g.rows.OrigID, fmt.Sprintf("paper %x", random.Uint32()))
	}
	return g
}

func (g *testGraph) csc() *format.CSC { return makeCSC(g.nodes, g.edges, g.weighted) }

func (g *testGraph) write(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	chunkRows := format.ChunkRowsFor(700, g.features, g.DType)
	w, err := format.Create(fsys, dir, format.Layout{
		Regions:   format.Regions([]format.RegionSize{{Name: format.RegionAll, Rows: int64(g.nodes)}}, chunkRows),
		ChunkRows: chunkRows, Features: g.features, DType: g.DType,
	}, format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csc := g.csc()
	x := make([]byte, len(g.x)*g.DType.Size())
	dtype.Encode(x, g.x, g.DType)
	m, err := w.Matrix(format.Input)
	if err == nil {
		err = errors.Join(m.Write(x), m.Close(), w.Topology(csc), w.Rows(&g.rows))
	}
	classes := 0
	if g.rows.Labels != nil {
		classes = 4
	}
	if err == nil {
		err = w.Publish(&format.Manifest{Kind: format.KindGraph, Name: "test", Nodes: int64(g.nodes),
			Edges: csc.Edges(), Directed: true, Weighted: g.weighted, Classes: classes, ClassNames: g.classNames})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readMatrix is a matrix of a store, all rows.
func readMatrix(t *testing.T, store *format.Dir, id format.MatrixID) []byte {
	t.Helper()
	m, err := store.Matrix(id)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out []byte
	for k := range m.Chunks() {
		chunk := make([]byte, m.Extent(k).Length)
		if err := m.ReadChunk(k, chunk); err != nil {
			t.Fatal(err)
		}
		out = append(out, chunk...)
	}
	return out
}

// files is the content of every file below a directory, by path.
func files(t *testing.T, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		if e.IsDir() {
			for name, content := range files(t, fsys, at) {
				out[name] = content
			}
			continue
		}
		out[at] = contentOf(t, fsys, at)
	}
	return out
}

func contentOf(t *testing.T, fsys vfs.FS, file string) []byte {
	t.Helper()
	content, err := vfs.ReadFile(fsys, file, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// wantRows is the nodes of a store in order, with their regions, found by sorting.
func wantRows(g *testGraph, o Options) (nodes []uint32, regions map[string]int64) {
	order := []string{format.RegionTrain, format.RegionValid, format.RegionTest, format.RegionRest}
	region := func(v uint32) int {
		return [4]int{format.SplitNone: 3, format.SplitTrain: 0, format.SplitValid: 1,
			format.SplitTest: 2}[g.rows.Splits[int(v)*2+o.Split]]
	}
	regions = map[string]int64{}
	for v := range uint32(g.nodes) {
		if o.Rows == format.RowsAll || g.rows.Labels[v] >= 0 || g.rows.Splits[2*v] != 0 || g.rows.Splits[2*v+1] != 0 {
			nodes = append(nodes, v)
			regions[order[region(v)]]++
		}
	}
	slices.SortFunc(nodes, func(a, b uint32) int {
		if region(a) != region(b) || region(a) != 0 {
			return cmp.Or(cmp.Compare(region(a), region(b)), cmp.Compare(a, b))
		}
		return cmp.Or(cmp.Compare(rng.Hash(o.Seed, uint64(a)), rng.Hash(o.Seed, uint64(b))), cmp.Compare(a, b))
	})
	return nodes, regions
}

func TestStoresHoldTheHopsOfTheirRowsInOrder(t *testing.T) {
	for k, c := range []struct {
		name  string
		graph dtype.DType
		o     Options
	}{
		{"labelled rows", format.Float32, Options{Hops: 3, Operators: allOperators[:2], Seed: 7}},
		{"all rows", format.Float32, Options{Hops: 2, Operators: allOperators[:5], Rows: format.RowsAll}},
		{"the second split", format.Float32, Options{Hops: 1, Operators: allOperators[2:], Split: 1, ChunkRows: 64}},
		{"float16 of float32", format.Float32, Options{Hops: 2, Operators: allOperators[:1], DType: format.Float16}},
		{"float16 of float16", format.Float16, Options{Hops: 2, Operators: allOperators[:1]}},
		{"float32 of float16", format.Float16, Options{Hops: 1, Operators: allOperators[:1], DType: format.Float32}},
		{"bfloat16", format.Float32, Options{Hops: 2, Operators: allOperators[1:2], DType: format.BFloat16}},
		{"other graphs", format.Float32, Options{Hops: 2, Operators: allOperators[4:]}},
		{"series", format.Float32, Options{Hops: 2, Operators: someSeries}},
		{"series in float16", format.Float32, Options{Hops: 2, Operators: someSeries, DType: format.Float16}},
		{"series in bfloat16, all rows", format.Float32,
			Options{Hops: 2, Operators: someSeries, DType: format.BFloat16, Rows: format.RowsAll}},
		{"hop 0 alone", format.Float32, Options{}},
		{"more than is written at a time", format.Float32, Options{Rows: format.RowsAll}},
	} {
		seed := uint64(k % 2) // unweighted and weighted
		t.Run(fmt.Sprintf("%s, seed %d", c.name, seed), func(t *testing.T) {
			features := 5
			if strings.HasPrefix(c.name, "more") {
				features = plan.WriteBufferBytes/4/1200 + 1
			}
			g := randomGraph(seed, 1200, features)
			g.DType = c.graph
			fsys := vfs.NewMem()
			g.write(t, fsys, "graph")
			c.o.Threads = 2
			result, err := Propagate(context.Background(), fsys, "graph", "store", c.o)
			if err != nil {
				t.Fatal(err)
			}
			store, err := format.OpenStore(fsys, "store")
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()

			nodes, regions := wantRows(g, c.o)
			table, err := store.Rows(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(table.NodeID, nodes) || result.Rows != int64(len(nodes)) {
				t.Fatalf("%d rows, not the %d wanted, or not in order", result.Rows, len(nodes))
			}
			for _, r := range store.Layout().Regions {
				if r.Rows != regions[r.Name] {
					t.Errorf("region %s has %d rows, want %d", r.Name, r.Rows, regions[r.Name])
				}
			}
			for i, v := range nodes {
				if table.Labels[i] != g.rows.Labels[v] || table.OrigID[i] != g.rows.OrigID[v] ||
					!slices.Equal(table.Splits[2*i:2*i+2], g.rows.Splits[2*v:2*v+2]) {
					t.Fatalf("row %d does not hold what is known of node %d", i, v)
				}
			}

			dt := store.Layout().DType
			if c.o.DType != 0 && dt != c.o.DType || c.o.DType == 0 && dt != c.graph {
				t.Errorf("stored as %v", dt)
			}
			check := func(m *product.Matrix) {
				t.Helper()
				got, row := readMatrix(t, store, m.ID), int(m.RowBytes())
				if len(got) != len(nodes)*row {
					t.Fatalf("%v has %d bytes, want %d", m.ID, len(got), len(nodes)*row)
				}
				for i, v := range nodes {
					if !bytes.Equal(got[i*row:(i+1)*row], m.Rows(int64(v), int64(v)+1)) {
						t.Fatalf("%v: row %d is not that of node %d", m.ID, i, v)
					}
				}
			}
			stored := make([]byte, len(g.x)*g.DType.Size())
			dtype.Encode(stored, g.x, g.DType)
			input := make([]float32, len(g.x))
			dtype.Decode(input, stored, g.DType)
			csc, wantMatrices := g.csc(), 1
			for _, o := range append([]operator.Operator{{}}, c.o.Operators...) {
				src := fillMatrix(t, g.nodes, g.features, dt, input)
				if o.Name == "" {
					src.ID = format.Input
					check(src)
					continue
				}
				for r := 1; r <= c.o.Hops; r++ {
					dst := fillMatrix(t, g.nodes, g.features, dt, nil)
					applyOperator(t, csc, o, dst, src)
					dst.ID = format.MatrixID{Operator: o.String(), Hop: r}
					check(dst)
					src = dst
					wantMatrices++
				}
			}
			if got := len(store.Matrices()); got != wantMatrices {
				t.Errorf("%d matrices, want %d", got, wantMatrices)
			}
			report, err := format.Verify(context.Background(), fsys, "store", 1, progress.Silent)
			if err != nil || len(report.Bad) > 0 {
				t.Errorf("verify: %v, %v", report, err)
			}
		})
	}
}

func TestStoresAreTheSameBytesForAnyThreads(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(1, 8000, 3).write(t, fsys, "graph") // more than one goroutine takes at a time
	operators := append(slices.Concat(allOperators[:3], oneOfEachGraph), someSeries[1], someSeries[3], someSeries[6])
	for _, dt := range []dtype.DType{format.Float32, format.Float16} {
		var want map[string][]byte
		for _, threads := range []int{1, 2, 3, 8} {
			o := Options{Hops: 2, Operators: operators, DType: dt, Threads: threads, Force: true,
				MemoryBytes: int64(threads) << 30}
			if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
				t.Fatal(err)
			}
			got := files(t, fsys, "store")
			if want == nil {
				want = got
			}
			if len(got) != len(want) {
				t.Fatalf("%d files with %d threads, %d with one", len(got), threads, len(want))
			}
			for name := range want {
				if !bytes.Equal(got[name], want[name]) {
					t.Errorf("%v: %s differs with %d threads", dt, name, threads)
				}
			}
		}
	}
}

func TestAStoreHasTheLabelsOfItsGraph(t *testing.T) {
	g := &testGraph{nodes: 3, features: 1, edges: []edge{{0, 1, 1}}, x: []float32{1, 2, 3}, DType: format.Float32}
	for name, c := range map[string]struct {
		rows  format.RowTable
		names []string
	}{
		"values":        {format.RowTable{LabelValues: []float32{0.5, float32(math.NaN()), -7}, LabelColumns: 1}, nil},
		"named classes": {format.RowTable{Labels: []int32{1, -1, 0}}, []string{"ant", "bee", "cat", "dog"}},
	} {
		g.rows, g.classNames = c.rows, c.names
		g.rows.Rows = 3
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		if _, err := Propagate(context.Background(), fsys, "graph", "store",
			Options{Hops: 1, Operators: allOperators[:1], Rows: format.RowsLabeled}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		store, err := format.OpenStore(fsys, "store")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		rows, err := store.Rows(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		want := c.rows
		if want.Rows, want.NodeID = 2, []uint32{0, 2}; want.Labels != nil {
			want.Labels = []int32{1, 0}
		} else {
			want.LabelValues = []float32{0.5, -7}
		}
		if fmt.Sprint(rows) != fmt.Sprint(&want) || !slices.Equal(store.Manifest.ClassNames, c.names) {
			t.Errorf("%s: %+v, classes %q", name, rows, store.Manifest.ClassNames)
		}
	}
}

func TestGraphsWithoutSplitsOrLabels(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *format.RowTable)
		rows   string
		want   []uint32
		err    string
	}{
		{"labels alone: labelled rows, all in rest", func(r *format.RowTable) { r.Labels = []int32{0, -1, 2, -1} },
			format.RowsLabeled, []uint32{0, 2}, ""},
		{"several labels: a row with any of them", func(r *format.RowTable) {
			r.MultiLabels, r.LabelColumns = []int8{-1, -1, -1, 0, 1, 1, -1, -1}, 2
		}, format.RowsLabeled, []uint32{1, 2}, ""},
		{"values to predict: a row with any of them", func(r *format.RowTable) {
			nan := float32(math.NaN())
			r.LabelValues, r.LabelColumns = []float32{nan, -0.5, nan, nan, 2, 3, nan, nan}, 2
		}, format.RowsLabeled, []uint32{0, 2}, ""},
		{"neither, all rows", func(r *format.RowTable) {}, format.RowsAll, []uint32{0, 1, 2, 3}, ""},
		{"neither, labelled rows", func(r *format.RowTable) {}, format.RowsLabeled, nil,
			"no node has a label or is in a split"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &testGraph{nodes: 4, features: 1, edges: []edge{{0, 1, 1}}, x: []float32{1, 2, 3, 4},
				DType: format.Float32}
			g.rows.Rows = 4
			c.change(&g.rows)
			fsys := vfs.NewMem()
			g.write(t, fsys, "graph")
			_, err := Propagate(context.Background(), fsys, "graph", "store",
				Options{Hops: 1, Operators: allOperators[:1], Rows: c.rows})
			if c.err != "" {
				if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			store, err := format.OpenStore(fsys, "store")
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			table, err := store.Rows(context.Background())
			if err != nil || !slices.Equal(table.NodeID, c.want) {
				t.Errorf("rows %v, want %v; %v", table.NodeID, c.want, err)
			}
			if rest, ok := store.Region(format.RegionRest); !ok || rest.Rows != int64(len(c.want)) {
				t.Errorf("region rest is %v", rest)
			}
		})
	}
}

// Stores of chosen nodes have the rows that a store of all nodes has, in the regions where they are there.
func TestChosenNodesHaveTheRowsOfAStoreOfAllNodes(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(3, 100, 5).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, Seed: 4, ChunkRows: 16}
	rowsOf := func(dir string, o Options) map[uint32]string {
		t.Helper()
		if _, err := Propagate(t.Context(), fsys, "graph", dir, o); err != nil {
			t.Fatal(err)
		}
		store, err := format.OpenStore(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		table, err := store.Rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows := map[uint32]string{}
		for _, id := range store.Matrices() {
			data := readMatrix(t, store, id)
			size := len(data) / len(table.NodeID)
			for i, v := range table.NodeID {
				rows[v] += string(data[i*size : (i+1)*size])
			}
		}
		for _, region := range store.Layout().Regions {
			for _, v := range table.NodeID[region.FirstRow : region.FirstRow+region.Rows] {
				rows[v] += region.Name
			}
		}
		return rows
	}
	all := rowsOf("all", o)
	for dir, nodes := range map[string][]uint32{"some": {0, 7, 8, 50, 99}, "one": {42}} {
		o := o
		o.Nodes = nodes
		got := rowsOf(dir, o)
		if len(got) != len(nodes) {
			t.Errorf("%s: %d rows", dir, len(got))
		}
		for _, v := range nodes {
			if got[v] != all[v] {
				t.Errorf("%s: another row of node %d", dir, v)
			}
		}
		if _, err := Propagate(t.Context(), fsys, "graph", dir, o); !errors.Is(err, format.ErrExists) ||
			!strings.Contains(err.Error(), "for a new store only") {
			t.Errorf("again: %v", err)
		}
		if _, err := Propagate(t.Context(), fsys, "graph", dir,
			Options{Hops: 3, Operators: allOperators[:2]}); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), "chosen") {
			t.Errorf("grown: %v", err)
		}
	}
	for wants, nodes := range map[string][]uint32{"do not ascend": {3, 3},
		"node 100 is chosen, but the graph has 100 nodes": {0, 100}} {
		o := o
		o.Nodes = nodes
		if _, err := Propagate(t.Context(), fsys, "graph", "bad", o); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), wants) {
			t.Errorf("%v: %v", nodes, err)
		}
	}
}

func TestBadOptionsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 100, 2).write(t, fsys, "graph")
	sym := allOperators[:1]
	for _, c := range []struct {
		name string
		o    Options
		err  string
	}{
		{"negative hops", Options{Hops: -1, Operators: sym}, "graph: unusable options: -1 hops"},
		{"too many hops", Options{Hops: 1001, Operators: sym}, "1001 hops"},
		{"no operator", Options{Hops: 1}, "no operator"},
		{"an operator made by hand", Options{Hops: 1, Operators: []operator.Operator{{Name: "gcn"}}},
			`no operator "gcn"`},
		{"an operator twice", Options{Hops: 1, Operators: append(sym[:1:1], sym...)}, "listed twice"},
		{"a parameter where there is none", Options{Hops: 1,
			Operators: []operator.Operator{{Name: operator.Sym, Parameter: 1}}}, `is not what "sym" means`},
		{"a series without a tolerance", Options{Hops: 1,
			Operators: []operator.Operator{{Name: operator.PPR, Parameter: 0.5}}},
			"tolerance is 0: it must be from 1e-07 to 0.1"},
		{"an unknown row set", Options{Rows: "some"}, `row set "some": there are labeled and all`},
		{"integers", Options{DType: dtype.Int32}, "cannot be stored as int32"},
		{"negative chunk rows", Options{ChunkRows: -3}, "-3 rows a chunk"},
		{"a split that is not there", Options{Split: 2}, "split 2: the graph has 2 splits, numbered from 0"},
		{"a negative split", Options{Split: -1}, "split -1"},
	} {
		_, err := Propagate(context.Background(), fsys, "graph", "store", c.o)
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.err)
		}
		if left := files(t, fsys, "store"); len(left) > 0 {
			t.Errorf("%s: left %d files", c.name, len(left))
		}
	}
}

func TestAStoreIsNeverWrittenOverItsGraph(t *testing.T) {
	dir := t.TempDir()
	disk := vfs.OS()
	graph := filepath.Join(dir, "data", "features", "graph")
	if err := disk.MkdirAll(filepath.Dir(graph)); err != nil {
		t.Fatal(err)
	}
	randomGraph(0, 100, 2).write(t, disk, graph)
	if err := errors.Join(os.Symlink(graph, filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(graph, "nodes"), filepath.Join(dir, "inner"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(graph))
	before := files(t, disk, graph)
	for _, output := range []string{
		"graph", "graph/", "./graph", graph, "graph/../graph", filepath.Join(dir, "link"), // the graph
		// in it
		"graph/store", "graph/features", filepath.Join(dir, "link", "x"), filepath.Join(dir, "inner"),
		filepath.Join(dir, "inner", "x"),
		".", dir, filepath.Join(dir, "data"), // around it
	} {
		for _, input := range []string{"graph", filepath.Join(dir, "link")} {
			_, err := Propagate(context.Background(), disk, input, output, Options{Rows: format.RowsAll, Force: true})
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), output+": ") {
				t.Errorf("%s to %s: %v", input, output, err)
			}
		}
	}
	if after := files(t, disk, graph); !maps.EqualFunc(before, after, bytes.Equal) {
		t.Errorf("the graph has changed: %d files, %d before", len(after), len(before))
	}
	if _, err := Propagate(context.Background(), disk, "graph", "graph2", Options{Rows: format.RowsAll}); err != nil {
		t.Errorf("a neighbour with a longer name: %v", err)
	}
	_, err := Propagate(context.Background(), disk, "graph2", "again", Options{})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "graph2: unusable options: it is a store") {
		t.Errorf("a store as input: %v", err)
	}
}

func TestWhatDoesNotFitIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	g := randomGraph(0, 3000, 2)
	o := Options{Hops: 1, Operators: allOperators[:1], MemoryBytes: 60 << 20}
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	_, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "may use 60 MiB") {
		t.Errorf("with 60 MiB of memory: %v", err)
	}
	used := int64(0)
	for _, content := range files(t, fsys, "graph") {
		used += int64(len(content))
	}
	o.MemoryBytes = 0
	fsys.SetCapacity(used + 20_000)
	_, err = Propagate(context.Background(), fsys, "graph", "store", o)
	if !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(), "free") {
		t.Errorf("with 20 kB of disk: %v", err)
	}
	if left := files(t, fsys, "store"); len(left) > 0 {
		t.Errorf("left %d files", len(left))
	}
}

func TestValuesTooLargeForFloat16AreNamed(t *testing.T) {
	g := &testGraph{nodes: 4, features: 2, edges: []edge{{0, 0, 1}, {1, 1, 1}, {0, 2, 1}, {1, 2, 1}},
		x: []float32{0, 50000, 0, 60000, 1, 1, 1, 1}, DType: format.Float32}
	g.rows = format.RowTable{Rows: 4, Labels: []int32{0, 1, 2, 3}}
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.RW, NoLoops: true},
		{Name: operator.Sym, NoLoops: true}}, DType: format.Float16}
	_, err := Propagate(context.Background(), fsys, "graph", "store", o)
	// (50000 + 60000 as float16) / sqrt(2)
	if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(),
		"graph: sym:noloops/hop-1: node 2, column 1: invalid data: 77770.4") {
		t.Errorf("hop: %v", err)
	}
	g.x[6] = 65520
	g.write(t, fsys, "large")
	_, err = Propagate(context.Background(), fsys, "large", "store", o)
	if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(),
		"large: x/hop-0: node 3, column 0: invalid data: 65520") {
		t.Errorf("features: %v", err)
	}
	if left := files(t, fsys, "store"); len(left) > 0 {
		t.Errorf("left %d files", len(left))
	}
}

// stopper cancels when the k-th task starts.
type stopper struct {
	k    *atomic.Int64
	stop context.CancelFunc
}

func (s stopper) Start(label string, total int64, unit progress.Unit) progress.Task {
	if s.k.Add(-1) == 0 {
		s.stop()
	}
	return progress.Silent.Start(label, total, unit)
}

func TestACancelledPropagationGoesOnToTheSameBytes(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 1000, 5).write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:2], Threads: 2}
	want := propagated(t, fsys, "whole", o)
	for i, budget := range budgets(t, fsys, o) {
		if o.MemoryBytes, o.Planned = budget, nil; i == 3 {
			o.Planned = outOfCore
		}
		resumed := 0
		for k := 1; ; k++ {
			ctx, cancel := context.WithCancel(context.Background())
			var left atomic.Int64
			left.Store(int64(k))
			o.Progress = stopper{&left, cancel}
			_, err := Propagate(ctx, fsys, "graph", "store", o)
			cancel()
			if left.Load() > 0 { // fewer tasks than k
				if err != nil || k < 8 {
					t.Errorf("uninterrupted, %d tasks: %v", k-1, err)
				}
				break
			}
			if _, statErr := fsys.Stat("store"); !errors.Is(err, context.Canceled) ||
				errors.Is(err, ErrUnfinished) != (statErr == nil) {
				t.Errorf("cancelled at task %d: %v", k, err)
			}
			if _, err := format.OpenStore(fsys, "store"); !errors.Is(err, format.ErrIncomplete) &&
				!errors.Is(err, fs.ErrNotExist) {
				t.Errorf("cancelled at task %d: %v", k, err)
			}
			o.Progress = nil
			result, err := Propagate(context.Background(), fsys, "graph", "store", o)
			if err != nil {
				t.Fatalf("after task %d: %v", k, err)
			}
			if result.Resumed {
				resumed++
			}
			if got := files(t, fsys, "store"); !sameFiles(got, want) {
				t.Fatalf("cancelled at task %d, the store that it ends with is another", k)
			}
			if err := fsys.RemoveAll("store"); err != nil {
				t.Fatal(err)
			}
		}
		if resumed < 3 {
			t.Errorf("budget %d: %d jobs went on with something", budget, resumed)
		}
		if err := fsys.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
	}
}

// propagated is the files of a store, by their names in it.
func propagated(t *testing.T, fsys vfs.FS, dir string, o Options) map[string][]byte {
	t.Helper()
	if _, err := Propagate(context.Background(), fsys, "graph", dir, o); err != nil {
		t.Fatal(err)
	}
	return files(t, fsys, dir)
}

// sameFiles compares stores in different directories.
func sameFiles(a, b map[string][]byte) bool {
	inside := func(files map[string][]byte) map[string][]byte {
		out := map[string][]byte{}
		for name, content := range files {
			// A complete store may keep what its job could not remove.
			if _, name, _ = strings.Cut(name, "/"); !strings.HasPrefix(name, ".job/") {
				out[name] = content
			}
		}
		return out
	}
	return maps.EqualFunc(inside(a), inside(b), bytes.Equal)
}

// workOf is a job as its plan sees it.
func workOf(t *testing.T, fsys vfs.FS, o Options) *plan.Work {
	t.Helper()
	s, err := openJobContext(fsys, "graph", "store")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.options, err = o.withDefaults(&s.graph.Manifest, s.graph.Layout().DType); err != nil {
		t.Fatal(err)
	}
	if err := s.chooseRows(context.Background()); err != nil {
		t.Fatal(err)
	}
	j, err := s.newJob()
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.work(j)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// budgets are amounts of memory that make for different plans, from no limit to the least that will do.
func budgets(t *testing.T, fsys vfs.FS, o Options) []int64 {
	t.Helper()
	w := workOf(t, fsys, o)
	whole, err := w.Plan(0, &plan.DefaultRates)
	if err != nil || whole.Panels != 1 || !whole.TopologyInMemory {
		t.Fatalf("without limit: %+v, %v", whole, err)
	}
	least := sort.Search(int(whole.MemoryBytes), func(budget int) bool {
		_, err := w.Plan(int64(budget), &plan.DefaultRates)
		return budget > 0 && err == nil
	})
	_, err = w.Plan(int64(least-1), &plan.DefaultRates)
	if !errors.Is(err, machine.ErrDoesNotFit) || !strings.Contains(err.Error(),
		fmt.Sprintf("needs %v at least", units.AtLeast(units.Bytes(least)))) {
		t.Errorf("%d bytes are needed: %v", least, err)
	}
	return []int64{0, max(int64(least), whole.MemoryBytes-1), (int64(least) + whole.MemoryBytes) / 2, int64(least)}
}

// outOfCore changes a plan. Small graphs take less memory than the buffers that it takes to do with less of them.
func outOfCore(p *Plan) {
	if p.Panels == 1 && p.PanelColumns > 1 {
		p.Panels, p.PanelColumns, p.ResultFiles = 2, (p.PanelColumns+1)/2, true
	}
	p.TopologyInMemory, p.InputFiles = false, p.Panels > plan.DirectPanels
	p.InputKept = p.InputFiles
	p.FactorsByEdge = p.Device == nil || p.Device.Name == plan.CPU
	p.CutBeside, p.HeldBytes = p.InputFiles, 1<<20 // of one or two topologies, and perhaps of coefficients
}

func TestAGraphWithoutNodesHasAStore(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomGraph(0, 2, 3)
	g.nodes, g.edges, g.x = 0, nil, nil
	g.rows = format.RowTable{NumSplits: 2}
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: append(allOperators[:4:4], someSeries...), Rows: format.RowsAll}
	want := propagated(t, fsys, "whole", o)
	o.MemoryBytes = 1 << 30
	if !sameFiles(propagated(t, fsys, "store", o), want) {
		t.Error("within a budget: another store")
	}
	if !sameFiles(byTasks(t, fsys, "tasks", 3, o), want) {
		t.Error("by tasks: another store")
	}
}

func TestStoresAreTheSameBytesForAnyBudget(t *testing.T) {
	for k, c := range []struct {
		name     string
		graph    dtype.DType
		features int
		o        Options
	}{
		{"labelled rows", format.Float32, 7, Options{Hops: 3, Operators: allOperators[:2]}},
		{"all rows of all graphs", format.Float32, 20,
			Options{Hops: 2, Operators: append(allOperators[:2:2], oneOfEachGraph...), Rows: format.RowsAll,
				ChunkRows: 100}},
		{"float16", format.Float32, 67, Options{Hops: 2, Operators: allOperators[4:6], DType: format.Float16}},
		{"series", format.Float16, 20, Options{Hops: 1, Operators: someSeries}},
		{"series in bfloat16", format.Float32, 20, Options{Hops: 2, Operators: someSeries[:1], DType: format.BFloat16}},
		{"hop 0 alone", format.Float32, 9, Options{}},
	} {
		seed := uint64(k % 2) // unweighted and weighted
		t.Run(fmt.Sprintf("%s, seed %d", c.name, seed), func(t *testing.T) {
			fsys := vfs.NewMem()
			g := randomGraph(seed, 900, c.features)
			g.DType = c.graph
			g.write(t, fsys, "graph")
			o := c.o
			o.Threads = 2
			want := propagated(t, fsys, "whole", o)
			panels := map[int]bool{}
			derives := slices.ContainsFunc(o.Operators, func(o operator.Operator) bool {
				return o.Graph != operator.AsGiven
			})
			scales := slices.ContainsFunc(o.Operators, operator.Operator.ScalesSources)
			for i, budget := range budgets(t, fsys, o) {
				o.MemoryBytes, o.Scratch = budget, []string{"", "scratch"}[i%2]
				var plan *Plan
				o.Planned = func(p *Plan) {
					if plan = p; i%2 == 1 {
						outOfCore(p)
					}
					p.FactorsByEdge = i > 0
				}
				result, err := Propagate(context.Background(), fsys, "graph", "store", o)
				if err != nil {
					t.Fatalf("budget %d: %v", budget, err)
				}
				panels[plan.Panels] = true
				if result.ScratchBytes > result.BytesWritten ||
					(result.ScratchBytes > 0) != (plan.ResultFiles || !plan.TopologyInMemory &&
						(derives || scales && plan.FactorsByEdge)) {
					t.Errorf("budget %d: %d bytes of scratch files, planned %+v", budget, result.ScratchBytes, plan)
				}
				if !sameFiles(files(t, fsys, "store"), want) {
					t.Errorf("budget %d, %+v: another store", budget, plan)
				}
				if left := files(t, fsys, "scratch"); len(left) > 0 {
					t.Errorf("budget %d left scratch files: %v", budget, slices.Collect(maps.Keys(left)))
				}
				if err := fsys.RemoveAll("store"); err != nil {
					t.Fatal(err)
				}
			}
			if len(panels) < 2 {
				t.Errorf("%v panels are all the ways there were", panels)
			}
		})
	}
}

func TestEveryFailureOfTheDiskIsAnErrorAndTheJobGoesOn(t *testing.T) {
	mem := vfs.NewMem()
	randomGraph(1, 40, 2).write(t, mem, "graph")
	o := Options{Hops: 1, Operators: allOperators[:1], Threads: 1}
	want := propagated(t, mem, "whole", o)
	for i, budget := range budgets(t, mem, o) {
		if i == 1 || i == 2 {
			continue
		}
		if o.MemoryBytes = budget; i == 3 {
			o.Planned = outOfCore
		}
		seen := vfs.Disks{}
		for n := int64(1); ; n += failureStep() {
			disk := vfs.NewFault(mem)
			disk.FailAt(n, syscall.EIO)
			_, err := Propagate(context.Background(), disk, "graph", "store", o)
			if disk.Operations() < n { // nothing failed
				if err != nil || n < 20 {
					t.Fatalf("%d operations: %v", n-1, err)
				}
				break
			}
			left := files(t, mem, "store")
			if _, published := left["store/manifest.json"]; published {
				report, verifyErr := format.Verify(context.Background(), mem, "store", 1, progress.Silent)
				if verifyErr != nil || len(report.Bad) > 0 {
					t.Fatalf("failing operation %d left a store that does not verify: %v, %v", n, report, verifyErr)
				}
			} else if err == nil {
				t.Fatalf("failing operation %d is no error, and there is no store", n)
			}
			if seen.Add(mem, 0) {
				if _, err := Propagate(context.Background(), mem, "graph", "store", o); err != nil {
					t.Fatalf("after failing operation %d: %v", n, err)
				}
				if !sameFiles(files(t, mem, "store"), want) {
					t.Fatalf("budget %d: after failing operation %d the store is another", budget, n)
				}
			}
			if err := mem.RemoveAll("store"); err != nil {
				t.Fatal(err)
			}
		}
		if err := mem.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
		counter := vfs.NewFault(mem)
		if _, err := Propagate(context.Background(), counter, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		for n := int64(0); n < counter.Reads(); n += failureStep() {
			if err := mem.RemoveAll("store"); err != nil {
				t.Fatal(err)
			}
			disk := vfs.NewFault(mem)
			disk.FlipBit(n+1, 12345)
			// What does not go together is read again, and may then be right.
			_, err := Propagate(context.Background(), disk, "graph", "store", o)
			// a lock file that is not one
			if right := err == nil && sameFiles(files(t, mem, "store"), want); !right &&
				!errors.Is(err, format.ErrCorrupt) && !errors.Is(err, folder.ErrDamaged) &&
				!errors.Is(err, folder.ErrForeign) &&
				!strings.Contains(fmt.Sprint(err), "holds .job") {
				t.Errorf("budget %d: a bit flipped in read %d: %v", budget, n+1, err)
			}
		}
		if err := mem.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestResultHasTheKeysThatScriptsRelyOn(t *testing.T) {
	g := randomGraph(1, 500, 3)
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: allOperators[:2], Rows: format.RowsAll, MemoryBytes: 1 << 30}
	result, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`nodes edges features operators hops rows dtype seconds hop_seconds
		edges_processed products_per_hop
		truncation_errors gathered_bytes_per_second memory_budget_bytes bytes_read bytes_written
		scratch_bytes output resumed`) {
		if _, ok := keys[key]; !ok {
			t.Errorf("no key %s", key)
		}
	}
	csc, loops := g.csc(), 0
	for v := range uint32(g.nodes) {
		if slices.Contains(csc.In(int64(v)), v) {
			loops++
		}
	}
	terms := int64(len(g.edges) + g.nodes - loops)
	if want := []int64{terms, terms, terms, terms}; !slices.Equal(result.EdgesProcessed, want) ||
		len(result.HopSeconds) != 4 {
		t.Errorf("edges processed %v, want %v; %d times", result.EdgesProcessed, want, len(result.HopSeconds))
	}
	written := int64(0)
	for _, content := range files(t, fsys, "store") {
		written += int64(len(content))
	}
	// Beside the store, what the job keeps of itself.
	if beside := result.BytesWritten - written; beside < 0 || beside > 50_000 || result.BytesRead == 0 {
		t.Errorf("%d bytes written, want %d; %d read", result.BytesWritten, written, result.BytesRead)
	}
	if result.MemoryBudgetBytes != 1<<30 || result.MemoryBytes <= plan.ProcessBytes {
		t.Errorf("memory %d of %d", result.MemoryBytes, result.MemoryBudgetBytes)
	}
}
