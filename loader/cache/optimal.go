package cache

import "iter"

// optimal caches, at any time, the rows that are used again soonest, which no other policy beats (Belady 1966). It has
// to know the batches that follow: Begin reads batches of traceRows rows together, at least one batch, and the content
// is the best for these (Ginex calls them a superbatch). While Begin runs, each of these rows takes 4 bytes; afterwards
// it is one bit.
//
// It plans this window of batches when it begins. A row that is used in batches a and b, and not between them, is a
// hit in b if it occupies a slot from a to b, or from the beginning where b is its first. The plan is the largest set
// of such intervals with no more at any time than there are slots: intervals are taken in order of beginnings, and when
// there is one too many, the one that ends last is dropped (Faigle and Nawijn 1995).
type optimal struct {
	traceRows int64

	keep []uint64 // a bit for each row of the window: it occupies a slot until its next use
	at   int      // rows of the window that have been looked up

	// Slots that no interval occupies, which hold rows until others take their place: the last is taken first.
	free   list
	isFree []bool

	trace     rowTrace // of the window: nodes, then the batches of their next use
	starts    []int    // of its batches, in trace
	upcoming  []uint32 // by node: the batch of its next use
	intervals intervals
	first     []uint32 // nodes that are kept from the beginning
}

func newOptimal(slots int, traceRows int64) *optimal {
	return &optimal{traceRows: traceRows, free: newList(slots), isFree: make([]bool, slots)}
}

// rowTrace is a list that grows by pieces, which it keeps: it takes no more memory while it grows.
type rowTrace struct {
	pieces [][]uint32
	rows   int
}

const tracePiece = 1 << 16 // rows

func (t *rowTrace) at(i int) *uint32 { return &t.pieces[i/tracePiece][i%tracePiece] }

func (t *rowTrace) add(nodes []uint32) {
	for len(nodes) > 0 {
		if t.rows == len(t.pieces)*tracePiece {
			t.pieces = append(t.pieces, make([]uint32, tracePiece))
		}
		n := copy(t.pieces[t.rows/tracePiece][t.rows%tracePiece:], nodes)
		nodes, t.rows = nodes[n:], t.rows+n
	}
}

func (o *optimal) begin(c *Cache, _ int, trace iter.Seq[[]uint32]) int {
	o.read(trace)
	batches := len(o.starts) - 1
	if o.upcoming == nil {
		o.upcoming = make([]uint32, len(c.slotOf))
	}
	never := uint32(batches)
	fill(o.upcoming, never)
	for b := batches - 1; b >= 0; b-- {
		for i := o.starts[b]; i < o.starts[b+1]; i++ {
			at := o.trace.at(i)
			node := *at
			*at, o.upcoming[node] = o.upcoming[node], uint32(b)
		}
	}
	o.plan(c, batches)
	o.refill(c)
	o.at = 0
	return max(batches, 1)
}

// read reads the batches of a window.
func (o *optimal) read(trace iter.Seq[[]uint32]) {
	o.trace.rows, o.starts = 0, append(o.starts[:0], 0)
	for nodes := range trace {
		if len(o.starts) > 1 && int64(o.trace.rows+len(nodes)) > o.traceRows {
			break
		}
		o.trace.add(nodes)
		o.starts = append(o.starts, o.trace.rows)
	}
}

// plan chooses the intervals of the window that occupy a slot.
func (o *optimal) plan(c *Cache, batches int) {
	words := (o.trace.rows + 63) / 64
	if cap(o.keep) < words {
		o.keep = make([]uint64, words)
	}
	o.keep = o.keep[:words]
	clear(o.keep)
	o.first = o.first[:0]
	s := &o.intervals
	s.reset(len(c.nodeOf), batches)
	for node, end := range o.upcoming {
		if int(end) < batches {
			s.add(int64(o.trace.rows+node), end)
		}
	}
	for b := range batches {
		s.end(uint32(b), func(id int64) {
			if id < int64(o.trace.rows) {
				o.keep[id/64] |= 1 << (id % 64)
			} else {
				o.first = append(o.first, uint32(id-int64(o.trace.rows)))
			}
		})
		for i := o.starts[b]; i < o.starts[b+1]; i++ {
			if end := *o.trace.at(i); int(end) < batches {
				s.add(int64(i), end)
			}
		}
	}
}

// refill brings the rows that are kept from the beginning, unless they are still there.
func (o *optimal) refill(c *Cache) {
	o.free.clear()
	for slot := range c.nodeOf {
		o.release(uint32(slot))
	}
	for _, node := range o.first {
		if slot := c.slotOf[node]; slot != none {
			o.occupy(slot)
		}
	}
	for _, node := range o.first {
		if c.slotOf[node] == none {
			slot := o.free.back()
			o.occupy(slot)
			c.put(slot, node)
		}
	}
}

func (o *optimal) release(slot uint32) {
	o.isFree[slot] = true
	o.free.pushFront(slot)
}

func (o *optimal) occupy(slot uint32) {
	if o.isFree[slot] {
		o.isFree[slot] = false
		o.free.remove(slot)
	}
}

// kept tells whether row i of the batch occupies a slot after it. No row does of a batch that Begin was not told of.
func (o *optimal) kept(i int) bool {
	i += o.at
	return i < o.trace.rows && o.keep[i/64]>>(i%64)&1 == 1
}

func (o *optimal) admit(c *Cache, nodes, misses []uint32, l *Lookup) {
	for i, slot := range l.Index {
		switch {
		case slot == none:
		case o.kept(i):
			o.occupy(slot)
		case !o.isFree[slot]:
			o.release(slot)
		}
	}
	for _, i := range misses {
		if o.kept(int(i)) {
			slot := o.free.back()
			o.occupy(slot)
			c.place(nodes, i, slot, l)
		}
	}
	o.at += len(nodes)
}

// intervals occupy slots; they are listed by the batch in which they end.
type intervals struct {
	ids    []int64
	next   []uint32 // the next of the same end, or the next unused one
	heads  []uint32 // by end
	unused uint32
	latest int // no interval ends later
}

func (s *intervals) reset(slots, batches int) {
	if s.ids == nil {
		s.ids, s.next = make([]int64, slots), make([]uint32, slots)
	}
	if cap(s.heads) < batches {
		s.heads = make([]uint32, batches)
	}
	s.heads = s.heads[:batches]
	fill(s.heads, none)
	for i := range s.next {
		s.next[i] = uint32(i + 1)
	}
	s.unused, s.latest = none, -1
	if slots > 0 {
		s.next[slots-1], s.unused = none, 0
	}
}

// add adds an interval. If no slot is left, it drops the interval that ends last, perhaps the new one.
func (s *intervals) add(id int64, end uint32) {
	if s.unused == none {
		for s.heads[s.latest] == none {
			s.latest--
		}
		if int(end) >= s.latest {
			return
		}
		s.unused = s.heads[s.latest]
		s.heads[s.latest], s.next[s.unused] = s.next[s.unused], none
	}
	i := s.unused
	s.unused = s.next[i]
	s.ids[i], s.next[i], s.heads[end] = id, s.heads[end], i
	s.latest = max(s.latest, int(end))
}

// end ends the intervals that end in a batch.
func (s *intervals) end(batch uint32, ended func(id int64)) {
	for i := s.heads[batch]; i != none; {
		next := s.next[i]
		ended(s.ids[i])
		s.next[i], s.unused = s.unused, i
		i = next
	}
	s.heads[batch] = none
}
