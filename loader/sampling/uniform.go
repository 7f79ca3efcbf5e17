package sampling

import (
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// uniform chooses up to fanout in-neighbours of each node, each subset of them with the same
// probability (GraphSAGE; preprop-gnn section 2.2, mq-gnn Eq. 3), or each by itself where it draws
// with replacement.
type uniform struct {
	chosen  []uint64 // a bit for each in-neighbour of a node with more than 64
	replace bool
	number  uint64 // of the next random number of the layer
}

func (u *uniform) choose(c *chosenEdges, nodes []uint32, fanout int, random uint64, first int) error {
	if first == 0 {
		u.number = 0
	}
	for i, v := range nodes {
		l, loop := c.beginNode(i, v)
		d := l.Degree()
		if loop >= 0 {
			d--
		}
		begin := len(c.edges)
		switch k := int64(fanout); {
		case fanout == All || k >= d && !u.replace:
			c.addAll(l.First, d)
		case u.replace:
			if d > 0 {
				u.draw(c, l.First, d, k, random)
			}
		case d <= 64:
			u.subsetOfFew(c, l.First, d, k, random)
		default:
			u.subset(c, l.First, d, k, random)
		}
		if loop >= 0 {
			for j, e := range c.edges[begin:] {
				if e >= l.First+loop {
					c.edges[begin+j]++
				}
			}
		}
		c.end()
	}
	return nil
}

// addAll chooses d edges from first on for sure.
func (c *chosenEdges) addAll(first, d int64) {
	c.edges, c.weights = grow(c.edges, int(d)), grow(c.weights, int(d))
	for e := first; e < first+d; e++ {
		c.edges, c.weights = append(c.edges, e), append(c.weights, 1)
	}
}

// add makes room for k edges, each of which has this coefficient.
func (c *chosenEdges) add(k int64, weight float32) []int64 {
	n := len(c.edges)
	c.edges, c.weights = grow(c.edges, int(k))[:n+int(k)], grow(c.weights, int(k))[:n+int(k)]
	for j := range c.weights[n:] {
		c.weights[n+j] = weight
	}
	return c.edges[n:]
}

// subsetOfFew chooses k of d edges, at most 64: for each j from d-k on it takes a random one of the
// first j+1, or j where that has been taken before (Floyd; Bentley 1987). The bits of a word say
// which have been, so that there are no branches.
func (u *uniform) subsetOfFew(c *chosenEdges, first, d, k int64, random uint64) {
	edges, taken := c.add(k, float32(d)/float32(k)), uint64(0)
	for i := range edges {
		j := uint64(d - k + int64(i))
		e, _ := bits.Mul64(rng.At(random, u.number+uint64(i)), j+1)
		if taken>>(e&63)&1 != 0 {
			e = j
		}
		taken |= 1 << (e & 63)
		edges[i] = first + int64(e)
	}
	u.number += uint64(k)
}

// subset is subsetOfFew for any d.
func (u *uniform) subset(c *chosenEdges, first, d, k int64, random uint64) {
	if words := int(d+63) / 64; words > len(u.chosen) {
		u.chosen = make([]uint64, max(words, 2*len(u.chosen)))
	}
	edges := c.add(k, float32(float64(d)/float64(k)))
	for i := range edges {
		j := uint64(d - k + int64(i))
		e, _ := bits.Mul64(rng.At(random, u.number+uint64(i)), j+1)
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
func (u *uniform) draw(c *chosenEdges, first, d, k int64, random uint64) {
	edges := c.add(k, float32(float64(d)/float64(k)))
	for i := range edges {
		e, _ := bits.Mul64(rng.At(random, u.number+uint64(i)), uint64(d))
		edges[i] = first + int64(e)
	}
	u.number += uint64(k)
}
