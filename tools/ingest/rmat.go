package ingest

import (
	"math"
	"math/bits"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// RMATOptions are the options of RMAT. A, B, C and D are the probabilities of the four quadrants; Graph500 takes
// 0.57, 0.19, 0.19 and 0.05.
type RMATOptions struct {
	GenerateOptions
	A, B, C, D float64
	Undirected bool // add the reverse of every edge
}

// RMAT is a generator of graphs with skewed degrees (Chakrabarti, Zhan, Faloutsos 2004, "R-MAT: a recursive model for
// graph mining"): each edge descends through the quadrants of the adjacency matrix, one bit of source and destination a
// level. Edges outside of n x n, where n is no power of two, are drawn again, and ids are permuted, so that they tell
// nothing of degrees. Features are noise and classes uniform: such a graph is for measuring speed, and nothing can be
// learnt from it.
func RMAT(o RMATOptions) (Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	for _, p := range []float64{o.A, o.B, o.C, o.D} {
		if !(p >= 0) {
			return nil, badOptions("--quadrants: probability %v (want 0 to 1)", p)
		}
	}
	if sum := o.A + o.B + o.C + o.D; math.Abs(sum-1) > 1e-6 {
		return nil, badOptions("--quadrants: the probabilities add up to %v (want 1)", sum)
	}
	direction := Directed
	if o.Undirected {
		direction = Undirected
	}
	s := newSynthetic("rmat", o.GenerateOptions, direction)
	for key, p := range map[string]float64{"a": o.A, "b": o.B, "c": o.C, "d": o.D} {
		s.info.Input[key] = formatFloat(p)
	}
	s.edge = newRMATEdges(o).edge
	classes := rng.Derive(o.Seed, "classes")
	s.class = func(v uint64) int32 { return int32(below(rng.Hash(classes, v), uint64(o.Classes))) }
	return s, nil
}

// rmatEdges draws edges. A level takes 16 bits of a hash, so the probabilities are rounded to multiples of 2^-16.
type rmatEdges struct {
	seed      uint64
	nodes     uint64
	levels    int
	bounds    [3]int32 // where quadrants b, c and d begin, in 2^-16
	multiply  [2]uint64
	add       [2]uint64
	halfShift int
}

func newRMATEdges(o RMATOptions) *rmatEdges {
	permutation := rng.Derive(o.Seed, "permutation")
	levels := bits.Len64(uint64(o.Nodes - 1))
	cut := func(p float64) int32 { return int32(math.Round(p * (1 << 16))) }
	r := &rmatEdges{
		seed:      rng.Derive(o.Seed, "edges"),
		nodes:     uint64(o.Nodes),
		levels:    levels,
		halfShift: (levels + 1) / 2,
	}
	r.bounds = [3]int32{cut(o.A), cut(o.A + o.B), cut(o.A + o.B + o.C)}
	for i := range r.multiply {
		r.multiply[i] = rng.Hash(permutation, uint64(2*i)) | 1
		r.add[i] = rng.Hash(permutation, uint64(2*i+1))
	}
	return r
}

// maxRedraws ends the search of an edge within n x n where probabilities make one next to impossible.
const maxRedraws = 100

func (r *rmatEdges) edge(i uint64) (src, dst uint32) {
	u, v := r.draw(i)
	return r.permute(u), r.permute(v)
}

// draw is edge i before ids are permuted.
func (r *rmatEdges) draw(i uint64) (u, v uint64) {
	stream := rng.Hash(r.seed, i)
	next := uint64(0)
	for redraw := 0; ; redraw++ {
		u, v = 0, 0
		var h uint64
		for level := range r.levels {
			if level%4 == 0 {
				h = rng.Hash(stream, next)
				next++
			}
			x := int32(h & 0xffff)
			h >>= 16
			// The number of bounds at or below x is the quadrant: its upper bit is the source's, its lower the
			// destination's.
			q := uint32(r.bounds[0]-1-x)>>31 + uint32(r.bounds[1]-1-x)>>31 + uint32(r.bounds[2]-1-x)>>31
			u, v = u<<1|uint64(q>>1), v<<1|uint64(q&1)
		}
		if u < r.nodes && v < r.nodes {
			return u, v
		}
		if redraw == maxRedraws {
			return u % r.nodes, v % r.nodes
		}
	}
}

// permute is a bijection of [0, nodes): one of [0, 2^levels), applied until the result is in range.
func (r *rmatEdges) permute(x uint64) uint32 {
	mask := uint64(1)<<r.levels - 1
	for {
		for i := range r.multiply {
			x = (x*r.multiply[i] + r.add[i]) & mask
			x ^= x >> r.halfShift
		}
		if x < r.nodes {
			return uint32(x)
		}
	}
}
