package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// typedText is the graph of typedLayout with ids; venues have no table.
func typedText() layout {
	return layout{
		"nodes/paper.csv":               []byte("paper,label,split,x,z\np0,math,train,1,2\np1,law,valid,3,4\np2,,test,5,6\n"),
		"nodes/author.csv.gz":           gzipped("author_id,age\n900000000000000000000,7\nAda,8\n"),
		"edges/paper__author.csv":       []byte("author,paper\n900000000000000000000,p0\nAda,p2\nAda,p1\nAda,p1\n"),
		"edges/venue__paper/part-0":     []byte("kdd,p0\n"),
		"edges/venue__paper/part-1":     []byte("kdd,p2\n"),
		"edges/paper__cites__paper.csv": []byte("source,destination\np0,p1\np1,p1\n"),
		"edges/paper__in__venue.csv":    []byte("paper,venue\n"),
	}
}

// typedParquet is typedText with integers as ids of authors.
func typedParquet() layout {
	texts := func(name string, values ...string) parquetColumn { return parquetColumn{name, values} }
	return layout{
		"nodes/paper.parquet": parquetFile(texts("paper", "p0", "p1", "p2"), texts("label", "math", "law", ""),
			texts("split", "train", "valid", "test"), parquetColumn{"x", [][]float32{{1, 2}, {3, 4}, {5, 6}}}),
		"nodes/author.parquet": parquetFile(parquetColumn{"author_id", []int64{1 << 60, 3}},
			parquetColumn{"age", []float32{7, 8}}),
		"edges/paper__author.parquet": parquetFile(parquetColumn{"author", []int64{1 << 60, 3, 3, 3}},
			texts("paper", "p0", "p2", "p1", "p1")),
		"edges/venue__paper.parquet":        parquetFile(texts("venue", "kdd", "kdd"), texts("paper", "p0", "p2")),
		"edges/paper__cites__paper.parquet": parquetFile(texts("source", "p0", "p1"), texts("destination", "p1", "p1")),
		"edges/paper__in__venue.parquet":    parquetFile(texts("paper"), texts("venue")),
	}
}

func importTypedTables(disk vfs.FS, layout string, o TableOptions, typed TypedOptions, run Options) (*Result, error) {
	source, err := openTypedTables(context.Background(), Input{FS: disk, Path: "in", Direction: run.Direction,
		Scratch: ScratchOptions{Output: "out", Force: run.Force, MemoryBytes: run.MemoryBytes}}, layout, o, typed)
	if err != nil {
		return nil, err
	}
	r, err := Run(context.Background(), disk, source, "out", run)
	return r, errors.Join(err, source.Close())
}

func TestTablesOfTypesAndRelationsBecomeATypedGraph(t *testing.T) {
	for kind, input := range map[string]layout{"csv": typedText(), "parquet": typedParquet()} {
		disk := input.put(t)
		run := Options{MemoryBytes: 1 << 30}
		r, err := importTypedTables(disk, kind, TableOptions{}, TypedOptions{Missing: DegreeFor}, run)
		if err != nil {
			t.Fatal(kind, err)
		}
		if r.Nodes != 6 || r.Features != 2 || r.Classes != 2 || r.Train != 1 || r.Valid != 1 || r.Test != 1 ||
			r.Target != "paper" {
			t.Errorf("%s: result %+v", kind, r)
		}
		typed := checkTyped(t, disk)
		checkRelations(t, disk, typed, map[string][][]uint32{
			"paper__author": {{0}, {1, 2}}, "author__paper": {{0}, {1}, {1}}, "venue__paper": {{0}, {}, {0}},
			"paper__in__venue": {{}}, "paper__cites__paper": {{}, {0, 1}, {}}, "paper__rev_cites__paper": {{1}, {1}, {}}})
		if got := featuresOf(t, disk, "paper", 6); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: features of papers %v", kind, got)
		}
		// no edge into the venue, and two out of it
		if got := featuresOf(t, disk, "venue", 2); !slices.Equal(got, []float32{0, float32(math.Log(3))}) {
			t.Errorf("%s: degrees of the venue %v", kind, got)
		}
		ids := map[string][]string{"paper": {"p0", "p1", "p2"}, "author": {"900000000000000000000", "Ada"}, "venue": {"kdd"}}
		if kind == "parquet" {
			ids["author"] = []string{fmt.Sprint(1 << 60), "3"}
		}
		for name, want := range ids {
			d, err := format.OpenGraph(disk, format.NodesDir("out", name))
			if err != nil {
				t.Fatal(err)
			}
			rows, err := d.Rows(t.Context())
			if err := errors.Join(err, d.Close()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(rows.OrigID, want) {
				t.Errorf("%s: ids of %s are %q, want %q", kind, name, rows.OrigID, want)
			}
		}
		if entries, err := disk.ReadDir("out.scratch"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: scratch files are left: %v, %v", kind, entries, err)
		}
	}
}

// Degrees count, for each relation that is given, the edges into a node and those out of it.
func TestDegreesStandInForFeatures(t *testing.T) {
	l := typedText()
	l["nodes/paper.csv"] = []byte("paper,label\np0,0\np1,1\np2,0\n")
	disk := l.put(t)
	if _, err := importTypedTables(disk, "csv", TableOptions{}, TypedOptions{Missing: DegreeFor}, Options{}); err != nil {
		t.Fatal(err)
	}
	counts := [][]float64{ // to authors; cites: in, out; in venues; from venues
		{1, 0, 1, 0, 1}, {2, 2, 1, 0, 0}, {1, 0, 0, 0, 1}}
	var want []float32
	for _, row := range counts {
		for _, c := range row {
			want = append(want, float32(math.Log(1+c)))
		}
	}
	got := featuresOf(t, disk, "paper", len(want))
	slices.Sort(want[:5])
	slices.Sort(got[:5])
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6 {
			t.Errorf("degree features %v, want %v", got, want)
			break
		}
	}
}

func TestWhatIsWrongInTypedTablesIsNamed(t *testing.T) {
	text := func(name, content string) func(l layout) { return func(l layout) { l[name] = []byte(content) } }
	for want, change := range map[string]func(l layout){
		`in/edges/paper__author.csv: line 3: column paper: there is no node with the id "p9" in in/nodes/paper.csv`: text(
			"edges/paper__author.csv", "author,paper\nAda,p0\nAda,p9\n"),
		"in/nodes/paper.csv: line 3": text("nodes/paper.csv",
			"id,label,x\np0,0,1\np1,1,NaN\np2,0,1\n"),
		"line 4: the node has a row already": text("nodes/paper.csv",
			"id,label,x\np0,0,1\np1,1,2\np0,0,1\n"),
		"line 2: column 1: an id is empty":     text("edges/venue__paper/part-1", "kdd,p0\n,p0\n"),
		`"Paper" cannot name a type`:           text("nodes/Paper.csv", "id,x\na,1\n"),
		"want a name such as author__paper":    text("edges/authors.csv", "a,b\n"),
		"in/nodes/paper.xlsx: it is no table":  text("nodes/paper.xlsx", ""),
		"in/nodes/paper.csv has the same name": text("nodes/paper.txt", "id\np0\n"),
		"the table has a header, but no rows": text("nodes/author.csv.gz",
			"author\n"),
		"the type has no nodes": text("edges/paper__shelf.csv", "paper,shelf\n"),
		"no column is named like the destination of an edge": text("edges/paper__author.csv",
			"paper,writer\np0,Ada\n"),
		"(with labels: author, paper)": text("nodes/author.csv.gz",
			"id,label\nAda,1\n900000000000000000000,0\n"),
		"in/nodes/author.csv.gz": func(l layout) {
			l["nodes/author.csv.gz"] = l["nodes/author.csv.gz"][:20]
		},
		"no relation: want tables such as author__paper.csv": func(l layout) {
			for name := range l {
				if strings.HasPrefix(name, "edges/") {
					delete(l, name)
				}
			}
			l["edges/_SUCCESS"] = nil
		},
		"an id is 5000 bytes long": text("nodes/author.csv.gz",
			"id,x\n"+strings.Repeat("a", 5000)+",1\n"),
	} {
		l := typedText()
		change(l)
		disk := l.put(t)
		_, err := importTypedTables(disk, "csv", TableOptions{}, TypedOptions{}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
		for _, left := range []string{"out", "out.scratch"} {
			if _, err := disk.Stat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is left: %v", want, left, err)
			}
		}
	}
	for want, o := range map[string]TableOptions{
		"leave out --node-table":  {NodeFiles: NodeFiles{Table: "x"}},
		"say which with --target": {NodeFiles: NodeFiles{Columns: Columns{Label: []string{"x"}}}},
		"--source-column nobody":  {NodeFiles: NodeFiles{Columns: Columns{Source: "nobody"}}},
	} {
		_, err := importTypedTables(typedText().put(t), "csv", o, TypedOptions{}, Options{})
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// With --id-column none, ids are the numbers of rows; the flags of labels and features are those of the target.
func TestRowsOfTypedTablesAreNodesWithoutIDs(t *testing.T) {
	l := layout{"nodes/paper.csv": []byte("kind,x,z\n1,2.5,9\n0,3.5,9\n"), "nodes/author.csv": []byte("f\n1.5\n"),
		"edges/author__paper.csv": []byte("0,1\n0,0\n")}
	o := TableOptions{NodeFiles: NodeFiles{Columns: Columns{ID: None, Label: []string{"kind"}, Features: []string{"x"}}}}
	disk := l.put(t)
	r, err := importTypedTables(disk, "csv", o, TypedOptions{Target: "paper"}, Options{Direction: Directed})
	if err != nil {
		t.Fatal(err)
	}
	if r.Classes != 2 || r.Features != 1 || r.Edges != 2 {
		t.Errorf("result %+v", r)
	}
	checkRelations(t, disk, checkTyped(t, disk), map[string][][]uint32{"author__paper": {{0}, {0}}})
	l["edges/author__paper.csv"] = []byte("0,1\n1,0\n")
	if _, err := importTypedTables(l.put(t), "csv", o, TypedOptions{}, Options{}); err == nil {
		t.Error("flags of one type without a target are taken")
	}
	_, err = importTypedTables(l.put(t), "csv", o, TypedOptions{Target: "paper"}, Options{})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "line 2: column 1: there is no node 1") {
		t.Errorf("error %v", err)
	}
}

func TestAnImportOfTypedTablesThatFailedIsMadeAnew(t *testing.T) {
	input, seen := typedText().put(t), vfs.Disks{}
	for n := int64(1); ; n += 11 {
		disk := input.Clone()
		failing := vfs.NewFault(disk)
		failing.FailAt(n, syscall.EIO)
		_, err := importTypedTables(failing, "csv", TableOptions{}, TypedOptions{}, Options{})
		if failing.Operations() < n {
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			break
		}
		if !seen.Add(disk, 0) {
			continue
		}
		if _, err := importTypedTables(disk, "csv", TableOptions{}, TypedOptions{}, Options{}); err != nil &&
			!errors.Is(err, format.ErrExists) {
			t.Fatalf("after failing operation %d: %v", n, err)
		}
		checkTyped(t, disk)
	}
}

// The same graph as arrays and as tables has the same edges, features and splits.
func TestTypedTablesEqualTypedArrays(t *testing.T) {
	l := layout{"meta.json": []byte(`{"node_types": {"a": 2, "b": 2}, "target": "a"}`),
		"nodes/a/node_feat.npy":     array(npy.Float32, []float32{1, 2}, 2, 1),
		"nodes/a/node_label.npy":    array(npy.Int32, []int32{0, 1}, 2),
		"edges/b__a/edge_index.npy": array(npy.Int64, []int64{1, 0, 0, 1}, 2, 2)}
	arrays, tables := l.put(t), layout{
		"nodes/a.csv": []byte("id,label,x\n0,0,1\n1,1,2\n"), "nodes/b.csv": []byte("id\n0\n1\n"),
		"edges/b__a.csv": []byte("1,0\n0,1\n")}.put(t)
	if _, err := importTyped(arrays, UnknownDirection, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := importTypedTables(tables, "csv", TableOptions{}, TypedOptions{}, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"relations/a__b/topology/part-00000.arrow", "relations/b__a/topology/part-00000.arrow",
		"nodes/a/features/x/hop-0/part-00000.arrow"} {
		one, err := vfs.ReadFile(arrays, "out/"+name, 1<<20)
		other, err2 := vfs.ReadFile(tables, "out/"+name, 1<<20)
		if err := errors.Join(err, err2); err != nil || !slices.Equal(one, other) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
}
