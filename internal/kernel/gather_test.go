package kernel

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Rows end, or start, where no byte can be read or written.
func TestGatherRowsIsThePlainLoop(t *testing.T) {
	const sources = 50
	with(t, func(t *testing.T) {
		for _, rowBytes := range []int{1, 3, 63, 64, 65, 80, 127, 128, 200, 400, 1200, 1600, 5000} {
			for _, gap := range []int{0, 7, 16, 64} {
				for _, n := range []int{1, 2, 31, 32, 33, 100} {
					srcStride, dstStride := rowBytes+gap, rowBytes+2*gap
					srcAtEnd, _ := fenced(t, sources*srcStride-gap) // the last row ends the slice
					_, srcAtStart := fenced(t, len(srcAtEnd))
					dstAtEnd, _ := fenced(t, n*dstStride-2*gap)
					_, dstAtStart := fenced(t, len(dstAtEnd))
					rows := make([]uint32, n)
					for i := range rows {
						rows[i] = uint32(rng.Hash(2, uint64(i)) % sources)
					}
					rows[0], rows[n-1] = 0, sources-1
					for i := range srcAtEnd {
						srcAtEnd[i] = byte(rng.Hash(1, uint64(i)))
					}
					copy(srcAtStart, srcAtEnd)
					want := bytes.Repeat([]byte{0xee}, len(dstAtEnd))
					for i, row := range rows {
						for j := range rowBytes {
							want[i*dstStride+j] = srcAtEnd[int(row)*srcStride+j]
						}
					}
					for k, m := range [][2][]byte{{dstAtEnd, srcAtEnd}, {dstAtStart, srcAtStart}} {
						for _, stream := range []bool{false, true} {
							copy(m[0], bytes.Repeat([]byte{0xee}, len(want)))
							GatherRows(m[0], dstStride, m[1], srcStride, rowBytes, rows, stream)
							if !bytes.Equal(m[0], want) {
								t.Errorf("%d rows of %d bytes, %d apart, at %d, stream %v: other bytes", n, rowBytes,
									srcStride, k, stream)
							}
						}
					}
				}
			}
		}
		GatherRows(nil, 8, nil, 8, 8, nil, true)
		GatherRows(nil, 0, nil, 0, 0, []uint32{1}, true)
	})
}

func TestGatherRowsTouchesNoRowOutsideOfItsMemory(t *testing.T) {
	with(t, func(t *testing.T) {
		for _, c := range []struct {
			name                 string
			dstStride, srcStride int
			rows                 []uint32
		}{
			{"row 3 of three", 64, 64, []uint32{2, 3}},
			{"a row whose place is no number", 64, 1 << 62, []uint32{0, 2}},
			{"a row before the first", 64, -64, []uint32{0, 1}},
			{"a row behind the last to be written", 65, 64, []uint32{0, 1}},
			{"one to be written whose place is no number", 1 << 62, 64, []uint32{0, 1, 2}},
			{"one to be written before the first", -64, 64, []uint32{0, 1}},
		} {
			t.Run(c.name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("it was gathered")
					}
				}()
				GatherRows(make([]byte, 2*64), c.dstStride, make([]byte, 3*64), c.srcStride, 64, c.rows, false)
			})
		}
	})
}

// Rows of 512 MiB to 12.8 MB, as for a batch.
func BenchmarkGatherRows(b *testing.B) {
	const memory = 1 << 29
	src, dst := make([]byte, memory), make([]byte, 12_800_000)
	for i := 0; i < memory; i += 4096 {
		src[i] = 1
	}
	for _, set := range available() {
		for _, rowBytes := range []int{64, 256, 400, 1600, 4096} {
			for _, stream := range []bool{false, true} {
				b.Run(fmt.Sprintf("set=%s/row=%d/stream=%v", set.name, rowBytes, stream), func(b *testing.B) {
					defer func(before *implementation) { active = before }(active)
					active = set
					rows := make([]uint32, len(dst)/rowBytes)
					b.SetBytes(int64(len(dst)))
					for k := range b.N {
						b.StopTimer()
						for i := range rows {
							rows[i] = uint32(rng.Hash(uint64(k), uint64(i)) % uint64(memory/rowBytes))
						}
						b.StartTimer()
						GatherRows(dst, rowBytes, src, rowBytes, rowBytes, rows, stream)
					}
				})
			}
		}
	}
}
