package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// changing is a graph as tables that change.
type changing struct {
	random     *rand.Rand
	names      bool // labels are names
	labels     int  // columns
	features   int
	mapped     bool
	weighted   bool
	undirected bool
	column     bool // of edges
	edges      []changingEdge
	nodes      map[int]string // row of a node, without its id
}

type changingEdge struct {
	src, dst int
	weight   float32
	time     int64
}

func (g *changing) id(v int) string {
	if g.mapped {
		return fmt.Sprintf("node-%d", v*7919%1000003)
	}
	return fmt.Sprint(v)
}

func (g *changing) edge(n int) changingEdge {
	return changingEdge{g.random.IntN(n), g.random.IntN(n), float32(g.random.IntN(40)) / 4, g.random.Int64N(1 << 40)}
}

func (g *changing) row() string {
	var row []string
	for range g.labels {
		switch label := g.random.IntN(4) - 1; {
		case g.labels > 1:
			row = append(row, fmt.Sprint(g.random.IntN(2)))
		case label < 0:
			row = append(row, "")
		case g.names:
			row = append(row, []string{"whale", "cat", "eel"}[label])
		default:
			row = append(row, fmt.Sprint(label))
		}
	}
	row = append(row, []string{"train", "valid", "test", "none"}[g.random.IntN(4)])
	for range g.features {
		row = append(row, fmt.Sprint(float32(g.random.IntN(1000))/8))
	}
	return strings.Join(row, ",")
}

func (g *changing) edgeTable(edges []changingEdge) string {
	header := "source,destination"
	if g.weighted {
		header += ",weight"
	}
	if g.column {
		header += ",time"
	}
	var b strings.Builder
	b.WriteString(header + "\n")
	for _, e := range edges {
		b.WriteString(g.id(e.src) + "," + g.id(e.dst))
		if g.weighted {
			fmt.Fprintf(&b, ",%g", e.weight)
		}
		if g.column {
			fmt.Fprintf(&b, ",%d", e.time)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (g *changing) nodeTable(nodes []int) string {
	header := "id"
	for k := range g.labels {
		header += fmt.Sprintf(",class_%d", k)
	}
	header += ",split"
	for k := range g.features {
		header += fmt.Sprintf(",f%d", k)
	}
	var b strings.Builder
	b.WriteString(header + "\n")
	for _, v := range nodes {
		b.WriteString(g.id(v) + "," + g.nodes[v] + "\n")
	}
	return b.String()
}

func (g *changing) columns() (c Columns) {
	c.ID, c.Label, c.Split, c.Features = "id", []string{"class_*"}, []string{"split"}, []string{"f*"}
	if g.labels == 0 {
		c.Label = nil
	}
	if g.column {
		c.Edge = []string{"time:int64"}
	}
	return c
}

func write(t *testing.T, disk vfs.FS, path, text string) {
	t.Helper()
	if err := vfs.WriteFile(disk, path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// all are the numbers below n.
func all(n int) (out []int) {
	for v := range n {
		out = append(out, v)
	}
	return out
}

func TestAnUpdatedGraphIsAnImportOfTheChangedTables(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 25))
		g := &changing{random: r, names: r.IntN(2) == 0, labels: []int{0, 1, 1, 3}[r.IntN(4)], features: 1 + r.IntN(5),
			mapped: r.IntN(2) == 0, weighted: r.IntN(2) == 0, undirected: r.IntN(2) == 0, column: r.IntN(3) == 0,
			nodes: map[int]string{}}
		o := Options{Threads: 1 + r.IntN(3), Direction: Directed, NormalizeFeatures: r.IntN(2) == 0,
			SelfLoops:  []Loops{KeepLoops, DropLoops}[r.IntN(2)],
			Duplicates: []Duplicates{MergeDuplicates, KeepDuplicates}[r.IntN(2)],
			DType:      []format.DType{format.Float32, format.Float16, format.BFloat16}[r.IntN(3)]}
		if g.undirected {
			o.Direction = Undirected
		}
		n := 40 + r.IntN(1200)
		for v := range n {
			g.nodes[v] = g.row()
			g.edges = append(g.edges, changingEdge{v, (v + 1) % n, 1, int64(v)}) // which stay, so that ids keep their order
		}
		for range 3 * n {
			g.edges = append(g.edges, g.edge(n))
		}
		disk := vfs.NewMem()
		importTo := func(dir string, nodes int) {
			write(t, disk, dir+".csv", g.edgeTable(g.edges))
			write(t, disk, dir+"-nodes.csv", g.nodeTable(all(nodes)))
			src, err := OpenCSV(context.Background(), disk, dir+".csv", ScratchOptions{Output: dir},
				TableOptions{MapIDs: g.mapped, NodeFiles: NodeFiles{Table: dir + "-nodes.csv", Columns: g.columns()}})
			if err == nil {
				o.Name = "graph"
				_, err = Run(context.Background(), disk, src, dir, o)
				err = errors.Join(err, src.Close())
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		importTo("before", n)

		u := UpdateOptions{Columns: g.columns()}
		if r.IntN(4) > 0 {
			u.Remove = "old.csv"
			var gone []changingEdge
			for range r.IntN(n) {
				gone = append(gone, g.edges[n+r.IntN(len(g.edges)-n)])
			}
			same := func(e, o changingEdge) bool {
				return e.src == o.src && e.dst == o.dst || g.undirected && e.src == o.dst && e.dst == o.src
			}
			gone = slices.DeleteFunc(gone, func(e changingEdge) bool { // the first edges stay, and loops may be dropped
				return e.src == e.dst || slices.ContainsFunc(g.edges[:n], func(o changingEdge) bool { return same(e, o) })
			})
			g.edges = slices.DeleteFunc(g.edges, func(e changingEdge) bool {
				return slices.ContainsFunc(gone, func(o changingEdge) bool { return same(e, o) })
			})
			write(t, disk, u.Remove, g.edgeTable(gone))
		}
		after := n
		if r.IntN(2) == 0 {
			after += 1 + r.IntN(60)
		}
		if r.IntN(4) > 0 || after > n {
			u.Edges = "new.csv"
			var added []changingEdge
			for v := n; v < after; v++ {
				added = append(added, changingEdge{v, g.random.IntN(n), 1, 2})
			}
			for range r.IntN(n) {
				added = append(added, g.edge(after))
			}
			g.edges = append(g.edges, added...)
			write(t, disk, u.Edges, g.edgeTable(added))
		}
		if r.IntN(4) > 0 || after > n {
			u.Nodes = "nodes.csv"
			var changed []int
			for v := range after {
				if v >= n || r.IntN(20) == 0 {
					changed = append(changed, v)
					g.nodes[v] = g.row()
				}
			}
			write(t, disk, u.Nodes, g.nodeTable(changed))
			if len(changed) == 0 {
				u.Nodes = ""
			}
		}
		if u.Edges == "" {
			u.Columns.Edge = nil
		}
		if u.Nodes == "" {
			u.Columns = Columns{Edge: u.Columns.Edge}
		}
		importTo("after", after)
		graph := openGraph(t, disk, "before")
		src, err := OpenUpdate(context.Background(), graph, ScratchOptions{Output: "updated"}, u)
		if err == nil {
			ro := OptionsOf(&graph.Manifest)
			ro.Threads = o.Threads
			_, err = Run(context.Background(), disk, src, "updated", ro)
			err = errors.Join(err, src.Close())
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := disk.Rename("updated", "moved"); err != nil {
			t.Fatal(err)
		}
		want := files(t, disk, "after")
		if err := errors.Join(disk.Rename("after", "expected"), disk.Rename("moved", "after")); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, fmt.Sprintf("seed %d, %+v", seed, u), files(t, disk, "after"), want)
		if _, err := format.Verify(context.Background(), disk, "after", 1, progress.Silent); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// updateTo makes a graph from another one and changes.
func updateTo(t *testing.T, disk vfs.FS, from, dir string, u UpdateOptions) (UpdateCounts, []string, error) {
	t.Helper()
	graph := openGraph(t, disk, from)
	src, err := OpenUpdate(context.Background(), graph, ScratchOptions{Output: dir}, u)
	if err != nil {
		return UpdateCounts{}, nil, err
	}
	r, err := Run(context.Background(), disk, src, dir, OptionsOf(&graph.Manifest))
	if err = errors.Join(err, src.Close()); err != nil {
		return UpdateCounts{}, nil, err
	}
	return src.UpdateCounts, r.Notes, nil
}

// importTables imports edges.csv and nodes.csv.
func importTables(t *testing.T, disk vfs.FS, dir string, o Options, mapped bool) {
	t.Helper()
	src, err := OpenCSV(context.Background(), disk, "edges.csv", ScratchOptions{Output: dir},
		TableOptions{MapIDs: mapped, NodeFiles: NodeFiles{Table: "nodes.csv"}})
	if err == nil {
		_, err = Run(context.Background(), disk, src, dir, o)
		err = errors.Join(err, src.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatAnUpdateCannotDoIsRefusedByName(t *testing.T) {
	disk := vfs.NewMem()
	write(t, disk, "edges.csv", "src,dst\na,b\nb,c\nc,a\nb,c\n")
	write(t, disk, "nodes.csv", "id,label,split,f0,f1\na,1,train,1,2\nb,0,valid,3,4\nc,,test,5,6\n")
	importTables(t, disk, "graph", Options{Direction: Undirected}, true)
	for i, c := range []struct {
		file, text string
		set        func(u *UpdateOptions)
		want       string // of the error, or else of the notes
		counts     UpdateCounts
	}{
		{"old.csv", "src,dst\na,b\nb,a\n", func(u *UpdateOptions) { u.Remove = "old.csv" }, "it names 1 edge again",
			UpdateCounts{EdgesRemoved: 2, EdgesRepeated: 1}},
		{"old.csv", "src,dst\na,a\na,b\nb,b\n", func(u *UpdateOptions) { u.Remove = "old.csv" },
			`the graph lacks 2 edges that it says to remove, the first from id "a" to id "a"`, UpdateCounts{}},
		{"old.csv", "src,dst\na,a\na,b\nb,b\n", func(u *UpdateOptions) { u.Remove, u.IgnoreMissing = "old.csv", true },
			"the graph lacks 2 edges that it says to remove", UpdateCounts{EdgesRemoved: 2, EdgesMissing: 2}},
		{"old.csv", "src,dst\na,d\n", func(u *UpdateOptions) { u.Remove = "old.csv" },
			`there is no node with the id "d"`, UpdateCounts{}},
		{"new.csv", "src,dst\nb,a\na,a\n", func(u *UpdateOptions) { u.Edges = "new.csv" }, "2 duplicate edges were merged",
			UpdateCounts{EdgesAdded: 2}},
		{"new.csv", "src,dst\nd,a\n", func(u *UpdateOptions) { u.Edges = "new.csv" },
			`no features of the new id "d"`, UpdateCounts{}},
		{"new.csv", "src,dst,weight\nb,a,2\n", func(u *UpdateOptions) { u.Edges = "new.csv" },
			"has weights, and the graph has none", UpdateCounts{}},
		{"n.csv", "id,label,split,f0,f1\nd,1,train,1,2\na,1,,0,0\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "id = id",
			UpdateCounts{NodesAdded: 1, NodesChanged: 1}},
		{"n.csv", "id,label\na,1\na,0\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "the node has a row already",
			UpdateCounts{}},
		{"n.csv", "id,f0\na,1\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "has 1 features a node, and the graph has 2",
			UpdateCounts{}},
		{"n.csv", "id,f1,f0\na,1,2\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "f1, f0, and the graph f0, f1",
			UpdateCounts{}},
		{"n.csv", "id,label\na,dog\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "is no number", UpdateCounts{}},
		{"n.csv", "label,f0,f1\n1,2,3\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "named like the id", UpdateCounts{}},
		{"n.csv", "id,label\nd,1\n", func(u *UpdateOptions) { u.Nodes = "n.csv" }, "no features of the new", UpdateCounts{}},
		{"new.csv", "src,dst,size\nb,a,1\n", func(u *UpdateOptions) { u.Edges, u.Columns.Edge = "new.csv", []string{"size"} },
			"the graph has no column edge_size", UpdateCounts{}},
		{"", "", func(u *UpdateOptions) { u.Header = "perhaps" }, "--header", UpdateCounts{}},
		{"", "", func(u *UpdateOptions) { u.Edges, u.Columns.Label = "new.csv", []string{"label"} },
			"--label-column: it is for the table of --nodes", UpdateCounts{}},
		{"", "", func(u *UpdateOptions) { u.Nodes, u.Columns.Source = "n.csv", "src" }, "--source-column", UpdateCounts{}},
		{"", "", func(u *UpdateOptions) { u.Remove, u.Columns.Weight = "old.csv", "weight" }, "--weight-column",
			UpdateCounts{}},
		{"", "", func(u *UpdateOptions) { u.Edges, u.IgnoreMissing = "new.csv", true }, "--ignore-missing", UpdateCounts{}},
		{"", "", func(*UpdateOptions) {}, "", UpdateCounts{}},
	} {
		if c.file != "" {
			write(t, disk, c.file, c.text)
		}
		var u UpdateOptions
		c.set(&u)
		dir := fmt.Sprint("updated-", i)
		counts, notes, err := updateTo(t, disk, "graph", dir, u)
		if wanted := c.counts != (UpdateCounts{}) || c.want == ""; wanted != (err == nil) || counts != c.counts {
			t.Errorf("%s %q: %v, %+v", c.file, c.text, err, counts)
		} else if said := fmt.Sprint(err, notes); !strings.Contains(said, c.want) {
			t.Errorf("%s %q: %s, want %q", c.file, c.text, said, c.want)
		}
		if left := files(t, disk, dir); err != nil && len(left) > 0 {
			t.Errorf("%s %q: left %d files", c.file, c.text, len(left))
		}
	}
}

func TestUpdatesAddUpWeightsAndKeepFilesThatStay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	disk := vfs.OS()
	write(t, disk, "edges.csv", "src,dst,weight\n0,1,2\n1,2,1\n0,1,4\n")
	write(t, disk, "nodes.csv", "id,label,f\n0,1,1\n1,0,2\n2,1,3\n")
	o := Options{Direction: Directed, Duplicates: SumDuplicates, Name: "graph"}
	importTables(t, disk, "graph", o, false)
	write(t, disk, "labels.csv", "id,label\n2,0\n")
	if _, _, err := updateTo(t, disk, "graph", "labels", UpdateOptions{Nodes: "labels.csv"}); err != nil {
		t.Fatal(err)
	}
	for name, shared := range map[string]bool{"topology/part-00000.arrow": true, "weights/part-00000.arrow": true,
		"features/x/hop-0/part-00000.arrow": true, "nodes/part-00000.arrow": false} {
		a, errA := os.Stat("graph/" + name)
		b, errB := os.Stat("labels/" + name)
		if err := errors.Join(errA, errB); err != nil || os.SameFile(a, b) != shared {
			t.Errorf("%s is shared: %v, want %v (%v)", name, !shared, shared, err)
		}
	}
	write(t, disk, "new.csv", "src,dst\n0,1\n2,2\n") // an edge without weight counts 1
	if _, _, err := updateTo(t, disk, "labels", "both", UpdateOptions{Edges: "new.csv"}); err != nil {
		t.Fatal(err)
	}
	write(t, disk, "edges.csv", "src,dst,weight\n0,1,2\n1,2,1\n0,1,4\n0,1,1\n2,2,1\n")
	write(t, disk, "nodes.csv", "id,label,f\n0,1,1\n1,0,2\n2,0,3\n")
	if err := os.Rename("both", "moved"); err != nil {
		t.Fatal(err)
	}
	importTables(t, disk, "both", o, false)
	want := files(t, disk, "both")
	if err := errors.Join(os.Rename("both", "imported"), os.Rename("moved", "both")); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "weights are added up", files(t, disk, "both"), want)
}

func TestTablesOfParquetUpdateAGraph(t *testing.T) {
	disk := vfs.NewMem()
	nodes := func(ids []string, years []int64, x [][]float32, labels []int64) []byte {
		return parquetFile(parquetColumn{"id", ids}, parquetColumn{"label", labels}, parquetColumn{"year", years},
			parquetColumn{"x", x})
	}
	edges := func(src, dst []string, w []float32) []byte {
		return parquetFile(parquetColumn{"src", src}, parquetColumn{"dst", dst}, parquetColumn{"weight", w})
	}
	columns := Columns{Node: []string{"year"}}
	importTo := func(dir string) {
		src, err := OpenParquet(context.Background(), disk, "edges.parquet", ScratchOptions{Output: dir},
			TableOptions{MapIDs: true, NodeFiles: NodeFiles{Table: "nodes.parquet", Columns: columns}})
		if err == nil {
			_, err = Run(context.Background(), disk, src, dir, Options{Name: "graph", Direction: Directed})
			err = errors.Join(err, src.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, disk, "edges.parquet", string(edges([]string{"a", "b"}, []string{"b", "c"}, []float32{1, 2})))
	write(t, disk, "nodes.parquet", string(nodes([]string{"c", "a", "b"}, []int64{1, 2, 3},
		[][]float32{{1, 2}, {3, 4}, {5, 6}}, []int64{0, 1, 0})))
	importTo("before")
	write(t, disk, "new.parquet", string(edges([]string{"e", "a"}, []string{"d", "c"}, []float32{3, 4})))
	write(t, disk, "changed.parquet", string(nodes([]string{"d", "a", "e"}, []int64{9, 8, 7},
		[][]float32{{7, 8}, {9, 9}, {0, 0}}, []int64{2, 0, 1})))
	u := UpdateOptions{Edges: "new.parquet", Nodes: "changed.parquet", Columns: columns}
	if _, _, err := updateTo(t, disk, "before", "after", u); err != nil {
		t.Fatal(err)
	}
	got := files(t, disk, "after")
	if err := disk.Rename("after", "moved"); err != nil {
		t.Fatal(err)
	}
	write(t, disk, "edges.parquet", string(edges([]string{"a", "b", "e", "a"}, []string{"b", "c", "d", "c"},
		[]float32{1, 2, 3, 4})))
	write(t, disk, "nodes.parquet", string(nodes([]string{"c", "a", "b", "d", "e"}, []int64{1, 8, 3, 9, 7},
		[][]float32{{1, 2}, {9, 9}, {5, 6}, {7, 8}, {0, 0}}, []int64{0, 0, 0, 2, 1})))
	importTo("after")
	sameFiles(t, "tables of Parquet", got, files(t, disk, "after"))
}

func TestClassesThatMetaJSONNamesKeepTheirNumbers(t *testing.T) {
	files := smallLayout()
	files["meta.json"] = []byte(`{"directed": true, "class_names": ["zebra", "ant", "mule"]}`)
	files["node_label.npy"] = array(npy.Int8, []int8{0, 2, 2, -1, 0}, 5)
	disk := files.put(t)
	src, err := OpenNPY(disk, "in", NPYOptions{})
	if err == nil {
		_, err = Run(context.Background(), disk, src, "graph", Options{})
		err = errors.Join(err, src.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, disk, "new.csv", "source,destination\n0,4\n")
	for i, c := range []struct{ labels, want string }{
		{"", "[0 2 2 -1 0] [zebra ant mule]"},
		{"id,label\n1,ox\n3,mule\n", "[0 3 2 2 0] [zebra ant mule ox]"},
		{"id,label\n1,\n2,ant\n", "[0 -1 1 -1 0] [zebra ant]"},
		{"id,label\n1,0\n", "a label is a number, and the classes of the graph have names: zebra, ant, mule"},
	} {
		u := UpdateOptions{Edges: "new.csv"}
		if c.labels != "" {
			u.Nodes = "labels.csv"
			write(t, disk, u.Nodes, c.labels)
		}
		dir := fmt.Sprint("updated-", i)
		_, _, err := updateTo(t, disk, "graph", dir, u)
		got := fmt.Sprint(err)
		if err == nil {
			g := openGraph(t, disk, dir)
			rows, err := g.Rows(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(rows.Labels, " ", g.Manifest.ClassNames)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.labels, got, c.want)
		}
	}
}

func TestNoFaultLeavesHalfAnUpdatedGraph(t *testing.T) {
	disk := vfs.NewMem()
	write(t, disk, "edges.csv", "src,dst\na,b\nb,c\nc,a\nb,a\n")
	write(t, disk, "nodes.csv", "id,label,f0,f1\na,1,1,2\nb,0,3,4\nc,,5,6\n")
	importTables(t, disk, "graph", Options{Direction: Directed}, true)
	write(t, disk, "old.csv", "src,dst\nb,a\n")
	write(t, disk, "new.csv", "src,dst\nd,a\n")
	write(t, disk, "changed.csv", "id,label,f0,f1\nd,1,1,2\na,0,3,4\n")
	for n := int64(1); ; n += 5 {
		fault := vfs.NewFault(disk.CrashClone())
		graph := openGraph(t, fault, "graph")
		before := fault.Operations()
		fault.FailAt(before+n, syscall.EIO)
		src, err := OpenUpdate(context.Background(), graph, ScratchOptions{Output: "updated"},
			UpdateOptions{Edges: "new.csv", Remove: "old.csv", Nodes: "changed.csv"})
		if err == nil {
			_, err = Run(context.Background(), fault, src, "updated", OptionsOf(&graph.Manifest))
			err = errors.Join(err, src.Close())
		}
		done := fault.Operations() < before+n
		fault.FailAt(0, nil)
		report, verifyErr := format.Verify(context.Background(), fault, "updated", 1, progress.Silent)
		if err == nil && (verifyErr != nil || len(report.Bad) > 0) || verifyErr == nil && len(report.Bad) > 0 {
			t.Fatalf("operation %d fails: %v; the graph: %v", n, err, verifyErr)
		}
		if done {
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n, err)
			}
			return
		}
	}
}

func TestANewNodeWithoutColumnsIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	columns := Columns{Node: []string{"year:int16"}}
	write(t, disk, "edges.csv", "source,destination\n0,1\n")
	write(t, disk, "nodes.csv", "id,year\n0,2001\n1,2002\n")
	src, err := OpenCSV(context.Background(), disk, "edges.csv", ScratchOptions{Output: "graph"},
		TableOptions{NodeFiles: NodeFiles{Table: "nodes.csv", Features: "ones", Columns: columns}})
	if err == nil {
		_, err = Run(context.Background(), disk, src, "graph", Options{})
		err = errors.Join(err, src.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, disk, "new.csv", "source,destination\n2,0\n3,0\n")
	for nodes, want := range map[string]string{"id,year\n2,2003\n3,2004\n": "<nil>",
		"id,year\n2,2003\n": "the new node 3"} {
		write(t, disk, "nodes.csv", nodes)
		u := UpdateOptions{Edges: "new.csv", Nodes: "nodes.csv", Columns: columns}
		_, _, err := updateTo(t, disk, "graph", "after", u)
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %s", nodes, err, want)
		}
		if err := disk.RemoveAll("after"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
