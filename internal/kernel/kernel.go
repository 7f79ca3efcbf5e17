// Package kernel holds inner loops: of propagation, summing rows of a matrix and converting between float32 and
// numbers of 16 bits; of loading, gathering rows and drawing their order; and of training, multiplying matrices and
// exponentials. The contract of each is the plain loop in its comment. There are three implementations: portable Go,
// AVX2 with F16C (and FMA, for Gemm), and AVX-512; the best that the processor has is chosen at start
// (GODEBUG=cpu.avx512f=off and the like leave some out, the build tag noasm leaves only the portable one).
//
// All compute the same bits, subnormal numbers and infinities included: a product is rounded before it is added, to
// nearest even. What is NaN in one is NaN in all, but its sign and payload are not specified. Gemm alone may fuse
// both: AVX2 and AVX-512 do.
//
// 16-bit numbers are passed as their codes, uint16: Float16 is IEEE 754 binary16, BFloat16 the upper half of a
// float32. Sources and destinations do not overlap.
package kernel

// implementation is one set of inner loops. They rely on what the exported functions check.
type implementation struct {
	name    string
	lanes   int // the vectors of scale and decode, which leave what is behind the last whole one of a row; a power of 2
	columns int // most columns that lists takes at a time,
	fewest  int // and fewest
	numbers int // that feistel takes at a time, a power of 2

	listsFloat32                listRows[float32]
	listsFloat16, listsBFloat16 listRows[uint16]

	scaleFloat32                scaleRows[float32]
	scaleFloat16, scaleBFloat16 scaleRows[uint16]

	decodeFloat16, decodeBFloat16 func(dst []float32, src []uint16)

	dot       func(x, y []float32) float32 // of as many as Dot has sums, or a multiple
	addScaled func(dst []float32, by float32, x []float32)
	scaled    func(dst []float32, by float32, x []float32)
	exp       func(dst, src []float32, less float32) (sum float32)
	largest   func(x []float32) float32

	gather func(dst []byte, dstStride int, src []byte, srcStride, rowBytes int, rows []uint32, ahead int, stream bool)

	feistel func(images []uint64, first uint64, keys []uint64, a uint64, shift uint)

	crc func(register uint32, p []byte) uint32 // or nil

	gemm gemmTile
}

// listRows is SumLists for some columns of x, whose rows, and sums, lie stride numbers apart; lists are List. It
// returns -1 where a row is not in x.
type listRows[T float32 | uint16] func(sums []float32, x []T, stride, columns int, lists [][3]int64, nodes []uint32,
	edges []float32, codes []uint16, factors, selves []float32, distance int) (selvesAdded int)

type scaleRows[T float32 | uint16] func(dst []T, src, factors []float32, columns int, stream bool) (finite bool)

// active is the implementation that exported functions call.
var active = available()[0]

// Name is the implementation in use: avx512, avx2 or portable.
func Name() string { return active.name }
