package preprop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// rewrite writes the graph with some of it changed as another one.
func (g *testTyped) rewrite(t *testing.T, fsys vfs.FS, dir string, change func(g *testTyped)) {
	t.Helper()
	changed := *g
	changed.x, changed.edges = map[string][]float32{}, map[string]*format.CSC{}
	for name, x := range g.x {
		changed.x[name] = slices.Clone(x)
	}
	for name, c := range g.edges {
		changed.edges[name] = &format.CSC{Offsets: slices.Clone(c.Offsets), Neighbors: slices.Clone(c.Neighbors),
			Weights: slices.Clone(c.Weights)}
	}
	papers := *g.papers
	papers.rows.Labels, papers.rows.Splits = slices.Clone(papers.rows.Labels), slices.Clone(papers.rows.Splits)
	changed.papers = &papers
	change(&changed)
	changed.write(t, fsys, dir)
}

func TestMatricesThatAreTheSameAreTakenFromAnEarlierTypedStore(t *testing.T) {
	labelled := func(g *testTyped) int {
		return slices.IndexFunc(g.papers.rows.Labels, func(label int32) bool { return label > 0 })
	}
	all := Options{Hops: 2, LabelHops: 2, Threads: 1}
	for name, c := range map[string]struct {
		change func(g *testTyped)
		o      Options
		taken  func(id format.MatrixID) bool // nil: nothing
	}{
		"nothing": {func(*testTyped) {}, all, func(format.MatrixID) bool { return true }},
		"weights of a relation": {func(g *testTyped) { g.edges["author__writes__paper"].Weights[0]++ }, all,
			func(id format.MatrixID) bool { return !strings.Contains(id.Operator, "paper<author") }},
		"features of authors": {func(g *testTyped) { g.x["author"][1]++ }, all, func(id format.MatrixID) bool {
			return !strings.HasSuffix(id.Operator, "<author")
		}},
		"features of papers": {func(g *testTyped) { g.x["paper"][1]++ }, all, func(id format.MatrixID) bool {
			return strings.HasSuffix(id.Operator, "<author")
		}},
		"a label": {func(g *testTyped) { g.papers.rows.Labels[labelled(g)] = 0 }, all, func(id format.MatrixID) bool {
			return !strings.HasSuffix(id.Operator, ":labels")
		}},
		"splits": {func(g *testTyped) {
			for i := range g.papers.rows.Splits {
				if part := &g.papers.rows.Splits[i]; *part != format.SplitNone && i%3 == 0 {
					*part = *part%3 + 1
				}
			}
		}, all, func(id format.MatrixID) bool { return !strings.HasSuffix(id.Operator, ":labels") }},
		"a row less": {func(g *testTyped) { // its label and splits are gone
			at := int64(labelled(g))
			g.papers.rows.Labels[at] = -1
			for k := range int64(g.papers.rows.NumSplits) {
				g.papers.rows.Splits[at*int64(g.papers.rows.NumSplits)+k] = format.SplitNone
			}
		}, Options{Hops: 1, Threads: 1}, func(format.MatrixID) bool { return true }},
		"hops of subsets": {func(g *testTyped) { g.x["author"][1]++ }, Options{Hops: 2, RelationsSubsets: 2, Threads: 2,
			Seed: 1}, func(id format.MatrixID) bool { return id == format.Input || strings.HasSuffix(id.Operator, "<paper") }},
		"symmetric": {func(g *testTyped) { g.edges["venue__paper"].Weights[2]++ }, Options{Hops: 2, Threads: 1,
			Operators: []operator.Operator{{Name: operator.Sym}}}, func(id format.MatrixID) bool {
			return !strings.Contains(id.Operator, "paper<venue")
		}},
	} {
		fsys := vfs.NewMem()
		g := randomTyped(t, fsys, "graph", 80)
		propagated(t, fsys, "store", c.o)
		if err := fsys.Rename("graph", "graph1"); err != nil {
			t.Fatal(err)
		}
		g.rewrite(t, fsys, "graph", c.change)
		want := propagated(t, fsys, "fresh", c.o)
		o := Options{From: "store", FromGraph: "graph1", Threads: 2, Defaulted: Defaulted{true, true, true, true, true}}
		r, err := Propagate(context.Background(), fsys, "graph", "store2", o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !sameFiles(files(t, fsys, "store2"), want) {
			t.Errorf("%s: the store is another", name)
		}
		d, err := format.OpenStore(fsys, "store2")
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range d.Matrices() {
			if taken := r.From.Computed[i] == 0; taken != c.taken(id) {
				t.Errorf("%s: %s was taken: %t", name, id, taken)
			}
		}
		d.Close()
	}
}

func TestAnEarlierTypedStoreThatDoesNotFitIsLeftOrRefused(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomTyped(t, fsys, "graph", 60)
	o := Options{Hops: 1, Threads: 1}
	propagated(t, fsys, "store", o)
	g.rewrite(t, fsys, "more", func(g *testTyped) { // another row
		at := slices.IndexFunc(g.papers.rows.Labels, func(label int32) bool { return label < 0 })
		g.papers.rows.Labels[at] = 1
	})
	randomTyped(t, fsys, "without", 60, "paper__cites__paper")
	for graph, reason := range map[string]string{"more": "store has no row of node ",
		"without": "graph has other types or relations"} {
		var notes []string
		from := o
		from.From, from.FromGraph = "store", "graph"
		from.Note = func(text string) { notes = append(notes, text) }
		r, err := Propagate(context.Background(), fsys, graph, "from-"+graph, from)
		if err != nil || !strings.HasPrefix(r.From.Fresh, reason) || !strings.Contains(strings.Join(notes, "\n"), reason) {
			t.Errorf("%s: %+v, %v, %v", graph, r.From, notes, err)
		}
		if _, err := Propagate(context.Background(), fsys, graph, "fresh-"+graph, o); err != nil ||
			!sameFiles(files(t, fsys, "from-"+graph), files(t, fsys, "fresh-"+graph)) {
			t.Errorf("%s: %v, or another store", graph, err)
		}
	}
	for what, from := range map[string]Options{
		"nothing says which graph":       {From: "store"},
		"was not made of the graph more": {From: "store", FromGraph: "more"},
		"nowhere":                        {From: "nowhere", FromGraph: "graph"},
		"leave out --dry-run":            {From: "store", FromGraph: "graph", DryRun: true},
		"no-graph":                       {From: "store", FromGraph: "no-graph"},
	} {
		from.Hops = 1
		if _, err := Propagate(context.Background(), fsys, "more", "other", from); err == nil ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The store of the old graph is no store of the new one.
	if _, err := Propagate(context.Background(), fsys, "more", "store", o); !errors.Is(err, format.ErrExists) ||
		!strings.Contains(err.Error(), "it was made of another graph, or the graph has changed") {
		t.Errorf("an old store: %v", err)
	}
}

func TestATypedJobFromAnEarlierStoreThatIsKilledGoesOn(t *testing.T) {
	base := vfs.NewMem()
	o := Options{Hops: 2, Threads: 1}
	g := randomTyped(t, base, "graph", 20, fewMetapaths...)
	propagated(t, base, "store", o)
	g.rewrite(t, base, "graph2", func(g *testTyped) { g.x["author"][1]++ })
	if _, err := Propagate(context.Background(), base, "graph2", "fresh", o); err != nil {
		t.Fatal(err)
	}
	want := files(t, base, "fresh")
	o.From, o.FromGraph = "store", "graph"
	seen := vfs.Disks{}
	for n := int64(1); ; n += 3 * failureStep() {
		mem := base.CrashClone()
		fault := vfs.NewFault(mem)
		fault.FailFrom(n, syscall.EIO)
		_, err := Propagate(context.Background(), fault, "graph2", "store2", o)
		done := fault.Operations() < n
		mem = mem.CrashClone()
		again := o
		if n%2 == 0 { // without the earlier store
			again.From, again.FromGraph = "", ""
		}
		if seen.Add(mem, n%2) {
			if _, err := Propagate(context.Background(), mem, "graph2", "store2", again); err != nil ||
				!sameFiles(files(t, mem, "store2"), want) {
				t.Fatalf("killed at operation %d: %v, or another store", n, err)
			}
		}
		if done {
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n, err)
			}
			return
		}
	}
}
