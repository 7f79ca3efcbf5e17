package sampling

import (
	"context"
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// uniform chooses up to fanout in-neighbours of each node, each subset of them with the same
// probability (GraphSAGE; preprop-gnn section 2.2, mq-gnn Eq. 3), or each by itself where it draws
// with replacement.
type uniform struct {
	chosen  []uint64 // a bit for each in-neighbour of a node with more than 64
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
				u.draw(c, l.First, d, k)
			}
		case d <= 64:
			u.subsetOfFew(c, l.First, d, k)
		default:
			u.subset(c, l.First, d, k)
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

// subsetOfFew chooses k of d edges, at most 64: for each j from d-k on it takes a random one of the
// first j+1, or j where that has been taken before (Floyd; Bentley 1987). The bits of a word say
// which have been, so that there are no branches.
func (u *uniform) subsetOfFew(c *chosenEdges, first, d, k int64) {
	edges, taken := c.add(k, float32(d)/float32(k)), uint64(0)
	for i := range edges {
		j := uint64(d - k + int64(i))
		e, _ := bits.Mul64(rng.At(u.random, u.number+uint64(i)), j+1)
		if taken>>(e&63)&1 != 0 {
			e = j
		}
		taken |= 1 << (e & 63)
		edges[i] = first + int64(e)
	}
	u.number += uint64(k)
}

// subset is subsetOfFew for any d.
func (u *uniform) subset(c *chosenEdges, first, d, k int64) {
	if words := int(d+63) / 64; words > len(u.chosen) {
		u.chosen = make([]uint64, max(words, 2*len(u.chosen)))
	}
	edges := c.add(k, float32(float64(d)/float64(k)))
	for i := range edges {
		j := uint64(d - k + int64(i))
		e, _ := bits.Mul64(rng.At(u.random, u.number+uint64(i)), j+1)
		if u.chosen[e/64]>>(e%64)&1 != 0 {
			e = j
		}
		u.chosen[e/64] |= 1 << (e % 64)
		edges[i] = first + int64(e)
	}
	for _, e := range edges {
		u.chosen[(e-first)/64] = 0
	}
	u.number += uint64(k)
}

// draw chooses k of d edges with replacement.
func (u *uniform) draw(c *chosenEdges, first, d, k int64) {
	edges := c.add(k, float32(float64(d)/float64(k)))
	for i := range edges {
		e, _ := bits.Mul64(rng.At(u.random, u.number+uint64(i)), uint64(d))
		edges[i] = first + int64(e)
	}
	u.number += uint64(k)
}
