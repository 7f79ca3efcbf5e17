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

// SumLists sums lists of rows of a matrix x [rows, columns], as they lie: list l to sums[l*columns:][:columns], from
// zeros, one row after another, with a row Self before the first row above it. It returns how many rows Self it has
// added. x is float32, or codes of float16 or bfloat16: see SumListsFloat16 and SumListsBFloat16. Rows are fetched
// from memory ahead, over the ends of lists. SumLists panics where an index is out of range.
func SumListsFloat32(sums, x []float32, columns int, t *Terms) (selves int) {
	return sumLists(active.listsFloat32, portable.listsFloat32, sums, x, columns, t)
}

// SumListsFloat16 is SumListsFloat32 on a matrix of float16.
func SumListsFloat16(sums []float32, x []uint16, columns int, t *Terms) (selves int) {
	return sumLists(active.listsFloat16, portable.listsFloat16, sums, x, columns, t)
}

// SumListsBFloat16 is SumListsFloat32 on a matrix of bfloat16.
func SumListsBFloat16(sums []float32, x []uint16, columns int, t *Terms) (selves int) {
	return sumLists(active.listsBFloat16, portable.listsBFloat16, sums, x, columns, t)
}

// sumLists calls vectors on as many columns at a time as it takes, and rest where there are too few for it.
func sumLists[T float32 | uint16](vectors, rest listRows[T], sums []float32, x []T, columns int, t *Terms) (selves int) {
	terms, most := int64(0), int64(-1)
	enough := columns > 0 && len(sums) >= len(t.Lists)*columns
	for i := range t.Lists {
		l := &t.Lists[i]
		enough = enough && 0 <= l.Start && l.Start <= l.End && l.End <= int64(len(t.Nodes))
		terms += l.End - l.Start
		most = max(most, l.Self)
	}
	rows := 0
	if columns > 0 {
		rows = len(x) / columns
	}
	enough = enough && most < int64(rows) && (t.Selves == nil || most < int64(len(t.Selves))) &&
		(t.Factors == nil || len(t.Factors) >= rows) &&
		(t.Codes == nil && (t.Edges == nil || len(t.Edges) >= len(t.Nodes)) ||
			t.Codes != nil && len(t.Codes) >= len(t.Nodes) && len(t.Edges) == 1<<16)
	if len(t.Lists) == 0 || columns == 0 {
		return 0
	}
	if !enough {
		panic(fmt.Sprintf("kernel: %d lists up to row %d of %d nodes with %d coefficients, %d codes, %d factors and %d "+
			"of rows themselves, and %d sums, from %d rows of %d columns", len(t.Lists), most, len(t.Nodes),
			len(t.Edges), len(t.Codes), len(t.Factors), len(t.Selves), len(sums), rows, columns))
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
		selves = vectors(sums[at:], x[at:rows*columns], columns, some, lists, t.Nodes, t.Edges, t.Codes, t.Factors,
			t.Selves, min(distance, int(terms)))
		if selves < 0 {
			panic(fmt.Sprintf("kernel: lists of rows that are not in a matrix of %d rows", rows))
		}
		at += some
	}
	return selves
}

// portableLists is SumLists by the plain loop.
func portableLists[T float32 | uint16](value func(T) float32) listRows[T] {
	return func(sums []float32, x []T, stride, columns int, lists [][3]int64, nodes []uint32, edges []float32,
		codes []uint16, factors, selves []float32, _ int) (added int) {
		for i, l := range lists {
			sum := sums[i*stride:][:columns]
			clear(sum)
			add := func(row int64, c float32) {
				for j, v := range x[row*int64(stride):][:columns] {
					sum[j] += float32(c * value(v))
				}
			}
			self := l[2]
			own := func() {
				c := float32(1)
				if selves != nil {
					c = selves[self]
				}
				add(self, c)
				added, self = added+1, -1
			}
			for at := l[0]; at < l[1]; at++ {
				row := int64(nodes[at])
				switch {
				case self == row:
					self = -1
				case self >= 0 && self < row:
					own()
				}
				c := float32(1)
				switch {
				case codes != nil:
					c = edges[codes[at]]
				case edges != nil:
					c = edges[at]
				}
				if factors != nil {
					c *= factors[row]
				}
				add(row, c)
			}
			if self >= 0 {
				own()
			}
		}
		return added
	}
}
