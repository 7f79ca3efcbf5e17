package kernel

import (
	"fmt"
	"unsafe"
)

// List is rows to add up: Terms.Nodes[Start:End], and row Self, unless it is negative or among them.
type List struct{ Start, End, Self int64 }

// Terms are lists of rows with their coefficients. Row i of Nodes is multiplied by the product of Edges[i], or of
// Edges[Codes[i]] if there are Codes, and Factors[Nodes[i]]; a row Self by Selves[Self]. What is nil is all 1.
type Terms struct {
	Lists   []List
	Nodes   []uint32 // ascending within a list
	Edges   []float32
	Codes   []uint16 // 1<<16 Edges then
	Factors []float32
	Selves  []float32
}

// SumListsFloat32 sums lists of rows of a matrix: list l to sums[l*stride:][:columns], from zeros, one row after
// another, with a row Self before the first row above it. It returns how many rows Self it has added.
//
// It reads the first columns of the rows of x, which lie stride numbers apart, as the sums do. Rows are fetched from
// memory ahead, over the ends of lists, so one call for many lists is faster than many. It panics where an index is out
// of range.
func SumListsFloat32(sums, x []float32, stride, columns int, t *Terms) (selves int) {
	return sumLists(active.listsFloat32, portable.listsFloat32, sums, x, stride, columns, t)
}

// SumListsFloat16 is SumListsFloat32 on a matrix of float16.
func SumListsFloat16(sums []float32, x []uint16, stride, columns int, t *Terms) (selves int) {
	return sumLists(active.listsFloat16, portable.listsFloat16, sums, x, stride, columns, t)
}

// SumListsBFloat16 is SumListsFloat32 on a matrix of bfloat16.
func SumListsBFloat16(sums []float32, x []uint16, stride, columns int, t *Terms) (selves int) {
	return sumLists(active.listsBFloat16, portable.listsBFloat16, sums, x, stride, columns, t)
}

// Rows are fetched aheadBytes ahead, but no more rows than aheadRows: enough to keep the memory busy, and few
// enough for the first-level cache to keep.
const (
	aheadBytes = 4096
	aheadRows  = 32
)

// sumLists calls vectors on as many columns at a time as it takes, and rest where there are too few for it.
func sumLists[T float32 | uint16](vectors, rest listRows[T], sums []float32, x []T, stride, columns int,
	t *Terms) (selves int) {
	terms, most := int64(0), int64(-1)
	enough := 0 <= columns && columns <= stride && (len(t.Lists) == 0 || len(sums) >= (len(t.Lists)-1)*stride+columns)
	for i := range t.Lists {
		l := &t.Lists[i]
		enough = enough && 0 <= l.Start && l.Start <= l.End && l.End <= int64(len(t.Nodes))
		terms += l.End - l.Start
		most = max(most, l.Self)
	}
	if enough && (len(t.Lists) == 0 || columns == 0) {
		return 0
	}
	rows := 0
	if enough && len(x) >= columns {
		rows = (len(x)-columns)/stride + 1
	}
	enough = enough && most < int64(rows) && (t.Selves == nil || most < int64(len(t.Selves))) &&
		(t.Factors == nil || len(t.Factors) >= rows) &&
		(t.Codes == nil && (t.Edges == nil || len(t.Edges) >= len(t.Nodes)) ||
			t.Codes != nil && len(t.Codes) >= len(t.Nodes) && len(t.Edges) == 1<<16)
	if !enough {
		panic(fmt.Sprintf("kernel: %d lists up to row %d of %d nodes with %d coefficients, %d codes, %d factors and %d "+
			"of rows themselves, and %d sums, from %d rows of %d of %d columns", len(t.Lists), most, len(t.Nodes),
			len(t.Edges), len(t.Codes), len(t.Factors), len(t.Selves), len(sums), rows, columns, stride))
	}
	if rows > 0 {
		x = x[:(rows-1)*stride+columns]
	}
	if columns < active.fewest {
		vectors = rest
	}
	lists := unsafe.Slice((*[3]int64)(unsafe.Pointer(&t.Lists[0])), len(t.Lists))
	for at := 0; at < columns; {
		some := min(columns-at, active.columns)
		if some < active.fewest && at > 0 { // with some columns again: they get the same sums
			some = active.fewest
			at = columns - some
		}
		distance := min(aheadRows, max(4, aheadBytes/(some*int(unsafe.Sizeof(x[0])))))
		selves = vectors(sums[at:], x[min(at, len(x)):], stride, some, lists, t.Nodes, t.Edges, t.Codes, t.Factors,
			t.Selves, min(distance, int(terms)))
		if selves < 0 {
			panic(fmt.Sprintf("kernel: lists of rows that are not in a matrix of %d rows", rows))
		}
		at += some
	}
	return selves
}

// portableLists is SumLists by the plain loop; add adds a row times a number.
func portableLists[T float32 | uint16](add func(sum []float32, by float32, row []T)) listRows[T] {
	return func(sums []float32, x []T, stride, columns int, lists [][3]int64, nodes []uint32, edges []float32,
		codes []uint16, factors, selves []float32, _ int) (added int) {
		for i, l := range lists {
			sum := sums[i*stride:][:columns]
			clear(sum)
			for at, self := l[0], l[2]; at < l[1] || self >= 0; {
				row, by := self, float32(1)
				if self >= 0 && (at == l[1] || self < int64(nodes[at])) { // its own row is next
					if selves != nil {
						by = selves[self]
					}
					added, self = added+1, -1
				} else {
					if row = int64(nodes[at]); row == self {
						self = -1
					}
					switch {
					case codes != nil:
						by = edges[codes[at]]
					case edges != nil:
						by = edges[at]
					}
					if factors != nil {
						by *= factors[row]
					}
					at++
				}
				add(sum, by, x[row*int64(stride):][:columns])
			}
		}
		return added
	}
}
