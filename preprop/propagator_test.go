package preprop

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// allOperators has every operator that is one product, with every combination of flags, sym and rw on the graph as
// given first.
var allOperators = func() []operator.Operator {
	out := []operator.Operator{{Name: operator.Sym}, {Name: operator.RW}, {Name: operator.Sym, NoLoops: true},
		{Name: operator.RW, NoLoops: true}}
	for _, name := range []string{operator.Sym, operator.RW, operator.Col} {
		for _, graph := range append([]string{operator.AsGiven}, operator.GraphFlags...) {
			for _, noLoops := range []bool{false, true} {
				o := operator.Operator{Name: name, Graph: graph, NoLoops: noLoops}
				if !slices.Contains(out, o) {
					out = append(out, o)
				}
			}
		}
	}
	return out
}()

var oneOfEachGraph = []operator.Operator{{Name: operator.Col}, {Name: operator.Col, Graph: operator.Reverse},
	{Name: operator.RW, Graph: operator.Undirected, NoLoops: true}}

// edge is an edge of a test graph.
type edge struct {
	from, to uint32
	weight   float32
}

// makeCSC sorts edges by destination, then source, stably.
func makeCSC(nodes int, edges []edge, weighted bool) *format.CSC {
	from, to := func(e edge) uint32 { return e.from }, func(e edge) uint32 { return e.to }
	for _, key := range []func(edge) uint32{from, to} {
		next, sorted := make([]int, nodes+1), make([]edge, len(edges)) // by key, stably
		for _, e := range edges {
			next[key(e)+1]++
		}
		for v := range nodes {
			next[v+1] += next[v]
		}
		for _, e := range edges {
			sorted[next[key(e)]] = e
			next[key(e)]++
		}
		edges = sorted
	}
	csc := &format.CSC{Offsets: make([]int64, nodes+1), Neighbors: []uint32{}}
	for _, e := range edges {
		csc.Offsets[e.to+1]++
		csc.Neighbors = append(csc.Neighbors, e.from)
		if weighted {
			csc.Weights = append(csc.Weights, e.weight)
		}
	}
	for v := range nodes {
		csc.Offsets[v+1] += csc.Offsets[v]
	}
	return csc
}

// edgesOf is the edges of an operator's graph, made from those given one by one.
func edgesOf(graph string, edges []edge) []edge {
	if graph == operator.AsGiven {
		return edges
	}
	var out []edge
	if graph == operator.Reverse {
		for _, e := range edges {
			out = append(out, edge{e.to, e.from, e.weight})
		}
		return out
	}
	type pair struct{ from, to uint32 }
	weights := map[pair][]float32{}
	var pairs []pair
	for _, e := range edges {
		k := pair{e.from, e.to}
		if weights[k] == nil && weights[pair{e.to, e.from}] == nil {
			pairs = append(pairs, k)
		}
		weights[k] = append(weights[k], e.weight)
	}
	for _, k := range pairs {
		there, back := weights[k], weights[pair{k.to, k.from}]
		for i := range max(len(there), len(back)) {
			var w float32
			if i < len(there) {
				w = there[i]
			}
			if i < len(back) && back[i] > w {
				w = back[i]
			}
			out = append(out, edge{k.from, k.to, w})
			if k.from != k.to {
				out = append(out, edge{k.to, k.from, w})
			}
		}
	}
	return out
}

// randomEdges has duplicates, self-loops, isolated nodes (every seventh) and a hub with thousands of in-neighbours.
func randomEdges(random *rand.Rand, nodes int) []edge {
	var edges []edge
	node := func() uint32 {
		for {
			if v := random.Uint32N(uint32(nodes)); v%7 != 0 {
				return v
			}
		}
	}
	add := func(u, v uint32) { edges = append(edges, edge{u, v, random.Float32() + 0.1}) }
	for range 4 * nodes {
		u, v := node(), node()
		add(u, v)
		if random.IntN(8) == 0 {
			add(u, v)
		}
		if random.IntN(16) == 0 {
			add(v, v)
		}
	}
	hub := node()
	for range 2*plan.RunTerms + 500 {
		add(node(), hub)
	}
	return edges
}

func randomFeatures(random *rand.Rand, nodes, features int) []float32 {
	x := make([]float32, nodes*features)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	return x
}

func fillMatrix(t *testing.T, nodes, features int, dt dtype.DType, x []float32) *product.Matrix {
	t.Helper()
	m, err := product.NewMatrix(int64(nodes), features, dt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Buf.Free() })
	if x != nil {
		dtype.Encode(m.Buf.Bytes(), x, dt)
	}
	return m
}

// prepare is the propagator of an operator on the graph as given.
func prepare(t *testing.T, given *format.CSC, o operator.Operator, threads int) *product.Propagator {
	t.Helper()
	graph := graphOf(t, given, o.Graph, threads)
	p, err := product.NewPropagator(context.Background(), graph, o, threads,
		product.Alone(context.Background(), graph, threads))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Buf.Free() })
	return p
}

func applyHop(t *testing.T, csc *format.CSC, o operator.Operator, dst, src *product.Matrix, want product.NodeSet,
	threads int) (int64, error) {
	t.Helper()
	p := prepare(t, csc, o, threads)
	dst.ID = format.MatrixID{Operator: o.String(), Hop: 1}
	added, err := p.Hop(context.Background(), dst, src, nil, want, threads, func(int64) {})
	lookedUp := slices.Clone(dst.Buf.Bytes())
	if listErr := p.ListFactors(context.Background(), nil, "", 0, threads,
		product.Alone(context.Background(), p.Graph, threads)); listErr != nil {
		t.Fatal(listErr)
	}
	defer p.Edges.Close()
	if (p.Edges != nil) != (o.ScalesSources() && csc.Nodes() > 0) {
		t.Errorf("%v: listed coefficients of edges: %v", o, p.Edges != nil)
	}
	again, againErr := p.Hop(context.Background(), dst, src, nil, want, threads, func(int64) {})
	if again != added || fmt.Sprint(againErr) != fmt.Sprint(err) || err == nil &&
		!bytes.Equal(dst.Buf.Bytes(), lookedUp) {
		t.Errorf("%v: %d terms and %v with factors by node, %d and %v by edge, or other bytes", o, added, err, again,
			againErr)
	}
	return added, err
}

// denseMatrix is an operator in float64, built entry by entry.
func denseMatrix(nodes int, edges []edge, o operator.Operator) []float64 {
	a := make([]float64, nodes*nodes)
	looped := make([]bool, nodes)
	for _, e := range edgesOf(o.Graph, edges) {
		a[int(e.to)*nodes+int(e.from)] += float64(e.weight)
		looped[e.to] = looped[e.to] || e.from == e.to
	}
	in, out := make([]float64, nodes), make([]float64, nodes)
	for v := range nodes {
		if !o.NoLoops && !looped[v] {
			a[v*nodes+v] = 1
		}
		for u := range nodes {
			in[v] += a[v*nodes+u]
			out[u] += a[v*nodes+u]
		}
	}
	for v := range nodes {
		for u := range nodes {
			if a[v*nodes+u] == 0 {
				continue
			}
			d := map[string]float64{operator.Sym: math.Sqrt(in[v] * in[u]), operator.RW: in[v],
				operator.Col: out[u]}[o.Name]
			if d == 0 {
				a[v*nodes+u] = 0
			} else {
				a[v*nodes+u] /= d
			}
		}
	}
	return a
}

// denseReference multiplies in float64. It returns the products and, for each, the sum of the terms' magnitudes.
func denseReference(nodes, features int, edges []edge, o operator.Operator, x []float32) (out, magnitude []float64) {
	b := denseMatrix(nodes, edges, o)
	out, magnitude = make([]float64, nodes*features), make([]float64, nodes*features)
	for v := range nodes {
		for u := range nodes {
			for j := range features {
				term := b[v*nodes+u] * float64(x[u*features+j])
				out[v*features+j] += term
				magnitude[v*features+j] += math.Abs(term)
			}
		}
	}
	return out, magnitude
}

func TestHopsAgreeWithADenseMatrixInFloat64(t *testing.T) {
	const nodes, features = 400, 5
	for seed := range 2 * seeds() {
		random := rand.New(rand.NewPCG(seed, 0))
		edges := randomEdges(random, nodes)
		weighted := seed%2 == 1
		if !weighted {
			for i := range edges {
				edges[i].weight = 1
			}
		}
		csc := makeCSC(nodes, edges, weighted)
		x := randomFeatures(random, nodes, features)
		for _, o := range allOperators {
			want, magnitude := denseReference(nodes, features, edges, o, x)
			src, dst := fillMatrix(t, nodes, features, format.Float32, x),
				fillMatrix(t, nodes, features, format.Float32, nil)
			if _, err := applyHop(t, csc, o, dst, src, nil, 2); err != nil {
				t.Fatal(err)
			}
			got := dtype.Float32s(dst.Buf.Bytes())
			for i := range want {
				if math.Abs(float64(got[i])-want[i]) > 1e-5*magnitude[i] {
					t.Fatalf("seed %d, %v: node %d, column %d is %g, want %g", seed, o, i/features, i%features, got[i],
						want[i])
				}
			}
		}
	}
}

// exactReference is the documented arithmetic, written down naively, for node v of the operator's graph.
func exactReference(edges []edge, o operator.Operator, x *product.Matrix, v uint32) []float32 {
	type term struct {
		node   uint32
		weight float32
	}
	list := func(edges []edge, v uint32) []term {
		var out []term
		for _, e := range edges {
			if e.to == v {
				out = append(out, term{e.from, e.weight})
			}
		}
		if !o.NoLoops && !slices.ContainsFunc(out, func(t term) bool { return t.node == v }) {
			out = append(out, term{v, 1})
		}
		slices.SortStableFunc(out, func(a, b term) int { return int(a.node) - int(b.node) })
		return out
	}
	degree := func(edges []edge, v uint32) float64 {
		d := 0.0
		for _, e := range list(edges, v) {
			d += float64(e.weight)
		}
		return d
	}
	inverse := func(d float64) float32 {
		if d == 0 {
			return 0
		}
		return float32(1 / d)
	}
	s, t := float32(1), func(uint32) float32 { return 1 }
	switch o.Name {
	case operator.Sym:
		s, t = inverse(math.Sqrt(degree(edges, v))), func(u uint32) float32 {
			return inverse(math.Sqrt(degree(edges,
				u)))
		}
	case operator.RW:
		s = inverse(degree(edges, v))
	case operator.Col:
		reversed := edgesOf(operator.Reverse, edges)
		t = func(u uint32) float32 { return inverse(degree(reversed, u)) }
	}
	terms := list(edges, v)
	factors := map[uint32]float32{}
	for _, e := range terms {
		if _, ok := factors[e.node]; !ok {
			factors[e.node] = t(e.node)
		}
	}
	row, numbers := make([]float32, x.Features), map[uint32][]float32{}
	for u := range factors {
		numbers[u] = values(x, int(u))
	}
	for j := range row {
		var total, sum float32
		for i, e := range terms {
			c := float32(e.weight * factors[e.node])
			product := float32(c * numbers[e.node][j])
			sum = float32(sum + product)
			if (i+1)%1024 == 0 || i == len(terms)-1 {
				total = float32(total + sum)
				sum = 0
			}
		}
		row[j] = float32(s * total)
	}
	return row
}

func TestHopsAreTheDocumentedArithmeticBitForBit(t *testing.T) {
	const nodes = 90
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		edges := randomEdges(random, nodes)
		weighted := seed == 1
		if !weighted {
			for i := range edges {
				edges[i].weight = 1
			}
		}
		csc := makeCSC(nodes, edges, weighted)
		hub := uint32(0)
		for v := range uint32(nodes) {
			if len(csc.In(int64(v))) > len(csc.In(int64(hub))) {
				hub = v
			}
		}
		for _, features := range []int{1, 4, 7} {
			x := randomFeatures(random, nodes, features)
			for _, dt := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
				src, dst := fillMatrix(t, nodes, features, dt, x), fillMatrix(t, nodes, features, dt, nil)
				for _, o := range allOperators {
					if _, err := applyHop(t, csc, o, dst, src, nil, 3); err != nil {
						t.Fatal(err)
					}
					of := edgesOf(o.Graph, edges)
					for _, v := range []uint32{0, 1, 2, hub} {
						want := exactReference(of, o, src, v)
						stored := make([]byte, features*dt.Size())
						dtype.Encode(stored, want, dt)
						if got := dst.Rows(int64(v), int64(v)+1); !slices.Equal(got, stored) {
							t.Fatalf("seed %d, %v, %v: node %d is %v (%x), want %v (%x)", seed, o, dt, v,
								values(dst, int(v)), got, want, stored)
						}
					}
				}
			}
		}
	}
}

func TestHubsAreTheDocumentedArithmeticForAnyThreads(t *testing.T) {
	const nodes, features, hub = 6, 3, 4
	random := rand.New(rand.NewPCG(5, 1))
	var edges []edge
	for range 2*plan.HubRuns*plan.RunTerms + 3*plan.RunTerms + 7 { // one list over the limit twice
		u := random.Uint32N(nodes - 1)
		if u == hub { // whose own place is that of a loop that is added
			u = nodes - 1
		}
		edges = append(edges, edge{u, hub, random.Float32() + 0.1}, edge{random.Uint32N(nodes), u / 2, 1})
	}
	x := randomFeatures(random, nodes, features)
	for _, weighted := range []bool{false, true} {
		csc := makeCSC(nodes, edges, weighted)
		exact := slices.Clone(edges)
		if !weighted {
			for i := range exact {
				exact[i].weight = 1
			}
		}
		for _, o := range []operator.Operator{{Name: operator.Sym}, {Name: operator.RW, NoLoops: true}} {
			src := fillMatrix(t, nodes, features, format.Float32, x)
			want := exactReference(exact, o, src, hub)
			for _, threads := range []int{1, 2, 3} {
				dst := fillMatrix(t, nodes, features, format.Float32, nil)
				if _, err := applyHop(t, csc, o, dst, src, nil, threads); err != nil {
					t.Fatal(err)
				}
				if got := values(dst, hub); !slices.Equal(got, want) {
					t.Errorf("weighted %t, %v, %d threads: %v, want %v", weighted, o, threads, got, want)
				}
				with := &product.Blend{Factor: 0.75, Theta: 0.3, X: src}
				if _, err := prepare(t, csc, o, threads).Hop(context.Background(), dst, src, with, nil, threads,
					func(int64) {}); err != nil {
					t.Fatal(err)
				}
				for j, got := range values(dst, hub) {
					if blended := float32(0.75*want[j]) + float32(0.3*x[hub*features+j]); got != blended {
						t.Errorf("weighted %t, %v, %d threads: column %d is blended into %v, want %v", weighted, o,
							threads, j, got, blended)
					}
				}
			}
		}
	}
}

// bits that only the documented order gives, worked out by hand.
func TestOrderBlocksAndRoundingOfSums(t *testing.T) {
	const ulp = 1.0 / (1 << 23) // of 1
	p11, p12 := float32(1.0/(1<<11)), float32(1.0/(1<<12))
	rw := operator.Operator{Name: operator.RW, NoLoops: true}
	big := float32(1 << 24) // 2^24 + 1 is no float32, and rounds to 2^24

	// Terms 0, 1023, 1024 and 1025 are 2^24, 1, 1 and 1, the others 0. Term 1023 is lost in the block of term 0, and
	// the next block is 2. A block longer by one would end at 2^24, a shorter one at 2^24 + 4, a plain sum at 2^24.
	blocks := make([]float32, 1026)
	blocks[0], blocks[1023], blocks[1024], blocks[1025] = big, 1, 1, 1

	for _, c := range []struct {
		name    string
		o       operator.Operator
		to      uint32
		x       []float32 // one node each, all in-neighbours of to
		weights []float32 // nil: unweighted
		skip    bool      // to is not its own in-neighbour
		total   float32
		degree  float64
	}{
		{
			// (1+2^-12)^2 = 1 + 2^-11 + 2^-24, a tie that rounds to 1 + 2^-11. Fused with the sum it would leave
			// 2^-24.
			name: "products are rounded before they are added", o: rw,
			x: []float32{-(1 + p11), 1 + p12}, weights: []float32{1, 1 + p12},
			total: 0, degree: float64(2 + p12),
		},
		{
			name: "neighbours are added in ascending order", o: rw,
			x: []float32{big, 1, -big}, total: 0, degree: 3,
		},
		{
			name: "and not in another one", o: rw,
			x: []float32{big, -big, 1}, total: 1, degree: 3,
		},
		{
			name: "blocks have 1024 terms", o: rw,
			x: blocks, total: big + 2, degree: 1026,
		},
		{
			name: "a self-loop that is added counts, in its place", o: operator.Operator{Name: operator.RW},
			to: 512, skip: true,
			x: blocks, total: big + 2, degree: 1026,
		},
		{
			// 1 + 2^-24 ties to 1, 1 + 2^-23 is exact: the last bit shows the place.
			name: "a self-loop that is added comes at its place in the order", o: operator.Operator{Name: operator.RW},
			to: 1, skip: true,
			x: []float32{1, ulp / 2, ulp / 2}, total: 1, degree: 3,
		},
		{
			name: "a self-loop that comes first is added first", o: operator.Operator{Name: operator.RW},
			to: 0, skip: true,
			x: []float32{ulp / 2, ulp / 2, 1}, total: 1 + ulp, degree: 3,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var edges []edge
			for u := range c.x {
				e := edge{uint32(u), c.to, 1}
				if c.weights != nil {
					e.weight = c.weights[u]
				}
				if !c.skip || e.from != e.to {
					edges = append(edges, e)
				}
			}
			src, dst := fillMatrix(t, len(c.x), 1, format.Float32, c.x), fillMatrix(t, len(c.x), 1, format.Float32, nil)
			if _, err := applyHop(t, makeCSC(len(c.x), edges, c.weights != nil), c.o, dst, src, nil, 1); err != nil {
				t.Fatal(err)
			}
			want := float32(float32(1/c.degree) * c.total)
			if got := values(dst, int(c.to))[0]; math.Float32bits(got) != math.Float32bits(want) {
				t.Errorf("got %g (%#x), want %g (%#x)", got, math.Float32bits(got), want, math.Float32bits(want))
			}
		})
	}
}

func TestDegreesThatAreNotPositiveGiveZero(t *testing.T) {
	// Node 0 has no in-neighbours, node 1 has them with weights that cancel, node 2 hears of both, node 3 has a
	// negative degree.
	edges := []edge{{0, 1, 2}, {2, 1, -2}, {0, 2, 1}, {1, 2, 1}, {0, 3, -1}}
	csc := makeCSC(4, edges, true)
	for _, c := range []struct {
		name string
		want []float32
	}{
		{operator.Sym, []float32{0, 0, 0, 0}}, // t(0) = t(1) = 0
		{operator.RW, []float32{0, 0, 3, 0}},
		{operator.Col, []float32{0, 2 * 4.0 / 2, 4.0/2 + 2, -4.0 / 2}}, // out-degrees 2, 1, -2, 0: t(2) = t(3) = 0
	} {
		src, dst := fillMatrix(t, 4, 1, format.Float32, []float32{4, 2, 1, 1}),
			fillMatrix(t, 4, 1, format.Float32, []float32{9, 9, 9, 9})
		if _, err := applyHop(t, csc, operator.Operator{Name: c.name, NoLoops: true}, dst, src, nil, 1); err != nil {
			t.Fatal(err)
		}
		if got := dtype.Float32s(dst.Buf.Bytes()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestColPassesOnAllThatThereIs(t *testing.T) {
	// Columns of (A+I) D^-1 add up to 1, so that the sum over the nodes stays.
	const nodes, features = 300, 2
	random := rand.New(rand.NewPCG(9, 9))
	edges := randomEdges(random, nodes)
	x := randomFeatures(random, nodes, features)
	for i := range x {
		x[i] = max(x[i], -x[i])
	}
	for _, graph := range append([]string{operator.AsGiven}, operator.GraphFlags...) {
		src, dst := fillMatrix(t, nodes, features, format.Float32, x),
			fillMatrix(t, nodes, features, format.Float32, nil)
		if _, err := applyHop(t, makeCSC(nodes, edges, true), operator.Operator{Name: operator.Col, Graph: graph}, dst,
			src, nil, 2); err != nil {
			t.Fatal(err)
		}
		var before, after [features]float64
		for v := range nodes {
			for j := range features {
				before[j] += float64(values(src, v)[j])
				after[j] += float64(values(dst, v)[j])
			}
		}
		for j := range features {
			if math.Abs(after[j]-before[j]) > 1e-5*before[j] {
				t.Errorf("col, graph %q: column %d adds up to %g, and to %g before", graph, j, after[j], before[j])
			}
		}
	}
}

func TestSmallestGraphs(t *testing.T) {
	for _, o := range allOperators {
		empty := makeCSC(0, nil, false)
		if terms, err := applyHop(t, empty, o, fillMatrix(t, 0, 3, format.Float32, nil),
			fillMatrix(t, 0, 3, format.Float32, nil), nil, 2); err != nil || terms != 0 {
			t.Errorf("%v on no nodes: %d terms, %v", o, terms, err)
		}
		one := makeCSC(1, nil, false)
		src, dst := fillMatrix(t, 1, 1, format.Float32, []float32{5}), fillMatrix(t, 1, 1, format.Float32, nil)
		terms, err := applyHop(t, one, o, dst, src, nil, 2)
		if err != nil {
			t.Fatal(err)
		}
		wantTerms, want := int64(1), float32(5)
		if o.NoLoops {
			wantTerms, want = 0, 0
		}
		if got := values(dst, 0)[0]; got != want || terms != wantTerms {
			t.Errorf("%v on one node: %g by %d terms, want %g by %d", o, got, terms, want, wantTerms)
		}
	}
}

func TestOnlyNeededRowsAreComputed(t *testing.T) {
	const nodes, features, hops = 600, 3, 4
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 2))
		var edges []edge
		for range nodes { // sparse, so that the sets grow hop by hop
			edges = append(edges, edge{random.Uint32N(nodes), random.Uint32N(nodes), 1})
		}
		csc := makeCSC(nodes, edges, false)
		x := randomFeatures(random, nodes, features)
		stored := product.NewNodeSet(nodes)
		for range 20 {
			stored.Add(int64(random.Uint32N(nodes)))
		}
		for _, o := range allOperators {
			// The naive sets, by maps.
			sets := make([]map[uint32]bool, hops+1)
			sets[hops] = map[uint32]bool{}
			for v := range uint32(nodes) {
				if stored.Has(int64(v)) {
					sets[hops][v] = true
				}
			}
			of := edgesOf(o.Graph, edges)
			for r := hops - 1; r >= 1; r-- {
				sets[r] = map[uint32]bool{}
				for v := range sets[hops] {
					sets[r][v] = true
				}
				for v := range sets[r+1] {
					if !o.NoLoops { // its self-loop
						sets[r][v] = true
					}
				}
				for _, e := range of {
					if sets[r+1][e.to] {
						sets[r][e.from] = true
					}
				}
			}

			p := prepare(t, csc, o, 2)
			need, err := product.Needed(p.Graph, stored, hops, product.Alone(context.Background(), p.Graph, 2))
			if err != nil {
				t.Fatal(err)
			}
			a, b := fillMatrix(t, nodes, features, format.Float32, x),
				fillMatrix(t, nodes, features, format.Float32, nil)
			c, d := fillMatrix(t, nodes, features, format.Float32, x),
				fillMatrix(t, nodes, features, format.Float32, nil)
			all := p.Graph.(*product.MemoryTopology).Range(0, nodes)
			for r := 1; r <= hops; r++ {
				wantTerms := int64(0)
				for v := range int64(nodes) {
					if need[r-1].Has(v) != sets[r][uint32(v)] {
						t.Fatalf("seed %d, %v: hop %d needs node %d: %v, want %v", seed, o, r, v, need[r-1].Has(v),
							sets[r][uint32(v)])
					}
					if terms := p.Terms(&all, v); sets[r][uint32(v)] {
						wantTerms += int64(terms.Len())
					}
				}
				terms, err := p.Hop(context.Background(), b, a, nil, need[r-1], 2, func(int64) {})
				if err != nil || terms != wantTerms {
					t.Fatalf("seed %d, %v, hop %d: %d terms, want %d; %v", seed, o, r, terms, wantTerms, err)
				}
				if _, err := p.Hop(context.Background(), d, c, nil, nil, 2, func(int64) {}); err != nil {
					t.Fatal(err)
				}
				for v := range int64(nodes) {
					if need[r-1].Has(v) && !slices.Equal(b.Rows(v, v+1), d.Rows(v, v+1)) {
						t.Fatalf("seed %d, %v: hop %d of node %d differs from that without pruning", seed, o, r, v)
					}
				}
				a, b, c, d = b, a, d, c
			}
		}
	}
}

func TestValuesThatCannotBeStoredAreNamedLowestNodeFirst(t *testing.T) {
	const nodes, features, low, high = 200_000, 3, 70_001, 190_000 // in different blocks
	var edges []edge
	for v := range uint32(nodes) {
		if v != low && v != high {
			edges = append(edges, edge{v, v, 1})
		}
	}
	for u := uint32(nodes - 4); u < nodes; u++ { // each has degree 1, so the sum of four is halved
		edges = append(edges, edge{u, low, 1}, edge{u, high, 1})
	}
	csc := makeCSC(nodes, edges, false)
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name string
		dt   dtype.DType
		x    float32 // in column 2 of the last four nodes
		err  string
	}{
		{"too large for float16", dtype.Float16, 40000,
			"sym:noloops/hop-1: node 70001, column 2: invalid data: 80000 is too large for float16"},
		{"not finite", dtype.Float32, inf,
			"sym:noloops/hop-1: node 70001, column 2: invalid data: +Inf instead of a finite number"},
		{"not finite in float16", dtype.Float16, inf,
			"sym:noloops/hop-1: node 70001, column 2: invalid data: +Inf instead of a finite number"},
		{"float32 overflow of the sum", dtype.Float32, 3e38,
			"sym:noloops/hop-1: node 70001, column 2: invalid data: +Inf instead of a finite number"},
	} {
		x := make([]float32, nodes*features)
		for u := nodes - 4; u < nodes; u++ {
			x[u*features+2] = c.x
		}
		src, dst := fillMatrix(t, nodes, features, c.dt, x), fillMatrix(t, nodes, features, c.dt, nil)
		for _, threads := range []int{1, 2, 8} {
			_, err := applyHop(t, csc, operator.Operator{Name: operator.Sym, NoLoops: true}, dst, src, nil, threads)
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s, %d threads: error %v, want %s", c.name, threads, err, c.err)
			}
		}
	}
}

func TestTheFirstColumnThatCannotBeStoredIsNamed(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		row []float32
		err string
	}{
		{[]float32{1, 1e6, inf}, "node 1, column 1: invalid data: 1e+06 is too large for float16"},
		{[]float32{1, inf, 1e6}, "node 1, column 1: invalid data: -Inf instead of a finite number"},
		{[]float32{float32(math.NaN()), 1e6, inf}, "node 1, column 0: invalid data: NaN instead of a finite number"},
	} {
		m := fillMatrix(t, 2, 3, format.Float16, nil)
		if err := m.SetRows(0, append([]float32{1, 2, 3}, c.row...), []float32{1, 1}); err == nil ||
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %v, want %s", c.row, err, c.err)
		}
	}
}

func TestTheErrorOfTheLowestPositionIsKept(t *testing.T) {
	var l product.LowestError
	for _, at := range []int64{70, 30, 90} {
		l.Report(at, fmt.Errorf("at %d", at))
	}
	if l.Err.Error() != "at 30" {
		t.Errorf("kept %v", l.Err)
	}
}

// values are the numbers of row v.
func values(m *product.Matrix, v int) []float32 {
	out := make([]float32, m.Features)
	dtype.Decode(out, m.Rows(int64(v), int64(v)+1), m.DType)
	return out
}
