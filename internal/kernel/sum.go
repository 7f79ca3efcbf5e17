package kernel

import "fmt"

// SumColumns sums lists of rows of the first columns of a matrix; rows of x, and sums, lie stride numbers apart:
//
//	for l, k := range lengths {
//		sum := sums[l*stride:][:columns]
//		clear(sum)
//		for i, u := range nodes[:k] {
//			for j := range sum {
//				sum[j] += float32(coefficients[i] * x[int(u)*stride+j])
//			}
//		}
//		nodes, coefficients = nodes[k:], coefficients[k:]
//	}
//
// nil coefficients are all 1. Rows are fetched from memory ahead, over the ends of lists, so one call for many lists is
// faster than many. SumColumns panics where the loop would.
func SumColumns(sums, x []float32, stride, columns int, nodes []uint32, lengths []int, coefficients []float32) {
	terms, enough := 0, 0 <= columns && columns <= stride
	for _, k := range lengths {
		enough = enough && 0 <= k && k <= len(nodes)-terms
		terms += k
	}
	enough = enough && (coefficients == nil || len(coefficients) >= terms)
	if len(lengths) == 0 || columns == 0 && enough {
		return
	}
	if !enough || len(sums) < (len(lengths)-1)*stride+columns {
		panic(fmt.Sprintf("kernel: %d of %d rows, %d coefficients, %d lists and sums of %d of %d columns in %d numbers",
			terms, len(nodes), len(coefficients), len(lengths), columns, stride, len(sums)))
	}
	nodes = nodes[:terms]
	vectors := active.sum
	if columns < active.fewest {
		vectors = sumEach
	}
	for at := 0; at < columns && terms > 0; {
		some := min(columns-at, active.columns)
		if some < active.fewest && at > 0 { // with some columns again: they get the same sums
			some = active.fewest
			at = columns - some
		}
		distance := min(aheadRows, max(4, aheadBytes/(4*some)))
		if added := vectors(sums[at:], x[min(at, len(x)):], stride, some, nodes, lengths, coefficients,
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

// sumEach is the loop of SumColumns, one row after another.
func sumEach(sums, x []float32, stride, columns int, nodes []uint32, lengths []int, coefficients []float32, _ int) int {
	added := 0
	for l, k := range lengths {
		sum := sums[l*stride:][:columns]
		clear(sum)
		for _, u := range nodes[added : added+k] {
			by := float32(1)
			if coefficients != nil {
				by = coefficients[added]
			}
			addScaled(sum, by, x[int(u)*stride:][:columns])
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
