package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/features"
)

// typedLists are the relations of a typed graph as lists of in-neighbours: what samples are compared with.
type typedLists struct {
	typed  format.Typed
	firsts []uint32     // of types
	lists  [][][]uint32 // [relation][destination]: in-neighbours, as numbers of the one graph
	// weighted tells of each relation whether its edges have weights; nil: none has.
	weighted []bool
	mapped   bool
}

// weight is the weight of an edge, by its number in a relation.
func (g *typedLists) weight(relation int, edge int64) float32 {
	if g.weighted == nil || !g.weighted[relation] {
		return 1
	}
	return 0.25 + float32(edge*7%5) // as fromLists has it
}

func (g *typedLists) place(name string) int {
	return slices.IndexFunc(g.typed.Types, func(n format.NodeType) bool { return n.Name == name })
}

// newTypedLists has the types a, b and c, which no relation ends in, relations within a type, parallel ones, and one
// without edges. Node 0 of b has no in-neighbours, node 1 many.
func newTypedLists() *typedLists {
	g := &typedLists{firsts: []uint32{0, 40, 70}}
	g.typed.Target = "a"
	g.typed.Types = []format.NodeType{{Name: "a", Nodes: 40}, {Name: "b", Nodes: 30}, {Name: "c", Nodes: 20}}
	g.typed.Relations = []format.Relation{{Source: "a", Name: "cites", Destination: "a"},
		{Source: "a", Name: "of", Destination: "b"}, {Source: "b", Name: "empty", Destination: "b"},
		{Source: "b", Name: "of", Destination: "a"}, {Source: "c", Name: "of", Destination: "a"},
		{Source: "c", Name: "of", Destination: "b"}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range g.typed.Relations {
		r := &g.typed.Relations[i]
		from, to := g.place(r.Source), g.place(r.Destination)
		lists := make([][]uint32, g.typed.Types[to].Nodes)
		for v := range lists {
			for u := range uint32(g.typed.Types[from].Nodes) {
				many := r.Destination == "b" && v == 1
				if r.Name != "empty" && (many || random.Float64() < 0.2) && !(r.Destination == "b" && v == 0) {
					lists[v], r.Edges = append(lists[v], g.firsts[from]+u), r.Edges+1
				}
			}
		}
		g.lists = append(g.lists, lists)
	}
	return g
}

// topology is the graph as OpenTypedTopology reads it.
func (g *typedLists) topology(t *testing.T) Topology {
	t.Helper()
	fsys := vfs.OS()
	root := filepath.Join(t.TempDir(), "typed")
	for i := range g.typed.Relations {
		r := &g.typed.Relations[i]
		from, to := g.place(r.Source), g.place(r.Destination)
		local := make([][]uint32, len(g.lists[i]))
		for v, list := range g.lists[i] {
			for _, u := range list {
				local[v] = append(local[v], u-g.firsts[from])
			}
		}
		layout := format.NewLayout([]format.RegionSize{{Name: format.RegionAll, Rows: g.typed.Types[to].Nodes}}, 0, 0,
			format.Float32)
		if from != to {
			layout.SourceNodes = g.typed.Types[from].Nodes
		}
		dir := format.RelationDir(root, *r)
		w, err := format.Create(fsys, dir, layout, format.CreateOptions{})
		if err == nil {
			err = errors.Join(w.Topology(fromLists(local, g.weighted != nil && g.weighted[i])),
				w.Rows(&format.RowTable{Rows: g.typed.Types[to].Nodes}),
				w.Publish(&format.Manifest{}))
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := format.OpenRelation(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		r.Fingerprint = d.Manifest.Fingerprint
		d.Close()
	}
	topology, err := OpenTypedTopology(t.Context(), fsys, root, &g.typed, g.mapped, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { topology.Close() })
	return topology
}

func (g *typedLists) method(t *testing.T, name string, o Options) *Method {
	t.Helper()
	m, err := NewMethod(t.Context(), name, g.topology(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// checkBlock compares a block with the relations, for these of its destinations that have edges: of each list, fanout
// distinct in-neighbours, or all, with coefficients of the mean, by the numbers of edges too.
func (g *typedLists) checkBlock(t *testing.T, b *Block, nodes []uint32, fanoutOf func(destination int) int, mean bool) {
	t.Helper()
	row, edge := 0, int64(0) // of the block; the first of the relation in the graph
	for i, r := range g.typed.Relations {
		to := g.place(r.Destination)
		starts, relation := []int64{edge}, edge // of lists
		for _, list := range g.lists[i] {
			starts = append(starts, starts[len(starts)-1]+int64(len(list)))
		}
		edge = starts[len(starts)-1]
		for d, v := range nodes[:b.Destinations] {
			at := int(v) - int(g.firsts[to])
			if at < 0 || at >= len(g.lists[i]) {
				continue
			}
			list, fanout := g.lists[i][at], fanoutOf(d)
			if fanout == All {
				fanout = len(list)
			}
			first, end := int(b.Offsets[row]), int(b.Offsets[row+1])
			if row++; end-first != min(fanout, len(list)) {
				t.Fatalf("%s: node %d has %d edges of %d with fanout %d", r, v, end-first, len(list), fanout)
			}
			var seen []uint32
			for k := first; k < end; k++ {
				u := nodes[b.Indices[k]]
				weight := g.weight(i, b.Edges[k]-relation)
				if mean {
					total := float32(0)
					for e := range list {
						total += g.weight(i, starts[at]-relation+int64(e))
					}
					weight *= float32(len(list)) / total / float32(end-first)
				}
				if e := b.Edges[k] - starts[at]; e < 0 || e >= int64(len(list)) || list[e] != u || slices.Contains(seen, u) ||
					max(weight-b.Weights[k], b.Weights[k]-weight) > 1e-6 {
					t.Fatalf("%s: edge %d of node %d comes from %d, with weight %v, after %v", r, b.Edges[k], v, u, b.Weights[k],
						seen)
				}
				seen = append(seen, u)
			}
		}
	}
	if row != len(b.Offsets)-1 || int(b.Offsets[row]) != len(b.Indices) {
		t.Fatalf("%d rows and %d edges of %d and %d", row, b.Offsets[row], len(b.Offsets)-1, len(b.Indices))
	}
}

// someWeighted are relations with weights, and others without, of newTypedLists.
var someWeighted = []bool{true, false, false, true, false, true}

func TestBlocksOfATypedGraphAreSampledByRelation(t *testing.T) {
	g := newTypedLists()
	seeds := []uint32{3, 41, 40, 39, 70, 0} // of all types; 40 and 70 have no in-neighbours
	for _, c := range []struct {
		name     string
		fanouts  []int
		weighted []bool
	}{{"neighbor", []int{3, 2}, nil}, {"neighbor", []int{1, All, 2}, nil}, {"full", []int{1, 1}, nil},
		{"neighbor", []int{3, 2}, someWeighted}, {"full", []int{1, 1}, someWeighted}} {
		g.weighted = c.weighted
		o := Options{Fanouts: c.fanouts, EdgeIDs: true}
		m := g.method(t, c.name, o)
		g.mapped = !g.mapped // from files
		other := g.method(t, c.name, o)
		var b, again MiniBatch
		for key := range 20 {
			if err := m.Sample(t.Context(), &b, seeds, Key(1, 0, key)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(b.Inputs[:len(seeds)], seeds) {
				t.Fatalf("inputs %v", b.Inputs)
			}
			for i := range b.Blocks {
				fanout := c.fanouts[len(c.fanouts)-1-i]
				if c.name == "full" {
					fanout = All
				}
				g.checkBlock(t, &b.Blocks[i], b.Inputs, func(int) int { return fanout }, true)
			}
			if err := other.Sample(t.Context(), &again, seeds, Key(1, 0, key)); err != nil {
				t.Fatal(err)
			}
			if !equal(&b, &again) {
				t.Fatal("another sampler makes another batch")
			}
		}
	}
}

func TestASubgraphOfATypedGraphHasTheEdgesOfEachNodeOnce(t *testing.T) {
	for _, weighted := range [][]bool{nil, someWeighted} {
		checkSubgraphs(t, weighted)
	}
}

func checkSubgraphs(t *testing.T, weighted []bool) {
	g := newTypedLists()
	g.weighted = weighted
	seeds, fanouts := []uint32{3, 41, 40, 39, 70, 0}, []int{2, 1}
	m := g.method(t, "neighbor", Options{Fanouts: fanouts, EdgeIDs: true, Subgraph: Directional})
	one := g.method(t, "neighbor", Options{Fanouts: fanouts[:1], EdgeIDs: true, Subgraph: Directional})
	var b, first MiniBatch
	for key := range 20 {
		if err := m.Sample(t.Context(), &b, seeds, Key(1, 0, key)); err != nil {
			t.Fatal(err)
		}
		if err := one.Sample(t.Context(), &first, seeds, Key(1, 0, key)); err != nil {
			t.Fatal(err)
		}
		reached := len(first.Inputs) // within one layer
		g.checkBlock(t, &b.Blocks[0], b.Inputs, func(destination int) int {
			switch {
			case destination < len(seeds):
				return fanouts[0]
			case destination < reached:
				return fanouts[1]
			}
			return 0
		}, false)
	}
}

// Each of the 10 pairs of in-neighbours of a node with 5 comes as often, in each of its relations: see
// TestSubsetsAreUniform.
func TestSubsetsOfARelationAreUniform(t *testing.T) {
	g := &typedLists{firsts: []uint32{0, 10}}
	g.typed.Types = []format.NodeType{{Name: "a", Nodes: 10}, {Name: "b", Nodes: 1}}
	g.typed.Relations = []format.Relation{{Source: "a", Name: "p", Destination: "b", Edges: 5},
		{Source: "a", Name: "q", Destination: "b", Edges: 5}}
	g.lists = [][][]uint32{{{0, 1, 2, 3, 4}}, {{3, 5, 6, 8, 9}}}
	m := g.method(t, "neighbor", Options{Fanouts: []int{2}})
	const draws = 20000
	counts := [2]map[[2]uint32]float64{{}, {}}
	both := map[[4]uint32]float64{}
	var b MiniBatch
	for i := range draws {
		if err := m.Sample(t.Context(), &b, []uint32{10}, Key(5, 0, i)); err != nil {
			t.Fatal(err)
		}
		var chosen [4]uint32
		for k, u := range b.Blocks[0].Indices {
			chosen[k] = b.Inputs[u]
		}
		slices.Sort(chosen[:2])
		slices.Sort(chosen[2:])
		counts[0][[2]uint32(chosen[:2])]++
		counts[1][[2]uint32(chosen[2:])]++
		both[chosen]++
	}
	chi := func(n, of float64) float64 { return (n - draws/of) * (n - draws/of) / (draws / of) }
	for i := range counts {
		sum := 0.0
		for _, n := range counts[i] {
			sum += chi(n, 10)
		}
		if len(counts[i]) != 10 || sum > 33.7 {
			t.Errorf("relation %d: %d subsets, chi-square %.1f", i, len(counts[i]), sum)
		}
	}
	sum := 0.0 // relations do not depend on each other: 99 degrees of freedom
	for _, n := range both {
		sum += chi(n, 100)
	}
	if len(both) != 100 || sum > 161 {
		t.Errorf("%d pairs of subsets, chi-square %.1f", len(both), sum)
	}
}

// Draws by weight take an in-neighbour as often as its share of its relation's weights says: 4 degrees of freedom each.
func TestARelationIsSampledByItsWeights(t *testing.T) {
	g := &typedLists{firsts: []uint32{0, 10}, weighted: []bool{true, false}}
	g.typed.Types = []format.NodeType{{Name: "a", Nodes: 10}, {Name: "b", Nodes: 1}}
	g.typed.Relations = []format.Relation{{Source: "a", Name: "p", Destination: "b", Edges: 5},
		{Source: "a", Name: "q", Destination: "b", Edges: 5}}
	g.lists = [][][]uint32{{{0, 1, 2, 3, 4}}, {{3, 5, 6, 8, 9}}}
	m := g.method(t, "neighbor", Options{Fanouts: []int{2}, ByWeight: true, Replace: true})
	const draws = 20000
	counts := [2]map[uint32]float64{{}, {}}
	var b MiniBatch
	for i := range draws / 2 {
		if err := m.Sample(t.Context(), &b, []uint32{10}, Key(5, 0, i)); err != nil {
			t.Fatal(err)
		}
		for k, u := range b.Blocks[0].Indices {
			if counts[k/2][b.Inputs[u]]++; math.Abs(float64(b.Blocks[0].Weights[k])-0.5) > 1e-6 {
				t.Fatalf("coefficient %v of one of two draws by weight", b.Blocks[0].Weights[k])
			}
		}
	}
	for r, list := range g.lists {
		sum, total := 0.0, 0.0
		for e := range list[0] {
			total += float64(g.weight(r, int64(e)))
		}
		for e, u := range list[0] {
			want := draws * float64(g.weight(r, int64(e))) / total
			sum += (counts[r][u] - want) * (counts[r][u] - want) / want
		}
		if sum > 18.5 {
			t.Errorf("relation %d: %v, chi-square %.1f", r, counts[r], sum)
		}
	}
}

func TestWhatCannotBeSampledOfATypedGraphIsRefused(t *testing.T) {
	topology := newTypedLists().topology(t)
	for text, o := range map[string]Options{
		"neither disjoint nor induced": {Fanouts: []int{2}, Subgraph: Induced},
		"means over relations":         {Fanouts: []int{2}, Aggregation: Sym},
		"no weights to draw by":        {Fanouts: []int{2}, ByWeight: true},
		"without numbers of edges":     {Fanouts: []int{2}, ByType: true, EdgeIDs: true},
	} {
		if _, err := NewMethod(t.Context(), "neighbor", topology, o); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	}
	for _, name := range Names() {
		m, err := NewMethod(t.Context(), name, topology, Options{Fanouts: []int{2}})
		if name == "neighbor" || name == "full" {
			if err != nil {
				t.Fatal(err)
			}
			m.Close()
		} else if !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Blocks by type have the same edges, each node's own, and the rows of each node.
func TestBlocksByTypeHaveTheSampledEdges(t *testing.T) {
	g := newTypedLists()
	seeds, fanouts := []uint32{3, 41, 40, 39, 70, 0}, []int{3, All, 2}
	plain, byType := g.method(t, "neighbor", Options{Fanouts: fanouts}),
		g.method(t, "neighbor", Options{Fanouts: fanouts, ByType: true})
	kindOf := func(v uint32) int {
		return max(0, slices.IndexFunc(append(g.firsts[1:], 90), func(n uint32) bool { return v < n }))
	}
	var want, b MiniBatch
	for key := range 10 {
		for m, to := range map[*Method]*MiniBatch{plain: &want, byType: &b} {
			if err := m.Sample(t.Context(), to, seeds, Key(1, 0, key)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(b.Seeds, seeds) || len(b.Blocks) != 6 || len(b.Types) != 4 || b.Types[3] != len(want.Inputs) ||
			slices.ContainsFunc([]int{0, 1, 2}, func(kind int) bool {
				return slices.ContainsFunc(b.OfType(kind), func(v uint32) bool { return kindOf(g.firsts[kind]+v) != kind })
			}) {
			t.Fatalf("%d blocks, types %v, inputs %v", len(b.Blocks), b.Types, b.Inputs)
		}
		for i := range want.Blocks {
			from, along, sums := &want.Blocks[i], &b.Blocks[2*i], &b.Blocks[2*i+1]
			relations := len(from.Offsets) - 1
			rows := relations + from.Destinations
			if along.Destinations != rows || len(along.Offsets) != rows+1 || sums.Sources != rows ||
				along.Sources != from.Sources || sums.Destinations != from.Destinations || len(along.Parts) != 10 ||
				int(along.Parts[6]) != relations || int(along.Parts[9]) != rows {
				t.Fatalf("block %d: %d rows to %d of %d, parts %v", i, rows, sums.Destinations, from.Destinations, along.Parts)
			}
			source := func(row int, e uint32) uint32 { // as a node
				at := int(along.Indices[e])
				if i > 0 {
					return want.Inputs[at]
				}
				part, kind := 0, 0
				for int(along.Parts[part+1]) <= row {
					part++
				}
				if kind = part - 6; part < 6 {
					kind = g.place(g.typed.Relations[part].Source)
				}
				return g.firsts[kind] + b.Inputs[b.Types[kind]+at]
			}
			seen := make([]int, from.Destinations) // rows of each node
			for v := range seen {
				for _, row := range sums.Indices[sums.Offsets[v]:sums.Offsets[v+1]] {
					if seen[v]++; int(row) >= relations { // the last: the node by itself
						e := along.Offsets[row]
						if u := source(int(row), e); u != want.Inputs[v] || along.Weights[e] != 1 || along.Offsets[row+1] != e+1 {
							t.Fatalf("node %d by itself is %d, with weight %v", want.Inputs[v], u, along.Weights[e])
						}
					}
				}
			}
			row := 0
			for _, r := range g.typed.Relations {
				for v, node := range want.Inputs[:from.Destinations] {
					if kindOf(node) != g.place(r.Destination) {
						continue
					}
					if from.Offsets[row+1] != along.Offsets[row+1] ||
						!slices.Contains(sums.Indices[sums.Offsets[v]:sums.Offsets[v+1]], uint32(row)) {
						t.Fatalf("%s: row %d of node %d", r, row, node)
					}
					for e := from.Offsets[row]; e < from.Offsets[row+1]; e++ {
						if u := want.Inputs[from.Indices[e]]; source(row, e) != u || from.Weights[e] != along.Weights[e] {
							t.Fatalf("%s: an edge of node %d from %d, not %d", r, node, source(row, e), u)
						}
					}
					seen[v]--
					row++
				}
			}
			if slices.ContainsFunc(seen, func(n int) bool { return n != 1 }) || len(sums.Indices) != rows {
				t.Fatalf("rows beside those of relations: %v", seen)
			}
		}
	}
}

// countedLists counts the calls that read lists of a relation.
type countedLists struct {
	Topology
	calls *atomic.Int64
}

func (t countedLists) Lists(nodes []uint32, lists []List) error {
	t.calls.Add(1)
	return t.Topology.Lists(nodes, lists)
}

// Optimal caches of types read the batches ahead in one pass, and hit as often as caches that read them alone.
func TestOptimalCachesOfTypesReadAheadTogether(t *testing.T) {
	g, calls := newTypedLists(), new(atomic.Int64)
	m := g.method(t, "neighbor", Options{Fanouts: []int{3, 2}, ByType: true})
	for i := range m.typed.relations {
		r := &m.typed.relations[i]
		r.Topology = countedLists{r.Topology, calls}
	}
	nodes, plan := make([]uint32, 40), chunk.Plan{BatchRows: 4, ChunkRows: 1, Order: chunk.Shuffled, Seed: 3}
	for i := range nodes {
		nodes[i] = uint32(i)
	}
	epochs := NewEpochs(m, nodes, plan)
	visit := func(first int, do func(*MiniBatch) bool) {
		if err := epochs.Visit(t.Context(), 1, 1, 0, first, 10, do); err != nil {
			t.Fatal(err)
		}
	}
	visit(0, func(*MiniBatch) bool { return true })
	once := calls.Load()
	device := testdevice.Open(t, host.Options{Threads: 2})
	stream, err := device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for _, traceRows := range []int64{1 << 20, 150} { // one window; several, which end at other batches by type
		o := CacheOptions{Topology: m.topology, RowBytes: []int64{4, 4, 4}, Method: m, Nodes: nodes, Plan: plan,
			TraceRows: traceRows}
		spec, want := cache.Spec{Policy: "optimal", Rows: 24}, int64(0)
		alone, err := OpenCaches(t.Context(), spec, o)
		together, err2 := OpenCaches(t.Context(), spec, o)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		lo, windows := LoaderOptions{Device: device, Workers: 1}, 0
		for kind, c := range alone {
			ends, found := 0, cache.Lookup{}
			var batches [][]uint32
			visit(0, func(b *MiniBatch) bool {
				batches = append(batches, slices.Clone(b.OfType(kind)))
				return true
			})
			for at, inputs := range batches {
				if at == ends {
					_, n := c.Begin(0, slices.Values(batches[at:]))
					ends, windows = at+n, windows+1
				}
				c.Lookup(inputs, &found)
				want += int64(found.Hits())
			}
			rows := g.typed.Types[kind].Nodes
			lo.Types = append(lo.Types, TypeRows{Features: features.InMemory(make([]byte, 4*rows), 1, 1),
				Cache: together[kind].Cache})
		}
		l, err := Open(lo)
		if err != nil {
			t.Fatal(err)
		}
		set, err := l.Set(nodes, m, plan)
		if err != nil {
			t.Fatal(err)
		}
		calls.Store(0)
		for _, err := range set.EpochFrom(t.Context(), stream, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
		passes := float64(calls.Load()) / float64(once)
		if hits := l.Stats().Cache.Hits; hits != want || want == 0 {
			t.Errorf("%d rows ahead: %d hits, and %d by caches that read alone", traceRows, hits, want)
		}
		if windows == 3 && passes != 2 || windows == 3 != (traceRows > 150) {
			t.Errorf("%d rows ahead: %d windows, lists are read %v times as often as without caches", traceRows, windows,
				passes)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
