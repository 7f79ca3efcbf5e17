package kernel

import (
	"fmt"
	"unsafe"
)

// SumFloat32 sums lists of rows of a matrix, x:
//
//	for l, k := range lengths {
//		sum := sums[l*columns:][:columns]
//		clear(sum)
//		for i, u := range nodes[:k] {
//			for j := range sum {
//				sum[j] += float32(coefficients[i] * x[int(u)*columns+j])
//			}
//		}
//		nodes, coefficients = nodes[k:], coefficients[k:]
//	}
//
// With byNode the coefficient is coefficients[u], and there is one for each row of x. nil coefficients are all 1.
// Rows are fetched from memory ahead, over the ends of lists, so one call for many lists is faster than many.
// SumFloat32 panics where the loop would.
func SumFloat32(sums, x []float32, columns int, nodes []uint32, lengths []int, coefficients []float32, byNode bool) {
	sum(active.sumFloat32, portable.sumFloat32, sums, x, columns, columns, nodes, lengths, coefficients, byNode)
}

// SumFloat16 is SumFloat32 on a matrix of float16.
func SumFloat16(sums []float32, x []uint16, columns int, nodes []uint32, lengths []int, coefficients []float32,
	byNode bool) {
	sum(active.sumFloat16, portable.sumFloat16, sums, x, columns, columns, nodes, lengths, coefficients, byNode)
}

// SumBFloat16 is SumFloat32 on a matrix of bfloat16.
func SumBFloat16(sums []float32, x []uint16, columns int, nodes []uint32, lengths []int, coefficients []float32,
	byNode bool) {
	sum(active.sumBFloat16, portable.sumBFloat16, sums, x, columns, columns, nodes, lengths, coefficients, byNode)
}

// SumColumns is SumFloat32 on the first columns of a matrix: rows of x, and sums, lie stride numbers apart. The
// coefficients, which may be nil, are in the order of nodes. SumColumns panics where the loop would.
func SumColumns(sums, x []float32, stride, columns int, nodes []uint32, lengths []int, coefficients []float32) {
	vectors := active.sumFloat32
	if active.lanes == 1 { // portable loops take whole rows
		vectors = sumEach
	}
	sum(vectors, sumEach, sums, x, stride, columns, nodes, lengths, coefficients, false)
}

// sumEach is the loop of SumColumns, one row after another.
func sumEach(sums, x []float32, stride, columns int, nodes []uint32, lengths []int, coefficients []float32, _ bool,
	_ int) int {
	added := 0
	for l, k := range lengths {
		sum := sums[l*stride:][:columns]
		clear(sum)
		for _, u := range nodes[added : added+k] {
			by := float32(1)
			if coefficients != nil {
				by = coefficients[added]
			}
			AddScaled(sum, by, x[int(u)*stride:][:columns])
			added++
		}
	}
	return added
}

// Rows are fetched aheadBytes ahead, but no more rows than aheadRows: enough to keep the memory busy, and few
// enough for the first-level cache to keep.
const (
	aheadBytes = 4096
	aheadRows  = 32
)

// sum calls vectors on as many columns at a time as it takes, and rest where there are too few for it.
func sum[T float32 | uint16](vectors, rest sumRows[T], sums []float32, x []T, stride, columns int, nodes []uint32,
	lengths []int, coefficients []float32, byNode bool) {
	terms, enough := 0, 0 <= columns && columns <= stride
	for _, k := range lengths {
		enough = enough && 0 <= k && k <= len(nodes)-terms
		terms += k
	}
	switch {
	case coefficients == nil:
		byNode = false
	case byNode: // as many as there are rows
		enough = enough && (columns == 0 || len(coefficients)*columns > len(x)-columns)
	default:
		enough = enough && len(coefficients) >= terms
	}
	if len(lengths) == 0 || columns == 0 && enough {
		return
	}
	if !enough || len(sums) < (len(lengths)-1)*stride+columns {
		panic(fmt.Sprintf("kernel: %d of %d rows, %d coefficients, %d lists and sums of %d of %d columns in %d numbers",
			terms, len(nodes), len(coefficients), len(lengths), columns, stride, len(sums)))
	}
	nodes = nodes[:terms]
	if columns < active.fewest {
		vectors = rest
	}
	for at := 0; at < columns && terms > 0; {
		some := min(columns-at, active.columns)
		if some < active.fewest && at > 0 { // with some columns again: they get the same sums
			some = active.fewest
			at = columns - some
		}
		distance := min(aheadRows, max(4, aheadBytes/(some*int(unsafe.Sizeof(x[0])))))
		if added := vectors(sums[at:], x[min(at, len(x)):], stride, some, nodes, lengths, coefficients, byNode,
			distance); added < terms {
			panic(fmt.Sprintf("kernel: row %d is not in a matrix of %d numbers, %d a row", nodes[added], len(x),
				stride))
		}
		at += some
	}
	if terms == 0 {
		for l := range lengths {
			clear(sums[l*stride:][:columns])
		}
	}
}
