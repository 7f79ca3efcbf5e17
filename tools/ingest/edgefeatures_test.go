package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// multigraph is a random graph with columns: x [E,2] float32, n [E] int16, time [E] and node times of one type.
type multigraph struct {
	nodes     int
	src, dst  []int64
	x         []float32
	n         []int16
	time      []int64
	nodeTimes []int64
	feat      []float32
}

// randomMultigraph has many duplicates and self-loops, and nodes without edges.
func randomMultigraph(r *rand.Rand, nodes, edges int) *multigraph {
	g := &multigraph{nodes: nodes}
	for range edges {
		g.src = append(g.src, r.Int64N(int64(nodes)))
		g.dst = append(g.dst, r.Int64N(int64(nodes+1)/2))
		g.x = append(g.x, float32(r.NormFloat64())*1000+1e5, -float32(r.ExpFloat64()))
		g.n = append(g.n, int16(r.IntN(1<<16)-1<<15))
		g.time = append(g.time, 1_600_000_000+r.Int64N(20)*86400)
	}
	for range nodes {
		g.nodeTimes = append(g.nodeTimes, 1_600_000_000+r.Int64N(24)*86400)
		g.feat = append(g.feat, r.Float32())
	}
	return g
}

func (g *multigraph) layout(directed bool) layout {
	edges := int64(len(g.src))
	n16 := make([]uint16, edges)
	for i, v := range g.n {
		n16[i] = uint16(v)
	}
	return layout{
		"edge_index.npy": array(npy.Int64, slices.Concat(g.src, g.dst), 2, edges),
		"node_feat.npy":  array(npy.Float32, g.feat, int64(g.nodes), 1),
		"edge_x.npy":     array(npy.Float32, g.x, edges, 2),
		"edge_n.npy":     array(npy.Int16, n16, edges),
		"edge_time.npy":  array(npy.Int64, g.time, edges),
		"node_time.npy":  array(npy.Int64, g.nodeTimes, int64(g.nodes)),
		"meta.json":      fmt.Appendf(nil, `{"num_nodes": %d, "edge_layout": "2xE", "directed": %v}`, g.nodes, directed),
	}
}

// storedInEdges are the numbers of the edges of the input that the in-edges of each node are made of.
func (g *multigraph) storedInEdges(directed bool, o Options) [][]int {
	lists, seen := make([][]int, g.nodes), map[[2]int64]bool{}
	add := func(i int, u, v int64) {
		if o.Duplicates == KeepDuplicates || !seen[[2]int64{u, v}] {
			lists[v] = append(lists[v], i)
		}
		seen[[2]int64{u, v}] = true
	}
	for i, u := range g.src {
		if v := g.dst[i]; u != v {
			if add(i, u, v); !directed {
				add(i, v, u)
			}
		} else if o.SelfLoops != DropLoops {
			add(i, u, v)
		}
	}
	return lists
}

// twin is statistics in float64, in two passes.
func twin(statistic string, values []float64) float64 {
	n, sum, squares := float64(len(values)), 0.0, 0.0
	if n == 0 {
		return 0
	}
	for _, x := range values {
		sum += x
	}
	for _, x := range values {
		squares += (x - sum/n) * (x - sum/n)
	}
	return map[string]float64{"sum": sum, "mean": sum / n, "max": slices.Max(values), "std": math.Sqrt(squares / n),
		"count": n}[statistic]
}

// wanted is the features that come from edges, of the columns n and x, in the order of EdgeFeatures.
func (g *multigraph) wanted(lists [][]int, statistics []string, windows []int64) (rows [][]float64) {
	columns := []func(i int) []float64{
		func(i int) []float64 { return []float64{float64(g.n[i])} },
		func(i int) []float64 { return []float64{float64(g.x[2*i]), float64(g.x[2*i+1])} },
	}
	if windows == nil {
		windows = []int64{-1}
	}
	for v, list := range lists {
		row := []float64{float64(g.feat[v])}
		within := func(w int64) (in []int) {
			for _, i := range list {
				if before := g.nodeTimes[v] - g.time[i]; w < 0 || before > 0 && before <= w {
					in = append(in, i)
				}
			}
			return in
		}
		for _, column := range columns {
			for _, w := range windows {
				for _, s := range statistics {
					for k := range column(0) {
						var values []float64
						for _, i := range within(w) {
							values = append(values, column(i)[k])
						}
						if s != statCount {
							row = append(row, twin(s, values))
						}
					}
				}
			}
		}
		for _, w := range windows {
			if slices.Contains(statistics, statCount) {
				row = append(row, float64(len(within(w))))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func TestFeaturesOfEdgesAreTheStatisticsOfStoredInEdges(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 4))
	day := int64(86400)
	for trial, c := range []struct {
		nodes, edges int
		directed     bool
		loops        Loops
		duplicates   Duplicates
		of           EdgeFeatures
		windows      []int64
	}{
		{nodes: 40, edges: 300, directed: true, of: EdgeFeatures{Statistics: "mean,sum,max,std,count:n,x"}},
		{nodes: 40, edges: 300, of: EdgeFeatures{Statistics: "std,mean:edge_n,edge_x"}},
		{nodes: 40, edges: 300, duplicates: KeepDuplicates, loops: DropLoops, of: EdgeFeatures{Statistics: "max,sum:n,x"}},
		{nodes: 1, edges: 5, directed: true, duplicates: KeepDuplicates, of: EdgeFeatures{Statistics: "std,count,max:n,x"}},
		{nodes: 7, edges: 9000, directed: true, duplicates: KeepDuplicates, of: EdgeFeatures{Statistics: "mean,std:n,x"}},
		{nodes: 60, edges: 900, directed: true, duplicates: KeepDuplicates, of: EdgeFeatures{Time: "time", NodeTime: "time",
			Statistics: "count,mean,std", Windows: []string{"1d", "172800", "7d", "all"}},
			windows: []int64{day, 2 * day, 7 * day, math.MaxInt64}},
		{nodes: 60, edges: 900, duplicates: KeepDuplicates, of: EdgeFeatures{Time: "edge_time:s", NodeTime: "time",
			Statistics: "max,sum"}, windows: []int64{math.MaxInt64}},
	} {
		g := randomMultigraph(r, c.nodes, c.edges)
		o := Options{SelfLoops: c.loops, Duplicates: c.duplicates, EdgeFeatures: c.of, Threads: 1}
		disk, result, err := run(t, g.layout(c.directed), o)
		if err != nil {
			t.Fatalf("case %d: %v", trial, err)
		}
		text, _, _ := strings.Cut(c.of.Statistics, ":")
		want := g.wanted(g.storedInEdges(c.directed, o), strings.Split(text, ","), c.windows)
		d := openGraph(t, disk, "out/graph")
		got := storedFeatures(t, d)
		if result.Features != len(want[0]) || len(got) != len(want)*len(want[0]) {
			t.Fatalf("case %d: %d features, want %d", trial, result.Features, len(want[0]))
		}
		for i, v := range got {
			w := want[i/len(want[0])][i%len(want[0])]
			if math.Abs(float64(v)-w) > 1e-6*max(1, math.Abs(w)) {
				t.Errorf("case %d: node %d, column %d: %v, want %v", trial, i/len(want[0]), i%len(want[0]), v, w)
			}
		}
		// The bytes do not depend on threads and memory, and the columns are those of an import without features of edges.
		before := files(t, disk, "out")
		for _, memory := range []int64{0, 72 << 20} {
			o.Threads, o.MemoryBytes = 3, memory
			again, _, err := run(t, g.layout(c.directed), o)
			if err != nil {
				t.Fatalf("case %d: %v", trial, err)
			}
			sameFiles(t, "with other threads and memory", files(t, again, "out"), before)
		}
		o.EdgeFeatures = EdgeFeatures{}
		plain, _, err := run(t, g.layout(c.directed), o)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range files(t, plain, "out") {
			if (strings.Contains(name, "/edges/") || strings.Contains(name, "topology")) && before[name] != data {
				t.Errorf("case %d: %s differs from an import without features of edges", trial, name)
			}
		}
	}
}

func TestEdgesOfTheFutureDoNotChangeARow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	g := randomMultigraph(r, 30, 400)
	o := Options{Duplicates: KeepDuplicates, EdgeFeatures: EdgeFeatures{Statistics: "mean,max,count,std", Time: "time",
		NodeTime: "time", Windows: []string{"3d", "9d"}}}
	features := func() []float32 {
		disk, _, err := run(t, g.layout(true), o)
		if err != nil {
			t.Fatal(err)
		}
		return storedFeatures(t, openGraph(t, disk, "out/graph"))
	}
	before := features()
	changed := 0
	for i, v := range g.dst {
		if g.time[i] >= g.nodeTimes[v] { // at the node's time, too
			g.x[2*i], g.n[i], changed = float32(math.NaN()), -g.n[i]/2, changed+1
			g.x[2*i] = 1e30
			g.time[i] += r.Int64N(3) * 86400
		}
	}
	if changed < 50 || !slices.Equal(features(), before) {
		t.Errorf("rows changed with %d edges of the future", changed)
	}
	at := slices.IndexFunc(g.dst, func(v int64) bool { return true })
	for g.time[at] >= g.nodeTimes[g.dst[at]] || g.nodeTimes[g.dst[at]]-g.time[at] > 3*86400 {
		at++
	}
	if g.n[at] += 5; slices.Equal(features(), before) {
		t.Error("an edge within the window does not count")
	}
}

func TestTimesOfNodesThatHaveNone(t *testing.T) {
	l := layout{
		"edge_index.npy": array(npy.Int64, []int64{0, 1, 2, 0, 2, 2, 2, 1}, 2, 4),
		"edge_w.npy":     array(npy.Float32, []float32{1, 2, 4, 8}, 4),
		"edge_t.npy":     array(npy.Float64, []float64{0.5, 1, 1.5, 2}, 4),
		"node_t.npy":     array(npy.Float64, []float64{0, math.NaN(), 1.5}, 3),
		"meta.json":      []byte(`{"num_nodes": 3, "edge_layout": "2xE", "directed": true}`),
	}
	open := func(o EdgeFeatures) ([]float32, error) {
		disk := l.put(t)
		s, err := OpenNPY(disk, "in", NPYOptions{WithoutFeatures: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		options := Options{Duplicates: KeepDuplicates, EdgeFeatures: o}
		if _, err := Run(t.Context(), disk, s, "out/graph", options); err != nil {
			return nil, err
		}
		d := openGraph(t, disk, "out/graph")
		return storedFeatures(t, d), nil
	}
	for name, c := range map[string]struct {
		o    EdgeFeatures
		want []float32
	}{
		"until alone": {EdgeFeatures{Statistics: "sum", Time: "t", Until: "1.5"}, []float32{0, 0, 3}},
		"until for node 1 alone": {EdgeFeatures{Statistics: "sum", Time: "t", NodeTime: "t", Until: "2.5"},
			[]float32{0, 8, 3}},
		"until, and a window": {EdgeFeatures{Statistics: "sum,count", Time: "t", Until: "1.5", Windows: []string{"0.5", "1"}},
			[]float32{0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 1, 2}},
	} {
		if got, err := open(c.o); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	_, err := open(EdgeFeatures{Statistics: "sum", Time: "t", NodeTime: "t"})
	refused(t, "a node without a time", err, "in/node_t.npy: row 1", "--until")
}

func TestFeaturesOfEdgesThatMakeNoSenseAreRefused(t *testing.T) {
	g := randomMultigraph(rand.New(rand.NewPCG(1, 1)), 10, 40)
	whole := g.layout(true)
	all := Options{Duplicates: KeepDuplicates}
	at := func(column, until string, windows ...string) EdgeFeatures {
		return EdgeFeatures{Statistics: "sum", Time: column, Until: until, Windows: windows}
	}
	for says, o := range map[string]EdgeFeatures{
		"--edge-features median": {Statistics: "median"},
		"each once":              {Statistics: "sum,sum"},
		"--edge-features y: there is no such column":  {Statistics: "sum:y"},
		"edge_n, edge_time, edge_x":                   at("y", "1"),
		"count is of no column":                       {Statistics: "count:n"},
		"--node-time COLUMN or --until TIME":          at("time", ""),
		"need --edge-time":                            {Statistics: "sum", Windows: []string{"1d"}},
		"--windows need --edge-features":              {Windows: []string{"1d"}},
		"column edge_n twice":                         {Statistics: "sum:n,edge_n"},
		"--until tomorrow":                            at("time", "tomorrow"),
		"unit y":                                      at("time:y", "1"),
		"--windows 0":                                 at("time", "1", "0"),
		"--windows 99999999999999999d":                at("time", "1", "99999999999999999d"),
		"--windows 1d: want longer":                   at("time", "1", "2d", "1d"),
		"--windows 90s: is no whole number":           at("time:m", "1", "90s"),
		"column edge_x has 2 numbers each":            at("x", "1"),
		"--node-time x: there is no such column (col": {Statistics: "sum", Time: "time", NodeTime: "x"},
	} {
		o := Options{Duplicates: KeepDuplicates, EdgeFeatures: o}
		if disk, _, err := run(t, whole, o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) ||
			len(files(t, disk, "out")) > 0 {
			t.Errorf("want %q: %v", says, err)
		}
	}
	for says, more := range map[string]func(*Options){
		"--duplicates keep":   func(o *Options) { o.Duplicates = MergeDuplicates },
		"--features-in-place": func(o *Options) { o.FeaturesInPlace = true },
	} {
		o := all
		o.EdgeFeatures = EdgeFeatures{Statistics: "sum", Time: "time", Until: "1"}
		more(&o)
		if _, _, err := run(t, whole, o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	all.EdgeFeatures = EdgeFeatures{Statistics: "sum:x"}
	g.x[2*17+1] = float32(math.Inf(1))
	disk, _, err := run(t, g.layout(true), all)
	refused(t, "an infinite value", err, "in/edge_x.npy: row 17, column edge_x", "+Inf", "not finite")
	if left := files(t, disk, "out"); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
	for i := range g.x {
		g.x[i] = 3e38
	}
	_, _, err = run(t, g.layout(true), all)
	refused(t, "a sum beyond float32", err, "in/node_feat.npy: row", "column 1", "a statistic of edges")
	g.x = nil
	float := g.layout(true)
	float["edge_x.npy"] = array(npy.Float32, make([]float32, 40), 40)
	all.EdgeFeatures = EdgeFeatures{Statistics: "sum", Time: "x", Until: "1"}
	const says = "float32, which times may not fit"
	if _, _, err := run(t, float, all); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) {
		t.Error(err)
	}
}

func TestFeaturesOfEdgesOfTablesNameTheLine(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("t"); err != nil {
		t.Fatal(err)
	}
	putFile(t, disk, "t/edges.csv", []byte("# a comment\nsource,target,amount,at\n0,1,2.5,10\n\n2,1,4,20\n"+
		"1,0,8,30\n0,1,1,5\n"))
	putFile(t, disk, "t/nan.csv", []byte("# a comment\nsource,target,amount\n0,1,2.5\n\n2,1,nan\n"))
	open := func(file string, columns ...string) Source {
		o := TableOptions{}
		o.Features, o.Columns.Edge = None, columns
		s, err := OpenCSV(t.Context(), disk, "t/"+file, ScratchOptions{Output: "out/" + file}, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open("edges.csv", "amount", "at:int64")
	_, err := Run(t.Context(), disk, s, "out/edges.csv", Options{Duplicates: KeepDuplicates, EdgeFeatures: EdgeFeatures{
		Statistics: "sum,max,count:amount", Time: "at", Until: "30"}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	d := openGraph(t, disk, "out/edges.csv")
	if got, want := storedFeatures(t, d), []float32{0, 0, 0, 7.5, 4, 3, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	const said = "sum,max of edge_amount (1); count; of edges within all by at before 30"
	if got := d.Manifest.Input[format.EdgeFeatures]; got != said {
		t.Error(got)
	}
	s = open("nan.csv", "amount")
	defer s.Close()
	_, err = Run(t.Context(), disk, s, "out/nan.csv", Options{EdgeFeatures: EdgeFeatures{Statistics: "sum"}})
	refused(t, "a NaN", err, "t/nan.csv: line 5, column edge_amount: NaN is not finite")
}

func TestAnImportOfEdgeFeaturesThatFailedStartsOverToTheSameBytes(t *testing.T) {
	g := randomMultigraph(rand.New(rand.NewPCG(3, 3)), 8, 30)
	l := g.layout(true)
	work := func(in, out vfs.FS, force bool) error {
		s, err := OpenNPY(in, "in", NPYOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = Run(context.Background(), out, s, "out/graph", Options{Threads: 1, Duplicates: KeepDuplicates,
			Scratch: "tmp", Force: force,
			EdgeFeatures: EdgeFeatures{Statistics: "mean,count", Time: "time", NodeTime: "time"}})
		return err
	}
	whole := l.put(t)
	if err := whole.MkdirAll("tmp"); err != nil {
		t.Fatal(err)
	}
	if err := work(whole, whole, false); err != nil {
		t.Fatal(err)
	}
	want, seen := files(t, whole, "out"), vfs.Disks{}
	for n := int64(1); ; n++ {
		disk := l.put(t)
		if err := disk.MkdirAll("tmp"); err != nil {
			t.Fatal(err)
		}
		faulty := vfs.NewFault(disk)
		faulty.FailFrom(n, syscall.EIO) // as if it were killed
		err := work(disk, faulty, false)
		if faulty.Operations() < n {
			if err != nil || n < 30 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("from operation %d on nothing works, and the import succeeds", n)
		}
		if !seen.Add(disk, 0) {
			continue
		}
		if err := work(disk, disk, true); err != nil {
			t.Fatalf("after operation %d failed: %v", n, err)
		}
		sameFiles(t, "after a failure", files(t, disk, "out"), want)
		if left := files(t, disk, "tmp"); len(left) > 0 {
			t.Fatalf("after operation %d failed, %d scratch files are left", n, len(left))
		}
	}
}

func TestUpdateRefusesGraphsWithFeaturesOfEdges(t *testing.T) {
	g := randomMultigraph(rand.New(rand.NewPCG(5, 5)), 8, 30)
	disk, _, err := run(t, g.layout(true), Options{EdgeFeatures: EdgeFeatures{Statistics: "sum"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenUpdate(t.Context(), openGraph(t, disk, "out/graph"), ScratchOptions{Output: "out/next"}, UpdateOptions{})
	if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "sum of edge_n (1), edge_time (1), edge_x (2)") {
		t.Error(err)
	}
}
