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
// has pi(u) = max c(v), of the destinations that u is an in-neighbour of: one step towards the pi
// for which the expected number of sources is least.
type labor struct {
	fanout int
	random uint64

	importance bool
	known      *relabeler // of sources
	sources    []uint32
	local      []uint32
	pi         []float64 // [sources]
	c          []float64 // of one destination: pi of its in-neighbours, then their probabilities
}

func newLabor(m *Method) (chooser, error) { return &labor{}, nil }

func newLabor1(m *Method) (chooser, error) {
	known, err := newRelabeler(m.topology.Nodes())
	return &labor{importance: true, known: known}, err
}

func (s *labor) close() error {
	if s.known == nil {
		return nil
	}
	return s.known.close()
}

func (s *labor) most(d int64) int64 { return d }

func (s *labor) begin(c *chosenEdges, nodes []uint32, fanout int, random uint64) error {
	s.fanout, s.random = fanout, random
	if !s.importance || fanout == All {
		return nil
	}
	s.known.forget()
	s.sources, s.pi = s.sources[:0], s.pi[:0]
	return c.visitLists(nodes, func(v uint32, l List, sources []uint32, _ []float32) {
		d, loop := c.choices(v, l)
		if d == 0 {
			return
		}
		s.local = resize(s.local, len(sources))
		s.sources = s.known.add(s.sources, sources, s.local)
		for range len(s.sources) - len(s.pi) {
			s.pi = append(s.pi, 0)
		}
		most := min(1, float64(fanout)/float64(d))
		for j, id := range s.local {
			if int64(j) != loop {
				s.pi[id] = max(s.pi[id], most)
			}
		}
	})
}

func (s *labor) choose(c *chosenEdges, nodes []uint32) error {
	if s.fanout != All {
		if err := c.readLists(false); err != nil {
			return err
		}
	}
	at := int64(0)
	for i, v := range nodes {
		l, loop := c.beginNode(i, v)
		d, _ := c.choices(v, l)
		switch {
		case s.fanout == All || int64(s.fanout) >= d:
			c.addOthers(l, loop)
		case s.importance:
			if !s.chooseByImportance(c, l, loop, c.listSources[at:at+l.Degree()]) {
				return errChanged
			}
		default:
			s.chooseBelow(c, l, loop, c.listSources[at:at+l.Degree()])
		}
		c.endNode()
		at += l.Degree()
	}
	return nil
}

// chooseBelow chooses what LABOR-0 does.
func (s *labor) chooseBelow(c *chosenEdges, l List, loop int64, sources []uint32) {
	d := l.Degree()
	if loop >= 0 {
		d--
	}
	below := choose.Threshold(int64(s.fanout), d)
	c.edges = grow(c.edges, len(sources)+1)
	next := len(c.edges)
	edges, random := c.edges[:cap(c.edges)], s.random
	for j, u := range sources {
		edges[next] = l.First + int64(j)
		if rng.At(random, uint64(u)) < below {
			next++
		}
	}
	if loop >= 0 && rng.At(random, uint64(sources[loop])) < below {
		next = dropEdge(edges, len(c.edges), next, l.First+loop)
	}
	c.addChosen(next, float32(float64(d)/float64(s.fanout)))
}

// chooseByImportance chooses what LABOR-1 does. Its c(v) is found from below: with c from all terms taken for less than
// 1, those that are not are set to 1, and so on. It fails if there are sources that begin has not seen.
func (s *labor) chooseByImportance(c *chosenEdges, l List, loop int64, sources []uint32) (ok bool) {
	s.c = s.c[:0]
	inverses := 0.0
	for j, u := range sources {
		if int64(j) != loop {
			id, ok := s.known.find(u)
			if !ok {
				return false
			}
			pi := s.pi[id]
			s.c = append(s.c, pi)
			inverses += 1 / pi
		}
	}
	d := float64(len(s.c))
	target := d * d / float64(s.fanout)
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
		if rng.Float64(rng.At(s.random, uint64(u))) < p {
			c.edges, c.weights = append(c.edges, l.First+int64(j)), append(c.weights, float32(1/p))
		}
	}
	return true
}
