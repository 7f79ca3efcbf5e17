package sampling

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// ListCache is a topology whose lists of some nodes are in memory (DUCATI's cache of the topology; Zhang et al. 2023),
// while the others are read from the topology behind it. Copied edges have numbers of their own, from Edges() on, so
// that a number tells where an edge is.
type ListCache struct {
	Topology          // behind it, which Close leaves open
	slotOf   []uint32 // by node: place in offsets, or noSlot
	offsets  []int64  // of copied lists
	sources  []uint32
	weights  []float32 // nil: the graph has none
	memory   *offheap.Buffer
	scratch  sync.Pool // of *uncached

	counting    atomic.Bool
	reads, hits atomic.Int64
}

// noSlot is no place: there are fewer nodes.
const noSlot = math.MaxUint32

// uncached are the nodes, lists or edges of a call that are not in memory, and what is read of them.
type uncached struct {
	at      []int // places in the call
	nodes   []uint32
	lists   []List
	edges   []int64
	sources []uint32
	weights []float32
}

// CacheLists copies the lists of nodes, which are distinct, into memory.
func CacheLists(t Topology, nodes []uint32) (_ *ListCache, err error) {
	c := &ListCache{Topology: t, slotOf: make([]uint32, t.Nodes()), offsets: make([]int64, 1, len(nodes)+1)}
	c.scratch.New = func() any { return &uncached{} }
	for v := range c.slotOf {
		c.slotOf[v] = noSlot
	}
	lists := make([]List, len(nodes))
	if err := t.Lists(nodes, lists); err != nil {
		return nil, err
	}
	for i, l := range lists {
		c.slotOf[nodes[i]] = uint32(i)
		c.offsets = append(c.offsets, c.offsets[i]+l.Degree())
	}
	edges, parts := countEdges(lists), int64(1)
	if t.Weighted() {
		parts = 2
	}
	if c.memory, err = offheap.Alloc(4 * edges * parts); err != nil {
		return nil, fmt.Errorf("cache of %d adjacency lists: %w", len(nodes), err)
	}
	c.sources = dtype.Uint32s(c.memory.Bytes()[:4*edges])
	if t.Weighted() {
		c.weights = dtype.Float32s(c.memory.Bytes()[4*edges : 8*edges])
	}
	if err := t.ReadLists(lists, c.sources, c.weights); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("cache of %d adjacency lists: %w", len(nodes), err)
	}
	return c, nil
}

// Bytes is the memory of the copied lists.
func (c *ListCache) Bytes() int64 {
	return int64(8*len(c.offsets) + 4*len(c.sources) + 4*len(c.weights))
}

// Count begins to count lists that are read. HitRate is how many of them were in memory since.
func (c *ListCache) Count() { c.counting.Store(true) }

// HitRate is 0 before any list was counted.
func (c *ListCache) HitRate() float64 {
	return float64(c.hits.Load()) / float64(max(1, c.reads.Load()))
}

// Close frees the copied lists. The topology behind them stays open.
func (c *ListCache) Close() error { return c.memory.Free() }

// take is scratch memory for a call.
func (c *ListCache) take() *uncached {
	u := c.scratch.Get().(*uncached)
	u.at, u.nodes, u.lists, u.edges = u.at[:0], u.nodes[:0], u.lists[:0], u.edges[:0]
	return u
}

func (c *ListCache) Lists(nodes []uint32, lists []List) error {
	u, first := c.take(), c.Edges()
	defer c.scratch.Put(u)
	for i, v := range nodes {
		slot := c.slotOf[v]
		if slot == noSlot {
			u.at, u.nodes = append(u.at, i), append(u.nodes, v)
			continue
		}
		lists[i] = List{first + c.offsets[slot], first + c.offsets[slot+1]}
	}
	if c.counting.Load() {
		c.reads.Add(int64(len(nodes)))
		c.hits.Add(int64(len(nodes) - len(u.nodes)))
	}
	u.lists = resize(u.lists, len(u.nodes))
	err := c.Topology.Lists(u.nodes, u.lists)
	for k, i := range u.at {
		lists[i] = u.lists[k]
	}
	return err
}

func (c *ListCache) Read(edges []int64, sources []uint32, weights []float32) error {
	u, first := c.take(), c.Edges()
	defer c.scratch.Put(u)
	for i, e := range edges {
		if e < first {
			u.at, u.edges = append(u.at, i), append(u.edges, e)
			continue
		}
		sources[i] = c.sources[e-first]
		if weights != nil {
			weights[i] = c.weights[e-first]
		}
	}
	someSources, someWeights := u.room(len(u.edges), weights != nil)
	err := c.Topology.Read(u.edges, someSources, someWeights)
	for k, i := range u.at {
		sources[i] = someSources[k]
		if weights != nil {
			weights[i] = someWeights[k]
		}
	}
	return err
}

func (c *ListCache) ReadLists(lists []List, sources []uint32, weights []float32) error {
	u, first, at := c.take(), c.Edges(), 0
	defer c.scratch.Put(u)
	for _, l := range lists {
		if l.First < first {
			u.at, u.lists = append(u.at, at), append(u.lists, l)
		} else {
			copyEdges(sources, weights, at, c.sources, c.weights, List{l.First - first, l.End - first})
		}
		at += int(l.Degree())
	}
	someSources, someWeights := u.room(int(countEdges(u.lists)), weights != nil)
	err := c.Topology.ReadLists(u.lists, someSources, someWeights)
	from := int64(0)
	for k, l := range u.lists {
		copyEdges(sources, weights, u.at[k], someSources, someWeights, List{from, from + l.Degree()})
		from += l.Degree()
	}
	return err
}

// copyEdges copies a list of edges to place at and up, their weights too unless these are not wanted.
func copyEdges(toSources []uint32, toWeights []float32, at int, sources []uint32, weights []float32, l List) {
	copy(toSources[at:], sources[l.First:l.End])
	if toWeights != nil {
		copy(toWeights[at:], weights[l.First:l.End])
	}
}

// room is memory for what is read of so many edges; weights are nil unless the edges are weighted.
func (u *uncached) room(edges int, weighted bool) (sources []uint32, weights []float32) {
	u.sources = resize(u.sources, edges)
	if weighted {
		u.weights = resize(u.weights, edges)
		weights = u.weights
	}
	return u.sources, weights
}
