package cache

import (
	"cmp"
	"slices"
)

// Items are one thing of each node that may be in fast memory. Its value is how many bytes need not be moved then; its
// size is at least 1 byte.
type Items struct {
	Values []float64
	Bytes  func(node uint32) int64
}

// item is a row or a list.
type item struct {
	density float64
	bytes   int64
	node    uint32
	list    bool
}

func (it item) value() float64 { return it.density * float64(it.bytes) }

const jointItemBytes = 24

// Joint divides a budget in bytes between feature rows and adjacency lists as DUCATI does (Zhang et al. 2023): it takes
// the items of both kinds by value per byte, highest first, as long as they fit, so the last byte of either kind is
// worth the same. The total value is less than the best possible by at most one item (Dantzig 1957). Items without
// value are left out. The lists of nodes ascend.
func Joint(budgetBytes int64, rows, lists Items) (rowNodes, listNodes []uint32) {
	kinds := []Items{rows, lists}
	count := 0
	for _, k := range kinds {
		for _, value := range k.Values {
			if value > 0 {
				count++
			}
		}
	}
	items := make([]item, 0, count)
	for kind, k := range kinds {
		for node, value := range k.Values {
			if bytes := k.Bytes(uint32(node)); value > 0 && bytes <= budgetBytes {
				items = append(items, item{value / float64(bytes), bytes, uint32(node), kind == 1})
			}
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.density, a.density) })
	// The best single item is more than all others together where it is large.
	var best item
	value, left, chosen := 0.0, budgetBytes, items[:0]
	for _, it := range items {
		if it.value() > best.value() {
			best = it
		}
		if it.bytes <= left {
			left, value, chosen = left-it.bytes, value+it.value(), append(chosen, it)
		}
	}
	if best.value() > value {
		chosen = []item{best}
	}
	for _, it := range chosen {
		if it.list {
			listNodes = append(listNodes, it.node)
		} else {
			rowNodes = append(rowNodes, it.node)
		}
	}
	slices.Sort(rowNodes)
	slices.Sort(listNodes)
	return rowNodes, listNodes
}
