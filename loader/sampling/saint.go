package sampling

import (
	"context"
	"fmt"
	"math"
)

// saint samples a subgraph, from which all layers are made (GraphSAINT, Zeng et al. 2020). Its nodes come from
// independent draws, with replacement:
//
//   - saint-node: a node, half of them with probabilities proportional to the squared norms of the
//     matrix's columns (section 3.4), and half uniform: nodes that are nobody's in-neighbours are
//     trained on too. saint-node-paper has the first half alone.
//   - saint-edge: the two ends of an edge. The destination is uniform among nodes with in-neighbours,
//     and the source among these, so that an edge of an undirected graph has a probability
//     proportional to 1/deg(u) + 1/deg(v).
//   - saint-rw: the nodes of a random walk to in-neighbours, from a uniform root, as long as the
//     model has layers.
//
// Blocks have all edges between these nodes. The coefficient of the edge from u to v is A[v,u] over
// the probability that u is there if v is (Eq. 2, p(u,v)/p(v)), so that the product is without bias
// where v is there. The weight of seed v is the number of seeds over p(v) and over the number of
// nodes that may be seeds: the mean of weight * loss over seeds estimates the mean loss over these nodes.
//
// With q(v) for the probability that one draw has v, and q(u,v) for both, p(v) after k draws is
// 1 - (1-q(v))^k, and p(u,v) = 1 - (1-q(u))^k - (1-q(v))^k + (1-q(u)-q(v)+q(u,v))^k. The paper counts
// samples instead; here only the q of saint-rw are counted, over many walks.
type saint struct {
	m       *Method
	shape   saintShape
	k       float64 // draws of the batch
	known   *relabeler
	members []uint32 // nodes of the subgraph
	seeds   []uint32
	weights []float32 // of seeds

	local  []uint32
	lists  []List
	finder edgeFinder
	// For each edge that is chosen in a chunk and is no self-loop:
	places  []uint32 // in chosenEdges
	edges   []int64
	sources []uint32
	heads   []uint32 // destinations
	q       []float64
}

// saintShape is what a draw is.
type saintShape interface {
	// draw adds the nodes of the draws to s, by saint.add.
	draw(ctx context.Context, s *saint, draws int, random uint64) error
	// nodes is the most that a draw has.
	nodes() int
	// one is q(v).
	one(v uint32) float64
	// both writes q(u,v) for edges, from sources u to heads v.
	both(f *edgeFinder, edges []int64, sources, heads []uint32, q []float64) error
}

func newSaint(m *Method, nodes *relabeler) chooser { return &saint{m: m, shape: m.shape, known: nodes} }

func (s *saint) seed(ctx context.Context, draws int, random uint64) ([]uint32, []float32, error) {
	s.known.forget()
	s.members, s.seeds, s.weights, s.k = s.members[:0], s.seeds[:0], s.weights[:0], float64(draws)
	if s.m.topology.Nodes() > 0 && draws > 0 {
		if err := s.shape.draw(ctx, s, draws, random); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range s.members {
		if s.m.targets.has(v) {
			s.seeds = append(s.seeds, v)
		}
	}
	for _, v := range s.seeds {
		s.weights = append(s.weights, float32(float64(len(s.seeds))/(float64(s.m.targets.count)*s.there(v))))
	}
	return s.seeds, s.weights, nil
}

// MostSeeds is the most seed nodes of a batch of asked nodes or draws.
func (m *Method) MostSeeds(asked int) int {
	if m.shape == nil {
		return asked
	}
	return int(min(int64(asked)*int64(m.shape.nodes()), m.targets.count))
}

// meanSeeds is the mean number of different seed nodes in the draws of a graph-wise method.
func (m *Method) meanSeeds(draws int, of []uint32) (seeds float64) {
	for _, v := range of {
		if m.targets.has(v) {
			seeds += among(m.shape.one(v), float64(draws))
		}
	}
	return seeds
}

// add puts nodes into the subgraph.
func (s *saint) add(nodes []uint32) {
	s.local = resize(s.local, len(nodes))
	s.members = s.known.add(s.members, nodes, s.local)
}

// there is p(v).
func (s *saint) there(v uint32) float64 { return among(s.shape.one(v), s.k) }

// among is the probability that what one draw brings with probability q is among k of them: 1-(1-q)^k.
func among(q, k float64) float64 { return -math.Expm1(k * math.Log1p(-min(q, 1))) }

// bothAmong is the probability that k draws bring both of two nodes. One draw brings the first with probability u, the
// second with v, and both with both: 1 - (1-u)^k - (1-v)^k + (1-u-v+both)^k. The code adds other parts, since these
// four nearly cancel where the probabilities are small.
func bothAmong(u, v, both, k float64) float64 {
	pu, pv := among(u, k), among(v, k)
	neither := (1 - pu) * (1 - pv) // if one did not depend on the other
	if neither == 0 {
		return pu * pv
	}
	return pu*pv + neither*math.Expm1(k*math.Log1p(max((both-u*v)/((1-u)*(1-v)), -1)))
}

func (s *saint) begin(c *chosenEdges, _ []uint32) error {
	c.readsSources = true
	s.places, s.edges, s.sources, s.heads = s.places[:0], s.edges[:0], s.sources[:0], s.heads[:0]
	return nil
}

func (s *saint) choose(c *chosenEdges, v uint32, l List, loop int64, sources []uint32) error {
	for j, u := range sources {
		if _, ok := s.known.find(u); !ok || int64(j) == loop {
			continue
		}
		if u != v { // which is there for sure
			s.places, s.edges = append(s.places, uint32(len(c.edges))), append(s.edges, l.First+int64(j))
			s.sources, s.heads = append(s.sources, u), append(s.heads, v)
		}
		c.addOne(l, int64(j), 1)
	}
	return nil
}

func (s *saint) weigh(c *chosenEdges) error {
	s.q = resize(s.q, len(s.edges))
	if err := s.shape.both(&s.finder, s.edges, s.sources, s.heads, s.q); err != nil {
		return err
	}
	for i, place := range s.places {
		u, v := s.shape.one(s.sources[i]), s.shape.one(s.heads[i])
		both := min(s.q[i], u, v)
		c.weights[place] = float32(among(v, s.k) / bothAmong(u, v, both, s.k))
	}
	s.places, s.edges, s.sources, s.heads = s.places[:0], s.edges[:0], s.sources[:0], s.heads[:0]
	return nil
}

// nodeSet is a set of nodes.
type nodeSet struct {
	bits  []uint64 // nil: all are there
	count int64
}

// noNodes is an empty set of the nodes of a graph of n.
func noNodes(n int64) nodeSet { return nodeSet{bits: make([]uint64, (n+63)/64)} }

func (s *nodeSet) has(v uint32) bool { return s.bits == nil || s.bits[v/64]>>(v%64)&1 != 0 }

// add adds a node, and tells that it was not there.
func (s *nodeSet) add(v uint32) bool {
	if s.has(v) {
		return false
	}
	s.bits[v/64] |= 1 << (v % 64)
	s.count++
	return true
}

// newTargets is the set of nodes that may be seeds: all if targets is nil.
func newTargets(targets []uint32, n int64) (nodeSet, error) {
	if targets == nil {
		return nodeSet{count: n}, nil
	}
	s := noNodes(n)
	for _, v := range targets {
		if int64(v) >= n {
			return s, fmt.Errorf("node %d may be a seed: the graph has %d nodes", v, n)
		}
		s.add(v)
	}
	return s, nil
}
