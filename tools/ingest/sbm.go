package ingest

import (
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// SBMOptions are the options of SBM.
type SBMOptions struct {
	GenerateOptions
	// Homophily is the expected share of edges within a block.
	Homophily float64
	// Separation is the root mean square distance between the mean features of two classes, in standard deviations of
	// the noise of a feature.
	Separation float64
}

// maxMeans bounds Classes * Features, which are in memory.
const maxMeans = 1 << 26

// SBM is a generator of graphs that can be learnt: a stochastic block model (Holland, Laskey, Leinhardt 1983) given the
// number of edges. Node v is in block v mod Classes, which is its class. The source of an edge is uniform; its
// destination is uniform within the same block with probability Homophily, and otherwise uniform outside of it. Edges
// are undirected: both directions are stored. Features are Gaussian around the mean of the class.
func SBM(o SBMOptions) (Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if !(o.Homophily >= 0 && o.Homophily <= 1) {
		return nil, badOptions("--homophily %v (want 0 to 1)", o.Homophily)
	}
	if !(o.Separation >= 0 && o.Separation <= 1e6) {
		return nil, badOptions("--separation %v (want 0 to 1e6)", o.Separation)
	}
	if means := int64(o.Classes) * int64(o.Features); means > maxMeans {
		return nil, badOptions("--classes %d times --features %d is more than %d", o.Classes, o.Features, maxMeans)
	}
	s := newSynthetic("sbm", o.GenerateOptions, Undirected)
	s.info.Input["homophily"] = formatFloat(o.Homophily)
	s.info.Input["separation"] = formatFloat(o.Separation)

	// A component of the difference of two means has the variance 2*scale^2.
	means, scale := rng.Derive(o.Seed, "means"), o.Separation/math.Sqrt(2*float64(o.Features))
	s.means = make([]float64, o.Classes*o.Features)
	s.info.FeatureBytes = 8 * int64(len(s.means))
	for i := range s.means {
		s.means[i] = scale * rng.Normal(means, uint64(i))
	}
	s.class = func(v uint64) int32 { return int32(v % uint64(o.Classes)) }
	edges := rng.Derive(o.Seed, "edges")
	n, blocks := uint64(o.Nodes), uint64(o.Classes)
	s.edge = func(i uint64) (src, dst uint32) {
		stream := rng.Hash(edges, i)
		u := below(rng.Hash(stream, 0), n)
		within := rng.Float64(rng.Hash(stream, 1)) < o.Homophily
		return uint32(u), uint32(sbmNeighbor(u, n, blocks, within, rng.Hash(stream, 2)))
	}
	return s, nil
}

// sbmNeighbor picks one of the other nodes of u's block, or, if within is false or there are none, a node outside of
// it. (In a graph of one node it is u.)
func sbmNeighbor(u, n, blocks uint64, within bool, h uint64) uint64 {
	block := u % blocks
	size := (n-1-block)/blocks + 1
	if size == n && n == 1 {
		return u
	}
	if size > 1 && within || size == n {
		j := below(h, size-1)
		if j >= u/blocks {
			j++
		}
		return block + j*blocks
	}
	// Without this block, node ids come in groups of blocks-1.
	t := below(h, n-size)
	group, at := t/(blocks-1), t%(blocks-1)
	if at >= block {
		at++
	}
	return group*blocks + at
}
