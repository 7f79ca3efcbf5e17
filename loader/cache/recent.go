package cache

import (
	"iter"
	"math"
)

// fifo caches the rows that were missed last: it fills the slots round and round.
type fifo struct{ next int }

func (*fifo) begin(*Cache, int, iter.Seq[[]uint32]) int { return math.MaxInt }

func (f *fifo) admit(c *Cache, nodes, misses []uint32, l *Lookup) {
	for _, i := range misses[max(0, len(misses)-len(c.nodeOf)):] {
		c.place(nodes, i, uint32(f.next), l)
		if f.next++; f.next == len(c.nodeOf) {
			f.next = 0
		}
	}
}

// lru caches the rows that were used last. It is the slots, the one that was used last in front. Within a batch, the
// rows at its end count as used last.
type lru struct{ list }

func newLRU(slots int) *lru {
	p := &lru{newList(slots)}
	for slot := range slots {
		p.pushFront(uint32(slot))
	}
	return p
}

func (*lru) begin(*Cache, int, iter.Seq[[]uint32]) int { return math.MaxInt }

func (p *lru) admit(c *Cache, nodes, _ []uint32, l *Lookup) {
	// If a batch is larger than the cache, its last rows stay. Slots that stay are moved to the front, so the slots
	// behind them, at least as many as the misses, can be taken.
	first := max(0, len(nodes)-len(c.nodeOf))
	for _, slot := range l.Index[first:] {
		if slot != none {
			p.remove(slot)
			p.pushFront(slot)
		}
	}
	for i := first; i < len(nodes); i++ {
		slot := l.Index[i]
		if slot == none {
			slot = p.back()
			c.place(nodes, uint32(i), slot, l)
		}
		p.remove(slot)
		p.pushFront(slot)
	}
}

// list is a doubly linked list of slots. The entry after the last one is its head: what follows it is
// the front, what is before it is the back.
type list struct{ next, previous []uint32 }

func newList(slots int) list {
	l := list{make([]uint32, slots+1), make([]uint32, slots+1)}
	l.clear()
	return l
}

func (l *list) clear() {
	head := uint32(len(l.next) - 1)
	l.next[head], l.previous[head] = head, head
}

func (l *list) pushFront(slot uint32) {
	head := uint32(len(l.next) - 1)
	after := l.next[head]
	l.next[head], l.previous[slot] = slot, head
	l.next[slot], l.previous[after] = after, slot
}

func (l *list) remove(slot uint32) {
	before, after := l.previous[slot], l.next[slot]
	l.next[before], l.previous[after] = after, before
}

// back is the last slot; the list must not be empty.
func (l *list) back() uint32 { return l.previous[len(l.next)-1] }
