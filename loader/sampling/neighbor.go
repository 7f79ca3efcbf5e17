package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/choose"
)

// uniform chooses up to fanout in-neighbours of each node, each subset of them with the same probability (GraphSAGE;
// preprop-gnn section 2.2, mq-gnn Eq. 3), or each by itself where it draws with replacement.
type uniform struct {
	taken   []uint64 // of choose.Subset
	replace bool
	fanout  int
	random  uint64
	number  uint64 // of the next random number of the block
}

// newNeighbor is uniform, or weighted by edges.
func newNeighbor(m *Method) (chooser, error) {
	if m.options.ByWeight {
		return newWeighted(m)
	}
	return newUniform(m)
}

func newUniform(m *Method) (chooser, error) { return &uniform{replace: m.options.Replace}, nil }

func (u *uniform) begin(_ *chosenEdges, _ []uint32, fanout int, random uint64) error {
	u.fanout, u.random, u.number = fanout, random, 0
	return nil
}

func (u *uniform) close() error { return nil }

func (u *uniform) most(d int64) int64 {
	switch k := int64(u.fanout); {
	case u.fanout == All || d == 0:
		return d
	case u.replace:
		return k
	default:
		return min(k, d)
	}
}

func (u *uniform) choose(c *chosenEdges, nodes []uint32) error {
	for i, v := range nodes {
		l, loop := c.beginNode(i, v)
		d := l.Degree()
		if loop >= 0 {
			d--
		}
		begin := len(c.edges)
		switch k := int64(u.fanout); {
		case u.fanout == All || k >= d && !u.replace:
			c.addAll(l.First, d)
		case u.replace:
			if err := context.Cause(c.ctx); err != nil {
				return err
			}
			if d > 0 {
				choose.Draw(c.add(k, float32(float64(d)/float64(k))), l.First, d, u.random, u.number)
				u.number += uint64(k)
			}
		default:
			choose.Subset(c.add(k, float32(float64(d)/float64(k))), l.First, d, u.random, u.number, &u.taken)
			u.number += uint64(k)
		}
		if loop >= 0 {
			for j, e := range c.edges[begin:] {
				if e >= l.First+loop {
					c.edges[begin+j]++
				}
			}
		}
		c.endNode()
	}
	return nil
}
