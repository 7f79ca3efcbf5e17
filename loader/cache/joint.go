package cache

import (
	"cmp"
	"slices"
)

// Items are what of each node may be kept in fast memory: its value, which is how many bytes need
// not be moved then, and its size in bytes, at least 1.
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

const jointItemBytes = 24

// Joint divides a budget in bytes between feature rows and adjacency lists as DUCATI does (Zhang et
// al. 2023): of both together, the items of the highest value per byte that still fit, so that the
// last byte of either is worth the same. The value is that of the best choice, less at most that of
// one item (Dantzig 1957). Items without value are left out. The lists of nodes ascend.
func Joint(budgetBytes int64, rows, lists Items) (rowNodes, listNodes []uint32) {
	count := 0
	for _, values := range [][]float64{rows.Values, lists.Values} {
		for _, value := range values {
			if value > 0 {
				count++
			}
		}
	}
	items := make([]item, 0, count)
	for _, kind := range []struct {
		Items
		list bool
	}{{rows, false}, {lists, true}} {
		for node, value := range kind.Values {
			if bytes := kind.Bytes(uint32(node)); value > 0 && bytes <= budgetBytes {
				items = append(items, item{value / float64(bytes), bytes, uint32(node), kind.list})
			}
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.density, a.density) })
	// The best single item is more than all others together where it is large.
	best, value, left := -1, 0.0, budgetBytes
	for i, it := range items {
		if best < 0 || it.density*float64(it.bytes) > items[best].density*float64(items[best].bytes) {
			best = i
		}
		if it.bytes <= left {
			left -= it.bytes
			value += it.density * float64(it.bytes)
			if it.list {
				listNodes = append(listNodes, it.node)
			} else {
				rowNodes = append(rowNodes, it.node)
			}
		}
	}
	if best >= 0 && items[best].density*float64(items[best].bytes) > value {
		rowNodes, listNodes = nil, nil
		if items[best].list {
			listNodes = []uint32{items[best].node}
		} else {
			rowNodes = []uint32{items[best].node}
		}
	}
	slices.Sort(rowNodes)
	slices.Sort(listNodes)
	return rowNodes, listNodes
}
