package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// layerWise chooses fanout sources for all destinations of a block together, and then all edges
// between them. Sources are drawn with probabilities p proportional to the squared norms of columns
// of the matrix (Aggregation): FastGCN (Chen et al. 2018) of the whole matrix, LADIES (Zou et al.
// 2019; mq-gnn Eq. 7) of the rows of the block's destinations.
//
//   - flat: p is proportional to the norm itself. (mq-gnn Eq. 10 reads p ~ ||HW||, which no sampler
//     knows; its text says that these norms are taken for equal, and Chen et al. 2022, section 4,
//     derive p ~ ||column|| from that, without the square.)
//   - debias: coefficients of mq-gnn Eq. 13. Otherwise they are 1/(fanout p), as for draws with
//     replacement, which is without bias only if Options.Replace draws so.
//
// Self-loops that are always there count neither in norms nor among draws, and destinations are always sources, as in
// the code of LADIES.
//
//   - apart: as the papers have it, the sources of a block are the drawn nodes alone: fanout nodes, or
//     all that can be drawn. Self-loops are edges like others. LADIES divides the coefficients of a destination by
//     their sum (its Algorithm 1, D^-1 P), but not with debias, whose estimates are without bias.
type layerWise struct {
	ofGraph bool // FastGCN
	flat    bool
	debias  bool
	apart   bool

	m      *Method
	global *columns // of FastGCN

	known        *relabeler // of sources that may be drawn
	sources      []uint32
	weights      []float64 // of sources: what p is proportional to
	coefficients []float32 // of sources; 0: not drawn
	draws        reservoir
	cumulative   cumulative
	local        []uint32
}

// chooser is a new chooser of this kind.
func (s layerWise) chooser(m *Method, sources *relabeler) chooser {
	s.m, s.global, s.known = m, m.columns, sources
	return &s
}

func (s *layerWise) begin(c *chosenEdges, nodes []uint32) error {
	c.readsSources = true
	s.known.forget()
	s.sources, s.weights, s.coefficients = s.sources[:0], s.weights[:0], s.coefficients[:0]
	if s.global != nil {
		return s.drawGlobal(c.ctx, c.fanout, c.random)
	}
	f := s.m.factors
	err := c.in.visit(c.ctx, nodes, s.m.topology.Weighted(), func(v uint32, sources []uint32, weights []float32) {
		s.local = resize(s.local, len(sources))
		s.sources = s.known.add(s.sources, sources, s.local)
		for range len(s.sources) - len(s.weights) {
			s.weights = append(s.weights, 0)
		}
		row, loop := f.row(v, int64(len(sources))), f.loop(v)
		if s.apart && f.added && loop < 0 {
			s.addLoop(v, row)
		}
		for j, id := range s.local {
			if s.apart || int64(j) != loop {
				s.weights[id] += f.square(row, sources, weights, j)
			}
		}
	})
	if err != nil {
		return err
	}
	if s.flat {
		roots(s.weights)
	}
	return s.draw(c.ctx, c.fanout, c.random)
}

// addLoop counts the self-loop that is added to v.
func (s *layerWise) addLoop(v uint32, row float32) {
	var id [1]uint32
	s.sources = s.known.add(s.sources, []uint32{v}, id[:])
	if len(s.weights) < len(s.sources) {
		s.weights = append(s.weights, 0)
	}
	s.weights[id[0]] += s.m.factors.square(row, []uint32{v}, nil, 0)
}

// drawn are the nodes that are drawn for the block.
func (s *layerWise) drawn() []uint32 {
	s.local = s.local[:0]
	for id, c := range s.coefficients {
		if c != 0 {
			s.local = append(s.local, s.sources[id])
		}
	}
	return s.local
}

// draw draws among sources by weights, and sets their coefficients.
func (s *layerWise) draw(ctx context.Context, fanout int, random uint64) error {
	s.coefficients = resize(s.coefficients, len(s.sources))
	clear(s.coefficients)
	if s.m.options.Replace {
		s.cumulative = s.cumulative[:0]
		for _, w := range s.weights {
			s.cumulative.add(w)
		}
		total := s.cumulative.total()
		for i := 0; i < fanout && total > 0; i++ {
			if err := interrupted(ctx, i); err != nil {
				return err
			}
			id := s.cumulative.draw(rng.At(random, uint64(i)))
			s.coefficients[id] += float32(total / (float64(fanout) * s.weights[id]))
		}
		return nil
	}
	s.draws.begin(fanout)
	for id, w := range s.weights {
		if err := interrupted(ctx, id); err != nil {
			return err
		}
		s.draws.offer(uint32(id), w, rng.At(random, uint64(id)))
	}
	s.draws.finish()
	debiased := s.draws.unbiased()
	for i, d := range s.draws.draws {
		switch {
		case s.debias || s.draws.candidates <= fanout:
			s.coefficients[d.candidate] = debiased[i]
		default:
			s.coefficients[d.candidate] = float32(s.draws.total / (float64(fanout) * d.weight))
		}
	}
	return nil
}

// drawGlobal draws among all nodes. A node that has been drawn is rejected; when drawn nodes have half of the
// probability, times are drawn for all others, as in reservoir.
func (s *layerWise) drawGlobal(ctx context.Context, fanout int, random uint64) error {
	p := s.global
	number := uint64(0)
	next := func() (u uint32) {
		u = p.draw(rng.At(random, number))
		number++
		return u
	}
	s.local = resize(s.local, 1)
	one := [1]uint32{}
	if s.m.options.Replace {
		for i := 0; i < fanout && p.total() > 0; i++ {
			if err := interrupted(ctx, i); err != nil {
				return err
			}
			one[0] = next()
			s.sources = s.known.add(s.sources, one[:], s.local)
			if int(s.local[0]) == len(s.coefficients) {
				s.coefficients = append(s.coefficients, 0)
			}
			s.coefficients[s.local[0]] += float32(p.total() / (float64(fanout) * p.weight(one[0])))
		}
		return nil
	}
	left := p.total()
	for want := min(fanout, p.positive); len(s.sources) < want && left > p.total()/2; {
		if err := interrupted(ctx, int(number)); err != nil {
			return err
		}
		one[0] = next()
		if s.sources = s.known.add(s.sources, one[:], s.local); len(s.sources) > len(s.weights) {
			s.weights = append(s.weights, p.weight(one[0]))
			left -= s.weights[len(s.weights)-1]
		}
	}
	if rest := min(fanout, p.positive) - len(s.sources); rest > 0 {
		s.draws.begin(rest)
		for u := range uint32(len(p.cumulative)) {
			if err := interrupted(ctx, int(u)); err != nil {
				return err
			}
			if _, drawn := s.known.find(u); !drawn {
				s.draws.offer(u, p.weight(u), rng.At(random, number+uint64(u)))
			}
		}
		s.draws.finish()
		for _, d := range s.draws.draws {
			one[0] = d.candidate
			s.sources = s.known.add(s.sources, one[:], s.local)
			s.weights = append(s.weights, d.weight)
		}
	}
	s.coefficients = resize(s.coefficients, len(s.sources))
	if s.debias || p.positive <= fanout {
		debias(s.coefficients, func(i int) float64 { return s.weights[i] }, p.positive, p.total())
		return nil
	}
	for i, w := range s.weights {
		s.coefficients[i] = float32(p.total() / (float64(fanout) * w))
	}
	return nil
}

func (s *layerWise) choose(c *chosenEdges, v uint32, l List, loop int64, sources []uint32) error {
	if s.apart {
		if id, ok := s.known.find(v); ok && c.m.factors.added && loop < 0 && s.coefficients[id] != 0 {
			c.addLoop(l, -1, s.coefficients[id])
		}
		loop = -1 // an edge like others
	}
	for j, u := range sources {
		if id, ok := s.known.find(u); ok && int64(j) != loop && s.coefficients[id] != 0 {
			c.addOne(l, int64(j), s.coefficients[id])
		}
	}
	return nil
}
