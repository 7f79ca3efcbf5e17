package gdstest

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// sampledGraph is a graph for tests, with the choice of its edges by the definition.
type sampledGraph struct {
	offsets          []int64
	sources, loops   []uint32
	weights          []float32 // nil: ones
	row, column      []float32 // nil: ones
	mean, addedLoops bool
}

// newSampledGraph has nodes without edges, with few, with as many as a fanout, with more than 64, two hubs, and
// parallel edges; every fifth has a self-loop.
func (b *fixture) newSampledGraph(weighted, sym bool) *sampledGraph {
	const n = 300
	g := &sampledGraph{offsets: []int64{0}, loops: make([]uint32, n), mean: !weighted && !sym, addedLoops: sym}
	b.seed++
	for v := range n {
		d := v % 13
		switch {
		case v == 7:
			d = 2600
		case v == 26:
			d = 1025
		case v%11 == 3:
			d = 64 + v%3
		}
		list := make([]uint32, d)
		for i := range list {
			list[i] = uint32(rng.Hash(b.seed, uint64(1000*v+i)) % n)
			if list[i] == uint32(v) { // loops are where the test wants them
				list[i] = uint32((v + 1) % n)
			}
		}
		if v%5 == 1 && d > 0 {
			list[0] = uint32(v)
		}
		slices.Sort(list)
		if at := slices.Index(list, uint32(v)); at >= 0 {
			g.loops[v] = uint32(at) + 1
		}
		g.sources = append(g.sources, list...)
		g.offsets = append(g.offsets, int64(len(g.sources)))
	}
	if weighted {
		g.weights = b.normal(len(g.sources))
	}
	if sym || weighted {
		g.row, g.column = b.normal(n), b.normal(n)
	}
	return g
}

// cache adds copies of the lists of some nodes, in another order, to the graph on a device. Where they are copied, the
// graph's own lists are spoiled, so that nothing but the cache gives the right edges.
func (g *sampledGraph) cache(b *fixture, on *gds.Graph, alloc func(int64) gds.Buffer, cached func(v int) bool) {
	n := len(g.loops)
	slots, offsets := make([]uint32, n), []int64{0}
	var sources []uint32
	var weights []float32
	spoiled := slices.Clone(g.sources)
	for v := n - 1; v >= 0; v-- {
		if slots[v] = ^uint32(0) - uint32(v); !cached(v) {
			continue
		}
		slots[v] = uint32(len(offsets)) - 1
		lo, hi := g.offsets[v], g.offsets[v+1]
		if sources = append(sources, g.sources[lo:hi]...); g.weights != nil {
			weights = append(weights, g.weights[lo:hi]...)
		}
		for e := lo; e < hi; e++ {
			spoiled[e] = uint32(n - 1)
		}
		offsets = append(offsets, int64(len(sources)))
	}
	on.Sources = b.arrayIn(alloc, shifted, 1, len(spoiled), gds.Uint32, dtype.BytesOf(spoiled)).Tensor
	on.Slots = b.uints(slots).Tensor
	on.CachedOffsets = b.array(shifted, 1, len(offsets), gds.Int64, dtype.BytesOf(offsets)).Tensor
	on.CachedSources = b.uints(sources).Tensor
	if g.weights != nil {
		on.CachedWeights = b.array(shifted, 1, len(weights), gds.Float32, dtype.BytesOf(weights)).Tensor
	}
}

// read is how many bytes are read of lists that are not cached, by the words of CountSampled.
func (g *sampledGraph) read(nodes, offsets []uint32, s gds.Sampling, cached func(v int) bool) (bytes int64) {
	for i, v := range nodes {
		if cached(int(v)) {
			continue
		}
		chosen, degree := int64(offsets[i+1]-offsets[i]), g.offsets[v+1]-g.offsets[v]
		d := degree
		if g.addedLoops && g.loops[v] > 0 {
			d--
		} else if g.addedLoops {
			chosen-- // the loop that is no edge of the graph
		}
		bytes += 32 + 4*chosen
		if g.weights != nil {
			bytes += 4 * chosen
		}
		if s.Labor && s.Fanout >= 0 && int64(s.Fanout) < d {
			bytes += 2 * 4 * degree
		}
	}
	return bytes
}

// on is the graph in memory that alloc gives.
func (g *sampledGraph) on(b *fixture, alloc func(int64) gds.Buffer) *gds.Graph {
	out := &gds.Graph{
		Offsets: b.arrayIn(alloc, shifted, 1, len(g.offsets), gds.Int64, dtype.BytesOf(g.offsets)).Tensor,
		Sources: b.arrayIn(alloc, shifted, 1, len(g.sources), gds.Uint32, dtype.BytesOf(g.sources)).Tensor,
		Mean:    g.mean, AddLoops: g.addedLoops,
	}
	if g.addedLoops {
		out.Loops = b.arrayIn(alloc, shifted, 1, len(g.loops), gds.Uint32, dtype.BytesOf(g.loops)).Tensor
	}
	for to, values := range map[*gds.Tensor][]float32{&out.Weights: g.weights, &out.RowFactors: g.row,
		&out.ColumnFactors: g.column} {
		if values != nil {
			*to = b.arrayIn(alloc, shifted, 1, len(values), gds.Float32, dtype.BytesOf(values)).Tensor
		}
	}
	return out
}

// sample chooses edges by the words of gds.Sampling.
func (g *sampledGraph) sample(nodes []uint32, s gds.Sampling) (offsets, sources []uint32, weights []float32) {
	offsets = []uint32{0}
	number := uint64(0)
	random := func() *big.Int {
		number++
		return new(big.Int).SetUint64(rng.At(s.Random, number-1))
	}
	// below is floor(r * n / 2^64).
	below := func(r *big.Int, n int) int { return int(new(big.Int).Rsh(r.Mul(r, big.NewInt(int64(n))), 64).Int64()) }
	for _, v := range nodes {
		first, degree := g.offsets[v], int(g.offsets[v+1]-g.offsets[v])
		emit := func(place int, coefficient float32) {
			u, w := v, float32(1)
			if place >= 0 {
				u = g.sources[first+int64(place)]
				if g.weights != nil {
					w = g.weights[first+int64(place)]
				}
			}
			if g.mean {
				coefficient *= float32(1 / float64(degree))
			}
			if g.row != nil {
				coefficient *= g.row[v]
			}
			coefficient *= w
			if g.column != nil {
				coefficient *= g.column[u]
			}
			sources, weights = append(sources, u), append(weights, coefficient)
		}
		loop := -1
		if g.addedLoops {
			loop = int(g.loops[v]) - 1
			emit(loop, 1)
		}
		var places []int // to choose among
		for j := range degree {
			if j != loop {
				places = append(places, j)
			}
		}
		d, k := len(places), s.Fanout
		expected := float32(float64(d) / float64(k))
		switch {
		case k < 0 || k >= d && !s.Replace:
			for _, j := range places {
				emit(j, 1)
			}
		case s.Labor:
			threshold := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(int64(k)), 64), big.NewInt(int64(d)))
			for _, j := range places {
				if new(big.Int).SetUint64(rng.At(s.Random, uint64(g.sources[first+int64(j)]))).Cmp(threshold) < 0 {
					emit(j, expected)
				}
			}
		case s.Replace:
			for range k {
				if d > 0 {
					emit(places[below(random(), d)], expected)
				}
			}
		default:
			var chosen []int
			for j := d - k; j < d; j++ {
				e := below(random(), j+1)
				if slices.Contains(chosen, e) {
					e = j
				}
				chosen = append(chosen, e)
				emit(places[e], expected)
			}
		}
		offsets = append(offsets, uint32(len(sources)))
	}
	return offsets, sources, weights
}

func (b *fixture) uints(values []uint32) *array {
	b.Helper()
	return b.array(shifted, 1, len(values), gds.Uint32, dtype.BytesOf(values))
}

// readUints is the values of a vector of uint32.
func (b *fixture) readUints(a *array) []uint32 { b.Helper(); return dtype.Uint32s(b.bytes(a)) }

// places are the memory that a device reads a graph in.
func (b *fixture) places() map[string]func(int64) gds.Buffer {
	all := map[string]func(int64) gds.Buffer{"device": b.alloc}
	if b.device.Info().MapsPinned {
		all["pinned"] = b.pin
	}
	return all
}

var sampleTests = []test{
	{"edges are chosen by their definition", func(b *fixture) {
		nodes := []uint32{7, 3, 299, 0, 14, 1, 13, 26, 6, 12, 21, 25, 100, 7 * 13}
		for v := range uint32(290) {
			if v%3 == 2 && !slices.Contains(nodes, v) {
				nodes = append(nodes, v)
			}
		}
		for _, graph := range []struct {
			name          string
			weighted, sym bool
		}{{"mean", false, false}, {"with self-loops", false, true}, {"weighted", true, false},
			{"weighted with self-loops", true, true}} {
			for _, s := range []gds.Sampling{
				{Fanout: 5, Random: 3}, {Fanout: 1, Random: 4}, {Fanout: 65, Random: 5}, {Fanout: 200, Random: 6},
				{Fanout: -1},
				{Fanout: 5, Random: 7, Replace: true}, {Fanout: 70, Random: 8, Replace: true},
				{Fanout: 4, Random: 9, Labor: true}, {Fanout: 64, Random: 10, Labor: true}, {Fanout: -1, Labor: true},
			} {
				b.at(fmt.Sprintf("%s, %+v", graph.name, s), func(b *fixture) {
					g := b.newSampledGraph(graph.weighted, graph.sym)
					offsets, sources, weights := g.sample(nodes, s)
					for place, alloc := range b.places() {
						for _, every := range []int{0, 3, 1} { // lists of no node, of some, of all are cached
							b.at(fmt.Sprintf("%s, cached every %d", place, every), func(b *fixture) {
								on, seeds := g.on(b, alloc), b.uints(nodes)
								cached := func(v int) bool { return every > 0 && v%every == 0 }
								if every > 0 {
									g.cache(b, on, alloc, cached)
								}
								starts, total := b.array(shifted, 1, len(nodes)+1, gds.Uint32, nil), b.counts(-1)
								read := b.counts(7)
								b.stream.CountSampled(starts.Tensor, total.Tensor, read.Tensor, seeds.Tensor, on, s)
								if got := b.readUints(starts); !slices.Equal(got, offsets) {
									b.Fatalf("offsets are %v, want %v", got, offsets)
								}
								if got := dtype.Int64s(b.bytes(total))[0]; got != int64(len(sources)) {
									b.Errorf("%d edges, want %d", got, len(sources))
								}
								want := 7 + g.read(nodes, offsets, s, cached)
								if got := dtype.Int64s(b.bytes(read))[0]; got != want {
									b.Errorf("%d bytes are read after 7, want %d", got, want)
								}
								from, w := b.array(shifted, 1, len(sources), gds.Uint32, nil),
									b.floats(shifted, 1, len(sources), nil)
								b.stream.SampleEdges(from.Tensor, w.Tensor, starts.Tensor, seeds.Tensor, on, s)
								if got := b.readUints(from); !slices.Equal(got, sources) {
									b.Errorf("sources are %v, want %v", got, sources)
								}
								if got := b.read(w); !slices.Equal(got, weights) {
									b.Errorf("weights are %v, want %v", got, weights)
								}
							})
						}
					}
				})
			}
		}
	}},
	{"no nodes have no edges", func(b *fixture) {
		g := b.newSampledGraph(false, false).on(b, b.alloc)
		starts, total := b.array(shifted, 1, 1, gds.Uint32, nil), b.counts(5)
		b.stream.CountSampled(starts.Tensor, total.Tensor, b.counts(0).Tensor, gds.Tensor{}, g, gds.Sampling{Fanout: 3})
		b.stream.SampleEdges(gds.Tensor{}, gds.Tensor{}, starts.Tensor, gds.Tensor{}, g, gds.Sampling{Fanout: 3})
		if s, n := b.readUints(starts)[0], dtype.Int64s(b.bytes(total))[0]; s != 0 || n != 0 {
			b.Errorf("offset %d, %d edges", s, n)
		}
	}},
	{"nodes that the graph has not are errors", func(b *fixture) {
		g := b.newSampledGraph(false, false).on(b, b.alloc)
		s := b.newStream()
		starts, total := b.array(shifted, 1, 4, gds.Uint32, nil), b.counts(0)
		s.CountSampled(starts.Tensor, total.Tensor, b.counts(0).Tensor, b.uints([]uint32{1, 300, 2}).Tensor, g,
			gds.Sampling{Fanout: 3})
		err := s.Synchronize(context.Background())
		if err == nil || !strings.Contains(err.Error(), "CountSampled") ||
			!strings.Contains(err.Error(), "nodes[1] is node 300 of a graph of 300") {
			b.Errorf("node 300 of 300: %v", err)
		}
		_ = s.Close()
	}},
	{"local ids are in the order in which nodes come", func(b *fixture) {
		for _, c := range []struct{ known, items, different int }{{0, 0, 1}, {0, 1, 1}, {5, 0, 10}, {3, 9, 4},
			{300, 5000, 700}, {1000, 70_000, 40_000}, {0, 300, 1}} {
			b.at(fmt.Sprint(c), func(b *fixture) {
				// Nodes are spread, so that some collide in a table, and one is the largest there is.
				name := func(i int) uint32 { return ^uint32(i * 7919) }
				var nodes, items []uint32
				places := make(map[uint32]uint32)
				for i := range c.known {
					nodes, places[name(i)] = append(nodes, name(i)), uint32(i)
				}
				wantNodes, ids := slices.Clone(nodes), []uint32{}
				for i := range c.items {
					u := name(int(rng.Hash(b.seed, uint64(i)) % uint64(c.different)))
					if _, ok := places[u]; !ok {
						places[u] = uint32(len(wantNodes))
						wantNodes = append(wantNodes, u)
					}
					items, ids = append(items, u), append(ids, places[u])
				}
				room := b.uints(append(nodes, make([]uint32, c.items+3)...))
				got, count := b.array(shifted, 1, c.items, gds.Uint32, nil), b.uints([]uint32{9})
				for range 2 { // the second finds its table used
					b.stream.Relabel(got.Tensor, room.Tensor, count.Tensor, b.uints(items).Tensor, c.known)
				}
				if n := b.readUints(count)[0]; int(n) != len(wantNodes) {
					b.Fatalf("%d nodes, want %d", n, len(wantNodes))
				}
				if got := b.readUints(room)[:len(wantNodes)]; !slices.Equal(got, wantNodes) {
					b.Errorf("nodes are %v, want %v", got, wantNodes)
				}
				if got := b.readUints(got); !slices.Equal(got, ids) {
					b.Errorf("local ids are %v, want %v", got, ids)
				}
			})
		}
	}},
	{"rows come from the cache where it has them", func(b *fixture) {
		b.eachShape(func(b *fixture, l layout, rows, cols int) {
			const sources, slots = 97, 20
			for _, t := range []gds.DType{gds.Float32, gds.Float16, gds.Int8} {
				size := cols * t.Size()
				values, inCache := b.random(sources*size), b.random(slots*size)
				slotOf, index := make([]uint32, sources), make([]uint32, rows)
				for u := range slotOf {
					slotOf[u] = ^uint32(0)
					if u%4 == 1 {
						slotOf[u] = uint32(u / 5)
					}
				}
				var want []byte
				hits := int64(3)
				for i := range index {
					u := rng.Hash(b.seed, uint64(i)) % sources
					index[i] = uint32(u)
					if slot := slotOf[u]; slot < slots {
						want = append(want, inCache[int(slot)*size:][:size]...)
						if cols > 0 {
							hits++
						}
					} else {
						want = append(want, values[int(u)*size:][:size]...)
					}
				}
				for place, alloc := range b.places() {
					src, dst, count := b.arrayIn(alloc, l, sources, cols, t, values), b.array(l, rows, cols, t, nil),
						b.counts(3)
					b.stream.GatherCached(dst.Tensor, b.array(l, slots, cols, t, inCache).Tensor, src.Tensor,
						b.uints(slotOf).Tensor, b.uints(index).Tensor, count.Tensor)
					if !bytes.Equal(b.bytes(dst), want) {
						b.Errorf("from %s, %v: other rows", place, dst.Tensor)
					}
					if got := dtype.Int64s(b.bytes(count))[0]; got != hits {
						b.Errorf("from %s: %d rows of the cache after 3, want %d", place, got, hits)
					}
				}
			}
		})
	}},
	{"rows of pinned memory are gathered where the device reads it", func(b *fixture) {
		values, index := b.random(40*12), []uint32{39, 0, 5, 5}
		s := b.newStream()
		src, dst := b.arrayIn(b.pin, strided, 40, 3, gds.Float32, values), b.array(strided, 4, 3, gds.Float32, nil)
		s.Gather(dst.Tensor, src.Tensor, b.uints(index).Tensor)
		err := s.Close()
		if !b.device.Info().MapsPinned {
			if err == nil || !strings.Contains(err.Error(), "Gather") {
				b.Errorf("gathered from pinned memory: %v", err)
			}
			return
		}
		var want []byte
		for _, u := range index {
			want = append(want, values[u*12:][:12]...)
		}
		if err != nil || !bytes.Equal(b.bytes(dst), want) {
			b.Errorf("other rows, %v", err)
		}
	}},
}
