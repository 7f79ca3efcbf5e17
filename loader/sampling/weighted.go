package sampling

import (
	"github.com/hopfeed/hopfeed/internal/rng"
)

// weighted chooses up to fanout in-neighbours of each node with probabilities proportional to weights: of the edges, or
// to prefer cached nodes (a3gnn Algorithm 2).
type weighted struct {
	byEdge bool                   // by the weights of edges
	cached func(node uint32) bool // have the weight bias, and others 1
	bias   float64
	debias bool // coefficients follow mq-gnn Eq. 13, else as if sampling were uniform

	number     uint64 // of edges looked at before in the block
	draws      reservoir
	cumulative cumulative
}

func newLocality(m *Method, _ *relabeler) chooser {
	return &weighted{cached: m.options.Cached, bias: m.options.Bias, debias: m.options.Debias}
}

func (s *weighted) begin(c *chosenEdges, _ []uint32) error {
	c.readsSources, c.readsWeights, s.number = true, s.byEdge, 0
	return nil
}

func (s *weighted) choose(c *chosenEdges, _ uint32, l List, loop int64, _ []uint32) (err error) {
	switch d := choices(l, loop); {
	case d == 0:
	case int64(c.fanout) >= d && !c.m.options.Replace:
		c.addOthers(l, loop)
	case c.m.options.Replace:
		err = s.drawEach(c, l, loop)
	default:
		s.drawSubset(c, l, loop)
	}
	s.number += uint64(max(l.Degree(), int64(c.fanout)))
	return err
}

// weight is the weight of edge j of the node's list.
func (s *weighted) weight(c *chosenEdges, j int64) float64 {
	switch {
	case s.byEdge:
		return float64(c.in.weights[c.at+j])
	case s.cached(c.in.sources[c.at+j]):
		return s.bias
	}
	return 1
}

// drawSubset draws without replacement from a list.
func (s *weighted) drawSubset(c *chosenEdges, l List, loop int64) {
	s.draws.begin(c.fanout)
	for j := range l.Degree() {
		if j != loop {
			s.draws.offer(uint32(j), s.weight(c, j), rng.At(c.random, s.number+uint64(j)))
		}
	}
	s.draws.finish()
	if s.debias {
		for i, w := range s.draws.unbiased() {
			c.addOne(l, int64(s.draws.draws[i].candidate), w)
		}
		return
	}
	equal := float32(float64(s.draws.candidates) / float64(max(1, len(s.draws.draws))))
	for _, d := range s.draws.draws {
		c.addOne(l, int64(d.candidate), equal)
	}
}

// drawEach draws with replacement.
func (s *weighted) drawEach(c *chosenEdges, l List, loop int64) error {
	s.cumulative = s.cumulative[:0]
	for j := range l.Degree() {
		w := 0.0
		if j != loop {
			w = s.weight(c, j)
		}
		s.cumulative.add(w)
	}
	total := s.cumulative.total()
	if total == 0 {
		return nil
	}
	for i := range uint64(c.fanout) {
		if err := interrupted(c.ctx, int(i)); err != nil {
			return err
		}
		j := int64(s.cumulative.draw(rng.At(c.random, s.number+i)))
		w := 1 / float64(c.fanout) * float64(choices(l, loop)) // as if uniform
		if s.byEdge || s.debias {
			w = total / (s.weight(c, j) * float64(c.fanout))
		}
		c.addOne(l, j, float32(w))
	}
	return nil
}
