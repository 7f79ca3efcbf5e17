package sampling

import (
	"errors"
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// chunkNodes is the number of destinations that are sampled at a time: so few that what is known of
// their edges stays in the caches of a core, and so many that each pass over them has many memory
// accesses on their way.
const chunkNodes = 512

// nodeWise is a sampler that chooses in-neighbours of each node by itself.
type nodeWise struct {
	*Method
	chooser
	known *relabeler
	edges chosenEdges
	local []uint32
}

// chooser chooses edges of nodes, as one of the node-wise methods.
type chooser interface {
	// choose adds the edges that it chooses to c, node by node, each of which it ends by c.end.
	// random names the random numbers of the layer, first the number of the first node in it.
	choose(c *chosenEdges, nodes []uint32, fanout int, random uint64, first int) error
}

// chosenEdges are the edges that are chosen of a chunk of nodes. Choosers say which edges, by
// number, and how often they expect each to be chosen; what the rest needs is read at once.
type chosenEdges struct {
	m       *Method
	lists   []List
	edges   []int64   // by number; of an added self-loop any
	sources []uint32  // of edges
	weights []float32 // coefficients of edges
	ends    []uint32  // of each node's edges, in edges
	loops   []uint32  // places in edges of added self-loops
	graph   []float32 // weights of edges in the graph
}

func newNodeWise(m *Method) (Sampler, error) {
	known, err := newRelabeler(m.topology.Nodes())
	if err != nil {
		return nil, err
	}
	return &nodeWise{Method: m, chooser: &uniform{replace: m.options.Replace}, known: known, edges: chosenEdges{m: m}}, nil
}

func (s *nodeWise) Close() error { return s.known.close() }

func (s *nodeWise) Sample(dst *MiniBatch, seeds []uint32, key uint64) error {
	if err := s.begin(dst, seeds, s.known, &s.local); err != nil {
		return err
	}
	for layer, fanout := range s.options.Fanouts {
		b := &dst.Blocks[s.Layers()-1-layer]
		if err := s.sampleBlock(b, dst, fanout, rng.Start(rng.Hash(key, uint64(layer)))); err != nil {
			return err
		}
	}
	return nil
}

// sampleBlock makes the block whose destinations are all Inputs of dst, to which it adds the sources.
func (s *nodeWise) sampleBlock(b *Block, dst *MiniBatch, fanout int, random uint64) error {
	c := &s.edges
	b.Destinations = len(dst.Inputs)
	b.Offsets, b.Indices, b.Weights = append(b.Offsets[:0], 0), b.Indices[:0], b.Weights[:0]
	for first := 0; first < b.Destinations; first += chunkNodes {
		nodes := dst.Inputs[first:min(first+chunkNodes, b.Destinations)]
		if err := c.begin(nodes); err != nil {
			return err
		}
		if err := s.choose(c, nodes, fanout, random, first); err != nil {
			return err
		}
		if err := c.read(nodes); err != nil {
			return err
		}
		done := len(b.Indices)
		if uint64(done)+uint64(len(c.sources)) > math.MaxUint32 {
			return errors.New("a block has more than 2^32-1 edges: sample fewer seeds or fanouts at a time")
		}
		b.Offsets = grow(b.Offsets, len(nodes))
		for _, end := range c.ends {
			b.Offsets = append(b.Offsets, uint32(done)+end)
		}
		b.Weights = append(grow(b.Weights, len(c.weights)), c.weights...)
		b.Indices = grow(b.Indices, len(c.sources))[:done+len(c.sources)]
		dst.Inputs = s.known.add(dst.Inputs, c.sources, b.Indices[done:])
	}
	b.Sources = len(dst.Inputs)
	return nil
}

// begin reads where the edges of nodes are, and chooses none yet.
func (c *chosenEdges) begin(nodes []uint32) error {
	c.lists = resize(c.lists, len(nodes))
	c.edges, c.weights, c.ends, c.loops = c.edges[:0], c.weights[:0], c.ends[:0], c.loops[:0]
	return c.m.topology.Lists(nodes, c.lists)
}

// end ends the edges of a node.
func (c *chosenEdges) end() { c.ends = append(c.ends, uint32(len(c.edges))) }

// beginNode adds the self-loop of node i of the chunk, if there is always one, and returns its list,
// and the place of the self-loop in it or -1: the others of the list are to be chosen among.
func (c *chosenEdges) beginNode(i int, v uint32) (l List, loop int64) {
	l = c.lists[i]
	if !c.m.factors.added {
		return l, -1
	}
	loop = c.m.factors.loop(v)
	edge := l.First + loop
	if loop < 0 {
		c.loops, edge = append(c.loops, uint32(len(c.edges))), 0
	}
	c.edges, c.weights = append(c.edges, edge), append(c.weights, 1)
	return l, loop
}

// read reads the sources of the chosen edges, and multiplies the coefficients, so far the inverse
// of the expected number of times that an edge is chosen, by the matrix.
func (c *chosenEdges) read(nodes []uint32) error {
	t, f := c.m.topology, c.m.factors
	c.sources = resize(c.sources, len(c.edges))
	if t.Weighted() {
		c.graph = resize(c.graph, len(c.edges))
	}
	if t.Edges() > 0 {
		if err := t.Sources(c.edges, c.sources); err != nil {
			return err
		}
		if t.Weighted() {
			if err := t.Weights(c.edges, c.graph); err != nil {
				return err
			}
		}
	}
	next := 0 // in c.loops
	at := uint32(0)
	for i, v := range nodes {
		end := c.ends[i]
		if next < len(c.loops) && c.loops[next] == at && at < end {
			c.sources[at] = v
			if t.Weighted() {
				c.graph[at] = 1
			}
			next++
		}
		row := f.row(v, c.lists[i].Degree())
		weights := c.weights[at:end]
		for j := range weights {
			weights[j] *= row
		}
		at = end
	}
	if t.Weighted() {
		for j, w := range c.graph {
			c.weights[j] *= w
		}
	}
	if f.t != nil {
		for j, u := range c.sources {
			c.weights[j] *= f.t[u]
		}
	}
	return nil
}
