package kernel

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

func TestGatherRowsIsThePlainLoop(t *testing.T) {
	const sources = 50
	for _, rowBytes := range []int{0, 1, 3, 63, 64, 65, 400, 4096, 5000} {
		for _, gap := range []int{0, 7} {
			for _, n := range []int{0, 1, 2, 31, 32, 33, 100} {
				srcStride, dstStride := rowBytes+gap, rowBytes+2*gap
				src := make([]byte, max(0, sources*srcStride-gap)) // the last row ends the slice
				for i := range src {
					src[i] = byte(rng.Hash(1, uint64(i)))
				}
				rows := make([]uint32, n)
				for i := range rows {
					rows[i] = uint32(rng.Hash(2, uint64(i)) % sources)
				}
				dst := bytes.Repeat([]byte{0xee}, n*dstStride)
				want := bytes.Clone(dst)
				for i, row := range rows {
					for j := range rowBytes {
						want[i*dstStride+j] = src[int(row)*srcStride+j]
					}
				}
				GatherRows(dst, dstStride, src, srcStride, rowBytes, rows)
				if !bytes.Equal(dst, want) {
					t.Errorf("%d rows of %d bytes, %d apart: other bytes", n, rowBytes, srcStride)
				}
			}
		}
	}
}

func BenchmarkGatherRows(b *testing.B) {
	const memory, n = 1 << 29, 8000
	src := make([]byte, memory)
	for i := 0; i < memory; i += 4096 {
		src[i] = 1
	}
	for _, rowBytes := range []int{64, 256, 400, 1024, 4096} {
		b.Run(fmt.Sprintf("row=%d", rowBytes), func(b *testing.B) {
			rows, dst := make([]uint32, n), make([]byte, n*rowBytes)
			b.SetBytes(int64(len(dst)))
			for k := range b.N {
				b.StopTimer()
				for i := range rows {
					rows[i] = uint32(rng.Hash(uint64(k), uint64(i)) % uint64(memory/rowBytes))
				}
				b.StartTimer()
				GatherRows(dst, rowBytes, src, rowBytes, rowBytes, rows)
			}
		})
	}
}
