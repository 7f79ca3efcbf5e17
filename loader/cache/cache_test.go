package cache

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// trace makes batches of distinct nodes; some nodes are much more common than others, as in
// graphs, and some batches are empty.
func trace(r *rand.Rand, nodes, batches, most int) [][]uint32 {
	out := make([][]uint32, batches)
	for b := range out {
		seen := make(map[uint32]bool)
		for range r.IntN(most + 1) {
			node := uint32(float64(nodes) * math.Pow(r.Float64(), 3))
			if !seen[node] {
				seen[node] = true
				out[b] = append(out[b], node)
			}
		}
	}
	return out
}

// memory moves row numbers as a loader moves rows, and fails where a row is not its node's.
type memory struct {
	t     *testing.T
	slots []uint32
}

func newMemory(t *testing.T, c *Cache) *memory {
	m := &memory{t, make([]uint32, c.Slots())}
	fill(m.slots, none)
	return m
}

func (m *memory) load(l Load) {
	for i, node := range l.Nodes {
		m.slots[l.Slots[i]] = node
	}
}

func (m *memory) serve(nodes []uint32, l *Lookup) {
	m.t.Helper()
	for i, at := range l.Index {
		var row uint32
		if int(at) < len(m.slots) {
			row = m.slots[at]
		} else {
			row = l.Misses[int(at)-len(m.slots)]
		}
		if row != nodes[i] {
			m.t.Fatalf("row %d of the batch is that of node %d, want %d", i, row, nodes[i])
		}
	}
	seen := make(map[uint32]bool)
	for i, slot := range l.Into {
		if seen[slot] {
			m.t.Fatalf("two rows for slot %d", slot)
		}
		seen[slot] = true
		m.slots[slot] = l.Misses[i]
	}
}

// counts are rows.
type counts struct{ Lookups, Hits, Loaded int64 }

// run looks up all batches, and checks that every row is that of its node.
func run(t *testing.T, c *Cache, epochs [][][]uint32) (s counts) {
	t.Helper()
	m := newMemory(t, c)
	var l Lookup
	for epoch, batches := range epochs {
		for b := 0; b < len(batches); {
			load, n := c.Begin(epoch, slices.Values(batches[b:]))
			m.load(load)
			s.Loaded += int64(len(load.Nodes))
			for end := min(len(batches)-b, n) + b; b < end; b++ {
				hits := 0
				for _, node := range batches[b] {
					if c.Contains(node) {
						hits++
					}
				}
				c.Lookup(batches[b], &l)
				m.serve(batches[b], &l)
				if l.Hits() != hits {
					t.Fatalf("%d hits, want %d", l.Hits(), hits)
				}
				s.Lookups, s.Hits = s.Lookups+int64(len(batches[b])), s.Hits+int64(hits)
			}
		}
	}
	return s
}

// open opens a cache of so many slots.
func open(t *testing.T, policy string, slots int, in Inputs) *Cache {
	t.Helper()
	in.RowBytes = 1
	o, err := Spec{Policy: policy, Rows: int64(slots)}.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	return o.Cache
}

func openGNS(t *testing.T, slots int, weights []float32) *Cache {
	t.Helper()
	return open(t, "gns", slots, Inputs{Nodes: int64(len(weights)), Seed: 5,
		Reach: func() ([]float32, error) { return weights, nil }})
}

func allCaches(t *testing.T, nodes, slots int, seed uint64, epochs [][][]uint32) []*Cache {
	visits, weights := make([]uint32, nodes), make([]float32, nodes)
	for _, nodes := range epochs[0] {
		for _, node := range nodes {
			visits[node]++
			weights[node]++
		}
	}
	in := Inputs{Nodes: int64(nodes), Seed: seed, Visits: func() ([]uint32, error) { return visits, nil },
		Reach: func() ([]float32, error) { return weights, nil }, TraceRows: math.MaxInt64}
	var out []*Cache
	for _, policy := range []string{"optimal", "presampled", "fifo", "lru", "gns"} {
		out = append(out, open(t, policy, slots, in))
	}
	return out
}

// Against every other policy, at every size, and by both measures: rows that were there, where
// filling a cache is free, and rows that were moved at all.
func TestNoPolicyBeatsTheOptimalCache(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := 1 + r.IntN(60)
		epochs := [][][]uint32{trace(r, nodes, 1+r.IntN(30), 20)}
		for _, slots := range []int{1, 2, 5, 17, nodes} {
			var best counts
			for i, c := range allCaches(t, nodes, slots, seed, epochs) {
				s := run(t, c, epochs)
				if i == 0 {
					best = s
					continue
				}
				if s.Hits > best.Hits {
					t.Errorf("seed %d, %d slots: %s has %d hits of %d, optimal %d", seed, slots, c.Policy(), s.Hits,
						s.Lookups, best.Hits)
				}
				if moved, least := s.Lookups-s.Hits+s.Loaded, best.Lookups-best.Hits+best.Loaded; moved < least {
					t.Errorf("seed %d, %d slots: %s moves %d rows, optimal %d", seed, slots, c.Policy(), moved, least)
				}
			}
		}
	}
}

// bestHits is the largest number of hits that any choice of contents has, by trying all.
func bestHits(batches [][]uint32, slots int) int {
	all := make(map[uint32]bool)
	for _, nodes := range batches {
		for _, node := range nodes {
			all[node] = true
		}
	}
	subsets := func(from uint32) (out []uint32) {
		for s := from; ; s = (s - 1) & from {
			count := 0
			for x := s; x > 0; x &= x - 1 {
				count++
			}
			if count <= slots {
				out = append(out, s)
			}
			if s == 0 {
				return out
			}
		}
	}
	everything := uint32(0)
	for node := range all {
		everything |= 1 << node
	}
	hits := make(map[uint32]int) // by content
	for _, s := range subsets(everything) {
		hits[s] = 0
	}
	for _, nodes := range batches {
		batch := uint32(0)
		for _, node := range nodes {
			batch |= 1 << node
		}
		after := make(map[uint32]int)
		for content, h := range hits {
			for x := content & batch; x > 0; x &= x - 1 {
				h++
			}
			for _, s := range subsets(content | batch) {
				if old, ok := after[s]; !ok || h > old {
					after[s] = h
				}
			}
		}
		hits = after
	}
	best := 0
	for _, h := range hits {
		best = max(best, h)
	}
	return best
}

func TestTheOptimalCacheHasAsManyHitsAsTryingAllContents(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		nodes := 1 + r.IntN(7)
		batches := trace(r, nodes, 1+r.IntN(8), 5)
		slots := 1 + r.IntN(3)
		c := open(t, "optimal", slots, Inputs{Nodes: int64(nodes), TraceRows: math.MaxInt64})
		if got, want := run(t, c, [][][]uint32{batches}).Hits, bestHits(batches, slots); got != int64(want) {
			t.Errorf("seed %d: %d hits of %v in %d slots, want %d", seed, got, batches, slots, want)
		}
	}
}

// In windows and over several epochs, some not finished.
func TestTheOptimalCacheGoesOnAfterItsWindow(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		nodes := 2 + r.IntN(40)
		epochs := make([][][]uint32, 3)
		for i := range epochs {
			epochs[i] = trace(r, nodes, 1+r.IntN(20), 15)
		}
		whole := open(t, "optimal", 7, Inputs{Nodes: int64(nodes), TraceRows: math.MaxInt64})
		windows := open(t, "optimal", 7, Inputs{Nodes: int64(nodes), TraceRows: int64(1 + r.IntN(60))})
		all, some := run(t, whole, epochs), run(t, windows, epochs)
		if all.Hits == 0 || some.Lookups != all.Lookups {
			t.Errorf("seed %d: %+v, in windows %+v", seed, all, some)
		}
		if reloaded := int64(3 * whole.Slots()); all.Loaded >= reloaded && all.Loaded > int64(nodes)*3 {
			t.Errorf("seed %d: %d rows were loaded", seed, all.Loaded)
		}
		// An epoch that is left, and one that begins anew.
		m, l := newMemory(t, whole), Lookup{}
		copy(m.slots, whole.nodeOf)
		for range 2 {
			load, _ := whole.Begin(0, slices.Values(epochs[0]))
			m.load(load)
			for _, nodes := range epochs[0][:len(epochs[0])/2] {
				whole.Lookup(nodes, &l)
				m.serve(nodes, &l)
			}
		}
	}
}

func TestTheOptimalCacheKeepsRowsFromOneEpochToTheNext(t *testing.T) {
	batches := [][]uint32{{0, 1}, {2, 3}, {0, 1}}
	c := open(t, "optimal", 2, Inputs{Nodes: 4, TraceRows: math.MaxInt64})
	s := run(t, c, [][][]uint32{batches, batches})
	// Rows 0 and 1 are loaded once, and stay.
	if s.Loaded != 2 || s.Hits != 8 {
		t.Errorf("%+v, want 2 rows loaded and 8 hits", s)
	}
}

// naive is what FIFO and LRU are, as a list with the next to go at its beginning.
type naive struct {
	slots  int
	rows   []uint32
	recent bool // LRU
}

func (n *naive) serve(nodes []uint32) (hits int) {
	there := slices.Clone(n.rows)
	for _, node := range nodes {
		at := slices.Index(n.rows, node)
		if slices.Contains(there, node) {
			hits++
		}
		if at >= 0 && !n.recent {
			continue
		}
		if at >= 0 {
			n.rows = slices.Delete(n.rows, at, at+1)
		}
		n.rows = append(n.rows, node)
	}
	n.rows = n.rows[max(0, len(n.rows)-n.slots):]
	return hits
}

func TestFIFOAndLRUAgreeWithANaiveModel(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		nodes := 1 + r.IntN(80)
		most := []int{1, 10, 100}[seed%3] // batches of one row, as textbooks have it, to larger than the cache
		batches := trace(r, nodes, 50, most)
		for _, recent := range []bool{false, true} {
			slots := 1 + r.IntN(40)
			c := open(t, map[bool]string{false: "fifo", true: "lru"}[recent], slots, Inputs{Nodes: int64(nodes)})
			model, m := naive{slots: c.Slots(), recent: recent}, newMemory(t, c)
			var l Lookup
			for b, nodes := range batches {
				c.Lookup(nodes, &l)
				m.serve(nodes, &l)
				if want := model.serve(nodes); l.Hits() != want {
					t.Fatalf("seed %d, %s, batch %d: %d hits, want %d", seed, c.Policy(), b, l.Hits(), want)
				}
				for node := range c.slotOf {
					if got, want := c.Contains(uint32(node)), slices.Contains(model.rows, uint32(node)); got != want {
						t.Fatalf("seed %d, %s, batch %d: node %d is cached: %t, want %t", seed, c.Policy(), b,
							node, got, want)
					}
				}
			}
		}
	}
}

func TestAStaticCacheHasTheHighestScores(t *testing.T) {
	for _, c := range []struct {
		scores []uint32
		slots  int
		want   []uint32
	}{
		{[]uint32{5, 1, 9, 5, 5}, 3, []uint32{0, 2, 3}},
		{[]uint32{0, 0, 0}, 2, []uint32{0, 1}},
		{[]uint32{7, math.MaxUint32, math.MaxUint32}, 2, []uint32{1, 2}},
		{[]uint32{7, math.MaxUint32, math.MaxUint32}, 1, []uint32{1}},
		{[]uint32{3, 2, 1}, 9, []uint32{0, 1, 2}},
		{nil, 9, nil},
	} {
		cache := open(t, "degree", c.slots, Inputs{Nodes: int64(len(c.scores)),
			OutDegrees: func() ([]uint32, error) { return c.scores, nil }})
		load, _ := cache.Begin(0, nil)
		if !slices.Equal(load.Nodes, c.want) {
			t.Errorf("of scores %v, %d slots hold %v, want %v", c.scores, c.slots, load.Nodes, c.want)
		}
		if load, _ = cache.Begin(1, nil); len(load.Nodes) != 0 {
			t.Errorf("the second epoch loads %v", load.Nodes)
		}
	}
}

// The chance that the first draw is a node is its share of the weights; with two slots the exact
// probabilities follow by summing over the first draw. Over 20,000 epochs the standard error is below
// 0.0036, so that 0.016 is more than four of them.
func TestGNSDrawsInProportionToWeights(t *testing.T) {
	weights := []float32{1, 2, 3, 4, 0}
	want := make([]float64, len(weights))
	for i, w := range weights {
		p := float64(w) / 10
		want[i] += p
		for j, v := range weights {
			if i != j {
				want[j] += p * float64(v) / (10 - float64(w))
			}
		}
	}
	c := openGNS(t, 2, weights)
	const epochs = 20000
	got := make([]float64, len(weights))
	for epoch := range epochs {
		c.Begin(epoch, nil)
		for node := range weights {
			if c.Contains(uint32(node)) {
				got[node]++
			}
		}
	}
	for node := range weights {
		if p := got[node] / epochs; math.Abs(p-want[node]) > 0.016 {
			t.Errorf("node %d is cached in %.4f of the epochs, want %.4f", node, p, want[node])
		}
	}
}

func TestGNSIsAFunctionOfTheEpoch(t *testing.T) {
	weights := make([]float32, 100)
	for i := range weights {
		weights[i] = float32(i)
	}
	content := func(c *Cache) string { return fmt.Sprint(slices.Sorted(slices.Values(c.nodeOf))) }
	one := openGNS(t, 10, weights)
	var seen []string
	m := newMemory(t, one)
	for epoch := range 4 {
		load, _ := one.Begin(epoch, nil)
		m.load(load)
		seen = append(seen, content(one))
		for slot, node := range one.nodeOf {
			if m.slots[slot] != node {
				t.Fatalf("epoch %d: slot %d has the row of node %d, want %d", epoch, slot, m.slots[slot], node)
			}
		}
	}
	other := openGNS(t, 10, weights)
	other.Begin(2, nil)
	if content(other) != seen[2] || seen[2] == seen[3] {
		t.Error("the content of an epoch depends on those before, or not on its number")
	}
	if load, _ := openGNS(t, 10, []float32{0, 1, 0}).Begin(0, nil); !slices.Equal(load.Nodes, []uint32{1}) {
		t.Errorf("one node can be reached, and %v are cached", load.Nodes)
	}
}

func TestJointIsAsGoodAsTheBestChoiceLessOneItem(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 6))
		kinds := [2]Items{}
		sizes := [2][]int64{}
		total, largest := int64(0), 0.0
		for k := range kinds {
			n := 1 + r.IntN(6)
			sizes[k] = make([]int64, n)
			for i := range n {
				sizes[k][i] = 1 + r.Int64N(20)
				total += sizes[k][i]
				kinds[k].Values = append(kinds[k].Values, float64(r.IntN(30)))
			}
			kinds[k].Bytes = func(node uint32) int64 { return sizes[k][node] }
			largest = max(largest, slices.Max(kinds[k].Values))
		}
		budget := r.Int64N(total + 2)
		best, first := 0.0, len(sizes[0])
		for subset := range 1 << (first + len(sizes[1])) {
			value, bytes := 0.0, int64(0)
			for i := range first + len(sizes[1]) {
				if subset>>i&1 == 1 {
					k, node := 0, i
					if i >= first {
						k, node = 1, i-first
					}
					value, bytes = value+kinds[k].Values[node], bytes+sizes[k][node]
				}
			}
			if bytes <= budget {
				best = max(best, value)
			}
		}
		rows, lists := Joint(budget, kinds[0], kinds[1])
		value, bytes := 0.0, int64(0)
		for k, nodes := range [][]uint32{rows, lists} {
			for _, node := range nodes {
				value, bytes = value+kinds[k].Values[node], bytes+sizes[k][node]
			}
		}
		// By density alone it is the best less an item; the best single item makes it at least half.
		if bytes > budget || value > best || value < best-largest || value < best/2 {
			t.Errorf("seed %d: %v and %v have value %g and %d bytes of %d; the best is %g", seed, rows, lists, value,
				bytes, budget, best)
		}
	}
}

func TestJointIsExactWhereAllSizesAreEqual(t *testing.T) {
	eight := func(uint32) int64 { return 8 }
	rows, lists := Joint(24, Items{[]float64{5, 1, 0, 9}, eight}, Items{[]float64{2, 6}, eight})
	if !slices.Equal(rows, []uint32{0, 3}) || !slices.Equal(lists, []uint32{1}) {
		t.Errorf("rows %v and lists %v, want 0 3 and 1", rows, lists)
	}
}

func TestLookupsAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	batches := trace(r, 500, 40, 200)
	for _, c := range allCaches(t, 500, 100, 1, [][][]uint32{batches}) {
		var l Lookup
		epoch := func() {
			for _, nodes := range batches {
				c.Lookup(nodes, &l)
			}
		}
		var all iter.Seq[[]uint32] = slices.Values(batches)
		c.Begin(0, all)
		epoch()
		if n := testing.AllocsPerRun(5, epoch); n > 0 {
			t.Errorf("%s: %g allocations an epoch", c.Policy(), n)
		}
		if c.Traced() {
			if n := testing.AllocsPerRun(5, func() { c.Begin(0, all); epoch() }); n > 10 {
				t.Errorf("%s: %g allocations to plan an epoch", c.Policy(), n)
			}
		}
	}
}

func TestSpecsAreReadAndOpened(t *testing.T) {
	in := Inputs{
		Nodes: 5, RowBytes: 8, Seed: 1,
		OutDegrees: func() ([]uint32, error) { return []uint32{1, 5, 2, 0, 3}, nil },
		Visits:     func() ([]uint32, error) { return []uint32{9, 0, 0, 8, 0}, nil },
		ListVisits: func() ([]float64, error) { return []float64{0, 900, 0, 0, 0}, nil },
		ListBytes:  func(uint32) int64 { return 10 },
		Reach:      func() ([]float32, error) { return []float32{0, 0, 1, 1, 0}, nil },
	}
	for _, c := range []struct {
		text  string
		slots int
		want  []uint32 // after Begin; nil: none
	}{
		{"degree:2rows", 2, []uint32{1, 4}},
		{"degree:17", 2, []uint32{1, 4}},
		{"presampled:16B", 2, []uint32{0, 3}},
		{"fifo:1KiB", 5, nil},
		{"lru:3rows", 3, nil},
		{"gns:2rows", 2, []uint32{2, 3}},
		{"optimal:1rows", 1, nil},
		{"ducati:20B", 1, []uint32{0}}, // 10 bytes go to a list
	} {
		s, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%s is written as %s, which is %+v, %v", c.text, s, again, err)
		}
		o, err := s.Open(in)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		o.Begin(0, func(func([]uint32) bool) {})
		got := slices.DeleteFunc(slices.Sorted(slices.Values(o.nodeOf)), func(n uint32) bool { return n == none })
		if o.Slots() != c.slots || !slices.Equal(got, c.want) || o.Policy() != s.Policy {
			t.Errorf("%s has %d slots with %v, want %d with %v", c.text, o.Slots(), got, c.slots, c.want)
		}
		if s.Policy == "ducati" && !slices.Equal(o.Lists, []uint32{1}) {
			t.Errorf("%s keeps the lists %v", c.text, o.Lists)
		}
	}
	for text, want := range map[string]string{
		"":                 "none of",
		"random:1GiB":      `"random"`,
		"degree":           "degree:1GiB",
		"lru:":             "no size",
		"lru:0rows":        "number of rows",
		"lru:-1rows":       "number of rows",
		"lru:manyrows":     "number of rows",
		"lru:0":            "1 byte or more",
		"lru:much":         "is no size",
		"lru:1e300GiB":     "is no size",
		"ducati:100rows":   "in bytes",
		"degree:1GiB:more": "is no size",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %+v, %v; want an error with %q", text, s, err, want)
		}
	}
	if _, err := (Spec{Policy: "lru", Bytes: 7}).Open(in); err == nil ||
		!strings.Contains(err.Error(), "no room for a row, of 8 bytes: give lru:8 or more") {
		t.Errorf("a cache without room for a row: %v", err)
	}
	if _, err := newGNS(1, []float32{1, -1}, 0); err == nil {
		t.Error("a negative weight went through")
	}
}

// Each type gets the same part of its rows, in rows as in bytes; types without rows get none.
func TestASizeIsDividedAmongTypes(t *testing.T) {
	types := []Rows{{Nodes: 90, Bytes: 16}, {Nodes: 30, Bytes: 0}, {Nodes: 0, Bytes: 8}, {Nodes: 60, Bytes: 8}}
	for _, c := range []struct {
		Spec
		slots []int64
	}{{Spec{Rows: 50}, []int64{30, 0, 0, 20}}, {Spec{Bytes: 960}, []int64{45, 0, 0, 30}},
		{Spec{Bytes: math.MaxInt64}, []int64{90, 0, 0, 60}}, {Spec{Bytes: 31}, []int64{1, 0, 0, 0}}} {
		s := c.Spec
		for i, one := range s.Divide(types) {
			if got := one.Slots(types[i].Nodes, types[i].Bytes); got != c.slots[i] {
				t.Errorf("%s: type %d has %d slots, want %d", s, i, got, c.slots[i])
			}
		}
		if err := s.CheckRoom(types); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if one := s.Divide(types[:1]); one[0] != s {
			t.Errorf("one type has %+v of %+v", one[0], s)
		}
	}
	// 1920 bytes of rows, 90 nodes of the largest type: 22 bytes are the least.
	for _, c := range []struct {
		Spec
		types []Rows
		want  string
	}{{Spec{Policy: "lru", Bytes: 21}, types, "lru:22 or more"}, {Spec{Policy: "lru", Rows: 1}, types, "lru:22 or more"},
		{Spec{Policy: "lru", Bytes: 15}, types[:1], "lru:16 or more"},
		{Spec{Policy: "lru", Bytes: 1 << 40}, []Rows{{Nodes: 3}, {Nodes: 5}}, "no node has features"}} {
		err := c.CheckRoom(c.types)
		if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.Spec, err, c.want)
		}
	}
	if err := (Spec{Policy: "lru", Bytes: 22}).CheckRoom(types); err != nil {
		t.Error(err)
	}
}
