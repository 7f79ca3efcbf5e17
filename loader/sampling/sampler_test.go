package sampling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// fromLists is the graph with these in-neighbours of each node.
func fromLists(lists [][]uint32, weighted bool) *format.CSC {
	c := &format.CSC{Offsets: make([]int64, 1)}
	for _, l := range lists {
		c.Neighbors = append(c.Neighbors, l...)
		c.Offsets = append(c.Offsets, int64(len(c.Neighbors)))
	}
	if weighted {
		for e := range c.Neighbors {
			c.Weights = append(c.Weights, 0.25+float32(e*7%5))
		}
	}
	return c
}

// smallGraph has 60 nodes: 0 has all as in-neighbours and is the first of most, 5 has a self-loop,
// and 1 has no edges at all.
func smallGraph(weighted bool) *format.CSC {
	r := rand.New(rand.NewPCG(3, 4))
	lists := make([][]uint32, 60)
	for v := range lists {
		for u := range lists {
			if u == 1 || v == 1 || u == v && v != 5 {
				continue
			}
			if v == 0 || u == 0 && v%3 != 0 || v == 5 && u == 5 || r.Float64() < 0.12 {
				lists[v] = append(lists[v], uint32(u))
			}
		}
	}
	return fromLists(lists, weighted)
}

// matrix64 is the matrix of an aggregation, in float64, by its definition.
func matrix64(c *format.CSC, a Aggregation) [][]float64 {
	n := int(c.Nodes())
	m := make([][]float64, n)
	for v := range m {
		m[v] = make([]float64, n)
		for e := c.Offsets[v]; e < c.Offsets[v+1]; e++ {
			w := 1.0
			if c.Weights != nil {
				w = float64(c.Weights[e])
			}
			m[v][c.Neighbors[e]] += w
		}
		if _, looped := slices.BinarySearch(c.In(int64(v)), uint32(v)); a != Mean && !looped {
			m[v][v] = 1
		}
	}
	degree := make([]float64, n)
	for v := range m {
		for _, w := range m[v] {
			degree[v] += w
		}
	}
	for v := range m {
		for u := range m[v] {
			if m[v][u] == 0 {
				continue
			}
			switch a {
			case Mean:
				m[v][u] /= degree[v]
			case Sym:
				m[v][u] /= math.Sqrt(degree[v] * degree[u])
			}
		}
	}
	return m
}

func newTestMethod(t testing.TB, name string, c *format.CSC, o Options) *Method {
	t.Helper()
	m, err := NewMethod(context.Background(), name, InMemory(c), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// checkBatch fails unless the parts of a mini-batch fit each other and the graph.
func checkBatch(t *testing.T, c *format.CSC, b *MiniBatch, a Aggregation, repeated bool) {
	t.Helper()
	distinct := slices.Clone(b.Inputs)
	slices.Sort(distinct)
	if len(slices.Compact(distinct)) != len(b.Inputs) {
		t.Fatal("an input is repeated")
	}
	apart := slices.ContainsFunc(b.Blocks, func(k Block) bool { return len(k.Nodes) > 0 })
	if !apart && (len(b.Inputs) < len(b.Seeds) || !slices.Equal(b.Seeds, b.Inputs[:len(b.Seeds)])) {
		t.Fatal("the seeds are not the first of the inputs")
	}
	if n := len(b.SeedWeights); n != 0 && n != len(b.Seeds) {
		t.Fatalf("%d weights of %d seeds", n, len(b.Seeds))
	}
	sources, nodes := len(b.Inputs), b.Inputs // of the block
	for i, block := range b.Blocks {
		destinations := block.Nodes
		if !apart {
			destinations = nodes[:min(block.Destinations, len(nodes))]
		}
		if block.Sources != sources || len(destinations) != block.Destinations || len(block.Offsets) != block.Destinations+1 {
			t.Fatalf("block %d has %d sources and %d destinations with %d offsets, the one before %d destinations", i,
				block.Sources, block.Destinations, len(block.Offsets), sources)
		}
		sources = block.Destinations
		edges := int(block.Offsets[block.Destinations])
		if block.Offsets[0] != 0 || !slices.IsSorted(block.Offsets) || len(block.Indices) != edges ||
			len(block.Weights) != edges {
			t.Fatalf("block %d: offsets %v for %d edges and %d weights", i, block.Offsets, len(block.Indices),
				len(block.Weights))
		}
		for v := range block.Destinations {
			node := destinations[v]
			list := block.Indices[block.Offsets[v]:block.Offsets[v+1]]
			loops := 0
			for _, u := range list {
				if int(u) >= block.Sources {
					t.Fatalf("block %d: source %d of %d", i, u, block.Sources)
				}
				_, isEdge := slices.BinarySearch(c.In(int64(node)), nodes[u])
				if nodes[u] == node && a != Mean {
					loops++
				} else if !isEdge {
					t.Fatalf("block %d: %d is not an in-neighbour of %d", i, nodes[u], node)
				}
			}
			if _, drawn := slices.BinarySearch(slices.Sorted(slices.Values(nodes)), node); a != Mean && loops != 1 &&
				(drawn || !apart) {
				t.Fatalf("block %d: node %d has %d self-loops", i, node, loops)
			}
			if sorted := slices.Clone(list); !repeated {
				slices.Sort(sorted)
				if len(slices.Compact(sorted)) != len(list) {
					t.Fatalf("block %d: a source of node %d is repeated: %v", i, node, list)
				}
			}
		}
		nodes = destinations
	}
	if sources != len(b.Seeds) || !slices.Equal(nodes, b.Seeds) {
		t.Fatalf("the last block has %d destinations for %d seeds", sources, len(b.Seeds))
	}
}

func clone(b *MiniBatch) MiniBatch {
	c := MiniBatch{Seeds: slices.Clone(b.Seeds), Inputs: slices.Clone(b.Inputs),
		SeedWeights: slices.Clone(b.SeedWeights)}
	for _, block := range b.Blocks {
		block.Offsets, block.Indices, block.Weights = slices.Clone(block.Offsets), slices.Clone(block.Indices),
			slices.Clone(block.Weights)
		block.Nodes = slices.Clone(block.Nodes)
		c.Blocks = append(c.Blocks, block)
	}
	return c
}

func equal(a, b *MiniBatch) bool { return fmt.Sprint(*a) == fmt.Sprint(*b) }

// methodCase is a way to sample the small graph.
type methodCase struct {
	name     string
	options  Options
	weighted bool // the graph is
	unbiased bool
	// tolerance is a share of the exact product beside the standard errors, where the coefficients
	// themselves are counted.
	tolerance float64
}

func (c methodCase) String() string {
	return fmt.Sprintf("%s/%s/fanouts=%v/weighted=%t/replace=%t/byweight=%t", c.name, c.options.Aggregation,
		c.options.Fanouts, c.weighted, c.options.Replace, c.options.ByWeight)
}

// repeats tells whether an edge may be drawn twice.
func (c methodCase) repeats() bool {
	return c.options.Replace && (c.name == "neighbor" || c.name == "locality")
}

func methodCases() (cases []methodCase) {
	for _, name := range Names() {
		for _, a := range []Aggregation{Mean, Sym, Plain} {
			for _, weighted := range []bool{false, true} {
				c := methodCase{name: name, options: Options{Fanouts: []int{4, 3}, Aggregation: a}, weighted: weighted,
					unbiased: true}
				switch name {
				case "saint-rw":
					c.tolerance = 0.04
				case "locality":
					c.options.Cached = func(u uint32) bool { return u%3 == 0 }
					c.options.Debias = true
					c.options.Bias = 4
				}
				if kind := methodKinds[name]; kind.layerWise {
					c.unbiased = !kind.replace // else only with replacement
					c.options.Fanouts = []int{14, 12}
				}
				cases = append(cases, c)
				if methodKinds[name].replace {
					c.options.Replace, c.unbiased = true, !methodKinds[name].normalized
					cases = append(cases, c)
				}
				if name == "neighbor" && weighted {
					c.options.ByWeight = true
					cases = append(cases, c)
					c.options.Replace = false
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

func TestMiniBatchesFitTheGraph(t *testing.T) {
	for _, c := range methodCases() {
		t.Run(c.String(), func(t *testing.T) {
			g := smallGraph(c.weighted)
			s := newTestMethod(t, c.name, g, c.options)
			var b MiniBatch
			for i, seeds := range [][]uint32{{0, 1, 5, 7}, {1}, {}, {59, 58, 57, 2, 3, 0}} {
				if err := s.Sample(t.Context(), &b, seeds, Key(1, 2, i)); err != nil {
					t.Fatal(err)
				}
				checkBatch(t, g, &b, c.options.Aggregation, c.repeats())
			}
		})
	}
}

// The mean of 2000 draws of the product with a matrix of ones and of node numbers is compared with
// the exact product; 6 standard errors, as the draws show them, are allowed. A coefficient that is
// wrong by a tenth would be further away than that for most destinations.
func TestEstimatesAreUnbiased(t *testing.T) {
	const draws = 2000
	for _, c := range methodCases() {
		if !c.unbiased {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			g := smallGraph(c.weighted)
			o := c.options
			o.Fanouts = o.Fanouts[:1]
			s := newTestMethod(t, c.name, g, o)
			want := matrix64(g, o.Aggregation)
			seeds := []uint32{0, 1, 5, 7, 8, 12, 33, 59}
			var b MiniBatch
			var sum, squares [60][2]float64
			var times [60]float64 // that a graph-wise method has chosen the node
			for i := range draws {
				if err := s.Sample(t.Context(), &b, seeds, Key(9, 0, i)); err != nil {
					t.Fatal(err)
				}
				block := &b.Blocks[0]
				for v := range block.Destinations {
					var y [2]float64
					for e := block.Offsets[v]; e < block.Offsets[v+1]; e++ {
						y[0] += float64(block.Weights[e])
						y[1] += float64(block.Weights[e]) * float64(b.Inputs[block.Indices[e]]%7)
					}
					node := b.Seeds[v]
					times[node]++
					for k := range y {
						sum[node][k] += y[k]
						squares[node][k] += y[k] * y[k]
					}
				}
			}
			for _, v := range seeds {
				if times[v] == 0 && methodKinds[c.name].graphWise && len(g.In(int64(v))) == 0 {
					continue // it is in no edge
				}
				var exact [2]float64
				for u, w := range want[v] {
					exact[0] += w
					exact[1] += w * float64(u%7)
				}
				for k := range exact {
					mean := sum[v][k] / times[v]
					deviation := math.Sqrt(max(0, squares[v][k]/times[v]-mean*mean) / times[v])
					if !(math.Abs(mean-exact[k]) <= 6*deviation+(c.tolerance+1e-5)*(1+exact[k])) {
						t.Errorf("node %d, feature %d: mean %.4f ± %.4f, want %.4f (a sampler that is biased on "+
							"purpose says so in methodCases)", v, k, mean, deviation, exact[k])
					}
				}
			}
		})
	}
}

// Which batches another goroutine has sampled before makes no difference.
func TestABatchIsAFunctionOfSeedEpochAndBatch(t *testing.T) {
	const batches = 24
	for _, c := range methodCases() {
		g := smallGraph(c.weighted)
		s := newTestMethod(t, c.name, g, c.options)
		seeds := func(i int) []uint32 { return []uint32{uint32(i), uint32(i + 7), 59} }
		var want [batches]MiniBatch
		var b MiniBatch
		for i := range want {
			if err := s.Sample(t.Context(), &b, seeds(i), Key(1, i%3, i)); err != nil {
				t.Fatal(err)
			}
			want[i] = clone(&b)
		}
		var wg sync.WaitGroup
		for worker := range 3 {
			wg.Go(func() {
				var b MiniBatch
				for i := batches - 1 - worker; i >= 0; i -= 3 {
					if err := s.Sample(t.Context(), &b, seeds(i), Key(1, i%3, i)); err != nil {
						t.Error(err)
						return
					}
					if !equal(&b, &want[i]) {
						t.Errorf("%v: batch %d differs", c, i)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestSamplesOfAKeyDifferFromThoseOfOthers(t *testing.T) {
	g := smallGraph(false)
	s := newTestMethod(t, "neighbor", g, Options{Fanouts: []int{4, 4}})
	seen := map[string]bool{}
	var b MiniBatch
	for seed := range uint64(3) {
		for epoch := range 3 {
			for batch := range 3 {
				if err := s.Sample(t.Context(), &b, []uint32{0, 2, 4}, Key(seed, epoch, batch)); err != nil {
					t.Fatal(err)
				}
				seen[fmt.Sprint(b)] = true
			}
		}
	}
	if len(seen) != 27 {
		t.Errorf("%d different batches of 27 keys", len(seen))
	}
}

// Each of the 10 subsets of 3 out of 5 comes as often: chi-square with 9 degrees of freedom is above 33.7 in one case
// of 10000. For 100 in-neighbours, that of each edge's count (99 degrees) is above 161 as often.
func TestSubsetsAreUniform(t *testing.T) {
	const draws = 20000
	few := make([]uint32, 5)
	many := make([]uint32, 100)
	for i := range many {
		few[i%5] = uint32(i % 5)
		many[i] = uint32(i)
	}
	lists := make([][]uint32, 100)
	lists[0], lists[1] = few, many
	s := newTestMethod(t, "neighbor", fromLists(lists, false), Options{Fanouts: []int{3}})
	subsets, edges := map[uint64]float64{}, make([]float64, 100)
	var b MiniBatch
	for i := range draws {
		if err := s.Sample(t.Context(), &b, []uint32{0, 1}, Key(5, 0, i)); err != nil {
			t.Fatal(err)
		}
		block := &b.Blocks[0]
		subset := uint64(0)
		for _, u := range block.Indices[:block.Offsets[1]] {
			subset |= 1 << b.Inputs[u]
		}
		subsets[subset]++
		for _, u := range block.Indices[block.Offsets[1]:] {
			edges[b.Inputs[u]]++
		}
	}
	chi := 0.0
	for _, n := range subsets {
		chi += (n - draws/10) * (n - draws/10) / (draws / 10)
	}
	if len(subsets) != 10 || chi > 33.7 {
		t.Errorf("%d subsets, chi-square %.1f", len(subsets), chi)
	}
	chi = 0
	for _, n := range edges {
		chi += (n - 3*draws/100) * (n - 3*draws/100) / (3 * draws / 100)
	}
	if chi > 161 {
		t.Errorf("chi-square of edges %.1f", chi)
	}
}

func TestSamplingAllocatesNothingAfterWarmUp(t *testing.T) {
	for _, c := range methodCases() {
		s := newTestMethod(t, c.name, smallGraph(c.weighted), c.options)
		var b MiniBatch
		seeds := []uint32{0, 1, 5, 7, 12, 40}
		sample := func() {
			for i := range 20 {
				if err := s.Sample(t.Context(), &b, seeds, Key(1, 0, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sample()
		if n := testing.AllocsPerRun(3, sample); n > 0 { // of the mean; once in a while the runtime allocates
			t.Errorf("%v: %v allocations", c, n)
		}
	}
}

func TestWhatCannotBeSampledIsRefused(t *testing.T) {
	g := smallGraph(false)
	for _, c := range []struct {
		name, sampler string
		options       Options
		seeds         []uint32
		want          string
	}{
		{"an unknown name", "neighbour", Options{Fanouts: []int{1}}, nil,
			`no sampler is called "neighbour": there are `},
		{"no layers", "neighbor", Options{}, nil, "needs fanouts"},
		{"a fanout of none", "neighbor", Options{Fanouts: []int{5, 0}}, nil, "fanout 0 of layer 1"},
		{"a negative fanout", "neighbor", Options{Fanouts: []int{-2}}, nil, "fanout -2 of layer 0"},
		{"an unknown aggregation", "neighbor", Options{Fanouts: []int{1}, Aggregation: "sum"}, nil,
			`no aggregation is called "sum"`},
		{"a repeated seed", "neighbor", Options{Fanouts: []int{1}}, []uint32{7, 3, 9, 3},
			"seeds 1 and 3 are both node 3"},
		{"a node that is not there", "neighbor", Options{Fanouts: []int{1}}, []uint32{7, 60},
			"seed 1 is node 60: the graph has 60 nodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := NewMethod(context.Background(), c.sampler, InMemory(g), c.options)
			if err == nil {
				err = m.Sample(t.Context(), new(MiniBatch), c.seeds, 1)
				if err == nil {
					err = m.Sample(t.Context(), new(MiniBatch), []uint32{1, 2}, 1)
				} else if again := m.Sample(t.Context(), new(MiniBatch), []uint32{1, 2}, 1); again != nil {
					t.Errorf("after the error: %v", again)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestLocalIDsAreForgottenBeforeTheyOverflow(t *testing.T) {
	r, err := newRelabeler(4)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.base = math.MaxUint32 - 9
	local := make([]uint32, 3)
	var known []uint32
	for range 10 {
		r.forget()
		known = r.add(known[:0], []uint32{3, 1, 3}, local)
		if !slices.Equal(known, []uint32{3, 1}) || !slices.Equal(local, []uint32{0, 1, 0}) {
			t.Fatalf("base %d: known %v, local ids %v", r.base, known, local)
		}
		known = r.add(known, []uint32{2, 1, 0}, local)
		if !slices.Equal(known, []uint32{3, 1, 2, 0}) || !slices.Equal(local, []uint32{2, 1, 3}) {
			t.Fatalf("base %d: known %v, local ids %v", r.base, known, local)
		}
	}
}

func TestPreparingASamplerCanBeInterrupted(t *testing.T) {
	g := smallGraph(false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range []string{"fastgcn", "saint-node", "saint-rw"} {
		if m, err := NewMethod(ctx, name, InMemory(g), Options{Fanouts: []int{2, 2}, Aggregation: Sym}); !errors.Is(err,
			context.Canceled) || m != nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

// endingContext ends when it has been looked at so many times.
type endingContext struct {
	context.Context
	looks, most int
}

func (c *endingContext) Err() error {
	if c.looks++; c.looks > c.most {
		return context.Canceled
	}
	return nil
}

// However long a sample takes, it looks at its context again and again: among nodes, and among draws.
func TestSamplingCanBeInterrupted(t *testing.T) {
	for _, c := range methodCases() {
		s := newTestMethod(t, c.name, smallGraph(c.weighted), c.options)
		if err := s.Sample(&endingContext{Context: t.Context()}, new(MiniBatch), []uint32{0, 1, 5}, 1); !errors.Is(err,
			context.Canceled) {
			t.Errorf("%v: %v", c, err)
		}
		if err := s.Sample(t.Context(), new(MiniBatch), []uint32{0, 1, 5}, 1); err != nil {
			t.Errorf("%v, after an interruption: %v", c, err)
		}
	}
	for _, c := range []struct {
		name   string
		fanout int
		seeds  int
		looks  int // at least, in a whole sample
	}{
		{"ladies", 8 * checkedDraws, 2, 8},
		{"fastgcn-flat", 8 * checkedDraws, 2, 8},
		{"locality", 4 * checkedDraws, 2, 8},
		{"neighbor", checkedDraws, 8, 8},
		{"saint-node", 1, 3 * checkedDraws, 3},
	} {
		o := Options{Fanouts: []int{c.fanout}, Replace: c.name != "saint-node"}
		if c.name == "locality" {
			o.Cached = func(v uint32) bool { return v%2 == 0 }
		}
		s := newTestMethod(t, c.name, smallGraph(false), o)
		seeds := make([]uint32, c.seeds)
		for i := range seeds {
			seeds[i] = uint32(i + 10)
		}
		ctx := &endingContext{Context: t.Context(), most: math.MaxInt}
		if err := s.Sample(ctx, new(MiniBatch), seeds, 1); err != nil || ctx.looks < c.looks {
			t.Errorf("%s looks %d times whether it goes on, want %d; %v", c.name, ctx.looks, c.looks, err)
		}
		if err := s.Sample(&endingContext{Context: t.Context(), most: ctx.looks / 2}, new(MiniBatch), seeds,
			1); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, interrupted after half of it: %v", c.name, err)
		}
	}
}

func TestAReservoirHasTheDrawsOfLeastTime(t *testing.T) {
	for _, c := range []struct{ candidates, k int }{{0, 3}, {5, 9}, {300, 1}, {300, 64}, {300, 65}, {300, 100},
		{300, 300}, {300, 1000}} {
		var r reservoir
		for round := range uint64(5) { // its memory is used again
			var want []draw
			r.begin(c.k)
			for i := range c.candidates {
				weight, hash := float64(i%7), rng.Hash(round, uint64(i))
				r.offer(uint32(i), weight, hash)
				if weight > 0 {
					want = append(want, draw{rng.Exponential(hash) / weight, weight, uint32(i)})
				}
			}
			r.finish()
			slices.SortFunc(want, func(a, b draw) int { return cmp.Compare(a.time, b.time) })
			if r.candidates != len(want) || !slices.Equal(r.draws, want[:min(c.k, len(want))]) {
				t.Fatalf("%d of %d candidates: %v", c.k, c.candidates, r.draws)
			}
		}
	}
}
