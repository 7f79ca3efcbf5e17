package sampling

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/offheap"
)

// ListCache is a topology of which the lists of some nodes are in memory (DUCATI's cache of the
// topology; Zhang et al. 2023), while the others are read from the topology behind it. Copied edges
// have numbers of their own, from Edges() on, so that a number tells where an edge is.
type ListCache struct {
	Topology          // behind it, which Close leaves open
	slotOf   []uint32 // by node: place in offsets, or noSlot
	offsets  []int64  // of copied lists
	sources  []uint32
	weights  []float32
	memory   []*offheap.Buffer
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
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cache of %d adjacency lists: %w", len(nodes), err), c.Close())
		}
	}()
	edges := countEdges(lists)
	alloc := func() (b *offheap.Buffer, err error) {
		if b, err = offheap.Alloc(4 * edges); err == nil {
			c.memory = append(c.memory, b)
		}
		return b, err
	}
	b, err := alloc()
	if err != nil {
		return nil, err
	}
	c.sources = dtype.Uint32s(b.Bytes())[:edges]
	if err := t.ListSources(lists, c.sources); err != nil || !t.Weighted() {
		return c, err
	}
	if b, err = alloc(); err != nil {
		return nil, err
	}
	c.weights = dtype.Float32s(b.Bytes())[:edges]
	return c, t.ListWeights(lists, c.weights)
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
func (c *ListCache) Close() error {
	var errs []error
	for _, b := range c.memory {
		errs = append(errs, b.Free())
	}
	c.memory = nil
	return errors.Join(errs...)
}

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
	if len(u.nodes) == 0 {
		return nil
	}
	u.lists = resize(u.lists, len(u.nodes))
	err := c.Topology.Lists(u.nodes, u.lists)
	for k, i := range u.at {
		lists[i] = u.lists[k]
	}
	return err
}

func (c *ListCache) Sources(edges []int64, sources []uint32) error {
	u := c.take()
	defer c.scratch.Put(u)
	return ofEdges(c, u, edges, c.sources, sources, &u.sources, c.Topology.Sources)
}

func (c *ListCache) Weights(edges []int64, weights []float32) error {
	u := c.take()
	defer c.scratch.Put(u)
	return ofEdges(c, u, edges, c.weights, weights, &u.weights, c.Topology.Weights)
}

// ofEdges sets the values of edges to those that are cached, and the others to what read gives, for which
// there is scratch memory.
func ofEdges[T any](c *ListCache, u *uncached, edges []int64, cached, values []T, scratch *[]T,
	read func([]int64, []T) error) error {
	first := c.Edges()
	for i, e := range edges {
		if e < first {
			u.at, u.edges = append(u.at, i), append(u.edges, e)
			continue
		}
		values[i] = cached[e-first]
	}
	if len(u.edges) == 0 {
		return nil
	}
	*scratch = resize(*scratch, len(u.edges))
	err := read(u.edges, *scratch)
	for k, i := range u.at {
		values[i] = (*scratch)[k]
	}
	return err
}

func (c *ListCache) ListSources(lists []List, sources []uint32) error {
	u := c.take()
	defer c.scratch.Put(u)
	return ofLists(c, u, lists, c.sources, sources, &u.sources, c.Topology.ListSources)
}

func (c *ListCache) ListWeights(lists []List, weights []float32) error {
	u := c.take()
	defer c.scratch.Put(u)
	return ofLists(c, u, lists, c.weights, weights, &u.weights, c.Topology.ListWeights)
}

// ofLists sets the values of the edges of lists to those that are cached, and the others to what read
// gives, for which there is scratch memory.
func ofLists[T any](c *ListCache, u *uncached, lists []List, cached, values []T, scratch *[]T,
	read func([]List, []T) error) error {
	at, first := 0, c.Edges()
	for _, l := range lists {
		if n := int(l.Degree()); l.First >= first {
			copy(values[at:at+n], cached[l.First-first:])
		} else {
			u.at, u.lists = append(u.at, at), append(u.lists, l)
		}
		at += int(l.Degree())
	}
	if len(u.lists) == 0 {
		return nil
	}
	*scratch = resize(*scratch, int(countEdges(u.lists)))
	err := read(u.lists, *scratch)
	rest := *scratch
	for k, l := range u.lists {
		n := int(l.Degree())
		copy(values[u.at[k]:u.at[k]+n], rest[:n])
		rest = rest[n:]
	}
	return err
}
