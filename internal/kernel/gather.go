package kernel

import (
	"fmt"
	"math/bits"
)

// How far ahead rows are fetched: enough for the memory to be busy, and no more than a part of the second level of
// the caches holds.
const (
	gatherAheadRows  = 32
	gatherAheadBytes = 64 << 10
)

// StreamBytes is about what a core's caches hold: from there on it pays to write past them.
const StreamBytes = 2 << 20

// minGatherBytes is the length of the shortest rows that are not copied one by one.
const minGatherBytes = 64

// GatherRows copies rows of rowBytes bytes, row rows[i] of src to row i of dst:
//
//	for i, row := range rows {
//		copy(dst[i*dstStride:][:rowBytes], src[int(row)*srcStride:])
//	}
//
// With stream they are written past the caches where the processor can: for what is more than the caches of a core
// hold, which would else be read before it is written.
func GatherRows(dst []byte, dstStride int, src []byte, srcStride, rowBytes int, rows []uint32, stream bool) {
	if rowBytes == 0 || len(rows) == 0 {
		return
	}
	if !rowFits(len(rows)-1, dstStride, rowBytes, len(dst)) {
		panic(fmt.Sprintf("kernel: %d rows of %d bytes, %d bytes apart, to %d bytes", len(rows), rowBytes, dstStride,
			len(dst)))
	}
	for i, row := range rows {
		if !rowFits(int(row), srcStride, rowBytes, len(src)) {
			panic(fmt.Sprintf("kernel: rows[%d] is row %d, %d bytes apart, of %d bytes", i, row, srcStride, len(src)))
		}
	}
	gather := active.gather
	if rowBytes < minGatherBytes {
		gather = portable.gather
	}
	gather(dst, dstStride, src, srcStride, rowBytes, rows, max(1, min(gatherAheadRows, gatherAheadBytes/rowBytes)),
		stream)
}

// rowFits tells whether a row lies in memory of this number of bytes, even if its place overflows.
func rowFits(row, stride, rowBytes, bytes int) bool {
	high, at := bits.Mul64(uint64(row), uint64(stride))
	return high == 0 && rowBytes <= bytes && at <= uint64(bytes-rowBytes)
}

// CopyPastCaches copies src to the start of dst, past the caches where the processor can: see GatherRows.
func CopyPastCaches(dst, src []byte) {
	GatherRows(dst, len(src), src, len(src), len(src), firstRow[:], true)
}

var firstRow = [1]uint32{0}

func gather(dst []byte, dstStride int, src []byte, srcStride, rowBytes int, rows []uint32, _ int, _ bool) {
	for i, row := range rows {
		copy(dst[i*dstStride:][:rowBytes], src[int(row)*srcStride:])
	}
}
