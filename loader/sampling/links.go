package sampling

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// Links are the seeds of link prediction: edges, and pairs of nodes that are none.
type Links struct {
	Sources, Destinations []uint32
	Times                 []int64 // of each; nil: there are no limits
	// Ratio is how many negative pairs there are for each link. With Triplet, they have the links' sources and a random
	// destination each; else both ends are random.
	Ratio   float64
	Triplet bool
	// Hide keeps the links of a batch, and their reverses, out of its subgraph.
	Hide bool
}

// Negatives is the number of negative pairs for these links.
func (l *Links) Negatives(links int) int { return int(math.Ceil(l.Ratio * float64(links))) }

// HeldBytes is the memory of the links.
func (l *Links) HeldBytes() int64 {
	return 4*int64(len(l.Sources)+len(l.Destinations)) + 8*int64(len(l.Times))
}

// BatchBytes bounds the memory of links while a batch is sampled, beside its subgraph: ends, times, searches for
// edges, and seeds.
func (l *Links) BatchBytes(links int) int64 {
	const (
		ofSearch   = 16 + 4*8 + 2*4 // see edgeFinder
		ofSeeds    = 2 * (4 + 8 + 4)
		ofLink     = 2*4 + 8 + 2*(ofSearch+8) + ofSeeds // hidden edges and their reverses
		ofNegative = 2*4 + 8 + 2*4 + ofSearch + ofSeeds
	)
	return (ofLink*int64(links) + ofNegative*int64(l.Negatives(links))) * 5 / 4 // as slices grow
}

// check refuses links that a graph of n nodes cannot have.
func (l *Links) check(n int64) error {
	switch {
	case len(l.Sources) != len(l.Destinations) || l.Times != nil && len(l.Times) != len(l.Sources):
		return fmt.Errorf("%w: %d sources, %d destinations and %d times of links", ErrOptions, len(l.Sources),
			len(l.Destinations), len(l.Times))
	case !(l.Ratio >= 0 && l.Ratio <= maxFanout) || l.Triplet && l.Ratio != math.Trunc(l.Ratio):
		return fmt.Errorf("%w: %v negative pairs for each link: want 0 or more, and whole numbers for triplets",
			ErrOptions, l.Ratio)
	case l.Ratio > 0 && n < 2:
		return fmt.Errorf("%w: a graph of %d nodes has no pairs of nodes", ErrOptions, n)
	}
	for i, u := range l.Sources {
		if v := l.Destinations[i]; int64(max(u, v)) >= n {
			return fmt.Errorf("%w: link %d is from node %d to node %d: the graph has %d nodes", ErrOptions, i, u, v, n)
		}
	}
	return nil
}

// LinkSet plans epochs over links, as Set does over nodes: plan.BatchRows is links. The seeds of a batch are the nodes
// of its links and negative pairs; its method samples subgraphs.
func (l *Loader) LinkSet(links *Links, method *Method, plan chunk.Plan) (*Set, error) {
	if err := links.check(method.topology.Nodes()); err != nil {
		return nil, err
	}
	if (links.Times != nil) != (method.options.Limits != nil) {
		return nil, fmt.Errorf("%w: links have times, and edges or nodes have, or neither", ErrOptions)
	}
	e := &Epochs{method: method, links: links, plan: plan}
	e.plan.Rows = int64(len(links.Sources))
	return &Set{l: l, Epochs: e}, e.plan.Check()
}

// LimitSeeds gives each node of the set, in their order, the time after which it reaches nothing.
func (s *Set) LimitSeeds(times []int64) error {
	if len(times) != len(s.nodes) || s.method.options.Limits == nil {
		return fmt.Errorf("%w: %d times of %d seeds", ErrOptions, len(times), len(s.nodes))
	}
	s.times = times
	return nil
}

// sampleLinks makes the subgraph of a job's links, whose numbers its seeds are.
func (s *Epochs) sampleLinks(sampler *sampler, j *job) error {
	l, key, positive := s.links, s.key(j), len(j.seeds)
	var q request
	var times []int64 // of the links
	sources, destinations := make([]uint32, positive), make([]uint32, positive)
	for i, number := range j.seeds {
		sources[i], destinations[i] = l.Sources[number], l.Destinations[number]
		if l.Times != nil {
			times = append(times, l.Times[number])
		}
	}
	var f edgeFinder
	if l.Hide {
		if err := f.find(s.method.topology, slices.Concat(sources, destinations),
			slices.Concat(destinations, sources)); err != nil {
			return err
		}
		for i, first := range f.first {
			for edge := first; edge < f.end[i]; edge++ {
				q.hidden = append(q.hidden, edge)
			}
		}
		slices.Sort(q.hidden)
		q.hidden = slices.Compact(q.hidden)
	}
	negatives := negativePairs{l: l, limits: s.method.options.Limits, times: times, finder: &f,
		sources: make([]uint32, l.Negatives(positive)), destinations: make([]uint32, l.Negatives(positive))}
	if err := negatives.draw(sampler.edges.ctx, s.method.topology, sources, key); err != nil {
		return err
	}
	if !l.Triplet {
		sources = append(sources, negatives.sources...)
	}
	destinations = append(destinations, negatives.destinations...)
	q.seeds = append(sources, destinations...)
	for i := 0; times != nil && i < len(q.seeds); i++ { // negative pair i is beside link i modulo their number
		pair := i
		if i >= len(sources) {
			pair -= len(sources)
		}
		q.times = append(q.times, times[pair%positive])
	}
	j.ends = resize(j.ends, len(q.seeds))
	if s.method.options.Disjoint {
		for i := range j.ends {
			j.ends[i] = uint32(i)
		}
	} else {
		sampler.known.forget()
		q.seeds = sampler.known.add(nil, q.seeds, j.ends)
	}
	return sampler.sampleSubgraph(&j.sample, &q, key)
}

// negativePairs are pairs of different nodes without an edge from the one to the other.
type negativePairs struct {
	l                     *Links
	limits                *Limits
	times                 []int64 // of the links beside them
	sources, destinations []uint32
	finder                *edgeFinder
}

// mostTries is how often a pair is drawn that may not be a negative one, before the graph is taken for complete.
const mostTries = 10_000

// draw draws the pairs: all allowed pairs are equally likely, as a pair that is not allowed is drawn again.
// With times of nodes, these must not be later than the link's.
func (p *negativePairs) draw(ctx context.Context, t Topology, linkSources []uint32, key uint64) error {
	n, key := uint64(t.Nodes()), rng.Derive(key, "negative pairs")
	open := make([]int, len(p.sources)) // pairs that are drawn again
	for i := range open {
		open[i] = i
	}
	var sources, destinations []uint32
	for try := uint64(0); len(open) > 0; try++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if try == mostTries {
			return fmt.Errorf("%w: %d random pairs of nodes for a link all have an edge, or a node of a later time: ask "+
				"for no negative pairs", ErrOptions, mostTries)
		}
		sources, destinations = sources[:0], destinations[:0]
		for _, i := range open {
			random := rng.Start(rng.Hash(key, uint64(i)))
			u, _ := bits.Mul64(rng.At(random, 2*try), n)
			v, _ := bits.Mul64(rng.At(random, 2*try+1), n)
			if p.l.Triplet {
				u = uint64(linkSources[i%len(linkSources)])
			}
			p.sources[i], p.destinations[i] = uint32(u), uint32(v)
			sources, destinations = append(sources, uint32(u)), append(destinations, uint32(v))
		}
		if err := p.finder.find(t, sources, destinations); err != nil {
			return err
		}
		again := open[:0]
		for k, i := range open {
			if p.finder.first[k] < p.finder.end[k] || sources[k] == destinations[k] || p.isLater(i, len(linkSources)) {
				again = append(again, i)
			}
		}
		open = again
	}
	return nil
}

// isLater tells whether a node of pair i is later than the link beside the pair.
func (p *negativePairs) isLater(i, links int) bool {
	if p.times == nil || p.limits == nil || p.limits.NodeTimes == nil {
		return false
	}
	limit, times := p.times[i%links], p.limits.NodeTimes
	return times[p.destinations[i]] > limit || !p.l.Triplet && times[p.sources[i]] > limit
}
