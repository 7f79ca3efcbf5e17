package preprop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// labelMetapaths are B - diag(B) of each metapath of up to hops relations from papers to papers, in float64.
func (g *testTyped) labelMetapaths(hops int, sym bool) map[string][][]float64 {
	one := *g
	one.widths = map[string]int{"paper": g.nodes["paper"]}
	eye := make([]float32, g.nodes["paper"]*g.nodes["paper"])
	for v := range g.nodes["paper"] {
		eye[v*g.nodes["paper"]+v] = 1
	}
	one.x = map[string][]float32{"paper": eye}
	made, _ := one.metapathsOf([]string{"paper"}, hops, sym)
	for _, b := range made {
		for v := range b {
			b[v][v] = 0
		}
	}
	return made
}

func TestLabelsTravelAlongMetapathsWithoutANodesOwn(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomTyped(t, fsys, "graph", 60)
	for k, name := range []string{operator.RW, operator.Sym} {
		o := Options{Metapaths: []string{"paper<author"}, LabelHops: 3, Split: k, Threads: 2, Rows: format.RowsAll,
			Operators: []operator.Operator{{Name: name}}}
		store := "store-" + name
		r, err := Propagate(context.Background(), fsys, "graph", store, o)
		if err != nil {
			t.Fatal(err)
		}
		y, columns := g.papers.oneHot(o.Split)
		made := g.labelMetapaths(3, name == operator.Sym)
		if len(r.Metapaths) != 1+len(made) || r.LabelColumns != columns {
			t.Errorf("%s: %d metapaths and %d columns of labels, want %d and %d", name, len(r.Metapaths), r.LabelColumns,
				1+len(made), columns)
		}
		for path, b := range made {
			id := format.MatrixID{Operator: name + ":" + path + ":labels", Hop: 1}
			got := matrixRows(t, fsys, store, id)
			for v := range b {
				for c := range columns {
					want := 0.0
					for u, w := range b[v] {
						want += w * float64(y[u*columns+c])
					}
					if x := float64(got[uint32(v)][c]); math.Abs(x-want) > 1e-5*want {
						t.Fatalf("%v: node %d, class %d is %g, want %g", id, v, c, x, want)
					}
				}
			}
		}
	}
}

// A model that reads row v of the store of a typed graph cannot learn its label: with any other, or none, the row has
// the same bytes.
func TestTheLabelOfANodeChangesNoByteOfItsRowInATypedGraph(t *testing.T) {
	for _, stored := range []format.DType{format.Float32, format.BFloat16} {
		fsys := vfs.NewMem()
		g := randomTyped(t, fsys, "graph", 60)
		o := Options{Hops: 1, LabelHops: 3, Threads: 2, Rows: format.RowsAll, DType: stored}
		r, err := Propagate(context.Background(), fsys, "graph", "store", o)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for v := range g.nodes["paper"] {
			if g.papers.rows.Splits[2*v] != format.SplitTrain { // two are: one with a label, and one without
				continue
			}
			before := g.papers.rows.Labels[v]
			label := (before + 2) % 4
			g.papers.rows.Labels[v] = label
			other := fmt.Sprint("graph-", v, "-", label)
			g.write(t, fsys, other)
			if _, err := Propagate(context.Background(), fsys, other, other+"-store", o); err != nil {
				t.Fatal(err)
			}
			for _, m := range r.Metapaths {
				if !strings.HasSuffix(m.Name, ":labels") {
					continue
				}
				id := format.MatrixID{Operator: "rw:" + m.Name, Hop: 1}
				old, now := matrixRows(t, fsys, "store", id), matrixRows(t, fsys, other+"-store", id)
				for u, row := range old {
					if same := slices.Equal(row, now[u]); !same && int(u) == v {
						t.Fatalf("%v of node %d: %v with label %d, %v with %d", id, v, row, before, now[u], label)
					} else if !same {
						changed++
					}
				}
			}
			g.papers.rows.Labels[v] = before
		}
		if changed < 100 {
			t.Errorf("labels changed %d rows of others: the test shows nothing", changed)
		}
	}
}

func TestTypedStoresWithLabelsAreTheSameHoweverTheyAreMade(t *testing.T) {
	mem := vfs.NewMem()
	randomTyped(t, mem, "graph", 20, fewMetapaths...)
	o := Options{Metapaths: []string{"paper<author"}, LabelHops: 2, Threads: 1}
	want := propagated(t, mem, "whole", o)
	again := o
	again.Threads = 4
	if !sameFiles(propagated(t, mem, "again", again), want) {
		t.Error("other threads made another store")
	}
	failingTyped(t, mem, o, 7)
	o.LabelHops = 1
	if _, err := Propagate(context.Background(), mem, "graph", "again", o); !errors.Is(err, format.ErrExists) ||
		!strings.Contains(err.Error(), "--label-hops: 2 there, 1 asked for") {
		t.Errorf("other label hops: %v", err)
	}
}
