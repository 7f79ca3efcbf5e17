// Package kernel holds the inner loops of propagation: adding rows of a matrix,
// and converting between float32 and numbers of 16 bits. The contract of each is
// the plain loop in its comment. There are three implementations: portable Go,
// AVX2 with F16C, and AVX-512; the best that the processor has is chosen at start
// (GODEBUG=cpu.avx512f=off and the like leave some out, the build tag noasm
// leaves only the portable one).
//
// All compute the same bits, subnormal numbers and infinities included: a product
// is rounded before it is added, to nearest even. What is NaN in one is NaN in all,
// but its sign and payload are not specified.
//
// 16-bit numbers are passed as their codes, uint16: Float16 is IEEE 754 binary16,
// BFloat16 the upper half of a float32. Sources and destinations do not overlap.
package kernel

import "fmt"

// implementation is one set of inner loops. They rely on what the exported
// functions check. Those of conversion do len(src) rounded down to lanes numbers.
type implementation struct {
	name  string
	lanes int // a power of 2

	addFloat32  func(sum, x []float32, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, distance int) (added int)
	addFloat16  func(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, distance int) (added int)
	addBFloat16 func(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, distance int) (added int)

	scaleFloat32  func(dst, src []float32, s float32) (finite bool)
	scaleFloat16  func(dst []uint16, src []float32, s float32) (finite bool)
	scaleBFloat16 func(dst []uint16, src []float32, s float32) (finite bool)

	decodeFloat16  func(dst []float32, src []uint16)
	decodeBFloat16 func(dst []float32, src []uint16)
}

// active is what the exported functions call.
var active = available()[0]

// Name is the implementation in use: avx512, avx2 or portable.
func Name() string { return active.name }

// AddFloat32 adds multiples of k rows of a matrix, x, to sum:
//
//	for i, u := range nodes[:k] {
//		for j := range sum {
//			sum[j] += float32(coefficients[i] * x[int(u)*stride+j])
//		}
//	}
//
// where byNode makes it coefficients[u], of which there is one for each row of x,
// and coefficients that are nil are all 1. The rows nodes[k:] are those that will be
// added next: they are fetched from memory ahead. AddFloat32 panics where the loop
// would.
func AddFloat32(sum, x []float32, stride int, nodes []uint32, k int, coefficients []float32, byNode bool) {
	add(active.addFloat32, 4, sum, x, stride, nodes, k, coefficients, byNode)
}

// AddFloat16 is AddFloat32 on a matrix of float16.
func AddFloat16(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool) {
	add(active.addFloat16, 2, sum, x, stride, nodes, k, coefficients, byNode)
}

// AddBFloat16 is AddFloat32 on a matrix of bfloat16.
func AddBFloat16(sum []float32, x []uint16, stride int, nodes []uint32, k int, coefficients []float32, byNode bool) {
	add(active.addBFloat16, 2, sum, x, stride, nodes, k, coefficients, byNode)
}

// Rows are fetched so many bytes ahead, but no more rows than aheadRows: enough to
// keep the memory busy, and few enough for the first-level cache to keep.
const (
	aheadBytes = 8192
	aheadRows  = 64
)

func add[T float32 | uint16](
	kernel func(sum []float32, x []T, stride int, nodes []uint32, k int, coefficients []float32, byNode bool, distance int) int,
	size int, sum []float32, x []T, stride int, nodes []uint32, k int, coefficients []float32, byNode bool) {
	if k == 0 || len(sum) == 0 {
		return
	}
	enough := len(coefficients) >= k
	switch {
	case coefficients == nil:
		enough, byNode = true, false
	case byNode: // as many as there are rows
		enough = len(coefficients)*stride > len(x)-len(sum)
	}
	if k < 0 || k > len(nodes) || stride < len(sum) || !enough {
		panic(fmt.Sprintf("kernel: %d of %d rows, %d coefficients, %d columns of %d of %d numbers",
			k, len(nodes), len(coefficients), len(sum), stride, len(x)))
	}
	distance := min(aheadRows, max(4, aheadBytes/(len(sum)*size)))
	if added := kernel(sum, x, stride, nodes, k, coefficients, byNode, distance); added < k {
		panic(fmt.Sprintf("kernel: one of the rows %d is not in a matrix of %d numbers, %d a row",
			nodes[added:min(k, added+4)], len(x), stride))
	}
}

// ScaleFloat32 computes
//
//	for j, v := range src {
//		dst[j] = s * v
//	}
//
// and tells whether all of dst is finite.
func ScaleFloat32(dst, src []float32, s float32) (finite bool) {
	return scale(active.scaleFloat32, portable.scaleFloat32, dst, src, s)
}

// ScaleFloat16 is ScaleFloat32 with results rounded to float16.
func ScaleFloat16(dst []uint16, src []float32, s float32) (finite bool) {
	return scale(active.scaleFloat16, portable.scaleFloat16, dst, src, s)
}

// ScaleBFloat16 is ScaleFloat32 with results rounded to bfloat16.
func ScaleBFloat16(dst []uint16, src []float32, s float32) (finite bool) {
	return scale(active.scaleBFloat16, portable.scaleBFloat16, dst, src, s)
}

func scale[T float32 | uint16](vectors, rest func(dst []T, src []float32, s float32) bool, dst []T, src []float32, s float32) bool {
	dst = dst[:len(src)]
	finite := vectors(dst, src, s)
	whole := len(src) &^ (active.lanes - 1)
	return rest(dst[whole:], src[whole:], s) && finite
}

// DecodeFloat16 converts all of src to float32, exactly.
func DecodeFloat16(dst []float32, src []uint16) {
	decode(active.decodeFloat16, portable.decodeFloat16, dst, src)
}

// DecodeBFloat16 converts all of src to float32, exactly.
func DecodeBFloat16(dst []float32, src []uint16) {
	decode(active.decodeBFloat16, portable.decodeBFloat16, dst, src)
}

func decode(vectors, rest func(dst []float32, src []uint16), dst []float32, src []uint16) {
	dst = dst[:len(src)]
	vectors(dst, src)
	whole := len(src) &^ (active.lanes - 1)
	rest(dst[whole:], src[whole:])
}
