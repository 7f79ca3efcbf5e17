package sampling

import (
	"context"

	"github.com/hopfeed/hopfeed/internal/choose"
)

// uniform chooses up to fanout in-neighbours of each node, each subset of them with the same probability (GraphSAGE;
// preprop-gnn section 2.2, mq-gnn Eq. 3), or each by itself where it draws with replacement.
type uniform struct {
	taken  []uint64 // of choose.Subset
	number uint64   // of the next random number of the block
}

// newNeighbor is uniform, or weighted by edges.
func newNeighbor(m *Method, _ *relabeler) chooser {
	if m.options.ByWeight {
		return &weighted{byEdge: true, debias: true}
	}
	return &uniform{}
}

func (u *uniform) begin(*chosenEdges, []uint32) error {
	u.number = 0
	return nil
}

func (u *uniform) choose(c *chosenEdges, _ uint32, l List, loop int64, _ []uint32) error {
	d, k, replace := choices(l, loop), int64(c.fanout), c.m.options.Replace
	if d == 0 || k >= d && !replace {
		c.addOthers(l, loop)
		return nil
	}
	edges := c.add(k, float32(float64(d)/float64(k)))
	if replace {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		choose.Draw(edges, l.First, d, c.random, u.number)
	} else {
		choose.Subset(edges, l.First, d, c.random, u.number, &u.taken)
	}
	u.number += uint64(k)
	if loop >= 0 {
		for j, e := range edges {
			if e >= l.First+loop {
				edges[j]++
			}
		}
	}
	return nil
}
