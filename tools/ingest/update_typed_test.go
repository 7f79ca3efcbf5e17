package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// changingTyped is tables of papers, authors and venues. Venues have no table.
type changingTyped struct {
	random *rand.Rand
	rows   map[string][]string // of papers and authors, with their ids
	edges  map[string][]string // rows by relation
}

var changingRelations = []string{"author__writes__paper", "paper__cites__paper", "venue__paper"}

func (g *changingTyped) row(kind string, v int) string {
	id := fmt.Sprintf("%s%d", kind, v*7919%100003)
	if kind == "author" {
		return fmt.Sprintf("%s,%d", id, g.random.IntN(90))
	}
	return fmt.Sprintf("%s,%s,%s,%d,%d", id, []string{"whale", "cat", "eel", ""}[g.random.IntN(4)],
		[]string{"train", "valid", "test", ""}[g.random.IntN(4)], g.random.IntN(50), g.random.IntN(50))
}

// id is that of a random node.
func (g *changingTyped) id(kind string, venues int) string {
	if kind == "venue" {
		return fmt.Sprintf("v%d", g.random.IntN(venues))
	}
	id, _, _ := strings.Cut(g.rows[kind][g.random.IntN(len(g.rows[kind]))], ",")
	return id
}

func (g *changingTyped) edge(relation string, venues int) string {
	r, _ := parseRelation("", relation)
	weight := ""
	if relation == "author__writes__paper" {
		weight = fmt.Sprintf(",%d,%d", 1+g.random.IntN(9), g.random.IntN(1<<20))
	}
	return g.id(r.Source, venues) + "," + g.id(r.Destination, venues) + weight
}

var changingHeaders = map[string]string{"author": "author_id,age", "paper": "paper,label,split,x,z",
	"author__writes__paper": "author,paper,weight,time", "paper__cites__paper": "source,destination",
	"venue__paper": "venue,paper"}

func writeTables(t *testing.T, disk vfs.FS, dir string, tables map[string][]string) {
	t.Helper()
	if err := disk.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, rows := range tables {
		write(t, disk, path.Join(dir, name+".csv"), strings.Join(append([]string{changingHeaders[name]}, rows...), "\n")+"\n")
	}
}

func (g *changingTyped) importTo(t *testing.T, disk vfs.FS, dir string, typed TypedOptions, o Options) {
	t.Helper()
	writeTables(t, disk, dir+"-in/nodes", g.rows)
	writeTables(t, disk, dir+"-in/edges", g.edges)
	tables := TableOptions{NodeFiles: NodeFiles{Columns: Columns{Edge: []string{"time:int64"}}}}
	src, err := openTypedTables(context.Background(), Input{FS: disk, Path: dir + "-in", Direction: o.Direction,
		Scratch: ScratchOptions{Output: dir}}, "csv", tables, typed)
	if err == nil {
		o.Name = "library"
		_, err = Run(context.Background(), disk, src, dir, o)
		err = errors.Join(err, src.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// updateTyped makes a typed graph from another one and changes.
func updateTyped(disk vfs.FS, from, dir string, u UpdateOptions) (*Result, UpdateCounts, error) {
	src, counts, err := OpenTypedUpdate(context.Background(), disk, from, ScratchOptions{Output: dir}, u)
	if err != nil {
		return nil, counts, err
	}
	r, err := Run(context.Background(), disk, src, dir, Options{})
	return r, counts, errors.Join(err, src.Close())
}

// filesIn are the files of a folder by their names in it.
func filesIn(t *testing.T, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, data := range files(t, disk, dir) {
		if !strings.Contains(name, "/.job/") { // a crash may bring it back
			out[strings.TrimPrefix(name, dir+"/")] = data
		}
	}
	return out
}

func newChangingTyped(random *rand.Rand, papers, authors, venues int) *changingTyped {
	g := &changingTyped{random, map[string][]string{}, map[string][]string{}}
	for v := range papers {
		g.rows["paper"] = append(g.rows["paper"], g.row("paper", v))
	}
	for v := range authors {
		g.rows["author"] = append(g.rows["author"], g.row("author", v))
	}
	for v := range venues { // which stay, so that ids keep their order
		g.edges["venue__paper"] = append(g.edges["venue__paper"], fmt.Sprintf("v%d,%s", v, g.id("paper", 0)))
	}
	for _, relation := range changingRelations {
		for range papers {
			g.edges[relation] = append(g.edges[relation], g.edge(relation, venues))
		}
	}
	return g
}

func TestAnUpdatedTypedGraphIsAnImportOfTheChangedTables(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 27))
		papers, authors, venues := 20+r.IntN(300), 10+r.IntN(100), 3
		g := newChangingTyped(r, papers, authors, venues)
		typed := TypedOptions{Target: "paper", Missing: []StandIn{NoStandIn, OnesFor}[r.IntN(2)]}
		o := Options{Direction: []Direction{UnknownDirection, Directed}[r.IntN(2)], NormalizeFeatures: r.IntN(2) == 0,
			SelfLoops:  []Loops{KeepLoops, DropLoops}[r.IntN(2)],
			Duplicates: []Duplicates{MergeDuplicates, KeepDuplicates}[r.IntN(2)],
			DType:      []format.DType{format.Float32, format.BFloat16}[r.IntN(2)]}
		disk := vfs.NewMem()
		g.importTo(t, disk, "before", typed, o)
		removed, added, nodes := map[string][]string{}, map[string][]string{}, map[string][]string{}
		// ends are what edges are removed by.
		ends := func(row string) string { return strings.Join(strings.Split(row, ",")[:2], ",") }
		for _, relation := range changingRelations {
			if r.IntN(2) > 0 {
				continue
			}
			all, first := g.edges[relation], 0
			if relation == "venue__paper" {
				first = venues
			}
			keep := map[string]bool{}
			for _, row := range all[:first] {
				keep[ends(row)] = true
			}
			gone := map[string]bool{}
			for range r.IntN(40) {
				row := all[r.IntN(len(all))]
				src, dst, _ := strings.Cut(ends(row), ",")
				if !keep[ends(row)] && src != dst { // loops may be dropped
					gone[ends(row)] = true
				}
			}
			g.edges[relation] = slices.DeleteFunc(all, func(row string) bool { return gone[ends(row)] })
			for _, row := range slices.Sorted(maps.Keys(gone)) {
				if relation == "author__writes__paper" {
					row += ",1,1"
				}
				removed[relation] = append(removed[relation], row)
			}
		}
		if r.IntN(2) == 0 { // new nodes
			venues += r.IntN(3)
			for kind, n := range map[string]int{"paper": papers, "author": authors} {
				for v := n; v < n+r.IntN(20); v++ {
					g.rows[kind] = append(g.rows[kind], g.row(kind, v))
					nodes[kind] = append(nodes[kind], g.rows[kind][v])
				}
			}
		}
		for _, kind := range []string{"paper", "author"} { // nodes that change
			for v := range min(r.IntN(5)*r.IntN(2), authors) {
				g.rows[kind][v] = g.row(kind, v)
				nodes[kind] = append(nodes[kind], g.rows[kind][v])
			}
		}
		for _, relation := range changingRelations {
			if r.IntN(2) == 0 {
				continue
			}
			for range 1 + r.IntN(40) {
				added[relation] = append(added[relation], g.edge(relation, venues))
			}
			g.edges[relation] = append(g.edges[relation], added[relation]...)
		}
		u := UpdateOptions{}
		for _, c := range []struct {
			to     *string
			dir    string
			tables map[string][]string
		}{{&u.Remove, "old", removed}, {&u.Edges, "new", added}, {&u.Nodes, "nodes", nodes}} {
			if len(c.tables) > 0 {
				*c.to = c.dir
				writeTables(t, disk, c.dir, c.tables)
			}
		}
		if added["author__writes__paper"] != nil {
			u.Columns.Edge = []string{"time:int64"}
		}
		g.importTo(t, disk, "after", typed, o)
		result, counts, err := updateTyped(disk, "before", "updated", u)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sameFiles(t, fmt.Sprintf("seed %d, %+v, %+v", seed, o, u), filesIn(t, disk, "updated"), filesIn(t, disk, "after"))
		report, err := format.VerifyTyped(context.Background(), disk, "updated", 1, progress.Silent)
		if err != nil || len(report.Bad) > 0 {
			t.Errorf("seed %d: %v, %v", seed, report, err)
		}
		grown := int64(len(g.rows["paper"]) - papers + len(g.rows["author"]) - authors)
		if edges := len(slices.Concat(slices.Collect(maps.Values(added))...)); counts.EdgesAdded != int64(edges) ||
			counts.NodesAdded < grown || counts.NodesAdded > grown+3 || len(result.Relations) == 0 {
			t.Errorf("seed %d: %+v, %+v", seed, counts, result)
		}
	}
}

func TestPartsOfATypedGraphThatStayAreShared(t *testing.T) {
	dir := t.TempDir()
	disk := vfs.OS()
	g := newChangingTyped(rand.New(rand.NewPCG(1, 1)), 30, 20, 2)
	g.importTo(t, disk, path.Join(dir, "graph"), TypedOptions{Target: "paper"}, Options{})
	writeTables(t, disk, path.Join(dir, "new"), map[string][]string{"paper__cites__paper": {"paper0,paper7919"}})
	if _, _, err := updateTyped(disk, path.Join(dir, "graph"), path.Join(dir, "graph2"),
		UpdateOptions{Edges: path.Join(dir, "new")}); err != nil {
		t.Fatal(err)
	}
	old, updated := files(t, disk, path.Join(dir, "graph")), files(t, disk, path.Join(dir, "graph2"))
	for name := range updated {
		before := strings.Replace(name, "/graph2/", "/graph/", 1)
		a, errA := os.Stat(before)
		b, errB := os.Stat(name)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		shared := os.SameFile(a, b)
		isData := strings.Contains(name, "part-") && !strings.Contains(name, "cites")
		if isData != shared {
			t.Errorf("%s is shared: %t", name, shared)
		}
	}
	if len(old) != len(updated) {
		t.Errorf("%d files, then %d", len(old), len(updated))
	}
}

func TestWhatAnUpdateOfATypedGraphCannotDoIsRefusedByName(t *testing.T) {
	disk := vfs.NewMem()
	g := newChangingTyped(rand.New(rand.NewPCG(2, 1)), 30, 20, 2)
	g.importTo(t, disk, "graph", TypedOptions{Target: "paper"}, Options{})
	g.importTo(t, disk, "degrees", TypedOptions{Target: "paper", Missing: DegreeFor}, Options{})
	g.importTo(t, disk, "sums", TypedOptions{Target: "paper"}, Options{EdgeFeatures: EdgeFeatures{Statistics: "sum"}})
	g.importTo(t, disk, "one-hot", TypedOptions{Target: "paper", Missing: IdentityFor}, Options{})
	for i, c := range []struct {
		graph         string
		edges, remove map[string]string
		nodes         map[string]string
		o             UpdateOptions
		want          string
	}{
		{edges: map[string]string{"paper__author": "x,y\n"}, want: "the graph has no relation paper__author"},
		{edges: map[string]string{"paper": "x,y\n"}, want: "want a name such as author__paper"},
		{edges: map[string]string{"paper__rev_writes__author": "paper0,author0\n"},
			want: "relation paper__rev_writes__author is author__writes__paper turned round, and changes with it"},
		{edges: map[string]string{"paper__cites__paper": "source,destination\npaper0,stranger\n"},
			want: `no features of the new id "stranger"`},
		{edges: map[string]string{"paper__cites__paper": "source,destination\npaper0,\n"}, want: "an id is empty"},
		{edges: map[string]string{"author__writes__paper": "author,paper,weight\nauthor0,paper0,1\n"},
			want: "the graph has the column edge_time of edges"},
		{remove: map[string]string{"paper__cites__paper": "source,destination\npaper0,stranger\n"},
			want: `there is no node with the id "stranger"`},
		{remove: map[string]string{"venue__paper": "venue,paper\nv0,paper0\nv1,paper0\n"},
			want: "the graph lacks 1 edge that it says to remove"},
		{nodes: map[string]string{"editor": "id\ne1\n"}, want: "the graph has no type editor"},
		{nodes: map[string]string{"paper": "paper,x\npaper0,1\n"}, want: "has 1 features a node, and the graph has 2"},
		{nodes: map[string]string{"author": "author_id,age\nauthor0,1\nauthor0,2\n"}, want: "has a row already"},
		{nodes: map[string]string{"venue": "venue,x\nv0,1\n"}, want: "leave their columns out"},
		{graph: "sums", edges: map[string]string{"venue__paper": "venue,paper\nv0,paper0\n"},
			want: "features that come from edges"},
		{graph: "degrees", nodes: map[string]string{"author": "author_id,age\nauthor0,1\n"}, want: "come from edges"},
		{graph: "one-hot", edges: map[string]string{"venue__paper": "venue,paper\nnew,paper0\n"}, want: "identity matrix"},
		{o: UpdateOptions{Edges: "graph-in/edges/venue__paper.csv"}, want: "want a folder with a table for each type"},
		{o: UpdateOptions{Edges: "graph-in"}, want: "nothing but tables, such as graph-in/edges and graph-in/nodes"},
		{o: UpdateOptions{Edges: "nowhere"}, want: "nowhere"},
		{o: UpdateOptions{Bipartite: true}, want: "--bipartite"},
		{nodes: map[string]string{"author": "author_id,age\nauthor0,1\n"},
			o: UpdateOptions{Columns: Columns{Label: []string{"kind"}}}, want: "--label-column"},
		{edges: map[string]string{"venue__paper": "venue,paper\nv0,paper0\n"},
			o: UpdateOptions{Columns: Columns{Edge: []string{"size:int64"}}}, want: "size"},
	} {
		at := fmt.Sprint("case-", i)
		for _, part := range []struct {
			to     *string
			tables map[string]string
		}{{&c.o.Edges, c.edges}, {&c.o.Remove, c.remove}, {&c.o.Nodes, c.nodes}} {
			if part.tables == nil {
				continue
			}
			*part.to = path.Join(at, fmt.Sprint(len(part.tables)), fmt.Sprintf("%p", part.to))
			if err := disk.MkdirAll(*part.to); err != nil {
				t.Fatal(err)
			}
			for name, text := range part.tables {
				write(t, disk, path.Join(*part.to, name+".csv"), text)
			}
		}
		if c.graph == "" {
			c.graph = "graph"
		}
		_, _, err := updateTyped(disk, c.graph, "updated", c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
		if left := files(t, disk, "updated"); len(left) > 0 {
			t.Errorf("%q: %d files are left", c.want, len(left))
		}
	}
	// A graph that is damaged.
	part := format.PartPath("graph/relations/venue__paper/topology", 0)
	write(t, disk, part, files(t, disk, "graph")[part][:5000])
	writeTables(t, disk, "more", map[string][]string{"venue__paper": {"v1,paper0"}})
	if _, _, err := updateTyped(disk, "graph", "updated", UpdateOptions{Edges: "more"}); !errors.Is(err,
		format.ErrCorrupt) {
		t.Errorf("of a damaged graph: %v", err)
	}
}

func TestACrashLeavesAnUpdatedTypedGraphWholeOrNone(t *testing.T) {
	disk := vfs.NewMem()
	g := newChangingTyped(rand.New(rand.NewPCG(3, 1)), 12, 5, 2)
	g.importTo(t, disk, "graph", TypedOptions{Target: "paper"}, Options{})
	before := filesIn(t, disk, "graph")
	writeTables(t, disk, "new", map[string][]string{"venue__paper": {"v7,paper0"}})
	writeTables(t, disk, "nodes", map[string][]string{"author": {"author0,5", "author8,3"}})
	u := UpdateOptions{Edges: "new", Nodes: "nodes"}
	if _, _, err := updateTyped(disk, "graph", "whole", u); err != nil {
		t.Fatal(err)
	}
	want, seen := filesIn(t, disk, "whole"), vfs.Disks{}
	for n := int64(1); ; n += 7 {
		mem := disk.CrashClone()
		fault := vfs.NewFault(mem)
		fault.FailFrom(n, syscall.EIO) // a crash: nothing is cleaned up
		_, _, err := updateTyped(fault, "graph", "updated", u)
		done := fault.Operations() < n
		if mem = mem.CrashClone(); !done && !seen.Add(mem, 0) {
			continue
		}
		sameFiles(t, fmt.Sprint("the graph after operation ", n), filesIn(t, mem, "graph"), before)
		if format.IsTyped(mem, "updated") {
			sameFiles(t, fmt.Sprint("after operation ", n), filesIn(t, mem, "updated"), want)
		} else if _, _, err := updateTyped(mem, "graph", "updated", u); err != nil {
			t.Fatalf("after operation %d: %v", n, err)
		} else {
			sameFiles(t, fmt.Sprint("again after operation ", n), filesIn(t, mem, "updated"), want)
		}
		if done {
			if err != nil || n < 300 {
				t.Fatalf("%d operations: %v", n, err)
			}
			return
		}
	}
}
