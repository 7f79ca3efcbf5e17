package sampling

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/internal/choose"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// Subgraph is which edges there are in one graph for all layers of a model.
type Subgraph string

const (
	// Directional has the edges that were sampled: each node is sampled for once, with the fanout of the layer in which
	// it is reached first.
	Directional Subgraph = "directional"
	// Induced has all edges of the graph between the nodes that Directional reaches.
	Induced Subgraph = "induced"
)

// Limits keep edges out of subgraphs by times: a seed with a time reaches no edge, and no node, of a later time.
type Limits struct {
	EdgeTimes []int64 // [edges], by number; nil: edges have no times
	NodeTimes []int64 // [nodes]; nil: nodes have no times
	Newest    bool    // the latest edges are chosen, not random ones
}

// request is what a subgraph is sampled for.
type request struct {
	seeds  []uint32 // distinct, unless each has a tree of its own
	times  []int64  // of each seed; nil: no limits
	hidden []int64  // edges that the subgraph must not have, ascending
}

// subgraphGrower is the memory by which a sampler makes subgraphs.
type subgraphGrower struct {
	trees  map[uint64]uint32 // local id by tree and node
	holes  []int64           // places of hidden edges in a list, ascending
	places []int64           // of edges that may be chosen in a list, where these are not all but the holes
	taken  []uint64          // of choose.Subset
	number uint64            // of the next random number of the layer
}

// sampleSubgraph makes dst the subgraph of some seeds. It is a function of the method, the request and the key alone.
func (s *sampler) sampleSubgraph(dst *MiniBatch, q *request, key uint64) error {
	g, c := &s.grower, &s.edges
	dst.SeedWeights = dst.SeedWeights[:0]
	if err := s.startSubgraph(dst, q); err != nil {
		return err
	}
	b := &dst.Blocks[0]
	b.Offsets, b.Indices, b.Weights, b.Edges = append(b.Offsets[:0], 0), b.Indices[:0], b.Weights[:0], b.Edges[:0]
	s.byRelation.chosen = s.byRelation.chosen[:0]
	first := 0
	for layer, fanout := range s.options.Fanouts {
		c.fanout, c.random, g.number = fanout, rng.Start(rng.Hash(key, uint64(layer))), 0
		end := len(dst.Inputs)
		rows := s.rows(dst.Inputs[first:end])
		s.byRelation.chosen = append(s.byRelation.chosen, rows...)
		for done := 0; done < len(rows); {
			n, err := s.expand(dst, q, rows[done:], first+done)
			if err != nil {
				return err
			}
			done += n
		}
		first = end
	}
	if s.typed != nil {
		s.sortRows(b, dst.Inputs)
	}
	if s.options.Subgraph == Induced {
		if err := s.induce(dst, q); err != nil {
			return err
		}
	}
	for s.typed == nil && len(b.Offsets) <= len(dst.Inputs) {
		b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
	}
	b.Destinations, b.Sources = len(dst.Inputs), len(dst.Inputs)
	return nil
}

// startSubgraph makes dst a subgraph of the seeds alone.
func (s *sampler) startSubgraph(dst *MiniBatch, q *request) error {
	dst.Trees = dst.Trees[:0]
	if !s.options.Disjoint {
		return s.start(dst, q.seeds)
	}
	if s.grower.trees == nil {
		s.grower.trees = map[uint64]uint32{}
	}
	clear(s.grower.trees)
	dst.Blocks = resize(dst.Blocks, 1)
	dst.Seeds, dst.Inputs = append(dst.Seeds[:0], q.seeds...), append(dst.Inputs[:0], q.seeds...)
	for i, v := range q.seeds {
		if int64(v) >= s.topology.Nodes() {
			return fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, v, s.topology.Nodes())
		}
		s.grower.trees[uint64(i)<<32|uint64(v)] = uint32(i)
		dst.Trees = append(dst.Trees, uint32(i))
	}
	return nil
}

// tree is the seed from which input i was reached, if that matters.
func (m *MiniBatch) tree(i int) int {
	if len(m.Trees) == 0 {
		return 0
	}
	return int(m.Trees[i])
}

// limit is the time after which there is nothing for input i.
func (q *request) limit(m *MiniBatch, i int) (limit int64, limited bool) {
	if q.times == nil {
		return 0, false
	}
	return q.times[m.tree(i)], true
}

// expand chooses in-neighbours for the first of some nodes, which are inputs from place first on, adds them to dst, and
// returns how many nodes these were.
func (s *sampler) expand(dst *MiniBatch, q *request, nodes []uint32, first int) (int, error) {
	g, c, b := &s.grower, &s.edges, &dst.Blocks[0]
	nodes, err := c.in.next(c.ctx, nodes, func(d int64) int64 {
		if c.fanout == All || q.times != nil {
			return d
		}
		return int64(c.fanout)
	})
	if err != nil {
		return 0, err
	}
	c.edges, c.ends = c.edges[:0], c.ends[:0]
	lists := slices.Clone(c.in.lists) // which reading uses again
	for i := range nodes {
		limit, limited := q.limit(dst, first+i)
		if err := s.chooseAllowed(q, lists[i], limit, limited); err != nil {
			return 0, err
		}
		c.ends = append(c.ends, uint32(len(c.edges)))
	}
	if err := c.readSources(); err != nil {
		return 0, err
	}
	done := len(b.Indices)
	if uint64(done)+uint64(len(c.edges)) > MaxBlockEdges {
		return 0, errBlockEdges
	}
	b.Indices = grow(b.Indices, len(c.edges))[:done+len(c.edges)]
	from := 0
	for i, end := range c.ends {
		g.add(s, dst, dst.tree(first+i), c.sources[from:end], b.Indices[done+from:done+int(end)])
		b.Offsets = append(b.Offsets, uint32(done)+end)
		from = int(end)
	}
	s.appendChosen(b)
	return len(nodes), nil
}

// appendChosen appends weights and, if they are wanted, numbers of the edges that were chosen.
func (s *sampler) appendChosen(b *Block) {
	c := &s.edges
	if c.graph != nil {
		b.Weights = append(b.Weights, c.graph[:len(c.edges)]...)
	} else {
		for range c.edges {
			b.Weights = append(b.Weights, 1)
		}
	}
	if s.options.EdgeIDs {
		b.Edges = append(b.Edges, c.edges...)
	}
}

// add writes the local ids of sources in a tree. New sources become inputs of dst.
func (g *subgraphGrower) add(s *sampler, dst *MiniBatch, tree int, sources, local []uint32) {
	if !s.options.Disjoint {
		dst.Inputs = s.known.add(dst.Inputs, sources, local)
		return
	}
	for k, u := range sources {
		id, known := g.trees[uint64(tree)<<32|uint64(u)]
		if !known {
			id = uint32(len(dst.Inputs))
			g.trees[uint64(tree)<<32|uint64(u)] = id
			dst.Inputs, dst.Trees = append(dst.Inputs, u), append(dst.Trees, uint32(tree))
		}
		local[k] = id
	}
}

// chooseAllowed chooses edges of a list that are neither hidden nor later than the limit: a random subset, or the
// latest.
func (s *sampler) chooseAllowed(q *request, l List, limit int64, limited bool) error {
	g, c := &s.grower, &s.edges
	g.findHoles(q, l)
	allowed := l.Degree() - int64(len(g.holes))
	if limited {
		if err := s.findPlaces(l, limit, true); err != nil {
			return err
		}
		allowed = int64(len(g.places))
	}
	newest := limited && s.options.Limits.Newest
	if newest { // of edges of the same time, the one with the greater number is the later
		slices.SortStableFunc(g.places, func(a, b int64) int { return cmp.Compare(s.time(l, a), s.time(l, b)) })
	}
	k, replace := int64(c.fanout), s.options.Replace && c.fanout != All && !newest
	if k == All || !replace && k > allowed {
		k = allowed
	}
	if allowed == 0 || k == 0 {
		return nil
	}
	n := len(c.edges)
	c.edges = grow(c.edges, int(k))[:n+int(k)]
	edges := c.edges[n:]
	switch {
	case newest:
		for i := range edges {
			edges[i] = allowed - k + int64(i)
		}
	case k == allowed && !replace:
		for i := range edges {
			edges[i] = int64(i)
		}
	case replace:
		choose.Draw(edges, 0, allowed, c.random, g.number)
		g.number += uint64(k)
	default:
		choose.Subset(edges, 0, allowed, c.random, g.number, &g.taken)
		g.number += uint64(k)
	}
	for i, place := range edges {
		if limited {
			place = g.places[place]
		} else {
			for _, hole := range g.holes {
				if hole <= place {
					place++
				}
			}
		}
		edges[i] = l.First + place
	}
	return nil
}

// findHoles finds the places of hidden edges in a list.
func (g *subgraphGrower) findHoles(q *request, l List) {
	g.holes = g.holes[:0]
	at, _ := slices.BinarySearch(q.hidden, l.First)
	for ; at < len(q.hidden) && q.hidden[at] < l.End; at++ {
		g.holes = append(g.holes, q.hidden[at]-l.First)
	}
}

// time is the time of an edge of the list that was read last, or of its source.
func (s *sampler) time(l List, place int64) int64 {
	limits := s.options.Limits
	if limits.EdgeTimes == nil {
		return limits.NodeTimes[s.edges.sources[place]]
	}
	return limits.EdgeTimes[l.First+place]
}

// findPlaces reads a list, and finds the places in it, ascending, that are neither holes nor later than a limit.
func (s *sampler) findPlaces(l List, limit int64, limited bool) error {
	g, c := &s.grower, &s.edges
	c.sources = resize(c.sources, int(l.Degree()))
	if err := s.topology.ReadLists([]List{l}, c.sources, nil); err != nil {
		return err
	}
	g.places = g.places[:0]
	holes := g.holes
	for place := range l.Degree() {
		if len(holes) > 0 && holes[0] == place {
			holes = holes[1:]
		} else if !limited || s.time(l, place) <= limit {
			g.places = append(g.places, place)
		}
	}
	return nil
}

// induce makes the edges of dst all edges between its inputs (of the same tree) that the request allows.
func (s *sampler) induce(dst *MiniBatch, q *request) error {
	g, c, b := &s.grower, &s.edges, &dst.Blocks[0]
	b.Offsets, b.Indices, b.Weights, b.Edges = append(b.Offsets[:0], 0), b.Indices[:0], b.Weights[:0], b.Edges[:0]
	for i := range dst.Inputs {
		lists, err := c.in.next(c.ctx, dst.Inputs[i:i+1], func(d int64) int64 { return d })
		if err != nil || len(lists) == 0 {
			return err
		}
		l := c.in.lists[0]
		g.findHoles(q, l)
		limit, limited := q.limit(dst, i)
		if err := s.findPlaces(l, limit, limited); err != nil {
			return err
		}
		c.edges = c.edges[:0]
		for _, place := range g.places {
			u := c.sources[place]
			id, known := uint32(0), false
			if s.options.Disjoint {
				id, known = g.trees[uint64(dst.tree(i))<<32|uint64(u)]
			} else {
				id, known = s.known.find(u)
			}
			if known {
				c.edges, b.Indices = append(c.edges, l.First+place), append(b.Indices, id)
			}
		}
		if len(b.Indices) > MaxBlockEdges {
			return errBlockEdges
		}
		if err := c.readSources(); err != nil {
			return err
		}
		s.appendChosen(b)
		b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
	}
	return nil
}
