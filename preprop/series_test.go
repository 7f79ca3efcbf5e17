package preprop

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// someSeries has both series on all graphs, with 1 to 56 products a hop.
var someSeries = []operator.Operator{
	{Name: operator.PPR, Graph: operator.AsGiven, NoLoops: false, Parameter: 0.15,
		Tolerance: operator.DefaultTolerance},
	{Name: operator.PPR, Graph: operator.Reverse, NoLoops: true, Parameter: 0.4, Tolerance: 0.01},
	{Name: operator.PPR, Graph: operator.Undirected, NoLoops: false, Parameter: 0.9, Tolerance: 0.05},
	{Name: operator.PPR, Graph: operator.Undirected, NoLoops: true, Parameter: 0.6, Tolerance: 0.1},
	{Name: operator.Heat, Graph: operator.AsGiven, NoLoops: true, Parameter: 3, Tolerance: operator.DefaultTolerance},
	{Name: operator.Heat, Graph: operator.Reverse, NoLoops: false, Parameter: 0.01, Tolerance: 0.1},
	{Name: operator.Heat, Graph: operator.Undirected, NoLoops: false, Parameter: 1, Tolerance: 0.001},
}

// applyOperator makes dst from src by the documented arithmetic, on top of that of Sym.
func applyOperator(t *testing.T, csc *format.CSC, o operator.Operator, dst, src *product.Matrix) {
	t.Helper()
	theta := o.Series().Theta
	if theta == nil {
		if _, err := applyHop(t, csc, o, dst, src, nil, 1); err != nil {
			t.Fatal(err)
		}
		return
	}
	nodes := int(csc.Nodes())
	x := make([]float32, nodes*src.Features)
	dtype.Decode(x, src.Buf.Bytes(), src.DType)
	in, out := fillMatrix(t, nodes, src.Features, format.Float32, x),
		fillMatrix(t, nodes, src.Features, format.Float32, nil)
	p := prepare(t, csc, operator.Operator{Name: operator.Sym, Graph: o.Graph, NoLoops: o.NoLoops}, 1)
	last := len(theta) - 1
	for k := last - 1; k >= 0; k-- {
		if _, err := p.Hop(context.Background(), out, in, nil, nil, 1, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		z, product := dtype.Float32s(in.Buf.Bytes()), dtype.Float32s(out.Buf.Bytes())
		for i := range z {
			add := product[i]
			if k == last-1 {
				add = float32(theta[last] * add)
			}
			z[i] = float32(theta[k]*x[i]) + add
		}
	}
	dtype.Encode(dst.Buf.Bytes(), dtype.Float32s(in.Buf.Bytes()), dst.DType)
}

// reference is the coefficients of a series from its definition, and what those from index k on add up to.
func reference(o operator.Operator) (theta, rest []float64) {
	n := 60000
	theta, rest = make([]float64, n), make([]float64, n+1)
	for k := range theta {
		if o.Name == operator.PPR {
			theta[k] = o.Parameter * math.Pow(1-o.Parameter, float64(k))
		} else {
			gamma, _ := math.Lgamma(float64(k + 1))
			theta[k] = math.Exp(float64(k)*math.Log(o.Parameter) - o.Parameter - gamma)
		}
	}
	for k := n - 1; k >= 0; k-- {
		rest[k] = rest[k+1] + theta[k]
	}
	return theta, rest
}

func TestSeriesAreCutOffAsSoonAsTheToleranceAllows(t *testing.T) {
	operators := slices.Clone(someSeries)
	for _, tolerance := range []float64{1e-7, 1e-5, 1e-3, 0.1} {
		for _, alpha := range []float64{0.001, 0.05, 0.15, 0.999} {
			operators = append(operators, operator.Operator{Name: operator.PPR, Graph: operator.AsGiven, NoLoops: false,
				Parameter: alpha, Tolerance: tolerance})
		}
		for _, time := range []float64{0.001, 1, 5, 30, 100} {
			operators = append(operators, operator.Operator{Name: operator.Heat, Graph: operator.AsGiven,
				NoLoops: false, Parameter: time, Tolerance: tolerance})
		}
	}
	for _, o := range operators {
		s := o.Series()
		theta, rest := reference(o)
		for k, got := range s.Theta {
			if want := theta[k]; math.Abs(float64(got)-want) > 1e-6*want+1e-44 {
				t.Errorf("%v: coefficient %d is %g, want %g", o, k, got, want)
			}
		}
		last := s.Products()
		if len(s.Theta) != last+1 || last < 1 {
			t.Fatalf("%v: %d coefficients, and %d products", o, len(s.Theta), last)
		}
		if math.Abs(s.Bound-rest[last+1]) > 1e-10 || s.Bound > o.Tolerance {
			t.Errorf("%v: %g is left out, want %g", o, s.Bound, rest[last+1])
		}
		if last > 1 && rest[last] <= o.Tolerance {
			t.Errorf("%v: %d products, though %g would be left out after one less", o, last, rest[last])
		}
	}
	for name, want := range map[string]int{"ppr": 56, "heat": 11, "ppr:alpha=0.5": 13, "heat:t=0.001": 1} {
		o, err := operator.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Series().Products(); got != want {
			t.Errorf("%s: %d products a hop, want %d", name, got, want)
		}
	}
}

// propagateGraph is the hops of one operator, for all nodes.
func propagateGraph(t *testing.T, g *testGraph, o operator.Operator, hops int) [][]float32 {
	t.Helper()
	fsys := vfs.NewMem()
	g.write(t, fsys, "graph")
	if _, err := Propagate(context.Background(), fsys, "graph", "store",
		Options{Hops: hops, Operators: []operator.Operator{o}, Rows: format.RowsAll, Threads: 2}); err != nil {
		t.Fatal(err)
	}
	store, err := format.OpenStore(fsys, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.Rows(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for r := 1; r <= hops; r++ {
		stored := dtype.Float32s(readMatrix(t, store, format.MatrixID{Operator: o.String(), Hop: r}))
		rows := make([]float32, len(stored))
		for i, v := range table.NodeID {
			copy(rows[int(v)*g.features:], stored[i*g.features:(i+1)*g.features])
		}
		out = append(out, rows)
	}
	return out
}

// multiply is b x, of a dense matrix b [n,n] and x [n,features].
func multiply(b, x []float64, nodes, features int) []float64 {
	out := make([]float64, len(x))
	for v := range nodes {
		for u := range nodes {
			if c := b[v*nodes+u]; c != 0 {
				for j := range features {
					out[v*features+j] += c * x[u*features+j]
				}
			}
		}
	}
	return out
}

func TestSeriesAgreeWithADenseMatrixInFloat64(t *testing.T) {
	const nodes, features, hops = 150, 3, 2
	for seed := range uint64(2) { // unweighted and weighted
		g := randomGraph(seed, nodes, features)
		for _, o := range someSeries {
			b := denseMatrix(nodes, weights(g), o.Base())
			want, magnitude := make([]float64, len(g.x)), make([]float64, len(g.x))
			for i, x := range g.x {
				want[i], magnitude[i] = float64(x), math.Abs(float64(x))
			}
			theta, _ := reference(o)
			for r, got := range propagateGraph(t, g, o, hops) {
				apply := func(x []float64) []float64 {
					sum := make([]float64, len(x))
					for k := range o.Series().Theta {
						for i := range x {
							sum[i] += theta[k] * x[i]
						}
						x = multiply(b, x, nodes, features)
					}
					return sum
				}
				want, magnitude = apply(want), apply(magnitude)
				for i := range want {
					if math.Abs(float64(got[i])-want[i]) > 1e-5*magnitude[i] {
						t.Fatalf("seed %d, %v, hop %d: node %d, column %d is %g, want %g", seed, o, r+1, i/features,
							i%features, got[i], want[i])
					}
				}
			}
		}
	}
}

func TestCuttingOffASeriesCostsNoMoreThanIsStated(t *testing.T) {
	const nodes, features, hops = 120, 3, 3
	for seed := range uint64(2) { // unweighted and weighted
		g := randomGraph(seed, nodes, features)
		for _, name := range []string{operator.PPR, operator.Heat} {
			for _, graph := range []string{operator.AsGiven, operator.Undirected} {
				for _, tolerance := range []float64{0.1, 0.01} {
					o := operator.Operator{Name: name, Graph: graph, NoLoops: true,
						Parameter: map[string]float64{operator.PPR: 0.15, operator.Heat: 3}[name], Tolerance: tolerance}
					b := denseMatrix(nodes, weights(g), o.Base())
					degree := make([]float64, nodes)
					for _, e := range edgesOf(graph, weights(g)) {
						degree[e.to] += float64(e.weight)
					}
					// norms of a column: that of the doc comment, and the Euclidean one
					norms := func(x []float64, j int) (weighted, euclidean float64) {
						for v := range nodes {
							if degree[v] > 0 {
								weighted = max(weighted, math.Abs(x[v*features+j])/math.Sqrt(degree[v]))
							}
							euclidean += x[v*features+j] * x[v*features+j]
						}
						return weighted, math.Sqrt(euclidean)
					}
					theta, _ := reference(o)
					x := make([]float64, len(g.x))
					for i := range x {
						x[i] = float64(g.x[i])
					}
					want := x
					worst := 0.0
					for r, got := range propagateGraph(t, g, o, hops) {
						sum, power := make([]float64, len(x)), want
						for k := range 400 {
							for i := range sum {
								sum[i] += theta[k] * power[i]
							}
							power = multiply(b, power, nodes, features)
						}
						want = sum
						for j := range features {
							off := make([]float64, len(x))
							for i := range off {
								off[i] = float64(got[i]) - want[i]
							}
							limit := float64(r+1)*o.Series().Bound + 1e-5 // rounding
							weighted, euclidean := norms(off, j)
							ofX, euclideanX := norms(x, j)
							worst = max(worst, weighted/ofX/limit)
							if weighted > limit*ofX || graph == operator.Undirected && euclidean > limit*euclideanX {
								t.Errorf("seed %d, %v, hop %d: off by %g and %g, of norms %g and %g", seed, o, r+1,
									weighted, euclidean, ofX, euclideanX)
							}
						}
						for i := range want {
							if degree[i/features] == 0 && math.Abs(float64(got[i])-want[i]) > 1e-6*math.Abs(want[i]) {
								t.Errorf("seed %d, %v, hop %d: node %d has no degree, and is %g, want %g", seed, o, r+1,
									i/features, got[i], want[i])
							}
						}
					}
					if worst < 0.001 {
						t.Errorf("seed %d, %v: off by %g of what is stated, so that this shows nothing", seed, o, worst)
					}
				}
			}
		}
	}
}

// weights is the edges with weights as the graph has them.
func weights(g *testGraph) []edge {
	out := slices.Clone(g.edges)
	for i := range out {
		if !g.weighted {
			out[i].weight = 1
		}
	}
	return out
}

// bits worked out by hand.
func TestSeriesOfSmallGraphs(t *testing.T) {
	swap := []edge{{0, 1, 1}, {1, 0, 1}} // S exchanges the nodes
	for _, c := range []struct {
		name     string
		operator string
		nodes    int
		edges    []edge
		x, want  []float32
	}{
		// 1/2 + 1/4 + ... + 2^-14
		{"a loop alone", "ppr:alpha=0.5", 1, nil, []float32{1}, []float32{1 - 1.0/(1<<14)}},
		{"nothing to hear of", "ppr:alpha=0.25:noloops", 1, nil, []float32{3}, []float32{0.75}},
		{"two nodes", "ppr:alpha=0.5:noloops:tolerance=0.1", 2, swap, []float32{16, 0}, []float32{8 + 2, 4 + 1}},
		{"one node has no degree, and is none's", "ppr:alpha=0.5:noloops:tolerance=0.1", 2, []edge{{0, 1, 1}},
			[]float32{16, 32}, []float32{8, 16}},
		{
			// In units of x/16, 2 * 2^24 + 1.75 is 2^25, 4 * 1.75 more is 2^25 + 8, and 8 * 2^24 more ties to 2^27 +
			// 2^25. Exactly it would be nearer to 16 more.
			"sums are rounded, the last terms first", "ppr:alpha=0.5:noloops:tolerance=0.1", 2, swap,
			[]float32{1 << 28, 16 * 1.75}, []float32{1<<27 + 1<<25, 5<<24 + 16},
		},
		{"no node", "heat", 0, nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := operator.Parse(c.operator)
			if err != nil {
				t.Fatal(err)
			}
			g := &testGraph{nodes: c.nodes, features: 1, edges: c.edges, x: c.x, DType: format.Float32}
			g.rows.Rows = int64(c.nodes)
			got := propagateGraph(t, g, o, 1)[0]
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestAPlanSaysWhatSeriesCost(t *testing.T) {
	fsys := vfs.NewMem()
	randomGraph(0, 50, 2).write(t, fsys, "graph")
	operators, err := operator.ParseList("sym,ppr,heat:tolerance=0.01", operator.DefaultTolerance)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Propagate(context.Background(), fsys, "graph", "store",
		Options{Hops: 3, Operators: operators, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 56, 8}; !slices.Equal(plan.ProductsPerHop, want) {
		t.Errorf("%v products a hop, want %v", plan.ProductsPerHop, want)
	}
	off := plan.TruncationErrors
	if len(off) != 3 || off[0] != 0 || math.Abs(off[1]-math.Pow(0.85, 57)) > 1e-12 || off[2] <= 0 || off[2] > 0.01 {
		t.Errorf("off by %v", off)
	}
	if left := files(t, fsys, "store"); len(left) > 0 {
		t.Errorf("a plan left %d files", len(left))
	}
}
