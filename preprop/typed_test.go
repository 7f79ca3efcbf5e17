package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// testTyped is a typed graph: papers, the target, with authors, venues without features, and citations by a named
// relation of papers to papers.
type testTyped struct {
	papers  *testGraph
	nodes   map[string]int
	widths  map[string]int
	x       map[string][]float32
	weights map[string][][]float64 // of each relation, [destination][source]
	edges   map[string]*format.CSC // the same
	order   []format.Relation
}

// fewMetapaths are relations that randomTyped leaves out where a test fails a job at one operation after another: each
// metapath more adds operations that may fail, and work to each of the jobs that try them.
var fewMetapaths = []string{"venue__paper", "paper__venue", "paper__extends__paper"}

// randomTyped writes a random typed graph. Relations in without, as Relation.String has them, are left out.
func randomTyped(t *testing.T, fsys vfs.FS, dir string, papers int, without ...string) *testTyped {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 9))
	g := &testTyped{papers: randomGraph(4, papers, 3), x: map[string][]float32{}, weights: map[string][][]float64{},
		edges: map[string]*format.CSC{}, nodes: map[string]int{"paper": papers, "author": 2 * papers / 3, "venue": 4},
		widths: map[string]int{"paper": 3, "author": 5, "venue": 0}}
	for _, name := range []string{"author", "paper", "venue"} {
		g.x[name] = randomFeatures(random, g.nodes[name], g.widths[name])
	}
	for _, r := range []format.Relation{{Source: "author", Name: "writes", Destination: "paper"},
		{Source: "paper", Name: "by", Destination: "author"}, {Source: "venue", Destination: "paper"},
		{Source: "paper", Destination: "venue"}, {Source: "paper", Name: "cites", Destination: "paper"},
		{Source: "paper", Name: "extends", Destination: "paper"}} {
		if slices.Contains(without, r.String()) {
			continue
		}
		n, sources := g.nodes[r.Destination], g.nodes[r.Source]
		dense := make([][]float64, n)
		c := &format.CSC{Offsets: []int64{0}}
		for v := range dense {
			dense[v] = make([]float64, sources)
			for u := range sources {
				if random.IntN(sources) < 3 && v%11 != 3 { // some have no in-neighbours
					c.Neighbors = append(c.Neighbors, uint32(u))
					c.Weights = append(c.Weights, 0.5+random.Float32())
					dense[v][u] = float64(c.Weights[len(c.Weights)-1])
				}
			}
			c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
		}
		g.weights[r.String()], g.edges[r.String()], g.order = dense, c, append(g.order, r)
	}
	g.write(t, fsys, dir)
	return g
}

// write writes the graph.
func (g *testTyped) write(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	w, err := format.CreateTyped(fsys, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	typed := &format.Typed{Name: "test", Target: "paper"}
	part := func(at string, c *format.CSC, sources int64, x []float32, width int, rows *format.RowTable) string {
		layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: c.Nodes()}}, 16, width, format.Float32)
		layout.SourceNodes = sources
		out, err := format.Create(fsys, at, layout, format.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if width > 0 {
			m, err := out.Matrix(format.Input)
			if err := errors.Join(err, m.Write(dtype.BytesOf(x)), m.Close()); err != nil {
				t.Fatal(err)
			}
		}
		m := &format.Manifest{Kind: format.KindGraph, Name: "part", Directed: true}
		if rows.Labels != nil {
			m.Classes = 4
		}
		if err := errors.Join(out.Topology(c), out.Rows(rows), out.Publish(m)); err != nil {
			t.Fatal(err)
		}
		return m.Fingerprint
	}
	for _, name := range []string{"author", "paper", "venue"} {
		n := int64(g.nodes[name])
		rows := &format.RowTable{Rows: n}
		if name == "paper" {
			rows = &g.papers.rows
		}
		c := &format.CSC{Offsets: make([]int64, n+1)}
		typed.Types = append(typed.Types, format.NodeType{Name: name, Nodes: n, Features: g.widths[name],
			Fingerprint: part(format.NodesDir(w.Dir(), name), c, 0, g.x[name], g.widths[name], rows)})
	}
	for _, r := range g.order {
		c, from := g.edges[r.String()], int64(g.nodes[r.Source])
		if r.Source == r.Destination {
			from = 0
		}
		r.Edges = c.Edges()
		r.Fingerprint = part(format.RelationDir(w.Dir(), r), c, from, nil, 0, &format.RowTable{Rows: c.Nodes()})
		typed.Relations = append(typed.Relations, r)
	}
	if err := w.Publish(typed); err != nil {
		t.Fatal(err)
	}
}

// product is the naive product of a relation with rows x in float64, and the sums of absolute terms.
func (g *testTyped) product(r format.Relation, x, absolute [][]float64, sym bool) (out, sums [][]float64) {
	a := g.weights[r.String()]
	in, from := make([]float64, len(a)), make([]float64, len(a[0]))
	for v := range a {
		for u, w := range a[v] {
			in[v] += w
			from[u] += w
		}
	}
	for v := range a {
		row, sum := make([]float64, len(x[0])), make([]float64, len(x[0]))
		for u, w := range a[v] {
			if w == 0 {
				continue
			}
			factor := w / in[v]
			if sym {
				factor = w / math.Sqrt(in[v]*from[u])
			}
			for k := range row {
				row[k] += factor * x[u][k]
				sum[k] += factor * absolute[u][k]
			}
		}
		out, sums = append(out, row), append(sums, sum)
	}
	return out, sums
}

// metapaths are the metapaths of up to hops relations, as names with their matrices in float64.
func (g *testTyped) metapaths(hops int, sym bool) (made, sums map[string][][]float64) {
	return g.metapathsOf([]string{"paper", "author"}, hops, sym)
}

// metapathsOf are those that start from some types.
func (g *testTyped) metapathsOf(types []string, hops int, sym bool) (made, sums map[string][][]float64) {
	made, sums = map[string][][]float64{}, map[string][][]float64{}
	names := map[string]string{"author__writes__paper": "paper<author", "paper__by__author": "author<paper",
		"venue__paper": "paper<venue", "paper__venue": "venue<paper", "paper__cites__paper": "paper<cites.paper",
		"paper__extends__paper": "paper<extends.paper"}
	var extend func(name, head string, x, absolute [][]float64, left int)
	extend = func(name, head string, x, absolute [][]float64, left int) {
		if strings.Contains(name, "<") && head == "paper" {
			made[name], sums[name] = x, absolute
		}
		for _, r := range g.order {
			if left > 0 && r.Source == head {
				y, sum := g.product(r, x, absolute, sym)
				step := strings.TrimSuffix(names[r.String()], head)
				extend(step+name, r.Destination, y, sum, left-1)
			}
		}
	}
	for _, name := range types {
		x, absolute := [][]float64{}, [][]float64{}
		for row := range slices.Chunk(g.x[name], g.widths[name]) {
			wide, positive := make([]float64, len(row)), make([]float64, len(row))
			for k, value := range row {
				wide[k], positive[k] = float64(value), math.Abs(float64(value))
			}
			x, absolute = append(x, wide), append(absolute, positive)
		}
		extend(name, name, x, absolute, hops)
	}
	return made, sums
}

func TestAStoreOfATypedGraphHasAMatrixForEachMetapath(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomTyped(t, fsys, "graph", 60)
	nodes, _ := wantRows(g.papers, Options{Split: 1, Seed: 5})
	for _, name := range []string{operator.RW, operator.Sym} {
		store := "store-" + name
		counted := vfs.NewPastCache(fsys)
		r, err := Propagate(context.Background(), counted, "graph", store, Options{Hops: 3, Split: 1, Seed: 5, Threads: 2,
			Operators: []operator.Operator{{Name: name}}, ChunkRows: 7})
		if err != nil {
			t.Fatal(err)
		}
		read, written := counted.Read().Bytes(), counted.Written().Bytes()
		if r.BytesRead < read*9/10 || r.BytesRead > read || r.BytesWritten < written*9/10 || r.BytesWritten > written {
			t.Errorf("%s: says %d bytes read and %d written of %d and %d", name, r.BytesRead, r.BytesWritten, read, written)
		}
		hops := 0.0
		for _, seconds := range r.HopSeconds {
			hops += seconds
		}
		if a := r.Time; math.Abs(a.Hops-hops) > 1e-9 || hops == 0 || a.Reading == 0 || a.Writing == 0 || a.Faster == "" {
			t.Errorf("%s: hops of %v s, and the account is %+v", name, hops, a)
		}
		if TookOf(fsys, store).Seconds == 0 {
			t.Errorf("%s: how long it took is not known", name)
		}
		d, err := format.OpenStore(fsys, store)
		if err != nil {
			t.Fatal(err)
		}
		made, sums := g.metapaths(3, name == operator.Sym)
		if len(made) != len(r.Metapaths) || len(d.Matrices()) != len(made)+1 {
			t.Errorf("%s: %d metapaths and %d matrices, want %d metapaths", name, len(r.Metapaths), len(d.Matrices()),
				len(made))
		}
		if got := readMatrix(t, d, format.Input); !slices.Equal(dtype.Float32s(got)[:3], g.x["paper"][3*nodes[0]:][:3]) {
			t.Errorf("%s: the first row of hop 0 is that of another node", name)
		}
		for metapath, want := range made {
			got := dtype.Float32s(readMatrix(t, d, format.MatrixID{Operator: name + ":" + metapath, Hop: 1}))
			for i, v := range nodes {
				for k, value := range want[v] {
					if diff := math.Abs(float64(got[i*len(want[v])+k]) - value); diff > 1e-5*sums[metapath][v][k] {
						t.Fatalf("%s of %s: node %d, column %d differs by %g of %g", name, metapath, v, k, diff,
							sums[metapath][v][k])
					}
				}
			}
		}
		report, err := format.Verify(context.Background(), fsys, store, 1, progress.Silent)
		if err != nil || len(report.Bad) > 0 {
			t.Errorf("%s: %v, %v", name, report.Bad, err)
		}
		d.Close()
	}
}

// subsetHops are hops 1 to most of features of all types side by side, in float64, over all edges of the relations that
// a subset is spelled with, and sums of absolute terms: for each type, [node][column].
func (g *testTyped) subsetHops(spelled string, most int) (hops, sums []map[string][][]float64) {
	relations := map[string][]string{"paper<author": {"author__writes__paper"}, "author<paper": {"paper__by__author"},
		"paper<venue": {"venue__paper", "paper__venue"}, "paper<cites.paper": {"paper__cites__paper"},
		"paper<extends.paper": {"paper__extends__paper"}}
	var used []format.Relation
	for _, name := range strings.Split(spelled, "-") {
		for _, r := range g.order {
			if slices.Contains(relations[name], r.String()) {
				used = append(used, r)
			}
		}
	}
	const columns = 8 // 5 of authors, 3 of papers
	now, sum := map[string][][]float64{}, map[string][][]float64{}
	for name, n := range g.nodes {
		now[name], sum[name] = make([][]float64, n), make([][]float64, n)
		for v := range n {
			now[name][v], sum[name][v] = make([]float64, columns), make([]float64, columns)
			for k := range g.widths[name] {
				at := k
				if name == "paper" {
					at += 5
				}
				value := float64(g.x[name][v*g.widths[name]+k])
				now[name][v][at], sum[name][v][at] = value, math.Abs(value)
			}
		}
	}
	for range most {
		next, nextSum := map[string][][]float64{}, map[string][][]float64{}
		for name, n := range g.nodes {
			next[name], nextSum[name] = make([][]float64, n), make([][]float64, n)
			for v := range n {
				row, rowSum, degree := make([]float64, columns), make([]float64, columns), 0.0
				for _, r := range used {
					if r.Destination != name {
						continue
					}
					for u, w := range g.weights[r.String()][v] {
						degree += w
						for k := range row {
							row[k] += w * now[r.Source][u][k]
							rowSum[k] += w * sum[r.Source][u][k]
						}
					}
				}
				for k := range row {
					if degree > 0 {
						row[k], rowSum[k] = row[k]/degree, rowSum[k]/degree
					}
				}
				next[name][v], nextSum[name][v] = row, rowSum
			}
		}
		now, sum = next, nextSum
		hops, sums = append(hops, now), append(sums, sum)
	}
	return hops, sums
}

func TestHopsOfSubsetsAreMeansOverAllTheirEdges(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomTyped(t, fsys, "graph", 60)
	nodes, _ := wantRows(g.papers, Options{Split: 1, Seed: 5})
	o := Options{Hops: 3, Split: 1, Seed: 5, Threads: 2, RelationsSubsets: 20, ChunkRows: 7}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := format.OpenStore(fsys, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	subsets := map[string]bool{}
	found := map[string]bool{}
	for _, m := range r.Metapaths {
		spelled, rest, _ := strings.Cut(m.Name, "=")
		subsets[spelled], found[m.Name] = true, true
		var hop int
		var source string
		if _, err := fmt.Sscanf(strings.Replace(rest, "<", " ", 1), "%d %s", &hop, &source); err != nil {
			t.Fatal(m.Name, err)
		}
		hops, sums := g.subsetHops(spelled, hop)
		first := 0
		if source == "paper" {
			first = 5
		}
		got := dtype.Float32s(readMatrix(t, d, format.MatrixID{Operator: "rw:" + m.Name, Hop: 1}))
		for i, v := range nodes {
			for k := range g.widths[source] {
				value, sum := hops[hop-1]["paper"][v][first+k], sums[hop-1]["paper"][v][first+k]
				if diff := math.Abs(float64(got[i*g.widths[source]+k]) - value); diff > 1e-5*sum {
					t.Fatalf("%s: node %d, column %d differs by %g of %g", m.Name, v, k, diff, sum)
				}
			}
		}
	}
	if len(subsets) != 20 {
		t.Errorf("%d subsets, want 20", len(subsets))
	}
	for spelled := range subsets { // what is not there is zero
		hops, _ := g.subsetHops(spelled, 3)
		for hop := range hops {
			for source, columns := range map[string][2]int{"author": {0, 5}, "paper": {5, 8}} {
				if found[fmt.Sprintf("%s=%d<%s", spelled, hop+1, source)] {
					continue
				}
				for v, row := range hops[hop]["paper"] {
					if slices.ContainsFunc(row[columns[0]:columns[1]], func(x float64) bool { return x != 0 }) {
						t.Fatalf("%s lacks hop %d of %s, which is %v for node %d", spelled, hop+1, source, row, v)
					}
				}
			}
		}
	}
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.AlreadyComplete {
		t.Errorf("the second time: %v, %v", r, err)
	}
	other := o
	other.Seed++
	if _, err := Propagate(context.Background(), fsys, "graph", "store", other); err == nil {
		t.Error("another seed draws the same subsets")
	}
	all := o // of 5 relations, 31 subsets; 2 of them bring no features of the first hop
	all.RelationsSubsets = 1000
	var notes []string
	all.Note = func(text string) { notes = append(notes, text) }
	if r, err := Propagate(context.Background(), fsys, "graph", "all", all); err != nil || len(notes) != 1 {
		t.Errorf("all subsets: %v, %v, %v", r, notes, err)
	}
}

func TestNamedMetapathsAreThoseOfTheStore(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 30)
	o := Options{Metapaths: []string{"paper<venue<paper", "paper<extends.paper<author"}, Threads: 1}
	r, err := Propagate(context.Background(), fsys, "graph", "store", o)
	if err != nil || !slices.Equal(r.Operators, []string{"rw:paper<extends.paper<author", "rw:paper<venue<paper"}) {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil || !r.AlreadyComplete {
		t.Errorf("the second time: %v, %v", r, err)
	}
	for text, want := range map[string]string{
		"paper<paper":      "paper<paper may be any of 2 relations: name one (paper<author, paper<cites.paper",
		"author<paper":     "want paper<TYPE",
		"paper<author<cat": "there is no relation author<cat (there are: author<paper)",
		"paper<venue":      "nodes of type venue have no features",
		"paper":            "want paper<TYPE",
		"paper<by.author":  "there is no relation paper<by.author",
		"paper<author<":    "there is no relation author< (there are: ",
	} {
		o.Metapaths = []string{text}
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	for want, o := range map[string]Options{
		"--operator is rw":                        {Hops: 1, Operators: []operator.Operator{{Name: operator.Col}}},
		"the graph has 2 splits, numbered from 0": {Hops: 1, Split: 2},
		"too long for the name of":                {Hops: 12},
		"--metapaths names some":                  {Hops: 2, Metapaths: []string{"paper<author"}},
	} {
		if _, err := Propagate(context.Background(), fsys, "graph", "other", o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", o, err, want)
		}
	}
	if _, err := fsys.Stat("other"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("options that are refused left something: %v", err)
	}
	if _, err := Propagate(context.Background(), fsys, "graph/relations/paper__venue", "other", Options{}); err == nil ||
		!errors.Is(err, format.ErrKind) {
		t.Errorf("a relation by itself: %v", err)
	}
}

func TestStoresOfTypedGraphsAreTheSameBytesForAnyThreadsAndBudget(t *testing.T) {
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 3000)
	for _, subsets := range []int{0, 2} {
		budgetsOfTyped(t, fsys, subsets)
	}
}

func budgetsOfTyped(t *testing.T, fsys vfs.FS, subsets int) {
	o := Options{Hops: 2, Threads: 1, RelationsSubsets: subsets}
	want := propagated(t, fsys, fmt.Sprint("whole-", subsets), o)
	o.MemoryBytes = 1
	_, err := Propagate(context.Background(), fsys, "graph", "small", o)
	if !errors.Is(err, machine.ErrDoesNotFit) {
		t.Fatalf("a budget of a byte: %v", err)
	}
	for _, threads := range []int{1, 4} {
		for extra := int64(0); extra < 4<<20; extra += 512 << 10 {
			dir := fmt.Sprint("store-", subsets, "-", threads, "-", extra)
			o := Options{Hops: 2, Threads: threads, MemoryBytes: plan.ProcessBytes + extra, RelationsSubsets: subsets}
			_, err := Propagate(context.Background(), fsys, "graph", dir, o)
			if errors.Is(err, machine.ErrDoesNotFit) {
				continue
			}
			if err != nil || !sameFiles(files(t, fsys, dir), want) {
				t.Errorf("%d threads, %d bytes: %v, or another store", threads, o.MemoryBytes, err)
			}
		}
	}
}

func TestACancelledPropagationOfATypedGraphGoesOnToTheSameBytes(t *testing.T) {
	for i, o := range []Options{{Hops: 2, Threads: 2}, {Hops: 2, Threads: 2, RelationsSubsets: 2},
		{Hops: 2, Threads: 2, RelationsSubsets: 2, Device: always(0, nil)}} {
		cancelledTyped(t, o, int64(1+i)) // the first after each unit of progress
	}
}

func cancelledTyped(t *testing.T, o Options, step int64) {
	t.Helper()
	fsys := vfs.NewMem()
	randomTyped(t, fsys, "graph", 40, fewMetapaths...)
	want := propagated(t, fsys, "whole", o)
	resumed := 0
	step = max(step, failureStep())
	for k := int64(1); ; k += step {
		ctx, cancel := context.WithCancel(context.Background())
		var left atomic.Int64
		left.Store(k)
		o.Progress = stopper{&left, cancel}
		_, err := Propagate(ctx, fsys, "graph", "store", o)
		cancel()
		if left.Load() > 0 { // fewer tasks than k
			if err != nil || resumed < max(2, int(10/step)) {
				t.Errorf("%d jobs went on; uninterrupted: %v", resumed, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("cancelled at task %d, and no error", k)
		}
		o.Progress = nil
		r, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err != nil || !sameFiles(files(t, fsys, "store"), want) {
			t.Fatalf("cancelled at task %d: %v, or another store", k, err)
		}
		if r.Resumed {
			resumed++
		}
		if err := fsys.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryFailureOfTheDiskIsAnErrorAndATypedJobGoesOn(t *testing.T) {
	mem := vfs.NewMem()
	randomTyped(t, mem, "graph", 20)
	for _, o := range []Options{{Metapaths: []string{"paper<author", "paper<author<paper"}, Threads: 1},
		{Hops: 1, RelationsSubsets: 1, Threads: 1}} {
		failingTyped(t, mem, o, 5)
	}
}

// failingTyped fails every step-th operation of a job, which then goes on to the same store.
func failingTyped(t *testing.T, mem *vfs.Mem, o Options, step int64) {
	t.Helper()
	defer func() {
		for _, dir := range []string{"whole", "store"} {
			if err := mem.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	}()
	want := propagated(t, mem, "whole", o)
	seen := vfs.Disks{}
	for n := int64(1); ; n += step * failureStep() {
		disk := vfs.NewFault(mem)
		disk.FailAt(n, syscall.EIO)
		_, err := Propagate(context.Background(), disk, "graph", "store", o)
		if disk.Operations() < n { // nothing failed
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			return
		}
		if _, published := files(t, mem, "store")[path.Join("store", "manifest.json")]; !published && err == nil {
			t.Fatalf("failing operation %d is no error, and there is no store", n)
		}
		if seen.Add(mem, 0) {
			if _, err := Propagate(context.Background(), mem, "graph", "store", o); err != nil {
				t.Fatalf("after failing operation %d: %v", n, err)
			}
			if !sameFiles(files(t, mem, "store"), want) {
				t.Fatalf("after failing operation %d the store is another", n)
			}
		}
		if err := mem.RemoveAll("store"); err != nil {
			t.Fatal(err)
		}
	}
}
