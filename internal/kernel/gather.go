package kernel

// How much is prefetched: rows so far ahead that about so many bytes are on their
// way, more than which a core's line fill buffers do not hold, and of long rows the
// start, after which the processor goes on by itself.
const (
	prefetchBytes   = 4 << 10
	maxPrefetchRows = 32
)

// GatherRows copies rows of rowBytes bytes: row i of dst, which begins at
// i*dstStride, becomes row rows[i] of src, which begins at rows[i]*srcStride.
func GatherRows(dst []byte, dstStride int, src []byte, srcStride, rowBytes int, rows []uint32) {
	if rowBytes == 0 {
		return
	}
	ahead := min(max(prefetchBytes/rowBytes, 1), maxPrefetchRows)
	fetched := min(rowBytes, prefetchBytes)
	for _, row := range rows[:min(ahead, len(rows))] {
		prefetch(&src[int(row)*srcStride], fetched)
	}
	for i, row := range rows {
		if i+ahead < len(rows) {
			prefetch(&src[int(rows[i+ahead])*srcStride], fetched)
		}
		to, from := i*dstStride, int(row)*srcStride
		copy(dst[to:to+rowBytes], src[from:from+rowBytes])
	}
}
