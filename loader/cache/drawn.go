package cache

import (
	"fmt"
	"iter"
	"math"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// drawn is a content that changes at most when an epoch begins: the nodes of the highest scores, or a random set.
type drawn struct {
	choose func(epoch int) []uint32 // ascending nodes, at most as many as there are slots
	redraw bool                     // for every epoch

	began   bool
	epoch   int
	free    []uint32 // slots
	staying []bool   // by slot
}

// fixed caches these nodes, which ascend.
func fixed(nodes []uint32) *drawn { return &drawn{choose: func(int) []uint32 { return nodes }} }

// newGNS caches nodes that are drawn without replacement, with probabilities proportional to weights, anew for every
// epoch (mq-gnn section III-C). A node of weight 0 is never drawn. Efraimidis and Spirakis 2006: the largest of
// u^(1/weight), u uniform, are such a draw.
func newGNS(slots int, weights []float32, seed uint64) (*drawn, error) {
	for node, w := range weights {
		if !(w >= 0 && w <= math.MaxFloat32) {
			return nil, fmt.Errorf("weight %g of node %d is negative or not finite", w, node)
		}
	}
	keys := make([]uint32, len(weights))
	seed = rng.Derive(seed, "gns cache")
	return &drawn{redraw: true, choose: func(epoch int) []uint32 {
		start := rng.Start(rng.Hash(seed, uint64(epoch)))
		positive := 0
		for node, w := range weights {
			keys[node] = 0
			if w > 0 {
				// The least of -ln(u)/w, whose bits ascend as it does; the key is never 0.
				u := 1 - rng.Float64(rng.At(start, uint64(node)))
				wait := float32(-math.Log(u) / float64(w))
				keys[node] = math.MaxUint32 - math.Float32bits(min(wait, math.MaxFloat32))
				positive++
			}
		}
		return highest(keys, min(slots, positive))
	}}, nil
}

func (d *drawn) begin(c *Cache, epoch int, _ iter.Seq[[]uint32]) int {
	if d.began && (!d.redraw || epoch == d.epoch) {
		return math.MaxInt
	}
	d.began, d.epoch = true, epoch
	chosen := d.choose(epoch)
	if d.staying == nil {
		d.staying = make([]bool, len(c.nodeOf))
	}
	clear(d.staying)
	for _, node := range chosen {
		if slot := c.slotOf[node]; slot != none {
			d.staying[slot] = true
		}
	}
	d.free = d.free[:0]
	for slot, stays := range d.staying {
		if !stays {
			c.evict(uint32(slot))
			d.free = append(d.free, uint32(slot))
		}
	}
	for _, node := range chosen {
		if c.slotOf[node] == none {
			c.put(d.free[0], node)
			d.free = d.free[1:]
		}
	}
	return math.MaxInt
}

func (*drawn) admit(*Cache, []uint32, []uint32, *Lookup) {}

// highest lists the k nodes of the highest scores in ascending order. Among equal scores, the lowest nodes win.
func highest(scores []uint32, k int) []uint32 {
	// The highest score that at least k nodes reach, bit by bit.
	least := uint32(0)
	for bit := uint32(1 << 31); bit > 0; bit >>= 1 {
		if reach(scores, least|bit) >= k {
			least |= bit
		}
	}
	above := 0
	if least < math.MaxUint32 {
		above = reach(scores, least+1)
	}
	equal := k - above
	top := make([]uint32, 0, k)
	for node, score := range scores {
		switch {
		case len(top) == k:
			return top
		case score > least:
			top = append(top, uint32(node))
		case score == least && equal > 0:
			top = append(top, uint32(node))
			equal--
		}
	}
	return top
}

// reach counts the scores of least or more.
func reach(scores []uint32, least uint32) (count int) {
	for _, score := range scores {
		if score >= least {
			count++
		}
	}
	return count
}
