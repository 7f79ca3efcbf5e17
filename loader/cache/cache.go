// Package cache decides which rows of a matrix are in fast memory: in device memory while all rows are in host memory,
// or in host memory while all are in storage. A Cache keeps the table of nodes and slots; whoever owns the memory of
// the slots moves rows as the Cache says. Policies (Spec) differ only in the rows that they admit:
//
//	degree      the nodes of the highest out-degree (PaGraph; Lin et al. 2020)
//	presampled  the nodes that one epoch of sampling visits most often (GNNLab; Yang et al. 2022)
//	ducati      the same nodes, in a budget shared with the topology (DUCATI; Zhang et al. 2023)
//	gns         a random set of nodes, drawn anew each epoch (mq-gnn Eq. 14-16)
//	fifo        the rows that were missed last (BGL; Liu et al. 2023)
//	lru         the rows that were used last
//	optimal     the rows that are used again soonest, in an epoch that is known (Belady 1966; Ginex, Park et al. 2022)
//
// A Cache is used by one goroutine. Others may call Contains, but not during Begin, and only if the content is Fixed.
package cache

import (
	"iter"
	"math"
)

// none is no slot, or no node.
const none = math.MaxUint32

// Cache is a table of the nodes whose rows are cached.
type Cache struct {
	slotOf []uint32 // by node
	nodeOf []uint32 // by slot
	policy policy
	load   Load
	misses []uint32 // positions, in the batch that is looked up
	name   string   // of the policy
}

// policy chooses the content of a cache.
type policy interface {
	// begin prepares for the batches from here on, whose nodes trace yields, and changes the content by Cache.put,
	// which adds to Cache.load. It returns for how many batches that holds.
	begin(c *Cache, epoch int, trace iter.Seq[[]uint32]) (batches int)
	// admit follows a batch. misses are positions in nodes. It says by Cache.place which of them get a slot, each slot
	// once.
	admit(c *Cache, nodes, misses []uint32, l *Lookup)
}

// Load lists rows to bring into slots.
type Load struct{ Nodes, Slots []uint32 }

// Lookup tells where the rows of a batch are. Its memory is used again.
//
// Rows are copied to the batch first, then the misses that are admitted into their slots, which may be slots of hits.
type Lookup struct {
	// Index [nodes of the batch] is the slot of a row, or the number of slots + j for row j of Misses.
	Index []uint32
	// Misses are the nodes whose rows are not there; the first len(Into) are to be put into the slots Into.
	Misses, Into []uint32
}

// Hits is the number of rows that are there.
func (l *Lookup) Hits() int { return len(l.Index) - len(l.Misses) }

func newCache(name string, nodes int64, slots int, p policy) *Cache {
	c := &Cache{slotOf: make([]uint32, nodes), nodeOf: make([]uint32, slots), policy: p, name: name}
	fill(c.slotOf, none)
	fill(c.nodeOf, none)
	return c
}

func fill(s []uint32, value uint32) {
	for i := range s {
		s[i] = value
	}
}

// Slots is the number of rows that the cache has room for.
func (c *Cache) Slots() int { return len(c.nodeOf) }

// Contains tells whether a node is cached.
func (c *Cache) Contains(node uint32) bool { return c.slotOf[node] != none }

// Fixed tells that the content changes only in Begin, and is a function of the epoch: samplers that
// prefer cached nodes then give the same batches every time.
func (c *Cache) Fixed() bool { _, fixed := c.policy.(*drawn); return fixed }

// Traced tells that Begin has to know the batches.
func (c *Cache) Traced() bool { _, traced := c.policy.(*optimal); return traced }

// Policy is the name of the policy.
func (c *Cache) Policy() string { return c.name }

// Table has, for each node, the slot of its row, or a number that is no slot: for a device that looks rows up by
// itself. The cache must be Fixed. It is valid until the next call of Begin.
func (c *Cache) Table() []uint32 { return c.slotOf }

// Begin begins an epoch, or goes on after the batches that the last Begin was for. trace yields the
// nodes of the batches that follow; it is called only if the cache is Traced. The rows that it
// returns must be brought into their slots before the next batch; they are valid until the next call.
// batches is how many batches may be looked up before Begin has to be called again.
func (c *Cache) Begin(epoch int, trace iter.Seq[[]uint32]) (load Load, batches int) {
	c.load.Nodes, c.load.Slots = c.load.Nodes[:0], c.load.Slots[:0]
	batches = c.policy.begin(c, epoch, trace)
	return c.load, batches
}

// Lookup finds the rows of the next batch, whose nodes are distinct, and admits what the policy wants.
func (c *Cache) Lookup(nodes []uint32, l *Lookup) {
	l.Index, l.Misses, l.Into = l.Index[:0], l.Misses[:0], l.Into[:0]
	c.misses = c.misses[:0]
	for i, node := range nodes {
		slot := c.slotOf[node]
		if slot == none {
			c.misses = append(c.misses, uint32(i))
		}
		l.Index = append(l.Index, slot)
	}
	c.policy.admit(c, nodes, c.misses, l)
	for _, i := range c.misses {
		if l.Index[i] == none {
			c.addMiss(nodes, i, l)
		}
	}
}

func (c *Cache) addMiss(nodes []uint32, i uint32, l *Lookup) {
	l.Index[i] = uint32(len(c.nodeOf) + len(l.Misses))
	l.Misses = append(l.Misses, nodes[i])
}

// place puts the row that is missed at position i of the batch into a slot.
func (c *Cache) place(nodes []uint32, i, slot uint32, l *Lookup) {
	c.addMiss(nodes, i, l)
	l.Into = append(l.Into, slot)
	c.set(slot, nodes[i])
}

// put puts a row into a slot before the next batch.
func (c *Cache) put(slot, node uint32) {
	c.load.Nodes, c.load.Slots = append(c.load.Nodes, node), append(c.load.Slots, slot)
	c.set(slot, node)
}

// set says that a slot holds a node, and no longer the one before.
func (c *Cache) set(slot, node uint32) {
	c.evict(slot)
	c.nodeOf[slot], c.slotOf[node] = node, slot
}

// Forget empties slots whose rows, asked for by the last Lookup or Begin, have not come.
func (c *Cache) Forget(slots []uint32) {
	for _, slot := range slots {
		c.evict(slot)
	}
}

func (c *Cache) evict(slot uint32) {
	if old := c.nodeOf[slot]; old != none {
		c.nodeOf[slot], c.slotOf[old] = none, none
	}
}
