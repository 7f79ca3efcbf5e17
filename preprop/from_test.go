package preprop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

const communityNodes = 60

// communities is a graph whose edges lie within blocks of communityNodes nodes, but for a few. One node has thousands
// of in-neighbours.
func communities(random *rand.Rand, blocks, features int, weighted bool) *testGraph {
	g := randomGraph(random.Uint64(), blocks*communityNodes, features)
	g.weighted, g.edges = weighted, nil
	for range 14 * g.nodes {
		g.edges = append(g.edges, within(random, random.IntN(blocks)))
	}
	for range 2*plan.RunTerms + 500 {
		e := within(random, 1)
		e.to = communityNodes + 3
		g.edges = append(g.edges, e)
	}
	return g
}

// within is an edge in a block.
func within(random *rand.Rand, block int) edge {
	node := func() uint32 { return uint32(block*communityNodes + random.IntN(communityNodes)) }
	return edge{node(), node(), float32(random.IntN(30)+1) / 8}
}

// change changes a graph in a few ways, mostly in one block, and says which.
func (g *testGraph) change(random *rand.Rand) (changed *testGraph, ways []string) {
	c := *g
	c.edges, c.x = slices.Clone(g.edges), slices.Clone(g.x)
	c.rows.Labels, c.rows.Splits, c.rows.OrigID = slices.Clone(g.rows.Labels), slices.Clone(g.rows.Splits),
		slices.Clone(g.rows.OrigID)
	block := random.IntN(g.nodes / communityNodes)
	inBlock := func(v uint32) bool { return int(v)/communityNodes == block }
	node := func() int { return block*communityNodes + random.IntN(communityNodes) }
	for _, way := range []struct {
		name string
		do   func()
	}{
		{"edges are added", func() {
			for range 1 + random.IntN(20) {
				c.edges = append(c.edges, within(random, block))
			}
		}},
		{"edges are removed", func() {
			c.edges = slices.DeleteFunc(c.edges, func(e edge) bool { return inBlock(e.to) && random.IntN(20) == 0 })
		}},
		{"weights change", func() {
			for i := range c.edges {
				if inBlock(c.edges[i].to) && random.IntN(30) == 0 {
					c.edges[i].weight++
				}
			}
		}},
		{"features change", func() {
			for range 1 + random.IntN(5) {
				c.x[node()*c.features+random.IntN(c.features)] += 0.5
			}
		}},
		{"labels change", func() {
			for range 1 + random.IntN(9) {
				c.rows.Labels[random.IntN(c.nodes)] = int32(random.IntN(5) - 1)
			}
		}},
		{"splits change", func() {
			for range 1 + random.IntN(9) {
				c.rows.Splits[random.IntN(2*c.nodes)] = uint8(random.IntN(4))
			}
		}},
		{"nodes are added", func() {
			for range 1 + random.IntN(9) {
				v := uint32(c.nodes)
				c.nodes++
				c.rows.Rows++
				c.x = append(c.x, randomFeatures(random, 1, c.features)...)
				c.rows.Labels, c.rows.Splits = append(c.rows.Labels, int32(random.IntN(5)-1)), append(c.rows.Splits, 1, 0)
				c.rows.OrigID = append(c.rows.OrigID, fmt.Sprint("new ", v))
				c.edges = append(c.edges, edge{v, uint32(node()), 1}, edge{uint32(node()), v, 2})
			}
		}},
		{"an edge leaves the block", func() {
			c.edges = append(c.edges, edge{uint32(node()), random.Uint32N(uint32(g.nodes)), 1})
		}},
	} {
		if random.IntN(3) == 0 {
			way.do()
			ways = append(ways, way.name)
		}
	}
	return &c, ways
}

func TestAStoreFromAnEarlierOneIsThatOfAFreshJob(t *testing.T) {
	taken, all := 0, 0
	for seed := range 30 * seeds() {
		random := rand.New(rand.NewPCG(seed, 9))
		g := communities(random, 8+random.IntN(20), 1+random.IntN(20), random.IntN(2) == 0)
		o := Options{Hops: 1 + random.IntN(3), Threads: 1 + random.IntN(3), Seed: 7,
			Rows:  []string{format.RowsAll, format.RowsLabeled}[random.IntN(2)],
			DType: []format.DType{format.Float32, format.Float16, format.BFloat16}[random.IntN(3)], Split: random.IntN(2),
			ChunkRows: []int{0, 37}[random.IntN(2)]}
		for range 1 + random.IntN(2) {
			name := []string{"sym", "rw", "col", "ppr:alpha=0.3:tolerance=0.05", "heat:t=1:tolerance=0.05"}[random.IntN(5)] +
				[]string{"", ":reverse", ":undirected"}[random.IntN(3)] + []string{"", ":noloops"}[random.IntN(2)]
			parsed, err := operator.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(o.Operators, parsed) {
				o.Operators = append(o.Operators, parsed)
			}
		}
		changed, ways := g.change(random)
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		propagated(t, fsys, "store", o)
		changed.write(t, fsys, "graph2")
		if random.IntN(4) == 0 {
			o.Split = 1 - o.Split
		}
		if _, err := Propagate(context.Background(), fsys, "graph2", "fresh", o); err != nil {
			t.Fatal(err)
		}
		o.From, o.FromGraph, o.topologyOnDisk = "store", "graph", random.IntN(2) == 0
		o.MemoryBytes = []int64{0, 1 << 30}[random.IntN(2)]
		r, err := Propagate(context.Background(), fsys, "graph2", "store2", o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !sameFiles(files(t, fsys, "store2"), files(t, fsys, "fresh")) {
			t.Errorf("seed %d, %v, %v %s: another store; %+v", seed, o.Operators, o.DType, o.Rows, r.From)
		}
		if all++; r.From.Fresh == "" {
			taken++
		}
		t.Logf("seed %d, %v, %v %s: %v: %+v", seed, o.Operators, o.DType, o.Rows, ways, *r.From)
	}
	if taken < all/3 {
		t.Errorf("only %d of %d jobs took rows", taken, all)
	}
}

func TestTopologiesOfSeveralNodeRangesAreCompared(t *testing.T) {
	const nodes = 120_000 // whose offsets take more than plan.StreamRangeBytes
	g := &testGraph{nodes: nodes, features: 1, x: make([]float32, nodes), DType: format.Float32,
		rows: format.RowTable{Rows: nodes, Labels: make([]int32, nodes)}}
	for v := range g.x {
		g.x[v] = float32(v % 7)
		g.edges = append(g.edges, edge{uint32(v), uint32(v+1) % nodes, 1}, edge{uint32(v), uint32(v+2) % nodes, 1},
			edge{uint32(v), uint32(v+3) % nodes, 1})
	}
	changed := *g
	changed.edges = append(slices.Clone(g.edges), edge{5, nodes - 1, 1})
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	changed.write(t, fsys, "graph2")
	o := Options{Hops: 3, Operators: []operator.Operator{{Name: operator.Sym}}, Rows: format.RowsAll, Threads: 2}
	propagated(t, fsys, "store", o)
	if _, err := Propagate(context.Background(), fsys, "graph2", "fresh", o); err != nil {
		t.Fatal(err)
	}
	o.From, o.FromGraph, o.topologyOnDisk = "store", "graph", true
	r, err := Propagate(context.Background(), fsys, "graph2", "store2", o)
	if err != nil {
		t.Fatal(err)
	}
	if r.From.Fresh != "" || !sameFiles(files(t, fsys, "store2"), files(t, fsys, "fresh")) {
		t.Errorf("another store; %+v", r.From)
	}
}

func TestOnlyRowsNearAChangeAreComputed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	g := communities(random, 20, 4, false)
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	o := Options{Hops: 3, Operators: []operator.Operator{{Name: operator.Sym}}, Rows: format.RowsAll}
	propagated(t, fsys, "store", o)
	c := *g
	c.edges = append(slices.Clone(g.edges), edge{65, 66, 1}, edge{67, 66, 1})
	c.write(t, fsys, "graph2")
	o.From, o.FromGraph = "store", "graph"
	r, err := Propagate(context.Background(), fsys, "graph2", "store2", o)
	if err != nil {
		t.Fatal(err)
	}
	want := []int64{0} // by paths of edges from node 66: its factor differs in hop 1
	reached := map[uint32]bool{66: true}
	for range 3 {
		next := map[uint32]bool{}
		for v := range reached {
			next[v] = true
		}
		for _, e := range c.edges {
			if reached[e.from] {
				next[e.to] = true
			}
		}
		reached = next
		want = append(want, int64(len(reached)))
	}
	if !slices.Equal(r.From.Computed, want) {
		t.Errorf("computed rows %v, want %v (%s)", r.From.Computed, want, r.From.Fresh)
	}
	same, err := Propagate(context.Background(), fsys, "graph", "again", o)
	if err != nil || !slices.Equal(same.From.Computed, []int64{0, 0, 0, 0}) {
		t.Errorf("of the same graph: %+v, %v", same, err)
	}
	if !sameFiles(files(t, fsys, "again"), files(t, fsys, "store")) {
		t.Error("of the same graph: another store")
	}
}

func TestAJobFromAnEarlierStoreThatEndsEarlyGoesOn(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 9))
	g := communities(random, 20, 6, true)
	c, _ := g.change(random)
	c.edges = append(c.edges, edge{65, 66, 1})
	disk := vfs.NewMem()
	g.write(t, disk, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym}, {Name: operator.RW}}, Rows: format.RowsAll}
	propagated(t, disk, "store", o)
	c.write(t, disk, "graph2")
	if _, err := Propagate(context.Background(), disk, "graph2", "fresh", o); err != nil {
		t.Fatal(err)
	}
	want := files(t, disk, "fresh")
	seen := vfs.Disks{}
	for n := int64(1); ; n += 2 * failureStep() {
		crashed := disk.CrashClone()
		fault := vfs.NewFault(crashed)
		fault.FailFrom(n, syscall.EIO)
		from := o
		from.From, from.FromGraph = "store", "graph"
		_, faultErr := Propagate(context.Background(), fault, "graph2", "store2", from)
		done := fault.Operations() < n
		crashed = crashed.CrashClone()
		if n%4 == 1 {
			from.From = "" // a fresh job goes on too
		}
		if seen.Add(crashed, n%4) {
			if _, err := Propagate(context.Background(), crashed, "graph2", "store2", from); err != nil {
				t.Fatalf("after a crash at operation %d: %v", n, err)
			}
			if !sameFiles(files(t, crashed, "store2"), want) {
				t.Fatalf("after a crash at operation %d: another store", n)
			}
		}
		if done {
			if faultErr != nil || n < 50 {
				t.Fatalf("%d operations: %v", n, faultErr)
			}
			return
		}
	}
}

func TestAnEarlierStoreThatDoesNotFitIsRefusedOrLeft(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	g := communities(random, 10, 3, false)
	c := *g
	c.edges = append(slices.Clone(g.edges), edge{65, 66, 1})
	infinite := *g
	infinite.x = slices.Clone(g.x)
	infinite.x[5] = float32(math.Inf(1))
	everywhere := *g
	everywhere.x = randomFeatures(random, g.nodes, g.features)
	fsys := vfs.NewMem()
	for dir, graph := range map[string]*testGraph{"graph": g, "graph2": &c, "infinite": &infinite,
		"everywhere": &everywhere} {
		graph.write(t, fsys, dir)
	}
	sym, rw := []operator.Operator{{Name: operator.Sym}}, []operator.Operator{{Name: operator.RW}}
	o := Options{Hops: 2, Operators: sym, Rows: format.RowsAll}
	propagated(t, fsys, "store", o)
	for i, test := range []struct {
		graph string
		set   func(o *Options)
		err   string
		fresh string
	}{
		{"graph2", func(o *Options) { o.FromGraph = "" }, "nothing says which graph", ""},
		{"graph2", func(o *Options) { o.From, o.FromGraph = "nothere", "" }, "stat nothere: ", ""},
		{"graph2", func(o *Options) { o.FromGraph = "graph2" }, "was not made of the graph", ""},
		{"graph2", func(o *Options) { o.DryRun = true }, "for a whole job", ""},
		{"graph2", func(o *Options) { o.From = "graph" }, "", ""},
		{"graph2", func(o *Options) { o.Operators = rw }, "", "not all hops of rw"},
		{"graph2", func(o *Options) { o.Hops = 3 }, "", "not all hops of sym"},
		{"graph2", func(o *Options) { o.DType = format.Float16 }, "", "another type"},
		{"graph2", func(o *Options) { o.Seed = 5 }, "", "another --seed"},
		{"graph2", func(o *Options) { o.Hops, o.Operators = 0, nil }, "", "times as long"},
		{"graph2", func(o *Options) { o.MemoryBytes = 66 << 20 }, "", "--memory"},
		{"everywhere", func(*Options) {}, "", "change in hop 0"},
		{"infinite", func(*Options) {}, "node 1, column 2", ""},
	} {
		from := o
		from.From, from.FromGraph = "store", "graph"
		test.set(&from)
		dir := fmt.Sprint("store", i)
		r, err := Propagate(context.Background(), fsys, test.graph, dir, from)
		switch {
		case from.From == "graph":
			if !errors.Is(err, format.ErrKind) {
				t.Errorf("test %d: %v", i, err)
			}
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("test %d: %v, want %q", i, err, test.err)
			}
		case err != nil || !strings.Contains(r.From.Fresh, test.fresh) || r.From.Fresh == "":
			t.Errorf("test %d: %+v, %v, want %q", i, r, err, test.fresh)
		default:
			from.From = ""
			if !sameFiles(files(t, fsys, dir), func() map[string][]byte {
				if _, err := Propagate(context.Background(), fsys, test.graph, dir+"-fresh", from); err != nil {
					t.Fatal(err)
				}
				return files(t, fsys, dir+"-fresh")
			}()) {
				t.Errorf("test %d: another store", i)
			}
		}
	}
}

func TestRowsThatChangedAreAStore(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 9))
	g := communities(random, 10, 3, false)
	c, _ := g.change(random)
	c.x[3*g.features]++
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	c.write(t, fsys, "graph2")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.RW}}}
	propagated(t, fsys, "store", o)
	if _, err := Propagate(context.Background(), fsys, "graph2", "store2", o); err != nil {
		t.Fatal(err)
	}
	open := func(dir string) *format.Dir {
		d, err := format.OpenStore(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	old, now := open("store"), open("store2")
	id := format.MatrixID{Operator: "rw", Hop: 2}
	if err := WriteChanged(context.Background(), fsys, now, old, []format.MatrixID{id}, "changed"); err != nil {
		t.Fatal(err)
	}
	got := open("changed")
	rowsOf := func(d *format.Dir) map[uint32]string {
		table, err := d.Rows(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		all, out := readMatrix(t, d, id), map[uint32]string{}
		for i, v := range table.NodeID {
			out[v] = string(all[i*3*dtype.Float32.Size():][:3*dtype.Float32.Size()])
		}
		return out
	}
	before, want := rowsOf(old), rowsOf(now)
	for v, row := range want {
		if was, there := before[v]; there && was == row {
			delete(want, v)
		}
	}
	found := rowsOf(got)
	if len(want) == 0 || len(found) != len(want) {
		t.Errorf("%d rows changed, want %d", len(found), len(want))
	}
	for v, row := range want {
		if found[v] != row {
			t.Errorf("node %d has another row", v)
		}
	}
}

// ender ends a job when a task starts.
type ender struct {
	task string
	end  context.CancelFunc
}

func (e ender) Start(label string, total int64, unit progress.Unit) progress.Task {
	if label == e.task {
		e.end()
	}
	return progress.Silent.Start(label, total, unit)
}

func TestAJobFromAnEarlierStoreThatRunsOutOfTimeSaysWhatItSaved(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 9))
	g := communities(random, 20, 6, false)
	c := *g
	c.edges = append(slices.Clone(g.edges), edge{65, 66, 1})
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, Operators: []operator.Operator{{Name: operator.Sym}}, Rows: format.RowsAll}
	propagated(t, fsys, "store", o)
	c.write(t, fsys, "graph2")
	ctx, cancel := context.WithCancel(context.Background())
	o.From, o.FromGraph, o.Progress = "store", "graph", ender{"write sym/hop-2", cancel}
	_, err := Propagate(ctx, fsys, "graph2", "store2", o)
	if !errors.Is(err, ErrUnfinished) || errors.Is(err, ErrTooShort) {
		t.Errorf("hop 1 is saved, and the job says: %v", err)
	}
}

func TestAStoreFromAnEarlierOneHasItsChunksAndShares(t *testing.T) {
	t.Chdir(t.TempDir())
	g := communities(rand.New(rand.NewPCG(6, 9)), 20, 3, false)
	fsys := vfs.OS()
	g.write(t, fsys, "graph")
	sym := []operator.Operator{{Name: operator.Sym}}
	for name, chunkRows := range map[string]int{"short": 37, "default": 0} {
		o := Options{Hops: 1, Operators: sym, ChunkRows: chunkRows, Rows: format.RowsAll}
		propagated(t, fsys, name, o)
		o.ChunkRows, o.From, o.FromGraph = 0, name, "graph"
		if _, err := Propagate(context.Background(), fsys, "graph", name+"2", o); err != nil {
			t.Fatal(err)
		}
		if !sameFiles(files(t, fsys, name), files(t, fsys, name+"2")) {
			t.Errorf("%s: another store", name)
		}
		file := "features/sym/hop-1/part-00000.arrow"
		a, errA := os.Stat(filepath.Join(name, file))
		b, errB := os.Stat(filepath.Join(name+"2", file))
		if err := errors.Join(errA, errB); err != nil || !os.SameFile(a, b) {
			t.Errorf("%s: %s is not shared (%v)", name, file, err)
		}
	}
	if err := os.Rename("graph", "elsewhere"); err != nil {
		t.Fatal(err)
	}
	o := Options{Hops: 1, Operators: sym, From: "short", FromGraph: "graph"}
	if _, err := Propagate(context.Background(), fsys, "elsewhere", "x", o); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "--from-graph") {
		t.Errorf("of a graph that moved: %v", err)
	}
}

func TestAJobThatLeavesAnEarlierStoreHoldsNothingOfIt(t *testing.T) {
	const nodes = 300_000
	g := randomGraph(7, nodes, 1)
	c := *g
	c.x = randomFeatures(rand.New(rand.NewPCG(7, 9)), nodes, 1)
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	c.write(t, fsys, "graph2")
	o := Options{Hops: 1, Operators: []operator.Operator{{Name: operator.Sym}}, Rows: format.RowsAll}
	propagated(t, fsys, "store", o)
	held := func(dir, from string) (bytes int64) {
		o.From, o.FromGraph = from, "graph"
		o.Planned = func(*Plan) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			bytes = int64(m.HeapAlloc)
		}
		if _, err := Propagate(context.Background(), fsys, "graph2", dir, o); err != nil {
			t.Fatal(err)
		}
		if err := fsys.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	fresh := held("fresh", "")
	if more := held("store2", "store") - fresh; more > 2*nodes {
		t.Errorf("it holds %d bytes, for %d nodes", more, nodes)
	}
}
