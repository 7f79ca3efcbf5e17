package sampling

import (
	"sort"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// weighted chooses up to fanout in-neighbours of each node with probabilities proportional to
// weights: those of the edges, or those by which cached nodes are preferred (a3gnn Algorithm 2).
type weighted struct {
	byEdge  bool                   // by the weights of edges
	cached  func(node uint32) bool // have the weight bias, and others 1
	bias    float64
	replace bool
	debias  bool // coefficients are those of Eq. 13, else as if sampling were uniform

	fanout     int
	random     uint64
	number     uint64 // of edges looked at before in the block
	draws      reservoir
	cumulative []float64
}

func newWeighted(m *Method) (chooser, error) {
	return &weighted{byEdge: true, replace: m.options.Replace, debias: true}, nil
}

func newLocality(m *Method) (chooser, error) {
	return &weighted{cached: m.options.Cached, bias: m.options.Bias, replace: m.options.Replace,
		debias: m.options.Debias}, nil
}

func (s *weighted) begin(_ *chosenEdges, _ []uint32, fanout int, random uint64) error {
	s.fanout, s.random, s.number = fanout, random, 0
	return nil
}

func (s *weighted) close() error { return nil }

func (s *weighted) most(d int64) int64 {
	if s.replace && d > 0 {
		return max(d, int64(s.fanout))
	}
	return d
}

func (s *weighted) choose(c *chosenEdges, nodes []uint32) error {
	if s.fanout != All {
		if err := c.readLists(s.byEdge); err != nil {
			return err
		}
	}
	at := int64(0)
	for i, v := range nodes {
		l, loop := c.beginNode(i, v)
		end := at + l.Degree()
		d, _ := c.choices(v, l)
		switch {
		case d == 0:
		case s.fanout == All || int64(s.fanout) >= d && !s.replace:
			c.addOthers(l, loop)
		case s.replace:
			if err := s.drawEach(c, l, loop, at); err != nil {
				return err
			}
		default:
			s.drawSubset(c, l, loop, at)
		}
		c.endNode()
		s.number += uint64(max(l.Degree(), int64(s.fanout)))
		at = end
	}
	return nil
}

// weight is that of edge j of the lists of the chunk.
func (s *weighted) weight(c *chosenEdges, j int64) float64 {
	switch {
	case s.byEdge:
		return float64(c.listWeights[j])
	case s.cached(c.listSources[j]):
		return s.bias
	}
	return 1
}

// drawSubset draws without replacement from a list whose edges begin at place at of the lists.
func (s *weighted) drawSubset(c *chosenEdges, l List, loop, at int64) {
	s.draws.begin(s.fanout)
	for j := range l.Degree() {
		if j != loop {
			s.draws.offer(uint32(j), s.weight(c, at+j), rng.At(s.random, s.number+uint64(j)))
		}
	}
	s.draws.finish()
	var coefficients []float32
	if s.debias {
		coefficients = s.draws.unbiased()
	}
	equal := float32(float64(s.draws.candidates) / float64(max(1, len(s.draws.draws))))
	for i, d := range s.draws.draws {
		w := equal
		if s.debias {
			w = coefficients[i]
		}
		c.edges, c.weights = append(c.edges, l.First+int64(d.candidate)), append(c.weights, w)
	}
}

// drawEach draws with replacement.
func (s *weighted) drawEach(c *chosenEdges, l List, loop, at int64) error {
	s.cumulative = resize(s.cumulative, int(l.Degree()))
	total := 0.0
	for j := range l.Degree() {
		if j != loop {
			total += s.weight(c, at+j)
		}
		s.cumulative[j] = total
	}
	if total == 0 {
		return nil
	}
	for i := range uint64(s.fanout) {
		if err := interrupted(c.ctx, int(i)); err != nil {
			return err
		}
		x := rng.Float64(rng.At(s.random, s.number+i)) * total
		j := int64(sort.Search(len(s.cumulative)-1, func(j int) bool { return s.cumulative[j] > x }))
		w := 1 / float64(s.fanout) * float64(l.Degree()-min(loop+1, 1)) // as if uniform
		if s.byEdge || s.debias {
			w = total / (s.weight(c, at+j) * float64(s.fanout))
		}
		c.edges, c.weights = append(c.edges, l.First+j), append(c.weights, float32(w))
	}
	return nil
}
