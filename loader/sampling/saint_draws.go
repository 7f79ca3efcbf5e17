package sampling

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// below is a number below n.
func below(hash uint64, n int64) int64 {
	x, _ := bits.Mul64(hash, uint64(n))
	return int64(x)
}

// nodeDraws draw nodes.
type nodeDraws struct{ columns *columns }

func saintNodes(half bool) func(ctx context.Context, m *Method) error {
	return func(ctx context.Context, m *Method) error {
		err := prepareColumns(true, !half, half)(ctx, m)
		m.shape = &nodeDraws{m.columns}
		return err
	}
}

func (d *nodeDraws) draw(ctx context.Context, s *saint, draws int, random uint64) error {
	if d.columns.total() == 0 {
		return nil // no node is anybody's in-neighbour
	}
	nodes := resize(s.sources, draws)
	for i := range nodes {
		if err := interrupted(ctx, i); err != nil {
			return err
		}
		nodes[i] = d.columns.draw(rng.At(random, uint64(i)))
	}
	s.sources = nodes
	s.add(nodes)
	return nil
}

func (d *nodeDraws) nodes() int { return 1 }

func (d *nodeDraws) one(v uint32) float64 {
	if total := d.columns.total(); total > 0 {
		return d.columns.weight(v) / total
	}
	return 0
}

func (d *nodeDraws) both(_ *edgeFinder, _ []int64, _, _ []uint32, q []float64) error {
	clear(q)
	return nil
}

// edgeDraws draw edges.
type edgeDraws struct {
	topology Topology
	heads    []uint32  // nodes with in-neighbours
	q        []float64 // [n]
}

func saintEdges(ctx context.Context, m *Method) error {
	q, err := shared[float64](m, m.topology.Nodes())
	if err != nil {
		return err
	}
	heads, err := shared[uint32](m, m.topology.Nodes())
	if err != nil {
		return err
	}
	heads = heads[:0]
	d := &edgeDraws{topology: m.topology, q: q}
	if err := visitLists(ctx, m.topology, 1, false, func(v uint32, sources []uint32, _ []float32) {
		if len(sources) > 0 {
			heads = append(heads, v)
			d.q[v]++
		}
		for _, u := range sources {
			if u != v {
				d.q[u] += 1 / float64(len(sources))
			}
		}
	}); err != nil {
		return err
	}
	d.heads = heads
	for v := range d.q {
		d.q[v] /= float64(max(1, len(heads)))
	}
	m.shape = d
	return nil
}

func (d *edgeDraws) draw(_ context.Context, s *saint, draws int, random uint64) error {
	if len(d.heads) == 0 {
		return nil
	}
	s.heads = resize(s.heads, draws)
	for i := range s.heads {
		s.heads[i] = d.heads[below(rng.At(random, uint64(2*i)), int64(len(d.heads)))]
	}
	s.add(s.heads)
	return s.step(d.topology, func(i int) uint64 { return rng.At(random, uint64(2*i+1)) })
}

// step replaces each head by a random in-neighbour, drops heads that have none, and adds the new ones.
func (s *saint) step(t Topology, random func(i int) uint64) error {
	s.lists = resize(s.lists, len(s.heads))
	if err := t.Lists(s.heads, s.lists); err != nil {
		return err
	}
	s.edges = s.edges[:0]
	for i, l := range s.lists {
		if l.Degree() > 0 {
			s.edges = append(s.edges, l.First+below(random(i), l.Degree()))
		}
	}
	s.heads = s.heads[:len(s.edges)]
	if len(s.edges) > 0 {
		if err := t.Read(s.edges, s.heads, nil); err != nil {
			return err
		}
	}
	s.add(s.heads)
	return nil
}

func (d *edgeDraws) nodes() int { return 2 }

func (d *edgeDraws) one(v uint32) float64 { return d.q[v] }

func (d *edgeDraws) both(f *edgeFinder, _ []int64, sources, heads []uint32, q []float64) error {
	clear(q)
	for range 2 { // edges from sources to heads, and those back
		if err := f.find(d.topology, sources, heads); err != nil {
			return err
		}
		for i, l := range f.lists {
			if l.Degree() > 0 {
				q[i] += float64(f.end[i]-f.first[i]) / float64(l.Degree()) / float64(len(d.heads))
			}
		}
		sources, heads = heads, sources
	}
	return nil
}

// edgeFinder finds edges by their ends.
type edgeFinder struct {
	lists      []List  // of the heads
	first, end []int64 // the edges between each pair are first to end-1

	high, middle []int64
	open         []uint32 // searches that go on
	found        []uint32
}

// find finds the edges from each source to its head. All searches go on together, so that their reads do.
func (f *edgeFinder) find(t Topology, sources, heads []uint32) error {
	n := len(heads)
	f.lists, f.first, f.end = resize(f.lists, n), resize(f.first, n), resize(f.end, n)
	if err := t.Lists(heads, f.lists); err != nil {
		return err
	}
	for i, l := range f.lists {
		f.first[i], f.end[i] = l.First, l.First
	}
	if err := f.bound(t, f.first, sources, 0); err != nil {
		return err
	}
	return f.bound(t, f.end, sources, 1)
}

// bound raises low to the first edge of each list whose source is source + above or more.
func (f *edgeFinder) bound(t Topology, low []int64, sources []uint32, above uint64) error {
	f.high, f.found = resize(f.high, len(low)), resize(f.found, len(low))
	for i, l := range f.lists {
		f.high[i] = l.End
	}
	for {
		f.middle, f.open = f.middle[:0], f.open[:0]
		for i := range low {
			if low[i] < f.high[i] {
				f.middle, f.open = append(f.middle, (low[i]+f.high[i])/2), append(f.open, uint32(i))
			}
		}
		if len(f.open) == 0 {
			return nil
		}
		if err := t.Read(f.middle, f.found[:len(f.middle)], nil); err != nil {
			return err
		}
		for k, i := range f.open {
			if uint64(f.found[k]) < uint64(sources[i])+above {
				low[i] = f.middle[k] + 1
			} else {
				f.high[i] = f.middle[k]
			}
		}
	}
}

// walkDraws draw random walks.
type walkDraws struct {
	topology Topology
	steps    int
	walks    float64  // that were counted
	visits   []uint32 // [n]: walks that come to v and do not begin there
	// pairs [m]: walks that come to both ends of an edge, unless they begin with it.
	pairs []uint32
}

// Each node is in about visitsOfNode of the counted walks (fewer in a graph with more than about 2^32 * steps / 50
// nodes: see countedWalks), and there are at least minWalks.
const (
	visitsOfNode = 50
	minWalks     = 1 << 15
)

// countedWalks is how many walks are counted in a graph of n nodes. A walk adds at most 1 to a count,
// so with no more than MaxUint32 walks no count wraps.
func countedWalks(n int64, steps int) int64 {
	return min(max(minWalks, n*visitsOfNode/int64(steps+1)), math.MaxUint32)
}

func saintWalks(ctx context.Context, m *Method) error {
	d := &walkDraws{topology: m.topology, steps: m.Layers()}
	var err error
	if d.visits, err = shared[uint32](m, m.topology.Nodes()); err != nil {
		return err
	}
	if d.pairs, err = shared[uint32](m, m.topology.Edges()); err != nil {
		return err
	}
	m.shape = d
	if m.topology.Nodes() == 0 {
		return nil
	}
	walks := countedWalks(m.topology.Nodes(), d.steps)
	d.walks = float64(walks)
	random := rng.Start(rng.Derive(0, "walks"))
	return parallel.For(ctx, m.options.Threads, walks, 1<<12, func(lo, hi int64) error {
		return d.count(lo, hi, random)
	})
}

// count adds walks lo to hi-1 to the counts.
func (d *walkDraws) count(lo, hi int64, random uint64) error {
	stride := int64(d.steps + 1)
	now := make([]uint32, hi-lo)
	for i := range now {
		now[i] = uint32(below(rng.At(random, uint64((lo+int64(i))*stride)), d.topology.Nodes()))
	}
	nodes := [][]uint32{now}                      // of each walk after each step; a walk that ends stays
	edges := slices.Repeat([]int64{-1}, len(now)) // first edges
	lists, next, going, found := make([]List, len(now)), []int64{}, []int{}, []uint32{}
	for step := int64(1); step < stride; step++ {
		if err := d.topology.Lists(now, lists); err != nil {
			return err
		}
		next, going = next[:0], going[:0]
		for i, l := range lists {
			if l.Degree() > 0 {
				next = append(next, l.First+below(rng.At(random, uint64((lo+int64(i))*stride+step)), l.Degree()))
				going = append(going, i)
			}
		}
		found = resize(found, len(next))
		if err := d.topology.Read(next, found, nil); err != nil {
			return err
		}
		now = slices.Clone(now)
		for k, i := range going {
			if now[i] = found[k]; step == 1 {
				edges[i] = next[k]
			}
		}
		nodes = append(nodes, now)
	}
	var sources, heads, seen []uint32 // seen: nodes of a walk, each once
	var walks []int
	for i := range int(hi - lo) {
		seen = seen[:0]
		for _, step := range nodes {
			v := step[i]
			if slices.Contains(seen, v) {
				continue
			}
			if len(seen) > 0 {
				atomic.AddUint32(&d.visits[v], 1)
			}
			for _, u := range seen {
				sources, heads, walks = append(sources, v, u), append(heads, u, v), append(walks, i, i)
			}
			seen = append(seen, v)
		}
	}
	var f edgeFinder
	if err := f.find(d.topology, sources, heads); err != nil {
		return err
	}
	for k, i := range walks {
		for e := f.first[k]; e < f.end[k]; e++ {
			if e != edges[i] {
				atomic.AddUint32(&d.pairs[e], 1)
			}
		}
	}
	return nil
}

func (d *walkDraws) draw(ctx context.Context, s *saint, draws int, random uint64) error {
	s.heads = resize(s.heads, draws)
	for i := range s.heads {
		s.heads[i] = uint32(below(rng.At(random, uint64(i)), d.topology.Nodes()))
	}
	s.add(s.heads)
	for step := range d.steps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		offset := uint64(step+1) * uint64(draws)
		if err := s.step(d.topology, func(i int) uint64 { return rng.At(random, offset+uint64(i)) }); err != nil {
			return err
		}
	}
	return nil
}

func (d *walkDraws) nodes() int { return d.steps + 1 }

func (d *walkDraws) one(v uint32) float64 {
	return 1/float64(len(d.visits)) + float64(d.visits[v])/d.walks
}

func (d *walkDraws) both(f *edgeFinder, edges []int64, _, heads []uint32, q []float64) error {
	f.lists = resize(f.lists, len(heads))
	if err := d.topology.Lists(heads, f.lists); err != nil {
		return err
	}
	for i, e := range edges {
		q[i] = 1/float64(len(d.visits))/float64(f.lists[i].Degree()) + float64(d.pairs[e])/d.walks
	}
	return nil
}
