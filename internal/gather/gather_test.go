package gather

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

// Batches of all sizes, from less than a grain to more than caches hold, are what copying row by
// row gives; several are on their way at a time.
func TestRowsAreWhereTheirNumbersSay(t *testing.T) {
	const inputRows = 1000
	for _, rowBytes := range []int{4, 20, 1200} {
		src := make([]byte, inputRows*rowBytes)
		for i := range src {
			src[i] = byte(rng.Hash(1, uint64(i)))
		}
		for _, threads := range []int{0, 1, 3} {
			p := NewPool(threads)
			var got, want [][]byte
			var pending []*sync.WaitGroup
			for _, count := range []int{0, 1, 77, 5000} {
				rows := make([]uint32, count)
				naive := make([]byte, 0, count*rowBytes)
				for i := range rows {
					rows[i] = uint32(rng.Hash(2, uint64(i)) % inputRows)
					naive = append(naive, src[int(rows[i])*rowBytes:][:rowBytes]...)
				}
				dst := make([]byte, count*rowBytes)
				got, want = append(got, dst), append(want, naive)
				pending = append(pending, p.Start(dst, src, rowBytes, rows))
			}
			for i, done := range pending {
				done.Wait()
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("rows of %d bytes, %d threads: batch %d differs", rowBytes, threads, i)
				}
			}
			p.Close()
		}
	}
}

func BenchmarkGather(b *testing.B) {
	const inputRows, batchRows = 200_000, 8000
	for _, rowBytes := range []int{128, 1600} {
		src, dst := make([]byte, inputRows*rowBytes), make([]byte, batchRows*rowBytes)
		rows := make([]uint32, batchRows)
		for i := range rows {
			rows[i] = uint32(rng.Hash(3, uint64(i)) % inputRows)
		}
		b.Run(fmt.Sprintf("rowBytes=%d", rowBytes), func(b *testing.B) {
			p := NewPool(2)
			defer p.Close()
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				p.Start(dst, src, rowBytes, rows).Wait()
			}
		})
	}
}
