package sampling

import (
	"github.com/hopfeed/hopfeed/internal/choose"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// labor is layer-neighbour sampling (Balin and Catalyurek 2023). Each source u has one random number
// r(u) for all destinations of a block, so that destinations choose the same sources where they can:
// the edge from u to v is chosen if r(u) <= c(v) pi(u). c(v) is such that the estimate has the
// variance that fanout in-neighbours give: the sum of 1/min(1, c(v) pi(u)) is d(v)^2 / fanout.
//
// LABOR-0 has pi = 1, so c(v) = fanout/d(v), the expected number of edges being the fanout. LABOR-1
// has pi(u) = max c(v) over the destinations v that u is an in-neighbour of: one step towards the pi
// for which the expected number of sources is least.
type labor struct {
	known   *relabeler // of sources; nil: LABOR-0
	sources []uint32
	local   []uint32
	pi      []float64 // [sources]
	c       []float64 // pi of the in-neighbours of one destination
}

func newLabor(_ *Method, sources *relabeler) chooser { return &labor{known: sources} }

func (s *labor) begin(c *chosenEdges, nodes []uint32) error {
	c.readsSources = true
	if s.known == nil {
		return nil
	}
	s.known.forget()
	s.sources, s.pi = s.sources[:0], s.pi[:0]
	return c.in.visit(c.ctx, nodes, false, func(v uint32, sources []uint32, _ []float32) {
		loop := c.m.factors.loop(v)
		d := choices(List{0, int64(len(sources))}, loop)
		if d == 0 {
			return
		}
		s.local = resize(s.local, len(sources))
		s.sources = s.known.add(s.sources, sources, s.local)
		for range len(s.sources) - len(s.pi) {
			s.pi = append(s.pi, 0)
		}
		most := min(1, float64(c.fanout)/float64(d))
		for j, id := range s.local {
			if int64(j) != loop {
				s.pi[id] = max(s.pi[id], most)
			}
		}
	})
}

func (s *labor) choose(c *chosenEdges, _ uint32, l List, loop int64, sources []uint32) error {
	switch {
	case int64(c.fanout) >= choices(l, loop):
		c.addOthers(l, loop)
	case s.known != nil:
		return s.chooseByImportance(c, l, loop, sources)
	default:
		s.chooseBelow(c, l, loop, sources)
	}
	return nil
}

// chooseBelow chooses what LABOR-0 does.
func (s *labor) chooseBelow(c *chosenEdges, l List, loop int64, sources []uint32) {
	d := choices(l, loop)
	below := choose.Threshold(int64(c.fanout), d)
	c.edges = grow(c.edges, len(sources)+1)
	next := len(c.edges)
	edges, random := c.edges[:cap(c.edges)], c.random
	for j, u := range sources {
		edges[next] = l.First + int64(j)
		if rng.At(random, uint64(u)) < below {
			next++
		}
	}
	if loop >= 0 && rng.At(random, uint64(sources[loop])) < below {
		next = dropEdge(edges, len(c.edges), next, l.First+loop)
	}
	c.addChosen(next, float32(float64(d)/float64(c.fanout)))
}

// chooseByImportance chooses what LABOR-1 does. Its c(v) is found from below: with all terms taken for less than 1,
// terms that are not are set to 1, and so on. It fails if there are sources that begin has not seen.
func (s *labor) chooseByImportance(c *chosenEdges, l List, loop int64, sources []uint32) error {
	s.c = s.c[:0]
	inverses := 0.0
	for j, u := range sources {
		if int64(j) != loop {
			id, ok := s.known.find(u)
			if !ok {
				return errChanged
			}
			pi := s.pi[id]
			s.c = append(s.c, pi)
			inverses += 1 / pi
		}
	}
	d := float64(len(s.c))
	target := d * d / float64(c.fanout)
	scale := inverses / target
	for certain := 0; ; {
		more := 0
		inverses = 0
		for _, pi := range s.c {
			if float64(pi*scale) >= 1 {
				more++
			} else {
				inverses += 1 / pi
			}
		}
		if more == certain || inverses == 0 {
			break
		}
		certain, scale = more, inverses/(target-float64(more))
	}
	k := 0
	for j, u := range sources {
		if int64(j) == loop {
			continue
		}
		p := min(1, float64(s.c[k]*scale))
		k++
		if rng.Float64(rng.At(c.random, uint64(u))) < p {
			c.addOne(l, int64(j), float32(1/p))
		}
	}
	return nil
}
