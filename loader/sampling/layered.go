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

// sampler makes mini-batches, one block after another, from the seeds on, for one call of Method.Sample at a time. It
// uses its memory again.
type sampler struct {
	*Method
	chooser
	known   *relabeler // of the nodes of a batch; of the sources of a block, where destinations are apart
	sources *relabeler // for choosers that give local ids to sources; else nil
	edges   chosenEdges
	local   []uint32
	grower  subgraphGrower

	byRelation typedRows // of a typed graph
}

// chooser chooses the edges of a block, as one of the methods.
type chooser interface {
	// begin begins a block whose destinations are nodes.
	begin(c *chosenEdges, nodes []uint32) error
	// choose chooses among the edges of the list of node v. The edge at place loop is a self-loop that is chosen
	// already; -1: there is none. sources are the list's sources, if begin has set chosenEdges.readsSources.
	choose(c *chosenEdges, v uint32, l List, loop int64, sources []uint32) error
}

// seeder is a chooser that chooses the seeds too.
type seeder interface {
	// seed chooses seed nodes by draws. The seeds are valid until the next call, and so are their weights.
	seed(ctx context.Context, draws int, key uint64) (seeds []uint32, weights []float32, err error)
	// weigh sets the coefficients of the edges that were chosen of some nodes.
	weigh(c *chosenEdges) error
}

// chosenEdges are the edges that are chosen of some nodes. Choosers say which edges, by number, and how often they
// expect each to be chosen; what the rest needs is read at once.
type chosenEdges struct {
	m   *Method
	ctx context.Context // of the call of Sample

	// The block:
	fanout                     int
	nodeWise                   bool   // each node has this fanout
	random                     uint64 // its random numbers
	readsSources, readsWeights bool   // the chooser looks at these of all edges of lists

	in      listReader
	at      int64     // place of the list of the node that is chosen of, in what is read
	edges   []int64   // by number; of an added self-loop any
	sources []uint32  // of edges
	weights []float32 // coefficients of edges
	ends    []uint32  // of each node's edges, in edges
	loops   []uint32  // places in edges of added self-loops
	graph   []float32 // weights of edges in the graph; nil: it has none
}

// take is a sampler that no call has.
func (m *Method) take() (_ *sampler, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := len(m.idle) - 1; last >= 0 {
		s := m.idle[last]
		m.idle = m.idle[:last]
		return s, nil
	}
	s := &sampler{Method: m, edges: chosenEdges{m: m, in: listReader{topology: m.topology}}}
	if s.known, err = newRelabeler(m.topology.Nodes()); err != nil {
		return nil, err
	}
	if m.kind.relabels {
		if s.sources, err = newRelabeler(m.topology.Nodes()); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	s.chooser = m.kind.newChooser(m, s.sources)
	return s, nil
}

func (s *sampler) close() error { return errors.Join(s.known.close(), s.sources.close()) }

// Sample makes dst the mini-batch of seeds, which are distinct. The result is a function of the method, the seeds and
// the key (see Key) alone. Graph-wise methods choose seeds themselves, as many nodes, edges or walks as there are
// seeds, and use their number only: dst.Seeds says which they are. After an error dst is not valid. If ctx ends, Sample
// soon returns its cause. The memory of a call is used again by later ones, and freed by Close.
func (m *Method) Sample(ctx context.Context, dst *MiniBatch, seeds []uint32, key uint64) error {
	return m.lend(ctx, func(s *sampler) error {
		if m.options.Subgraph != "" {
			return s.sampleSubgraph(dst, &request{seeds: seeds}, key)
		}
		return s.sample(ctx, dst, seeds, key)
	})
}

// lend calls do with a sampler that no other call has.
func (m *Method) lend(ctx context.Context, do func(s *sampler) error) error {
	s, err := m.take()
	if err != nil {
		return err
	}
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.idle = append(m.idle, s)
	}()
	s.edges.ctx = ctx
	return do(s)
}

func (s *sampler) sample(ctx context.Context, dst *MiniBatch, seeds []uint32, key uint64) (err error) {
	var weights []float32
	if chosen, ok := s.chooser.(seeder); ok {
		random := rng.Start(rng.Hash(key, uint64(s.Layers())))
		if seeds, weights, err = chosen.seed(ctx, len(seeds), random); err != nil {
			return err
		}
	}
	if err := s.start(dst, seeds); err != nil {
		return err
	}
	dst.SeedWeights = append(dst.SeedWeights[:0], weights...)
	for layer, fanout := range s.options.Fanouts {
		s.edges.fanout, s.edges.random = fanout, rng.Start(rng.Hash(key, uint64(layer)))
		at := s.Blocks() / s.Layers() * (s.Layers() - 1 - layer)
		err := s.sampleBlock(&dst.Blocks[at], dst)
		if err == nil && s.options.ByType {
			err = s.splitByType(&dst.Blocks[at], &dst.Blocks[at+1], dst.Inputs)
		}
		if err != nil {
			return err
		}
	}
	if s.options.ByType {
		s.sortInputs(dst)
	}
	return nil
}

// start makes dst an empty mini-batch of distinct seeds, which have the local ids 0 and up.
func (s *sampler) start(dst *MiniBatch, seeds []uint32) error {
	for i, v := range seeds {
		if int64(v) >= s.topology.Nodes() {
			return fmt.Errorf("seed %d is node %d: the graph has %d nodes", i, v, s.topology.Nodes())
		}
	}
	s.known.forget()
	s.local = resize(s.local, len(seeds))
	dst.Inputs = s.known.add(dst.Inputs[:0], seeds, s.local)
	if len(dst.Inputs) < len(seeds) {
		for i, id := range s.local {
			if seeds[id] == seeds[i] && int(id) < i {
				return fmt.Errorf("seeds %d and %d are both node %d: the seeds of a batch must be distinct", id, i,
					seeds[i])
			}
		}
	}
	dst.Seeds = append(dst.Seeds[:0], seeds...)
	dst.Blocks = resize(dst.Blocks, s.Blocks())
	return nil
}

// sampleBlock makes the block whose destinations are all Inputs of dst, to which it adds the sources, or which the
// sources replace where destinations are apart.
func (s *sampler) sampleBlock(b *Block, dst *MiniBatch) error {
	c := &s.edges
	b.Destinations = len(dst.Inputs)
	b.Offsets, b.Indices, b.Weights, b.Edges = append(b.Offsets[:0], 0), b.Indices[:0], b.Weights[:0], b.Edges[:0]
	if err := c.begin(s.chooser, s.rows(dst.Inputs)); err != nil {
		return err
	}
	destinations := dst.Inputs
	if b.Nodes = b.Nodes[:0]; s.kind.apart {
		b.Nodes = append(b.Nodes, dst.Inputs...)
		destinations = b.Nodes
		s.known.forget()
		dst.Inputs = dst.Inputs[:0]
		if layer, ok := s.chooser.(*layerWise); ok && !c.all() {
			drawn := layer.drawn()
			s.local = resize(s.local, len(drawn))
			dst.Inputs = s.known.add(dst.Inputs, drawn, s.local)
		}
	}
	for rows := s.rows(destinations); len(rows) > 0; {
		nodes, err := c.choose(s.chooser, rows)
		if err != nil {
			return err
		}
		rows = rows[len(nodes):]
		done := len(b.Indices)
		if uint64(done)+uint64(len(c.edges)) > MaxBlockEdges {
			return errBlockEdges
		}
		if err := c.read(nodes); err != nil {
			return err
		}
		if s.kind.normalized && !c.all() {
			c.normalize()
		}
		b.Offsets = grow(b.Offsets, len(nodes))
		for _, end := range c.ends {
			b.Offsets = append(b.Offsets, uint32(done)+end)
		}
		b.Weights = append(grow(b.Weights, len(c.weights)), c.weights...)
		if s.options.EdgeIDs {
			for _, at := range c.loops {
				c.edges[at] = -1
			}
			b.Edges = append(grow(b.Edges, len(c.edges)), c.edges...)
		}
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

// all tells that all edges of the block's destinations are chosen, without the chooser.
func (c *chosenEdges) all() bool { return c.fanout == All && !c.m.kind.graphWise }

// begin begins a block whose destinations are nodes.
func (c *chosenEdges) begin(s chooser, nodes []uint32) error {
	c.readsSources, c.readsWeights = false, false
	c.nodeWise = c.fanout != All && !c.m.kind.layerWise && !c.m.kind.graphWise
	if c.all() {
		return c.checkAll(nodes)
	}
	return s.begin(c, nodes)
}

// checkAll returns an error if all edges to these nodes are more than a block has. It looks only at a topology with so
// many edges.
func (c *chosenEdges) checkAll(nodes []uint32) error {
	t, edges := c.m.topology, int64(0)
	if t.Edges()+t.Nodes() <= MaxBlockEdges {
		return nil
	}
	for len(nodes) > 0 {
		some, err := c.in.next(c.ctx, nodes, func(int64) int64 { return 0 })
		if err != nil {
			return err
		}
		if edges += countEdges(c.in.lists); edges > MaxBlockEdges {
			return errBlockEdges
		}
		nodes = nodes[len(some):]
	}
	return nil
}

// errChanged is returned when a mapped topology has changed since it was opened.
var errChanged = fmt.Errorf("topology: %w: it has changed since it was opened and checked", format.ErrCorrupt)

// choose chooses edges of the first of some nodes, and returns these nodes.
func (c *chosenEdges) choose(s chooser, nodes []uint32) (_ []uint32, err error) {
	c.edges, c.weights, c.ends, c.loops, c.at = c.edges[:0], c.weights[:0], c.ends[:0], c.loops[:0], 0
	if nodes, err = c.in.next(c.ctx, nodes, c.bound); err == nil && c.readsSources {
		err = c.in.read(c.readsWeights)
	}
	if err != nil {
		return nil, err
	}
	var sources []uint32
	all, f := c.all(), c.m.factors
	for i, v := range nodes {
		l, loop := c.in.lists[i], f.loop(v)
		if loop >= l.Degree() {
			return nil, errChanged
		}
		if f.added && (all || !c.m.kind.apart) {
			c.addLoop(l, loop, 1)
		}
		if c.readsSources {
			sources = c.in.sources[c.at:][:l.Degree()]
		}
		if all {
			c.addOthers(l, loop)
		} else if err := s.choose(c, v, l, loop, sources); err != nil {
			return nil, err
		}
		c.ends = append(c.ends, uint32(len(c.edges)))
		c.at += l.Degree()
	}
	if s, ok := s.(seeder); ok {
		return nodes, s.weigh(c)
	}
	return nodes, nil
}

// bound bounds the edges that are read or chosen of a list of d.
func (c *chosenEdges) bound(d int64) int64 {
	chosen := d
	if d > 0 && c.nodeWise {
		if chosen = int64(c.fanout); !c.m.options.Replace {
			chosen = min(chosen, d)
		}
	}
	if c.readsSources {
		return max(chosen, d)
	}
	return chosen
}

// addLoop chooses the self-loop of a node, before its other edges, with this coefficient: that at place loop of its
// list, or, if that is -1, an added one.
func (c *chosenEdges) addLoop(l List, loop int64, weight float32) {
	edge := l.First + loop
	if loop < 0 {
		c.loops, edge = append(c.loops, uint32(len(c.edges))), 0
	}
	c.edges, c.weights = append(c.edges, edge), append(c.weights, weight)
}

// normalize divides the coefficients of each node by their sum, if that is positive.
func (c *chosenEdges) normalize() {
	first := uint32(0)
	for _, end := range c.ends {
		sum, weights := 0.0, c.weights[first:end]
		for _, w := range weights {
			sum += float64(w)
		}
		for j := range weights {
			if sum > 0 {
				weights[j] = float32(float64(weights[j]) / sum)
			}
		}
		first = end
	}
}

// choices is the number of edges of a list that are to be chosen among: all but the one at place loop, if there is one.
func choices(l List, loop int64) int64 {
	if loop >= 0 {
		return l.Degree() - 1
	}
	return l.Degree()
}

// addOthers chooses all edges of a list for sure, but that at place loop.
func (c *chosenEdges) addOthers(l List, loop int64) {
	n := len(c.edges)
	edges := c.add(l.Degree(), 1)
	for j := range edges {
		edges[j] = l.First + int64(j)
	}
	if loop >= 0 {
		last := dropEdge(c.edges, n, len(c.edges), l.First+loop)
		c.edges, c.weights = c.edges[:last], c.weights[:last]
	}
}

// add makes room for k edges with this coefficient.
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

// addOne chooses the edge at a place of a list, with this coefficient.
func (c *chosenEdges) addOne(l List, place int64, weight float32) {
	c.edges, c.weights = append(c.edges, l.First+place), append(c.weights, weight)
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

// readSources reads the sources and the weights of the chosen edges.
func (c *chosenEdges) readSources() error {
	t := c.m.topology
	c.sources = resize(c.sources, len(c.edges))
	if t.Weighted() {
		c.graph = resize(c.graph, len(c.edges))
	}
	if t.Edges() == 0 || len(c.edges) == 0 {
		return nil
	}
	return t.Read(c.edges, c.sources, c.graph)
}

// read reads the sources of the chosen edges, and multiplies the coefficients, so far the inverse of the expected
// number of times that an edge is chosen, by the matrix.
func (c *chosenEdges) read(nodes []uint32) error {
	t, f := c.m.topology, c.m.factors
	if err := c.readSources(); err != nil {
		return err
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
		row := f.row(v, c.in.lists[i].Degree())
		weights := c.weights[at:end]
		for j := range weights {
			weights[j] *= row
		}
		at = end
	}
	for j, w := range c.graph {
		c.weights[j] *= w
	}
	if f.t != nil {
		for j, u := range c.sources {
			c.weights[j] *= f.t[u]
		}
	}
	return nil
}
