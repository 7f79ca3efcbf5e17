package preprop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// labelOperators are those that can propagate labels, over each graph.
var labelOperators = []operator.Operator{{Name: operator.Sym}, {Name: operator.RW, Graph: operator.Undirected},
	{Name: operator.Col, NoLoops: true}}

// graphWithHubs is a random graph of which many nodes are training nodes, with nodes of several runs of terms, multi
// labels if several is set.
func graphWithHubs(seed uint64, nodes int, several bool) *testGraph {
	g := randomGraph(seed, nodes, 3)
	for v := range nodes {
		g.rows.Splits[2*v] = 1 + uint8(v%3)
		if v > 0 {
			g.edges = append(g.edges, edge{from: uint32(v), to: 0, weight: 0.5}, edge{from: 0, to: uint32(v), weight: 2})
		}
	}
	for i := range g.edges {
		if !g.weighted {
			g.edges[i].weight = 1
		}
	}
	if several {
		g.rows.LabelColumns = 5
		for v, label := range g.rows.Labels {
			for c := range int32(5) {
				one := int8(0)
				if label < 0 && c > 2 {
					one = -1
				} else if label == c || v%4 == 1 && c < 3 {
					one = 1
				}
				g.rows.MultiLabels = append(g.rows.MultiLabels, one)
			}
		}
		g.rows.Labels = nil
	}
	return g
}

// oneHot is Y of a split, [nodes, columns].
func (g *testGraph) oneHot(split int) (y []float32, columns int) {
	columns = max(4, g.rows.LabelColumns)
	y = make([]float32, g.nodes*columns)
	for v := range g.nodes {
		for c := range columns {
			if g.rows.Splits[2*v+split] == format.SplitTrain && (g.rows.Labels != nil && g.rows.Labels[v] == int32(c) ||
				g.rows.MultiLabels != nil && g.rows.MultiLabels[v*columns+c] == 1) {
				y[v*columns+c] = 1
			}
		}
	}
	return y, columns
}

// matrixRows are the rows of a matrix of a store, as float32, by node.
func matrixRows(t *testing.T, fsys vfs.FS, dir string, id format.MatrixID) map[uint32][]float32 {
	t.Helper()
	store, err := format.OpenStore(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	l := store.Layout().Of(id)
	data, row := readMatrix(t, store, id), l.Features*l.DType.Size()
	out := map[uint32][]float32{}
	for i, v := range table.NodeID {
		x := make([]float32, l.Features)
		dtype.Decode(x, data[i*row:(i+1)*row], l.DType)
		out[v] = x
	}
	return out
}

// labelColumns are the label columns of a matrix of a store, by node.
func labelColumns(t *testing.T, fsys vfs.FS, dir string, id format.MatrixID) map[uint32][]float32 {
	t.Helper()
	store, err := format.OpenStore(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	out := matrixRows(t, fsys, dir, id)
	for v, x := range out {
		out[v] = x[len(x)-store.Manifest.LabelColumns():]
	}
	return out
}

func TestPropagatedLabelsAgreeWithPowersWithoutTheirDiagonalInFloat64(t *testing.T) {
	const nodes, hops = 180, 4
	for seed := range uint64(4) {
		g := graphWithHubs(seed, nodes, seed > 1)
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		o := Options{Hops: hops, LabelHops: 3, Operators: labelOperators, Rows: format.RowsAll,
			Split: int(seed % 2), Threads: 2}
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		y, columns := g.oneHot(o.Split)
		for _, op := range labelOperators {
			b := denseMatrix(nodes, g.edges, op)
			power := b
			for hop := 0; hop <= hops; hop++ {
				id := format.MatrixID{Operator: op.String(), Hop: hop}
				if hop == 0 {
					id = format.Input
				} else if hop > 1 {
					power = multiply(b, power, nodes, nodes)
				}
				got := labelColumns(t, fsys, "store", id)
				for v := range nodes {
					for c := range columns {
						want, magnitude := 0.0, 0.0
						for u := range nodes {
							if u != v && hop > 0 && hop <= o.LabelHops {
								want += power[v*nodes+u] * float64(y[u*columns+c])
								magnitude += math.Abs(power[v*nodes+u] * float64(y[u*columns+c]))
							}
						}
						if x := float64(got[uint32(v)][c]); math.Abs(x-want) > 1e-5*magnitude {
							t.Fatalf("seed %d, %v: node %d, class %d is %g, want %g", seed, id, v, c, x, want)
						}
					}
				}
			}
		}
	}
}

// A model that reads row v cannot learn the label of v from it: with any other label of v, the row has the same bytes.
func TestTheLabelOfANodeChangesNoByteOfItsRow(t *testing.T) {
	const nodes = 1300 // of which the hub has more than one run of terms
	for k, several := range []bool{false, true, false} {
		g := graphWithHubs(uint64(k), nodes, several)
		o := Options{Hops: 2, LabelHops: 2, Operators: labelOperators, Rows: format.RowsAll,
			DType: []format.DType{format.Float32, format.BFloat16, format.Float16}[k]}
		changed := 0
		fsys := vfs.NewMem()
		g.write(t, fsys, "graph")
		if _, err := Propagate(context.Background(), fsys, "graph", "store", o); err != nil {
			t.Fatal(err)
		}
		for _, v := range []int{0, 3, 6, 300, 1299} { // all train, the first the hub
			if g.rows.Splits[2*v] != format.SplitTrain {
				t.Fatalf("node %d is no training node", v)
			}
			if several {
				for c := range 5 {
					g.rows.MultiLabels[5*v+c] = max(0, 1-g.rows.MultiLabels[5*v+c])
				}
			} else {
				g.rows.Labels[v] = (max(0, g.rows.Labels[v]) + 1) % 4
			}
			name := fmt.Sprintf("%d", v)
			g.write(t, fsys, "graph"+name)
			if _, err := Propagate(context.Background(), fsys, "graph"+name, "store"+name, o); err != nil {
				t.Fatal(err)
			}
			for _, op := range labelOperators {
				for hop := 1; hop <= 2; hop++ {
					id := format.MatrixID{Operator: op.String(), Hop: hop}
					old := labelColumns(t, fsys, "store", id)
					now := labelColumns(t, fsys, "store"+name, id)
					if !slices.Equal(old[uint32(v)], now[uint32(v)]) {
						t.Fatalf("%v of node %d: %v with one label, %v with another", id, v, old[uint32(v)], now[uint32(v)])
					}
					for u := range nodes {
						if !slices.Equal(old[uint32(u)], now[uint32(u)]) {
							changed++
						}
					}
				}
			}
			// back to what the first store was made of
			g = graphWithHubs(uint64(k), nodes, several)
		}
		if changed < 100 {
			t.Errorf("labels changed %d rows of others: the test shows nothing", changed)
		}
	}
}

func TestStoresWithLabelsAreTheSameHoweverTheyAreMade(t *testing.T) {
	g := graphWithHubs(1, 700, false)
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	o := Options{Hops: 3, LabelHops: 2, Operators: labelOperators, Threads: 2}
	want := propagated(t, fsys, "whole", o)
	for _, budget := range budgets(t, fsys, o)[1:] {
		some := o
		some.MemoryBytes, some.Threads = budget, 1
		some.Planned = func(p *Plan) { outOfCore(p); p.TopologyInMemory = true }
		name := fmt.Sprintf("budget%d", budget)
		if !sameFiles(propagated(t, fsys, name, some), want) {
			t.Errorf("within %d bytes: another store", budget)
		}
	}
	grown := o
	grown.Hops = 2
	propagated(t, fsys, "grown", grown)
	grown = Options{Hops: 3, Threads: 1, Defaulted: Defaulted{Operators: true, LabelHops: true}}
	if !sameFiles(propagated(t, fsys, "grown", grown), want) {
		t.Error("a store that grew is another")
	}
	grown.LabelHops, grown.Defaulted.LabelHops = 1, false
	if _, err := Propagate(context.Background(), fsys, "graph", "grown", grown); !errors.Is(err, format.ErrExists) ||
		!strings.Contains(err.Error(), "--label-hops: 2 there, 1 asked for") {
		t.Errorf("other label hops: %v", err)
	}
	if !sameFiles(byTasks(t, fsys, "tasks", 3, o), want) {
		t.Error("tasks made another store")
	}
	device := o
	device.Device = always(1<<30, nil)
	if !sameFiles(propagated(t, fsys, "device", device), want) {
		t.Error("a device made another store")
	}
	from := o
	from.From, from.FromGraph = "whole", "graph"
	r, err := Propagate(context.Background(), fsys, "graph", "again", from)
	if err != nil || r.From.Fresh == "" || !sameFiles(files(t, fsys, "again"), want) {
		t.Errorf("from an earlier store: %+v, %v", r, err)
	}
	for name, content := range want {
		if !strings.Contains(name, "/features/") {
			continue
		}
		name = "grown" + strings.TrimPrefix(name, "whole")
		overwrite(t, fsys, name, flip(content, int64(len(content))/2))
		if _, err := Repair(context.Background(), fsys, "grown", "graph", Options{Threads: 2}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(files(t, fsys, path.Dir(name))[name], content) {
			t.Errorf("%s was repaired to something else", name)
		}
	}
}

func TestAJobWithLabelsGoesOnAfterACrash(t *testing.T) {
	graph := vfs.NewMem()
	graphWithHubs(0, 40, false).write(t, graph, "graph")
	o := Options{Hops: 2, LabelHops: 2, Operators: labelOperators[:1], Threads: 1}
	crashAtAnyOperation(t, graph, 0, o)
}

func TestLabelsThatCannotBePropagatedAreRefused(t *testing.T) {
	fsys := vfs.NewMem()
	g := randomGraph(0, 50, 3)
	g.write(t, fsys, "graph")
	o := Options{Hops: 2, LabelHops: 2, Operators: labelOperators[:1]}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.LabelHops = 3 }, "over 3 hops, and features over 2"},
		{func(o *Options) { o.Operators = someSeries[:1] }, "labels cannot be propagated by " + someSeries[0].String()},
	} {
		some := o
		c.change(&some)
		if _, err := Propagate(context.Background(), fsys, "graph", "store", some); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	g.rows.Splits, g.rows.NumSplits = nil, 0
	g.write(t, fsys, "unsplit")
	if _, err := Propagate(context.Background(), fsys, "unsplit", "store", o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "no split") {
		t.Errorf("without a split: %v", err)
	}
}
