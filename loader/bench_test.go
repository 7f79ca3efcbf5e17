package loader

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// An epoch of 100000 rows of three matrices of 128 columns, 77 to 154 MB, whose consumer does nothing.
func BenchmarkEpoch(b *testing.B) {
	const rows = 100000
	for _, dtype := range []format.DType{format.Float32, format.Float16} {
		dir := filepath.Join(b.TempDir(), "store")
		spec := storeSpec{dtype: dtype, chunkRows: 1000, features: 128, labels: 1, train: rows}
		writeStore(b, vfs.OS(), dir, spec)
		store := openStore(b, vfs.OS(), dir)
		for _, p := range placements {
			for _, chunkRows := range []int{1, 1000} {
				if p.placement == Storage && chunkRows == 1 {
					continue
				}
				b.Run(fmt.Sprintf("dtype=%v/placement=%s/unified=%v/chunk=%d", dtype, p.placement, p.unified,
					chunkRows), func(b *testing.B) {
					device := newDevice(b, p.unified, host.Options{})
					l := mustOpen(b, Options{Device: device, Store: store, Matrices: testMatrices,
						Regions: []string{"train"}, Placement: p.placement, Mapped: p.mapped, BatchRows: 8000})
					s := mustSet(b, l, Rows{Region: "train"},
						chunk.Plan{BatchRows: 8000, ChunkRows: chunkRows, Order: chunk.Shuffled})
					stream := mustStream(b, device)
					defer stream.Close()
					b.SetBytes(rows * 128 * 3 * int64(dtype.Size()))
					for n := range b.N {
						for _, err := range s.Epoch(b.Context(), stream, n) {
							if err != nil {
								b.Fatal(err)
							}
						}
					}
					stats := l.Stats()
					b.ReportMetric(stats.LoopWaitSeconds/float64(b.N), "wait-s/op")
				})
			}
		}
	}
}
