package sampling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/rng"
)

// chunkNodes is the number of destinations that are sampled at a time: so few that what is known of their edges stays
// in the caches of a core, and so many that each pass over them has many memory accesses on their way.
const chunkNodes = 512

// chunkEdges bounds the edges that are read or chosen of a chunk, unless a single destination has more: the lists of
// many hubs would take memory without bound.
const chunkEdges = 1 << 20

// layered is a sampler that makes one block after another, from the seeds on.
type layered struct {
	*Method
	chooser
	known *relabeler
	edges chosenEdges
	local []uint32
}

// chooser chooses the edges of a block, as one of the methods. Random numbers are those of a stream,
// which is named anew for each block.
type chooser interface {
	// begin begins a block of which these are all destinations.
	begin(c *chosenEdges, nodes []uint32, fanout int, random uint64) error
	// most bounds the edges that choose reads or chooses of a list of d edges.
	most(d int64) int64
	// choose chooses the edges of the next destinations of the block, one node after another, each
	// from c.beginNode to c.endNode.
	choose(c *chosenEdges, nodes []uint32) error
	close() error
}

// seeder is a chooser that chooses the seeds too.
type seeder interface {
	// seed chooses by so many draws. The seeds are valid until the next call, and so are their weights.
	seed(ctx context.Context, draws int, key uint64) (seeds []uint32, weights []float32, err error)
}

// chosenEdges are the edges that are chosen of a chunk of nodes. Choosers say which edges, by
// number, and how often they expect each to be chosen; what the rest needs is read at once.
type chosenEdges struct {
	m       *Method
	ctx     context.Context // of the call of Sample
	lists   []List
	edges   []int64   // by number; of an added self-loop any
	sources []uint32  // of edges
	weights []float32 // coefficients of edges
	ends    []uint32  // of each node's edges, in edges
	loops   []uint32  // places in edges of added self-loops
	graph   []float32 // weights of edges in the graph

	listSources []uint32 // of all edges of the lists, and their weights, for choosers that read them
	listWeights []float32
}

func newLayered(m *Method) (_ Sampler, err error) {
	s := &layered{Method: m, edges: chosenEdges{m: m}}
	if s.known, err = newRelabeler(m.topology.Nodes()); err != nil {
		return nil, err
	}
	if s.chooser, err = m.kind.newChooser(m); err != nil {
		return nil, errors.Join(err, s.known.close())
	}
	return s, nil
}

func (s *layered) Close() error { return errors.Join(s.chooser.close(), s.known.close()) }

func (s *layered) Sample(ctx context.Context, dst *MiniBatch, seeds []uint32, key uint64) error {
	s.edges.ctx = ctx
	var weights []float32
	if chosen, ok := s.chooser.(seeder); ok {
		var err error
		if seeds, weights, err = chosen.seed(ctx, len(seeds),
			rng.Start(rng.Hash(key, uint64(s.Layers())))); err != nil {
			return err
		}
	}
	if err := s.start(dst, seeds, s.known, &s.local); err != nil {
		return err
	}
	dst.SeedWeights = append(dst.SeedWeights[:0], weights...)
	for layer, fanout := range s.options.Fanouts {
		b := &dst.Blocks[s.Layers()-1-layer]
		if err := s.sampleBlock(b, dst, fanout, rng.Start(rng.Hash(key, uint64(layer)))); err != nil {
			return err
		}
	}
	return nil
}

// sampleBlock makes the block whose destinations are all Inputs of dst, to which it adds the sources.
func (s *layered) sampleBlock(b *Block, dst *MiniBatch, fanout int, random uint64) error {
	c := &s.edges
	b.Destinations = len(dst.Inputs)
	b.Offsets, b.Indices, b.Weights = append(b.Offsets[:0], 0), b.Indices[:0], b.Weights[:0]
	if fanout == All && !s.kind.graphWise {
		if err := c.checkAll(dst.Inputs); err != nil {
			return err
		}
	}
	if err := s.begin(c, dst.Inputs, fanout, random); err != nil {
		return err
	}
	for first := 0; first < b.Destinations; {
		nodes, err := c.beginChunk(dst.Inputs[first:b.Destinations], s.most)
		if err != nil {
			return err
		}
		first += len(nodes)
		if err := s.choose(c, nodes); err != nil {
			return err
		}
		done := len(b.Indices)
		if uint64(done)+uint64(len(c.edges)) > MaxBlockEdges {
			return errBlockEdges
		}
		if err := c.read(nodes); err != nil {
			return err
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

// checkedDraws is how many draws are made between two looks at the context: a few milliseconds.
const checkedDraws = 1 << 16

// interrupted is the cause of the end of ctx, in each checkedDraws-th draw, or nil.
func interrupted(ctx context.Context, draw int) error {
	if draw%checkedDraws != 0 {
		return nil
	}
	return context.Cause(ctx)
}

// MaxBlockEdges is the most edges that a block has: its offsets are uint32.
const MaxBlockEdges = math.MaxUint32

var errBlockEdges = errors.New("a block has more than 2^32-1 edges: sample fewer seeds or fanouts at a time")

// checkAll returns an error if all edges to these nodes are more than a block has. It looks only at a topology with so
// many edges.
func (c *chosenEdges) checkAll(nodes []uint32) error {
	t, edges := c.m.topology, int64(0)
	if t.Edges()+t.Nodes() <= MaxBlockEdges {
		return nil
	}
	for chunk := range slices.Chunk(nodes, chunkNodes) {
		c.lists = resize(c.lists, len(chunk))
		if err := t.Lists(chunk, c.lists); err != nil {
			return err
		}
		if edges += countEdges(c.lists); edges > MaxBlockEdges {
			return errBlockEdges
		}
	}
	return nil
}

// beginChunk reads where the edges of the first of some nodes are, and chooses none yet. It returns these nodes: most
// bounds the edges that are read or chosen of one.
func (c *chosenEdges) beginChunk(nodes []uint32, most func(d int64) int64) ([]uint32, error) {
	if err := context.Cause(c.ctx); err != nil {
		return nil, err
	}
	nodes = nodes[:min(chunkNodes, len(nodes))]
	c.lists = resize(c.lists, len(nodes))
	c.edges, c.weights, c.ends, c.loops = c.edges[:0], c.weights[:0], c.ends[:0], c.loops[:0]
	if err := c.m.topology.Lists(nodes, c.lists); err != nil {
		return nil, err
	}
	edges := int64(0)
	for i, v := range nodes {
		if c.m.factors.loop(v) >= c.lists[i].Degree() {
			return nil, errChanged
		}
		if edges += most(c.lists[i].Degree()); edges > chunkEdges && i > 0 {
			c.lists = c.lists[:i]
			return nodes[:i], nil
		}
	}
	return nodes, nil
}

// errChanged is returned when a mapped topology has changed since it was opened.
var errChanged = fmt.Errorf("topology: %w: it has changed since it was opened and checked", format.ErrCorrupt)

// endNode ends the edges of a node.
func (c *chosenEdges) endNode() { c.ends = append(c.ends, uint32(len(c.edges))) }

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

// readLists reads the sources of all edges of the lists, and their weights if these are wanted.
func (c *chosenEdges) readLists(weights bool) error {
	edges := int(countEdges(c.lists))
	c.listSources = resize(c.listSources, edges)
	if err := c.m.topology.ListSources(c.lists, c.listSources); err != nil || !weights {
		return err
	}
	c.listWeights = resize(c.listWeights, edges)
	return c.m.topology.ListWeights(c.lists, c.listWeights)
}

// visitLists reads the lists of all nodes, chunk by chunk, and calls visit with each: the sources of
// its edges, and their weights in a weighted graph.
func (c *chosenEdges) visitLists(nodes []uint32, visit func(v uint32, l List, sources []uint32,
	weights []float32)) error {
	for len(nodes) > 0 {
		chunk, err := c.beginChunk(nodes, func(d int64) int64 { return d })
		if err != nil {
			return err
		}
		nodes = nodes[len(chunk):]
		if err := c.readLists(c.m.topology.Weighted()); err != nil {
			return err
		}
		at := int64(0)
		for i, v := range chunk {
			l := c.lists[i]
			end := at + l.Degree()
			if c.m.topology.Weighted() {
				visit(v, l, c.listSources[at:end], c.listWeights[at:end])
			} else {
				visit(v, l, c.listSources[at:end], nil)
			}
			at = end
		}
	}
	return nil
}

// choices is the number of edges of v's list that are to be chosen among, and the place of the
// self-loop among them that is chosen for sure, or -1.
func (c *chosenEdges) choices(v uint32, l List) (d, loop int64) {
	if loop = c.m.factors.loop(v); loop >= 0 {
		return l.Degree() - 1, loop
	}
	return l.Degree(), -1
}

// addOthers chooses all edges of a list for sure, but that at place loop, which beginNode has chosen.
func (c *chosenEdges) addOthers(l List, loop int64) {
	n := len(c.edges)
	c.addAll(l.First, l.Degree())
	if loop >= 0 {
		last := dropEdge(c.edges, n, len(c.edges), l.First+loop)
		c.edges, c.weights = c.edges[:last], c.weights[:last]
	}
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
	c.edges = grow(c.edges, int(k))
	c.addChosen(n+int(k), weight)
	return c.edges[n:]
}

// addChosen adds the edges up to place end, for which there is room, with this coefficient each.
func (c *chosenEdges) addChosen(end int, weight float32) {
	n := len(c.edges)
	c.edges, c.weights = c.edges[:end], grow(c.weights, end-n)[:end]
	for j := range c.weights[n:] {
		c.weights[n+j] = weight
	}
}

// dropEdge removes an edge of edges[from:next], which ascend, and returns the next place.
func dropEdge(edges []int64, from, next int, edge int64) int {
	at, found := slices.BinarySearch(edges[from:next], edge)
	if !found {
		return next
	}
	copy(edges[from+at:next-1], edges[from+at+1:next])
	return next - 1
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
